"""Numbers of the whole grid in formulas, integrals, means, largest and smallest values; and noise.

`integral(u*v)`, `mean(u)`, `max(u)` and `min(u)` of one formula are taken out of right-hand sides:
a name stands for each, which is a number of the time step like any constant, and stages that come
before compute at all points what is added up. `tetris_sim/model/equations.py` adds it up, with the
same bits for any division of the grid.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.initial import block_box, blocks_of, positions, slices_in
from tetris_sim.apps.pde.language import Language, Mistake
from tetris_sim.apps.pde.simplify import has_operators, scalar_value, slope_of
from tetris_sim.apps.time_functions import TIME, formula, loose_names, names_in, substitute
from tetris_sim.config.sections.schema import MeasureSection, Request
from tetris_sim.errors import ConfigError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.equations import Reduction, digit_sums, total
from tetris_sim.model.formula import (
    OPERATIONS,
    Comparison,
    Constant,
    ExpressionError,
    Node,
    Operation,
    Variable,
    compile_expression,
    evaluate,
    evaluate_each,
    walk,
)
from tetris_sim.model.grid import Grid
from tetris_sim.model.linearisation import gradients
from tetris_sim.model.problem import Field as State
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Programs
from tetris_sim.model.reference import values_of_a_step
from tetris_sim.model.slab import Ranges, Slab

REDUCTIONS = ("integral", "mean", "max", "min")
VOLUME = "@volume"  # the name of the volumes of cells
_MARK = "@"  # before names that no formula can have
_MOST_SUMMED = 1 << 26  # numbers whose digits are added up at once


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


def numbers_of(problem: Problem, state: State | None = None, time: float = 0.0) -> dict[str, float]:
    """Return the reductions of the stages of a problem, by name.

    Args:
        problem: whose first stages give what is reduced.
        state: of all points, (n_fields, n0, ...); the initial one, with which trial steps and the
            largest stable step are made, if not given.
        time: of the state [s].
    """
    if state is None:
        state = problem.initial(Slab.whole(problem.grid))
    # The first step is at `start`, so formulas of t are those of the state.
    then = replace(problem, start=(0, time))
    values = values_of_a_step(state.astype(np.float64), then, 0)
    return {name: _reduced(it, values[name]) for name, it in problem.system.reductions.items()}


def _reduced(it: Reduction, values: Numbers) -> float:
    if it.kind != "sum":
        return float(values.max() if it.kind == "max" else values.min())
    largest = float(np.abs(values).max())
    if not np.isfinite(largest):
        return float("nan")
    exponent = int(np.frexp(largest)[1])
    # Digits are exact, so what is added up in parts has the same bits.
    parts = np.array_split(values.ravel(), 1 + values.size // _MOST_SUMMED)
    digits = [sum(found) for found in zip(*(digit_sums(it, exponent) for it in parts), strict=True)]
    return it.factor * total(digits, exponent)


def measures_of(request: Request) -> Mapping[str, MeasureSection]:
    """The formulas of `output.statistics`, by the names of their columns."""
    statistics = request.output.statistics
    return {} if statistics is None else statistics.formulas


def measure_mistakes(request: Request, language: Language) -> Iterator[Mistake]:
    """Yield what is wrong with the formulas of `output.statistics`."""
    for name, it in measures_of(request).items():
        path: KeyPath = ("output", "statistics", "formulas", name, "formula")
        try:
            tree = language.read(it.formula)
        except ExpressionError as error:
            yield path, str(error), error.column
            continue

        # Noise belongs to a step and not to a state.
        if noise_in(tree):
            yield path, "noise is not a number of the state; leave it out", None
        if loose := sorted(loose_names(tree) & {*language.names} - {*language.numbers, TIME}):
            told = (
                f"{loose[0]} has a value at every point, and a column has one number; write "
                f"integral({loose[0]}), mean({loose[0]}), max({loose[0]}) or min({loose[0]})"
            )
            yield path, told, it.formula.find(loose[0]) + 1 or None


# Noise: numbers of a normal distribution at every point and step.
#
# `noise(variance, seed)` is white in space and time: in a step h each cell of volume V gets
# sqrt(variance h/V) N, with N normal. Equal seeds are the same noise. N follows from one word of
# Philox per point, of a stream by seed, step and block, through the inverse of the normal
# distribution, so it is the same for any division of the grid and after restarts.
#
# With b the factor of a noise in an equation and s^2 = variance/V, Euler and Maruyama add b s N
# sqrt(h). Milstein adds L (s^2 N^2 - s^2) h/2 as well, L being the sum over fields v of b_v db/dv.
# Equations in the sense of Stratonovich are those of Ito with L s^2/2 more (P. E. Kloeden, E.
# Platen, Numerical Solution of Stochastic Differential Equations, 1992, 4.9 and 10.3).

NOISE = "noise"
_NORMAL = f"{_MARK}{NOISE}"  # before the seed: N at a point
ROOT = f"{_MARK}root"  # 1/sqrt(h); 0 where there is no step
Calculus = Literal["ito", "stratonovich"]


def noise_in(tree: Node) -> bool:
    """Whether a formula as it is written has noise."""
    return any(isinstance(it, Operation) and it.name == NOISE for it in walk(tree))


def noises_in(tree: Node) -> list[str]:
    """Return the names of the noises that a formula reads."""
    return sorted(name for name in names_in(tree) if name.startswith(_NORMAL))


def with_noise(
    trees: Mapping[str, Node],
    values: Mapping[str, float],
    grid: Grid,
    *,
    calculus: Calculus,
    milstein: bool,
) -> dict[str, Node]:
    """Return right-hand sides with names for noise, and with what the calculus and Milstein add.

    Args:
        trees: by field.
        values: of constants, for seeds.
        grid: whose cells have volumes.
        calculus: in whose sense they are meant.
        milstein: whether steps are those of Milstein instead of Euler and Maruyama.

    Raises:
        ConfigError: a seed is no whole number, or a factor cannot be differentiated.
    """
    found = {name: _named(tree, values, grid) for name, tree in trees.items()}
    if calculus == "ito" and not milstein:
        return found

    factors = {
        name: {it: _factor(tree, it) for it in noises_in(tree)} for name, tree in found.items()
    }
    # Different noises that act on what the other one's factor reads do not commute: what is left
    # out then is not a number of the step alone.
    for name, own in factors.items():
        for noise, factor in own.items():
            for field_name in names_in(factor) & factors.keys():
                others = factors[field_name].keys() - {noise}
                if milstein and others:
                    msg = (
                        "time.scheme: milstein is for noises that commute: a factor in the "
                        f"equation of {name} reads {field_name}, which has another noise; take "
                        "euler"
                    )
                    raise ConfigError(msg)
    for name, own in factors.items():
        for noise, factor in own.items():
            slopes = [
                _product(factors[it][noise], slope_of(factor, it))
                for it in factors
                if noise in factors[it] and it in names_in(factor)
            ]
            if not slopes:
                continue
            # A factor is sqrt(variance/V)/sqrt(h), so L has the 1/h of s^2 N^2/h already.
            parts = "h/2*l*(n*n - 1)" if calculus == "ito" else "h/2*l*n*n" if milstein else "h/2*l"
            total_slope = functools.reduce(lambda a, b: Operation("add", (a, b)), slopes)
            more = formula(parts, h=Variable("dt"), l=total_slope, n=Variable(noise))
            found[name] = Operation("add", (found[name], more))
    return found


def _product(a: Node, b: Node) -> Node:
    return Operation("multiply", (a, b))


def _named(tree: Node, values: Mapping[str, float], grid: Grid) -> Node:
    """Return a formula with names for the noises in it."""
    if isinstance(tree, Comparison):
        return replace(tree, operands=tuple(_named(it, values, grid) for it in tree.operands))
    if not isinstance(tree, Operation):
        return tree
    arguments = tuple(_named(it, values, grid) for it in tree.arguments)
    if tree.name != NOISE:
        return replace(tree, arguments=arguments)

    variance, given = arguments
    seed = scalar_value(given, values) if names_in(given) <= values.keys() else 0.5
    if not (seed.is_integer() and 0 <= seed < 2**53):
        msg = "model: the seed of noise(variance, seed) is a whole number from 0 to 2^53"
        raise ConfigError(msg)
    volume: Node = Constant(grid.cell_volume) if grid.is_even else Variable(VOLUME)
    return formula(
        "sqrt(variance/volume)*root*normal",
        variance=variance,
        volume=volume,
        root=Variable(ROOT),
        normal=Variable(f"{_NORMAL}{int(seed)}"),
    )


def _factor(tree: Node, noise: str) -> Node:
    """Return what multiplies a noise in a formula, which is its slope.

    Raises:
        ConfigError: an operator reads the noise, or its factor has operators.
    """
    whole = _opaque(tree, noise)
    factor = slope_of(whole, noise)
    hidden = any(
        isinstance(it, Operation) and it.name not in OPERATIONS and noise in names_in(it)
        for it in walk(whole)
    )
    if hidden or noise in names_in(factor) or has_operators(factor):
        msg = (
            "model: noise in an operator, in a function or beside an operator has no factor that "
            "can be differentiated; take time.scheme: euler with model.noise: ito"
        )
        raise ConfigError(msg)
    return factor


def _opaque(tree: Node, noise: str) -> Node:
    """Return a formula without parts that do not read a noise, where only sums need none."""
    match tree:
        case Operation("add" | "subtract" | "negative" | "positive", arguments):
            return replace(tree, arguments=tuple(_opaque(it, noise) for it in arguments))
    return tree if noise in names_in(tree) else Constant(0.0)


def quiet(tree: Node) -> Node:
    """Return a formula without its noise, which decides nothing of the largest step."""
    return substitute(tree, {name: Constant(0.0) for name in noises_in(tree)})


def normal_numbers(name: str, grid: Grid) -> Callable[[Ranges, int], Numbers]:
    """Return N of a noise as a function of a box of the grid and a step.

    Args:
        name: as of `noises_in`.
        grid: the points.
    """
    seed, shape = int(name.removeprefix(_NORMAL)), grid.shape

    def of_box(box: Ranges, step: int) -> Numbers:
        found = np.empty([high - low for low, high in box])
        for index, part in blocks_of(shape, box):
            block = block_box(shape, index)
            values = _normal_block(seed, step, index, shape)
            found[slices_in(part, box)] = values[slices_in(part, block)]
        return found

    return of_box


@functools.lru_cache(maxsize=16)
def _normal_block(seed: int, step: int, index: tuple[int, ...], shape: tuple[int, ...]) -> Numbers:
    from scipy.special import ndtri

    box = block_box(shape, index)
    n = math.prod(high - low for low, high in box)
    key = np.random.SeedSequence(seed, spawn_key=(step, *index)).generate_state(2, np.uint64)
    words = np.random.Philox(key=key).random_raw(n) >> np.uint64(11)
    # Halves between whole numbers: neither 0 nor 1, whose normal numbers are infinite.
    unit = (words.astype(np.float64) + 0.5) * 2.0**-53
    return np.asarray(ndtri(unit).reshape([high - low for low, high in box]))


class FinalNumber:
    """A number made of fields of any problem: a formula of integrals and means of formulas of them,
    with its derivatives by every value.

    Args:
        problem: whose fields.
        text: the formula; beside fields it may have coordinates and arrays.
        arrays: of the grid's shape, by name.

    Raises:
        ConfigError: it is no such formula.
    """

    def __init__(self, problem: Problem, text: str, arrays: Mapping[str, Numbers]) -> None:
        grid = problem.grid
        fields = [it.name for it in problem.variables]
        names = [*fields, *grid.axis_names, *arrays]
        for name, it in arrays.items():
            if name in (*fields, *grid.axis_names) or it.shape != grid.shape:
                msg = (
                    f"arrays: {name} is of shape {it.shape}; a name of its own and the grid's "
                    f"shape {grid.shape} are wanted"
                )
                raise ConfigError(msg)
        try:
            tree = compile_expression(text, names, {"integral": (1, 1), "mean": (1, 1)}).tree
        except ExpressionError as error:
            msg = f"functional: {error}"
            raise ConfigError(msg) from error

        self._fields, self._outer = fields, tree
        self._inner: dict[str, Operation] = {}
        self._outer = self._taken_out(tree)
        # Slopes are made once, and evaluated for each state.
        trees = tuple(it.arguments[0] for it in self._inner.values())
        self._slopes = gradients(Programs(trees), fields)
        (self._outer_slopes,) = gradients(Programs((self._outer,)), [*self._inner])
        whole = tuple((0, n) for n in grid.shape)
        places = zip(grid.axis_names, positions(grid, whole), strict=True)
        self._given: dict[str, Any] = {**dict(places), **arrays}
        volumes = np.full(grid.shape, grid.cell_volume) if grid.is_even else grid.volumes(whole)
        held = problem.conduction.held(whole) if problem.conduction else np.False_
        self._volumes = np.where(held, 0.0, volumes)  # as statistics of bodies, without fluids

    def _taken_out(self, node: Node) -> Node:
        """Put numbers in place of integrals and means."""
        match node:
            case Operation("integral" | "mean", (inner,)):
                whole = [it for it in walk(inner) if isinstance(it, Operation)]
                if any(it.name in ("integral", "mean") for it in whole):
                    msg = "functional: an integral or mean of another one; write that outside"
                    raise ConfigError(msg)
                self._inner[f"#{len(self._inner)}"] = node
                return Variable(f"#{len(self._inner) - 1}")

            # Outside of them stand numbers alone.
            case Variable(name):
                msg = f"functional: {name} is many numbers; let it stand in integral or mean"
                raise ConfigError(msg)
            case Operation(name, parts):
                return Operation(name, tuple(map(self._taken_out, parts)))
            case Comparison(signs, parts):
                return Comparison(signs, tuple(map(self._taken_out, parts)))
        return node

    def __call__(self, state: State) -> tuple[float, Numbers]:
        """The value and the derivatives by the values of the fields."""
        given = self._given | dict(zip(self._fields, state, strict=True))
        found, shape = np.zeros(state.shape), self._volumes.shape
        with np.errstate(all="ignore"):  # both sides of a condition are computed
            weights = {
                name: self._volumes / (1.0 if it.name == "integral" else self._volumes.sum())
                for name, it in self._inner.items()
            }
            inner = evaluate_each([it.arguments[0] for it in self._inner.values()], given)
            numbers: dict[str, Any] = {
                name: np.float64(math.fsum((np.broadcast_to(values, shape) * weight).ravel()))
                for (name, weight), values in zip(weights.items(), inner, strict=True)
            }

            # The chain rule: by each integral, then by each value in it.
            for (name, weight), slopes in zip(weights.items(), self._slopes, strict=True):
                if (outer := self._outer_slopes.get(name)) is None:
                    continue
                by = float(evaluate(outer, numbers))
                for which, slope in slopes.items():
                    found[self._fields.index(which)] += by * weight * evaluate(slope, given)
            return float(evaluate(self._outer, numbers)), found


def roughness(problem: Problem, values: Numbers) -> tuple[float, Numbers]:
    """The integral of |grad u|^2 over the grid, of its values, and the derivatives by them."""
    grid, total, slopes = problem.grid, 0.0, np.zeros(values.shape)
    whole = tuple((0, n) for n in grid.shape)
    for axis, n in enumerate(grid.shape):
        # Between each cell and the next one, at the end of a ring the first one.
        apart = np.broadcast_to(grid.distances(axis, whole), grid.shape)
        weights = 2 * grid.areas(axis, whole) / (apart + np.roll(apart, -1, axis))
        if not problem.boundary.periodic(axis):
            np.moveaxis(weights, axis, 0)[n - 1] = 0.0
        steps = np.roll(values, -1, axis) - values
        total += float((weights * steps**2).sum())
        slopes += 2 * (np.roll(weights * steps, 1, axis) - weights * steps)
    return total, slopes
