"""Every wait for another rank has an end: one that is frozen, or on a computer that is lost, ends
the run on all others with code 75, a sentence that names it, and a good checkpoint.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from tests.mpi.test_mpiexec import (
    ENDLESS,
    PLATE,
    descendants,
    ranks_of,
    running,
    steps_of,
)
from tests.support.fault_runs import tetris_here
from tetris_sim.config import load_config
from tetris_sim.errors import ConfigError, StopRequested
from tetris_sim.outputs.checkpoint.directory import find_checkpoint
from tetris_sim.scheduler.comm.peers import Card, Heart, watched_by

TIMEOUT = 4.0  # seconds; a beat is late after 0.6 of it
_PATIENCE = 20.0  # seconds that a busy machine may add
IMPLICIT = """
schema: 1
grid: {shape: [64, 64, 48], size: [64 mm, 64 mm, 48 mm]}
model: {type: heat, material: copper}
initial: {type: gaussian, amplitude: 100 K, sigma: 8 mm}
boundaries: {"*": {type: neumann}}
time: {scheme: implicit, dt: 5 ms, steps: 1000000000}
compute: {threads: 1, tuning_budget: 0}
output: {directory: DIRECTORY, pictures: false}
checkpoint: {every: 2 steps, keep: 2}
"""


def write_frail(folder: Path, text: str, name: str = "out") -> Path:
    """A configuration whose ranks end soon after one of them was lost."""
    path = folder / f"{name}.yaml"
    path.write_text(
        text.replace("DIRECTORY", str(folder / name)) + f"run: {{mpi_timeout: {TIMEOUT} s}}\n"
    )
    return path


def plate(folder: Path, outputs: str = "pictures: false") -> str:
    return PLATE.format(steps=ENDLESS, every=1000, directory=folder / "out").replace(
        "pictures: false", outputs
    )


def check_end(process: subprocess.Popen[str], begin: float, log: Path, victim: str) -> None:
    """The launcher ends in time with code 75, one sentence and a good checkpoint."""
    assert process.wait(TIMEOUT + _PATIENCE) == 75, log.read_text()
    assert time.monotonic() - begin < TIMEOUT + _PATIENCE
    said = [line for line in log.read_text().splitlines() if "no sign of life" in line]
    assert said, log.read_text()
    assert all(f": {victim} on " in line and "--resume auto" in line for line in said), said

    checkpoint, _ = find_checkpoint(log.parent / "out" / "checkpoints")
    assert checkpoint is not None
    checkpoint.close()


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("victim", "size", "problem"),
    [
        (0, 3, plate),
        (
            1,
            2,
            lambda folder: plate(folder, "fields: {every: 500 steps}, pictures: false").replace(
                "1000000000", "500000"
            ),
        ),
        (1, 2, lambda folder: IMPLICIT),
    ],
    ids=["explicit", "writing", "implicit"],
)
def test_a_frozen_rank_ends_the_run_in_time(
    victim: int, size: int, problem: Callable[[Path], str], launcher: str, tmp_path: Path
) -> None:
    config, log = write_frail(tmp_path, problem(tmp_path)), tmp_path / "log"
    with running(launcher, size, config, log) as process:
        begin = time.monotonic()
        os.kill(ranks_of(process)[victim], signal.SIGSTOP)
        check_end(process, begin, log, f"rank {victim}")
    last = steps_of(tmp_path / "out")[-1]
    wanted = (f"time.steps={last + 2}", f"run.mpi_timeout={_PATIENCE}")
    settings = [word for it in wanted for word in ("--set", it)]
    resumed = tetris_here("run", config, "--resume", "auto", *settings)
    assert resumed.returncode == 0, resumed.stderr


@pytest.mark.mpi
def test_sigterm_to_the_launcher_ends_a_run_with_a_frozen_rank(
    launcher: str, tmp_path: Path
) -> None:
    config, log = write_frail(tmp_path, plate(tmp_path)), tmp_path / "log"
    with running(launcher, 2, config, log) as process:
        begin = time.monotonic()
        os.kill(ranks_of(process)[1], signal.SIGSTOP)
        process.send_signal(signal.SIGTERM)
        check_end(process, begin, log, "rank 1")


@pytest.mark.mpi
def test_a_job_that_is_suspended_as_a_whole_goes_on(launcher: str, tmp_path: Path) -> None:
    """As by `scontrol suspend`: nobody is lost, however long it takes."""
    config, log = write_frail(tmp_path, plate(tmp_path)), tmp_path / "log"
    with running(launcher, 2, config, log) as process:
        for number, pause in ((signal.SIGSTOP, TIMEOUT + 1), (signal.SIGCONT, 1.0)):
            for pid in ranks_of(process):
                os.kill(pid, number)
            time.sleep(pause)
        last = steps_of(tmp_path / "out")[-1]
        deadline = time.monotonic() + _PATIENCE
        while steps_of(tmp_path / "out")[-1] == last:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
    assert "no sign of life" not in log.read_text()


def test_without_a_network_ranks_run_and_say_what_they_miss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = socket.socket

    def refused(family: int = -1, *others: int) -> socket.socket:
        if family == socket.AF_INET:
            raise OSError(errno.EAFNOSUPPORT, "no IPv4")
        return real(family, *others)

    monkeypatch.setattr(socket, "socket", refused)
    with closing(Heart(2)) as heart, caplog.at_level("WARNING", "tetris_sim"):
        heart.join(0, 2, lambda card: [card, card])
        heart.refuse_lost()
    assert "No beats of rank 1 on" in caplog.text


BUSY = """
import ctypes, sys, time
from tetris_sim.scheduler.comm.communicator import open_communicator

