"""A few whole runs under a real launcher: the files of one process, kills, signals, messages said
once.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from tetris_sim.outputs.checkpoint.directory import find_checkpoint

pytestmark = pytest.mark.mpi

_LONG = 240.0  # seconds; never waited for unless a test fails
PLATE = """
schema: 1
grid: {{shape: [310, 230], size: [62 mm, 23 mm]}}
model: {{type: heat, material: copper}}
initial: {{type: gaussian, amplitude: 100 K, sigma: 8 mm}}
boundaries: {{"*": {{type: neumann}}, x-: {{type: dirichlet, value: 50}}, y: {{type: periodic}}}}
time: {{cfl: 0.15, steps: {steps}}}
compute: {{method: cpu.plain, threads: 1, tuning_budget: 0}}
output: {{directory: {directory}, pictures: false, statistics: {{every: 1000 steps}}}}
checkpoint: {{every: {every} steps, keep: 2}}
"""
ENDLESS = 10**9


def write_plate(folder: Path, *, steps: int, every: int = 1000, name: str = "out") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(PLATE.format(steps=steps, every=every, directory=folder / name))
    return path


def command(launcher: str, size: int, *arguments: object) -> list[str]:
    return [launcher, "-n", str(size), sys.executable, "-m", "tetris_sim", *map(str, arguments)]


def run(launcher: str, size: int, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(launcher, size, *arguments),
        capture_output=True,
        text=True,
        timeout=_LONG,
        check=False,
    )


def steps_of(folder: Path) -> list[int]:
    return sorted(
        int(path.stem.removeprefix("checkpoint_"))
        for path in folder.glob("checkpoints/checkpoint_*.h5")
    )


@contextmanager
def running(launcher: str, size: int, config: Path, log: Path) -> Iterator[subprocess.Popen[str]]:
    """A run that goes on for ever and has saved a checkpoint or two."""
    with log.open("w") as said:
        process = subprocess.Popen(
            command(launcher, size, "run", config), stdout=said, stderr=said, text=True
        )
        try:
            deadline = time.monotonic() + _LONG
            while not steps_of(config.with_suffix("")):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.01)
            yield process
        finally:
            for child in descendants(process.pid):
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            process.kill()
            process.wait()


def descendants(pid: int) -> list[int]:
    """Processes below one, those that compute last."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    try:
        found = [int(word) for word in children.read_text().split()]
    except OSError:
        return []
    return found + [further for child in found for further in descendants(child)]


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    """The ranks' processes, in their order."""
    found = {}
    for pid in descendants(process.pid):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        names = (b"PMI_RANK", b"OMPI_COMM_WORLD_RANK")
        ranks = [int(it[2]) for it in (e.partition(b"=") for e in environment) if it[0] in names]
        if ranks:
            found[ranks[0]] = pid
    return [found[rank] for rank in sorted(found)]


def test_ranks_of_a_launcher_write_the_files_of_one_process(launcher: str, tmp_path: Path) -> None:
    tables = []
    for size in (1, 3):
        done = run(launcher, size, "run", write_plate(tmp_path, steps=2000, name=f"on{size}"))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Done: steps 0 to 2000") == 1
        assert done.stderr.count("steps of") == 1, (
            done.stderr
        )  # the first rank alone says what it does
        tables.append((tmp_path / f"on{size}" / "statistics.csv").read_bytes())
    assert tables[0] == tables[1]


def test_a_bar_that_four_ranks_cut_along_x_by_choice_has_the_bits_of_one(
    launcher: str, tmp_path: Path
) -> None:
    """Slabs are possible, one or two of the six planes each; pieces of rows have room for longer
    blocks.
    """
    states = []
    for size in (1, 4):
        config = write_plate(tmp_path, steps=300, every=300, name=f"bar{size}")
        bar = (
            config.read_text()
            .replace("[310, 230]", "[41, 6, 6]")
            .replace("[62 mm, 23 mm]", "[62 mm, 9 mm, 9 mm]")
        )
        config.write_text(bar.replace("cfl: 0.15", "cfl: 0.1"))
        done = run(launcher, size, "run", config)
        assert done.returncode == 0, done.stderr
        said = (tmp_path / f"bar{size}" / "report.json").read_text()
        assert ("Process grid 4 along x, even: slabs are predicted to take" in said) == (
            size == 4
        ), said
        checkpoint, _ = find_checkpoint(tmp_path / f"bar{size}" / "checkpoints")
        assert checkpoint is not None
        with checkpoint:
            assert checkpoint.state.step == 300
            states.append(checkpoint.read(((0, 6), (0, 6), (0, 41))))
    np.testing.assert_array_equal(states[0], states[1])
    assert np.ptp(states[0]) > 1.0


@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_ends_the_others_and_the_run_can_go_on(
    victim: int, launcher: str, tmp_path: Path
) -> None:
    config, log = write_plate(tmp_path, steps=ENDLESS), tmp_path / "log"
    with running(launcher, 3, config, log) as process:
        time.sleep(random.Random(victim).uniform(0, 0.3))
        pids = ranks_of(process)
        assert len(pids) == 3
        os.kill(pids[victim], signal.SIGKILL)
        assert process.wait(10) != 0, log.read_text()
        deadline = time.monotonic() + 10
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            assert time.monotonic() < deadline, "some rank lives on"
            time.sleep(0.05)
    last = steps_of(tmp_path / "out")[-1]
    resumed = run(
        launcher, 1, "run", config, "--resume", "auto", "--set", f"time.steps={last + 1000}"
    )
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stderr.count(f"at step {last}.") == 1


def test_sigterm_to_one_rank_ends_all_with_a_checkpoint_and_code_75(
    launcher: str, tmp_path: Path
) -> None:
    config, log = write_plate(tmp_path, steps=ENDLESS, every=500), tmp_path / "log"
    with running(launcher, 2, config, log) as process:
        os.kill(ranks_of(process)[1], signal.SIGTERM)
        assert process.wait(20) == 75, log.read_text()
    assert log.read_text().count("SIGTERM arrived") == 1
    assert (tmp_path / "out" / "report.json").exists()
    stopped_at = steps_of(tmp_path / "out")[-1]
    resumed = run(
        launcher, 1, "run", config, "--resume", "auto", "--set", f"time.steps={stopped_at + 5}"
    )
    assert resumed.returncode == 0, resumed.stderr


def test_a_mistake_in_the_configuration_is_said_once(launcher: str, tmp_path: Path) -> None:
    config = write_plate(tmp_path, steps=10)
    config.write_text(config.read_text().replace("copper", "unobtainium"))
    done = run(launcher, 3, "run", config)
    assert done.returncode == 2
    assert done.stderr.count("unobtainium") == 1, done.stderr
    assert not (tmp_path / "out").exists()


def test_a_word_that_is_no_verb_is_said_once(launcher: str) -> None:
    done = run(launcher, 3, "runn")
    assert done.returncode == 2
    assert done.stderr.count("invalid choice") == 1, done.stderr
