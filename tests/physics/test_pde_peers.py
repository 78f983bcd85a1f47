"""py-pde's documented examples, solved here: the same grid, scheme and step give the same."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim import Dirichlet, Neumann, Periodic
from tetris_sim.apps.pde.arrays import equations_problem
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Face
from tetris_sim.model.grid import Grid

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
MADE = runpy.run_path(str(GOLDEN / "make_pde_peers.py"))
CASES, RING = MADE["CASES"], MADE["RING"]
SCHEMES = {"euler": "euler", "runge-kutta": "rk4"}
WORDS = {"gradient_squared": "grad_squared", "d_dx": "dx"}


def face(given: dict[str, float]) -> Face:
    if "value" in given:
        return Dirichlet(given["value"])
    return Neumann(given["derivative"])


def boundary(faces: Any) -> Boundary:
    if faces == RING:
        return Boundary.everywhere(Periodic(), 2)
    if "x-" not in faces:
        return Boundary.everywhere(face(faces), 2)
    return Boundary(tuple((face(faces[f"{a}-"]), face(faces[f"{a}+"])) for a in "yx"))


@pytest.mark.parametrize("name", [*CASES])
def test_py_pde_gives_the_same(name: str) -> None:
    equations, faces, scheme, dt, steps = CASES[name]
    texts = {}
    for field, text in equations.items():
        for word, ours in WORDS.items():
            text = text.replace(word, ours)
        texts[field] = text
    with np.load(GOLDEN / "pde_peers.npz") as arrays:
        before, after = (
            np.ascontiguousarray(arrays[f"{name}/{when}"].swapaxes(1, 2))
            for when in ("before", "after")
        )
    h = (MADE["SIZE_Y"] / MADE["N_Y"], MADE["SIZE_X"] / MADE["N_X"])
    problem = equations_problem(
        before,
        [*texts],
        texts,
        constants={},
        grid=Grid(before.shape[1:], h, (h[0] / 2, h[1] / 2)),
        boundaries=dict.fromkeys(texts, boundary(faces)),
        dt=dt,
        steps=steps,
        scheme=SCHEMES[scheme],
        accuracy=2,
        advection="central",
    )
    found = reference.advance(before, problem, steps)

    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(found, after, rtol=2e-12, atol=2e-12 * np.abs(after).max())
