"""Files of fields whose slabs are written by those that own them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.outputs_samples import (
    SALT,
    SHAPES,
    TEMPERATURE,
    fields_output,
    make_problem,
    names,
    snapshot,
)
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.field_file import Unfinished, runs
from tetris_sim.outputs.output import OutputTimes

BOTH = (TEMPERATURE, SALT)


def boxes(shape: tuple[int, ...], cuts: int) -> Iterator[Box]:
    """A grid cut along all axes."""
    yield from itertools.product(
        *([(n * k // cuts, n * (k + 1) // cuts) for k in range(cuts)] for n in shape)
    )


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("cuts", [1, 2, 3])
def test_the_file_has_the_bytes_of_one_that_a_process_writes_alone(
    ndim: int, dtype: str, cuts: int, tmp_path: Path
) -> None:
    problem = make_problem(SHAPES[ndim], variables=BOTH, dtype=dtype)
    for _ in range(20):
        before = written_alone(problem, tmp_path / "alone")
        ours = written_in_slabs(problem, tmp_path / "ours", cuts)
        # Files know the second in which they were made.
        if before == written_alone(problem, tmp_path / "alone"):
            assert ours == before
            return
    raise AssertionError


def written_alone(problem: Problem, directory: Path) -> dict[str, bytes]:
    output = fields_output(problem, directory)
    output.start(0)
    output.write(snapshot(problem, 20))
    output.close()
    return {name: (directory / name).read_bytes() for name in names(directory)}


def written_in_slabs(problem: Problem, directory: Path, cuts: int) -> dict[str, bytes]:
    output, seen = fields_output(problem, directory), snapshot(problem, 20)
    output.start(0)
    assert output.divides(20)
    begun = output.begin(20, seen.time)
    for box in boxes(problem.grid.shape, cuts):
        begun.write(box, seen.box)
    assert names(directory) == [str(begun.part.relative_to(directory))]
    output.finish(begun)
    output.close()
    return {name: (directory / name).read_bytes() for name in names(directory)}


@pytest.mark.parametrize("shape", [(7,), (5, 4), (4, 3, 5), (1, 1, 6), (3, 1, 2)])
def test_runs_are_the_points_of_a_box_in_their_order(shape: tuple[int, ...]) -> None:
    numbers = np.arange(np.prod(shape)).reshape(shape)
    sides = [list(itertools.combinations(range(n + 1), 2)) for n in shape]
    for box in itertools.product(*sides):
        firsts, length = runs(shape, box)
        found = (firsts[:, None] + np.arange(length)).ravel()
        inside = numbers[tuple(slice(low, high) for low, high in box)]
        np.testing.assert_array_equal(found, inside.ravel())
        assert length % inside.shape[-1] == 0


def test_what_was_not_finished_is_removed(tmp_path: Path) -> None:
    problem = make_problem(SHAPES[2])
    output = fields_output(problem, tmp_path)
    output.start(0)
    output.give_up(output.begin(20, 10.0))
    assert names(tmp_path) == []
    begun = output.begin(40, 20.0)
    assert begun.is_here()
    output.close()
    assert not begun.is_here()
    assert names(tmp_path) == []


def test_packed_files_and_times_between_steps_are_not_divided(tmp_path: Path) -> None:
    problem = make_problem(SHAPES[2])
    assert not fields_output(problem, tmp_path, compression="gzip").divides(20)
    moments = OutputTimes((30.2 * problem.dt,), problem.dt, problem.steps)
    output = fields_output(problem, tmp_path, moments=moments)
    assert [step for step in range(15, 45) if output.divides(step)] == [
        *range(15, 30),
        *range(32, 45),
    ]


def test_a_full_disk_is_told_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_problem(SHAPES[2])
    output = fields_output(problem, tmp_path)
    output.start(0)
    begun: Unfinished = output.begin(20, 10.0)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    box = tuple((0, n) for n in problem.grid.shape)
    with pytest.raises(UnsupportedError, match="disk full") as it:
        begun.write(box, snapshot(problem, 20).box)
    monkeypatch.undo()
    assert str(begun.part) in str(it.value)
    output.close()
