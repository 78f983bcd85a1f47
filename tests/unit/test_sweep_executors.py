"""Sweeps on the executors of others: the same table, and what a lost worker had goes to another."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import tetris_sim
from tests.unit.test_sweep import MATERIAL, TEXT, H
from tetris_sim.__main__ import main
from tetris_sim.api.sweep_workers import SweepResult
from tetris_sim.errors import ExitCode

OVER: dict[str, list[Any]] = {H: [10.0, 500.0], MATERIAL: ["copper", "steel"]}
MEASURED = ("wall_s", "points_per_second", "directory")  # of one run, not of what it computes


@pytest.fixture
def plate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plate.yaml"
    path.write_text(TEXT, encoding="utf-8")
    return path


def computed(result: SweepResult) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k not in MEASURED} for row in result.rows]


class InTurn(Executor):
    """Makes what is submitted at once, in this thread, as a queue with one worker would."""

    def __init__(self) -> None:
        self.submitted: list[int] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted.append(len(args[0]))
        try:
            future.set_result(self.call(fn, *args, **kwargs))
        except Exception as error:  # noqa: BLE001 - as executors do
            future.set_exception(error)
        return future

    def call(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)


class Forgetful(InTurn):
    """A worker is lost with each run, so many times."""

    def __init__(self, losses: int) -> None:
        super().__init__()
        self._left = losses

    def call(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._left and not kwargs:
            self._left -= 1
            msg = "the node went away"
            raise OSError(msg)
        return fn(*args, **kwargs)


class Job:
    """What submitit hands out: a job that has no callbacks."""

    def __init__(self, value: Any) -> None:
        self._value, self._asked = value, 0

    def done(self) -> bool:
        self._asked += 1
        return self._asked > 1

    def result(self) -> Any:
        return self._value

    def cancel(self) -> None:
        raise AssertionError


class Jobs:
    """An executor of the kind of submitit's: no futures, and no class of `concurrent.futures`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        return Job(fn(*args, **kwargs))


@pytest.mark.parametrize("make", [InTurn, Jobs, lambda: Forgetful(2)])
def test_the_table_is_that_of_our_own_processes(
    plate: Path, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tetris_sim.api.sweeping._ASKED", 0.001)
    ours = tetris_sim.sweep(plate, OVER, processes=1, directory="ours")
    theirs = tetris_sim.sweep(plate, OVER, executor=make(), directory="theirs")
    assert theirs.exit_code == ExitCode.OK
    assert computed(theirs) == computed(ours)


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_standard_executors_make_sweeps(plate: Path, kind: str) -> None:
    with (
        ThreadPoolExecutor(2)
        if kind == "threads"
        else ProcessPoolExecutor(2, mp_context=get_context("spawn"))
    ) as executor:
        result = tetris_sim.sweep(plate, OVER, executor=executor)
    assert [row["ended"] for row in result.rows] == ["Done"] * 4


def test_a_run_that_ends_its_workers_is_told_and_the_call_goes_on_later(plate: Path) -> None:
    result = tetris_sim.sweep(plate, OVER, executor=Forgetful(1000))
    assert result.exit_code == ExitCode.INTERNAL
    assert [row["error"] for row in result.failed] == [
        "its worker was lost (OSError: the node went away)"
    ] * 4
    again = tetris_sim.sweep(plate, OVER, executor=InTurn())
    assert (again.exit_code, again.failed) == (ExitCode.OK, ())


def test_a_killed_process_of_a_pool_costs_the_runs_that_are_left_and_no_more(plate: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(os.kill, pool.submit(os.getpid).result(), signal.SIGKILL)
        result = tetris_sim.sweep(plate, OVER, executor=pool)
    assert len(result.failed) == 4
    assert "BrokenProcessPool" in result.failed[0]["error"]
    assert not tetris_sim.sweep(plate, OVER, executor=InTurn()).failed


def test_runs_are_made_together_where_the_number_of_workers_is_known(plate: Path) -> None:
    over: dict[str, list[Any]] = {"initial.expression": ["100*x/Lx", "y/Ly", "5", "7"]}
    alone, together = InTurn(), InTurn()
    first = tetris_sim.sweep(plate, over, executor=alone, directory="alone")
    second = tetris_sim.sweep(plate, over, executor=together, processes=2, directory="together")
    assert (alone.submitted, together.submitted) == ([1, 1, 1, 1, 1], [2, 2])
    assert computed(first) == computed(second)


def test_a_script_for_an_array_of_jobs_makes_the_sweep(
    plate: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["sweep", str(plate), "--over", f"{H}=10,500", "--over", f"{MATERIAL}=copper,steel"]
    assert main([*words, "--set", "time.steps=12", "--slurm-array", "8"]) == ExitCode.OK
    assert "4 runs in 4 jobs: sbatch sweeps/plate/slurm_array.sh" in capsys.readouterr().out
    script = Path("sweeps/plate/slurm_array.sh").read_text()
    assert "#SBATCH --array=1-4\n" in script

    # What Slurm would do, with srun as a program that calls the rest.
    (tmp_path / "srun").write_text('#!/bin/sh\nexec "$@"\n')
    (tmp_path / "srun").chmod(0o755)
    root = str(Path(tetris_sim.__file__).parents[1])
    for part in range(1, 5):
        environment = os.environ | {
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "SLURM_ARRAY_TASK_ID": str(part),
            "PYTHONPATH": root,
        }
        done = subprocess.run(
            ["bash", "sweeps/plate/slurm_array.sh"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == ExitCode.OK, done.stderr
    over = OVER | {H: [10, 500]}
    result = tetris_sim.sweep(plate, over, overrides=["time.steps=12"], executor=Forgetful(1000))
    assert [row["ended"] for row in result.rows] == ["Done"] * 4
    assert shlex.quote(sys.executable) in script

    assert main([*words, "--part", "1/2", "--slurm-array", "8"]) == ExitCode.CONFIG
    assert "gives each its --part itself" in capsys.readouterr().err
