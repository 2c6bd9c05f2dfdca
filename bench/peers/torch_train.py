"""The loop that people write with PyTorch: a small GPT, AdamW, clipping, and DDP over Gloo with more than one rank.

Prints {"tokens_per_s": ..., "loss": ...} on rank 0. bench_train starts one of these a rank, with the usual variables.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.mask = torch.tril(torch.ones(length, length)).view(1, 1, length, length) == 0

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        scores = scores.masked_fill(self.mask[:, :, :length, :length], float("-inf"))
        return self.out((F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, length)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, layers, width, heads, length):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads, length) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits = self.norm(self.blocks(x)) @ self.tokens.weight.t()
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.reshape(-1))


def main():
    options = json.loads(sys.argv[1])
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    rank = int(os.environ.get("RANK", "0"))
    torch.set_num_threads(options["threads"])
    torch.manual_seed(1)
    length, batch = options["context"], options["batch"] // ranks
    model = Gpt(options["vocabulary"], options["layers"], options["hidden"], options["heads"], length)
    parameters = list(model.parameters())
    if ranks > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95))
    times = []
    for step in range(options["warm_up"] + options["steps"]):
        data = torch.randint(options["vocabulary"], (batch, length + 1))
        start = time.perf_counter()
        loss = model(data[:, :-1], data[:, 1:])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        value = loss.item()
        if step >= options["warm_up"]:
            times.append(time.perf_counter() - start)
    times.sort()
    if rank == 0:
        tokens = options["batch"] * length
        print(json.dumps({"tokens_per_s": tokens / times[len(times) // 2], "loss": value}))


main()
