"""Fine-tuning in several processes, one a GPU, started by torchrun; the first process prints and writes."""

import os
import subprocess
import sys

RANK = "RANK"  # the environment variable with the index of this process, set by torchrun


def must_launch(processes: int) -> bool:
    """Return whether several processes are wanted and torchrun has not started them yet."""
    return processes > 1 and RANK not in os.environ


def launch(processes: int) -> int:
    """Run this command in several processes of this machine; return the exit code."""
    from rmft.agents.server_processes import END_WITH_PARENT

    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *torchrun, "--module", "--", "rmft", *sys.argv[1:]]
    return subprocess.run([sys.executable, "-c", END_WITH_PARENT, *command], check=False).returncode


def is_first() -> bool:
    """Return whether this process is the one that prints and writes."""
    return os.environ.get(RANK, "0") == "0"
