"""A Llama shape of random weights that answers in plain PyTorch: a cache of fixed size, the likeliest token each time.

Prints {"tokens_per_s": ...} of all streams together, behind their prompts. bench_engine starts it:

    torch_llama.py '{"hidden": 384, "layers": 8, "heads": 6, "kv_heads": 2, "intermediate": 1024, "vocabulary": 8192,
                     "prompt": 128, "generated": 48, "streams": 1, "threads": 2}'
"""

import json
import sys
import time

import torch
import torch.nn.functional as F

options = json.loads(sys.argv[1])
torch.set_num_threads(options["threads"])
torch.manual_seed(1)
hidden, heads, kv_heads, streams = (options[key] for key in ("hidden", "heads", "kv_heads", "streams"))
size = hidden // heads
length = options["prompt"] + options["generated"]


def matrix(outputs, inputs):
    return torch.randn(outputs, inputs) * 0.02


embedding, head = matrix(options["vocabulary"], hidden), matrix(options["vocabulary"], hidden)
layers = [
    {
        "qkv": matrix((heads + 2 * kv_heads) * size, hidden),
        "out": matrix(hidden, hidden),
        "up": matrix(2 * options["intermediate"], hidden),
        "down": matrix(hidden, options["intermediate"]),
        "norms": [torch.ones(hidden), torch.ones(hidden)],
        "keys": torch.zeros(streams, kv_heads, length, size),
        "values": torch.zeros(streams, kv_heads, length, size),
    }
    for _ in range(options["layers"])
]
angles = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, size, 2) / size)
cosines, sines = torch.cat((angles, angles), -1).cos(), torch.cat((angles, angles), -1).sin()


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def turn(x, first, end):
    one, other = x.chunk(2, -1)
    return x * cosines[first:end] + torch.cat((-other, one), -1) * sines[first:end]


def step(tokens, first):
    """Of tokens that stand from `first` on, the likeliest that follows."""
    end = first + tokens.shape[1]
    x = embedding[tokens]
    seen = torch.arange(end)[None, :] <= torch.arange(first, end)[:, None]
    for layer in layers:
        qkv = F.linear(norm(x, layer["norms"][0]), layer["qkv"]).unflatten(-1, (-1, size)).transpose(1, 2)
        q, k, v = qkv.split([heads, kv_heads, kv_heads], 1)
        layer["keys"][:, :, first:end], layer["values"][:, :, first:end] = turn(k, first, end), v
        k, v = (layer[part][:, :, :end].repeat_interleave(heads // kv_heads, 1) for part in ("keys", "values"))
        scores = turn(q, first, end) @ k.transpose(-1, -2) * size ** -0.5
        if end - first > 1:
            scores = scores.masked_fill(~seen, float("-inf"))
        x = x + F.linear((scores.softmax(-1) @ v).transpose(1, 2).flatten(2), layer["out"])
        gate, up = F.linear(norm(x, layer["norms"][1]), layer["up"]).chunk(2, -1)
        x = x + F.linear(F.silu(gate) * up, layer["down"])
    return F.linear(norm(x[:, -1:], torch.ones(hidden)), head).argmax(-1)


def main():
    with torch.inference_mode():
        speeds = []
        for _ in range(3):
            tokens = step(torch.randint(options["vocabulary"], (streams, options["prompt"])), 0)
            start = time.perf_counter()
            for at in range(options["prompt"], length):
                tokens = step(tokens, at)
            speeds.append(streams * options["generated"] / (time.perf_counter() - start))
    print(json.dumps({"tokens_per_s": sorted(speeds[1:])[-1]}))


main()
