"""Operators of formulas as differences: which there are, and what each is on the axes of a grid.

Along even and straight axes an operator is a weighted sum of neighbours. Around an axis or a
centre, and where cells differ in width, it is written with such sums and numbers of the place:
exact areas and volumes of cells, and distances between their centres.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np

from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.pde.fluxes import (
    LIMITERS,
    Accuracy,
    Advection,
    Reader,
    is_flux,
    limiter_of,
    parts_of,
    per_spacing,
)
from tetris_sim.apps.pde.simplify import (
    ONE,
    Offset,
    Weight,
    has_operators,
    over,
    spacing_name,
    times,
)
from tetris_sim.apps.time_functions import formula, names_in
from tetris_sim.config.sections.grid import GridSection
from tetris_sim.config.sections.varying import COMPLEX_FUNCTIONS
from tetris_sim.model.boundary import Boundary, Face, Neumann, Robin
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import (
    OPERATIONS,
    Constant,
    Node,
    Operation,
    Operators,
    Variable,
    walk,
)
from tetris_sim.model.grid import AXIS_NAMES, CARTESIAN, Coordinates, Grid
from tetris_sim.model.slab import Ranges
from tetris_sim.model.stencils.catalogue import catalogue, named_stencil
from tetris_sim.model.stencils.entry import along, central, compose
from tetris_sim.model.stencils.entry import scaled as times_number
from tetris_sim.support.wording import listed

# Linear operators are weighted sums of neighbours, with weights in exact fractions and a power of
# the spacings before them (`linear`). `advect` and `grad_squared` are written with those
# (`rewritten`).

Sums = list[tuple[Node, Mapping[Offset, Weight]]]  # a scalar before each
_PAIRS = ("xy", "xz", "yz")
_FLUXES = ("flux", "div")
FARTHEST = 8  # points away that `shift` reads; halos are as wide in every stage
# Of one formula they are numbers of the whole grid.
OF_THE_GRID: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys(("integral", "mean"), (1, 1)),
    **dict.fromkeys(("max", "min"), (1, math.inf)),
    "noise": (2, 2),
}


@functools.cache
def operators(ndim: int, axes: tuple[str, ...] = ()) -> Operators:
    """Return the operators that formulas on a grid of `ndim` axes may call.

    Args:
        ndim: number of axes.
        axes: their names, where they are not x, y and z.
    """
    if axes:
        return _around_operators(axes)
    axes = AXIS_NAMES[:ndim]
    known: dict[str, tuple[float, float] | str] = {
        **dict.fromkeys(("laplace", "grad_squared", "biharmonic"), (1, 1)),
        "div_grad": (2, 2),
        **{f"div_grad(mean={it})": (2, 2) for it in ("arithmetic", "harmonic")},
        "advect": (ndim + 1, ndim + 1),
        **dict.fromkeys(("flux", "div"), (ndim, ndim + 2)),
        **{f"{k}(limiter={it})": (ndim, ndim + 2) for k in ("flux", "div") for it in LIMITERS},
        **OF_THE_GRID,
        **COMPLEX_FUNCTIONS,
    }
    derivatives = (*AXIS_NAMES, *(name * 2 for name in AXIS_NAMES), *_PAIRS)
    for name in derivatives:
        missing = next((axis for axis in name if axis not in axes), None)
        known[f"d{name}"] = (1, 1) if missing is None else f"the grid has no axis {missing}"

    # One-sided differences, and a value some points away, for schemes of one's own.
    for axis, side in itertools.product(AXIS_NAMES, ("plus", "minus")):
        known[f"d{axis}_{side}"] = known[f"d{axis}"]
    known["shift"] = (ndim + 1, ndim + 1)

    for name, entry in catalogue().items():
        fits = entry.stencil.ndim == ndim
        known[name.replace("-", "_")] = (
            (1, 1)
            if fits
            else f"the stencil {name} has {entry.stencil.ndim} axes, but the grid has {ndim}"
        )
    return known


def _around_operators(axes: tuple[str, ...]) -> Operators:
    """Those around an axis or a centre."""
    known: dict[str, tuple[float, float] | str] = {
        **dict.fromkeys(("laplace", "grad_squared", "biharmonic"), (1, 1)),
        "div_grad": (2, 2),
        **{f"div_grad(mean={it})": (2, 2) for it in ("arithmetic", "harmonic")},
        "advect": (len(axes) + 1, len(axes) + 1),
        **{it: n for it, n in operators(len(axes)).items() if it.partition("(")[0] in _FLUXES},
        **OF_THE_GRID,
        **COMPLEX_FUNCTIONS,
    }
    every = (*axes, *(axis for axis in AXIS_NAMES if axis not in axes))
    for parts in derivatives(every):
        missing = next((axis for axis in parts if axis not in axes), None)
        fits: tuple[float, float] | str = (1, 1)
        if missing is not None:
            fits = f"the grid has no axis {missing}"
        known |= dict.fromkeys(("d" + "".join(parts), "d_" + "".join(parts)), fits)

    # All others add up what flows through equal faces, or read neighbours at equal distances.
    told = f"it is for straight axes, and the grid has {listed(axes, 'and')}"
    return {name: told for name in operators(len(axes))} | known


def derivatives(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The axes of all derivatives."""
    yield from ((axis,) for axis in axes)
    yield from itertools.combinations_with_replacement(axes, 2)


