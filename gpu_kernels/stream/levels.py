"""Which names of a step by equations are alive between its stages, and in which patch of a lane
each lies (`struct Level` of equations_2d.cu and equations_1d.cu).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tetris_sim.gpu_kernels.common.given import names_of
from tetris_sim.model.equations import Equations, Stage
from tetris_sim.model.grid import on_three


@dataclass(frozen=True)
class Level:
    """A stage of a step, and the patches before and after it.

    Attributes:
        stage: what is computed.
        before: slot of each name that is alive before it.
        after: the same of those that are alive after it.
    """

    stage: Stage
    before: dict[str, int]
    after: dict[str, int]

    def taps(self, name: str) -> tuple[tuple[int, ...], ...]:
        """Rows and columns of what is read of a name: at its point, if it is only passed on."""
        read = tuple(on_three(offset, 0)[1:] for offset in self.stage.taps.get(name, ()))
        return (((0, 0),) if name in self.after else ()) + read

    @property
    def reach(self) -> int:
        """Rows above and below that it reads."""
        return max(abs(offset[0]) for name in self.before for offset in (*self.taps(name), (0,)))

    @property
    def beside(self) -> int:
        """Columns beside that it reads."""
        return max(abs(offset[-1]) for name in self.before for offset in (*self.taps(name), (0,)))


def levels_of(equations: Equations) -> tuple[Level, ...]:
    """The stages of a step. Fields are in the first slots before it, and again after it."""
    results = {equations.results[name]: slot for slot, name in enumerate(equations.fields)}
    before = {name: slot for slot, name in enumerate(equations.fields)}
    levels = []
    for number, stage in enumerate(equations.stages):
        later = {name for each in equations.stages[number + 1 :] for name in each.taps}
        alive = [name for name in (*before, *stage.formulas) if name in later or name in results]
        last = number == len(equations.stages) - 1
        after = results if last else _placed(alive, before)
        levels.append(Level(stage, before, after))
        before = after
    return tuple(levels)


def _placed(alive: Sequence[str], before: dict[str, int]) -> dict[str, int]:
    """Slots of the names that are alive: who has one keeps it."""
    after = {name: before[name] for name in alive if name in before}
    for name in alive:
        if name not in after:
            after[name] = next(slot for slot in range(len(alive)) if slot not in after.values())
    return after


def n_slots(levels: Sequence[Level]) -> int:
    """Patches that a lane needs."""
    slots = [slot for it in levels for both in (it.before, it.after) for slot in both.values()]
    return 1 + max(slots)


def print_levels(equations: Equations) -> str:
    """The specialisations of `struct Level`; number -1 is the whole step."""
    levels = levels_of(equations)
    reaches = [level.reach for level in levels]
    whole = {"count": len(levels), "rows": sum(reaches), "with_edges": sum(map(bool, reaches))}
    texts = [print_structure(-1, whole, {})]
    for number, level in enumerate(levels):
        texts.append(print_structure(number, *_numbers(equations, level)))
    return " ".join(texts)


def _numbers(equations: Equations, level: Level) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Numbers and tables of a level."""
    names = names_of(equations)
    n_before, n_after = (max(it.values(), default=-1) + 1 for it in (level.before, level.after))
    whose = {slot: name for name, slot in level.before.items()}

    def by_slot(of: Callable[[list[tuple[int, ...]]], int]) -> list[int]:
        return [of(list(level.taps(whose[s])) if s in whose else []) for s in range(n_before)]

    sideways = by_slot(lambda taps: min((dy for dy, dx in taps if dx), default=1))
    tables = {
        "slot_of": [level.before.get(name, 0) for name in names],
        "slot_given": [level.after.get(name, -1) for name in names],
        "pass_of": [-1] * n_after,
        "up": by_slot(lambda taps: max((-dy for dy, _ in taps), default=-level.reach - 1)),
        "first": sideways,
        "last": by_slot(lambda taps: max((dy for dy, dx in taps if dx), default=0)),
        "far": by_slot(lambda taps: max((abs(dx) for _, dx in taps), default=0)),
    }
    for name, slot in level.after.items():
        if name in level.before:
            tables["pass_of"][slot] = level.before[name]
    numbers = {"reach": level.reach, "beside": level.beside, "before": n_before, "after": n_after}
    return numbers, tables


def print_structure(number: int, numbers: dict[str, int], tables: dict[str, list[int]]) -> str:
    """One specialisation of `struct Level`: numbers, and tables as functions."""
    parts = [f"static constexpr int {name} = {value};" for name, value in numbers.items()]
    for name, values in tables.items():
        given = ",".join(map(str, values))
        parts.append(
            f"static __device__ __forceinline__ constexpr int {name}(int k) {{ "
            f"constexpr int of[] = {{{given}}}; return of[k]; }}"
        )
    return f"template <> struct Level<{number}> {{ {' '.join(parts)} }};"
