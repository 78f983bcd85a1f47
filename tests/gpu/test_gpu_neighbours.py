"""Slabs on several GPUs hand planes to each other: emulated GPUs everywhere, real ones where there
are any.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.cases import boundary_of, dtype_of, make_problem, run, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod as CpuPlain
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.model import reference
from tetris_sim.model.method import STEPS_PER_BLOCK, Method
from tetris_sim.model.problem import Field, Problem
from tetris_sim.scheduler.facts.shares import Domain, Parts
from tetris_sim.scheduler.plan.partition import cut
from tetris_sim.scheduler.workers.exchange import LocalExchange

CASES = [("heat-1d", (903,)), ("box-2d9p", (93, 131)), ("heat-3d", (68, 21, 37))]
TAKEN = [
    pytest.param(method, name, shape, id=f"{name}-{method.name}")
    for method in METHODS
    for name, shape in CASES
    if method.name != "gpu.resident" or len(shape) > 1  # which takes no lines
]
(SPARSE,) = (method for method in METHODS if method.name == "gpu.sparse")
BLOCK = 5  # steps between two exchanges


def advance_in_slabs(
    problem: Problem,
    methods: list[tuple[Method, Any]],
    blocks: int,
    parts: Parts = (),
    *,
    beside: bool = False,
) -> Field:
    """Slabs of axis 0, or other parts, one for each method and its device; halos travel before a
    block, or beside its inside.
    """
    count = len(methods)
    parts = parts or (count, *(1 for _ in problem.grid.shape[1:]))
    slabs = cut(Domain.of(problem), parts, [1.0] * count, BLOCK)
    workers: list[Any] = []
    for (method, device), slab in zip(methods, slabs, strict=True):
        proposals = method.parameters(problem)
        parameters = {**proposals[0], STEPS_PER_BLOCK: 2} if STEPS_PER_BLOCK in proposals[0] else {}
        workers.append(SimpleNamespace(stepper=method.prepare(problem, slab, parameters, device)))
        workers[-1].stepper.load(problem.initial)
    exchange = LocalExchange(problem, slabs)
    for _ in range(blocks):
        under_way = exchange.begin(workers)
        assert under_way is not None
        for worker in workers:
            if beside:
                worker.stepper.advance_inner(BLOCK, under_way.axis)
        under_way.end()
        for worker in workers:
            worker.stepper.advance(BLOCK)
    for worker in workers:
        worker.stepper.wait()
    found = exchange.gather(workers, tuple((0, length) for length in problem.grid.shape))
    for worker in workers:
        worker.stepper.close()
    return found


def check(
    method: Method,
    name: str,
    shape: tuple[int, ...],
    kind: str,
    devices: list[Any],
    team: ThreadTeam,
    *,
    ways: int = 4,
) -> None:
    """Two GPUs, with the CPU between them and without, halos beside the inside and before it; or
    only some of these.
    """
    stencil = stencil_of(name)
    boundary, dtype = boundary_of(kind, stencil.ndim), dtype_of(method, stencil)
    problem, _ = make_problem(
        stencil, boundary, dtype=dtype, shape=shape, n_fields=2, mirrored=True
    )
    wanted = run(CpuPlain(), problem, {}, team, (3 * BLOCK,))
    allowed = 0.0 if method.name == "gpu.plain" else reference.tolerance(problem, 3 * BLOCK, 3.0)
    gpus = [(method, device) for device in devices]
    mixed = [gpus[0], (CpuPlain(), team), gpus[1]]
    for each, beside in ((mixed, True), (gpus, False), (mixed, False), (gpus, True))[:ways]:
        found = advance_in_slabs(problem, each, 3, beside=beside)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("parts", [(1, 1, 4), (1, 2, 2)])
@pytest.mark.parametrize("kind", ["walls", "rings"])
def test_emulated_gpus_with_parts_of_rows(
    parts: Parts, kind: str, teams: dict[int, ThreadTeam]
) -> None:
    stencil = stencil_of("heat-3d")
    problem, _ = make_problem(
        stencil, boundary_of(kind, 3), shape=(21, 19, 47), n_fields=2, mirrored=True
    )
    for method in (METHODS[0], METHODS[-1]):
        gpus = [HostGpu() for _ in range(4)]
        for number, gpu in enumerate(gpus):
            gpu.number = number
        gpus_with_parts: list[tuple[Method, Any]] = [(method, gpu) for gpu in gpus]
        found = advance_in_slabs(problem, gpus_with_parts, 2, parts, beside=True)
        wanted = run(CpuPlain(), problem, {}, teams[2], (2 * BLOCK,))
        allowed = 0.0 if method.name == "gpu.plain" else reference.tolerance(problem, 10, 3.0)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize(
    ("method", "name", "shape", "kind"),
    [
        pytest.param(
            *(method, *case, kind),
            id=f"{method.name}-{case[0]}-{kind}",
            # One emulates many more instructions than the others.
            marks=[pytest.mark.full] * (method is SPARSE and (kind == "rings") != (number == 1)),
        )
        for method in (METHODS[0], SPARSE, METHODS[-1])
        for number, case in enumerate(CASES)
        for kind in ("walls", "rings")
    ],
)
def test_emulated_gpus_and_a_cpu(
    method: Method, name: str, shape: tuple[int, ...], kind: str, teams: dict[int, ThreadTeam]
) -> None:
    first, second = HostGpu(), HostGpu()
    second.number = 1
    check(method, name, shape, kind, [first, second], teams[2], ways=2)


@pytest.mark.gpu
@pytest.mark.parametrize(("method", "name", "shape"), TAKEN)
@pytest.mark.parametrize("kind", ["walls", "rings"])
def test_all_gpus_there_are_and_a_cpu(
    method: Method, name: str, shape: tuple[int, ...], kind: str, teams: dict[int, ThreadTeam]
) -> None:
    from tetris_sim.gpu_kernels.common.device import GpuDevice, import_cupy

    count = import_cupy().cuda.runtime.getDeviceCount()
    devices = [GpuDevice(0), GpuDevice(1 if count > 1 else 0)]
    check(method, name, shape, kind, devices, teams[2])
    for device in devices:
        device.close()
