"""Meter: what explicit steps have moved through each surface of a body, at any step and however
many of them are made at once.

Added up over steps, u_n - u_0 = R (f - A S) holds for the sum S of all states, which therefore is
the steady state of the same body with the heat that it gave off for a source. What came in through
a surface with the exchange d is the sum of f - d S: with weights w that solve A w = d, once in a
run, it is the sum of f - w (f + q) and of w C (u_n - u_0). So two states and the sums of what is
given over time say it to rounding, and no step has to be looked at.

This holds for bodies whose conductances and exchanges do not change. Others are asked for the
powers of every step, if they are small; of large ones flows are known at records only.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import NumericsError
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES, Side
from tetris_sim.model.conduction import AFFINE, MIRROR, Ids, Numbers, Parameter, Rule, RuledFace
from tetris_sim.model.formula import evaluate
from tetris_sim.model.problem import Passage, Problem, passage, stays
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.outputs.heat_flows import Sources, flow_through, given_by, givers_of, openings
from tetris_sim.outputs.materials import BodyMaterials, described
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.regions import blocks, exact_sum
from tetris_sim.solvers.assembly import instant
from tetris_sim.solvers.balance import LinearSystem, LinearSystems, norm, why_not
from tetris_sim.solvers.solver import Kept, OneDevice, settle
from tetris_sim.solvers.surface_flows import SOURCES, face_name, held_name, joules_of

# Names beside those of surfaces: heat that `set_field` brought, and the step since which all are
# counted.
SET, SINCE = "set", "since"
ARRIVED, GONE = "heat arrived", "heat gone"  # with cells that came and went
FROM = "heat from"  # a fluid: what came from it before cells came or went

_MOST_ASKED = 50_000_000  # points times steps of a run whose steps are all asked
_MOST_WEIGHED = 1 << 21  # points
_FACTORISED = 1 << 15  # points up to which A is factorised
_ITERATIONS, _TOLERANCE, _THREADS = 300, 1e-12, 4  # of conjugate gradients for more
_ROUNDED = 1e-12  # of all that flows per degree: what rounding leaves of it
_CHUNK = 1024  # steps whose numbers are added up together


class Meter:
    """Counts heat by the names of `Snapshot.moved`.

    Args:
        problem: with heat; see `has_heat`.
        implicit: whether steps are implicit, and count by themselves what they move.

    Attributes:
        asks: whether every step has to be asked for its powers.
    """

    def __init__(self, problem: Problem, *, implicit: bool = False) -> None:
        self._implicit = implicit
        self.turn_to(problem)

    def turn_to(self, problem: Problem) -> None:
        """Count for another phase of the same run from now on."""
        implicit = self._implicit
        self._problem, self._openings = problem, tuple(openings(problem))
        self._body = None if problem.conduction is None else BodyMaterials(problem)
        self._shores: list[_Shore] = []
        self._sources: Sources | None = None
        self._weights = None if implicit else find_weights(problem)
        self.asks = False

        # Steps that need no counting here: they count themselves, or their states suffice.
        if implicit or self._weights or problem.grid.n_points * problem.steps > _MOST_ASKED:
            return
        if self._body is not None:
            self._shores = _find_shores(self._body)
            if self._body.conduction.source is not None:
                sources = Sources(self._body.conduction.source, self._body)
                self._sources = None if sources.adds_up else sources
        self.asks = bool(self._openings or self._shores or self._sources or givers_of(problem))

    def begin(self, snapshot: Snapshot) -> dict[str, float]:
        """Begin to count with a state."""
        found = {} if self._weights is None else self._weights.sums(snapshot)
        return {**found, SINCE: float(snapshot.step)}

    def counted(self, snapshot: Snapshot) -> Mapping[str, float]:
        """Return the heat that has come in since the run began [J]."""
        if self._weights is None or not snapshot.moved:
            return snapshot.moved
        now = self._weights.sums(snapshot)
        before = snapshot.moved
        return {**before, **{name: now[name] - before.get(name, 0.0) for name in now}}

    def powers(self, snapshot: Snapshot) -> dict[str, float]:
        """The powers of the step that begins [W]; the state is at hand."""
        found = {it.name: flow_through(it, snapshot) for it in self._openings}
        if self._shores:
            state = snapshot.field()[0].reshape(-1).astype(self._problem.arithmetic)
            for shore in self._shores:
                self._add_shore(found, shore, state)
        if self._sources is not None:
            found[SOURCES] = self._sources.power(snapshot)
        if givers_of(self._problem):
            span = snapshot.time, self._problem.time(snapshot.step + 1)
            found |= given_by(self._problem, snapshot.field()[0], span)
        return found

    def replaced(self, before: Snapshot, after: Snapshot) -> dict[str, float]:
        """Return the change of all counts by a state that takes the place of another one."""
        found = {SET: self._heat(after) - self._heat(before)}
        if self._weights is not None:
            old, new = self._weights.sums(before), self._weights.sums(after)
            found |= {name: new[name] - old[name] for name in new}
        return found

    def succeed(self, before: Snapshot, after: Snapshot) -> dict[str, float]:
        """Count on when cells have come and gone; returns all counts, with the heat of these cells.

        Args:
            before: the last state of a phase, with what was counted.
            after: the first state of the next phase, at the same step.
        """
        earlier, counted = copy.copy(self), dict(self.counted(before))
        # Ids are those of one phase; from now on the names of fluids stand for them.
        if self._body is not None:
            names = described(self._body.materials)
            for number, material in enumerate(self._body.numbers.tolist()):
                column = f"{FROM} {names[material]}"
                more = counted.pop(held_name(number), None)
                if more is not None:
                    counted[column] = counted.get(column, 0.0) + more

        self.turn_to(after.problem)
        arrived, gone = self._passed(earlier, before, after)
        counted[ARRIVED] = counted.get(ARRIVED, 0.0) + arrived
        counted[GONE] = counted.get(GONE, 0.0) + gone
        # What is known by differences of sums goes on from those of this state.
        if self._weights is not None:
            sums = self._weights.sums(after)
            counted |= {name: it - counted.get(name, 0.0) for name, it in sums.items()}
        return counted

    def _passed(self, earlier: Meter, before: Snapshot, after: Snapshot) -> tuple[float, float]:
        """The heat that came with cells, and that went with others [J]."""
        came, went = list[float](), list[float]()
        for box in blocks(self._problem.grid.shape, 8):
            old, new = (
                _capacity(it._problem, it._body, box) * at.box(box)[0].astype(np.float64)
                for it, at in ((earlier, before), (self, after))
            )
            same = stays(before.problem, after.problem, box)
            # What stays may be cut otherwise by what is beside it.
            more = np.where(same, new - old, 0.0)
            came.append(exact_sum(np.where(same, np.maximum(more, 0.0), new)))
            went.append(exact_sum(np.where(same, np.maximum(-more, 0.0), old)))
        return math.fsum(came), math.fsum(went)

    def _heat(self, snapshot: Snapshot) -> float:
        """The heat of the body [J]."""
        sums = [
            exact_sum(_capacity(self._problem, self._body, box) * snapshot.box(box)[0].astype("d"))
            for box in blocks(self._problem.grid.shape, 8)
        ]
        return math.fsum(sums)

    def _add_shore(self, found: dict[str, float], shore: _Shore, state: Numbers) -> None:
        assert self._body is not None
        conduction = self._body.conduction
        here, there = (
            (reference.potentials(conduction, state[cells], ids), ids)
            for cells, ids in zip(shore.cells, shore.ids, strict=True)
        )
        flow = reference.flow_by(self._problem, shore.between, here, there)
        watts = flow.astype(np.float64) * joules_of(self._problem)
        by_id = np.bincount(shore.ids[1], watts)
        for number in np.unique(shore.ids[1]):
            name = held_name(int(number))
            found[name] = found.get(name, 0.0) + float(by_id[number])


def _capacity(problem: Problem, body: BodyMaterials | None, box: Ranges) -> Numbers:
    """Heat capacities of the cells of a box [J/K], 0 where the state is held."""
    if body is None:
        return np.array(problem.variables[0].total.density * problem.grid.cell_volume)
    return body.capacity(box, body.ids(box))


@dataclass(frozen=True, eq=False)
class Given:
    """Numbers that are given over time, by code.

    Attributes:
        rows: its numbers, from the first of some steps and how many they are, (steps, n_codes).
        changes: whether they differ from step to step; otherwise there is one row.
        weights: by surface, what a unit of it is worth in a second [J], by code.
    """

    rows: Callable[[int, int], Numbers]
    changes: bool
    weights: Mapping[str, Numbers]

    def total(self, step: int) -> Numbers:
        """Return the sum over all steps before one, by code."""
        if not self.changes:
            return np.asarray(self.rows(0, 1)[0] * step)
        # In whole chunks, so that a sum has the same bits whichever were made before.
        whole, rest = divmod(step, _CHUNK)
        for number in range(len(self._chunks), whole):
            self._chunks.append(self.rows(number * _CHUNK, _CHUNK).sum(axis=0))
        sums = self._chunks[:whole]
        if rest:
            sums.append(self.rows(whole * _CHUNK, rest).sum(axis=0))
        return np.asarray(np.sum(sums, axis=0)) if sums else np.zeros(1)

    @functools.cached_property
    def _chunks(self) -> list[Numbers]:
        return []


@dataclass(frozen=True, eq=False)
class Weights:
    """Sums over a state whose differences are what came in through each surface.

    Attributes:
        problem: whose state.
        stored: by surface, w C of every cell [J/K].
        steady: by surface, what constant heat is worth [W].
        given: what is given over time.
    """

    problem: Problem
    stored: Mapping[str, Numbers]
    steady: Mapping[str, float]
    given: Sequence[Given]

    def sums(self, snapshot: Snapshot) -> dict[str, float]:
        """Return them for the state of a step [J]; the same bits for any division."""
        problem, parts = self.problem, {name: list[float]() for name in self.stored}
        for box in blocks(problem.grid.shape, 8):
            state = snapshot.hidden(box)[0].astype(np.float64)
            here = tuple(slice(*span) for span in box)
            for name, stored in self.stored.items():
                parts[name].append(float((stored[here] * state).sum()))

        # Stored sums, and what constant and changing sources and faces add by themselves.
        for name, power in self.steady.items():
            parts[name].append(power * (snapshot.step * problem.dt))
        for it in self.given:
            total = it.total(snapshot.step) * problem.dt
            for name, weights in it.weights.items():
                parts[name].append(float((total * weights).sum()))
        return {name: math.fsum(values) for name, values in parts.items()}


def find_weights(problem: Problem) -> Weights | None:
    """Return the weights of the surfaces of a body; None if it has none, or if its conductances,
    exchanges or the places of its sources change.
    """
    faces = [face for pair in problem.boundary.faces for face in pair]
    rules = [face.rule for face in faces if isinstance(face, RuledFace) and face.rule.changes]
    changing = any(
        rule.program != AFFINE or any(it.changes for it in rule.parameters if it.name != "a")
        for rule in rules
    )
    why = problem.why_not_temperatures or why_not(problem)
    # Where a body moves, A is not symmetric, and its steps are asked.
    if why or changing or problem.moving or problem.grid.n_points > _MOST_WEIGHED:
        return None
    # The weights of places times powers would have to be added up at every step.
    source = problem.conduction.source if problem.conduction else None
    by_id = source is None or set(problem.grid.axis_names).isdisjoint(source.program.inputs)
    if source is not None and source.changes and not by_id:
        return None

    whole = Slab.whole(problem.grid)
    made = LinearSystems(problem).at(
        instant(problem.time(0)), np.asarray(problem.initial(whole)[0], np.float64)
    )
    weights = _solve(problem, made) if made.is_linear else {}
    if not weights:
        return None
    body = BodyMaterials(problem) if problem.conduction else None
    capacity = _capacity(problem, body, whole.spans)
    steady, given = _constant(problem, made, weights), []
    if body is not None:
        given = [*_of_faces(body, weights), *_of_source(body, source, weights)]
        if source is not None and not by_id:
            _add_still(body, source, weights, steady)
    return Weights(problem, {n: w * capacity for n, w in weights.items()}, steady, given)


def _solve(problem: Problem, made: LinearSystem) -> dict[str, Numbers]:
    """Return w of each surface through which heat is exchanged; of others it is 0. Nothing if some
    heat is exchanged elsewhere, or if there is no surface.
    """
    exchanged = _exchanged(problem, made)
    rest = made.exchange - sum(exchanged.values())
    if not exchanged or abs(rest).max() > _ROUNDED * made.whole.max():
        return {}
    solve = _factorised(made) if made.exchange.size <= _FACTORISED else _iterated(made)
    with solve as solved:
        try:
            return {name: solved(d) if d.any() else d for name, d in exchanged.items()}
        except NumericsError:
            return {}


@contextlib.contextmanager
def _factorised(made: LinearSystem) -> Iterator[Callable[[Numbers], Numbers]]:
    """Solve A w = d of a small system."""
    import scipy.sparse as sparse
    from scipy.sparse import csgraph, linalg

    shape, n = made.exchange.shape, made.exchange.size
    flat = np.arange(n).reshape(shape)
    rows, columns, entries = list[Numbers](), list[Numbers](), list[Numbers]()
    for axis, k in enumerate(made.conductance):
        at = k != 0
        rows.append(flat[at])
        columns.append(np.roll(flat, -1, axis)[at])
        entries.append(k[at])
    one, other, k = map(np.concatenate, (rows, columns, entries))
    between = sparse.coo_matrix((k, (one, other)), (n, n)).tocsr()
    between = between + between.T

    # A part of the body that exchanges nothing has the weight 0, whatever its diagonal.
    n_parts, part = csgraph.connected_components(between, directed=False)
    is_open = np.bincount(part, made.exchange.reshape(-1), n_parts) > 0
    diagonal = made.whole.reshape(-1) + np.where(is_open[part], 0.0, 1.0)
    scale = sparse.diags(1 / np.sqrt(diagonal))
    matrix = (scale @ (sparse.diags(diagonal) - between) @ scale).tocsc()
    # Scaled to a diagonal of 1, so that pivots compare whatever the conductivities are.
    factors = linalg.splu(matrix)

    def solved(d: Numbers) -> Numbers:
        right = scale @ d.reshape(-1)
        w = factors.solve(right)
        w += factors.solve(right - matrix @ w)  # what the factors left
        return np.asarray(scale @ w).reshape(shape)

    yield solved


@contextlib.contextmanager
def _iterated(made: LinearSystem) -> Iterator[Callable[[Numbers], Numbers]]:
    """Solve A w = d of a large system."""
    from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
    from tetris_sim.cpu_kernels.solve.arithmetic import CpuArithmetic

    # A team of its own, which is gone when the weights are known.
    team, kept = ThreadTeam(_THREADS), Kept()
    solver = OneDevice(CpuArithmetic(team))

    def solved(d: Numbers) -> Numbers:
        return settle(
            *(made, np.zeros(d.shape), solver),
            tolerance=_TOLERANCE,
            scale=norm(d),
            limit=_ITERATIONS,
            heat=d,
            kept=kept,
        )[0]

    try:
        with solver.use():
            yield solved
    finally:
        solver.release()
        team.close()


def _exchanged(problem: Problem, made: LinearSystem) -> dict[str, Numbers]:
    """Return d of each surface by cell; of one whose flow is given it is 0."""
    assert made.surfaces is not None
    shape, found = made.exchange.shape, dict[str, Numbers]()

    # Insulated faces are none of the surfaces of the statistics.
    known = {it.name for it in openings(problem)}
    for (axis, side), (d, _) in made.surfaces.faces.items():
        name = face_name(problem, axis, side)
        if name in known:
            whole = found.setdefault(name, np.zeros(shape))
            whole[_edge(problem, axis, side)] += d
    for axis, k, shift in made.surfaces.ways:
        assert made.surfaces.ids is not None
        theirs = np.roll(made.surfaces.ids(), shift, axis)
        for number in np.unique(theirs[k > 0]):
            whole = found.setdefault(held_name(int(number)), np.zeros(shape))
            whole += np.where(theirs == number, k, 0.0)
    return found


def _edge(problem: Problem, axis: int, side: Side) -> tuple[slice, ...]:
    """The outermost plane of cells at a face."""
    at = 0 if side == "low" else problem.grid.shape[axis] - 1
    return tuple(slice(at, at + 1) if k == axis else slice(None) for k in range(problem.grid.ndim))


def _constant(
    problem: Problem, made: LinearSystem, weights: Mapping[str, Numbers]
) -> dict[str, float]:
    """Return what held cells and faces that do not change are worth [W]."""
    assert made.surfaces is not None
    joules, parts = joules_of(problem), dict[str, Numbers]()
    shape = made.exchange.shape
    for (axis, side), (_, f) in made.surfaces.faces.items():
        if not problem.conduction or not problem.ruled_face(axis, side).rule.changes:
            whole = parts.setdefault(face_name(problem, axis, side), np.zeros(shape))
            whole[_edge(problem, axis, side)] += f
    # Held cells have the same state at all steps.
    state = np.asarray(problem.initial(Slab.whole(problem.grid))[0], np.float64)
    for axis, k, shift in made.surfaces.ways:
        assert made.surfaces.ids is not None
        theirs, there = (np.roll(it, shift, axis) for it in (made.surfaces.ids(), state))
        for number in np.unique(theirs[k > 0]):
            whole = parts.setdefault(held_name(int(number)), np.zeros(shape))
            whole += np.where((theirs == number) & (k > 0), k * there, 0.0)

    heat = sum(parts.values(), np.zeros(shape))
    return {
        name: joules * float(parts.get(name, np.zeros(1)).sum() - (w * heat).sum())
        for name, w in weights.items()
    }


def _of_faces(body: BodyMaterials, weights: Mapping[str, Numbers]) -> Iterator[Given]:
    """The numbers a of ghosts a + b mirror, where they change."""
    problem = body.problem
    n_ids = body.conduction.medium.n_ids
    for axis, side in itertools.product(range(problem.grid.ndim), SIDES):
        if problem.boundary.periodic(axis) or not problem.ruled_face(axis, side).rule.changes:
            continue
        face, at = problem.ruled_face(axis, side), _edge(problem, axis, side)
        box = tuple(
            (it.start, it.stop) if k == axis else (0, n)
            for k, (it, n) in enumerate(zip(at, problem.grid.shape, strict=True))
        )
        ids = body.ids(box)
        codes = face.codes(box, ids, n_ids).reshape(-1)
        # The low face of the domain is the upper face of the (absent) cells below it.
        shift = 1 if side == "low" else 0
        below = (*box[:axis], (box[axis][0] - shift, box[axis][1] - shift), *box[axis + 1 :])
        one = {MIRROR: np.ones(ids.shape)}, {MIRROR: np.zeros(ids.shape)}
        k = body.flow(axis, below, (one[1], ids), (one[0], ids))
        k = np.where(body.capacity(box, ids) > 0, k, 0.0).reshape(-1)

        # Of a step of the face: its own heat, less what of it every surface gives back.
        own = face_name(problem, axis, side)
        (a,) = (it for it in face.rule.parameters if it.name == "a")
        worth = {
            name: _by_code(codes, k * ((name == own) - w[at].reshape(-1)))
            for name, w in weights.items()
        }
        size = max(len(next(iter(worth.values()))), 1)
        yield Given(_rows_of(a, problem, size), a.changes, worth)


def _by_code(codes: npt.NDArray[Any], values: Numbers, n_codes: int = 0) -> Numbers:
    """Return the sums of values by code, (n_codes,) or as many as there are."""
    return np.asarray(np.bincount(codes, values, n_codes), np.float64)


def _rows_of(parameter: Parameter, problem: Problem, size: int) -> Callable[[int, int], Numbers]:
    """Rows of a parameter, those of the first codes."""
    return lambda first, steps: parameter.rows(problem.time, first, steps)[:, :size]


def _of_source(
    body: BodyMaterials, source: Rule | None, weights: Mapping[str, Numbers]
) -> Iterator[Given]:
    """A source with a number for each id."""
    problem = body.problem
    if source is None or not set(problem.grid.axis_names).isdisjoint(source.program.inputs):
        return
    n_ids = body.conduction.medium.n_ids
    whole = tuple((0, n) for n in problem.grid.shape)
    ids, heats = body.ids(whole), _heats(body, whole)
    # What a unit of power in each material moves through a surface until the end.
    worth = {
        name: -_by_code(ids.reshape(-1), (w * heats).reshape(-1), n_ids)
        for name, w in weights.items()
    }

    def rows(first: int, steps: int) -> Numbers:
        seen = {it.name: it.rows(problem.time, first, steps) for it in source.parameters}
        with np.errstate(all="ignore"):  # both sides of a condition are computed
            power = np.asarray(evaluate(source.program.tree, seen), problem.arithmetic)
        return np.broadcast_to(power, (steps, n_ids)).astype(np.float64)

    yield Given(rows, source.changes, worth)


def _heats(body: BodyMaterials, box: Ranges) -> Numbers:
    """Volume of the cells that a source heats, 0 where the state is held [m^3]."""
    return np.where(body.capacity(box, body.ids(box)) > 0, body.volume(box), 0.0)


def _add_still(
    body: BodyMaterials, source: Rule, weights: Mapping[str, Numbers], steady: dict[str, float]
) -> None:
    """Add what a source is worth that depends on the place alone [W]."""
    problem = body.problem
    whole = tuple((0, n) for n in problem.grid.shape)
    codes = body.ids(whole).astype(np.int64)
    heat = reference.follow(source, problem, 0, whole, codes, {}) * _heats(body, whole)
    for name, w in weights.items():
        steady[name] -= float((w * heat).sum())


@dataclass(frozen=True, eq=False)
class _Shore:
    """The faces along an axis between cells of a body and held cells.

    Attributes:
        axis: normal to the faces.
        cells: flat indices of the cells of the body and of the held ones, two arrays (n,).
        ids: of both.
        between: the ways from the first to the held ones.
    """

    axis: int
    cells: tuple[Ids, Ids]
    ids: tuple[Ids, Ids]
    between: Passage


def _find_shores(body: BodyMaterials) -> list[_Shore]:
    grid, found = body.problem.grid, []
    whole = tuple((0, n) for n in grid.shape)
    ids = body.ids(whole)
    # A cell without capacity stores no heat, so its inflow does not matter.
    held = np.broadcast_to(body.capacity(whole, ids) == 0, ids.shape)
    if not held.any() or held.all():
        return []

    flat = np.arange(ids.size).reshape(ids.shape)
    for axis in range(grid.ndim):
        beside = np.roll(ids, -1, axis)
        joined = body.lets_pass(axis, whole, ids, beside) & (held != np.roll(held, -1, axis))
        if not body.problem.boundary.periodic(axis):
            joined[(slice(None),) * axis + (-1,)] = False
        # Either the cell below the face is held, or that above it.
        for low_held in (False, True):
            at = joined & (held == low_held)
            cells, kinds = [flat[at], np.roll(flat, -1, axis)[at]], [ids[at], beside[at]]
            way = passage(body.problem, axis, whole, ids, beside, "high").at(at)
            if low_held:
                cells, kinds, way = cells[::-1], kinds[::-1], way.back
            found.append(_Shore(axis, (cells[0], cells[1]), (kinds[0], kinds[1]), way))
    return [it for it in found if it.cells[0].size]