with open_communicator() as ranks:
    ranks.timeout = 2.0
    if ranks.rank == 1:
        ctypes.PyDLL(None).usleep(4_000_000)  # holds the interpreter lock, as long writes do
    if ranks.rank == 2:
        end = time.monotonic() + 4.0
        while time.monotonic() < end:
            compile("a = 1 + 2\\n" * 2000, "busy", "exec")
    print(ranks.collect(ranks.rank), flush=True)
    {then}
"""


def run_script(launcher: str, size: int, text: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [launcher, "-n", str(size), sys.executable, "-c", text],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.mpi
def test_a_rank_that_holds_the_interpreter_lock_is_alive(launcher: str) -> None:
    done = run_script(launcher, 3, BUSY.format(then=""))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[0, 1, 2]") == 3


@pytest.mark.mpi
@pytest.mark.parametrize("moment", ["start", "end"])
def test_a_rank_that_is_frozen_in_mpi_itself_ends_the_others(moment: str, launcher: str) -> None:
    """Rank 1 freezes before MPI starts, or when all have met and MPI is to end."""
    code = f"""
import os, signal
from tetris_sim.scheduler.comm import communicator, peers

freeze = lambda *_: os.kill(os.getpid(), signal.SIGSTOP)
if "{moment}" == "start":
    communicator.OPENING_SECONDS = 3.0
if peers.launched_rank() == 1:
    if "{moment}" == "start":
        freeze()
    communicator.MpiCommunicator.meet = lambda self, meet=communicator.MpiCommunicator.meet: (
        meet(self), freeze())
with communicator.open_communicator() as ranks:
    ranks.timeout = 3.0
"""
    done = run_script(launcher, 2, code)
    assert done.returncode == 75, done.stderr
    assert f"MPI waits for ever for other ranks at its {moment}" in done.stderr


@pytest.mark.parametrize("compiled", [True, False])
def test_a_rank_that_ends_the_job_tells_the_launcher_the_code(compiled: bool) -> None:
    """Hydra ends with the code of a rank that it killed if that one is gone first."""
    read, write = os.pipe()
    told = "tetris-sim: rank 0" if not compiled else "tetris-sim: it hangs"
    code = f"""
import os, time
os.environ.update(PMI_FD="{write}", PMI_HOSTNAME="here")
from tetris_sim.scheduler.comm.peers import Heart
heart = Heart(2)
if {compiled}:
    with heart.ended_within(0.1, "it hangs"):
        time.sleep(20)
heart._hosts, heart._silent = {{1: "there"}}, {{1: 9.0}}
heart._end([1], 0.01)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        stderr=subprocess.PIPE,
        pass_fds=(write,),
        timeout=60,
        check=False,
    )
    os.close(write)
    with os.fdopen(read, "rb") as file:
        assert file.read() == b"cmd=abort exitcode=75\n"
    assert done.returncode == 75
    assert told in done.stderr.decode()


def test_a_silent_peer_is_told_from_one_that_has_left() -> None:
    """Hearts of one process: one leaves, which is no loss; one stops to beat, and is named."""
    ranks, met = [Heart(3) for _ in range(3)], threading.Barrier(3)
    cards: dict[int, Card] = {}

    def join(rank: int) -> None:
        def collect(card: Card) -> list[Card]:
            cards[rank] = card
            met.wait()
            return [cards[k] for k in range(3)]

        ranks[rank].join(rank, 3, collect)

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for heart in ranks:
        heart.timeout = 2.0
    ranks[2].close()
    time.sleep(1.5)
    ranks[0].refuse_lost()
    ranks[1]._pace[1] = 0  # it beats for nobody
    with closing(ranks[0]), closing(ranks[1]):
        deadline = time.monotonic() + 10
        while not ranks[0]._lost and time.monotonic() < deadline:
            time.sleep(0.01)
        with pytest.raises(StopRequested, match="rank 1 on "):
            ranks[0].refuse_lost()


