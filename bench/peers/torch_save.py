"""Times how long a loop waits that saves a training state of so many bytes: with torch.distributed.checkpoint's
async_save where torch has it, else with torch.save. Prints the median of three and which of the two it was."""

import json
import os
import shutil
import sys
import time

import torch

folder, size = sys.argv[1], int(sys.argv[2])
count = size // 12
state = {name: torch.rand(count) for name in ("model", "exp_avg", "exp_avg_sq")}

try:
    from torch.distributed.checkpoint import async_save
except ImportError:
    async_save = None


def stall_of_async_save(turn):
    """What the loop waits for is the call; the write is awaited too, so that the next turn begins in peace."""
    path = os.path.join(folder, f"state-{turn}")
    start = time.perf_counter()
    written = async_save(state, checkpoint_id=path)
    stall = time.perf_counter() - start
    # Newer versions answer with two futures, of the copy and of the write.
    getattr(written, "upload_completion", written).result()
    shutil.rmtree(path)
    return stall


def stall_of_save(turn):
    path = os.path.join(folder, f"state-{turn}.pt")
    start = time.perf_counter()
    torch.save(state, path)
    stall = time.perf_counter() - start
    os.remove(path)
    return stall


if async_save:
    rendezvous = "file://" + os.path.abspath(os.path.join(folder, "rendezvous"))
    torch.distributed.init_process_group("gloo", init_method=rendezvous, rank=0, world_size=1)
times = sorted((stall_of_async_save if async_save else stall_of_save)(turn) for turn in range(3))
if async_save:
    torch.distributed.destroy_process_group()
peer = "async_save" if async_save else "torch.save"
print(json.dumps({"seconds": times[1], "peer": peer, "torch": torch.__version__}))
