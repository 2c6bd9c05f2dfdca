"""Times torch.save of a training state of so many bytes: what a loop waits for that saves as the manual says."""

import json
import os
import sys
import time

import torch

folder, size = sys.argv[1], int(sys.argv[2])
count = size // 12
state = {name: torch.rand(count) for name in ("model", "exp_avg", "exp_avg_sq")}
path = os.path.join(folder, "state.pt")
times = []
for _ in range(3):
    start = time.perf_counter()
    torch.save(state, path)
    times.append(time.perf_counter() - start)
os.remove(path)
print(json.dumps({"seconds": sorted(times)[1]}))
