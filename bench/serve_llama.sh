#!/usr/bin/env bash
# bench/serve_llama: a GPU's tokens a second beside llama.cpp's batched-bench, the same shape and numbers, in one call
#   bench/serve_llama.sh WORKER LLAMA
# WORKER is a tutti-worker that was built with CUDA; LLAMA a folder with llama.cpp's batched-bench and its libraries for CUDA (npm's
# @node-llama-cpp/linux-x64-cuda has them built), and with the package gguf of its source. Needs python3 with numpy.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=bench/common/bars.sh
source "$here/common/bars.sh"
worker=$1 llama=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 "$here/peers/llama_random.py" "$work/model.gguf" "$llama"
# Prompts of 128 and answers of 192 tokens, of 1, 64 and 256 at once: the column is tokens a second of all answers.
for flash in on off; do
  "$llama/batched-bench" -m "$work/model.gguf" -ngl 99 -fa "$flash" -c 90000 -b 4096 -ub 4096 -npp 128 -ntg 192 -npl 1,64,256 2>/dev/null |
    tr -d ' ' | awk -F'|' -v flash="$flash" '$2 == 128 {print $4, $9, flash}' >>"$work/peer"
done
"$worker" bench-serve | tee "$work/own"
echo "== tokens a second: streams, tutti, llama.cpp (flash attention), ratio; bar 1.3 for 1 and 64"
for streams in 1 64 256; do
  own=$(sed -n "s/^engine, *$streams requests.*: \([0-9]*\) tokens.*/\1/p" "$work/own" | sort -n | tail -1)
  sort -k2,2nr "$work/peer" | awk -v streams="$streams" -v own="$own" '$1 == streams {printf "%d %d %d (%s) %.2f\n", streams, own, $2, $3, own / $2; exit}' | tee "$work/ratio"
  if ((streams <= 64)); then bar "$streams streams beside llama.cpp" "$(sed 's/.* //' "$work/ratio")" 'at least' 1.3; fi
done
end_bars
