"""Configurations of equations, small, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from tetris_sim.__main__ import main
from tetris_sim.config import Config, make_config
from tetris_sim.model import reference
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

SINE: dict[str, Any] = {"type": "expression", "expression": "sin(2*pi*x/Lx)"}


def field(equation: str, initial: Any = 0.0, **more: Any) -> dict[str, Any]:
    """The section of a field; `initial` a number, a formula or a section."""
    if isinstance(initial, str):
        initial = {"type": "expression", "expression": initial}
    elif not isinstance(initial, Mapping):
        initial = {"type": "constant", "value": initial}
    return {"equation": equation, "initial": initial, **more}


def second(equation: str, initial: Any = 0.0, **more: Any) -> dict[str, Any]:
    """The section of a field with an equation of second order."""
    section = field(equation, initial, **more)
    section["second_order"] = section.pop("equation")
    return section


def config(
    fields: Mapping[str, Any],
    *,
    shape: tuple[int, ...] = (24, 20),
    size: tuple[float, ...] | None = None,
    boundaries: Mapping[str, Any] | None = None,
    time: Mapping[str, Any] | None = None,
    precision: str = "float64",
    **model: Any,
) -> Config:
    """A configuration; lists are x, y, z, faces periodic if nothing is said."""
    grid: dict[str, Any] = {"shape": list(shape)}
    if size is not None:
        grid["size"] = list(size)
    return make_config(
        {
            "grid": grid,
            "model": {"type": "pde", "fields": dict(fields), **model},
            "boundaries": boundaries or {"*": {"type": "periodic"}},
            "time": time or {"steps": 3, "dt": 1e-3},
            "compute": {"precision": precision},
        },
        environ={},
    )


def affine(problem: Problem) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(M, b) of a linear problem, whose step is u + dt (M u + b); all fields in one vector."""
    shape = problem.initial(Slab.whole(problem.grid)).shape
    nothing = np.zeros(shape)

    def rate(state: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        after = reference.advance(state, problem, 1)
        return ((after - state) / problem.dt).reshape(-1)

    b = rate(nothing)
    columns = []
    for place in range(nothing.size):
        unit = np.zeros(nothing.size)
        unit[place] = 1.0
        columns.append(rate(unit.reshape(shape)) - b)
    return np.array(columns).T, b


def steady_error(equation: str, exact: str, n: int, **more: Any) -> float:
    """The largest difference between the state that does not change and a formula."""
    ndim = len(more.get("size", (1.0,)))
    problem = config(
        {"u": field(equation, exact)},
        **{"shape": (n,) * ndim, "size": (1.0,) * ndim, "allow_growth": True, **more},
        time={"steps": 1, "dt": 1.0, "scheme": "euler"},
    ).build()
    matrix, b = affine(problem)
    found = np.linalg.solve(matrix, -b).reshape((1, *problem.grid.shape))
    return float(np.abs(found - problem.initial(Slab.whole(problem.grid))).max())


def whole_and_continued(
    text: str, folder: Path, names: Sequence[str], *, every: int
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """The last states of a run, and of the one that goes on from its last but one checkpoint.

    Args:
        text: a configuration without output and checkpoint.
        folder: for both runs.
        names: of the fields that are read, of one shape.
        every: steps between two checkpoints.
    """
    results, path = folder / "results", folder / "c.yaml"
    ends = f"output: {{directory: {results}}}\ncheckpoint: {{every: {every} steps}}\n"
    path.write_text(text + ends)

    def last(*options: str) -> npt.NDArray[Any]:
        assert main(["run", str(path), *options]) == 0
        kept = sorted((results / "checkpoints").glob("*.h5"))[-1]
        with h5py.File(kept, "r") as file:
            found = np.stack([file["fields"][name][...] for name in names])
        kept.unlink()
        return found

    return last(), last("--resume", "auto")
