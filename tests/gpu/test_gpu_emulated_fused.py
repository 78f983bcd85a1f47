"""Without a GPU: every fused kernel, whole launches on the host, against plain NumPy.

Around what a kernel may depend on lie NaNs, beyond what is allocated lie gaps that no copy may
touch, and what it must not write holds a number that must stay. Boxes have several tiles along each
axis, or a few points. Parameters are those of the proposals, but blocks are made shorter where that
changes nothing but how long they walk.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from cases import CUSTOM, stencil_of
from emulation import COMPILER, NO_COMPILER, at, emulate

from tetris_sim.catalogue import STENCIL_NAMES
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.common.layout import LINE, Box3, box_argument, by_value, memory_argument
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.method import Parameters
from tetris_sim.stencil import Stencil

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

FUSED = tuple(method for method in METHODS if isinstance(method, FusedMethod))
RARE = ("star-2d9p", "box-2d25p")  # between others of their kind
UNTOUCHED = -7.25e33  # what no kernel computes
MANY = 1 << 20  # blocks that a GPU holds at a time
Array = npt.NDArray[Any]
Triple = tuple[int, int, int]


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


def three(numbers: tuple[int, ...], missing: int) -> Triple:
    z, y, x = (*(missing,) * (3 - len(numbers)), *numbers)
    return z, y, x


def up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


class Memory:
    """Two arrays around a box of points: what the kernel may depend on is numbers, all else in
    `src` is NaN.

    Allocated is what it may depend on, whole lines along x, and `margin` more rows, planes and
    lines. Rows and planes have gaps between them, and there is as much again in front and behind.
    """

    def __init__(self, reach: Triple, counts: Triple, dtype: np.dtype[Any], margin: int) -> None:
        self.dtype = dtype
        line = LINE // dtype.itemsize
        self.box = box_of((reach[0], reach[1], up(reach[2], line)), counts)
        self.needed = grown(self.box, reach)
        (_, high_z), (_, high_y), (_, high_x) = self.needed
        aligned = ((0, high_z), (0, high_y), (0, up(high_x, line)))
        within = grown(aligned, (margin * (counts[0] > 1), margin * (counts[1] > 1), margin * line))
        nz, ny, nx = (high - low for low, high in within)
        self.row = nx + line
        self.plane = (ny + 1) * self.row
        self.argument = memory_argument(self.plane, self.row, within)
        (low_z, _), (low_y, _), (low_x, _) = within
        self._before = self.plane - low_z * self.plane - low_y * self.row - low_x
        self._size = (nz + 2) * self.plane
        self.src, self.dst = self._array(np.nan), self._array(UNTOUCHED)
        view = self.points(self.src, self.needed)
        view[...] = np.random.default_rng(2).uniform(-1.0, 2.0, view.shape)
        self.state = view.copy()

    def _array(self, value: float) -> Array:
        """Aligned as GPU memory is."""
        flat = np.full(self._size + LINE, value, self.dtype)
        return flat[-flat.ctypes.data % LINE // self.dtype.itemsize :][: self._size]

    def first(self, flat: Array) -> Array:
        """From the first owned point on."""
        return flat[self._before :]

    def points(self, flat: Array, box: Box3) -> Array:
        """Those of a box."""
        (z, _), (y, _), (x, _) = box
        strides = [n * self.dtype.itemsize for n in (self.plane, self.row, 1)]
        start = flat[self._before + z * self.plane + y * self.row + x :]
        return np.lib.stride_tricks.as_strided(start, [high - low for low, high in box], strides)


def box_of(lows: Triple, counts: Triple) -> Box3:
    z, y, x = ((low, low + count) for low, count in zip(lows, counts, strict=True))
    return z, y, x


def grown(box: Box3, by: Triple) -> Box3:
    z, y, x = ((low - n, high + n) for (low, high), n in zip(box, by, strict=True))
    return z, y, x


def scaled(numbers: Triple, factor: int) -> Triple:
    z, y, x = (factor * n for n in numbers)
    return z, y, x


def advanced(state: Array, stencil: Stencil, steps: int) -> Array:
    """The same steps in extended precision; every step has `radii` points less at either end."""
    u = state.astype(np.longdouble)
    radii = three(stencil.radii, 0)
    for _ in range(steps):
        shape = [n - 2 * r for n, r in zip(u.shape, radii, strict=True)]
        new = np.zeros(shape, u.dtype)
        for offset, weight in zip(stencil.offsets, stencil.weights, strict=True):
            shifts = [o + r for o, r in zip(three(offset, 0), radii, strict=True)]
            window = tuple(slice(shift, shift + n) for shift, n in zip(shifts, shape, strict=True))
            new += np.longdouble(weight) * u[window]
        u = new
    return u


def allowed(stencil: Stencil, dtype: np.dtype[Any], steps: int, largest: float) -> float:
    """As `reference.tolerance`: a product and a sum per point and step are rounded, weights and
    powers of them too.
    """
    return 2 * (2 * stencil.n_points + 2) * float(np.finfo(dtype).eps) * steps * largest


def launch(kernel: FusedKernel, memory: Memory, architecture: int, descending: bool) -> None:
    src, dst = memory.first(memory.src), memory.first(memory.dst)
    grid, chunk = kernel.cut(memory.box, slots=1 if descending else MANY)
    streamed = () if kernel.stream is None else (ctypes.c_int(chunk),)
    weights = at(kernel.weights) if kernel.by_pointer else by_value(kernel.weights)
    emulate(kernel.source, kernel.defines, architecture).launch(
        kernel.entry,
        grid,
        (kernel.threads, 1, 1),
        (at(src), at(dst), memory.argument, box_argument(memory.box), weights, *streamed),
        kernel.shared_bytes,
        copied=(src, dst, memory.argument),
        descending=descending,
    )


def several_tiles(kernel: FusedKernel, radii: Triple) -> Triple:
    """Points along each axis: a tile, and a piece of another; several chunks of what is
    streamed.
    """
    counts = [
        n + (n // 4 | 1) if n > 1 or radius else 1
        for n, radius in zip(kernel.tile, radii, strict=True)
    ]
    if kernel.stream is not None:
        axis = kernel.stream.axis
        counts[axis] = max(counts[axis], kernel.stream.chunk(1, 1, 1) + 5)
    return counts[0], counts[1], counts[2]


def few_points(kernel: FusedKernel, radii: Triple) -> Triple:
    """Points along each axis, fewer than anything that a kernel does at a time."""
    z, y, x = (min(n, few) for n, few in zip(several_tiles(kernel, radii), (1, 2, 3), strict=True))
    return z, y, x


def agrees(kernel: FusedKernel, stencil: Stencil, dtype: np.dtype[Any], architecture: int) -> None:
    """Check one kernel, with threads in both orders and with allocated points around what it needs
    or without.
    """
    radii = three(stencil.radii, 0)
    for counts, margin, descending in (
        (several_tiles(kernel, radii), 0, False),
        (several_tiles(kernel, radii), 2, True),
        (few_points(kernel, radii), 0, True),
    ):
        memory = Memory(scaled(radii, kernel.depth), counts, dtype, margin)
        before = memory.src.copy()
        launch(kernel, memory, architecture, descending)
        found = memory.points(memory.dst, memory.box)
        wanted = advanced(memory.state, stencil, kernel.depth)
        atol = allowed(stencil, dtype, kernel.depth, float(np.abs(memory.state).max()))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=atol)
        found[...] = UNTOUCHED
        assert np.all(memory.dst == dtype.type(UNTOUCHED))
        np.testing.assert_array_equal(memory.src, before)


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
