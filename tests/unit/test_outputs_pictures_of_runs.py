"""The pictures that a run leaves, resumed or whole."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.outputs_samples import (
    SALT,
    SHAPES,
    TEMPERATURE,
    FakeSnapshot,
    fields_output,
    make_problem,
    names,
    snapshot,
    state,
)
from tests.support.pictures_read import decode
from tetris_sim.errors import ConfigError
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import sampling
from tetris_sim.outputs.pictures import PicturesOutput
from tetris_sim.outputs.regions import blocks

PICTURES = ["difference.png", "final.png", "initial.png", "overview.png"]


@pytest.fixture(autouse=True)
def _as_in_a_run() -> Any:
    # Matplotlib computes with what may underflow or be invalid in between.
    with np.errstate(all="warn"):
        yield


def run_pictures(problem: Problem, directory: Path, **options: Any) -> None:
    output = PicturesOutput(problem, directory, heading="", initial=None, **options)
    output.start(0)
    output.write(snapshot(problem, 0))
    assert output.next_step(0) == problem.steps
    output.write(snapshot(problem, problem.steps))
    assert output.next_step(problem.steps) is None
    output.flush()
    output.close()


@pytest.mark.parametrize("ndim", [1, 2, 3])
def test_a_run_leaves_four_pictures(tmp_path: Path, ndim: int) -> None:
    problem = make_problem(SHAPES[ndim])
    run_pictures(problem, tmp_path)
    assert names(tmp_path) == PICTURES
    shown = {name: decode(tmp_path / name) for name in PICTURES}
    assert all(pixels.std() > 0.05 for pixels in shown.values())
    assert not np.array_equal(shown["initial.png"], shown["final.png"])
    assert shown["overview.png"].size > shown["final.png"].size


def test_every_variable_has_pictures(tmp_path: Path) -> None:
    run_pictures(make_problem(variables=(TEMPERATURE, SALT)), tmp_path)
    assert names(tmp_path) == sorted(
        PICTURES + [name.replace(".png", "_salt.png") for name in PICTURES]
    )


def test_a_run_of_no_steps_has_pictures_too(tmp_path: Path) -> None:
    problem = make_problem(steps=0)
    output = PicturesOutput(problem, tmp_path, heading="", initial=None)
    output.start(0)
    output.write(snapshot(problem, 0))
    output.close()
    assert names(tmp_path) == PICTURES


def resumed(problem: Problem, directory: Path, initial: Any) -> None:
    output = PicturesOutput(problem, directory, heading="", initial=initial)
    output.start(20)
    output.write(snapshot(problem, problem.steps))
    output.close()


def test_a_resumed_run_draws_the_same_pictures(tmp_path: Path) -> None:
    problem = make_problem((30, 40))
    run_pictures(problem, tmp_path / "whole")
    resumed(problem, tmp_path / "resumed", problem.initial)
    for name in ("final.png", "difference.png", "overview.png"):
        np.testing.assert_array_equal(
            decode(tmp_path / "resumed" / name), decode(tmp_path / "whole" / name)
        )


def test_a_resumed_run_finds_its_first_state_among_the_fields(tmp_path: Path) -> None:
    problem = make_problem((30, 40))
    run_pictures(problem, tmp_path / "whole")
    output = fields_output(problem, tmp_path / "resumed")
    output.start(0)
    output.write(snapshot(problem, 0))
    output.close()
    resumed(problem, tmp_path / "resumed", None)
    for name in ("difference.png", "overview.png"):
        np.testing.assert_array_equal(
            decode(tmp_path / "resumed" / name), decode(tmp_path / "whole" / name)
        )


@pytest.mark.parametrize("known", [True, False])
def test_without_its_first_state_a_resumed_run_ends_well_and_says_what_is_missing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, known: bool
) -> None:
    def gone(slab: Any) -> Any:
        msg = "initial.path: plate.npy is not there"
        raise ConfigError(msg)

    logger = logging.getLogger("tetris_sim")
    logger.addHandler(caplog.handler)
    try:
        resumed(make_problem(), tmp_path, gone if known else None)
    finally:
        logger.removeHandler(caplog.handler)
    assert names(tmp_path) == ["final.png"]
    assert "difference.png and overview.png are not drawn" in caplog.text
    assert "is not there" in caplog.text


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    for name in ("initial.png.5.part", "overview.png.77.part", "fields.h5.3.part"):
        (tmp_path / name).write_text("torn")
    PicturesOutput(make_problem(), tmp_path, heading="", initial=None).start(20)
    assert names(tmp_path) == ["fields.h5.3.part"]


def test_pictures_of_a_fine_grid_fetch_it_in_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_problem((400, 300))
    monkeypatch.setattr(sampling, "blocks", lambda *args: blocks(*args, limit=1 << 16))
    monkeypatch.setattr(sampling.sample, "__kwdefaults__", {"most": 60, "turned": True})
    taken = FakeSnapshot(problem, 0, state(problem, 0))
    output = PicturesOutput(problem, tmp_path, heading="", initial=None)
    output.start(0)
    output.write(taken)
    assert 0 < taken.largest <= 1 << 16
    assert decode(tmp_path / "initial.png").std() > 0.05


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    import matplotlib as mpl

    before, figures = dict(mpl.rcParams), open_figures()
    run_pictures(make_problem(), tmp_path)
    assert dict(mpl.rcParams) == before
    assert open_figures() == figures


def open_figures() -> list[int]:
    """The figures that pyplot knows, of whoever made them; none if nobody has imported it."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return pyplot.get_fignums() if pyplot else []
