"""The arithmetic that docs/papers.md states about the papers, and the one equation they share:
GStencil/s.
"""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest

from tetris_sim.errors import ExitCode
from tetris_sim.model.boundary import Boundary, Periodic
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem, StateVariable, Total
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.scheduler.machine.machine import Machine
from tetris_sim.simulation.report import make_report
from tetris_sim.support.wording import PhaseClock

TETRIS_TABLE_1 = {
    "heat-1d": 3,
    "star-1d5p": 5,
    "heat-2d": 5,
    "star-2d9p": 9,
    "box-2d9p": 9,
    "box-2d25p": 25,
    "heat-3d": 7,
    "box-3d27p": 27,
}
CONVSTENCIL_TABLE_4 = {
    "heat-1d": 3,
    "star-1d5p": 5,
    "heat-2d": 5,
    "box-2d9p": 9,
    "star-2d13p": 13,
    "box-2d49p": 49,
    "heat-3d": 7,
    "box-3d27p": 27,
}


@pytest.mark.parametrize("table", [TETRIS_TABLE_1, CONVSTENCIL_TABLE_4])
def test_the_catalogue_holds_the_benchmark_stencils_of_the_papers(table: dict[str, int]) -> None:
    assert set(table) <= set(STENCIL_NAMES)
    assert {name: named_stencil(name).stencil.n_points for name in table} == table


def test_the_rate_of_the_report_is_points_times_steps_over_seconds() -> None:
    problem = Problem(
        grid=Grid((5, 7, 11), (1.0, 1.0, 1.0), (0.0, 0.0, 0.0)),
        stencil=named_stencil("heat-3d").stencil,
        boundary=Boundary.everywhere(Periodic(), 3),
        initial=lambda slab: np.zeros((1, *slab.shape)),
        dt=0.5,
        steps=100,
        dtype=np.dtype(np.float64),
        variables=(StateVariable("u", "1", "u", Total("integral", "1", 1.0)),),
    )
    clock = PhaseClock()
    clock.seconds.update(compute=1.5, exchange=0.5, output=40.0)
    plan = Plan(
        (),
        time_block=1,
        seconds_per_step=1.0,
        redundant=0.0,
        copy_for_checkpoints=False,
        reasons=(),
    )
    machine = Machine("host", "cpu", 1, "", 1, "")
    report = make_report(
        problem,
        plan,
        machine,
        clock,
        first_step=20,
        step=80,
        ended="done",
        exit_code=ExitCode.OK,
        outputs="here",
    )
    # Tetris equation 5, ConvStencil 16, SparStencil 12: T * N1 * N2 * N3 / t, for the steps of this
    # run.
    assert report.points_per_second == (80 - 20) * 5 * 7 * 11 / 2.0
    assert report.effective_bytes_per_second == report.points_per_second * 2 * 8
    assert f"{report.points_per_second / 1e9:.3g} GStencil/s" in report.as_text()


def test_table_3_of_tetris_does_not_agree_with_itself() -> None:
    updates = 9600**2 * 3.8e6
    seconds = {"naive": 124_448.5, "cpu": 27_709.1, "gpu": 5_597.4, "both": 4_270.9}
    rates = {name: round(updates / value / 1e9, 1) for name, value in seconds.items()}
    assert rates == {"naive": 2.8, "cpu": 12.6, "gpu": 62.6, "both": 82.0}
    assert round(1 / (1 / seconds["cpu"] + 1 / seconds["gpu"]), 1) == 4656.7
    assert [round(seconds["naive"] / seconds[name], 1) for name in ("cpu", "gpu", "both")] == [
        4.5,
        22.2,
        29.1,
    ]
    assert round(82.9 / 2.8, 1) == 29.6


