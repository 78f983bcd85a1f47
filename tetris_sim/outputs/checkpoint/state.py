"""RunState: the state besides the field that a run needs to continue as if never interrupted."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.model.boundary import SIDES, Boundary
from tetris_sim.model.conduction import Conduction, Rule, RuledFace
from tetris_sim.model.equations import Equations
from tetris_sim.model.formula import Comparison, Constant, Node, Operation, Variable
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Instruction
from tetris_sim.model.slab import Ranges, batches

# Digests of bodies and equations: everything that determines the bits of a step without a stencil.

_POINTS = 1 << 22  # points digested at a time
_LONGEST = 1_000_000  # parts of a formula that is digested as it is written
_STEPS = 64  # first steps whose numbers are digested, where they change with time


def conduction_digest(problem: Problem) -> str:
    """SHA-256 of a body, in hexadecimal: ids, tables, coefficients, curves, and the rules of source
    and faces.

    Of numbers that change with time it covers the first steps. Later ones may never be used; they
    belong to the configuration, which is compared separately.
    """
    assert problem.conduction is not None
    return _digest(problem.conduction, problem.boundary, problem.grid.shape, problem.dt)


@functools.lru_cache(maxsize=4)  # each checkpoint needs it, and a body is as large as its grid
def _digest(conduction: Conduction, boundary: Boundary, shape: tuple[int, ...], dt: float) -> str:
    found, medium, given = hashlib.sha256(), conduction.medium, conduction.coefficients
    whole = tuple((0, n) for n in shape)

    _add_points(found, medium.ids, whole)
    # A body by ids has tables per id; one with coefficients has values per face and cell.
    if given is None:
        for table in (medium.conductance, medium.capacity):
            found.update(np.ascontiguousarray(table, np.float64).tobytes())
    else:
        for axis in range(len(shape)):
            # All faces normal to an axis, the outermost ones included: one more than cells.
            faces = (*whole[:axis], (-1, shape[axis]), *whole[axis + 1 :])
            _add_points(found, functools.partial(given.conductance, axis), faces)
        for of_box in (given.capacity, given.volume):
            _add_points(found, of_box, whole)

    # Enthalpy method: the curves of each kind of material, linear between knots.
    if (enthalpy := conduction.enthalpy) is not None:
        curves = (enthalpy.temperature, enthalpy.potential, enthalpy.conductivity)
        tables = [table for curve in curves for table in (curve.begins, curve.slopes)]
        found.update(enthalpy.kinds.tobytes())
        # A body that does not radiate has the digest that it had before bodies could.
        more = (enthalpy.radiance,) if enthalpy.radiates else ()
        for table in (enthalpy.knots, *tables, enthalpy.half, enthalpy.contact, *more):
            found.update(np.ascontiguousarray(table).tobytes())
    if conduction.source is not None:
        _add_rule(found, conduction.source, dt)
    # Faces in the order of axes, low before high; periodic axes have none.
    for axis, n in enumerate(shape):
        if boundary.periodic(axis):
            continue
        for face, side, plane in zip(boundary.faces[axis], SIDES, (0, n - 1), strict=True):
            assert isinstance(face, RuledFace)
            found.update(f"{axis} {side}".encode())
            _add_rule(found, face.rule, dt)
            # Which points of the face belong to which of its patches.
            if face.patches is not None:
                edge = (*whole[:axis], (plane, plane + 1), *whole[axis + 1 :])
                _add_points(found, face.patches, edge)
    return found.hexdigest()


def equations_digest(problem: Problem) -> str:
    """SHA-256 of equations, in hexadecimal: stages with their parameters and coefficients, and the
    ghosts of every name that is read at neighbouring points.

    Of numbers that change with time it covers the first steps, as for `conduction_digest`.
    """
    return _equations_digest(problem.system, problem.grid, problem.dt)


@functools.lru_cache(maxsize=4)
def _equations_digest(equations: Equations, grid: Grid, dt: float) -> str:
    found = hashlib.sha256()
    for stage in equations.stages:
        programs = stage.programs
        said = (list(stage.formulas), programs.instructions, programs.results)
        found.update(digested_text(said).encode())
    found.update(repr(sorted(equations.results.items())).encode())
    # Parameters that vary with time enter by their values at the first steps, not as text.
    for parameter in equations.parameters:
        rows = parameter.rows(lambda step: step * dt, 0, _STEPS)
        found.update(parameter.name.encode() + np.ascontiguousarray(rows).tobytes())
    # Adaptive steps: whatever decides how a step is divided.
    if (rates := equations.rates) is not None:
        found.update(repr((rates.scheme, rates.adaptive, rates.tolerance.hex())).encode())
    if (substeps := equations.substeps) is not None:
        chosen = (substeps.order, substeps.tolerance.hex(), substeps.first.hex())
        found.update(repr((sorted(substeps.errors.items()), *chosen)).encode())
    if equations.reductions:
        found.update(repr(sorted(equations.reductions.items())).encode())

    whole = tuple((0, n) for n in grid.shape)
    for name, of_box in sorted((equations.coefficients or {}).items()):
        found.update(name.encode())
        # Names in `outside` are read one point beyond the grid, too.
        around = tuple((low - 1, high + 1) for low, high in whole)
        _add_points(found, of_box, around if name in equations.outside else whole)
    for name, radii in sorted(equations.ghosts.items()):
        for axis, radius in enumerate(radii):
            if equations.boundaries[name].periodic(axis):
                continue
            # Ghosts as the affine pairs (a, b) of the faces, to the depth that each name is read.
            for side in SIDES:
                spacing = grid.spacing[axis]
                pairs = equations.boundaries[name].reflections(
                    axis, side, spacing=spacing, width=radius
                )
                found.update(
                    repr((name, axis, side, [(a.hex(), b.hex()) for a, b in pairs])).encode()
                )
    return found.hexdigest()


# Names under which parts of formulas have entered digests since the first format. They are fixed:
# with the names of today's classes, every renaming would invalidate old checkpoints.
_DIGESTED_AS: Mapping[type, tuple[str, tuple[str, ...]]] = {
    Constant: ("Constant", ("value",)),
    Variable: ("Variable", ("name",)),
    Operation: ("Operation", ("name", "arguments")),
    Comparison: ("Comparison", ("signs", "operands")),
    Instruction: ("Instruction", ("operation", "arguments", "name", "value")),
}


def digested_text(value: object) -> str:
    """Formulas and instructions as the text that digests are made of.

    >>> digested_text(Operation("+", (Variable("u"), Constant(2.0))))
    "Operation(name='+', arguments=(Variable(name='u'), Constant(value=2.0)))"
    """
    # Spelled as repr() of the original dataclasses, lists and tuples.
    if isinstance(value, list | tuple):
        inside = ", ".join(digested_text(it) for it in value)
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if type(value) not in _DIGESTED_AS:
        return repr(value)

    name, attributes = _DIGESTED_AS[type(value)]
    inside = ", ".join(f"{it}={digested_text(getattr(value, it))}" for it in attributes)
    return f"{name}({inside})"


def _add_points(found: Any, of_box: Callable[[Ranges], npt.NDArray[Any]], box: Ranges) -> None:
    for part in batches(box, _POINTS):
        found.update(np.ascontiguousarray(of_box(part)).tobytes())


def _length(node: Node, known: dict[int, int]) -> int:
    """How many parts the text of a formula has."""
    if id(node) not in known:
        inside = [*getattr(node, "arguments", ()), *getattr(node, "operands", ())]
        known[id(node)] = 1 + sum(_length(it, known) for it in inside)
    return known[id(node)]


def _add_rule(found: Any, rule: Rule, dt: float) -> None:
    # The text of a formula that shares its parts grows with every use of them.
    program = rule.program
    whole: Any = program.tree if _length(program.tree, {}) <= _LONGEST else program.instructions
    found.update(digested_text(whole).encode())
    for parameter in rule.parameters:
        rows = parameter.rows(lambda step: step * dt, 0, _STEPS)
        found.update(parameter.name.encode() + np.ascontiguousarray(rows).tobytes())


@dataclass(frozen=True)
class RunState:
    """The state of a run between two steps, without the field.

    Attributes:
        step: number of steps so far.
        dt: time step [s].
        steps: number of steps of the whole run, as planned when this was written.
        run_id: identifier of the run; a restart keeps it.
        config: the resolved configuration as YAML.
        problem_digest: `problem_digest` of the problem.
        config_history: earlier configurations of a run that was restarted with another one, oldest
            first.
        methods: workers and their methods, parameters and time block; plain JSON data.
        created: time of saving, ISO 8601.
        versions: package to version.
        wall_time_s: wall time of the run so far, earlier parts included [s].
        outputs: data that outputs keep across restarts; plain JSON data.
        start: that of the problem: the step from which on steps take dt, and its time [s].
        change: the largest change from the step before to this one, by which `time.until` ends a
            run [1/s]; None if it was not measured.
    """

    step: int
    dt: float
    steps: int
    run_id: str
    config: str
    problem_digest: str
    config_history: tuple[str, ...] = ()
    methods: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    wall_time_s: float = 0.0
    outputs: Mapping[str, Any] = field(default_factory=dict)
    start: tuple[int, float] = (0, 0.0)
    change: float | None = None

    @property
    def time(self) -> float:
        """Simulated time [s]."""
        first, begun = self.start
        return begun + (self.step - first) * self.dt


def resumed(problem: Problem, state: RunState) -> Problem:
    """Return the problem of the phase in which a state is, with what had gone by itself."""
    problem = dataclasses.replace(problem, start=state.start)
    if problem.phases is not None:
        problem.phases.restore(state.outputs.get("control", {}).get("gone", ()), problem.dt)
    return problem.at(state.step)


def problem_digest(problem: Problem) -> str:
    """SHA-256 of everything that determines the bits of the next step, in hexadecimal.

    The names of the fields are included; the initial field and the number of steps are not.
    """
    # Faces by the affine pairs that they give ghosts, so that equivalent conditions are equal.
    grid, boundary = problem.grid, problem.boundary
    faces = [
        "periodic"
        if boundary.periodic(axis)
        else "ruled"  # part of the digest of the conduction
        if problem.conduction is not None
        else [
            [_hex(pair) for pair in boundary.reflections(axis, side, spacing=spacing, width=radius)]
            for side in SIDES
        ]
        for axis, (spacing, radius) in enumerate(
            zip(grid.spacing, problem.stencil.radii, strict=True)
        )
    ]

    # Floats as hexadecimal text, which is exact.
    everything = {
        "shape": grid.shape,
        "spacing": _hex(grid.spacing),
        "origin": _hex(grid.origin),
        "offsets": problem.stencil.offsets,
        "weights": _hex(problem.stencil.weights),
        "faces": faces,
        "dt": float(problem.dt).hex(),
        "dtype": problem.dtype.name,
        "variables": [(variable.name, variable.unit) for variable in problem.variables],
    }
    if problem.conduction is not None:
        everything["conduction"] = conduction_digest(problem)
    if problem.equations is not None:
        everything["equations"] = equations_digest(problem)
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def write_state(group: Any, state: RunState) -> None:
    """Write the state into an HDF5 group: short values as attributes, the rest as datasets.

    An attribute is limited to 64 KiB, which a configuration or the list of a thousand workers may
    exceed.
    """
    import h5py

    group.attrs["step"] = np.int64(state.step)
    group.attrs["steps"] = np.int64(state.steps)
    group.attrs["dt"] = np.float64(state.dt)
    group.attrs["time"] = np.float64(state.time)
    group.attrs["start_step"] = np.int64(state.start[0])
    group.attrs["start_time"] = np.float64(state.start[1])
    group.attrs["wall_time_s"] = np.float64(state.wall_time_s)
    if state.change is not None:
        group.attrs["change"] = np.float64(state.change)
    for name in ("run_id", "problem_digest", "created"):
        group.attrs[name] = getattr(state, name)
    group.attrs["versions"] = json.dumps(dict(state.versions))

    group.create_dataset("config", data=state.config)
    history = group.create_dataset(
        "config_history", shape=(len(state.config_history),), dtype=h5py.string_dtype()
    )
    for number, text in enumerate(state.config_history):
        history[number] = text
    group.create_dataset("methods", data=json.dumps(dict(state.methods)))
    group.create_dataset("outputs", data=json.dumps(dict(state.outputs)))


def read_state(group: Any) -> RunState:
    """The state that `write_state` wrote; raises the errors of h5py and json if it is not there."""
    attributes = group.attrs

    return RunState(
        step=int(attributes["step"]),
        dt=float(attributes["dt"]),
        steps=int(attributes["steps"]),
        run_id=_word(attributes["run_id"]),
        config=_text(group["config"]),
        problem_digest=_word(attributes["problem_digest"]),
        config_history=tuple(text.decode() for text in group["config_history"][:]),
        methods=json.loads(_text(group["methods"])),
        created=_word(attributes["created"]),
        versions=json.loads(attributes["versions"]),
        wall_time_s=float(attributes["wall_time_s"]),
        outputs=json.loads(_text(group["outputs"])),
        # Files of earlier versions have no start: their dt never changed.
        start=(int(attributes.get("start_step", 0)), float(attributes.get("start_time", 0.0))),
        change=float(attributes["change"]) if "change" in attributes else None,
    )


def as_plain(state: RunState) -> dict[str, Any]:
    """The state as plain data, for `info --json`."""
    return {**dataclasses.asdict(state), "time": state.time}


def _word(attribute: Any) -> str:
    if not isinstance(attribute, str):
        msg = f"a text is wanted, and {attribute!r} is there"
        raise TypeError(msg)
    return attribute


def _text(dataset: Any) -> str:
    text: str = dataset.asstr()[()]
    return text


def _hex(numbers: tuple[float, ...]) -> list[str]:
    return [float(number).hex() for number in numbers]
