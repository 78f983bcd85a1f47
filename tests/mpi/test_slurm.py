"""The example jobs under a real Slurm: one controller and two nodes of this computer, made for the
tests, in the name of the user who runs them.
"""

from __future__ import annotations

import csv
import os
import platform
import pwd
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.mpi.test_mpiexec import steps_of
from tests.support.config_cases import long_plate
from tetris_sim.outputs.checkpoint.directory import find_checkpoint

ROOT = Path(__file__).resolve().parents[2]
_LONG = 300.0  # seconds; never waited for unless a test fails
# Without it Slurm reads munge's key, which belongs to the system. A job that is put back into the
# queue waits until what it was authorised with has expired.
CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool_%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=pmi2
ReturnToService=2
SchedulerParameters=sched_interval=2,bf_interval=2,batch_sched_delay=1
SlurmdParameters=config_overrides
NodeName=tests1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=4
NodeName=tests2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=4
PartitionName=all Nodes=tests1,tests2 Default=YES State=UP
"""
# So long that only a time limit or a stop ends it.
PLATE = long_plate(4000000000)

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(shutil.which, ("slurmctld", "slurmd", "sbatch"))),
        reason="Slurm is not installed (Debian, Ubuntu: apt install slurm-wlm)",
    ),
]


@dataclass
class Cluster:
    """A Slurm of one user; `folder` has its logs."""

    folder: Path
    environment: dict[str, str]

    def ask(self, *words: object, cwd: Path | None = None) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            [*map(str, words)],
            env=self.environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stderr}{self.said()}"
        return done.stdout

    def submit(self, folder: Path, script: str, *words: str, options: tuple[str, ...] = ()) -> str:
        """The number of a job that begins in a folder."""
        chosen = ("--parsable", "--cpus-per-task=1", f"--chdir={folder}", *options)
        return self.ask("sbatch", *chosen, ROOT / "examples" / script, *words, cwd=folder).strip()

    def fields(self, job: str) -> dict[str, str]:
        """What the controller knows of a job."""
        words = self.ask("scontrol", "--oneliner", "show", "job", job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, job: str, **wanted: str) -> dict[str, str]:
        """The job's fields once they are as wanted; "COMPLETED|FAILED" is either of them."""
        begin = time.monotonic()
        while True:
            found = self.fields(job)
            if all(found[name] in value.split("|") for name, value in wanted.items()):
                return found
            assert time.monotonic() - begin < _LONG, f"{found}{self.said()}"
            time.sleep(0.3)

    def said(self) -> str:
        """The ends of all logs."""
        logs = self.folder.glob("*.log")
        return "".join(f"\n{it.name}:\n{it.read_text()[-2000:]}" for it in logs)


