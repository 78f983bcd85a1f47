"""Levels of a step by equations in 3D: which stages one turn computes, and where what they read
waits for it (`struct Level` of equations_3d.cu).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.gpu_kernels.common.given import names_of
from tetris_sim.gpu_kernels.stream.levels import print_structure
from tetris_sim.model.equations import Equations, Offset


@dataclass(frozen=True)
class Queue:
    """Planes of a name that a level reads, counted from the one that it computes.

    Attributes:
        low: the lowest one.
        high: the highest one.
        beside: the lowest one of its ring, that of the point or below: of all from there on it may
            read what lies beside its points. None if it does so of none.
    """

    low: int
    high: int
    beside: int | None

    def top(self, last: int, held: int) -> int:
        """The highest plane that threads keep: not more than are `held`, unless there is no ring of
        those up to the last.
        """
        return last if self.beside is None else min(last, held)

    def slots_of_state(self, ahead: int) -> int:
        """Planes of a ring into which the state is copied: all pass through it."""
        lowest = self.high if self.beside is None else self.beside
        return self.high - lowest + 1 + ahead


@dataclass(frozen=True)
class Level3:
    """Stages that one turn computes.

    Attributes:
        stages: their numbers.
        queues: names that they read, or that are passed on.
        given: names that they give, by their numbers.
        following: for each name that is alive after them what it is called by the next level.
    """

    stages: range
    queues: dict[str, Queue]
    given: dict[str, int]
    following: dict[str, str]

    @property
    def reach(self) -> int:
        """Planes above and below that they read."""
        return max((max(-it.low, it.high) for it in self.queues.values()), default=0)

    @property
    def slots(self) -> dict[str, int]:
        """Planes of each ring: up to the newest, and the one that comes while these are read."""
        return {
            name: self.reach - queue.beside + 2
            for name, queue in self.queues.items()
            if queue.beside is not None
        }

    def kept(self, held: int) -> int:
        """Numbers that stay in registers for each point, of a level but the first of all."""
        return sum(
            queue.top(self.reach, held) - queue.low + (queue.beside is None)
            for queue in self.queues.values()
        )


def levels_3d(equations: Equations) -> tuple[Level3, ...]:
    """The levels of a step."""
    groups = _groups(equations)
    levels = []
    names = list(equations.fields)
    fields = {result: name for name, result in equations.results.items()}

    for number, group in enumerate(groups):
        stages = [equations.stages[k] for k in group]
        given = [name for stage in stages for name in stage.formulas]
        later = {name for it in equations.stages[group.stop :] for name in it.taps}
        is_last = number == len(groups) - 1
        alive = [name for name in (*names, *given) if name in later or name in fields]
        read = {name: _taps(equations, group, name) for name in names}
        levels.append(
            Level3(
                group,
                {name: _queue(taps) for name, taps in read.items() if taps or name in alive},
                {name: k for k, name in enumerate(given)},
                {name: fields[name] for name in alive if name in fields}
                if is_last
                else {name: name for name in alive},
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


def _taps(equations: Equations, group: range, name: str) -> list[Offset]:
    return [offset for k in group for offset in equations.stages[k].taps.get(name, ())]


def _queue(taps: Sequence[Offset]) -> Queue:
    """Planes of a name; at the point it may be passed on."""
    planes = [0, *(offset[0] for offset in taps)]
    beside = [offset[0] for offset in taps if any(offset[1:])]
    return Queue(min(planes), max(planes), min(0, *beside) if beside else None)


def n_planes(equations: Equations, steps: int, ahead: int) -> int:
    """Planes of a tile that a block keeps in shared memory."""
    levels = levels_3d(equations)
    state = sum(queue.slots_of_state(ahead) for queue in levels[0].queues.values())
    planes = [sum(level.slots.values()) for level in levels]
    return state + steps * sum(planes) - planes[0]


def n_kept(equations: Equations, steps: int, held: int) -> int:
    """Numbers for each of its points that a thread keeps from turn to turn in registers."""
    levels = levels_3d(equations)
    state = sum(queue.top(queue.high, held) - queue.low for queue in levels[0].queues.values())
    return state + steps * sum(level.kept(held) for level in levels) - levels[0].kept(held)


def print_levels_3d(equations: Equations, ahead: int, held: int) -> str:
    """The specialisations of `struct Level`."""
    levels, names = levels_3d(equations), names_of(equations)
    state = levels[0].queues
    slots = {name: queue.slots_of_state(ahead) for name, queue in state.items()}
    whole = {
        "count": len(levels),
        "planes": sum(slots.values()),
        "window": max((queue.high - queue.low for queue in state.values()), default=0),
    }
    tables = {
        **_ring_tables(names, slots),
        "high": [state[name].high if name in state else 0 for name in names],
        "top": [state[name].top(state[name].high, held) if name in state else 0 for name in names],
    }

    texts = [print_structure(-1, whole, tables)]
    for number, level in enumerate(levels):
        texts.append(print_structure(number, *_numbers(level, names, held)))
    return " ".join(texts)


def _numbers(
    level: Level3, names: Sequence[str], held: int
) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Numbers and tables of a level."""
    numbers = {
        "first": level.stages.start,
        "last": level.stages[-1],
        "reach": level.reach,
        "planes": sum(level.slots.values()),
        "n_given": len(level.given),
        "n_queues": len(level.queues),
        "longest": max((level.reach - it.low for it in level.queues.values()), default=0) + 1,
    }

    order = {name: k for k, name in enumerate(level.queues)}
    tops = {name: queue.top(level.reach, held) for name, queue in level.queues.items()}
    following = {name: names.index(later) for name, later in level.following.items()}
    tables = {
        **_ring_tables(names, level.slots),
        "given": [level.given.get(name, -1) for name in names],
        "queue": [order.get(name, -1) for name in names],
        "low": [level.queues[name].low if name in order else 0 for name in names],
        "top": [tops.get(name, 0) for name in names],
        "next": [following.get(name, -1) for name in names],
    }
    return numbers, tables


def _ring_tables(names: Sequence[str], slots: dict[str, int]) -> dict[str, list[int]]:
    """Of each ring the first plane, and how many there are."""
    before = list(slots)
    first = {name: sum(slots[it] for it in before[:k]) for k, name in enumerate(before)}
    return {
        "ring": [first.get(name, -1) for name in names],
        "slots": [slots.get(name, 1) for name in names],
    }


def words_read(equations: Equations, rows: int, held: int) -> float:
    """Numbers that a thread reads from and writes to shared memory for one point and step, about:
    of its own column only what lies beyond its rows or what it holds.
    """
    total = float(len(equations.fields))
    for level in levels_3d(equations):
        for name, queue in level.queues.items():
            farthest: dict[tuple[int, int], int] = {}
            for z, y, x in _taps(equations, level.stages, name):
                farthest[z, x] = max(farthest.get((z, x), 0), abs(y))
            total += sum((x != 0 or z > held) + 2 * far / rows for (z, x), far in farthest.items())
            total += 2 * (queue.beside is not None)
    return total
