"""Differential operators: which neighbours with which weights, and what is made of others.

Linear operators are weighted sums of neighbours, with weights in exact fractions and a power of the
spacings before them (`linear`). `advect` and `grad_squared` are written with those (`rewritten`),
and around an axis the Laplacian is, too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from tetris_sim.apps.pde.simplify import ONE, Offset, Weight, over, spacing_name, times
from tetris_sim.apps.time_functions import formula
from tetris_sim.model.coordinates import CARTESIAN, Coordinates
from tetris_sim.model.formula import Constant, Node, Operation, Operators, Variable
from tetris_sim.model.grid import AXIS_NAMES
from tetris_sim.model.stencils.catalogue import catalogue, named_stencil
from tetris_sim.model.stencils.entry import along, central, compose
from tetris_sim.model.stencils.entry import scaled as times_number
from tetris_sim.support.wording import listed

Advection = Literal["upwind", "central"]
Accuracy = Literal[2, 4]
Sums = list[tuple[Node, Mapping[Offset, Weight]]]  # a scalar before each


@dataclass(frozen=True)
class Space:
    """On what grid, and how it is differentiated.

    Attributes:
        spacing: array order [m].
        accuracy: order of the operators.
        advection: how `advect` looks upstream.
        system: what the axes mean.
    """

    spacing: tuple[float, ...]
    accuracy: Accuracy = 2
    advection: Advection = "upwind"
    system: Coordinates = CARTESIAN

    @property
    def axes(self) -> tuple[str, ...]:
        """Their names in the order of the configuration."""
        return self.system.axes[: self.ndim]

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.spacing)


@functools.cache
def operators(ndim: int, axes: tuple[str, ...] = ()) -> Operators:
    """What formulas on a grid of so many axes may call.

    Args:
        ndim: number of axes.
        axes: their names, where they are not x, y and z.
    """
    curved, axes = bool(axes), axes or AXIS_NAMES[:ndim]
    known: dict[str, tuple[float, float] | str] = {
        **dict.fromkeys(("laplace", "grad_squared", "biharmonic"), (1, 1)),
        "div_grad": (2, 2),
        **{f"div_grad(mean={it})": (2, 2) for it in ("arithmetic", "harmonic")},
        "advect": (ndim + 1, ndim + 1),
    }
    every = (*axes, *(axis for axis in AXIS_NAMES if axis not in axes))
    for parts in _pairs(every):
        missing = next((axis for axis in parts if axis not in axes), None)
        fits: tuple[float, float] | str = (1, 1)
        if missing is not None:
            fits = f"the grid has no axis {missing}"
        known["d" + "".join(parts)] = fits
        if curved:
            known["d_" + "".join(parts)] = fits

    for name, entry in catalogue().items():
        told = f"the stencil {name} has {entry.stencil.ndim} axes, but the grid has {ndim}"
        if curved:
            told = (
                f"the stencil {name} is for straight axes, and the grid has {listed(axes, 'and')}"
            )
        is_known = not curved and entry.stencil.ndim == ndim
        known[name.replace("-", "_")] = (1, 1) if is_known else told
    return known


@functools.cache
def _catalogue_names() -> Mapping[str, str]:
    return {name.replace("-", "_"): name for name in catalogue()}


def rewritten(node: Operation, space: Space) -> Node | None:
    """An operator written with others; None if it is one of those."""
    axes, curved = space.axes, space.system.is_curved
    if node.name == "grad_squared":
        first = [_along_arc(axis, Operation(f"d{axis}", node.arguments)) for axis in axes]
        squares: list[Node] = [Operation("multiply", (it, it)) for it in first]

    elif node.name == "advect":
        *velocity, field = node.arguments
        squares = []
        for axis, speed in zip(axes, velocity, strict=True):
            if space.advection == "central":
                slope = _along_arc(axis, Operation(f"d{axis}", (field,)))
                squares.append(Operation("multiply", (speed, slope)))
                continue
            for limit, side in (("max", "-"), ("min", "+")):
                part = Operation(limit, (speed, Constant(0.0)))
                slope = _along_arc(axis, Operation(f"d{axis}{side}", (field,)))
                squares.append(Operation("multiply", (part, slope)))
    elif node.name == "laplace" and curved:
        squares = [_second(space, axis, node.arguments) for axis in axes]
    elif node.name == "biharmonic" and curved:
        return Operation("laplace", (Operation("laplace", node.arguments),))
    else:
        return None
    return functools.reduce(lambda a, b: Operation("add", (a, b)), squares)


# Around an axis or a centre. The Laplacian is the difference of what flows through the faces of a
# cell by its volume, all exact (`coordinates.py`). With h the spacing along r, that is around an
# axis the same as central differences in d_rr u + d_r u / r; around a centre, where 3 r^2 + h^2/4
# is the volume of a shell by h, they get factors that are 1 for small h. Beyond the axis lies the
# mirror point with weight 0.


def _along_arc(axis: str, slope: Node) -> Node:
    """A derivative by an angle as one by the length of the arc."""
    return slope if axis != "theta" else formula("slope/r", slope=slope, r=Variable("r"))


def _second(space: Space, axis: str, of: tuple[Node, ...]) -> Node:
    """The part of the Laplacian along an axis."""
    names = {"first": Operation(f"d{axis}", of), "second": Operation(f"d{axis}{axis}", of)}
    if axis == "z":
        return names["second"]
    parts: dict[str, Node] = {name: Variable(name) for name in ("r", "theta")}
    parts |= {**names, "h": Variable(spacing_name("r")), "a": Variable(spacing_name("theta"))}

    # Both factors of a sphere are those of exact areas and volumes.
    text = {
        ("cylindrical", "r"): "second + first/r",
        ("cylindrical", "theta"): "second/r**2",
        ("spherical", "r"): (
            "(r**2 + h**2/4)/(r**2 + h**2/12)*second + 2*r/(r**2 + h**2/12)*first"
        ),
        ("spherical", "theta"): (
            "(a/2)/tan(a/2)/(r**2 + h**2/12)*second + 1/tan(theta)/(r**2 + h**2/12)*first"
        ),
    }[space.system.kind, axis]
    return formula(text, **parts)


def face_weight(space: Space, axis: str, side: int) -> Node:
    """By how much more flows through the upper (1) or lower (-1) face of a cell along an axis, per
    volume, than between straight ones.
    """
    if not space.system.is_curved or axis == "z":
        return ONE
    half = Constant(side / 2)
    parts: dict[str, Node] = {
        "r": Variable("r"),
        "theta": Variable("theta"),
        "h": Variable(spacing_name("r")),
        "a": Variable(spacing_name("theta")),
        "s": half,
    }

    text = {
        ("cylindrical", "r"): "1 + s*h/r",
        ("cylindrical", "theta"): "1/r**2",
        ("spherical", "r"): "(r + s*h)**2/(r**2 + h**2/12)",
        ("spherical", "theta"): ("sin(theta + s*a)*a/(2*sin(a/2)*sin(theta))/(r**2 + h**2/12)"),
    }[space.system.kind, axis]
    return formula(text, **parts)


def linear(name: str, space: Space) -> Sums:
    """The weighted sums of a linear operator.

    Args:
        name: of the operator; `dx-` and `dx+` are one-sided, of first order.
        space: the grid, and the order of the others.
    """
    spacing, accuracy, ndim = space.spacing, space.accuracy, space.ndim
    if name in _catalogue_names():
        stencil = named_stencil(_catalogue_names()[name]).stencil
        return [(ONE, dict(zip(stencil.offsets, stencil.weights, strict=True)))]

    axes = {axis: ndim - 1 - number for number, axis in enumerate(space.axes)}
    second = {axis: along(central(2, accuracy), axes[axis], ndim) for axis in axes}
    if name == "laplace":
        return _merged([((axis, axis), second[axis]) for axis in axes], axes, spacing)
    if name == "biharmonic":
        pairs = [
            ((a, a, b, b), times_number(1 if a == b else 2, compose(second[a], second[b])))
            for a, b in itertools.combinations_with_replacement(axes, 2)
        ]
        return _merged(pairs, axes, spacing)

    sign = name[-1] if name[-1] in "+-" else ""
    letters = name.removeprefix("d").removeprefix("_").removesuffix(sign)
    if sign:
        ends = (0, 1) if sign == "+" else (-1, 0)
        one_sided: Mapping[Offset, Fraction] = {(ends[0],): Fraction(-1), (ends[1],): Fraction(1)}
        return _merged([((letters,), along(one_sided, axes[letters], ndim))], axes, spacing)
    pair = next(it for it in _pairs(space.axes) if "".join(it) == letters)
    if len(pair) == 2 and pair[0] == pair[1]:
        return _merged([(pair, second[pair[0]])], axes, spacing)
    first = [along(central(1, accuracy), axes[axis], ndim) for axis in pair]
    weights = first[0] if len(first) == 1 else compose(first[0], first[1])
    return _merged([(pair, weights)], axes, spacing)


def _pairs(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The axes of all derivatives."""
    yield from ((axis,) for axis in axes)
    yield from itertools.combinations_with_replacement(axes, 2)