@functools.cache
def _catalogue_names() -> Mapping[str, str]:
    return {name.replace("-", "_"): name for name in catalogue()}


def rewritten(
    node: Operation,
    ndim: int,
    advection: Advection,
    system: Coordinates = CARTESIAN,
    uneven: frozenset[str] = frozenset(),
) -> Node | None:
    """An operator written with others; None if it is one of those.

    Args:
        node: the operator.
        ndim: number of axes.
        advection: how `advect` looks upstream.
        system: what the axes mean.
        uneven: letters of the axes whose cells differ in width.
    """
    axes = AXIS_NAMES[:ndim]
    # Around an axis operators are written with derivatives along the axes, by their numbers.
    arcs = {axis for axis, name in zip(axes, system.axes, strict=False) if name == "theta"}
    if node.name == "grad_squared":
        first = [_slope(axis, axis in arcs, node.arguments) for axis in axes]
        squares: list[Node] = [Operation("multiply", (it, it)) for it in first]

    elif node.name == "advect":
        *velocity, field = node.arguments
        squares = []

        for axis, speed in zip(axes, velocity, strict=True):
            if advection == "central":
                slope = _slope(axis, axis in arcs, (field,))
                squares.append(Operation("multiply", (speed, slope)))
                continue
            for limit, side in (("max", "-"), ("min", "+")):
                part = Operation(limit, (speed, Constant(0.0)))
                slope = _slope(axis + side, axis in arcs, (field,))
                if axis in uneven:
                    slope = Operation("multiply", (of_cell(axis, side), slope))
                squares.append(Operation("multiply", (part, slope)))
    elif not system.is_curved and not uneven:
        return None
    elif node.name == "laplace":
        squares = [
            _second(system, *it, node.arguments, uneven)
            for it in zip(axes, system.axes, strict=False)
        ]
    elif node.name == "biharmonic":
        return Operation("laplace", (Operation("laplace", node.arguments),))
    else:
        other = by_letters(node, axes, system.axes) if system.is_curved else None
        return other or _on_cells(node, uneven)
    return functools.reduce(lambda a, b: Operation("add", (a, b)), squares)


# Around an axis or a centre. The Laplacian is the difference of what flows through the faces of a
# cell by its volume, all exact (`grid.py`). With h the spacing along r, that is around an
# axis the same as central differences in d_rr u + d_r u / r; around a centre, where 3 r^2 + h^2/4
# is the volume of a shell by h, they get factors that are 1 for small h. Beyond the axis lies the
# mirror point with weight 0.

