#!/usr/bin/env bash
# bench/serve_gpu: does the engine compute on this machine's GPU what it computes on the CPU, and how fast?
#   bench/serve_gpu.sh [WORKER] [profile]
# Without WORKER, a tutti-worker that was built with CUDA, it builds one in build/workers: needs libtorch and nvcc. `profile`
# also shows what each kernel takes, by NVIDIA's ncu: times, microseconds and microseconds in all.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
worker=${1:-}
profile=${2:-}
if [ "$worker" = profile ]; then worker='' profile=profile; fi
if [ -z "$worker" ]; then
  cmake -S "$here" -B "$here/build/workers" -G Ninja -DTUTTI_WORKERS_ONLY=ON -DCMAKE_BUILD_TYPE=Release
  cmake --build "$here/build/workers" --target tutti-worker
  worker=$here/build/workers/bin/tutti-worker
fi
failed=0
for command in check-serve bench-serve "bench-serve fp8" "bench-serve ways"; do
  echo "== $command"
  # shellcheck disable=SC2086 # its words
  "$worker" $command || failed=1
done
if python3 -c 'import torch, transformers' 2>/dev/null; then
  echo "== transformers"
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  for family in $(python3 "$here/bench/peers/transformers_logits.py" "$folder"); do
    "$worker" check-serve "$family" || failed=1
  done
fi
if [ "$profile" = profile ]; then
  echo "== kernels (grid, times, microseconds each, in all)"
  ncu --clock-control none --print-units base --metrics gpu__time_duration.sum --csv --page raw "$worker" bench-serve kernels |
    python3 -c '
import collections, csv, sys
rows = csv.DictReader(line for line in sys.stdin if line.startswith("\""))
found = collections.defaultdict(list)
for row in rows:
    try:
        name = row["Kernel Name"].split("(")[0].split("::")[-1][:48]
        found[name, row["Grid Size"]].append(float(row["gpu__time_duration.sum"].replace(",", "")))
    except ValueError:
        pass  # the row of units
for (name, grid), times in sorted(found.items(), key=lambda item: -sum(item[1]))[:80]:
    print(f"{name:48} {grid:18} {len(times):6} {sorted(times)[len(times) // 2] / 1000:9.1f} {sum(times) / 1000:11.0f}")
' || failed=1
fi
exit $failed
