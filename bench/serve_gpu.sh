#!/usr/bin/env bash
# Does the engine compute on this machine's GPU what it computes on the CPU, and how fast?
#   bench/serve_gpu.sh [WORKER]
# Without WORKER, a tutti-worker that was built with CUDA, it builds one in build/workers: needs libtorch and nvcc.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
worker=${1:-}
if [ -z "$worker" ]; then
  cmake -S "$here" -B "$here/build/workers" -G Ninja -DTUTTI_WORKERS_ONLY=ON -DCMAKE_BUILD_TYPE=Release
  cmake --build "$here/build/workers" --target tutti-worker
  worker=$here/build/workers/bin/tutti-worker
fi
failed=0
for command in check-serve bench-serve bench-serve-ways; do
  echo "== $command"
  "$worker" "$command" || failed=1
done
if python3 -c 'import torch, transformers' 2>/dev/null; then
  echo "== transformers"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  for family in $(python3 "$here/bench/peers/transformers_logits.py" "$folder"); do
    "$worker" check-serve "$family" || failed=1
  done
fi
exit $failed