_SPACINGS = {"h": Variable(spacing_name("x")), "a": Variable(spacing_name("y"))}  # of r and theta
_PLACES = {name: Variable(name) for name in ("r", "theta")}


def _slope(axis: str, is_arc: bool, of: tuple[Node, ...]) -> Node:
    """A derivative; by an angle as one by the length of the arc."""
    slope = Operation(f"d{axis}", of)
    return formula("slope/r", slope=slope, r=Variable("r")) if is_arc else slope


def by_letters(node: Operation, axes: Sequence[str], names: Sequence[str]) -> Operation | None:
    """A derivative along r, theta and z as one along x, y and z; None for anything else."""
    word = node.name.removeprefix("d").removeprefix("_")
    letters = dict(zip(names, axes, strict=False))
    found = next((it for it in derivatives(names) if "".join(it) == word), None)
    if found is None or not node.name.startswith("d"):
        return None
    # What is written with letters already stays as it is.
    written = "d" + "".join(letters[name] for name in found)
    return None if written == node.name else Operation(written, node.arguments)


def _on_cells(node: Operation, uneven: frozenset[str]) -> Node | None:
    """A difference along axes whose cells differ in width, by differences over the spacing; None
    for anything else.
    """
    word, _, ends = node.name.removeprefix("d").partition("_")
    if not node.name.startswith("d") or not {*word} & uneven or not {*word} <= {*AXIS_NAMES}:
        return None
    # With a sign an operator is a difference by the spacing, which is left as it is.
    if ends:
        side = "+" if ends == "plus" else "-"
        return _times(of_cell(word, side), Operation(f"d{word}{side}", node.arguments))
    if word[0] == word[-1] and len(word) == 2:
        return _second(CARTESIAN, word[0], word[0], node.arguments, uneven)

    # The difference of both neighbours by their distance. Exact for parabolas would be another one,
    # but its waves may grow without end; those of this one swing, as on equal cells.
    weight: Node = ONE
    for letter in sorted({*word} & uneven):
        given = {"p": of_cell(letter, "+"), "m": of_cell(letter, "-")}
        weight = _times(formula("2*p*m/(p + m)", **given), weight)
    central = "".join(f"{letter}=" for letter in word)
    return _times(weight, Operation(f"d{central}", node.arguments))


def _times(factor: Node, node: Node) -> Node:
    if ONE in (factor, node):
        return node if factor == ONE else factor
    return Operation("multiply", (factor, node))


def _second(
    system: Coordinates,
    letter: str,
    axis: str,
    of: tuple[Node, ...],
    uneven: frozenset[str] = frozenset(),
) -> Node:
    """The part of the Laplacian along an axis."""
    first, second = Operation(f"d{letter}", of), Operation(f"d{letter}{letter}", of)
    # What flows out above less what flows in below, so nothing is lost between two cells.
    if letter in uneven:
        sides = {k: Operation(f"d{letter}{end}", of) for k, end in (("a", "+"), ("b", "-"))}
        weights = {
            k: face_weight(system, axis, side, letter, uneven) for k, side in (("v", 1), ("w", -1))
        }
        return formula("(v*a - w*b)/h", h=Variable(spacing_name(letter)), **sides, **weights)
    if axis == "z" or not system.is_curved:
        return second

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
    }[system.kind, axis]
    return formula(text, **_own_spacings(uneven), **_PLACES, first=first, second=second)


def _own_spacings(uneven: frozenset[str]) -> dict[str, Node]:
    """The widths of a cell along r and theta."""
    return {
        name: over(it, of_cell(letter, "width")) if letter in uneven else it
        for (name, it), letter in zip(_SPACINGS.items(), AXIS_NAMES, strict=False)
    }


