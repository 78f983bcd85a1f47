"""Without a GPU: every fused kernel, whole launches on the host, against plain NumPy.

Parameters are those of the proposals, but blocks are made shorter where that changes nothing but
how long they walk. What a launch may read and write is checked as `emulator/launching.py` says.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest

from tests.support.cases import CUSTOM, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.launching import agrees
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.model.method import Parameters
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

FUSED = tuple(method for method in METHODS if isinstance(method, FusedMethod))
RARE = ("star-2d9p", "box-2d25p")  # between others of their kind


class Case(NamedTuple):
    """A kernel that is to be tested.

    Attributes:
        method: of the fused ones.
        name: of the stencil.
        weights: "random", "mirrored" (the same for offsets that differ in signs; in heat-* for all
            neighbours), "faint" (random, one so small that no level can be divided by it).
        dtype: of the numbers.
        choice: "typical" (the best guess), "smallest" (threads, then shared memory), or "every"
            proposal.
        architecture: __CUDA_ARCH__.
    """

    method: FusedMethod
    name: str
    weights: str
    dtype: str
    choice: str
    architecture: int


def cases() -> list[Any]:
    """The best guess and the smallest kernel for every stencil, each with half of the types or
    architectures.

    With --run-full every proposal, with all weights, types and architectures.
    """
    full = [
        case
        for case in product(("random", "mirrored", "faint"), ("every",))
        if means_something(case)
    ]
    usual = [
        case
        for case in product(("random", "mirrored", "faint"), ("typical", "smallest"))
        if is_usual(case)
    ]
    return [
        *(pytest.param(case, id=label(case)) for case in usual),
        *(pytest.param(case, id=label(case), marks=pytest.mark.full) for case in full),
    ]


def product(weights: tuple[str, ...], choices: tuple[str, ...]) -> list[Case]:
    names, dtypes, architectures = (*STENCIL_NAMES, *CUSTOM), ("float64", "float32"), (900, 800)
    return list(
        itertools.starmap(
            Case, itertools.product(FUSED, names, weights, dtypes, choices, architectures)
        )
    )


def means_something(case: Case) -> bool:
    """Whether the kernel takes the stencil, and is not the same as in another case."""
    stencil, method = stencil_of(case.name), case.method
    streams = method.name == "gpu.stream"
    if case.weights == "mirrored" and (
        case.name in CUSTOM or method.name == "gpu.dual_tessellation"
    ):
        return False
    if case.weights == "faint" and not (streams and stencil.ndim > 1 and case.dtype == "float64"):
        return False
    if streams and case.architecture == 800:
        return False
    return method.families[stencil.ndim].refusal(stencil, np.dtype(case.dtype)) is None


def is_usual(case: Case) -> bool:
    if case.name in RARE or not means_something(case):
        return False
    if case.weights == "faint":
        return case.choice == "smallest" and case.name in ("box-2d9p", "box-3d27p")
    if case.weights == "mirrored":
        return case[3:] == ("float64", "typical", 900) and not case.name.startswith("star")
    if case.choice == "typical":
        return case[3:] == ("float64", "typical", 900)
    return case.dtype == "float32" if case.method.name == "gpu.stream" else case.architecture == 800


def label(case: Case) -> str:
    return "-".join(map(str, (case.method.name, *case[1:])))


def weighted(case: Case) -> Stencil:
    """The stencil with weights of the case, of which the magnitudes add up to 1."""
    stencil, rng = stencil_of(case.name), np.random.default_rng(1)
    weights = rng.uniform(0.2, 1.0, stencil.n_points) * rng.choice(
        [-1.0, 1.0], stencil.n_points, p=[0.2, 0.8]
    )
    if case.weights == "mirrored":
        distances = [tuple(map(abs, offset)) for offset in stencil.offsets]
        if case.name.startswith("heat"):
            distances = [tuple(sorted(distance)) for distance in distances]
        shared = dict(zip(distances, weights, strict=True))
        weights = np.array([shared[distance] for distance in distances])
    if case.weights == "faint":
        # The first of the chain in any order that a kernel takes: the lowest corner, the highest
        # row.
        highest = max(
            range(stencil.n_points), key=lambda k: (stencil.offsets[k][0], -stencil.offsets[k][-1])
        )
        weights[[0, highest]] = 1e-99
    return Stencil(stencil.offsets, tuple(weights / np.abs(weights).sum()))


def proposals(case: Case, stencil: Stencil) -> list[Parameters]:
    family, dtype = case.method.families[stencil.ndim], np.dtype(case.dtype)
    found = family.parameters(stencil, dtype)
    if case.choice == "every":
        return list(found)
    if case.choice == "typical":
        return [found[0]]
    return [min(found, key=lambda each: small(family.kernel(stencil, dtype, each)))]


def small(kernel: FusedKernel) -> tuple[int, int]:
    return kernel.threads, kernel.shared_bytes


def shortened(
    family: Family, stencil: Stencil, dtype: np.dtype[Any], parameters: Parameters
) -> FusedKernel:
    """The kernel with blocks that walk less far, so that some of them can be run."""
    kernel = family.kernel(stencil, dtype, parameters)
    shorter: Mapping[str, int] = {}
    if kernel.source == "dual_tessellation_3d.cu":
        shorter = {"planes": 5}
    elif kernel.source == "trapezoid.cu":
        shorter = {"groups": 3}
    elif kernel.source == "dual_tessellation.cu":
        shorter = {"rows": 11}
    return family.kernel(stencil, dtype, {**parameters, **shorter})


@pytest.mark.parametrize("case", cases())
def test_a_fused_kernel_agrees_with_numpy_and_touches_nothing_else(case: Case) -> None:
    stencil, dtype = weighted(case), np.dtype(case.dtype)
    for parameters in proposals(case, stencil):
        agrees(
            shortened(case.method.families[stencil.ndim], stencil, dtype, parameters),
            stencil,
            dtype,
            case.architecture,
        )


@pytest.mark.parametrize("steps", [1, 3, 11])
@pytest.mark.parametrize("name", ["heat-1d", "heat-2d", "box-3d27p"])
def test_a_method_makes_fewer_steps_at_once_than_it_proposes(name: str, steps: int) -> None:
    dtype = np.dtype(np.float64)
    for method in FUSED:
        stencil = weighted(Case(method, name, "random", "float64", "smallest", 900))
        family = method.families[stencil.ndim]
        if family.refusal(stencil, dtype) is not None:
            continue
        most = family.parameters(stencil, dtype)[0]
        if steps <= most["steps_per_block"]:
            agrees(
                shortened(family, stencil, dtype, {**most, "steps_per_block": steps}),
                stencil,
                dtype,
                900,
            )


@pytest.mark.parametrize("switch", ["tensor", "padding", "dirty_bits"])
@pytest.mark.parametrize("name", ["star-1d5p", "box-2d49p", "box-3d27p"])
def test_dual_tessellation_without_one_of_its_optimisations(name: str, switch: str) -> None:
    (method,) = (method for method in FUSED if method.name == "gpu.dual_tessellation")
    case = Case(method, name, "random", "float64", "smallest", 900)
    stencil, dtype = weighted(case), np.dtype(case.dtype)
    (parameters,) = proposals(case, stencil)
    kernel = shortened(method.families[stencil.ndim], stencil, dtype, {**parameters, switch: 0})
    agrees(kernel, stencil, dtype, case.architecture)
