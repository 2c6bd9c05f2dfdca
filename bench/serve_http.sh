#!/usr/bin/env bash
# bench/serve_http: a model of random weights behind `tutti engine`: start to first token, and streams through HTTP.
#   bench/serve_http.sh BIN [DEVICE [1.1B|25M]]
# BIN is a folder with tutti and, for the device cuda, a tutti-worker that was built with CUDA: tutti may come from another
# machine. On a GPU the 1.1B is measured beside the engine alone, and its bars are an H200's; on CPUs `./dev bench serve` does that.
# TRACE names a trace to replay, such as azure2023_code.csv.gz. Needs curl, and python3 with torch to write the weights.
set -euo pipefail
# shellcheck source=bench/common/bars.sh
source "$(dirname "${BASH_SOURCE[0]}")/common/bars.sh"
bin=$1 device=${2:-cpu} size=${3:-25M}
work=$(mktemp -d)
engine=''
finish() {
  if [[ $engine ]]; then kill "$engine" 2>/dev/null || true; fi
  rm -rf "$work"
}
trap finish EXIT

case $size in
  1.1B) shape='2048 22 32 4 5632 32000 8192' type=bfloat16 streams='1 64 256' start_ms_max=5000 ;;
  25M) shape='512 6 8 8 1536 8192 2048' type=float32 streams='1 16' start_ms_max=2000 ;;
  *) echo "serve_http.sh: unknown size '$size'" >&2 && exit 2 ;;
esac
# shellcheck disable=SC2086 # a list of numbers
python3 - "$work/model" "$type" $shape <<'PYTHON'
import json, os, struct, sys
import torch
folder, dtype = sys.argv[1:3]
hidden, layers, heads, kv_heads, intermediate, vocabulary, context = map(int, sys.argv[3:])
os.makedirs(folder)
config = dict(model_type="llama", vocab_size=vocabulary, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
              num_key_value_heads=kv_heads, intermediate_size=intermediate, max_position_embeddings=context, rms_norm_eps=1e-5,
              rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False, attention_bias=False, mlp_bias=False, dtype=dtype)
json.dump(config, open(folder + "/config.json", "w"))
# Every token stands for some letters: one byte, or two.
spare = iter(range(256, 512))
letters = [chr(b) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255 else chr(next(spare)) for b in range(256)]
vocab = {letter: at for at, letter in enumerate(letters)}
merges = []
for a in letters:
    for b in letters:
        if len(vocab) < vocabulary:
            vocab[a + b] = len(vocab)
            merges.append(f"{a} {b}")
byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
json.dump(dict(version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None, pre_tokenizer=byte_level,
               post_processor=None, decoder=byte_level,
               model=dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None, end_of_word_suffix=None,
                          fuse_unk=False, byte_fallback=False, ignore_merges=False, vocab=vocab, merges=merges)),
          open(folder + "/tokenizer.json", "w"))
