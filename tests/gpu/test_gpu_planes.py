"""Planes that read nothing of each other: many grids of two axes in one launch, each with the bits
that it has alone.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.support.cases import FACES, make_problem, run, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.gpu_kernels.stream.method import METHOD as STREAM
from tetris_sim.gpu_kernels.tensor_cores.trapezoid import METHOD as TRAPEZOID
from tetris_sim.model.boundary import Boundary, Face, Neumann
from tetris_sim.model.lowering import in_planes, stacked
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

SMALL = {"rows": 2, "columns": 2, "warps": 2, "blocks": 1, "edges": 1, "interleaved": 0}
KINDS = {
    "mirrors": ("neumann", "dirichlet"),
    "rings": ("periodic", "periodic"),
    "convection": ("robin", "fixed"),
}


def alone_and_stacked(name: str, kind: str, members: int) -> tuple[list[Problem], Problem]:
    faces: list[Face] = [FACES[face] for face in KINDS[kind]]
    one = Boundary(((faces[0], faces[1]), (faces[1], faces[0])))
    together, states = make_problem(
        stacked(stencil_of(name)),
        Boundary(((Neumann(), Neumann()), *one.faces)),
        shape=(members, 21, 45),
        mirrored=True,
    )
    alone, _ = make_problem(stencil_of(name), one, shape=(21, 45), mirrored=True)
    grid = dataclasses.replace(alone.grid, spacing=together.grid.spacing[1:])
    alone = dataclasses.replace(alone, grid=grid, stencil=in_planes(together.stencil))

    def initial(member: int, slab: Slab) -> Field:
        places: Any = (slice(None), member, *(slice(*it) for it in slab.spans))
        found: Field = states[places]
        return found

    members_alone = [
        dataclasses.replace(alone, initial=partial(initial, k)) for k in range(members)
    ]
    return members_alone, together


def test_first_choice_for_planes_cuts_256_columns_in_two() -> None:
    members, together = alone_and_stacked("heat-2d", "mirrors", 2)
    first, *others = STREAM.parameters(together)
    assert tuple(others) == STREAM.parameters(members[0])
    assert STREAM.kernel(together, first).tile[2] == 128


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize(
    ("method", "parameters", "name"),
    [
        (GpuPlainMethod(), {}, "heat-2d"),
        (STREAM, {"steps_per_block": 2, **SMALL}, "heat-2d"),
        (STREAM, {"steps_per_block": 2, **SMALL}, "box-2d9p"),
        (TRAPEZOID, {}, "box-2d9p"),
    ],
)
def test_planes_have_the_bits_of_grids_alone(
    method: Method, parameters: Parameters, name: str, kind: str
) -> None:
    members, together = alone_and_stacked(name, kind, 3)
    assert method.refusal(together) is None
    gpu: Any = HostGpu()
    complete = {**method.parameters(members[0])[-1], **parameters}
    found = run(method, together, complete, gpu, (5, 3))
    for k, member in enumerate(members):
        expected = run(method, member, complete, gpu, (5, 3))
        np.testing.assert_array_equal(found[:, k], expected)
