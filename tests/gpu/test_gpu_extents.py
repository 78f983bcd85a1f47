"""Without a GPU: blocks in two parts, the inside first and then its rims, as GPU methods make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import boundary_of, dtype_of, make_problem, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.rim_cases import middle, set_halos
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.boundary.extents import Extent, Late, begins_inside, rims
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.gpu_kernels.plain.method import GpuPlainMethod
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Neumann
from tetris_sim.model.method import STEPS_PER_BLOCK, Method
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Slab

FUSED = tuple(method for method in METHODS if isinstance(method, FusedMethod))
STEPS = 5  # two launches of two steps, and one step before them
# of a stencil: points, the axis whose halos come late, whether it has them (low, high)
SLABS = [
    ("heat-2d", (75, 133), 0, (True, True)),
    ("box-2d25p", (101, 197), 0, (False, True)),
    ("heat-2d", (61, 133), 0, (True, False)),
    ("heat-3d", (44, 26, 61), 0, (True, True)),
    ("box-3d27p", (17, 44, 61), 1, (True, True)),
]
BLOCKS = st.lists(st.integers(1, 4), min_size=1, max_size=5).map(sorted)


def advanced(
    problem: Problem, state: Field, slab: Slab, axis: int, method: Method, device: Any, **parts: Any
) -> list[Field]:
    """The slab after each of two blocks, in one part or in two."""
    stepper: Any = method.prepare(problem, slab, parts.get("parameters", {}), device)
    stepper.load(problem.initial)
    found = []
    for _ in range(2):  # the second block begins in the other array
        if parts.get("in_two"):
            set_halos(stepper, np.full_like(state, np.nan), axis)  # nobody may read them yet
            stepper.advance_inner(STEPS, axis)
        set_halos(stepper, state, axis)
        stepper.advance(STEPS)
        found.append(stepper.interior())
    stepper.close()
    return found


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("method", [*FUSED, GpuPlainMethod()], ids=lambda method: method.name)
@pytest.mark.parametrize(
    ("name", "shape", "axis", "sides", "kind"),
    [
        pytest.param(*slab, kind, marks=[pytest.mark.full] * (kind == "mixed" and number % 4 > 0))
        for number, slab in enumerate(SLABS)
        for kind in ("walls", "mixed")
    ],
)
def test_the_inside_first_and_then_its_rims(
    method: Method,
    name: str,
    shape: tuple[int, ...],
    axis: int,
    sides: tuple[bool, bool],
    kind: str,
    teams: dict[int, ThreadTeam],
) -> None:
    stencil = stencil_of(name)
    dtype = dtype_of(method, stencil)
    shape = (*shape[:-1], shape[-1] + 64 * (dtype == "float16"))
    problem, state = make_problem(
        stencil, boundary_of(kind, stencil.ndim), dtype=dtype, shape=shape, mirrored=True
    )
    slab = middle(problem, axis, sides, STEPS)
    assert begins_inside(problem, slab, axis, STEPS)

    gpu: Any = HostGpu()
    parameters: dict[str, int] = {}
    if method in FUSED:
        parameters = {**method.parameters(problem)[0], STEPS_PER_BLOCK: 2}
    found = advanced(problem, state, slab, axis, method, gpu, parameters=parameters, in_two=True)
    wanted = advanced(problem, state, slab, axis, CpuPlain(), teams[2])
    allowed = reference.tolerance(problem, 2 * STEPS, 3.0) if method in FUSED else 0.0
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=allowed)
    assert "sweep" in gpu.launches
    assert method not in FUSED or set(gpu.launches) - {"sweep", "ghosts", "frame"}


@given(depths=BLOCKS, low=st.booleans(), high=st.booleans(), radius=st.integers(1, 3))
def test_parts_write_every_point_of_each_step_once(
    depths: list[int], low: bool, high: bool, radius: int
) -> None:
    """Also those of the halo that later steps need; and each launch finds what it reads."""
    steps, n = sum(depths), 40 * radius
    halo = ((steps * radius * low, steps * radius * high), (0, 0))
    slab = Slab((100, 0), (100 + n, 9), halo)
    problem = make_problem(
        stencil_of({1: "heat-2d", 2: "box-2d25p", 3: "box-2d49p"}[radius]),
        Boundary.everywhere(Neumann(flux=0.0), 2),
        shape=(200 + n, 9),
    )[0]

    # what step each plane is at, in the two arrays
    margin = steps * radius
    arrays = [np.full(n + 2 * margin, 99), np.full(n + 2 * margin, 99)]
    arrays[0][margin : margin + n] = 0
    for part in ("inside", *rims(slab, 0)):
        if part == "low":
            arrays[0][:margin] = 0
        if part == "high":
            arrays[0][margin + n :] = 0
        made, turn = 0, 0
        for depth in depths:
            made += depth
            extent = Extent(steps - made, Late(0, part, made))
            (start, stop), _ = extent.of(problem, slab)[1:]
            now, then = arrays[turn], arrays[1 - turn]
            reads = slice(
                max(0 if low else margin, margin + start - depth * radius),
                min(2 * margin + n if high else margin + n, margin + stop + depth * radius),
            )
            assert (now[reads] == made - depth).all()
            assert (then[margin + start : margin + stop] != made).all()
            then[margin + start : margin + stop] = made
            turn = 1 - turn
    assert (arrays[len(depths) % 2][margin : margin + n] == steps).all()


def test_what_is_too_short_or_lies_in_rows_is_made_in_one_part() -> None:
    problem = make_problem(
        stencil_of("heat-2d"), Boundary.everywhere(Neumann(flux=0.0), 2), shape=(30, 30)
    )[0]
    assert begins_inside(problem, Slab((5, 0), (20, 30), ((5, 0), (0, 0))), 0, 5)
    assert not begins_inside(problem, Slab((5, 0), (19, 30), ((5, 0), (0, 0))), 0, 5)
    assert not begins_inside(problem, Slab((5, 0), (20, 30), ((5, 5), (0, 0))), 0, 5)
    assert not begins_inside(problem, Slab((0, 5), (30, 20), ((0, 0), (5, 0))), 1, 5)
    assert not begins_inside(problem, Slab((0, 0), (30, 30), ((0, 0), (0, 0))), 0, 5)
