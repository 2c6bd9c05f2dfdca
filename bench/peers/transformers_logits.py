# Small models of Hugging Face's transformers with random weights, and what they say: the peer of `tutti-worker
# check-serve FOLDER`.
#   transformers_logits.py FOLDER
# Makes a folder for each family with its config.json and weights, tokens.txt, logits.bin (the float32 rows of all
# tokens, computed in float32) and noise.txt (how far the same in bfloat16 is from that).
import pathlib
import sys

import torch
import transformers

TOKENS = 300
SIZES = dict(vocab_size=1003, hidden_size=512, num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
             intermediate_size=768, max_position_embeddings=1024, tie_word_embeddings=False)
FAMILIES = {
    'llama': dict(SIZES),
    'mistral': dict(SIZES, sliding_window=100, head_dim=64),
    'qwen2': dict(SIZES, tie_word_embeddings=True),
    'qwen3': dict(SIZES, head_dim=128),
    'qwen3_moe': dict(SIZES, head_dim=64, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=256,
                      decoder_sparse_step=1, norm_topk_prob=True),
    'gpt2': dict(vocab_size=1003, n_embd=512, n_layer=3, n_head=8, n_positions=1024),
}


def make(family, keys, folder):
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(family, **keys)
    config._attn_implementation = 'eager'
    model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    # The usual beginning is so small that every model says nearly the same.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(std=parameter.shape[1] ** -0.5)
    model.save_pretrained(folder)
    tokens = torch.randint(0, 1003, (1, TOKENS))
    with torch.no_grad():
        logits = model(tokens).logits[0].float()
        rounded = model.bfloat16()(tokens).logits[0].float()
    noise = ((rounded - logits).norm(dim=1) / logits.norm(dim=1)).max().item()
    (folder / 'tokens.txt').write_text(' '.join(str(token) for token in tokens[0].tolist()))
    (folder / 'logits.bin').write_bytes(logits.contiguous().numpy().tobytes())
    (folder / 'noise.txt').write_text(str(noise))


for name, sizes in FAMILIES.items():
    place = pathlib.Path(sys.argv[1]) / name
    place.mkdir(parents=True, exist_ok=True)
    try:
        make(name, sizes, place)
        print(place)
    except Exception as error:
        print(f'{name}: {error}', file=sys.stderr)
