#!/usr/bin/env bash
# bench/serve_gpu: does the engine compute on this machine's GPU what it computes on the CPU, and how fast? Bars are an H200's.
#   bench/serve_gpu.sh [WORKER] [profile]
# Without WORKER, a tutti-worker that was built with CUDA, it builds one in build/workers: needs libtorch and nvcc. `profile`
# also shows what each kernel takes, by NVIDIA's ncu: times, microseconds and microseconds in all.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=bench/common/bars.sh
source "$here/bench/common/bars.sh"
worker=${1:-}
profile=${2:-}
if [ "$worker" = profile ]; then worker='' profile=profile; fi
if [ -z "$worker" ]; then
  cmake -S "$here" -B "$here/build/workers" -G Ninja -DTUTTI_WORKERS_ONLY=ON -DCMAKE_BUILD_TYPE=Release
  cmake --build "$here/build/workers" --target tutti-worker
  worker=$here/build/workers/bin/tutti-worker
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
for command in check-serve bench-serve "bench-serve fp8" "bench-serve ways"; do
  echo "== $command"
  # shellcheck disable=SC2086 # its words
  "$worker" $command | tee "$work/${command// /-}" || failed=1
done
# The last of two turns each, when the device is warm.
of_engine() { sed -n "s/^engine, *$1 requests.*: \([0-9]*\) tokens.*, \([0-9.]*\) ms a token.*/\\$2/p" "$work/bench-serve" | tail -1; }
first=$(sed -n 's/^process to first token: \([0-9.]*\) s.*/\1/p' "$work/bench-serve")
prompt=$(sed -n 's/^prompt of 4096 .* \([0-9.]*\)% of the peak.*/\1/p' "$work/bench-serve")
bar 'process to first token, s' "$first" 'at most' 5
bar 'one stream, ms a token' "$(of_engine 1 2)" 'at most' 0.85
bar '64 requests, tokens/s' "$(of_engine 64 1)" 'at least' 45000
bar '256 requests, tokens/s' "$(of_engine 256 1)" 'at least' 130000
bar 'prompt of 4096, % of the peak' "$prompt" 'at least' 50
if python3 -c 'import torch, transformers' 2>/dev/null; then
  echo "== transformers"
  for family in $(python3 "$here/bench/peers/transformers_logits.py" "$work/families"); do
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
end_bars
exit $failed
