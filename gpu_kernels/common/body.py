"""Bodies in GPU memory: the materials of a slab, its heat sources and the rules at its faces
(`body.cuh`).

`RuleNumbers` holds the parameters of rules for coming steps, `DeviceBody` the arrays of one slab;
programs are printed as CUDA, one instruction per line.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import (
    STORED,
    PitchedField,
    ends_of,
    margins_of,
    to_device,
)
from tetris_sim.model import program as programs
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import (
    CONDUCTIVITY,
    MIRROR,
    TEMPERATURE,
    Conduction,
    Enthalpy,
    Numbers,
    Rule,
    padded,
)
from tetris_sim.model.grid import AXIS_NAMES, LAST
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import LOGICAL, Instruction, Program, Programs, print_lines
from tetris_sim.model.radiation import RADIATING, RADIATING_INPUTS
from tetris_sim.model.slab import Ranges, Slab, batches
from tetris_sim.model.step_control import Signal

# Parameters of rules for coming steps, in GPU memory.

# Passes whose numbers are uploaded together. An even number, so that after them the two arrays of a
# state are back in their places.
PASSES = 32
_UPLOADS = 2  # in flight at most


class RuleNumbers:
    """A moving window of steps, whose numbers lie in GPU memory; a launch receives its row.

    Numbers that do not change with time are uploaded once.

    Attributes:
        there: the numbers, on the GPU.
        places: `struct Place` of all parameters of all rules (`rules.cuh`), on the GPU.
        first_places: index of the first place of each rule.
    """

    def __init__(
        self, rules: Sequence[Rule], problem: Problem, device: GpuDevice, steps: int
    ) -> None:
        """Allocate and fill the numbers of `steps` steps."""
        self._rules, self._problem, self._device, self._steps = rules, problem, device, steps
        self._changes = any(rule.changes for rule in rules)
        self._first, self._decided = 0, Signal.decided
        self._under_way: deque[tuple[Any, Any]] = deque()

        numbers, places = self._tabulate(0)
        with device.use() as cupy:
            self.there = cupy.asarray(numbers)
        self.places = to_device(device, places)
        # A rule without parameters still occupies one place.
        counts = [max(1, len(rule.parameters)) for rule in rules]
        self.first_places = [sum(counts[:k]) for k in range(len(counts))]

    def row(self, step: int, steps: int) -> int:
        """The row of `step`; moves the window if the `steps` steps from there on do not lie
        in it.
        """
        if not self._changes:
            return 0
        # A controller may have decided anew since the window was filled.
        beyond = not self._first <= step <= self._first + self._steps - steps
        if beyond or self._decided != Signal.decided:
            self.begin_at(step)
        return step - self._first

    def begin_at(self, step: int) -> None:
        """Move the window to `step` for everything that is enqueued from now on."""
        if not self._changes:
            return

        self._bring(self._tabulate(step)[0])
        self._first, self._decided = step, Signal.decided

    def hold(self, values: npt.NDArray[np.float64]) -> None:
        """Give every row the same numbers, one per parameter, for everything that is enqueued from
        now on.
        """
        # The trailing zero keeps the length of `_tabulate`.
        rows = np.append(np.repeat(values, self._steps), 0.0)
        self._bring(rows.astype(self._problem.arithmetic))
        self._first = -sys.maxsize  # of no steps

    def _bring(self, numbers: npt.NDArray[Any]) -> None:
        # Copy numbers to the GPU, on the stream: launches enqueued earlier still read the old ones.
        # Pinned memory is held until its copy is done.
        while len(self._under_way) >= _UPLOADS:
            _, done = self._under_way.popleft()
            if done is not None:
                done.synchronize()
        here, held = self._device.bring(numbers)
        with self._device.use():
            self.there[...] = here
            self._under_way.append((held, self._device.stream.record()))

    def _tabulate(self, step: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
        """The numbers of all rules from `step` on, and their places."""
        problem = self._problem
        tables = [
            rule.tabulate(problem.time, step, self._steps, problem.arithmetic)
            for rule in self._rules
        ]

        # Places count from the rule's own table; here they are shifted to the joint one.
        begin, places = 0, [np.zeros((0, 3), np.int64)]
        for table in tables:
            places.append(table.places + np.array([begin, 0, 0]))
            begin += table.numbers.size
        # Never empty, so that the address is valid even without parameters.

        nothing = np.zeros(1, problem.arithmetic)
        return (
            np.concatenate([*(table.numbers for table in tables), nothing]),
            np.concatenate(places).astype(np.int32),
        )


_BATCH_POINTS = 1 << 24  # points whose ids are evaluated together, to bound host memory
_NO_RULE = -1
# Of upper faces, in the order of `Problem.ways` and of axes.
_OF_FACES = ("upper", "below", "above", "radiance")
_WAYS = {
    ndim: [[f"{way}_{'zyx'[three]}" for three in places] for way in _OF_FACES]
    for ndim, places in LAST.items()
}
# The layouts of `struct Body` and its faces in body.cuh: fields must keep their order.
_BODY = np.dtype(
    [
        *[(name, np.uint64) for name in ("ids", "tables")],
        *[(f"{way}_{axis}", np.uint64) for way in _OF_FACES for axis in "zyx"],
        *[(name, np.uint64) for name in ("rate", "volume", "numbers", "places", "codes", "faces")],
        *[("n_ids", np.int32), ("n_pieces", np.int32), ("knots", np.int32)],
        *[("along", np.int32, 3), ("source", np.int32, 2)],
        *[("low", np.int32, 3), ("high", np.int32, 3), ("period", np.int32, 3)],
        *[("conductances", np.float64, 3), ("rate_of_all", np.float64)],
    ],
    align=True,
)
_FACE = np.dtype([("begin", np.int64), ("stride", np.int32, 3), ("rule", np.int32, 2)], align=True)


def body_defines(problem: Problem) -> dict[str, str | int]:
    """Macros of body.cuh and rules.cuh, the same for all slabs."""
    conduction = conduction_of(problem)
    text, programs = print_rules(_rules_of(problem), problem.grid.ndim, problem.grid.axis_names)
    return {
        "TS_REAL": STORED[problem.dtype.name],
        "TS_ID": {1: "unsigned char", 2: "unsigned short"}[id_dtype(problem).itemsize],
        "TS_AXES": problem.grid.ndim,
        "TS_SOURCE": 0 if conduction.source is None else programs[0] + 1,
        "TS_COEFFICIENTS": int(conduction.coefficients is not None),
        "TS_ENTHALPY": int(conduction.enthalpy is not None),
        "TS_ALIKE": int(is_alike(conduction)),
        "TS_RULES": text,
        **({} if problem.n_ways < len(_OF_FACES) else {"TS_RADIATING": _RADIATING}),
    }


def is_alike(conduction: Conduction) -> bool:
    """Whether the body is homogeneous: one material and constant conductances, so that all points
    exchange heat with the same numbers.
    """
    given = conduction.coefficients is not None or conduction.enthalpy is not None
    return conduction.medium.n_ids == 1 and not given


def body_bytes(problem: Problem, layout: PitchedField) -> int:
    """GPU memory that a body takes besides the state [bytes]: its arrays per point."""
    if problem.conduction is None:
        return 0
    of_point = id_dtype(problem).itemsize
    if problem.conduction.coefficients is not None:
        of_point += (problem.n_ways * problem.grid.ndim + 2) * problem.arithmetic.itemsize
    return layout.field_pitch * of_point


def conduction_of(problem: Problem) -> Conduction:
    """The conduction of a problem, which must have one."""
    assert problem.conduction is not None
    return problem.conduction


def id_dtype(problem: Problem) -> np.dtype[Any]:
    """The integer type of material ids."""
    return np.dtype(np.uint8 if conduction_of(problem).medium.n_ids <= 1 << 8 else np.uint16)


class DeviceBody:
    """The material arrays of one slab, and the numbers of its rules for coming steps.

    Attributes:
        ids: material id of every point, on the GPU, flat, laid out like a field of the state;
            ghosts have the ids of their mirror points.
        numbers: numbers of its rules.
        coefficients: coefficients of every point, laid out like `ids`, by their names in body.cuh;
            empty where materials determine them.
        around: the points that have all this, per axis, counted from the first owned one.
    """

    def __init__(
        self, problem: Problem, slab: Slab, layout: PitchedField, device: GpuDevice, depth: int
    ) -> None:
        """Allocate the arrays and fill them.

        Args:
            problem: problem with conduction.
            slab: part of the problem.
            layout: layout of the state.
            device: the GPU.
            depth: steps for which lasting ghosts are filled at once, as in `pitch_slab`.
        """
        self._problem, self._layout, self._device, self._depth = problem, layout, device, depth
        self._conduction = conduction_of(problem)
        rules = _rules_of(problem)
        self._programs = print_rules(rules, problem.grid.ndim, problem.grid.axis_names)[1]
        self.numbers = RuleNumbers(rules, problem, device, steps=depth * PASSES)

        n, arithmetic = layout.field_pitch, problem.arithmetic
        with device.use() as cupy:
            self.ids = cupy.zeros(n, id_dtype(problem))
            self.coefficients: dict[str, Any] = {}
            if self._conduction.coefficients is not None:
                ways = _WAYS[problem.grid.ndim][: problem.n_ways]
                names = (*itertools.chain(*ways), "rate", "volume")
                self.coefficients = {name: cupy.zeros(n, arithmetic) for name in names}
        self.place(slab)

    def place(self, slab: Slab) -> None:
        """Fill in the data of a slab that has the shape of the first one."""
        self._slab = slab
        margins = margins_of(self._problem, slab, self._depth)
        # A point has at most one image beyond each face; passes so deep that they need more are
        # refused elsewhere.
        self.around = tuple(
            (-min(low, most), n + min(high, most))
            for n, (low, high), most in zip(
                slab.shape, margins, self._problem.grid.shape, strict=True
            )
        )
        self._fill()
        self._place_tables()
        self._place_faces()
        self._argument = self._pack()

    def argument(self) -> npt.NDArray[np.void]:
        """`struct Body` of body.cuh."""
        return self._argument

    def _fill(self) -> None:
        """Write ids and coefficients to the GPU, some planes at a time."""
        problem, coefficients = self._problem, self._conduction.coefficients
        for ranges in batches(self.around, _BATCH_POINTS):
            box = self._slab.globally(ranges)
            self._put(self.ids, ranges, problem.padded_ids(box))
            if coefficients is None:
                continue

            # In the order in which `coefficients` was filled.
            rate = self._padded(lambda part: self._conduction.rates(problem.dt, part), box)
            volume = self._padded(coefficients.volume, box)
            along = [_padded_ways(problem, axis, box) for axis in range(problem.grid.ndim)]
            ways = (it[..., part] for part in range(along[0].shape[-1]) for it in along)
            for flat, values in zip(self.coefficients.values(), (*ways, rate, volume), strict=True):
                self._put(flat, ranges, values)

    def _put(self, flat: Any, ranges: Ranges, values: npt.NDArray[Any]) -> None:
        """Write the points of a box, counted from the first owned one, into a flat field."""
        layout = replace(self._layout, n_fields=1, dtype=np.dtype(flat.dtype))
        with self._device.use() as cupy:
            layout.view(flat, ranges)[...] = cupy.asarray(values.astype(flat.dtype))

    def _padded(
        self, of_box: Callable[[Ranges], npt.NDArray[Any]], box: Ranges
    ) -> npt.NDArray[Any]:
        return padded(of_box, box, self._problem.grid.shape, _rings(self._problem))

    def _place_tables(self) -> None:
        """Upload the tables: conductances and rates by id, coordinates of the points, and curves of
        the enthalpy method.
        """
        problem, grid = self._problem, self._problem.grid
        n_ids = self._conduction.medium.n_ids
        # Always three axes; those that the problem lacks come first.
        conductance = np.zeros((3, n_ids, n_ids))
        conductance[3 - grid.ndim :] = self._conduction.medium.conductance
        parts = [conductance.reshape(-1), self._conduction.rates(problem.dt)]

        # Entry `_along[axis] + i` is the coordinate of point i, which may be negative.
        self._along = [0, 0, 0]
        for axis, (low, high) in enumerate(self.around):
            self._along[LAST[grid.ndim][axis]] = sum(map(len, parts)) - low
            span = (self._slab.start[axis] + low, self._slab.start[axis] + high)
            parts.append(padded_coordinates(problem, axis, span))
        self._knots, self._n_pieces = sum(map(len, parts)), 0
        if (enthalpy := self._conduction.enthalpy) is not None:
            self._n_pieces = enthalpy.n_pieces
            parts += _curves(enthalpy)
        tables = np.concatenate(parts).astype(problem.arithmetic)
        self._tables = to_device(self._device, tables)

    def _place_faces(self) -> None:
        """Upload the codes of the points inside each face, and where they lie."""
        problem, slab = self._problem, self._slab
        places = LAST[problem.grid.ndim]
        faces = np.zeros((3, 2), _FACE)
        faces["rule"] = _NO_RULE
        codes, begin = [np.zeros(0, np.int32)], 0
        for number, (axis, side) in enumerate(_ruled_sides(problem), self._has_source):
            if slab.halo[axis][side]:
                continue

            edge = (0, 1) if side == 0 else (slab.shape[axis] - 1, slab.shape[axis])
            ranges = (*self.around[:axis], edge, *self.around[axis + 1 :])
            found = self._padded(self._codes_of(axis, side), slab.globally(ranges))
            face = faces[places[axis], side]
            face["rule"] = self._programs[number], self.numbers.first_places[number]
            # Shifted so that a thread indexes the codes by its own coordinates; the face's own axis
            # has stride 0.
            strides = [n // found.itemsize for n in found.strides]
            face["begin"] = begin
            for other, stride in enumerate(strides):
                if other != axis:
                    face["stride"][places[other]] = stride
                    face["begin"] -= stride * ranges[other][0]
            codes.append(found.reshape(-1))
            begin += found.size
        self._codes = to_device(self._device, np.concatenate(codes))
        self._faces = to_device(self._device, faces)

    def _codes_of(self, axis: int, side: int) -> Callable[[Ranges], npt.NDArray[np.int32]]:
        medium, face = self._conduction.medium, self._problem.ruled_face(axis, SIDES[side])

        def codes(box: Ranges) -> npt.NDArray[np.int32]:
            return face.codes(box, medium.ids(box), medium.n_ids).astype(np.int32)

        return codes

    @property
    def _has_source(self) -> bool:
        return self._conduction.source is not None

    def _pack(self) -> npt.NDArray[np.void]:
        body, origin = np.zeros(1, _BODY), self._layout.origin
        address = self._device.address
        body["ids"] = address(self.ids[origin:])
        for name, flat in self.coefficients.items():
            body[name] = address(flat[origin:])
        body["tables"], body["codes"] = address(self._tables), address(self._codes)
        body["faces"] = address(self._faces)
        body["numbers"], body["places"] = map(address, (self.numbers.there, self.numbers.places))

        # Offsets into `tables`, in numbers.
        body["n_ids"], body["along"] = self._conduction.medium.n_ids, self._along
        body["n_pieces"], body["knots"] = self._n_pieces, self._knots
        if self._has_source:
            body["source"] = self._programs[0], self.numbers.first_places[0]
        # Conductances by value: a homogeneous body looks up nothing per point.
        if is_alike(self._conduction):
            numbers = self._conduction.medium.conductance[:, 0, 0]
            body["conductances"][0, 3 - len(numbers) :] = numbers
            body["rate_of_all"] = self._conduction.rates(self._problem.dt)[0]
        body["low"], body["high"], body["period"] = ends_of(self._problem, self._slab)
        return body


def _curves(enthalpy: Enthalpy) -> list[Numbers]:
    """The tables of the enthalpy method in the order of body.cuh: knots, curves, kinds, halves,
    contacts and radiances.
    """
    curves = (enthalpy.temperature, enthalpy.potential, enthalpy.conductivity)
    pairs = [numbers for curve in curves for numbers in (curve.begins, curve.slopes)]
    # Always three axes; those that the problem lacks come first.
    missing = 3 - len(enthalpy.half)
    of_pairs = (enthalpy.contact, *([enthalpy.radiance] if enthalpy.radiates else []))
    halves, *between = (
        np.concatenate([np.zeros((missing, *numbers.shape[1:])), numbers])
        for numbers in (enthalpy.half, *of_pairs)
    )
    kinds = enthalpy.kinds.astype(np.float64)
    parts = (enthalpy.knots, np.stack(pairs, axis=-1), kinds, halves, *between)
    return [np.asarray(part, np.float64).reshape(-1) for part in parts]


def _rules_of(problem: Problem) -> list[Rule]:
    """All rules of a problem: the heat source, if there is one, then the faces."""
    source = conduction_of(problem).source
    faces = [problem.ruled_face(axis, SIDES[side]).rule for axis, side in _ruled_sides(problem)]
    return faces if source is None else [source, *faces]


def _ruled_sides(problem: Problem) -> list[tuple[int, int]]:
    axes = (axis for axis in range(problem.grid.ndim) if not problem.boundary.periodic(axis))
    return list(itertools.product(axes, (0, 1)))


def _rings(problem: Problem) -> list[bool]:
    return [problem.boundary.periodic(axis) for axis in range(problem.grid.ndim)]


def padded_coordinates(problem: Problem, axis: int, span: tuple[int, int]) -> Numbers:
    """Positions along an axis [m] for a span that may reach beyond the grid, where ghosts and halos
    have the positions of the points that they stand for.
    """
    grid, ring = problem.grid, problem.boundary.periodic(axis)
    found = padded(
        lambda part: grid.coordinates(axis, *part[0]), (span,), (grid.shape[axis],), (ring,)
    )
    return np.asarray(found, np.float64)


def _padded_ways(problem: Problem, axis: int, box: Ranges) -> npt.NDArray[Any]:
    """Ways through the upper faces of the points of a box (`Problem.ways`). Beyond the grid they
    are those of the mirror images.
    """
    shape, rings = problem.grid.shape, _rings(problem)
    if rings[axis]:
        return padded(lambda part: problem.ways(axis, part), box, shape, rings)

    # Faces are numbered from the domain's lower one, which makes n + 1; the two at the ends are
    # their own images. The three spans lie below, within and above the domain.
    n = shape[axis]
    low, high = (end + 1 for end in box[axis])
    spans = (
        (1 - min(high, 0), 1 - low, -1),
        (max(low, 0), min(high, n + 1), 1),
        (2 * n - high + 1, 2 * n - max(low, n + 1) + 1, -1),
    )

    def with_span(part: Ranges, first: int, last: int) -> Ranges:
        return (*part[:axis], (first, last), *part[axis + 1 :])

    def of_faces(part: Ranges) -> npt.NDArray[Any]:
        first, last = part[axis]
        return problem.ways(axis, with_span(part, first - 1, last - 1))

    counted = tuple(length + (k == axis) for k, length in enumerate(shape))
    parts = [
        # In a mirror, what lies below a face is above it.
        np.flip(found, axis)[..., [0, 2, 1, 3][: found.shape[-1]]] if direction < 0 else found
        for first, last, direction in spans
        if first < last
        for found in [padded(of_faces, with_span(box, first, last), counted, rings)]
    ]
    return np.concatenate(parts, axis)


_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "and": "&&", "or": "||"}
_SIGNS |= {sign: sign for sign in ("<", "<=", ">", ">=", "==", "!=")}
# Operations whose CUDA function has a different name.
_FUNCTIONS = {"fma": "fma_real", "abs": "fabs", "power": "pow"}


def print_program(program: Program, inputs: Mapping[str, str]) -> str:
    """The statements of a program, ending with a `return`.

    >>> from tetris_sim.model.formula import Operation, Variable
    >>> double = Program(Operation("add", (Variable("x"), Variable("x"))))
    >>> print_program(double, {"x": "given"})
    'const wide r0 = given; const wide r1 = r0 + r0; return r1;'

    Args:
        program: the program to print.
        inputs: CUDA expression of each input, by name.
    """
    lines = print_statements(program, inputs)
    return " ".join([*lines, f"return r{len(lines) - 1};"])


def print_statements(program: Program | Programs, inputs: Mapping[str, str]) -> list[str]:
    """Definitions of the registers r0, r1, ..., one for each instruction.

    The compiler contracts nothing (`-fmad=false` in `device.py`), so each operation rounds as its
    instruction says.

    Args:
        program: the program to print.
        inputs: CUDA expression of each input, by name.
    """

    def phrase(it: Instruction, arguments: tuple[str, ...]) -> str:
        match it.operation:
            case programs.INPUT:
                return inputs[it.name]
            case programs.CONSTANT:
                return print_constant(it.value)
            case "negative":
                return f"-{arguments[0]}"
            case "not":
                return f"!{arguments[0]}"
            case "where":
                return "{} ? {} : {}".format(*arguments)
        if it.operation in _SIGNS:
            return f" {_SIGNS[it.operation]} ".join(arguments)
        return f"{_FUNCTIONS.get(it.operation, it.operation)}({', '.join(arguments)})"

    return [
        f"const {'bool' if it.operation in LOGICAL else 'wide'} {name} = {text};"
        for name, text, it in print_lines(program, phrase)
    ]


def print_constant(value: float) -> str:
    """A number as a CUDA expression with all of its bits (a hexadecimal float).

    >>> print_constant(0.1), print_constant(-math.inf)
    ('wide(0x1.999999999999ap-4)', '-infinity()')
    """
    # `infinity()` is a function of rules.cuh; NaN is made of it.
    if math.isnan(value):
        return "(infinity() - infinity())"
    if math.isinf(value):
        return "infinity()" if value > 0 else "-infinity()"
    return f"wide({value.hex()})"


def print_rules(
    rules: Sequence[Rule], ndim: int, axes: Sequence[str] = ()
) -> tuple[str, list[int]]:
    """The programs of rules as cases of a `switch`, and the case of each rule.

    Rules with the same text share a case, since the values of parameters are arguments.

    Args:
        rules: the rules of a problem.
        ndim: number of axes of the grid, which determines where coordinates come from.
        axes: their names, array order; those of x, y and z if not given.
    """
    places = {
        name: f"given.coordinate({three})"
        for name, three in zip(axes or AXIS_NAMES[:ndim][::-1], LAST[ndim], strict=True)
    }
    seen = {name: f"given.{name}" for name in (MIRROR, TEMPERATURE, CONDUCTIVITY)}

    # Keyed by the text: equal programs compile once.
    cases: dict[str, int] = {}
    numbers = []
    for rule in rules:
        parameters = {it.name: f"given.parameter({k})" for k, it in enumerate(rule.parameters)}
        text = print_program(rule.program, {**seen, **parameters, **places})
        numbers.append(cases.setdefault(text, len(cases)))
    return " ".join(f"case {number}: {{ {text} }}" for text, number in cases.items()), numbers


# The body of `radiating` in body.cuh, whose arguments have the names of its inputs.
_RADIATING = print_program(RADIATING, dict(zip(RADIATING_INPUTS, RADIATING_INPUTS, strict=True)))