def face_weight(
    system: Coordinates, axis: str, side: int, letter: str, uneven: frozenset[str]
) -> Node:
    """By how much more flows down a slope through the upper (1) or lower (-1) face of a cell along
    an axis, per volume, than between even and straight ones.
    """
    weight = _weight(system, axis, side, uneven)
    if letter not in uneven:
        return weight
    own = times(of_cell(letter, "width"), of_cell(letter, "+" if side > 0 else "-"))
    return _times(own, weight) if weight != ONE else own


def area_weight(
    system: Coordinates, axis: str, side: int, letter: str, uneven: frozenset[str]
) -> Node:
    """By how much larger the upper (1) or lower (-1) face of a cell along an axis is, per volume,
    than between even and straight ones.
    """
    weight = _weight(system, axis, side, uneven)
    # A slope along an angle is one along the length of the arc.
    if axis == "theta":
        weight = _times(weight, _PLACES["r"])
    own = of_cell(letter, "width") if letter in uneven else ONE
    return _times(own, weight) if weight != ONE else own


def _weight(system: Coordinates, axis: str, side: int, uneven: frozenset[str]) -> Node:
    if not system.is_curved or axis == "z":
        return ONE

    text = {
        ("cylindrical", "r"): "1 + s*h/r",
        ("cylindrical", "theta"): "1/r**2",
        ("spherical", "r"): "(r + s*h)**2/(r**2 + h**2/12)",
        ("spherical", "theta"): "sin(theta + s*a)*a/(2*sin(a/2)*sin(theta))/(r**2 + h**2/12)",
    }[system.kind, axis]
    return formula(text, **_own_spacings(uneven), **_PLACES, s=Constant(side / 2))


def linear(name: str, spacing: Sequence[float], accuracy: Accuracy) -> Sums:
    """The weighted sums of a linear operator.

    Args:
        name: of the operator; `dx_minus` or `dx-` and `dx_plus` or `dx+` are one-sided, of first
            order.
        spacing: of the grid, array order [m].
        accuracy: order of the others.
    """
    ndim = len(spacing)
    if name in _catalogue_names():
        stencil = named_stencil(_catalogue_names()[name]).stencil
        return [(ONE, dict(zip(stencil.offsets, stencil.weights, strict=True)))]

    axes = {axis: ndim - 1 - number for number, axis in enumerate(AXIS_NAMES[:ndim])}
    second = {axis: along(central(2, accuracy), axes[axis], ndim) for axis in axes}
    if name == "laplace":
        return _merged([((axis, axis), second[axis]) for axis in axes], axes, spacing)
    if name == "biharmonic":
        pairs = [
            ((a, a, b, b), times_number(1 if a == b else 2, compose(second[a], second[b])))
            for a, b in itertools.combinations_with_replacement(axes, 2)
        ]
        return _merged(pairs, axes, spacing)

    word = name[1:].replace("_plus", "+").replace("_minus", "-")
    letters = [it for it in word if it not in "+-="]
    if len(letters) == 2 and letters[0] == letters[1]:
        return _merged([((letters[0],) * 2, second[letters[0]])], axes, spacing)
    first = []
    for axis in letters:
        end = word[word.index(axis) + 1 :][:1]
        weights = central(1, accuracy)
        if end in ("+", "-"):
            ends = (0, 1) if end == "+" else (-1, 0)
            weights = {(ends[0],): Fraction(-1), (ends[1],): Fraction(1)}
        first.append(along(weights, axes[axis], ndim))
    weights = first[0] if len(first) == 1 else compose(first[0], first[1])
    return _merged([(tuple(letters), weights)], axes, spacing)


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


def as_plate(node: Operation, twice: Collection[str], by: Reader) -> Node | None:
    """The second derivative of second derivatives as one operator of fourth order, of fields that
    have two conditions on a face; None if it is something else.
    """
    seconds = {"laplace", *(("dxx",) if by.ndim == 1 else ())}
    if node.name not in seconds or not names_in(node).intersection(twice):
        return None
    inside: list[Node] = []
    rest: list[Node] = []
    for before, part in parts_of(node.arguments[0], by.hoist):
        if isinstance(part, Operation) and part.name in seconds:
            inside.append(Operation("multiply", (before, part.arguments[0])))
        else:
            rest.append(Operation("multiply", (before, part)))

    # Deeper operators would be of more than fourth order, for which two conditions are too few.
    if not inside or any(map(has_operators, inside)):
        return None
    terms = [Operation("biharmonic", (it,)) for it in inside]
    terms += [Operation(node.name, (it,)) for it in rest]
    return functools.reduce(lambda a, b: Operation("add", (a, b)), terms)