def test_the_width_of_the_gaussian_follows_from_the_final_temperature_of_the_centre() -> None:
    diffused = 0.23 * (15e-3 / 9600) ** 2 * 3.8e6  # diffusivity times time [m^2]
    assert diffused == pytest.approx(2.134e-6, rel=2e-4)
    sigma = 2.15e-3
    # A Gaussian stays one, of variance sigma^2 + 2 D t; the faces are too far away to matter at
    # this precision.
    assert round(100 * sigma**2 / (sigma**2 + 2 * diffused), 1) == 52.0
    assert round(diffused / 1.11e-4 * 1e3, 2) == 19.22


def test_convstencil_counts_three_steps_per_launch_and_half_of_its_products_are_with_zeros() -> (
    None
):
    assert pytest.approx(188.27, abs=0.01) == 3 * 10240**3 / 17.109 / 1e9
    assert pytest.approx(62.76, abs=0.005) == 10240**3 / 17.109 / 1e9  # SparStencil's table 3
    products = 2 * math.ceil(49 / 4)
    assert (products, products * 8 * 8 * 4 / 64) == (26, 104)
    savings = {"star-2d9p": (5, 9), "box-2d9p": (3, 9), "box-2d49p": (7, 49)}
    saved = {
        name: round(100 * (1 - 2 * n / (n + 1) / points), 2)
        for name, (n, points) in savings.items()
    }
    assert saved == {"star-2d9p": 81.48, "box-2d9p": 83.33, "box-2d49p": 96.43}
    fused = named_stencil("box-2d9p").stencil.power(3)
    assert (fused.n_points, fused.radius) == (49, 3)


def test_ratios_of_sparstencil_and_tcstencil_are_as_corrected() -> None:
    assert round(67.28 / 63.93, 2) == 1.05
    assert [round(125 / 0.9, 1), round(312 / 1.555, 2)] == [138.9, 200.64]


def blockwise_zero_columns(blocks: int, columns: int, k: int) -> int:
    """Zero columns that algorithm 1 of SparStencil adds: whole blocks are matched first, then
    columns inside blocks.
    """

    def unmatched(n: int) -> int:
        matched: set[int] = set()
        apart = max(n // 2, k)
        for i in range(n):
            if i not in matched and i + apart < n:
                matched |= {i, i + apart}
        return n - len(matched)

    return unmatched(blocks) * unmatched(columns)


def fewest_zero_columns(blocks: int, columns: int, k: int) -> int:
    """The fewest there are: columns conflict if both their blocks and their places in them are less
    than k apart.
    """
    places = list(itertools.product(range(blocks), range(columns)))

    @cache
    def fewest(left: int) -> int:
        if not left:
            return 0
        first = (left & -left).bit_length() - 1
        rest = left & ~(1 << first)
        best = 1 + fewest(rest)
        for other in range(first + 1, len(places)):
            apart = max(abs(a - b) for a, b in zip(places[first], places[other], strict=True))
            if best and rest >> other & 1 and apart >= k:
                best = min(best, fewest(rest & ~(1 << other)))
        return best

    return fewest((1 << len(places)) - 1)


@pytest.mark.parametrize(("r1", "added", "needed"), [(3, 0, 0), (4, 2, 0), (6, 2, 0)])
def test_the_matching_of_sparstencil_is_not_always_minimal(
    r1: int, added: int, needed: int
) -> None:
    k, r2 = 2, 1
    blocks, columns = k + r2 - 1, k + r1 - 1
    assert blockwise_zero_columns(blocks, columns, k) == added
    assert fewest_zero_columns(blocks, columns, k) == needed


def test_the_example_of_a_smaller_matching_is_one() -> None:
    k, columns = 3, 7
    assert blockwise_zero_columns(3, columns, k) == 3
    inside = {0: [(0, 3), (1, 4), (2, 5)], 1: [(1, 4), (2, 5), (3, 6)], 2: [(0, 3), (1, 4), (2, 5)]}
    assert all(b - a >= k for pairs in inside.values() for a, b in pairs)
    left = {
        block: set(range(columns)) - {c for pair in pairs for c in pair}
        for block, pairs in inside.items()
    }
    assert left == {
        0: {6},
        1: {0},
        2: {6},
    }  # columns 6 and 0 are six apart: a pair; one zero column for the last
