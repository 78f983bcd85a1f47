"""Tiles of a thin slab: enough for all threads, and none wider than what was tuned."""

from __future__ import annotations

import pytest

from tests.support.cases import boundary_of, make_problem, stencil_of
from tetris_sim.cpu_kernels.common.caches import Caches
from tetris_sim.cpu_kernels.tessellate import method
from tetris_sim.cpu_kernels.tessellate.method import TessellateMethod, _layout, _tile
from tetris_sim.model.method import STEPS_PER_BLOCK, Parameters, SlabTuned
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

METHOD = TessellateMethod()
TUNED = {"rows": 3, "width": 64, "jam": 4, "steps_per_block": 32, "tile_y": 128, "tile_x": 1024}
THREADS = 15


def plate(planes: int, halo: int, shape: tuple[int, int] = (10240, 10240)) -> tuple[Problem, Slab]:
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=shape)
    halos = ((halo, halo), (0, 0)) if halo else ((0, 0), (0, 0))
    return problem, Slab((4000, 0), (4000 + planes, shape[1]), halos)


def stay_of(problem: Problem, slab: Slab, parameters: Parameters, block: int) -> method.Stay:
    rows = _layout(problem, slab, parameters).geometry(problem, slab).axes
    return method.Stay(rows, THREADS, block, 2 * 64)


@pytest.mark.parametrize(("planes", "block"), [(74, 32), (74, 48), (593, 32), (1345, 32)])
def test_a_thin_slab_takes_a_thread_less_time(
    planes: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(method, "read_caches", lambda: Caches(48 << 10, 2 << 20, 20 << 20))
    problem, slab = plate(planes, block)
    found = METHOD.fitted(problem, slab, TUNED, THREADS)
    stay = stay_of(problem, slab, TUNED, block)
    layout = _layout(problem, slab, TUNED)
    before, after = (
        method.turn(stay, _tile(problem, it, layout), it[STEPS_PER_BLOCK]) for it in (TUNED, found)
    )
    assert after < 0.9 * before
    assert all(0 < found[name] <= TUNED[name] for name in ("tile_x", "steps_per_block"))
    assert {**found, **{k: v for k, v in TUNED.items() if "tile" in k or "steps" in k}} == TUNED


@pytest.mark.parametrize("planes", [4773, 9000])
def test_where_tiles_are_plenty_they_stay(planes: int) -> None:
    problem, slab = plate(planes, 32, (20480, 10240))
    assert METHOD.fitted(problem, slab, TUNED, THREADS) == TUNED


def test_nothing_changes_without_neighbours_or_for_one_thread() -> None:
    problem, slab = plate(74, 32)
    assert METHOD.fitted(problem, slab, TUNED, 1) is TUNED
    problem, slab = plate(74, 0)
    assert METHOD.fitted(problem, slab, TUNED, THREADS) is TUNED
    assert isinstance(METHOD, SlabTuned)