def face_sums(accuracy: Accuracy) -> tuple[Mapping[int, Fraction], Mapping[int, Fraction]]:
    """Slope and mean at the face between the points 0 and 1, on unit spacing: staggered formulas
    of `accuracy`. The difference of what flows through faces has the weights of the slope.
    """
    half = Fraction(1, 2)
    if accuracy == 2:
        return {0: Fraction(-1), 1: Fraction(1)}, {0: half, 1: half}
    slope, mean = (Fraction(1, 24), Fraction(-27, 24)), (Fraction(-1, 16), Fraction(9, 16))
    return (
        {-1: slope[0], 0: slope[1], 1: -slope[1], 2: -slope[0]},
        {-1: mean[0], 0: mean[1], 1: mean[1], 2: mean[0]},
    )


def per_spacing(axes: Sequence[str]) -> Node:
    """One over the product of the spacings along some axes."""
    return over(ONE, times(*(Variable(spacing_name(axis)) for axis in axes)))


def _merged(
    parts: Sequence[tuple[tuple[str, ...], Mapping[Offset, Fraction]]],
    axes: Mapping[str, int],
    spacing: Sequence[float],
) -> Sums:
    """Sums before which the same power of spacings stands, as one."""
    found: dict[tuple[float, ...], tuple[Node, dict[Offset, Weight]]] = {}
    for names, weights in parts:
        key = tuple(sorted(spacing[axes[name]] for name in names))
        _, total = found.setdefault(key, (per_spacing(names), {}))
        for offset, weight in weights.items():
            total[offset] = total.get(offset, Fraction(0)) + weight
    return [*found.values()]
