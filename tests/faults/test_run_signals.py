from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.fault_runs import (
    assert_same_results,
    checkpoint_steps,
    start,
    tetris_here,
    wait_until,
    write_plate,
)

ENDLESS = 10**9
OFTEN = 100_000


@contextmanager
def _running(
    folder: Path, *arguments: object, checkpoint: int = ENDLESS
) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """An endless run that has begun to compute, and what it says."""
    config = write_plate(folder, steps=ENDLESS, often=OFTEN, checkpoint=checkpoint)
    log = folder / "log"
    with log.open("w") as said:
        process = start(said, "run", config, *arguments)
        try:
            wait_until(lambda: (folder / "out" / "statistics.csv").exists(), process, log)
            yield process, log
        finally:
            process.kill()
            process.wait()


def _resume_to_the_end(folder: Path, stopped_at: int) -> None:
    """Continue 1000 steps and compare with a run that was never stopped."""
    steps = stopped_at + 1000
    resumed = tetris_here(
        "run", folder / "plate.yaml", "--resume", "auto", "--set", f"time.steps={steps}"
    )
    assert resumed.returncode == 0, resumed.stderr
    assert f"at step {stopped_at}." in resumed.stderr
    config = write_plate(folder / "whole", steps=steps, often=OFTEN, checkpoint=ENDLESS)
    assert tetris_here("run", config).returncode == 0
    for step in checkpoint_steps(folder / "out")[
        :-1
    ]:  # where it was stopped, the other run saved nothing
        (folder / "out" / "checkpoints" / f"checkpoint_{step:012d}.h5").unlink()
    assert_same_results(folder / "out", folder / "whole" / "out")


def test_sigusr1_saves_a_checkpoint_and_the_run_goes_on(tmp_path: Path) -> None:
    with _running(tmp_path) as (process, log):
        assert checkpoint_steps(tmp_path / "out") == []
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(checkpoint_steps(tmp_path / "out")) == 1, process, log)
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: len(checkpoint_steps(tmp_path / "out")) == 2, process, log)
        time.sleep(0.3)
        assert process.poll() is None
        assert len(checkpoint_steps(tmp_path / "out")) == 2


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_signal_ends_the_run_with_a_checkpoint_that_leads_to_the_same_bits(
    tmp_path: Path, number: int, code: int
) -> None:
    with _running(tmp_path) as (process, log):
        process.send_signal(number)
        begin = time.monotonic()
        assert process.wait(20) == code, log.read_text()
        assert time.monotonic() - begin < 5
    (stopped_at,) = checkpoint_steps(tmp_path / "out")
    said = log.read_text()
    assert ("SIGTERM" if number == signal.SIGTERM else "Ctrl-C") in said
    assert "Traceback" not in said
    assert (tmp_path / "out" / "report.json").exists()
    _resume_to_the_end(tmp_path, stopped_at)


def test_a_second_ctrl_c_aborts_at_once_and_leaves_the_last_checkpoint(tmp_path: Path) -> None:
    # Blocks of a minute and more: only an abort can end the run in less.
    long = {
        "compute.time_block": 10**8,
        "output.statistics.every": "100000000 steps",
        "output.probes": [],
    }
    overrides = [part for key, value in long.items() for part in ("--set", f"{key}={value}")]
    with _running(tmp_path, *overrides, "--set", "output.fields.every=100000000 steps") as (
        process,
        log,
    ):
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        assert process.poll() is None, log.read_text()
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 130, log.read_text()
    assert "aborted" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert checkpoint_steps(tmp_path / "out") == []


def test_a_wall_time_limit_ends_the_run_in_time_with_a_checkpoint(tmp_path: Path) -> None:
    with _running(tmp_path, "--set", "run.max_walltime=6 s") as (process, log):
        assert process.wait(60) == 75, log.read_text()
    assert json.loads((tmp_path / "out" / "report.json").read_text())["wall_s"] < 6
    assert "wall-time limit" in log.read_text()
    (stopped_at,) = checkpoint_steps(tmp_path / "out")
    assert stopped_at > 0


def test_the_clock_saves_checkpoints_while_the_run_goes_on(tmp_path: Path) -> None:
    with _running(
        tmp_path, "--set", "checkpoint.every=0.5 s wall", "--set", "checkpoint.keep=3"
    ) as (process, log):
        wait_until(lambda: len(checkpoint_steps(tmp_path / "out")) == 3, process, log)
        first = checkpoint_steps(tmp_path / "out")[0]
        wait_until(lambda: checkpoint_steps(tmp_path / "out")[0] > first, process, log)
        assert len(checkpoint_steps(tmp_path / "out")) <= 4