size = hidden // heads
shapes = {"model.embed_tokens.weight": (vocabulary, hidden), "lm_head.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
for layer in range(layers):
    p = f"model.layers.{layer}."
    shapes.update({p + "input_layernorm.weight": (hidden,), p + "post_attention_layernorm.weight": (hidden,),
                   p + "self_attn.q_proj.weight": (hidden, hidden), p + "self_attn.k_proj.weight": (kv_heads * size, hidden),
                   p + "self_attn.v_proj.weight": (kv_heads * size, hidden), p + "self_attn.o_proj.weight": (hidden, hidden),
                   p + "mlp.gate_proj.weight": (intermediate, hidden), p + "mlp.up_proj.weight": (intermediate, hidden),
                   p + "mlp.down_proj.weight": (hidden, intermediate)})
torch.manual_seed(1)
header, at = {}, 0
width = 2 if dtype == "bfloat16" else 4
for name, shape in shapes.items():
    count = 1
    for extent in shape: count *= extent
    header[name] = dict(dtype="BF16" if width == 2 else "F32", shape=shape, data_offsets=[at, at + count * width])
    at += count * width
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(folder + "/model.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for name, shape in shapes.items():
        tensor = torch.ones(shape) if len(shape) == 1 else torch.randn(shape) * 0.02
        torch.frombuffer(held := bytearray(tensor.numel() * width), dtype=getattr(torch, dtype)).copy_(tensor.flatten())
        file.write(held)
PYTHON

start() {
  : >"$work/told"
  "$bin/tutti" engine "$work/model" --device "$device" --listen 127.0.0.1:0 --json >"$work/told" &
  engine=$!
  until [[ -s $work/told ]]; do
    kill -0 "$engine" || exit 1
    sleep 0.01
  done
  url=$(sed 's/.*"url":"\([^"]*\)".*/\1/' "$work/told")
}
stop() {
  kill "$engine"
  wait "$engine"
  engine=''
}

for _ in 1 2 3; do
  began=$(date +%s%N)
  start
  curl -sf "$url/completions" -d '{"prompt":"Once","max_tokens":1}' >/dev/null
  echo "start to first token: $((($(date +%s%N) - began) / 1000000)) ms" | tee -a "$work/starts"
  stop
done
if [[ $device == cuda || $size == 25M ]]; then
  bar 'start to first token, ms, the second of three' "$(tr -dc '0-9\n' <"$work/starts" | sort -n | sed -n 2p)" 'at most' "$start_ms_max"
fi
start
cat "$work/told"
for count in $streams; do
  echo "== $count streams"
  "$bin/tutti" bench serve "$url" --concurrency "$count" --requests $((count * 2)) --prompt-tokens 64 --output-tokens 256 | tee "$work/streams-$count"
done
# Answers that are being written while eight chats of 4,096 tokens arrive: what their readers wait for between two pieces.
if [[ $size == 1.1B ]]; then
  echo "== 16 answers, and 8 chats of 4k into them: the longest pause, bar 50 ms"
  "$bin/tutti" bench serve "$url" --concurrency 16 --requests 16 --prompt-tokens 64 --output-tokens 2000 >"$work/answers" &
  answers=$!
  sleep 1
  "$bin/tutti" bench serve "$url" --concurrency 8 --requests 8 --prompt-tokens 4096 --output-tokens 64
  wait "$answers"
  cat "$work/answers"
  if [[ $device == cuda ]]; then
    bar 'longest pause of an answer, ms' "$(sed -n 's/^ *longest pause .* max *\([0-9.]*\) ms.*/\1/p' "$work/answers")" 'at most' 50
  fi
fi
if [[ ${TRACE:-} ]]; then
  echo "== ${TRACE##*/}"
  "$bin/tutti" bench serve "$url" --trace "$TRACE" --requests "${TRACE_REQUESTS:-500}" --speed "${TRACE_SPEED:-1}" --context 8192
fi
stop
# The same shape without HTTP, on the GPU that is free again.
if [[ $device == cuda && $size == 1.1B ]]; then
  "$bin/tutti-worker" bench-serve >"$work/alone"
  echo "== milliseconds from token to token: streams, through HTTP, the engine alone, ratio; bar 90%"
  for count in $streams; do
    http=$(sed -n 's/^ *next token *p50 *\([0-9.]*\) ms.*/\1/p' "$work/streams-$count")
    alone=$(sed -n "s/^engine, *$count requests.*: \([0-9]*\) tokens.*/\1/p" "$work/alone" | sort -n | tail -1)
    awk -v count="$count" -v http="$http" -v alone="$alone" \
      'BEGIN {own = count * 1000 / alone; printf "%d %.2f %.2f %.0f%%\n", count, http, own, 100 * own / http}' | tee "$work/share"
    if ((count > 1)); then bar "$count streams through HTTP, % of the engine" "$(sed 's/.* \(.*\)%/\1/' "$work/share")" 'at least' 90; fi
  done
fi
end_bars
