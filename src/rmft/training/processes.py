"""Several processes that fine-tune together, as torchrun starts them: one a GPU, and one of them writes."""

import os
import subprocess
import sys

RANK = "RANK"  # which of the processes this is, set by torchrun


def must_launch(processes: int) -> bool:
    """Return whether so many are asked for, and this is none of them yet."""
    return processes > 1 and RANK not in os.environ


def launch(processes: int) -> int:
    """Run this command in so many processes of this machine; return the exit code."""
    together = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    return subprocess.run([sys.executable, *together, "--module", "--", "rmft", *sys.argv[1:]], check=False).returncode


def is_first() -> bool:
    """Return whether this process speaks and writes for all of them."""
    return os.environ.get(RANK, "0") == "0"
