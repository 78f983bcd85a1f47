"""A run that cannot begin, or is stopped before it does, leaves results of an earlier run where
they are.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.fault_runs import contents, tetris_here, write_plate
from tetris_sim.errors import ExitCode

IMPOSSIBLE = "initial={type: expression, expression: 'x/0'}"
Results = dict[str, bytes]


@pytest.fixture
def plate(tmp_path: Path) -> Path:
    """A configuration whose run has ended."""
    config = write_plate(tmp_path, steps=40, often=10, checkpoint=20)
    done = tetris_here("run", config)
    assert done.returncode == 0, done.stderr
    return config


def everything(config: Path) -> Results:
    """What is there, texts that tell one run from another included."""
    out = config.parent / "out"
    texts = {
        path.name: path.read_bytes()
        for path in out.iterdir()
        if path.suffix in (".json", ".txt", ".yaml")
    }
    assert len(texts) >= 3
    return {**contents(out), **texts}


def test_an_initial_state_that_is_no_number_deletes_nothing(plate: Path) -> None:
    before = everything(plate)
    refused = tetris_here("run", plate, "--overwrite", "--set", IMPOSSIBLE)
    assert refused.returncode == ExitCode.NOT_FINITE
    assert "gives inf" in refused.stderr
    assert everything(plate) == before


@pytest.mark.parametrize(
    "place",
    [
        "tetris_sim.simulation.preparation.plan_together",
        "tetris_sim.simulation.driving.open_worker",
    ],
)
@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, ExitCode.REQUEUE), (signal.SIGINT, ExitCode.INTERRUPTED)],
    ids=["SIGTERM", "Ctrl-C"],
)
def test_a_signal_before_the_first_step_ends_the_run_and_deletes_nothing(
    plate: Path, number: signal.Signals, code: ExitCode, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything(plate)
    module, name = place.rsplit(".", 1)
    original: Callable[..., Any] = getattr(__import__(module, fromlist=[name]), name)
    went_on: list[str] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), number)
        went_on.append(place)
        return original(*arguments, **options)

    monkeypatch.setattr(place, interrupted)
    stopped = tetris_here("run", plate, "--overwrite")
    assert stopped.returncode == code
    assert "nothing was computed, and no file was changed" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert bool(went_on) == (name == "open_worker")  # planning is not waited for
    assert everything(plate) == before


def test_going_on_with_a_run_that_is_done_leaves_its_report(plate: Path) -> None:
    report = plate.parent / "out" / "report.json"
    before = report.read_bytes()
    again = tetris_here("run", plate, "--resume", "auto")
    assert again.returncode == 0, again.stderr
    assert report.read_bytes() == before
    longer = tetris_here("run", plate, "--resume", "auto", "--set", "time.steps=60")
    assert longer.returncode == 0, longer.stderr
    assert report.read_bytes() != before


def test_what_a_killed_run_was_writing_is_removed(plate: Path) -> None:
    out = plate.parent / "out"
    left = [
        out / f"{name}.123.0a1b2c3d.part" for name in ("resolved.yaml", "report.json", "report.txt")
    ]
    for path in left:
        path.write_text("half of")
    mine = out / "mine.part"
    mine.write_text("mine")
    assert tetris_here("run", plate, "--resume", "auto", "--set", "time.steps=60").returncode == 0
    assert [path for path in left if path.exists()] == []
    assert mine.exists()


def test_restart_removes_what_a_killed_run_was_saving(plate: Path) -> None:
    checkpoints = plate.parent / "out" / "checkpoints"
    part = checkpoints / "checkpoint_000000000060.h5.123.0a1b2c3d.part"
    part.write_text("half of")
    orphan = checkpoints / "parts_000000000060" / "part_0.h5"
    orphan.parent.mkdir()
    orphan.write_text("of no checkpoint")
    assert tetris_here("restart", checkpoints.parent, "--set", "time.steps=80").returncode == 0
    assert not part.exists()
    assert not orphan.parent.exists()


def test_plan_refuses_the_results_directories_that_run_refuses(plate: Path) -> None:
    file = plate.parent / "a_file"
    file.write_text("mine")
    closed = plate.parent / "closed"
    closed.mkdir(mode=0o500)
    places = [file, file / "below"] + ([] if os.access(closed, os.W_OK) else [closed / "new"])
    for place in places:
        said = [
            tetris_here(verb, plate, "--set", f"output.directory={place}")
            for verb in ("plan", "run")
        ]
        assert [done.returncode for done in said] == [ExitCode.CONFIG] * 2
        assert said[0].stderr == said[1].stderr
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, ExitCode.REQUEUE),
        (signal.SIGINT, ExitCode.INTERRUPTED),
        (signal.SIGUSR1, ExitCode.OK),
    ],
)
def test_a_signal_before_the_run_listens_is_no_bug(
    plate: Path, number: signal.Signals, code: ExitCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While modules are imported and the configuration is read."""
    from tetris_sim.commands import run

    original = run.run

    def interrupted(arguments: Any) -> int:
        os.kill(os.getpid(), number)
        return original(arguments)

    monkeypatch.setattr(run, "run", interrupted)
    before = signal.getsignal(number)
    done = tetris_here("run", plate, "--overwrite")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert signal.getsignal(number) == before
