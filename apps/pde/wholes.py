"""Numbers of the whole grid in formulas: integrals, means, largest and smallest values.

`integral(u*v)`, `mean(u)`, `max(u)` and `min(u)` of one formula are taken out of right-hand sides:
a name stands for each, which is a number of the time step like any constant, and stages that come
before compute at all points what is added up. `tetris_sim/model/equations.py` adds it up, with the
same bits for any division of the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from tetris_sim.apps.time_functions import names_in
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.equations import Reduction, digit_sums, total
from tetris_sim.model.formula import Comparison, Node, Operation, Variable
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.model.reference import values_of_a_step
from tetris_sim.model.slab import Slab

REDUCTIONS = ("integral", "mean", "max", "min")
VOLUME = "@volume"  # the name of the volumes of cells
_MARK = "@"  # before names that no formula can have


@dataclass(frozen=True, eq=False)
class Whole:
    """A number of the whole grid.

    Attributes:
        kind: of `REDUCTIONS`.
        tree: the formula at every point.
    """

    kind: Literal["integral", "mean", "max", "min"]
    tree: Node

    def reduction(self, grid: Grid) -> Reduction:
        """Return what is made of the values of the formula."""
        if self.kind in ("max", "min"):
            return Reduction(self.kind)
        # Where cells differ, the formula is multiplied by their volumes.
        if self.kind == "integral":
            return Reduction("sum", grid.cell_volume if grid.is_even else 1.0)
        return Reduction("sum", 1 / (grid.n_points if grid.is_even else volume_of(grid)))


def volume_of(grid: Grid) -> float:
    """Return the volume of all cells [m^3]; that of sums, which are the same on every rank."""
    # Volumes are products of factors along the axes, so lines say everything.
    first = tuple((0, 1) for _ in grid.shape)
    one = float(grid.volumes(first).item())
    product = one
    for axis, n in enumerate(grid.shape):
        line = grid.volumes((*first[:axis], (0, n), *first[axis + 1 :]))
        product *= float(line.sum()) / one
    return product


@dataclass
class _Taking:
    """Takes numbers of the whole grid out of formulas; equal ones once.

    Attributes:
        even: whether all cells have the same volume.
        wholes: what has been found, by name; inner ones first.
    """

    even: bool
    wholes: dict[str, Whole] = field(default_factory=dict)
    _names: dict[tuple[str, Node], str] = field(default_factory=dict)

    def take(self, tree: Node) -> Node:
        """Return a formula with names in the place of numbers of the whole grid."""
        if isinstance(tree, Comparison):
            return replace(tree, operands=tuple(map(self.take, tree.operands)))
        if not isinstance(tree, Operation):
            return tree
        arguments = tuple(map(self.take, tree.arguments))
        if tree.name not in REDUCTIONS or len(arguments) != 1:
            # Equal trees stay one object: what is shared is computed once.
            same = all(a is b for a, b in zip(arguments, tree.arguments, strict=True))
            return tree if same else replace(tree, arguments=arguments)

        kind: Any = tree.name
        key = (tree.name, arguments[0])
        if key not in self._names:
            name = self._names[key] = f"{_MARK}{tree.name}{len(self._names) + 1}"
            (what,) = arguments
            if not self.even and tree.name in ("integral", "mean"):
                what = Operation("multiply", (what, Variable(VOLUME)))
            self.wholes[name] = Whole(kind, what)
        return Variable(self._names[key])


def taken_out(trees: Mapping[str, Node], *, even: bool) -> tuple[dict[str, Node], dict[str, Whole]]:
    """Return formulas with names for numbers of the whole grid, and these by name.

    Args:
        trees: right-hand sides by field.
        even: whether all cells have the same volume.
    """
    taking = _Taking(even)
    return {name: taking.take(tree) for name, tree in trees.items()}, taking.wholes


def in_order(wholes: Mapping[str, Whole]) -> list[list[str]]:
    """Return the names in groups, each of which reads numbers of earlier groups only."""
    groups: list[list[str]] = []
    known: set[str] = set()
    while left := [name for name in wholes if name not in known]:
        ready = [it for it in left if not names_in(wholes[it].tree) & ({*wholes} - known)]
        groups.append(ready)
        known |= {*ready}
    return groups


def numbers_of(problem: Problem) -> dict[str, float]:
    """Return the reductions of the stages of a problem at its initial state, by name: what trial
    steps and the largest stable step are made with.
    """
    equations = problem.system
    whole = Slab.whole(problem.grid)
    values = values_of_a_step(problem.initial(whole).astype(np.float64), problem, 0)
    return {name: _reduced(it, values[name]) for name, it in equations.reductions.items()}


def _reduced(it: Reduction, values: Numbers) -> float:
    if it.kind != "sum":
        return float(values.max() if it.kind == "max" else values.min())
    largest = float(np.abs(values).max())
    if not np.isfinite(largest):
        return float("nan")
    exponent = int(np.frexp(largest)[1])
    return it.factor * total(digit_sums(values, exponent), exponent)
