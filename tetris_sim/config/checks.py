"""Checks across the sections of a configuration: do they fit together, and does the model fit?

Each check receives sections that are valid by themselves. A check whose sections are not all valid
is left out, so that one pass reports everything that can be said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tetris_sim.apps.boundaries import find_face, patches
from tetris_sim.apps.initial import unusable_constant
from tetris_sim.apps.time_functions import read_condition
from tetris_sim.config.section_checks import keys_of, wanted
from tetris_sim.config.sections.conditions import (
    OF_EQUATIONS,
    AxisFace,
    ConstantInitial,
    ExchangeFace,
    ExpressionInitial,
    FaceCondition,
    GaussianInitial,
    InitialSection,
    NeumannFace,
    PeriodicFace,
    RandomInitial,
    control_mistakes,
)
from tetris_sim.config.sections.grid import GridSection, closed_faces
from tetris_sim.config.sections.quantities import ANGLES, split_unit
from tetris_sim.config.sections.schema import (
    SPLIT,
    CheckpointSection,
    ComputeSection,
    FieldsSection,
    OutputSection,
    Request,
    TimeSection,
)
from tetris_sim.config.sections.varying import Varying
from tetris_sim.errors import Finding, KeyPath
from tetris_sim.model.formula import ExpressionError, compile_expression
from tetris_sim.scheduler.machine.machine import named_devices
from tetris_sim.support.wording import describe, listed

# Does the model fit the other sections?

_OF_EQUATIONS = ("euler", "rk2", "ssprk3", "rk4", "leapfrog", "rkl2", "milstein", *SPLIT)


def check_cells(grid: GridSection, model: Any) -> Iterator[Finding]:
    """Refuse cells that differ for models whose weights are the same everywhere."""
    if grid.graded and model.type not in ("heat", "pde"):
        yield Finding(
            ("grid", "graded"),
            f"model.type: {model.type} makes the same step at every point, so its cells are alike; "
            "take model.type: heat or pde, or leave graded out",
            at_key=True,
        )
    if grid.system.is_curved and model.type == "stencil":
        yield Finding(
            ("grid", "coordinates"),
            "model.type: stencil makes the same step at every point, and around an axis steps "
            "differ; take model.type: heat or pde, or leave coordinates out",
            at_key=True,
        )


def check_scheme(time: TimeSection, model: Any) -> Iterator[Finding]:
    """Refuse schemes of equations for other models.

    Whether equations allow spectral propagation or a solver is known only when they are built.
    """
    if time.scheme in _OF_EQUATIONS and model.type != "pde":
        yield Finding(
            ("time", "scheme"),
            f"{time.scheme} is for model.type: pde; leave it out with model.type: {model.type}",
        )


def check_faces(boundaries: Mapping[str, FaceCondition], model: Any) -> Iterator[Finding]:
    """Refuse faces and names of equations for other models."""
    for path, section in patches(boundaries):
        if model.type != "heat" and isinstance(section, ExchangeFace) and not section.is_linear:
            name = next(iter(section.correlations), "radiation")
            message = f"{name} is for the faces of a body, model: {{type: heat}}"
            yield Finding(("boundaries", *path, name), message)
    if model.type == "pde":
        return
    for path, section in patches(boundaries):
        if isinstance(section, OF_EQUATIONS):
            yield Finding(
                ("boundaries", *path, "type"),
                f"{section.type} is for model.type: pde; model.type: {model.type} has dirichlet, "
                "fixed, neumann, robin and periodic faces",
            )

        # Names of constants and fields were let through, since only equations know them.
        parts: list[tuple[KeyPath, Any]] = [(("boundaries", *path), section)]
        for number, term in enumerate(getattr(section, "radiation", ())):
            parts.append((("boundaries", *path, "radiation", number), term))
        for at, part in parts:
            for name, about in type(part).model_fields.items():
                kinds = [it for it in about.metadata if isinstance(it, Varying)]
                given = getattr(part, name)
                if kinds and isinstance(given, str) and (told := kinds[0].mistake(given)):
                    yield Finding((*at, name), told)


def check_until(grid: GridSection, time: TimeSection, model: Any) -> Iterator[Finding]:
    """Refuse conditions that end a run which cannot be read."""
    if time.until is None or time.until.condition is None:
        return
    # Here, and not where the run begins, so that the mistake has its line.
    try:
        read_condition(time.until.condition, model, grid.names)
    except ExpressionError as error:
        yield Finding(("time", "until", "condition"), error.message, character=error.column)


def check_initial(sections: Mapping[str, Any], values: Mapping[str, Any]) -> Iterator[Finding]:
    """Require an initial state of a model whose fields have none of their own.

    Args:
        sections: the sections that are valid by themselves, by key.
        values: the configuration as written, for a model that is invalid.
    """
    model = values.get("model")
    kind = model.get("type") if isinstance(model, Mapping) else None
    # `initial` is absent from `sections` only if it was written and is invalid, which has been
    # reported; the default then keeps this check silent.
    if sections.get("initial", model) is None and kind != "pde":
        initial = keys_of(Request)["initial"]
        yield Finding(("initial",), f"missing; {wanted(initial)} is wanted")


def check_in_space(config: Request, model: Any) -> Iterator[Finding]:
    """Mistakes that only other files and an evaluation at all points can show."""
    # An optional hook: not every model has anything to check in space.
    if hasattr(model, "problems_in_space"):
        for path, message in model.problems_in_space(config):
            yield Finding(tuple(path), message)


def check_model(sections: Mapping[str, Any]) -> Iterator[Finding]:
    """Mistakes that the model finds, with harmless sections in place of invalid ones."""
    # Never used for computing: they only complete a request that the model checks.
    harmless = {
        "initial": ConstantInitial(type="constant", value=0.0),
        "boundaries": {"*": NeumannFace(type="neumann")},
        "time": TimeSection(steps=1),
    }

    # The harmless sections let `Request` validate; findings about them are dropped below.
    names = [field.alias or name for name, field in Request.model_fields.items()]
    request = Request.model_validate(
        harmless | {name: sections[name] for name in names if name in sections}
    )

    yield from _controlled(request, sections["model"])
    if hasattr(sections["model"], "problems"):
        for path, message, *character in sections["model"].problems(request):
            if path[0] == "model" or path[0] in sections:
                yield Finding(tuple(path), message, character=next(iter(character), None))


def _controlled(request: Request, model: Any) -> Iterator[Finding]:
    """Sensors and controllers of sources, faces or probes that do not exist."""
    if request.control and model.type != "heat":
        told = (
            "controllers act on sources and faces of model.type: heat; with other models use until"
        )
        yield Finding(("control",), told, at_key=True)
        return
    sources = getattr(model, "sources", ())
    names = {
        "fields": tuple(getattr(model, "seen_names", ("temperature",))),
        "regions": tuple(it.name for it in getattr(model, "regions", ()) if it.name is not None),
        "sources": tuple(it.name for it in sources if it.name is not None),
    }
    for path, told in control_mistakes(request, names, request.time.scheme == "steady"):
        yield Finding(path, told)


Boundaries = Mapping[str, FaceCondition]

# Lengths [m] beyond which squares and volumes come close to the limits of a double.
_SMALLEST, _LARGEST = 1e-30, 1e30
# float64 is absent: it holds every number that can be written.
_LARGEST_NUMBER = {"float32": 3.4e38, "float32x2": 3.4e38, "float16": 65504.0}
# Output files per run, one for each output time.
_MOST_FILES = 1_000_000


def check_together(sections: Mapping[str, Any]) -> Iterator[Finding]:
    """Mistakes in how valid sections fit together.

    Args:
        sections: the sections that are valid by themselves, by key.
    """
    # Each check with the sections that it takes as arguments.
    checks: tuple[tuple[Callable[..., Iterator[Finding]], tuple[str, ...]], ...] = (
        (_lengths, ("grid",)),
        (_faces, ("grid", "boundaries")),
        (check_cells, ("grid", "model")),
        (_center, ("grid", "initial")),
        (_expression, ("grid", "initial")),
        (_probes, ("grid", "output")),
        (_parts, ("grid", "output")),
        (_over, ("grid", "output", "model")),
        (_moments, ("time", "output")),
        (_numbers_in_precision, ("compute", "initial", "boundaries")),
        (_shares, ("compute",)),
        (_method, ("compute",)),
        (_amount_of_output, ("time", "output")),
        (_checkpoints, ("time", "checkpoint")),
        (check_scheme, ("time", "model")),
        (check_until, ("grid", "time", "model")),
        (check_faces, ("boundaries", "model")),
    )

    for check, names in checks:
        if all(name in sections for name in names):
            yield from check(*(sections[name] for name in names))
    if "grid" in sections and "model" in sections:
        yield from check_model(sections)


def mixed_units(values: Mapping[str, Any]) -> Iterator[Finding]:
    """Lengths of which some have a unit and some have none: one was probably forgotten.

    Args:
        values: the configuration as written, by key.
    """
    grid = values.get("grid")
    for name in ("size", "spacing"):
        lengths = grid.get(name) if isinstance(grid, Mapping) else None
        if not isinstance(lengths, list):
            continue

        # Looks at the text, because validated lengths are all plain numbers.
        bare = [it for it in lengths if isinstance(it, int | float)]
        united = [it for it in lengths if isinstance(it, str) and it.strip()[-1:].isalpha()]
        united = [it for it in united if split_unit(it)[1] not in ANGLES]
        if bare and united:
            yield Finding(
                ("grid", name),
                f"{bare[0]:g} stands beside {united[0]!r} without a unit, and counts as "
                f"{bare[0]:g} m",
            )


def _axes(grid: GridSection) -> str:
    names = grid.names
    return f"{len(names)} {'axis' if len(names) == 1 else 'axes'} ({listed(names, 'and')})"


def _lengths(grid: GridSection) -> Iterator[Finding]:
    # Report the length at the key that the user wrote.
    name = "size" if grid.size is not None else "spacing" if grid.spacing is not None else "shape"
    for axis, (n, (low, high)) in enumerate(zip(grid.shape, grid.bounds, strict=True)):
        length = high - low
        if not (length / n > _SMALLEST and length < _LARGEST):
            yield Finding(
                ("grid", name, axis),
                f"{n} points over {length:g} m were found; a spacing above {_SMALLEST:g} m and a "
                f"length below {_LARGEST:g} m are wanted",
            )


def _faces(grid: GridSection, boundaries: Boundaries) -> Iterator[Finding]:
    axes = grid.names
    yield from _closed(grid, boundaries)
    boundaries = {**boundaries, **closed_faces(grid, boundaries)}
    for key in boundaries:
        if key != "*" and key.rstrip("+-") not in axes:
            yield Finding(
                ("boundaries", key),
                f"the grid has {_axes(grid)}, so there is no face {key}",
                at_key=True,
            )

    # A path of one part is a whole face, not an entry of a list.
    for path, face in patches(boundaries):
        if len(path) == 1 and getattr(face, "where", None) is not None:
            yield Finding(
                ("boundaries", *path, "where"),
                "where is for the entries of a list of parts of a face; write the face as a list",
                at_key=True,
            )

    missing = [
        axis + sign for axis in axes for sign in "-+" if find_face(boundaries, axis + sign) is None
    ]
    if missing:
        yield Finding(
            ("boundaries",),
            (
                f"no condition is given for {listed(missing, 'and')}; name each face, its axis, or "
                "'*' for the rest"
            ),
        )

    # Periodicity is a property of an axis: both faces have it or neither.
    for axis in axes:
        low, high = (find_face(boundaries, axis + sign) for sign in "-+")
        if low is None or high is None:
            continue
        if isinstance(boundaries[low], PeriodicFace) != isinstance(boundaries[high], PeriodicFace):
            periodic = low if isinstance(boundaries[low], PeriodicFace) else high
            yield Finding(
                ("boundaries", periodic),
                f"{axis}- and {axis}+ are joined if periodic, so both or neither must be; "
                f"write {axis}: {{type: periodic}} for both",
            )


def _closed(grid: GridSection, boundaries: Boundaries) -> Iterator[Finding]:
    """Conditions where a body of revolution has no face: at its axis, and across a full circle."""
    system = grid.system
    # By face, why it takes no condition.
    closed: dict[str, str] = {}
    for name, (low, high) in zip(grid.names, grid.bounds, strict=True):
        for face, at in ((f"{name}-", low), (f"{name}+", high)):
            if system.is_ring(name, high - low):
                closed[face] = f"a full circle of {name} is periodic by itself"
            elif system.is_pole(name, at):
                where = f"{name} = {at:g}" if not at else "theta = 180 deg"
                closed[face] = f"{where} is the axis, which has no face and takes no condition"
                if name == "r" and grid.coordinates == "spherical":
                    closed[face] = "r = 0 is the centre, which has no face and takes no condition"

    for key, condition in boundaries.items():
        faces = [key] if key[-1] in "+-" else [key + sign for sign in "-+"]
        told = next((closed[face] for face in faces if face in closed), None)
        fits = AxisFace if told is None or "periodic" not in told else PeriodicFace
        if told is not None and key != "*" and not isinstance(condition, fits):
            others = [face for face in faces if face not in closed]
            advice = f"write {others[0]}" if others else "leave it out"
            yield Finding(("boundaries", key), f"{told}; {advice}", at_key=True)


def _position(path: KeyPath, position: tuple[float, ...], grid: GridSection) -> Iterator[Finding]:
    if len(position) != len(grid.shape):
        message = (
            f"{describe(position)} was found; the grid has {_axes(grid)}, so list "
            f"{len(grid.shape)} coordinates"
        )
        yield Finding(path, message)
        return

    for axis, (coordinate, ends) in enumerate(zip(position, grid.bounds, strict=True)):
        if not ends[0] <= coordinate <= ends[1]:
            yield Finding((*path, axis), _outside(grid, grid.names[axis], coordinate, ends))


def _outside(grid: GridSection, axis: str, coordinate: float, ends: tuple[float, float]) -> str:
    unit = grid.system.unit(axis)
    return (
        f"{axis} = {coordinate:g} {unit} is outside the box, which reaches from {ends[0]:g} to "
        f"{ends[1]:g} {unit}"
    )


def _center(grid: GridSection, initial: InitialSection | None) -> Iterator[Finding]:
    if isinstance(initial, GaussianInitial) and "theta" in grid.names:
        yield Finding(
            ("initial", "type"),
            "a gaussian takes the distance along straight axes, and theta is an angle; write it as "
            "type: expression",
        )
    if isinstance(initial, GaussianInitial) and initial.center is not None:
        yield from _position(("initial", "center"), initial.center, grid)


def _probes(grid: GridSection, output: OutputSection) -> Iterator[Finding]:
    for number, probe in enumerate(output.probes):
        yield from _position(("output", "probes", number, "at"), probe.at, grid)


def _parts(grid: GridSection, output: OutputSection) -> Iterator[Finding]:
    lengths = dict(zip(grid.names, grid.bounds, strict=True))
    for number, part in enumerate(output.parts):
        path: KeyPath = ("output", "parts", number)
        # Axes that the grid does not have, then positions outside the box, in ranges and in cuts.
        for key, axes in (("box", part.box), ("slice", part.slice)):
            for axis in axes.keys() - lengths.keys():
                message = f"the grid has {_axes(grid)}, so there is no axis {axis}"
                yield Finding((*path, key, axis), message, at_key=True)

        bounds = [("box", axis, place) for axis in part.box for place in part.box[axis]]
        cuts = [("slice", axis, place) for axis, place in part.slice.items()]
        for key, axis, place in (*bounds, *cuts):
            # Faces belong to the box, so positions on them are allowed.
            ends = lengths.get(axis)
            if ends is not None and not ends[0] <= place <= ends[1]:
                yield Finding((*path, key, axis), _outside(grid, axis, place, ends))

        if part.slice.keys() >= lengths.keys():
            yield Finding((*path, "slice"), "no axis is left uncut; a probe is for a single place")


def _over(grid: GridSection, output: OutputSection, model: Any) -> Iterator[Finding]:
    lengths = dict(zip(grid.names, grid.bounds, strict=True))
    over = {} if output.statistics is None else output.statistics.over
    if output.statistics and output.statistics.formulas and model.type != "pde":
        yield Finding(("output", "statistics", "formulas"), "it is for model.type: pde", True)
    for name, part in over.items():
        path: KeyPath = ("output", "statistics", "over", name)
        if not part.box and model.type != "heat":
            yield Finding(path, f"model.type: {model.type} has no bodies; give a box")

        for axis, (low, high) in part.box.items():
            if axis not in lengths:
                message = f"the grid has {_axes(grid)}, so there is no axis {axis}"
                yield Finding((*path, "box", axis), message, at_key=True)
            elif low < lengths[axis][0] or high > lengths[axis][1]:
                ends = " to ".join(f"{end:g}" for end in lengths[axis])
                unit = grid.system.unit(axis)
                message = f"the box of the grid reaches from {ends} {unit} along {axis}"
                yield Finding((*path, "box", axis), message)


def _fields(output: OutputSection) -> Iterator[tuple[KeyPath, FieldsSection]]:
    """The sections that write fields, each with its key path."""
    if output.fields is not None:
        yield ("output", "fields"), output.fields
    for number, part in enumerate(output.parts):
        yield ("output", "parts", number), part


def _moments(time: TimeSection, output: OutputSection) -> Iterator[Finding]:
    end = math.inf if time.t_end is None else time.t_end
    for path, section in _fields(output):
        if section.at and time.scheme == "steady":
            wanted = "a steady state is of no time; write every: 1 step instead"
            yield Finding((*path, "at"), wanted, at_key=True)
            continue
        for number, moment in enumerate(section.at):
            # One rounding of slack: a time may equal t_end in another unit.
            if moment > end * (1 + 1e-12):
                yield Finding(
                    (*path, "at", number),
                    f"{moment:g} s is after the end of the run, time.t_end = {end:g} s",
                )


def _expression(grid: GridSection, initial: InitialSection | None) -> Iterator[Finding]:
    if not isinstance(initial, ExpressionInitial):
        return
    positions = grid.names
    lengths = tuple(f"L{axis}" for axis in positions)
    for name in initial.constants:
        # The constants join the names that the expression may use, so check their names first.
        why_not = unusable_constant(name, grid.names)
        if why_not is not None:
            yield Finding(("initial", "constants", name), why_not, at_key=True)

    try:
        compile_expression(initial.expression, [*positions, *lengths, *initial.constants])
    except ExpressionError as error:
        yield Finding(("initial", "expression"), str(error), character=error.column)


def _numbers_in_precision(
    compute: ComputeSection, initial: InitialSection | None, boundaries: Boundaries
) -> Iterator[Finding]:
    largest = _LARGEST_NUMBER.get(compute.precision)
    if largest is None:
        return

    names: tuple[str, ...] = ()
    # Of expressions and files the values are not known here.
    if isinstance(initial, ConstantInitial | GaussianInitial | RandomInitial):
        names = ("value", "amplitude", "background", "low", "high")
    numbers: list[tuple[KeyPath, float]] = [
        (("initial", name), getattr(initial, name, 0.0)) for name in names
    ]

    for path, face in patches(boundaries):
        other = "flux" if isinstance(face, NeumannFace) else "value"
        name = "ambient" if hasattr(face, "ambient") else other
        if name == "flux" and compute.precision == "float16":
            continue  # a flux is not stored; what it makes of the points next to the face is
        number = getattr(face, name, 0.0)
        if isinstance(number, float):
            numbers.append((("boundaries", *path, name), number))

    # Beyond this magnitude a value would become infinity when it is stored.
    for path, number in numbers:
        if abs(number) > largest:
            yield Finding(
                path,
                (
                    f"{number:g} was found; with compute.precision: {compute.precision} numbers "
                    f"reach to {largest:g} only"
                ),
            )


def _shares(compute: ComputeSection) -> Iterator[Finding]:
    named = named_devices(compute)
    count = len(named) or 1
    # For gpu and cpu+gpu the number of devices depends on the machine, not known here.
    counted = bool(named) or compute.devices in ("cpu", "auto")  # of others the machine knows
    if counted and not isinstance(compute.shares, str) and len(compute.shares) != count:
        yield Finding(
            ("compute", "shares"),
            (
                f"{describe(compute.shares)} was found; compute.devices names {count}, so list "
                "one share for each"
            ),
        )

    # Each CPU worker is a group of at least one thread; unnamed devices need one group.
    teams = sum(device.computes_on == "cpu" for device in named) if named else 1
    if not isinstance(compute.threads, str) and compute.threads < teams:
        yield Finding(
            ("compute", "threads"),
            (
                f"{compute.threads} was found; compute.devices names {teams} teams, and each needs "
                "a thread"
            ),
        )


def _method(compute: ComputeSection) -> Iterator[Finding]:
    if compute.parameters and compute.method == "auto":
        yield Finding(
            ("compute", "parameters"),
            (
                "parameters belong to one method, and compute.method is auto; name the method, or "
                "leave them out"
            ),
        )
    if compute.reserve_cores and compute.threads != "auto":
        yield Finding(
            ("compute", "reserve_cores"),
            f"{compute.reserve_cores} was found; compute.threads says already how many cores are "
            "used, so leave one of the two out",
        )


def _steps(time: TimeSection) -> float | None:
    """The number of steps, as far as the section alone says it."""
    if time.scheme == "steady":
        return 1.0
    if time.steps is not None:
        # Up to 2**53 an int converts to a float exactly.
        return float(min(time.steps, 2**53))
    if isinstance(time.dt, float) and time.t_end is not None:
        return time.t_end / time.dt
    return None


def _amount_of_output(time: TimeSection, output: OutputSection) -> Iterator[Finding]:
    """A file per output time: a slip in a unit must not fill a disk with millions of them."""
    steps = _steps(time)
    if steps is None:
        return

    for path, section in _fields(output):
        every = section.every
        if every is None:
            continue
        if every.unit == "steps":
            files = steps / every.value
        elif time.t_end is not None:
            # At most one file per step, however short the interval.
            files = min(steps, time.t_end / every.value)
        else:
            continue  # the time step is not known yet; `plan` and `run` check the disk

        if files > _MOST_FILES:
            yield Finding(
                (*path, "every"),
                (
                    f"every {every} makes {files:.3g} files, one per output time; at most "
                    f"{_MOST_FILES} are allowed"
                ),
            )


def _checkpoints(time: TimeSection, checkpoint: CheckpointSection) -> Iterator[Finding]:
    every, steps = checkpoint.every, _steps(time)
    # With `at_end` there is a checkpoint in any case.
    if every is None or checkpoint.at_end:
        return

    never = (every.unit == "steps" and steps is not None and every.value > steps) or (
        every.unit == "s" and time.t_end is not None and every.value > time.t_end
    )
    if never:
        yield Finding(
            ("checkpoint", "every"),
            f"every {every} is longer than the run, and at_end is false, so there would never be "
            "a checkpoint; shorten it or set checkpoint.at_end: true",
        )