def output_of(job: str, folder: Path) -> str:
    """All that a job printed, errors included."""
    return (folder / f"tetris-sim-{job}.out").read_text()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    with ExitStack() as open_ports:
        sockets = [open_ports.enter_context(socket.socket()) for _ in range(3)]
        for it in sockets:
            it.bind(("127.0.0.1", 0))
        ports = [it.getsockname()[1] for it in sockets]
    user, host = pwd.getpwuid(os.geteuid()).pw_name, platform.node().partition(".")[0]
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(folder=folder, ports=ports, user=user, host=host))
    (folder / "state").mkdir()
    (folder / "tetris-sim").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tetris_sim "$@"\n')
    (folder / "tetris-sim").chmod(0o755)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SLURM", "SBATCH"))
    }
    environment |= {
        "SLURM_CONF": str(config),
        "PYTHONPATH": str(ROOT),
        # MPICH 5.0's wheel sends addresses of UCX with unwritten memory behind them to PMI2, which
        # ends some jobs before anything of this program runs (docs/guide/mpi.md).
        "MPIR_CVAR_CH4_NETMOD": "ofi",
        "PATH": f"{folder}{os.pathsep}{environment['PATH']}",
    }
    daemons = [["slurmctld", "-D"], *(["slurmd", "-D", "-N", f"tests{k}"] for k in (1, 2))]
    with ExitStack() as started:
        for words in daemons:
            with (folder / f"{words[-1]}.out.log").open("w") as log:
                daemon = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
            started.callback(daemon.wait)
            started.callback(daemon.terminate)
        made = Cluster(folder, environment)
        begin = time.monotonic()
        while True:
            asked = subprocess.run(
                ["sinfo", "-h", "-o", "%T %D"],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            if asked.stdout.split() == ["idle", "2"]:
                break
            assert time.monotonic() - begin < 60, made.said()
            time.sleep(0.2)
        yield made
        subprocess.run(["scancel", "-u", user], env=environment, check=False)
        subprocess.run(["scancel", "-s", "KILL", "-u", user], env=environment, check=False)


def test_a_job_hits_its_limit_requeues_itself_and_ends_right(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Slurm looks at limits twice a minute, so the signal comes half a minute early."""
    config = tmp_path / "plate.yaml"
    config.write_text(PLATE)
    limit = ("--time=2", "--signal=TERM@50")
    job = cluster.submit(tmp_path, "slurm.sh", "plate.yaml", options=limit)
    cluster.wait(job, JobState="PENDING", Restarts="1|2")
    last = steps_of(tmp_path / "out")[-1]
    assert last > 0
    shutil.copytree(tmp_path / "out", tmp_path / "alone")
    config.write_text(PLATE.replace("4000000000", str(last + 500)))

    ended = cluster.wait(job, JobState="COMPLETED|FAILED|TIMEOUT|CANCELLED")
    said = output_of(job, tmp_path)
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0"), said
    assert ended["NodeList"] == "tests[1-2]"
    assert "cpu.plain with 2 threads of 2 ranks" in said
    assert "Stopped early: SIGTERM arrived" in said
    assert f"job {job} goes back into the queue" in said
    assert f"at step {last}." in said
    assert f"Done: steps {last} to {last + 500}" in said

    # One process goes on from the same checkpoint to the same bits.
    words = ["run", str(config), "--resume", "auto", "--set", "output.directory=alone"]
    alone = subprocess.run(
        [sys.executable, "-m", "tetris_sim", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert alone.returncode == 0, alone.stderr
    states = []
    for name in ("out", "alone"):
        checkpoint, _ = find_checkpoint(tmp_path / name / "checkpoints")
        assert checkpoint is not None
        with checkpoint:
            assert checkpoint.state.step == last + 500
            states.append(checkpoint.read(((0, 48), (0, 64))))
    np.testing.assert_array_equal(states[0], states[1])


# In place of one that takes long.
PLANNING = """
import signal, sys, time
from tetris_sim.__main__ import main
from tetris_sim.simulation import preparation

def plan(*words, planned=preparation.plan_together, **options):
    arrived, listening = [], signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *it: (arrived.append(it), listening(*it)))
    while not arrived:
        time.sleep(0.1)
    return planned(*words, **options)

preparation.plan_together = plan
sys.exit(main())
"""


def test_a_job_whose_limit_is_shorter_than_planning_ends_at_its_second_try(
    cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "plate.yaml").write_text(PLATE)
    (tmp_path / "planning.py").write_text(PLANNING)
    command = tmp_path / "tetris-sim"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/planning.py" "$@"\n')
    command.chmod(0o755)
    limit = ("--time=1", "--signal=TERM@10")
    path = f"{tmp_path}{os.pathsep}{cluster.environment['PATH']}"
    slow = Cluster(cluster.folder, cluster.environment | {"PATH": path})
    job = slow.submit(tmp_path, "slurm.sh", "plate.yaml", options=limit)
    ended = slow.wait(job, JobState="COMPLETED|FAILED|TIMEOUT|CANCELLED")
    said = output_of(job, tmp_path)
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("FAILED", "3:0", "1"), said
    assert said.count("goes back into the queue") == 1
    assert "run 2 in a row that was stopped at step 0" in said
    assert "Give it more time" in said


def test_an_array_of_jobs_shares_a_sweep(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "plate.yaml").write_text(PLATE.replace("4000000000", "40"))
    over = ("--over", "model.material=copper,steel,aluminium", "--processes", "1")
    job = cluster.submit(tmp_path, "slurm_sweep.sh", "plate.yaml", *over, options=("--array=1-2",))
    for part in (1, 2):
        ended = cluster.wait(f"{job}_{part}", JobState="COMPLETED|FAILED|TIMEOUT|CANCELLED")
        said = (tmp_path / f"tetris-sim-sweep-{job}_{part}.out").read_text()
        assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0"), said
        assert f"{3 - part} of them still to be made" in said
    with (tmp_path / "sweeps" / "plate" / "table.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [row["model.material"] for row in rows] == ["copper", "steel", "aluminium"]
    assert [row["ended"] for row in rows] == ["Done"] * 3
