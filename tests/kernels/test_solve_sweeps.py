"""The passes of the solver do to arrays what they say, rings and single points included."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic
from tetris_sim.solvers import krylov
from tetris_sim.solvers.krylov import conjugate_gradients
from tetris_sim.solvers.multigrid import coarsen, make_hierarchy

SHAPES = [(1, 1, 1), (1, 1, 9), (5, 1, 8), (6, 7, 9), (33, 32, 34)]


@pytest.fixture(scope="module")
def device() -> Iterator[CpuArithmetic]:
    team = ThreadTeam(2)
    yield CpuArithmetic(team)
    team.close()


def operator(shape: tuple[int, ...], dtype: str, *, ring: bool) -> tuple[npt.NDArray[Any], ...]:
    rng = np.random.default_rng(1)
    parts = [rng.random(shape).astype(dtype) for _ in range(4)]
    for axis in range(3):
        if not ring:
            parts[axis][(slice(None),) * axis + (-1,)] = 0
    return tuple(parts)


def applied(parts: tuple[npt.NDArray[Any], ...], u: npt.NDArray[Any]) -> npt.NDArray[Any]:
    *conductances, d = (it.astype(np.float64) for it in parts)
    result: npt.NDArray[Any] = d * u
    for axis, k in enumerate(conductances):
        flow = k * (np.roll(u, -1, axis) - u)
        result -= flow - np.roll(flow, 1, axis)
    return result


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ring", [False, True])
def test_passes_are_those_of_numpy(
    shape: tuple[int, ...], dtype: str, ring: bool, device: CpuArithmetic
) -> None:
    rng = np.random.default_rng(2)
    parts = operator(shape, dtype, ring=ring)
    f, u = (rng.random(shape).astype(dtype) for _ in range(2))
    out, eps = np.empty_like(u), 30 * float(np.finfo(dtype).eps)
    *conductances, d = parts
    whole = d + sum(k + np.roll(k, 1, axis) for axis, k in enumerate(conductances))
    a_u = applied(parts, u)

    assert device.apply(parts, u, out) == pytest.approx((u * a_u).sum(), rel=1e3 * eps)
    np.testing.assert_allclose(out, a_u, atol=eps)
    device.residual(parts, f, u, out)
    np.testing.assert_allclose(out, f - a_u, atol=eps)
    device.relax(parts, f, u, 0.8, out)
    np.testing.assert_allclose(out, u + 0.8 * (f - a_u) / whole, atol=100 * eps)
    device.begin(parts, f, 0.8, out)
    np.testing.assert_allclose(out, 0.8 * f / whole, rtol=eps)


@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("ring", [False, True])
def test_restriction_is_the_transpose_of_prolongation(
    shape: tuple[int, ...], ring: bool, device: CpuArithmetic
) -> None:
    rng = np.random.default_rng(3)
    parts = operator(shape, "float64", ring=ring)
    for axis in (k for k in range(3) if shape[k] > 1):
        n = shape[axis]
        for places in (None, np.setdiff1d(np.arange(n), [n - 1])):
            coarse, shares = coarsen(parts, axis, np, places)
            small, large = rng.random(coarse[-1].shape), rng.random(shape)
            down, up = np.empty_like(small), np.zeros(shape)
            device.restrict(axis, large, shares, down, places)
            device.prolong(axis, small, shares, up, places)
            assert (down * small).sum() == pytest.approx((large * up).sum(), rel=1e-12)


@pytest.mark.parametrize("n", [2, 7, 16])
@pytest.mark.parametrize("ring", [False, True])
@pytest.mark.parametrize("every", [True, False])
def test_a_line_is_coarsened_exactly(n: int, ring: bool, every: bool) -> None:
    # Eliminating points, every other one or the last, leaves the Schur complement.
    parts = operator((1, 1, n), "float64", ring=ring)
    matrix = np.stack([applied(parts, row.reshape(1, 1, n)).reshape(-1) for row in np.eye(n)])
    gone = np.arange(1, n, 2) if every else np.array([n - 1])
    kept = np.setdiff1d(np.arange(n), gone)
    across = matrix[np.ix_(kept, gone)]
    schur = matrix[np.ix_(kept, kept)] - across @ np.linalg.solve(
        matrix[np.ix_(gone, gone)], across.T
    )
    coarse, _ = coarsen(parts, 2, np, kept)
    m = len(kept)
    found = np.stack([applied(coarse, row.reshape(1, 1, m)).reshape(-1) for row in np.eye(m)])
    np.testing.assert_allclose(found, schur, atol=1e-13)


def test_levels_keep_what_flows_out_and_end_at_one_point() -> None:
    parts = operator((9, 1, 14), "float64", ring=False)
    parts[-1][:] = 0
    levels = make_hierarchy(parts, np)
    assert levels[-1].shape == (1, 1, 1)
    assert all(level.operator[-1].max() == 0 for level in levels)


def test_an_axis_of_weak_coupling_is_left_alone_at_first() -> None:
    k0, k1, k2, d = operator((16, 1, 16), "float64", ring=False)
    levels = make_hierarchy((k0 * 1e-2, k1, k2, d), np)
    assert [level.shape for level in levels[:3]] == [(16, 1, 16), (16, 1, 8), (16, 1, 4)]


def test_graded_axes_take_no_more_iterations_than_even_ones(device: CpuArithmetic) -> None:
    # 1.3 from cell to cell: widths over three decades; without them it is over 300.
    widths = tuple(1.3 ** np.arange(n) for n in (20, 24, 28))
    shape = tuple(map(len, widths))
    h = np.meshgrid(*widths, indexing="ij")
    parts = []
    for axis in range(3):
        area = np.prod([it for a, it in enumerate(h) if a != axis], axis=0)
        k = 2 * area / (h[axis] + np.roll(h[axis], -1, axis))
        k[(slice(None),) * axis + (-1,)] = 0
        parts.append(np.ascontiguousarray(k))
    d = np.zeros(shape)
    d[0] = 2 * (h[1] * h[2] / h[0])[0]
    f, u = np.random.default_rng(5).random(shape), np.zeros(shape)
    system = (*parts, d)
    solved = conjugate_gradients(
        system,
        f,
        u,
        device,
        device.cycle(system, widths),
        tolerance=1e-8,
        scale=float(np.linalg.norm(f)),
        limit=30,
    )
    assert solved.iterations <= 20


def test_sums_have_the_same_bits_for_any_number_of_threads(device: CpuArithmetic) -> None:
    rng = np.random.default_rng(4)
    shape = (40, 30, 31)
    u, out = rng.random(shape), np.empty(shape)
    z = rng.random(shape).astype(np.float32)
    parts = operator(shape, "float64", ring=False)
    team = ThreadTeam(1)
    alone = CpuArithmetic(team)
    assert alone.apply(parts, u, out) == device.apply(parts, u, out)
    assert alone.project(z, u, z) == device.project(z, u, z)
    assert alone.project(z, u, z)[0] == pytest.approx((z * u).sum(), rel=1e-6)
    team.close()


class Doubtful(CpuArithmetic):
    """Whose first projections say that a cycle is not positive."""

    doubts = 1

    def project(self, z: Any, q: Any, r: Any) -> tuple[float, float]:
        turned, gain = super().project(z, q, r)
        self.doubts -= 1
        return turned, -gain if self.doubts >= 0 else gain


@pytest.mark.parametrize(("doubts", "patience"), [(0, 2), (1, 2), (0, 40), (6, 40)])
def test_a_cycle_that_does_no_good_goes_through_its_levels_once(
    doubts: int, patience: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(krylov, "_MANY", 10)
    monkeypatch.setattr(krylov, "_PATIENCE", patience)
    monkeypatch.setattr(krylov, "_SLOWLY", np.inf)
    rng, shape = np.random.default_rng(5), (9, 8, 10)
    parts, f, u = operator(shape, "float64", ring=False), rng.random(shape), np.zeros(shape)
    team = ThreadTeam(1)
    device = Doubtful(team)
    device.doubts = doubts
    cycle = device.cycle(parts)
    assert cycle.goes_twice
    scale = float(np.linalg.norm(f))
    conjugate_gradients(parts, f, u, device, cycle, tolerance=1e-10, scale=scale, limit=60)
    team.close()
    assert cycle.goes_twice == (patience == 40)
    np.testing.assert_allclose(applied(parts, u), f, atol=1e-9 * scale)


def test_a_cycle_that_hardly_gets_on_goes_through_its_levels_once(device: CpuArithmetic) -> None:
    # Slabs of 1e4: going twice takes 42 iterations here.
    shape = (128, 64, 64)
    k = np.where((np.arange(shape[0]) // 7 % 3 == 1)[:, None, None], 1e4, 1.0) * np.ones(shape)
    parts = []
    for axis in range(3):
        between = 2 / (1 / k + 1 / np.roll(k, -1, axis))
        between[(slice(None),) * axis + (-1,)] = 0
        parts.append(np.ascontiguousarray(between))
    d = np.zeros(shape)
    d[0] = 2 * k[0]
    f, u = np.random.default_rng(1).random(shape), np.zeros(shape)
    cycle, scale = device.cycle((*parts, d)), float(np.linalg.norm(f))
    solved = conjugate_gradients(
        (*parts, d), f, u, device, cycle, tolerance=1e-8, scale=scale, limit=60
    )
    assert not cycle.goes_twice
    assert solved.iterations <= 28
