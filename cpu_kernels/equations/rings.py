"""Rings: how stages follow each other through the planes of a strip, and what that takes of memory.
Arithmetic only.

A stage may compute a plane when all planes that it reads have been made: it follows behind what it
reads by as many planes as it reaches. The next step follows behind all new values of this one. A
name is kept from the plane that is being made to the oldest that somebody reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tetris_sim.cpu_kernels.equations.tables import field_of, width_of
from tetris_sim.model.equations import Equations, Stage
from tetris_sim.model.grid import OUTER, on_three


@dataclass(frozen=True)
class Follow:
    """Lags between stages and steps along the first padded axis, and the rings that they require.

    Attributes:
        lags: planes by which each stage follows behind the reading of the state.
        lag: planes by which the next step follows.
        depths: planes of the ring of each name; new values are in those of their fields.
        period: a number of planes that all depths divide.
    """

    lags: tuple[int, ...]
    lag: int
    depths: Mapping[str, int]
    period: int


def follow(equations: Equations, ndim: int, visit: int) -> Follow:
    """The lags and rings of equations.

    Args:
        equations: `settled` ones.
        ndim: number of axes.
        visit: planes that each stage computes at a time.
    """
    lags: list[int] = []
    # Names that are fields exist from the beginning, with lag 0.
    made = dict.fromkeys(equations.fields, 0)
    for stage in equations.stages:
        read = _read(equations, stage)
        # A stage may follow only when the farthest plane it reads has been made.
        lag = max((made[name] + _reach(stage, name, ndim) for name in read), default=0)
        lags.append(lag)
        made |= dict.fromkeys(stage.formulas, lag)
    lag = max(made[name] for name in equations.results.values())

    # Planes of a ring: from the oldest one that some stage still reads to the newest one.
    needs: dict[str, int] = {}
    for stage, behind in zip(equations.stages, lags, strict=True):
        for name in _read(equations, stage):
            # The ring of a field belongs to the step that reads it; new values are made before.
            field = field_of(equations, name)
            new = made[name]
            if name in equations.fields:
                new = min(0, made[equations.results[name]] - lag)
            kept = behind + _reach(stage, name, ndim) - new + visit
            needs[field] = max(needs.get(field, visit), kept)
    for name in made:
        needs.setdefault(field_of(equations, name), visit)

    # Few tables if depths have a small common multiple, little memory if they are small.
    most = max(needs.values())
    periods = range(most, 2 * most + 1)
    rings = [{name: _divisor(period, need) for name, need in needs.items()} for period in periods]
    best = min(range(len(rings)), key=lambda k: sum(rings[k].values()))
    return Follow(tuple(lags), lag, rings[best], periods[best])


def _read(equations: Equations, stage: Stage) -> list[str]:
    return [name for name in stage.taps if name not in (equations.coefficients or {})]


def _reach(stage: Stage, name: str, ndim: int) -> int:
    return on_three(stage.radii(name), 0, OUTER)[0]


def _divisor(of: int, least: int) -> int:
    """The smallest divisor that is not less than a number."""
    return next(k for k in range(least, of + 1) if of % k == 0)


@dataclass(frozen=True)
class RingWork:
    """Cut of a slab into strips, and memory layout of the rings of a strip in elements.

    Attributes:
        follow: who follows whom.
        steps: of a block.
        visit: planes that a stage computes at a time.
        strips: per padded axis.
        reach: how far a step reaches, per padded axis.
        around: points of a ring around the box of a strip, per padded axis; along the first one
            planes that are computed before the state is read.
        row: elements from row to row.
        plane: from plane to plane.
        starts: where the rings of names begin.
        set: elements of the rings of a step.
    """

    follow: Follow
    steps: int
    visit: int
    strips: tuple[int, int, int]
    reach: tuple[int, int, int]
    around: tuple[int, int, int]
    row: int
    plane: int
    starts: Mapping[str, int]
    set: int

    @property
    def scratch(self) -> int:
        """Elements of a thread's rings."""
        return (self.steps + 1) * self.set + _LINE


_LINE = 64  # elements; planes of rings begin on cache lines of their own


def plan_work(
    equations: Equations,
    shape: tuple[int, ...],
    *,
    threads: int,
    lanes: int,
    steps: int,
    visit: int,
    tile: tuple[int, int],
) -> RingWork:
    """Cut a slab.

    Args:
        equations: `settled` ones.
        shape: points that are computed at most, with halos.
        threads: how many there are.
        lanes: elements of a vector.
        steps: of a block.
        visit: planes that a stage computes at a time.
        tile: rows and columns of a strip that are wished for.
    """
    ndim = len(shape)
    reach = on_three(equations.radii, 0, OUTER)
    margins = [on_three(it, 0, OUTER) for it in equations.margins]
    most = [max(reach[k], *(it[k] for it in margins)) for k in range(3)]
    widths = [width_of(equations, name, ndim) for name in equations.ghosts]
    most = [max(most[k], *(it[k] for it in widths), 0) for k in range(3)]
    owned = on_three(shape, 1, OUTER)
    # Round to the number of strips whose width is closest to the wish.
    cut = [max(1, round(n / wish)) for n, wish in zip(owned[1:], tile, strict=True)]
    strips = (_parts(owned[0], cut[0] * cut[1], threads, steps * reach[0]), cut[0], cut[1])

    early = max(it[0] for it in margins) - reach[0]
    around = (
        max(0, early),
        steps * reach[1] + most[1],
        _up(steps * reach[2] + most[2] + lanes, lanes),
    )
    rows = -(-owned[1] // cut[0]) + 2 * around[1]
    row = _up(-(-owned[2] // cut[1]) + 16 + 2 * around[2], lanes)
    # Planes a page apart would fall into the same sets of the first-level cache.
    plane = _up(rows * row, _LINE)
    plane += 0 if plane % 512 else _LINE
    done = follow(equations, ndim, visit)
    starts, size = {}, 0
    for name, depth in done.depths.items():
        starts[name] = size
        size += depth * plane
    # One set of rings per step of a block, plus one for the state that the last step makes.
    return RingWork(done, steps, visit, strips, reach, around, row, plane, starts, size)


def _parts(planes: int, strips: int, threads: int, reach: int) -> int:
    """Parts of the first axis, so that strips can be dealt evenly and little is computed twice."""
    # The smallest number of parts that gives every thread the same number of strips.
    wanted = threads // math.gcd(threads, strips)
    return max(1, min(wanted, planes // max(1, 4 * reach)))


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit
