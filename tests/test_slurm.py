"""The cluster profile on a real Slurm, of two virtual nodes on this machine: the same bytes as here, whatever happens.

Skipped where there is no Slurm, or no plugin of Snakemake's for it; `.ci/slurm` gets both.
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest
from helpers import wait_until
from trees import ROOT, checkout, digests, edit, environment, set_value, snakemake

PLUGIN = ROOT / ".slurm"
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun")
TARGET = "results/figures/contextual.csv"
SHARD = "results/experiments/contextual/seed-0/iteration-0/shards/1-of-1.parquet"
SOON = ["--slurm-init-seconds-before-status-checks", "1", "--latency-wait", "10"]

pytestmark = [
    pytest.mark.xdist_group("slurm"),
    pytest.mark.long,
    pytest.mark.skipif(not PLUGIN.is_dir() or not all(map(shutil.which, PROGRAMS)), reason="no Slurm: run .ci/slurm"),
]


class Cluster:
    """Slurm on this machine: nodes n1 and n2, without accounting.

    What fails with its node is left to Snakemake's retries: Slurm itself would begin it anew two minutes later.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {"SLURM_CONF": str(folder / "slurm.conf")}
        srun = folder / "bin/srun"  # snakemake-executor-plugin-slurm-jobstep takes this variable away
        srun.parent.mkdir()
        srun.write_text(f'#!/bin/sh\nSLURM_CONF={folder}/slurm.conf exec {shutil.which("srun")} "$@"\n')
        srun.chmod(0o755)
        user, host = getpass.getuser(), socket.gethostname().partition(".")[0]
        for name in ("state", "spool"):
            (folder / name).mkdir()
        key = folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        controller, *nodes = free_ports(3)
        (folder / "slurm.conf").write_text(
            f"""
            ClusterName=test
            SlurmctldHost={host}(127.0.0.1)
            SlurmctldPort={controller}
            SlurmUser={user}
            SlurmdUser={user}
            AuthType=auth/munge
            AuthInfo=socket={folder}/munge.socket
            CredType=cred/munge
            StateSaveLocation={folder}/state
            SlurmdSpoolDir={folder}/spool/%n
            SlurmctldPidFile={folder}/slurmctld.pid
            SlurmdPidFile={folder}/slurmd.%n.pid
            SlurmctldLogFile={folder}/slurmctld.log
            SlurmdLogFile={folder}/slurmd.%n.log
            ProctrackType=proctrack/linuxproc
            TaskPlugin=task/none
            JobAcctGatherType=jobacct_gather/none
            AccountingStorageType=accounting_storage/none
            MpiDefault=none
            SwitchType=switch/none
            ReturnToService=2
            KillWait=1
            JobRequeue=0
            SelectType=select/cons_tres
            SelectTypeParameters=CR_Core_Memory
            GresTypes=gpu
            CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
            SlurmdParameters=config_overrides
            NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={nodes[0]} CPUs=4 RealMemory=100000 Gres=gpu:3
            NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={nodes[1]} CPUs=4 RealMemory=100000 Gres=gpu:3
            PartitionName=debug Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
            """.replace("            ", "")
        )
        gpus = "".join(f"Name=gpu File=/dev/{device}\n" for device in ("null", "zero", "full"))  # nobody uses them
        (folder / "gres.conf").write_text(gpus)
        munged = ["munged", "--force", "--foreground", f"--key-file={key}", f"--socket={folder}/munge.socket"]
        munged += [f"--{name}-file={folder}/munged.{name}" for name in ("pid", "log", "seed")]
        self.daemons = [self._start(*munged)]
        self.wait(lambda: (folder / "munge.socket").exists())
        self.daemons.append(self._start("slurmctld", "-D"))
        self.daemons += [self._start("slurmd", "-D", "-N", node) for node in ("n1", "n2")]
        self.wait(lambda: self.command("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle", "idle"])

    def _start(self, *command: str) -> psutil.Popen:
        with (self.folder / "daemons.log").open("a") as log:
            return psutil.Popen(command, env={**os.environ, **self.environment}, stdout=log, stderr=log)

    def command(self, *command: str) -> str:
        """Run a command of Slurm's; return what it prints: nothing, where it fails."""
        variables = {**os.environ, **self.environment}
        return subprocess.run(command, env=variables, capture_output=True, text=True, check=False).stdout

    def running(self, rule: str) -> list[tuple[str, str]]:
        """Return id and node of the running jobs of a rule."""
        lines = self.command("squeue", "--noheader", "--states=R", "--format=%i %N %k").splitlines()
        return [(job, node) for job, node, comment in map(str.split, lines) if f"rule_{rule}" in f"{comment}_"]

    def next_running(self, rule: str, of: subprocess.Popen) -> tuple[str, str]:
        """Wait until a job of a rule runs, for Snakemake `of`; return its id and its node."""
        self.wait(lambda: self.running(rule) or of.poll() is not None)
        assert of.poll() is None, of.stdout.read()
        return self.running(rule)[0]

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds: for long, on a machine that is busy with other tests."""
        try:
            wait_until(condition, seconds=600)
        except AssertionError as error:
            raise AssertionError((self.folder / "daemons.log").read_text() + self.command("squeue")) from error

    def stop(self) -> None:
        """End all jobs, then the daemons, and what a job that went wrong may have left."""
        self.command("scancel", "--full", f"--user={getpass.getuser()}")
        for daemon in reversed(self.daemons):
            daemon.terminate()
        psutil.wait_procs(self.daemons, timeout=10)
        for process in psutil.process_iter(["environ"]):
            if (process.info["environ"] or {}).get("SLURM_CONF") == self.environment["SLURM_CONF"]:
                process.kill()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody listens to."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("slurm"))
    yield cluster
    cluster.stop()


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> tuple[Path, dict[str, str]]:
    """Return a checkout in which nothing is built, and the bytes that this machine builds without the cluster."""
    tree = tmp_path_factory.mktemp("local")
    checkout(tree)
    edit(tree / "params.yaml", "scale: demo", "scale: smoke")
    edit(tree / "params.yaml", "{shards: 2}", "{shards: 1}")
    snakemake(tree, TARGET)
    built = digests(tree)
    for name in ("results", "data/rewards", ".snakemake", "logs"):
        shutil.rmtree(tree / name)
    return tree, built


def on_cluster(tree: Path, cluster: Cluster, target: str, *arguments: str) -> subprocess.Popen:
    """Start Snakemake on the cluster."""
    variables = environment(tree) | cluster.environment
    variables["PYTHONPATH"] += f"{os.pathsep}{PLUGIN}"
    variables["PATH"] = f"{cluster.folder}/bin{os.pathsep}{variables['PATH']}"
    command = ["snakemake", target, "--workflow-profile", "slurm", *SOON, *arguments]
    return subprocess.Popen(
        command, cwd=tree, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def hang(job: str) -> bool:
    """Stop the processes in which a job plays; return whether there are any yet."""
    playing = [
        process
        for process in psutil.process_iter(["cmdline", "environ"])
        if (process.info["environ"] or {}).get("SLURM_JOB_ID") == job and "rollouts" in (process.info["cmdline"] or [])
    ]
    for process in playing:
        process.send_signal(signal.SIGSTOP)
    return bool(playing)


def test_a_run_in_which_a_node_fails_a_job_hangs_and_one_is_cancelled_ends_with_the_bytes_of_a_local_one(
    cluster, expected
):
    """Only the tests of this file run jobs on a cluster, which cancels them, lets them hang, or loses a node."""
    tree, built = expected
    run = on_cluster(tree, cluster, TARGET, "--set-resources", "rollouts_shard:runtime=1 * attempt")
    try:
        job, _ = cluster.next_running("rollouts_shard", run)
        cluster.wait(lambda: hang(job))  # to be killed at its time limit, a minute, and given two
        _, node = cluster.next_running("held_out", run)
        cluster.command("scontrol", "update", f"nodename={node}", "state=down", "reason=test")
        cluster.command("scontrol", "update", f"nodename={node}", "state=resume")
        job, _ = cluster.next_running("sft_lora", run)
        cluster.command("scancel", job)
        log = run.communicate(timeout=600)[0]
    finally:
        run.kill()
    assert run.returncode == 0, log
    made = digests(tree)
    assert TARGET in made
    assert made.items() <= built.items()
    assert "Nothing to be done" in snakemake(tree, TARGET)
    assert log.count("Trying to restart job") >= 3


def test_a_cancelled_job_without_a_retry_is_named_with_its_log(cluster, expected):
    tree, _ = expected
    shutil.rmtree(tree / "results", ignore_errors=True)
    run = on_cluster(tree, cluster, SHARD, "--retries", "0")
    try:
        job, _ = cluster.next_running("rollouts_shard", run)
        cluster.command("scancel", job)
        log = run.communicate(timeout=300)[0]
    finally:
        run.kill()
    assert run.returncode == 1
    assert job in log
    assert "rollouts_shard" in log
    assert "CANCELLED" in log


def test_jobs_get_all_the_gpus_that_they_ask_for(cluster, expected):
    tree, _ = expected
    shutil.rmtree(tree / "results", ignore_errors=True)
    servers = {"command": ["false"], "servers": 3, "gpus": 3, "concurrency": 1}
    set_value(tree, "models.embedded.vllm", servers)
    run = on_cluster(tree, cluster, SHARD, "--retries", "0")
    try:
        log = run.communicate(timeout=600)[0]
    finally:
        run.kill()
    assert run.returncode == 1
    assert any("a server ended with exit code 1" in file.read_text() for file in (tree / "logs").rglob("*.log")), log
    jobs = cluster.command("scontrol", "show", "jobs")
    assert "gres:gpu:3" in jobs  # more than the one that profiles/default allows
