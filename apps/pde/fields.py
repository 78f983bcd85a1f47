"""The fields of equations: their sections, what they are at time 0, and their ghosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from tetris_sim.apps.boundaries import find_face, make_boundary
from tetris_sim.apps.domain import KeyPath
from tetris_sim.apps.initial import make_initial, unusable_constant
from tetris_sim.apps.pde.complex import (
    ComplexError,
    Part,
    as_text,
    has_complex,
    part_of_initial,
    real_tree,
)
from tetris_sim.apps.pde.language import Language, Mistake, constraint_in
from tetris_sim.apps.pde.simplify import scalar_value
from tetris_sim.apps.time_functions import TIME, TimeFunction, formula, names_in, read_course
from tetris_sim.config.sections.conditions import (
    AxisFace,
    CurvatureFace,
    ExpressionInitial,
    FaceCondition,
    FaceName,
    FixedFace,
    FreeFace,
    GaussianInitial,
    InitialSection,
    NeumannFace,
    PeriodicFace,
    RadiationFace,
    RobinFace,
)
from tetris_sim.config.sections.quantities import TEMPERATURE, Section
from tetris_sim.config.sections.varying import COMPLEX_FUNCTIONS, TimeTable, Varying
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import (
    SIDES,
    Boundary,
    Derivatives,
    Dirichlet,
    Face,
    Fixed,
    Neumann,
    NoFlux,
    Robin,
)
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import (
    Constant,
    ExpressionError,
    Node,
    Operation,
    Variable,
    compile_expression,
)
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Field as State
from tetris_sim.model.problem import InitialField
from tetris_sim.model.slab import Ranges, Slab

# Faces of fields that change with time: what beyond them is not a multiple of the mirror point.
#
# A ghost is b * mirror + p(t) a, with a and b as of a face whose given number is 1. What is the
# same multiple for all time, b, is the boundary of the field; a is a coefficient that is 0 at the
# points of the grid. So wherever a formula reads a field beside its point, p(t) times that
# coefficient is added, at the time of the stage that reads, and no kernel knows of it.

_MOST_ROWS = 2000  # of a table that becomes a formula


@dataclass(frozen=True, eq=False)
class Drive:
    """Time-dependent condition on a face of a field.

    Attributes:
        name: of its coefficient.
        axis: array order.
        side: 0 or 1.
        course: what the face is given, a formula of t; None where it is not given.
        unit: the boundary of the field with 1 given on this face.
    """

    name: str
    axis: int
    side: int
    course: Node | None
    unit: Boundary

    @property
    def holds(self) -> bool:
        """Whether the value itself is given."""
        return isinstance(self.unit.faces[self.axis][self.side], Dirichlet | Fixed)

    def beyond(self, grid: Grid) -> Callable[[Ranges], Numbers]:
        """The coefficient in any box of global indices: ghosts of a field that is 0, axis 0 first,
        later axes over the extended range.
        """

        def of_box(box: Ranges) -> Numbers:
            result = np.ones([high - low for low, high in box])
            for axis, (low, high) in enumerate(box):
                along = np.ones(high - low) * (axis != self.axis)
                for side in range(2):
                    own = axis == self.axis and side == self.side
                    n, spacing = grid.shape[axis], grid.spacing[axis]
                    width = -low if side == 0 else high - n
                    if width <= 0 or self.unit.periodic(axis) or not (own or axis > self.axis):
                        continue
                    pairs = self.unit.reflections(axis, SIDES[side], spacing=spacing, width=width)

                    numbers = np.array([pair[0 if own else 1] for pair in pairs])
                    near = max(0, low - n) if side else max(0, -high)
                    if side == 0:
                        along[: width - near] = numbers[::-1][: width - near]
                    else:
                        along[len(along) - (width - near) :] = numbers[near:]
                result *= along.reshape([-1 if k == axis else 1 for k in range(len(box))])
            return result

        return of_box


_GIVEN = {  # what a face is given, by its type, in the order of its conditions
    "dirichlet": ("value",),
    "fixed": ("value",),
    "neumann": ("flux",),
    "robin": ("ambient",),
    "clamped": ("value", "slope"),
    "supported": ("value", "curvature"),
    "curvature": ("curvature",),
}


def _given(condition: FaceCondition) -> dict[str, float | str | TimeTable]:
    """The numbers and formulas of a face, by key; none of one that equations do not have."""
    if isinstance(condition, tuple):
        return {}
    return {key: getattr(condition, key) for key in _GIVEN.get(condition.type, ())}


def settled(condition: FaceCondition, language: Language) -> FaceCondition:
    """The same face, with numbers for formulas of constants.

    Raises:
        ExpressionError: a formula cannot be used.
    """
    # A constant is a number of the problem, so that linear equations stay stencils.
    numbers = {}
    names = ("h",) if isinstance(condition, RobinFace) else ()
    for key in (*_given(condition), *names):
        given = getattr(condition, key)
        if isinstance(given, str):
            tree = language.read_face(given)
            if names_in(tree) <= language.numbers.keys():
                numbers[key] = scalar_value(tree, language.numbers)
    if not numbers or isinstance(condition, tuple):
        return condition
    return condition.model_copy(update=numbers)


def _course(given: float | str | TimeTable, key: str, language: Language) -> Node:
    """A number, formula or table of a face as a formula."""
    if isinstance(given, str):
        return language.read_face(given)
    return _as_formula(read_course(given, Varying(TEMPERATURE, (TIME,)), f"boundaries.{key}"))


def changing_key(condition: FaceCondition, language: Language) -> str | None:
    """Which number of a face changes with time and nothing else, as constants may; None if it is
    another face.
    """
    given = _given(condition)
    if len(given) != 1 or isinstance(condition, CurvatureFace):
        return None
    ((key, it),) = given.items()
    if isinstance(it, TimeTable):
        return key
    if not isinstance(it, str):
        return None
    return key if names_in(language.read_face(it)) <= {TIME, *language.numbers} else None


def with_numbers(condition: FaceCondition, number: float) -> FaceCondition:
    """The same face, with a number for each formula."""
    formulas = {k: number for k, it in _given(condition).items() if not isinstance(it, float)}
    if isinstance(condition, tuple) or not formulas:
        return condition
    return condition.model_copy(update=formulas)


def drives_of(
    field: str, faces: Mapping[str, FaceCondition], language: Language, accuracy: int
) -> list[Drive]:
    """The faces of a field whose number changes, and which are mirrors all the same.

    Args:
        field: its name.
        faces: the section of each face.
        language: of formulas.
        accuracy: order of the operators.

    Raises:
        ConfigError: a table cannot be read.
    """
    found = []
    for axis, side, name, condition in _each(faces, language):
        # Polynomials take their numbers at each stage; a ghost ring is no polynomial.
        key = changing_key(condition, language)
        if key is None or (accuracy > 2 and not isinstance(condition, FixedFace)):
            continue
        course = _course(getattr(condition, key), key, language)
        others = {face: with_numbers(it, float(face == name)) for face, it in faces.items()}
        unit = make_boundary(others, language.ndim, conductivity=1.0, axes=language.axes)
        found.append(Drive(f"{field} at {name}", axis, side, course, unit))
    return found


def givens_of(
    faces: Mapping[str, FaceCondition], language: Language, accuracy: int
) -> dict[tuple[int, int], tuple[Node | None, ...]]:
    """The formulas of faces that are no mirrors, by axis and side."""
    found: dict[tuple[int, int], tuple[Node | None, ...]] = {}
    for axis, side, _, condition in _each(faces, language):
        given = _given(condition)
        if all(isinstance(it, float) for it in given.values()):
            continue
        # Of time alone and on a mirror: a drive, which costs one coefficient.
        driven = changing_key(condition, language) is not None
        if driven and (accuracy == 2 or isinstance(condition, FixedFace)):
            continue
        courses = (_course(it, key, language) if it else None for key, it in given.items())
        found[axis, side] = tuple(courses)
    return found


def _each(
    faces: Mapping[str, FaceCondition], language: Language
) -> Iterator[tuple[int, int, str, FaceCondition]]:
    """(axis, side, name, section) of each face."""
    for axis, letter in enumerate(reversed(language.axes)):
        for side, sign in enumerate("-+"):
            if (condition := faces.get(letter + sign)) is not None:
                yield axis, side, letter + sign, condition


def _as_formula(course: TimeFunction) -> Node:
    """A course as a formula of t; of a table the sum of its rises."""
    if course.rows is None:
        return course.tree
    if len(course.rows) > _MOST_ROWS:
        msg = f"boundaries: a table over time of equations has {_MOST_ROWS} rows at most"
        raise ConfigError(msg)
    parts: list[Node] = [Constant(float(course.rows[0, 1]))]
    for (t0, v0), (t1, v1) in zip(course.rows[:-1], course.rows[1:], strict=True):
        if t1 == t0:  # a jump
            jump = {"s": Constant(float(v1 - v0)), "a": Constant(float(t0))}
            parts.append(formula("s if t >= a else 0", t=Variable(TIME), **jump))
            continue
        slope = Constant(float((v1 - v0) / (t1 - t0)))
        ends = {"a": Constant(float(t0)), "b": Constant(float(t1))}
        rise = formula("s*(clip(t, a, b) - a)", s=slope, t=Variable(TIME), **ends)
        parts.append(rise)

    while len(parts) > 1:  # no deeper than it has to be
        pairs = zip(parts[::2], parts[1::2], strict=False)
        rest = parts[-1:] if len(parts) % 2 else []
        parts = [*(Operation("add", pair) for pair in pairs), *rest]
    return parts[0]


class FieldSection(Section):
    """One field: how it changes, and how it begins."""

    equation: str | None = None
    """Its derivative by time, a formula of fields, constants, x, y, z [m], t [s]; or `0 = ...`."""
    complex: bool = False
    """Whether it is complex: formulas then may have 1j, and files have NAME_real and NAME_imag."""
    second_order: str | None = None
    """Instead of `equation`: its second derivative by time. Its velocity is a field besides, called
    NAME_velocity.
    """
    initial: InitialSection | None = None
    """State at time 0; with `0 = ...` at most its mean counts, where faces give no value."""
    initial_imag: InitialSection | None = None
    """With `complex`: its imaginary part, beside which `initial` is the real part alone. If not
    given, an expression may be complex, and others are real.
    """
    initial_velocity: InitialSection | None = None
    """With `second_order`: its derivative by time at time 0; 0 if not given."""
    initial_velocity_imag: InitialSection | None = None
    """Likewise of the imaginary part."""
    boundaries: dict[FaceName, FaceCondition] = Field(default={})
    """Of this field, instead of what the top level says of the same faces; an axis is periodic for
    all fields or for none.
    """
    unit: str = "1"
    """For files and pictures."""
    long_name: str | None = None
    """Likewise; the name of the field if not given."""

    @model_validator(mode="after")
    def _one_equation(self) -> FieldSection:
        if (self.equation is None) == (self.second_order is None):
            msg = "give either equation (its derivative by time) or second_order (the second one)"
            raise ValueError(msg)
        if self.initial_velocity is not None and self.second_order is None:
            msg = "initial_velocity belongs to second_order; a field with an equation has none"
            raise ValueError(msg)
        for key in ("initial_imag", "initial_velocity_imag"):
            if getattr(self, key) is not None and not self.complex:
                msg = f"{key} belongs to complex: true; a real field has no imaginary part"
                raise ValueError(msg)
        if self.initial is None and constraint_in(self.equation or "") is None:
            msg = "initial is missing: what the field is at time 0"
            raise ValueError(msg)
        return self

    def part(self, which: Part) -> FieldSection:
        """The real or the imaginary part of a complex field, as a field of real numbers."""

        def of(text: str | None) -> str | None:
            # Before 0 = ... stays what there is, so that columns count as they did.
            inner = None if text is None else (constraint_in(text) or text)
            return text and inner and f"{text[: -len(inner)]}{which}({inner})"

        keys = ("initial", "initial_velocity")
        initials = {
            key: part_of_initial(getattr(self, key), getattr(self, f"{key}_imag"), which)
            for key in keys
        }
        texts = {key: of(getattr(self, key)) for key in ("equation", "second_order")}
        faces = {key: part_of_face(it, which) for key, it in self.boundaries.items()}
        name = self.long_name and f"{which} part of {self.long_name}"
        return self.model_copy(
            update={**texts, **initials, "boundaries": faces, "complex": False, "long_name": name}
        )


def part_of_face(condition: FaceCondition, which: Part) -> FaceCondition:
    """Condition of the real or the imaginary part of a complex field on a face."""
    if isinstance(condition, tuple):
        return condition
    # Numbers and tables are real.
    given = {
        key: f"{which}({it})" if isinstance(it, str) else it if which == "real" else 0.0
        for key, it in _given(condition).items()
    }
    return condition.model_copy(update=given)


def faces_of(
    own: Mapping[str, FaceCondition], common: Mapping[str, FaceCondition], language: Language
) -> dict[str, FaceCondition]:
    """Return the conditions of a field by face."""
    found = {}
    for name in (axis + sign for axis in language.axes for sign in "-+"):
        if (condition := _one_of(own, common, name)) is not None:
            found[name] = settled(condition, language)
    return found


def field_boundary(faces: Mapping[str, FaceCondition], axes: Sequence[str]) -> Boundary:
    """The ghosts of a field, without what changes with time; a flux is its slope along the outward
    normal.
    """
    numbers = {name: with_numbers(it, 0.0) for name, it in faces.items()}
    return make_boundary(numbers, len(axes), conductivity=1.0, axes=axes)


def resting(boundary: Boundary) -> Boundary:
    """The ghosts of the velocity of a field: what is given does not change."""

    def rests(face: Face) -> Face:
        match face:
            case Dirichlet():
                return Dirichlet(0.0)
            case Fixed():
                return Fixed(0.0)
            case Derivatives(orders=orders):
                return Derivatives(orders=orders, values=(0.0,) * len(orders))
            case NoFlux():
                return face
            case Neumann():
                return Neumann()
            case Robin(h=h, conductivity=k):
                return Robin(h, 0.0, k)
        return face

    return Boundary(tuple((rests(low), rests(high)) for low, high in boundary.faces))


_MIRRORS = ("dirichlet", "fixed", "neumann", "robin", "periodic")
_BY_POLYNOMIALS = ("clamped", "supported", "free", "curvature", "extrapolate")


def boundary_mistakes(
    path: KeyPath,
    own: Mapping[str, FaceCondition],
    common: Mapping[str, FaceCondition],
    language: Language,
    graded: Collection[str] = (),
) -> Iterator[Mistake]:
    """Yield the mistakes in the faces of one field."""
    axes = language.axes
    for key, condition in own.items():
        if key != "*" and key.rstrip("+-") not in axes:
            told = f"the grid has {len(axes)} axes, so there is no face {key}"
            yield (*path, key), told, None
        else:
            yield from face_mistakes((*path, key), condition, language)

    faces = {name: _one_of(own, common, name) for name in (a + b for a in axes for b in "-+")}
    if language.round_axes:
        yield from _around(path, own, faces)
    for name, face in faces.items():
        own_key = find_face(own, name)
        where = ("boundaries", name) if own_key is None else (*path, own_key)
        type_of = getattr(face, "type", None)
        if name[:-1] in graded and type_of in _BY_POLYNOMIALS:
            told = f"{type_of} takes points at equal distances, and {name[:-1]} is graded"
            yield where, f"{told}; take {', '.join(_MIRRORS)} or no_flux", None
    for axis in axes:
        kinds = [isinstance(faces[axis + sign], PeriodicFace) for sign in "-+"]
        joined = [isinstance(_common(common, axis + sign), PeriodicFace) for sign in "-+"]
        if kinds != joined and own:
            told = f"{axis} is periodic for all fields or for none; say so in boundaries"
            yield path, told, None


def _one_of(
    own: Mapping[str, FaceCondition], common: Mapping[str, FaceCondition], name: str
) -> FaceCondition | None:
    key = find_face(own, name)  # what closes by itself does so for every field
    if key in (None, "*") and isinstance(common.get(name), AxisFace | PeriodicFace):
        return common[name]
    return own[key] if key is not None else _common(common, name)


def _around(
    path: KeyPath,
    own: Mapping[str, FaceCondition],
    faces: Mapping[str, FaceCondition | None],
) -> Iterator[Mistake]:
    """Yield the mistakes in faces around an axis or a centre."""
    for name, face in faces.items():
        if face is None or isinstance(face, tuple):
            continue
        where = (*path, key) if (key := find_face(own, name)) else ("boundaries", name)
        if face.type not in (*_MIRRORS, "no_flux"):
            told = f"{face.type} is for straight axes; take {', '.join(_MIRRORS)} or no_flux"
            yield where, told, None
        # A ghost is mirrored with one slope for the whole face, and arcs differ in length.
        elif name.startswith("theta") and (
            isinstance(face, RobinFace) or (isinstance(face, NeumannFace) and face.flux != 0)
        ):
            yield where, f"{name} takes a value of the field, or no slope (neumann)", None


_NUMBERS = (
    "a face of equations takes one condition: dirichlet, fixed, neumann, robin, no_flux, clamped, "
    "supported, free, curvature, extrapolate or periodic, for the whole face"
)


def face_mistakes(path: KeyPath, condition: FaceCondition, language: Language) -> Iterator[Mistake]:
    """Yield the mistakes in one face of equations."""
    if isinstance(condition, tuple | RadiationFace):
        yield path, _NUMBERS, None
        return
    keys = (*_given(condition), *(("h",) if isinstance(condition, RobinFace) else ()))
    for key in keys:
        given = getattr(condition, key)
        if not isinstance(given, str):
            continue
        try:
            names = names_in(language.read_face(given))
        except ExpressionError as error:
            yield (*path, key), str(error), error.column
            continue

        # h is in the weights of the ghosts, which are numbers.
        if key == "h" and not names <= language.numbers.keys():
            yield (*path, key), "h of equations is a number, or a formula of constants", None
        if isinstance(condition, FixedFace) and not names <= {TIME, *language.numbers}:
            told = "a fixed face of equations takes a number or a formula of t; take dirichlet"
            yield (*path, key), told, None

    if isinstance(condition, RobinFace) and condition.flux != 0:
        yield (*path, "flux"), "a flux beside convection is for heat; put it into ambient", None
    if isinstance(getattr(condition, "h", 0.0), TimeTable):
        yield (*path, "h"), "h of equations is a number, or a formula of constants", None
    if isinstance(condition, FreeFace) and language.ndim > 1:
        told = (
            "the free edge of a plate depends on its Poisson's ratio, so free is for one axis; "
            "take clamped or supported"
        )
        yield path, told, None


def _common(common: Mapping[str, FaceCondition], name: str) -> FaceCondition | None:
    key = find_face(common, name)
    return None if key is None else common[key]


def initial_mistakes(
    path: KeyPath,
    section: InitialSection,
    constants: Mapping[str, float],
    axes: Sequence[str],
) -> Iterator[Mistake]:
    """Yield the mistakes in an initial section that show without the grid."""
    center = section.center if isinstance(section, GaussianInitial) else None
    if center is not None and len(center) != len(axes):
        told = f"it has {len(center)} entries; the grid has {len(axes)} axes"
        yield (*path, "center"), told, None
    if isinstance(section, GaussianInitial) and "theta" in axes:
        told = "a gaussian takes the distance along straight axes; write it as type: expression"
        yield (*path, "type"), told, None
    if not isinstance(section, ExpressionInitial):
        return
    for name in section.constants:
        if (why_not := unusable_constant(name, axes)) is not None:
            yield (*path, "constants", name), why_not, None

    try:
        names = [*axes, *(f"L{axis}" for axis in axes), *constants, *section.constants]
        real_tree(compile_expression(section.expression, names, COMPLEX_FUNCTIONS).tree, {})
    except ExpressionError as error:
        yield (*path, "expression"), str(error), error.column
    except ComplexError as error:
        yield (*path, "expression"), str(error), None


def make_initials(
    sections: Sequence[tuple[str, InitialSection | None]],
    constants: Mapping[str, float],
    grid: Grid,
    dtype: np.dtype[Any],
) -> InitialField:
    """The state of several fields at time 0 as a function of a slab.

    Args:
        sections: by name of a field; None for 0.
        constants: that expressions may have besides their own.
        grid: where the points lie.
        dtype: of the state.

    Raises:
        ConfigError: a file is missing or has another shape.
    """
    makers = [
        None
        if section is None
        else make_initial(_known(section, constants, grid.axis_names), grid, dtype, name)
        for name, section in sections
    ]

    def initial(slab: Slab) -> State:
        state = np.zeros((len(makers), *slab.shape), dtype)
        for number, make in enumerate(makers):
            if make is not None:
                state[number] = make(slab)[0]
        return state

    return initial


def _known(
    section: InitialSection, constants: Mapping[str, float], axes: Sequence[str]
) -> InitialSection:
    if not isinstance(section, ExpressionInitial):
        return section
    usable = {
        name: value for name, value in constants.items() if unusable_constant(name, axes) is None
    }
    usable |= section.constants
    names = [*axes, *(f"L{axis}" for axis in axes), *usable]
    tree = compile_expression(section.expression, names, COMPLEX_FUNCTIONS).tree
    text = as_text(real_tree(tree, {})) if has_complex(tree, {}) else section.expression
    return section.model_copy(update={"constants": usable, "expression": text})


NamedFields = Annotated[dict[str, FieldSection], Field(min_length=1, max_length=32)]