_ORDERS = {"laplace": 2, "biharmonic": 4, "div_grad": 2, "grad_squared": 1, "advect": 1}


def order_of(tree: Node, name: str) -> int:
    """How often a formula differentiates a field, at most."""
    if name not in names_in(tree) or isinstance(tree, Variable | Constant):
        return 0
    parts = tree.arguments if isinstance(tree, Operation) else tree.operands
    below = max(order_of(it, name) for it in parts)
    if not isinstance(tree, Operation) or tree.name in OPERATIONS:
        return below
    word = tree.name.partition("(")[0]
    word = word.removesuffix("_plus").removesuffix("_minus")
    letters = len(word) - 1 if {*word[1:]} <= {*AXIS_NAMES} else 0
    return below + (1 if is_flux(tree.name) else _ORDERS.get(word, letters))


# Axes whose cells differ in width. Every cell has numbers of its own, in units of the spacing h,
# which is the width of the narrowest cell: h by its width, h by the distances between its centre
# and those beside it, and how far from the centre of the lower cell the face between two lies, as a
# share of that distance. A ghost is as wide as the cell at the end.


def cell_numbers(grid: Grid, periodic: Sequence[bool]) -> dict[str, Callable[[Ranges], Numbers]]:
    """The numbers of cells along graded axes as functions of a box, by the names of `of_cell`.

    Args:
        grid: the points.
        periodic: per axis, array order.
    """
    found: dict[str, Callable[[Ranges], Numbers]] = {}
    for axis in range(grid.ndim) if grid.is_graded else ():
        letter = AXIS_NAMES[grid.ndim - 1 - axis]
        if letter not in uneven_axes(grid):
            continue
        # Beyond a periodic face lies the other end, beyond any other one the mirror image.
        h, widths = grid.spacing[axis], grid.widths(axis)
        around = np.pad(widths, 1, mode="wrap" if periodic[axis] else "edge")
        both, shares = around[:-1] + around[1:], around[:-1] / (around[:-1] + around[1:])
        numbers = {"width": h / widths, "-": 2 * h / both[:-1], "+": 2 * h / both[1:]}
        numbers |= {"share-": shares[:-1], "share+": shares[1:]}

        for which, values in numbers.items():
            along = values.reshape([-1 if k == axis else 1 for k in range(grid.ndim)])
            found[of_cell(letter, which).name] = functools.partial(_in_box, along, axis)
    return found


def _in_box(along: Numbers, axis: int, box: Ranges) -> Numbers:
    part = along[(slice(None),) * axis + (slice(*box[axis]),)]
    return np.broadcast_to(part, [high - low for low, high in box])


def on_wide_cells(boundary: Boundary, grid: Grid) -> Boundary:
    """The same for ghosts a spacing away, where an axis is graded and its last cells are wider: a
    slope counts by as much more as the ghost is farther.
    """

    def scaled(face: Face, axis: int, side: int) -> Face:
        if not isinstance(face, Neumann | Robin):
            return face
        # Kernels know one spacing an axis, and a ghost follows from spacing by conductivity.
        width = float(grid.widths(axis)[-side])
        return replace(face, conductivity=face.conductivity * grid.spacing[axis] / width)

    if not grid.is_graded:
        return boundary
    return Boundary(
        tuple(
            (scaled(pair[0], axis, 0), scaled(pair[1], axis, 1))
            for axis, pair in enumerate(boundary.faces)
        )
    )


