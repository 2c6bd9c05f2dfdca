"""The families of models that tutti reads, in plain PyTorch as their publishers describe them: the logits and
gradients that ours are compared with.

    torch_families.py CASE FOLDER
    torch_families.py all FOLDER          each case to FOLDER/CASE

Writes a small model with random weights in the form of Hugging Face to FOLDER, and what it computes in f64 of random
tokens: FOLDER/expected.safetensors has `tokens` (batch × length + 1) and `logits` (of all but the last), and
FOLDER/gradients/model.safetensors the gradient of the mean cross-entropy by each weight, under the weight's name.
"""
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F
from torch import nn

BATCH, LENGTH, VOCABULARY, HIDDEN, LAYERS = 2, 40, 61, 32, 3


# ---- GPT-2: learned positions, LayerNorm, biases everywhere, matrices as in × out


class Conv1D(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Gpt2Attention(nn.Module):
    def __init__(self, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(HIDDEN, 3 * HIDDEN)
        self.c_proj = Conv1D(HIDDEN, HIDDEN)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
                   for part in self.c_attn(x).split(HIDDEN, -1))
        return self.c_proj(attend(q, k, v).transpose(1, 2).flatten(2))


class Gpt2Mlp(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.c_fc = Conv1D(HIDDEN, 4 * HIDDEN)
        self.c_proj = Conv1D(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        return self.c_proj(self.activation(self.c_fc(x)))


class Gpt2Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(HIDDEN, config["layer_norm_epsilon"])
        self.attn = Gpt2Attention(config["n_head"])
        self.ln_2 = nn.LayerNorm(HIDDEN, config["layer_norm_epsilon"])
        self.mlp = Gpt2Mlp(config["activation_function"])

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, HIDDEN)
        self.wpe = nn.Embedding(config["n_positions"], HIDDEN)
        self.h = nn.ModuleList(Gpt2Layer(config) for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(HIDDEN, config["layer_norm_epsilon"])

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.size(1)))
        for layer in self.h:
            x = layer(x)
        return self.ln_f(x) @ self.wte.weight.t()


# ---- Llama and what descends from it: rotary positions, RMSNorm, a gate in the MLP


class RmsNorm(nn.Module):
    def __init__(self, size, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))
        self.epsilon = epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def yarn(described, config, theta, size):
    """Which pairs are stretched, and by what all that is turned is multiplied."""
    factor = described["factor"]
    context = described.get("original_max_position_embeddings", config["max_position_embeddings"])

    def sharpening(scale):
        return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0

    def pair(turns):
        return size * math.log(context / (2 * math.pi * turns)) / (2 * math.log(theta))

    larger = described.get("attention_factor")
    if larger is None:
        outer, inner = described.get("mscale"), described.get("mscale_all_dim")
        larger = sharpening(outer) / sharpening(inner) if outer and inner else sharpening(1)
    first, last = pair(described.get("beta_fast") or 32), pair(described.get("beta_slow") or 1)
    if described.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    if first == last:
        last += 0.001
    mixed = []
    for number in range(size // 2):
        plain = theta ** (-2 * number / size)
        share = min(max((number - first) / (last - first), 0), 1)
        mixed.append(plain / factor * share + plain * (1 - share))
    return torch.tensor(mixed).double(), larger


def inverse_frequencies(config, size):
    """And what the cosines and sines are multiplied by."""
    described = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = described.get("rope_theta", config.get("rope_theta", 10000.0))
    plain = 1.0 / theta ** (torch.arange(0, size, 2).double() / size)
    kind = described.get("rope_type", described.get("type", "default"))
    if kind == "linear":
        return plain / described["factor"], 1.0
    if kind == "default":
        return plain, 1.0
    if kind == "yarn":
        return yarn(described, config, theta, size)
    # Llama 3.1: what turns slowly is stretched, what turns fast is not, and between the two it is mixed.
    low, high = described["low_freq_factor"], described["high_freq_factor"]
    context, factor = described["original_max_position_embeddings"], described["factor"]
    mixed = []
    for frequency in plain.tolist():
        length = 2 * math.pi / frequency
        if length < context / high:
            mixed.append(frequency)
        elif length > context / low:
            mixed.append(frequency / factor)
        else:
            smooth = (context / length - low) / (high - low)
            mixed.append((1 - smooth) * frequency / factor + smooth * frequency)
    return torch.tensor(mixed).double(), 1.0


def turn(x, frequencies, larger):
    angles = torch.arange(x.size(2)).double()[:, None] * frequencies
    angles = torch.cat((angles, angles), -1)
    first, second = x.chunk(2, -1)
    return (x * angles.cos() + torch.cat((-second, first), -1) * angles.sin()) * larger


def attend(q, k, v, window=None):
    k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
    place = torch.arange(q.size(2))
    seen = place[None, :] <= place[:, None]
    if window is not None:
        seen = seen & (place[None, :] > place[:, None] - window)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.size(-1))
    return scores.masked_fill(~seen, -math.inf).softmax(-1) @ v


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        heads = config["num_attention_heads"]
        kv_heads = config["num_key_value_heads"]
        self.size = config.get("head_dim", HIDDEN // heads)
        kind = config["model_type"]
        bias = config.get("attention_bias", False)
        qkv_bias = bias or kind == "qwen2"
        self.q_proj = nn.Linear(HIDDEN, heads * self.size, qkv_bias)
        self.k_proj = nn.Linear(HIDDEN, kv_heads * self.size, qkv_bias)
        self.v_proj = nn.Linear(HIDDEN, kv_heads * self.size, qkv_bias)
        self.o_proj = nn.Linear(heads * self.size, HIDDEN, bias)
        if kind in ("qwen3", "qwen3_moe"):
            self.q_norm = RmsNorm(self.size, config["rms_norm_eps"])
            self.k_norm = RmsNorm(self.size, config["rms_norm_eps"])
        else:
            self.q_norm = self.k_norm = None
        self.turns = inverse_frequencies(config, self.size)
        self.window = config.get("sliding_window") if kind == "mistral" else None

    def forward(self, x):
        q, k, v = (linear(x).unflatten(-1, (-1, self.size)) for linear in (self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        q, k = turn(q, *self.turns), turn(k, *self.turns)
        return self.o_proj(attend(q, k, v, self.window).transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, config, width):
        super().__init__()
        bias = config.get("mlp_bias", False)
        self.gate_proj = nn.Linear(HIDDEN, width, bias)
        self.up_proj = nn.Linear(HIDDEN, width, bias)
        self.down_proj = nn.Linear(width, HIDDEN, bias)
        self.activation = ACTIVATIONS[config["hidden_act"]]

    def forward(self, x):
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Mixture(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(HIDDEN, config["num_experts"], bias=False)
        self.experts = nn.ModuleList(Mlp(config, config["moe_intermediate_size"])
                                     for _ in range(config["num_experts"]))
        self.chosen = config["num_experts_per_tok"]
        self.normalized = config["norm_topk_prob"]

    def forward(self, x):
        weights, which = self.gate(x).softmax(-1).topk(self.chosen, -1)
        if self.normalized:
            weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            share = (weights * (which == number)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        return out


class Layer(nn.Module):
    def __init__(self, config, number):
        super().__init__()
        self.input_layernorm = RmsNorm(HIDDEN, config["rms_norm_eps"])
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(HIDDEN, config["rms_norm_eps"])
        mixed = (config.get("num_experts", 0) > 0 and (number + 1) % config["decoder_sparse_step"] == 0
                 and number not in config["mlp_only_layers"])
        self.mlp = Mixture(config) if mixed else Mlp(config, config["intermediate_size"])

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        self.model.layers = nn.ModuleList(Layer(config, number) for number in range(LAYERS))
        self.model.norm = RmsNorm(HIDDEN, config["rms_norm_eps"])
        tied = config["tie_word_embeddings"]
        self.lm_head = None if tied else nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.model.embed_tokens(tokens)
        for layer in self.model.layers:
            x = layer(x)
        x = self.model.norm(x)
        return x @ self.model.embed_tokens.weight.t() if self.lm_head is None else self.lm_head(x)


# ---- the cases


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


ACTIVATIONS = {"silu": F.silu, "gelu": F.gelu, "gelu_new": gelu_new, "gelu_pytorch_tanh": gelu_new}


def gpt2(**changed):
    return {"model_type": "gpt2", "vocab_size": VOCABULARY, "n_layer": LAYERS, "n_embd": HIDDEN, "n_head": 4,
            "n_positions": LENGTH, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", **changed}


def decoder(kind, **changed):
    return {"model_type": kind, "vocab_size": VOCABULARY, "num_hidden_layers": LAYERS, "hidden_size": HIDDEN,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
            "max_position_embeddings": LENGTH, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
            "tie_word_embeddings": False, **changed}


CASES = {
    "gpt2": gpt2(),
    "gpt2-gelu": gpt2(activation_function="gelu"),
    "llama": decoder("llama", num_key_value_heads=4),
    "llama-3.1": decoder("llama", rope_theta=500000.0, tie_word_embeddings=True, rope_scaling={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32}),
    "llama-biases": decoder("llama", attention_bias=True, mlp_bias=True, head_dim=12, hidden_act="gelu",
                            rope_scaling={"type": "linear", "factor": 2.0}),
    "llama-yarn": decoder("llama", head_dim=12, rope_scaling={
        "type": "yarn", "factor": 8.0, "original_max_position_embeddings": 30, "beta_fast": 4.0, "mscale": 1.5,
        "mscale_all_dim": 0.5, "truncate": False}),
    "mistral": decoder("mistral", sliding_window=7, head_dim=16),
    "qwen2": decoder("qwen2", rope_theta=1000000.0, tie_word_embeddings=True, use_sliding_window=False,
                     sliding_window=7, max_window_layers=2),
    "qwen3": decoder("qwen3", head_dim=16, rope_theta=None,
                     rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "qwen3-yarn": decoder("qwen3", head_dim=16, rope_theta=None, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 2, "beta_slow": 0.25}),
    "qwen3-biases": decoder("qwen3", head_dim=6, attention_bias=True, tie_word_embeddings=True),
    "qwen3_moe": decoder("qwen3_moe", head_dim=16, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
                         norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[1]),
    "qwen3_moe-every-second": decoder("qwen3_moe", head_dim=8, num_experts=5, num_experts_per_tok=3,
                                      moe_intermediate_size=20, norm_topk_prob=False, decoder_sparse_step=2,
                                      mlp_only_layers=[]),
}


def save(path, tensors):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    header, data = {}, b""
    for name, values in tensors.items():
        raw = values.detach().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write(config, folder):
    torch.manual_seed(17)
    model = (Gpt2 if config["model_type"] == "gpt2" else Decoder)(config)
    for name, values in model.named_parameters():
        # So large that attention is far from even. No tensor is without a say: biases are not 0, nor norms 1.
        with torch.no_grad():
            values.normal_(std=0.1 if values.dim() == 1 else 0.2)
            if values.dim() == 1 and name.endswith("weight"):
                values += 1
    save(folder + "/model.safetensors", dict(model.named_parameters()))
    with open(folder + "/config.json", "w") as file:
        json.dump(config, file)

    model.double()
    tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH + 1))
    logits = model(tokens[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
    save(folder + "/expected.safetensors", {"tokens": tokens, "logits": logits})
    save(folder + "/gradients/model.safetensors", {name: values.grad for name, values in model.named_parameters()})


def main():
    case, folder = sys.argv[1:]
    if case == "all":
        for each, config in CASES.items():
            write(config, folder + "/" + each)
    else:
        write(CASES[case], folder)


main()
