"""Levels of a step by equations in 3D: which stages one turn computes, and where what they read
waits for it (`struct Level` of equations_3d.cu).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tetris_sim.equations import Equations, Offset
from tetris_sim.gpu_kernels.common.given import names_of
from tetris_sim.gpu_kernels.stream.levels import print_structure


@dataclass(frozen=True)
class Ring:
    """Planes of a name that are kept.

    Attributes:
        low: the lowest that is read, counted from the one that is computed.
        high: the highest.
        is_shared: whether other threads read the lowest one.
    """

    low: int
    high: int
    is_shared: bool


@dataclass(frozen=True)
class Level3:
    """Stages that one turn computes.

    Attributes:
        stages: their numbers.
        reach: planes above and below that they read.
        rings: names that they read beside their points.
        carried: names that they read at their points, or only pass on.
        given: names that they give, by their numbers.
        following: for each name that is alive after them what it is called by the next level.
    """

    stages: range
    reach: int
    rings: dict[str, Ring]
    carried: tuple[str, ...]
    given: dict[str, int]
    following: dict[str, str]

    def slots(self, name: str) -> int:
        """Planes of a ring. The oldest one is overwritten when the newest comes, unless other
        threads read it.
        """
        ring = self.rings[name]
        return self.reach - ring.low + 1 + ring.is_shared

    @property
    def planes(self) -> int:
        """Of all rings."""
        return sum(self.slots(name) for name in self.rings)


def levels_3d(equations: Equations) -> tuple[Level3, ...]:
    """The levels of a step."""
    groups = _groups(equations)
    levels = []
    names = list(equations.fields)
    fields = {result: name for name, result in equations.results.items()}
    for number, group in enumerate(groups):
        stages = [equations.stages[k] for k in group]
        given = [name for stage in stages for name in stage.formulas]
        later = {name for k in range(group.stop, len(equations.stages)) for name in _read(equations, k)}
        is_last = number == len(groups) - 1
        alive = [name for name in (*names, *given) if name in later or name in fields]
        read = {name: _taps(equations, group, name) for name in names}

        rings = {name: _ring(taps) for name, taps in read.items() if any(map(any, taps))}
        only_here = [name for name in names if name not in rings and (read[name] or name in alive)]
        levels.append(
            Level3(
                group,
                max((abs(offset[0]) for taps in read.values() for offset in taps), default=0),
                rings,
                tuple(only_here),
                {name: k for k, name in enumerate(given)},
                {name: fields[name] if is_last else name for name in alive if not is_last or name in fields},
            )
        )
        names = alive
    return tuple(levels)


def _groups(equations: Equations) -> list[range]:
    """Runs of stages of which none reads beside its points what another one gives."""
    groups: list[range] = []
    given: set[str] = set()
    for number, stage in enumerate(equations.stages):
        if groups and not any(any(stage.radii(name)) for name in given & {*stage.taps}):
            groups[-1] = range(groups[-1].start, number + 1)
        else:
            groups.append(range(number, number + 1))
            given = set()
        given |= {*stage.formulas}
    return groups


def _read(equations: Equations, stage: int) -> Iterable[str]:
    return (name for name in equations.stages[stage].taps)


def _taps(equations: Equations, group: range, name: str) -> list[Offset]:
    return [offset for k in group for offset in equations.stages[k].taps.get(name, ())]


def _ring(taps: Sequence[Offset]) -> Ring:
    """Planes of a name that is read beside a point; at the point it may be passed on."""
    low = min(0, *(offset[0] for offset in taps))
    high = max(0, *(offset[0] for offset in taps))
    return Ring(low, high, any(any(offset[1:]) for offset in taps if offset[0] == low))


def rings_of_state(equations: Equations) -> dict[str, Ring]:
    """Planes of the fields that the first level of all reads: they come from memory."""
    first = levels_3d(equations)[0]
    return {**dict.fromkeys(first.carried, Ring(0, 0, is_shared=False)), **first.rings}


def slots_of_state(ring: Ring, ahead: int) -> int:
    """Planes of a ring of the state."""
    return ring.high - ring.low + 1 + ahead


def n_planes(equations: Equations, steps: int, ahead: int) -> int:
    """Planes of a tile that a block keeps in shared memory."""
    levels = levels_3d(equations)
    state = sum(slots_of_state(ring, ahead) for ring in rings_of_state(equations).values())
    return state + steps * sum(level.planes for level in levels) - levels[0].planes


def n_waiting(equations: Equations, steps: int) -> int:
    """Numbers for each of its points that a thread keeps from turn to turn in registers."""
    numbers = [len(level.carried) * (level.reach + 1) for level in levels_3d(equations)]
    return steps * sum(numbers) - numbers[0]


def print_levels_3d(equations: Equations, ahead: int) -> str:
    """The specialisations of `struct Level`."""
    levels, names, state = levels_3d(equations), names_of(equations), rings_of_state(equations)
    slots = {name: slots_of_state(ring, ahead) for name, ring in state.items()}
    whole = {
        "count": len(levels),
        "planes": sum(slots.values()),
        "window": max((ring.high - ring.low for ring in state.values()), default=0),
    }
    tables = {
        **_ring_tables(names, slots),
        "low": [state[name].low if name in state else 0 for name in names],
        "high": [state[name].high if name in state else 0 for name in names],
    }
    texts = [print_structure(-1, whole, tables)]
    for number, level in enumerate(levels):
        numbers = {
            "first": level.stages.start,
            "last": level.stages[-1],
            "reach": level.reach,
            "planes": level.planes,
            "n_given": len(level.given),
            "n_carried": len(level.carried),
        }
        carried = {name: k for k, name in enumerate(level.carried)}
        following = {name: names.index(later) for name, later in level.following.items()}
        tables = {
            **_ring_tables(names, {name: level.slots(name) for name in level.rings}),
            "given": [level.given.get(name, -1) for name in names],
            "carried": [carried.get(name, -1) for name in names],
            "next": [following.get(name, -1) for name in names],
        }
        texts.append(print_structure(number, numbers, tables))
    return " ".join(texts)


def _ring_tables(names: Sequence[str], slots: dict[str, int]) -> dict[str, list[int]]:
    """Of each ring the first plane, and how many there are."""
    before = list(slots)
    first = {name: sum(slots[it] for it in before[:k]) for k, name in enumerate(before)}
    return {
        "ring": [first.get(name, -1) for name in names],
        "slots": [slots.get(name, 1) for name in names],
    }


def words_read(equations: Equations, rows: int) -> float:
    """Numbers that a thread reads from and writes to shared memory for one point and step, about:
    rows that lie below each other share what they read.
    """
    total = 0.0
    for level in levels_3d(equations):
        for name in level.rings:
            columns = {(offset[0], offset[2]): 0 for offset in _taps(equations, level.stages, name)}
            for offset in _taps(equations, level.stages, name):
                key = (offset[0], offset[2])
                columns[key] = max(columns[key], abs(offset[1]))
            total += sum(1 + 2 * far / rows for far in columns.values()) + 1
    return total if total else math.inf
