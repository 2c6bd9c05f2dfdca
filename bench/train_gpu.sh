#!/usr/bin/env bash
# bench/train_gpu: how fast `tutti-worker train` is on one GPU, beside the loop that people write with PyTorch, in the same call.
#   bench/train_gpu.sh WORKER DATA [124M|1.3B]...
# WORKER is a tutti-worker that was built with CUDA, DATA a folder of `tutti data pack`. Needs PyTorch 2 with CUDA.
set -euo pipefail
worker=$1 data=$2
shift 2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }
number() { sed -n 's/.*"tokens_per_s": *\([0-9.e+]*\).*/\1/p'; }

measure() { # name layers hidden heads batch
  local run=$work/$1
  mkdir -p "$run"
  cat >"$run/recipe.json" <<JSON
{"run": "$run", "data": "$data", "model": "gpt2", "weights": "", "layers": $2, "hidden": $3, "heads": $4, "kv_heads": 0,
 "intermediate": 0, "context": 1024, "steps": 40, "batch": $5, "microbatch": $5, "learning_rate": 6e-4,
 "final_learning_rate": 6e-5, "warmup": 10, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "clip": 1.0, "seed": 1,
 "precision": "bf16", "parallel": "1", "zero": 0, "interleave": 1, "recompute": false, "checkpoint_every": 1000000,
 "checkpoints_kept": 1}
JSON
  cat >"$run/config.json" <<JSON
{"model_type": "gpt2", "vocab_size": 50257, "n_layer": $2, "n_embd": $3, "n_head": $4, "n_positions": 1024}
JSON
  RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 "$worker" train "$run" >"$run/log" 2>&1 || { tail "$run/log"; return 1; }
  local ours eager compiled options
  ours=$(tail -n +11 "$run/metrics.jsonl" | number | median)
  options="\"vocabulary\": 50304, \"layers\": $2, \"hidden\": $3, \"heads\": $4, \"context\": 1024, \"batch\": $5, \"warm_up\": 5, \"steps\": 20"
  eager=$(python3 "$here/peers/torch_train_gpu.py" "{$options, \"compile\": false}" | number)
  compiled=$(python3 "$here/peers/torch_train_gpu.py" "{$options, \"compile\": true}" | number)
  awk -v n="$1" -v o="$ours" -v e="$eager" -v c="$compiled" \
    'BEGIN {printf "%-6s tutti %8.0f  eager %8.0f (%.2f x)  compiled %8.0f (%.2f x) tokens/s\n", n, o, e, o / e, c, o / c}'
}

for name in "$@"; do
  case $name in
    124M) measure 124M 12 768 12 32 ;;
    1.3B) measure 1.3B 24 2048 16 16 ;;
    *) echo "unknown model '$name': 124M or 1.3B" >&2 && exit 2 ;;
  esac
done
