"""Equations: any system of partial differential equations in time, from formulas of the user."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from tetris_sim.apps.domain import (
    KeyPath,
    between_looks,
    check_numbers,
    make_grid,
    refuse,
    times_of,
)
from tetris_sim.apps.pde.additions import (
    AbsorbingLayer,
    MovingFrame,
    PointSource,
    frame_mistakes,
    layer_mistakes,
    mirrored,
    real_sources,
    seen_from,
    source_mistakes,
    with_layers,
    with_sources,
)
from tetris_sim.apps.pde.build import assemble_equations, error_of_a_step
from tetris_sim.apps.pde.complex import IMAGINARY, PARTS, UNIT, Pair, Part, in_parts
from tetris_sim.apps.pde.fields import (
    FieldSection,
    NamedFields,
    boundary_mistakes,
    drives_of,
    face_mistakes,
    faces_of,
    field_boundary,
    givens_of,
    initial_mistakes,
    make_initials,
    part_of_face,
    resting,
)
from tetris_sim.apps.pde.fluxes import Accuracy, Advection, Space, carried_by_themselves
from tetris_sim.apps.pde.language import (
    FileConstant,
    Language,
    Mistake,
    constraint_in,
    name_mistakes,
    number_mistakes,
    read_constant,
    read_constants,
    with_definitions,
)
from tetris_sim.apps.pde.operators import (
    cell_mistakes,
    cell_numbers,
    on_wide_cells,
    uneven_axes,
)
from tetris_sim.apps.pde.parts import Parts, WholeNumbers, with_constraints, with_wholes
from tetris_sim.apps.pde.runge_kutta import tolerance_mistakes
from tetris_sim.apps.pde.schemes import Scheme, System, simplest_scheme, velocity_of
from tetris_sim.apps.pde.stability import grow_shortest
from tetris_sim.apps.pde.wholes import Calculus, measure_mistakes, measures_of, noise_in
from tetris_sim.apps.time_functions import names_in
from tetris_sim.config.sections.conditions import FaceCondition, FaceName
from tetris_sim.config.sections.quantities import Section
from tetris_sim.config.sections.schema import SPLIT, MeasureSection, Request
from tetris_sim.model.formula import (
    Constant,
    ExpressionError,
    Node,
    Operation,
    Variable,
)
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import PAIRS, InitialField, Problem, StateVariable, Total, state_dtype

ConstantValue = Annotated[float | str | FileConstant, BeforeValidator(read_constant)]
_IMAGINARY = Operation(IMAGINARY, (Constant(1.0),))
# Messages name the character of the text in which a mistake was found.
_CHARACTER = re.compile(r"\(character \d+ of")
_SCHEMES = ("euler", "rk2", "ssprk3", "rk4", "leapfrog", "rkl2")


class PdeModel(Section):
    """Partial differential equations, du/dt or d2u/dt2 of one field or several, from formulas."""

    type: Literal["pde"]
    constants: dict[str, ConstantValue] = Field(default={})
    """By name: numbers, with units if you like (they are SI then), formulas of x, y, z, t and
    other constants, or files of a number at every point, as in `k: {path: k.npy}`.
    """
    definitions: dict[str, str] = Field(default={})
    """By name: formulas of fields, constants and other definitions, with operators, that equations
    may have.
    """
    fields: NamedFields
    """By name."""
    point_sources: tuple[PointSource, ...] = ()
    """Points anywhere, at which signals over time are added to equations."""
    frame: MovingFrame | None = None
    """A grid that moves through what the equations describe."""
    absorbing: dict[FaceName, AbsorbingLayer] = Field(default={})
    """Layers along faces, by the names of `boundaries`, that absorb waves."""
    accuracy: Accuracy = 2
    """Order of the differential operators."""
    advection: Advection = "upwind"
    """How `advect` looks around: upwind is of first order and never oscillates, central is of the
    order `accuracy`.
    """
    noise: Calculus = "ito"
    """In whose sense a factor of `noise(variance, seed)` that depends on fields is meant."""
    allow_growth: bool = False
    """Whether a given time.dt is accepted that is larger than the largest stable step."""

    def problems(self, request: Request) -> Iterable[tuple[KeyPath, str] | Mistake]:
        """Yield conflicts between this section and the others, each with its key path."""
        told: set[KeyPath] = set()
        for it in self._problems(request):
            # Both parts of a complex field have the mistakes of what was written once.
            mistake = self._as_written(it) if self._parts_of else it
            if not self._parts_of or mistake[0] not in told:
                yield mistake
            told.add(mistake[0])

    def _as_written(self, mistake: tuple[KeyPath, str] | Mistake) -> tuple[KeyPath, str] | Mistake:
        """A mistake in a part of a complex field, at the key of that field."""
        path, told, *rest = mistake
        if path[:2] != ("model", "fields") or path[2] not in self._parts_of:
            return mistake
        name, which = self._parts_of[str(path[2])]
        below = path[3:]
        if which == "imag" and below and getattr(self.fields[name], f"{below[0]}_imag", None):
            below = (f"{below[0]}_imag", *below[1:])
        return _unwrapped((*path[:2], name, *below), told, rest[0] if rest else None)

    def _problems(self, request: Request) -> Iterator[tuple[KeyPath, str] | Mistake]:
        ndim, time = request.ndim, request.time
        axes = request.grid.names if request.grid.system.is_curved else ()
        yield from self._misplaced(request)
        for key, section, what in (
            ("fields", self.names, "field"),
            ("constants", self.constants, "constant"),
            ("definitions", self.definitions, "definition"),
        ):
            for name, sentence in name_mistakes(section, ndim, what, axes):
                yield ("model", key, name), sentence
        for name in self.constants.keys() & {*self.names}:
            yield ("model", "constants", name), f"{name} is a field already; choose another name"
        for name in self.definitions.keys() & {*self.names, *self.constants}:
            told = f"{name} is a field or a constant already; choose another name"
            yield ("model", "definitions", name), told
        velocities = {velocity_of(name) for name, it in self.fields.items() if it.second_order}
        for name in velocities & self.fields.keys():
            yield ("model", "fields", name), f"{name} is the velocity of a field already"
        for name, (of, _) in self._parts_of.items():
            if name in self.fields:
                told = f"{name} is a part of the complex field {of} already; choose another name"
                yield ("model", "fields", name), told

        language, mistakes = self._language(request)
        yield from mistakes
        if not mistakes:
            trees, wrong = self._formulas(language)
            yield from wrong
            yield from cell_mistakes(request.grid, trees, self.accuracy, [*self._first])
            yield from number_mistakes(trees, [*self._first, *self._given], language.numbers)
            yield from measure_mistakes(request, language)
            for key, condition in request.boundaries.items():
                kinds = {it.complex for it in self.fields.values()}
                if False in kinds:
                    yield from face_mistakes(("boundaries", key), condition, language)
                if True in kinds:
                    face = part_of_face(condition, "real")
                    for mistake in face_mistakes(("boundaries", key), face, language):
                        yield _unwrapped(*mistake)
            moved = {name: trees[name] for name in (*self._first, *self._second) if name in trees}
            yield from frame_mistakes(
                self.frame, request.grid, language, [*self._second], matched=self._matches
            )
            yield from layer_mistakes(
                self.absorbing, request.grid, request.boundaries, language, moved
            )
            yield from source_mistakes(
                self.point_sources,
                request.grid,
                {name: it.complex for name, it in self.fields.items()},
                language,
            )
        for name, it in self.real_fields.items():
            path: KeyPath = ("model", "fields", name)
            common = self._common_faces(name, request)
            yield from boundary_mistakes(
                (*path, "boundaries"), it.boundaries, common, language, request.grid.graded
            )
            for key in ("initial", "initial_velocity"):
                if (section := getattr(it, key)) is not None:
                    yield from initial_mistakes(
                        (*path, key), section, language.numbers, language.axes
                    )
        if time.scheme == "spectral" and time.tolerance is not None:
            yield ("time", "tolerance"), "a jump has no errors that it could bound; leave it out"
        elif not time.solves and time.scheme not in SPLIT:
            yield from tolerance_mistakes(time, self.scheme(request))
        if not (self._first or self._second):
            told = (
                "0 = ... gives it, and nothing changes with time; take scheme steady for u' = ..."
            )
            yield ("model", "fields", next(iter(self.fields))), told
        if not mistakes and self.scheme(request) == "leapfrog":
            # A constraint is solved for at a moment that velocities have not reached.
            behind = {velocity_of(name) for name in self._second}
            for name in self._given.keys() & trees.keys():
                if read := sorted(names_in(trees[name]) & behind):
                    told = (
                        f"leapfrog keeps {read[0]} half a step before the fields, and 0 = ... "
                        "would read it then; take scheme: rk4"
                    )
                    yield ("model", "fields", name, "equation"), told
        if time.scheme == "leapfrog" and self._matches:
            yield ("time", "scheme"), "a pml has fields with equations; take rk4, or kind: sponge"
        if time.scheme == "leapfrog" and (first := [*self._first]):
            yield (
                ("time", "scheme"),
                f"leapfrog is for fields with second_order, and {first[0]} has an equation; take "
                "rk4",
            )

    def _language(self, request: Request) -> tuple[Language, list[Mistake]]:
        """The names that formulas may have, and what is wrong with them."""
        axes = request.grid.names if request.grid.system.is_curved else ()
        language, mistakes = read_constants(
            self.constants, self.seen_names, request.ndim, axes, self._pairs
        )
        if mistakes:
            return language, mistakes
        return with_definitions(language, self.definitions)

    def _misplaced(self, request: Request) -> Iterator[tuple[KeyPath, str]]:
        if request.initial is not None:
            yield ("initial",), "each field has its own; write it under model.fields"
        if request.time.cfl is not None:
            yield ("time", "cfl"), "it is for heat conduction; give dt, or dt: auto"
        if request.compute.precision == "float16":
            yield (
                ("compute", "precision"),
                "equations are computed in float64 or float32, not in float16",
            )

    @functools.cached_property
    def real_fields(self) -> dict[str, FieldSection]:
        """The fields, each complex one as two of real numbers."""
        found: dict[str, FieldSection] = {}
        for name, it in self.fields.items():
            parts = {f"{name}_{which}": it.part(which) for which in PARTS} if it.complex else {}
            found |= parts or {name: it}
        return found

    @functools.cached_property
    def _parts_of(self) -> dict[str, tuple[str, Part]]:
        """Which part of which complex field a name is."""
        names = [name for name, it in self.fields.items() if it.complex]
        return {f"{name}_{which}": (name, which) for name in names for which in PARTS}

    @property
    def _pairs(self) -> dict[str, Pair]:
        """The parts of what is complex, by the names that formulas may have."""
        found: dict[str, Pair] = {}
        for name, it in self.fields.items():
            if it.complex:
                real, imaginary = (f"{name}_{which}" for which in PARTS)
                found[name] = Variable(real), Variable(imaginary)
                if it.second_order is not None:
                    pair = Variable(velocity_of(real)), Variable(velocity_of(imaginary))
                    found[velocity_of(name)] = pair
        others = {*self.names, *self.constants, *self.definitions}
        return found | ({UNIT: in_parts(_IMAGINARY, {})} if found and UNIT not in others else {})

    def _common_faces(self, name: str, request: Request) -> Mapping[str, FaceCondition]:
        """What holds on the faces for all fields, of one of the real ones."""
        if name not in self._parts_of:
            return request.boundaries
        _, which = self._parts_of[name]
        return {key: part_of_face(it, which) for key, it in request.boundaries.items()}

    @property
    def _matches(self) -> bool:
        """Whether a layer has auxiliary fields."""
        return any(it.kind == "pml" for it in self.absorbing.values())

    @property
    def names(self) -> tuple[str, ...]:
        """The fields as they are written, parts and velocities."""
        return tuple(dict.fromkeys((*self.seen_names, *self.fields)))

    @property
    def seen_names(self) -> tuple[str, ...]:
        """The fields of real numbers, velocities among them."""
        names = []
        for name, it in self.real_fields.items():
            names += [name, velocity_of(name)] if it.second_order is not None else [name]
        return tuple(names)

    @property
    def _given(self) -> dict[str, str]:
        """F of 0 = F, by field."""
        given = self.real_fields.items()
        found = {name: constraint_in(it.equation or "") for name, it in given}
        return {name: text for name, text in found.items() if text is not None}

    @property
    def _first(self) -> dict[str, str]:
        given = self.real_fields.items()
        moved = {name: it.equation for name, it in given if it.equation is not None}
        return {name: text for name, text in moved.items() if constraint_in(text) is None}

    @property
    def _second(self) -> dict[str, str]:
        given = self.real_fields.items()
        return {name: it.second_order for name, it in given if it.second_order is not None}

    def _formulas(self, language: Language) -> tuple[dict[str, Node], list[Mistake]]:
        """The right-hand sides by field, and what is wrong with them."""
        trees: dict[str, Node] = {}
        mistakes: list[Mistake] = []
        sections = (
            ("equation", self._first),
            ("equation", self._given),
            ("second_order", self._second),
        )

        for key, formulas in sections:
            for name, text in formulas.items():
                try:
                    trees[name] = language.read(text)
                except ExpressionError as error:
                    path = ("model", "fields", name, key)
                    # Columns count from where the text begins, before 0 =.
                    before = len(getattr(self.real_fields[name], key) or "") - len(text)
                    told = ExpressionError(error.message, error.column + before)
                    mistakes.append((path, str(told), told.column))
        return trees, mistakes

    def scheme(self, request: Request) -> Scheme:
        """The scheme asked for, or the simplest that fits."""
        if request.time.scheme in _SCHEMES:
            return request.time.scheme  # type: ignore[return-value]
        language, _ = self._language(request)
        trees, _ = self._formulas(language)
        if request.time.scheme == "milstein" or any(map(noise_in, trees.values())):
            return "euler"
        first, second = (
            [trees[name] for name in it if name in trees] for it in (self._first, self._second)
        )
        if self._matches:
            first.append(Constant(0.0))  # of auxiliary fields
        return simplest_scheme(first, second, adaptive=request.time.tolerance is not None)

    def build(self, request: Request, *, dt: float | None = None) -> Problem:
        """The problem that the configuration describes.

        Args:
            request: the other sections.
            dt: the time step of a run that is continued [s].

        Raises:
            ConfigError: the sections do not fit together.
            UnstableStepError: the time step is larger than the largest stable one.
        """
        refuse((path, sentence) for path, sentence, *_ in self.problems(request))
        parts = self._parts(request, continued=dt is not None)
        time = between_looks(request)
        problem = assemble_equations(
            *(parts, time),
            dt=dt,
            grows=self.allow_growth,
            adaptive=request.time.is_adaptive,
            times=times_of(request),
        )
        equations, boundaries = problem.equations, [problem.boundary]
        if time.scheme == "spectral" and equations is not None:
            msg = (
                f"{time.scheme} is for equations of one field that are linear, with constant "
                "numbers and nothing that is added, and these are not; leave it out"
            )
            refuse([(("time", "scheme"), msg)])
        for boundary in boundaries if equations is None else equations.boundaries.values():
            check_numbers(problem.stencil, boundary, parts.grid, parts.dtype)

        # What has become a stencil can be followed in time without an error, and is, unless a
        # scheme is asked for.
        jumps = equations is None and time.scheme in ("spectral", "auto")
        pairs = request.compute.precision == PAIRS
        return replace(problem, pairs=pairs, continuous=jumps)

    def _parts(self, request: Request, *, continued: bool) -> Parts:
        grid = make_grid(request.grid)
        language, _ = self._language(request)
        trees, _ = self._formulas(language)
        # Faces by field: ghosts of kernels, what is added to them, and what is given otherwise.
        boundaries, drives, givens = {}, {}, {}
        for name, it in self.real_fields.items():
            faces = faces_of(it.boundaries, self._common_faces(name, request), language)
            boundaries[name] = field_boundary(faces, language.axes)
            drives[name] = drives_of(name, faces, language, self.accuracy)
            givens[name] = givens_of(faces, language, self.accuracy)
            if it.second_order is not None:
                boundaries[velocity_of(name)] = resting(boundaries[name])
                # Of velocities it is not known how they change on a face.
                drives[velocity_of(name)] = [replace(one, course=None) for one in drives[name]]
        boundaries = {name: on_wide_cells(it, grid) for name, it in boundaries.items()}
        drives = {
            name: [replace(one, unit=on_wide_cells(one.unit, grid)) for one in every]
            for name, every in drives.items()
            if every
        }
        signals = real_sources(self.point_sources, self._parts_of)
        # Layers come first: what they stretch is the equation itself, not what sources add.
        moved = {name: trees[name] for name in (*self._first, *self._second)}
        moved = seen_from(moved, self.frame, language)
        any_faces = next(iter(boundaries.values()))
        moved, memory = with_layers(
            *(moved, self._second, self.absorbing, grid, language, self.accuracy, any_faces)
        )
        trees |= moved
        boundaries |= dict.fromkeys(memory, mirrored(any_faces))
        trees, spread = with_sources(trees, signals, grid, boundaries, language)
        system = System(
            {name: trees[name] for name in self._first} | memory,
            {name: trees[name] for name in self._second},
            language.numbers,
            Space(
                *(grid.spacing, self.accuracy, self.advection),
                system=grid.system,
                uneven=uneven_axes(grid),
            ),
            order=(*self.seen_names, *memory),
            arrays={
                name: it.open(grid, name)
                for name, it in self.constants.items()
                if isinstance(it, FileConstant)
            }
            | spread
            | cell_numbers(grid, [any_faces.periodic(axis) for axis in range(grid.ndim)]),
            elliptic={name: trees[name] for name in self._given},
        ).with_wholes(grid, self.noise, milstein=request.time.scheme == "milstein")
        system = replace(system, drives=drives).with_faces(boundaries, grid, givens)

        dtype = state_dtype(request.compute.precision)
        initial = self._initial(request, grid, dtype, [*memory], continued=continued)
        return Parts(
            grid=grid,
            system=system,
            scheme=self.scheme(request),
            boundaries=boundaries,
            initial=initial,
            variables=self._variables(grid.dimensions)
            + tuple(variable(it, "1", f"{it} of absorbing layers", grid.ndim) for it in memory),
            dtype=dtype,
        )

    def measured(self, request: Request) -> Mapping[str, MeasureSection]:
        """The formulas of `output.statistics`, and where a moving grid is, by column."""
        found = measures_of(request)
        if self.frame is None or request.output.statistics is None:
            return found
        places = {f"frame_{axis}": f"({it})*t" for axis, it in self.frame.velocity.items()}
        where = {k: MeasureSection(formula=it, unit="m") for k, it in places.items()}
        return {**found, **where}

    def measures(self, request: Request) -> WholeNumbers:
        """The formulas of `output.statistics`, for any state.

        Args:
            request: the configuration.

        Raises:
            ConfigError: a field is read beyond a face where it is not defined.
        """
        language, _ = self._language(request)
        trees = {name: language.read(it.formula) for name, it in self.measured(request).items()}
        # The initial state, whose files may be gone, is none of those that are looked at.
        return WholeNumbers(self._parts(request, continued=True), trees)

    def notes(self, request: Request) -> tuple[str, ...]:
        """Return notes for the user about equations that can be computed."""
        parts = with_wholes(with_constraints(self._parts(request, continued=False)))
        grown = grow_shortest(parts.system, parts.grid, parts.values(0.0), parts.initial)

        # Notes are no mistakes: both kinds of equations can be meant.
        found = [
            f"waves of {name} as short as two points grow fastest, as with negative diffusion: the "
            "answer will depend on the grid; is a sign wrong?"
            for name in grown
        ]

        if given := ", ".join(parts.system.elliptic):
            size = parts.grid.n_points * 8 * (len(parts.system.kept) + 3) / 1e6
            found.append(
                f"{given}: solved for on the whole grid in every stage, on the host of every rank, "
                f"which takes about {size:.3g} MB there"
            )
        for name, tree in parts.system.right_sides.items():
            found += [
                f"{it} in the equation of {name} is carried by itself, and advect conserves "
                f"nothing: where it steepens to a shock, that runs at the wrong speed; write "
                f"flux({it}**2/2) for advect({it}, {it})"
                for it in carried_by_themselves(tree)
            ]
        return tuple(found)

    def notes_of_steps(self, request: Request, dt: float) -> Iterator[str]:
        """How accurate explicit steps of one length are.

        Args:
            request: the configuration.
            dt: the step [s].
        """
        time = request.time
        if time.solves or time.tolerance is not None or time.scheme in ("spectral", "auto", *SPLIT):
            return
        parts = self._parts(request, continued=False)
        if parts.system.noises or parts.system.elliptic:
            return  # halves of a step have other noise, and the reference holds what is solved for
        error = error_of_a_step(parts, dt)
        if error > 0:
            yield (
                f"a step of {self.scheme(request)} of {dt:.3g} s is off by about {error:.1g} of "
                "the largest value at the initial state, by halving it; errors of steps add up"
            )

    def _initial(
        self,
        request: Request,
        grid: Grid,
        dtype: np.dtype[Any],
        memory: Sequence[str],
        *,
        continued: bool,
    ) -> InitialField:
        sections: list[tuple[str, object]] = []
        for name, it in self.real_fields.items():
            sections.append((name, it.initial))
            if it.second_order is not None:
                sections.append((velocity_of(name), it.initial_velocity))
        sections += [(name, None) for name in memory]
        numbers = {k: v for k, v in self.constants.items() if isinstance(v, float)}

        def make() -> InitialField:
            return make_initials(sections, numbers, grid, dtype)  # type: ignore[arg-type]

        # A file of initial values may be gone when a run is continued.
        return (lambda slab: make()(slab)) if continued else make()

    def _variables(self, ndim: int) -> tuple[StateVariable, ...]:
        found = []
        for name, it in self.real_fields.items():
            names = [(name, it.unit, it.long_name or name)]
            if it.second_order is not None:
                unit = "1/s" if it.unit == "1" else f"{it.unit}/s"
                names.append((velocity_of(name), unit, f"velocity of {it.long_name or name}"))
            found += [variable(*it, ndim) for it in names]
        return tuple(found)


def _unwrapped(path: KeyPath, told: str, column: int | None) -> Mistake:
    """A mistake in real(...) or imag(...), as one of what stands in the brackets."""
    if column is None:
        return path, told, None
    column = max(1, column - len("real("))
    return path, _CHARACTER.sub(f"(character {column} of", told), column


def variable(name: str, unit: str, long_name: str, ndim: int) -> StateVariable:
    """One field of the state, whose integral has its unit times a volume."""
    volume = "m" if ndim == 1 else f"m^{ndim}"
    return StateVariable(
        name, unit, long_name, Total("integral", volume if unit == "1" else f"{unit} {volume}", 1.0)
    )
