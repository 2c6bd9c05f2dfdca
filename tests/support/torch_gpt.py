"""The models of `tutti train` in plain PyTorch: the losses and gradients that a training is compared with.

    torch_gpt.py gpt2|llama RECIPE TEXT

Writes random weights with a config.json in the form of Hugging Face to the folder that the recipe names as
`weights`, trains them in f64, on the whole text in each step, and prints a line a step: what metrics.jsonl is to
say. The data must be packed already: its tokenizer tells the ids.
"""
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F

LAYERS, HIDDEN, HEADS, KV_HEADS, INTERMEDIATE = 2, 32, 4, 2, 96
HEAD = HIDDEN // HEADS


class Model:
    def __init__(self, vocabulary, context):
        self.vocabulary, self.context = vocabulary, context
        self.shapes = {}
        self.describe()
        # So large that attention is far from even. No tensor is without a say: biases are not 0, nor norms 1.
        self.weights = {}
        for name, shape in self.shapes.items():
            values = torch.randn(shape) * (0.1 if len(shape) == 1 else 0.2)
            if len(shape) == 1 and name.endswith("weight"):
                values += 1
            self.weights[name] = values

    def save(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(folder + "/config.json", "w") as file:
            json.dump(self.config(), file)
        header, data = {}, b""
        for name, values in self.weights.items():
            raw = values.numpy().astype("<f4").tobytes()
            header[name] = {"dtype": "F32", "shape": list(values.shape),
                            "data_offsets": [len(data), len(data) + len(raw)]}
            data += raw
        text = json.dumps(header).encode()
        with open(folder + "/model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text + data)

    def require_gradients(self):
        self.weights = {name: values.double().requires_grad_() for name, values in self.weights.items()}

    # Batch × length × (heads · HEAD), each group of query heads with a head of keys and values of its own.
    def attend(self, q, k, v, turn=lambda heads: heads):
        q, k, v = (x.unflatten(-1, (-1, HEAD)).transpose(1, 2) for x in (q, k, v))
        q, k = turn(q), turn(k)
        k, v = (x.repeat_interleave(q.size(1) // x.size(1), 1) for x in (k, v))
        future = torch.ones(q.size(2), q.size(2), dtype=torch.bool).triu(1)
        scores = (q @ k.transpose(-1, -2) / math.sqrt(HEAD)).masked_fill(future, -math.inf)
        return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Gpt2(Model):
    def config(self):
        return {"model_type": "gpt2", "vocab_size": self.vocabulary, "n_layer": LAYERS, "n_embd": HIDDEN,
                "n_head": HEADS, "n_positions": self.context, "layer_norm_epsilon": 1e-5,
                "activation_function": "gelu_new"}

    def describe(self):
        shapes = self.shapes
        shapes["wte.weight"] = (self.vocabulary, HIDDEN)
        shapes["wpe.weight"] = (self.context, HIDDEN)
        for layer in range(LAYERS):
            # Matrices are in × out here.
            for name, size in (("attn.c_attn", (HIDDEN, 3 * HIDDEN)), ("attn.c_proj", (HIDDEN, HIDDEN)),
                               ("mlp.c_fc", (HIDDEN, 4 * HIDDEN)), ("mlp.c_proj", (4 * HIDDEN, HIDDEN))):
                shapes[f"h.{layer}.{name}.weight"] = size
                shapes[f"h.{layer}.{name}.bias"] = size[1:]
            for name in ("ln_1", "ln_2"):
                shapes[f"h.{layer}.{name}.weight"] = shapes[f"h.{layer}.{name}.bias"] = (HIDDEN,)
        shapes["ln_f.weight"] = shapes["ln_f.bias"] = (HIDDEN,)

    def logits(self, tokens):
        w = self.weights

        def norm(x, at):
            return F.layer_norm(x, (HIDDEN,), w[at + ".weight"], w[at + ".bias"], 1e-5)

        def linear(x, at):
            return x @ w[at + ".weight"] + w[at + ".bias"]

        def gelu_new(x):
            return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))

        x = w["wte.weight"][tokens] + w["wpe.weight"][:tokens.size(1)]
        for layer in range(LAYERS):
            at = f"h.{layer}."
            q, k, v = linear(norm(x, at + "ln_1"), at + "attn.c_attn").split(HIDDEN, -1)
            x = x + linear(self.attend(q, k, v), at + "attn.c_proj")
            x = x + linear(gelu_new(linear(norm(x, at + "ln_2"), at + "mlp.c_fc")), at + "mlp.c_proj")
        return norm(x, "ln_f") @ w["wte.weight"].t()


class Llama(Model):
    def config(self):
        return {"model_type": "llama", "vocab_size": self.vocabulary, "num_hidden_layers": LAYERS,
                "hidden_size": HIDDEN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS,
                "intermediate_size": INTERMEDIATE, "max_position_embeddings": self.context,
                "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
                "tie_word_embeddings": False}

    def describe(self):
        shapes = self.shapes
        shapes["model.embed_tokens.weight"] = shapes["lm_head.weight"] = (self.vocabulary, HIDDEN)
        for layer in range(LAYERS):
            # Matrices are out × in here.
            for name, size in (("self_attn.q_proj", (HIDDEN, HIDDEN)),
                               ("self_attn.k_proj", (KV_HEADS * HEAD, HIDDEN)),
                               ("self_attn.v_proj", (KV_HEADS * HEAD, HIDDEN)),
                               ("self_attn.o_proj", (HIDDEN, HIDDEN)),
                               ("mlp.gate_proj", (INTERMEDIATE, HIDDEN)),
                               ("mlp.up_proj", (INTERMEDIATE, HIDDEN)),
                               ("mlp.down_proj", (HIDDEN, INTERMEDIATE)),
                               ("input_layernorm", (HIDDEN,)), ("post_attention_layernorm", (HIDDEN,))):
                shapes[f"model.layers.{layer}.{name}.weight"] = size
        shapes["model.norm.weight"] = (HIDDEN,)

    def logits(self, tokens):
        w = self.weights

        def norm(x, at):
            return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * w[at + ".weight"]

        def linear(x, at):
            return x @ w[at + ".weight"].t()

        frequencies = 10000.0 ** (-torch.arange(0, HEAD, 2).double() / HEAD)
        angles = torch.arange(tokens.size(1)).double()[:, None] * frequencies

        # The first half of a head's values are the real parts, the second the imaginary ones.
        def turn(heads):
            real, imaginary = heads.chunk(2, -1)
            turned = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles)
            return torch.cat((turned.real, turned.imag), -1)

        x = w["model.embed_tokens.weight"][tokens]
        for layer in range(LAYERS):
            at = f"model.layers.{layer}."
            h = norm(x, at + "input_layernorm")
            q, k, v = (linear(h, f"{at}self_attn.{name}_proj") for name in "qkv")
            x = x + linear(self.attend(q, k, v, turn), at + "self_attn.o_proj")
            h = norm(x, at + "post_attention_layernorm")
            x = x + linear(F.silu(linear(h, at + "mlp.gate_proj")) * linear(h, at + "mlp.up_proj"),
                           at + "mlp.down_proj")
        return linear(norm(x, "model.norm"), "lm_head")


def learning_rate(recipe, step):
    peak, final, warmup = (float(recipe[key]) for key in ("learning_rate", "final_learning_rate", "warmup"))
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / (int(recipe["steps"]) - warmup)
    return final + (peak - final) * (1 + math.cos(math.pi * done)) / 2


def main():
    family, recipe_path, text_path = sys.argv[1:]
    with open(recipe_path) as file:
        recipe = dict(line.strip().split(": ", 1) for line in file)
    with open(recipe["data"] + "/tokenizer.json") as file:
        tokenizer = json.load(file)
    ids = dict(tokenizer["model"]["vocab"])
    ids.update((token["content"], token["id"]) for token in tokenizer["added_tokens"])
    with open(text_path) as file:
        stream = torch.tensor([ids[letter] for letter in file.read()])  # ASCII letters are named as they are
    batch, context = int(recipe["batch"]), int(recipe["context"])
    assert len(stream) == batch * context + 1, "each step is to see all samples, whatever their order"

    torch.manual_seed(int(recipe["seed"]))
    model = {"gpt2": Gpt2, "llama": Llama}[family](len(ids), context)
    model.save(recipe["weights"])
    model.require_gradients()
    matrices = [values for values in model.weights.values() if values.dim() == 2]
    vectors = [values for values in model.weights.values() if values.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": float(recipe["weight_decay"])},
         {"params": vectors, "weight_decay": 0.0}],
        betas=(float(recipe["beta1"]), float(recipe["beta2"])), eps=1e-8)

    tokens, targets = stream[:-1].view(batch, context), stream[1:].view(batch, context)
    for step in range(int(recipe["steps"])):
        rate = learning_rate(recipe, step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.zero_grad()
        loss = F.cross_entropy(model.logits(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(matrices + vectors, float(recipe["clip"]))
        optimizer.step()
        print(json.dumps({"step": step + 1, "loss": loss.item(), "grad_norm": norm.item(), "lr": rate}))


main()
