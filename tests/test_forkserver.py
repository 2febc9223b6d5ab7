"""Jobs that are handed over to the fork server end as jobs do that are done in the process that was called."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from helpers import wait_until

from rmft.artifacts.job import JOB_OF, this_run
from rmft.artifacts.receipts import read_receipt
from rmft.artifacts.rewards import read_rewards
from rmft.workflow import forkserver, handover

REWARDS = {"process": ["gaussian"], "d": 3, "T": 5, "instances": 4}
LONG = {"seed": 0, "theory": {"d": [2], "T": [*range(10, 1000)], "radius": [1.0], "samples": 2000}}  # for minutes


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Go where a run of Snakemake is at work; this process is that run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(JOB_OF, this_run())
    monkeypatch.setenv(handover.SOCKET, "of no server")
    return tmp_path


@pytest.fixture
def server(folder):
    """Return the process of a server that listens there."""
    assert folder == Path.cwd()
    before = set(psutil.Process().children())
    forkserver.start(["rewards"] * 9, {"OMP_NUM_THREADS": "1"})
    (process,) = set(psutil.Process().children()) - before
    yield process
    with suppress(psutil.NoSuchProcess):
        process.kill()
        process.wait()


@pytest.mark.usefixtures("folder")
def test_where_a_socket_cannot_be_made_each_job_imports_for_itself(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.delenv(handover.SOCKET)
    forkserver.start(["rewards"] * 9, {})
    assert handover.SOCKET not in os.environ
    assert not any(deep.iterdir())


@pytest.mark.parametrize("quantised", [False, True])
@pytest.mark.usefixtures("folder")
def test_what_would_ask_a_gpu_before_the_fork_is_left_to_the_jobs(monkeypatch, quantised):
    commands: list[list[str]] = []
    monkeypatch.setattr(forkserver, "find_spec", {"bitsandbytes": quantised or None}.get)
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    forkserver.start(["sft", "grpo", "rollouts", "figures"], {})
    assert ("rmft.training.sft" in commands[0]) is not quantised
    assert ("rmft.stages.grpo" in commands[0]) is not quantised
    assert {"rmft.agents.local", "rmft.stages.figures"} <= set(commands[0])


def called(command: str, settings: dict, output: str) -> subprocess.Popen[str]:
    """Start `rmft` as Snakemake's jobs do."""
    arguments = [sys.executable, "-m", "rmft", command, "--settings", json.dumps(settings), "--output", output]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def job_of(server: psutil.Process) -> psutil.Process:
    """Wait for the process that does a job, and until it is at it."""
    return wait_until(lambda: next((job for job in server.children() if sum(job.cpu_times()[:2]) > 0.5), None))


def ended(process: psutil.Process) -> bool:
    """Return whether a process ends soon."""
    return not psutil.wait_procs([process], timeout=20)[1]


def test_a_job_is_done_by_a_fork_and_writes_what_it_would_have_written(folder, server):
    settings = {"seed": 0, "name": "gaussian", "rewards": REWARDS}
    caller = called("rewards", settings, "data/rewards/here.npz")
    assert caller.communicate() == ("", "")
    assert caller.returncode == 0
    assert server.cpu_times().children_user + server.cpu_times().children_system > 0  # of the fork, which has ended
    server.kill()
    server.wait()
    alone = called("rewards", settings, "data/rewards/alone.npz")
    assert alone.wait() == 0
    there, here = (folder / f"data/rewards/{name}.npz" for name in ("here", "alone"))
    assert there.read_bytes() == here.read_bytes()
    assert read_rewards(there).rewards.shape == (4, 5, 3)
    receipts = [read_receipt(path.relative_to(folder)) for path in (there, here)]
    same = [replace(receipt, artifact="", cpu_seconds=None) for receipt in receipts]
    assert same[0] == same[1]
    # A fork counts its own CPU, not that of the server, which has imported the libraries.
    assert 0 <= receipts[0].cpu_seconds < receipts[1].cpu_seconds


@pytest.mark.usefixtures("server")
def test_a_users_mistake_is_still_one_line():
    caller = called("rewards", {"seed": 0, "name": "gaussian", "rewards": {**REWARDS, "d": "three"}}, "x.npz")
    out, err = caller.communicate()
    assert caller.returncode == 2
    assert not out
    assert "rewards.d" in err
    assert err.startswith("rmft: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 128 + signal.SIGTERM)]
)
def test_what_ends_the_caller_ends_the_job_and_nothing_is_written(folder, server, signum, code):
    caller = called("theory", LONG, "theory.csv")
    job = job_of(server)
    caller.send_signal(signum)
    assert caller.wait() == code
    assert ended(job)
    assert not (folder / "theory.csv").exists()


def test_a_job_that_is_killed_fails_its_caller(server):
    caller = called("theory", LONG, "theory.csv")
    job = job_of(server)
    job.kill()
    assert caller.wait() == 128 + signal.SIGKILL


def test_a_job_and_its_server_end_with_their_run(folder, monkeypatch):
    run = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setenv(JOB_OF, this_run(run.pid))
    before = set(psutil.Process().children())
    forkserver.start(["theory"] * 9, {})
    (process,) = set(psutil.Process().children()) - before
    caller = called("theory", LONG, "theory.csv")
    job = job_of(process)
    socket = Path(os.environ[handover.SOCKET])
    assert socket.exists()
    run.communicate(b"\n")
    assert ended(process)
    assert not socket.parent.exists()
    assert ended(job)
    assert caller.wait() != 0
    assert not (folder / "theory.csv").exists()


@pytest.mark.usefixtures("folder")
def test_where_no_server_is_jobs_are_done_at_once_by_the_process_that_was_called(monkeypatch):
    assert handover.hand_over() is None
    Path("left-behind").touch()
    for address in ("left-behind", "too-long" * 99):
        monkeypatch.setenv(handover.SOCKET, address)
        assert handover.hand_over() is None
    monkeypatch.delenv(handover.SOCKET)
    assert handover.hand_over() is None


@pytest.mark.usefixtures("folder")
def test_a_few_jobs_start_no_server():
    before = psutil.Process().children()
    forkserver.start(["rewards"] * forkserver.FEW, {})
    assert psutil.Process().children() == before