def test_a_timeout_within_which_a_busy_machine_is_silent_is_refused(tmp_path: Path) -> None:
    config = write_frail(tmp_path, plate(tmp_path))
    with pytest.raises(ConfigError, match=r"mpi_timeout: 0.02 s .*1 s or more is wanted"):
        load_config(config, overrides=["run.mpi_timeout=20 ms"])
    assert load_config(config).run.mpi_timeout == TIMEOUT


@pytest.mark.parametrize("size", [2, 3, 7, 64, 100])
def test_ranks_watch_each_other_alike(size: int) -> None:
    for rank in range(size):
        assert all(rank in watched_by(other, size) for other in watched_by(rank, size))
        assert rank not in watched_by(rank, size)


# Two computers on one: network namespaces that a cable (veth) joins.


def why_no_hosts() -> str | None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "hosts are made by root with `ip netns`"
    name = f"ts{secrets.token_hex(3)}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return "no network namespaces can be made here"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


@pytest.fixture
def hosts() -> Iterator[tuple[str, str]]:
    """Names of two network namespaces, 10.77.0.1 and 10.77.0.2."""
    if (why_not := why_no_hosts()) is not None:
        pytest.skip(why_not)
    key = secrets.token_hex(3)
    names = f"tsa{key}", f"tsb{key}"
    commands = [f"ip netns add {name}" for name in names]
    commands += [
        f"ip link add va{key} netns {names[0]} type veth peer name vb{key} netns {names[1]}"
    ]
    for k, (name, end) in enumerate(zip(names, ("va", "vb"), strict=True)):
        inside = f"ip -n {name}"
        commands += [
            f"{inside} addr add 10.77.0.{k + 1}/24 dev {end}{key}",
            f"{inside} link set {end}{key} up",
            f"{inside} link set lo up",
        ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True)
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def state_of(pid: int) -> str:
    """The letter of `ps`; Z of a process that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "Z"


@pytest.fixture
def across() -> str:
    """Words of the launcher for a rank on each host, reached by SHELL in place of ssh."""
    return "-launcher ssh -launcher-exec SHELL -hosts 10.77.0.1,10.77.0.2"


@contextmanager
def cut_off(
    hosts: tuple[str, str], launcher: str, across: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[str], float, Path]]:
    """A run on two hosts whose ranks have ended because the cable was cut; when; and its log."""
    config, log = write_frail(folder, plate(folder)), folder / "log"
    shell = folder / "shell"  # in place of ssh: HOST COMMAND
    shell.write_text(
        "#!/bin/sh\n"
        'while [ "${1#-}" != "$1" ]; do shift; done\n'
        f'case "$1" in 10.77.0.1) host={hosts[0]};; *) host={hosts[1]};; esac\n'
        'shift; exec ip netns exec "$host" sh -c "$*"\n'
    )
    shell.chmod(0o755)
    command = f"ip netns exec {hosts[0]} {launcher} {across.replace('SHELL', str(shell))}"
    command += f" -n 2 {sys.executable} -m tetris_sim run {config}"
    with log.open("w") as said:
        process = subprocess.Popen(command.split(), stdout=said, stderr=said, text=True)
    try:
        deadline = time.monotonic() + 60
        while not steps_of(folder / "out"):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        computing = ranks_of(process)
        assert len(computing) == 2

        link = f"va{hosts[0][3:]}"
        subprocess.run(["ip", "-n", hosts[0], "link", "set", link, "down"], check=True)
        begin = time.monotonic()
        while alive := [it for it in computing if state_of(it) != "Z"]:
            assert time.monotonic() < begin + TIMEOUT + _PATIENCE, (alive, log.read_text())
            time.sleep(0.05)
        yield process, begin, log
    finally:
        for child in [*descendants(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        process.wait()


@pytest.mark.mpi
def test_a_cut_cable_ends_the_run_on_both_sides(
    hosts: tuple[str, str], launcher: str, across: str, tmp_path: Path
) -> None:
    with cut_off(hosts, launcher, across, tmp_path) as (process, begin, log):
        check_end(process, begin, log, "rank 1")