def uneven_axes(grid: Grid) -> frozenset[str]:
    """The letters of the axes whose cells differ in width."""
    letters = AXIS_NAMES[: grid.ndim][::-1]
    return frozenset(it for it, ends in zip(letters, grid.edges, strict=False) if ends is not None)


def of_cell(letter: str, which: str) -> Variable:
    """A number of each cell along a graded axis: its `width`, the distance to the next centre (`+`)
    and the one before (`-`), or the `share+` and `share-` of the lower cell in these.
    """
    return Variable(f"@{letter} {which}")


def mean_at_face(
    ends: tuple[Node, Node], share: Node | None, *, harmonic: bool = False, scale: float = 1.0
) -> Node:
    """A multiple of the mean of what lies below a face and above it.

    Args:
        ends: what lies below and above.
        share: where the face lies between both centres, from 0 to 1; None for halfway.
        harmonic: of two parts in series, with nothing where one lets nothing through; else that of
            a straight line.
        scale: the factor.
    """
    a, b = ends
    if harmonic and share is None:
        return formula("where(a*b > 0, k*a*b/(a + b), 0)", k=Constant(2 * scale), a=a, b=b)
    line = formula("a + s*(b - a)", s=share or Constant(0.5), a=a, b=b)
    if harmonic:
        return formula("where(a*b > 0, k*a*b/w, 0)", k=Constant(scale), a=a, b=b, w=line)
    return line if scale == 1 else _times(Constant(scale), line)


def share_at_face(letter: str, face: int, uneven: frozenset[str]) -> Node | None:
    """Where the face above (0) or below (-1) a point lies between two centres, as `mean_at_face`
    takes it.
    """
    return of_cell(letter, "share+" if face == 0 else "share-") if letter in uneven else None


def cell_mistakes(
    grid: GridSection, trees: Mapping[str, Node], accuracy: Accuracy, first: Collection[str]
) -> Iterator[tuple[KeyPath, str]]:
    """Yield what cannot be computed where cells differ in width, or around an axis or a centre.

    Args:
        grid: as written.
        trees: the right-hand sides by field.
        accuracy: order of the operators.
        first: fields with equations of first order in time.
    """

    def called(known: Callable[[str], bool]) -> Iterator[tuple[KeyPath, str]]:
        for name, tree in trees.items():
            for part in walk(tree):
                if not isinstance(part, Operation) or part.name in OPERATIONS:
                    continue
                if not known(part.name):
                    key = "equation" if name in first else "second_order"
                    yield ("model", "fields", name, key), part.name

    if accuracy != 2 and (grid.graded or grid.system.is_curved):
        what = "grid.graded" if grid.graded else f"grid.coordinates: {grid.coordinates}"
        yield ("model", "accuracy"), f"it is 2 with {what}"
    if grid.graded:
        for path, name in called(lambda name: not _is_even_only(name)):
            yield path, f"{name} takes points at equal distances; leave grid.graded out"

    # Beyond r = 0 lies the cell at the opposite angle, which only symmetry makes the mirror.
    bounds = dict(zip(grid.names, grid.bounds, strict=True))
    if not grid.system.is_curved or "theta" not in grid.names or bounds["r"][0] > 0:
        return
    along_r = {"d" + "".join(it) for it in derivatives(grid.names) if "r" in it}
    along_r |= {it.replace("d", "d_", 1) for it in along_r} | {"advect", "grad_squared"}
    for path, name in called(lambda name: name not in along_r and not _is_limited(name)):
        told = f"{name} is a difference along r, which does not reach across r = 0"
        instead = (
            "write it as flux(...), without a limiter" if name == "advect" else "leave theta out"
        )
        if is_flux(name):
            instead = "leave its limiter out"
        yield path, f"{told} to the opposite angle; let grid.origin.r be above 0, or {instead}"


def _is_even_only(name: str) -> bool:
    return name in _catalogue_names() or _is_limited(name)


def _is_limited(name: str) -> bool:
    return is_flux(name) and limiter_of(name) != "none"
