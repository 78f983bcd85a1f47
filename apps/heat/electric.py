"""Electric heating: the potential between electrodes, and the heat of the current in each cell.

Charge flows through faces of cells as heat does: with electric conductivities s and half cells in
series, i = A (p_a - p_b) / (d_a / (2 s_a) + d_b / (2 s_b)), and what flows into a cell leaves it.
The heat i^2 R of every half cell is that of its cell, so all cells together get what the
electrodes give, to the rounding of the solution.

Conductivities may depend on temperature. Then the heat follows from the state of the whole body:
explicit steps decide before each of them whether to solve for it anew, implicit and steady ones
solve for it with every state, and take its derivative along.
"""

from __future__ import annotations

import base64
import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, model_validator

from tetris_sim.apps.domain import KeyPath
from tetris_sim.config.sections.conditions import FaceName
from tetris_sim.config.sections.quantities import (
    Quantity,
    Section,
)
from tetris_sim.config.sections.varying import SURFACE, ByTemperature, TemperatureTable, Varying
from tetris_sim.errors import ConfigError, NumericsError
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.exchange import Heated
from tetris_sim.model.formula import ExpressionError, compile_expression, evaluate
from tetris_sim.model.grid import Grid
from tetris_sim.model.radiation import Slopes
from tetris_sim.model.step_control import Signal
from tetris_sim.model.streams import Span, warmth
from tetris_sim.solvers.elliptic import ResistorNetwork, ResistorState
from tetris_sim.support.wording import listed, suggestion

if TYPE_CHECKING:
    from tetris_sim.apps.heat.materials import ContactSection
    from tetris_sim.apps.heat.model import HeatModel
    from tetris_sim.apps.heat.survey import GridScan
    from tetris_sim.config.sections.schema import Request

Voltage = Annotated[float, Quantity("a voltage", "V", ("5 V", "60 mV"))]
Current = Annotated[float, Quantity("an electric current", "A", ("10 A",))]
_CONDUCTIVITY = Quantity("an electric conductivity", "S/m", ("58e6 S/m",), "positive")
ElectricConductivity = Annotated[
    float | str, Varying(_CONDUCTIVITY, (SURFACE,)), ByTemperature(_CONDUCTIVITY)
]
CHANGED = 1e-3  # of a conductivity: explicit steps solve for currents anew once one has changed so
_APART = 0.01  # K between temperatures whose conductivities give a derivative
_LOST = 1e-8  # of the power: what electrodes may give more than cells get


class ElectrodeSection(Section):
    """A metal on a face of the box, or on a part of it, of one potential."""

    face: FaceName
    """A face of the box."""
    where: str | None = None
    """A condition of x, y and z: which part of the face; all of it if not given."""
    voltage: Voltage | None = None
    """Its potential [V]."""
    current: Current | None = None
    """Instead: what flows into the body [A], in 2D per metre of depth, in 1D per square metre."""

    @model_validator(mode="after")
    def _one_drive(self) -> ElectrodeSection:
        if (self.voltage is None) == (self.current is None):
            msg = "give either voltage or current"
            raise ValueError(msg)
        return self


class ElectricSection(Section):
    """Currents through the body, which heat it."""

    conductivities: Annotated[dict[str, ElectricConductivity], Field(min_length=1)]
    """Electric conductivity by material [S/m]; other materials insulate. A number, a formula of the
    temperature T [degC], or a table over it: `{table: [[20 degC, 58e6], ...]}`.
    """
    electrodes: Annotated[tuple[ElectrodeSection, ...], Field(min_length=2)]
    """Where current comes in and goes out; one of them has a voltage."""

    @property
    def follows(self) -> bool:
        """Whether a conductivity depends on temperature."""
        return not all(isinstance(it, float) for it in self.conductivities.values())


def electric_mistakes(model: HeatModel, request: Request) -> Iterator[tuple[KeyPath, str]]:
    """Yield names that are nothing, and what currents cannot go with, with key paths."""
    electric = model.electric
    resisting = [(n, it) for n, it in enumerate(model.contacts) if it.electric_resistance]
    for number, contact in resisting:
        # A contact resists currents only between two conductors.
        carries = {} if electric is None else electric.conductivities
        if lacks := [it for it in contact.between if it not in carries]:
            told = (
                f"model.electric.conductivities has none of {listed(lacks, 'and')}, so no current"
            )
            yield ("model", "contacts", number, "electric_resistance"), f"{told} flows there"
    if electric is None:
        return
    path: KeyPath = ("model", "electric")
    known = {*model.substances()}
    for name in electric.conductivities:
        if name not in known:
            there = listed([*known], "and")
            told = f"{name!r} is no material{suggestion(name, known)}; known are {there}"
            yield (*path, "conductivities", name), told

    # Formulas of place know the axes of the grid only.
    faces = [axis + sign for axis in request.grid.names for sign in "-+"]
    for number, it in enumerate(electric.electrodes):
        own: KeyPath = (*path, "electrodes", number)
        if it.face not in faces:
            yield (*own, "face"), f"{it.face!r} is no face; {listed(faces)} is wanted"
        if it.where is not None:
            try:
                compile_expression(it.where, request.grid.names)
            except ExpressionError as error:
                yield (*own, "where"), str(error)

    # Two potentials whose currents are given differ by any constant.
    if all(it.voltage is None for it in electric.electrodes):
        told = "every electrode has a current, so potentials are known but for a constant; "
        yield (*path, "electrodes"), f"{told}let one have voltage: 0 V"
    if request.time.scheme == "spectral":
        told = "currents heat differently from place to place; take explicit, implicit or steady"
        yield ("time", "scheme"), told
    if request.compute.precision == "float16":
        told = "bodies with currents are equations, in float64 or float32; not in float16"
        yield ("compute", "precision"), told


@dataclass(frozen=True, eq=False)
class Currents:
    """The currents through a body.

    Attributes:
        potential: of the cells, of the grid's shape; NaN where no current can be [V].
        heat: of the cells [W].
        electrodes: potential [V] and current into the body [A] of each.
    """

    potential: Numbers
    heat: Numbers
    electrodes: tuple[tuple[float, float], ...]

    def heated(self, joules: float) -> Heated:
        """Return the heat of cells in a unit of so many watts."""
        return Heated("currents", self.heat / joules)

    @property
    def power(self) -> float:
        """The heat of all cells [W]."""
        return float(self.heat.sum())

    @property
    def notes(self) -> tuple[str, ...]:
        """Say what electrodes have, and what they give."""
        told = [f"{v:.6g} V and {i:.6g} A" for v, i in self.electrodes]
        power = f"{self.power:.6g} W"
        return (f"electrodes have {listed(told, 'and')}; the currents heat by {power}",)


@dataclass(frozen=True)
class _Law:
    """How a conductivity depends on temperature.

    Attributes:
        material: whose.
        given: a table over temperature, or a formula of T.
        cells: flat numbers.
    """

    material: str
    given: TemperatureTable | str
    cells: Any

    def at(self, temperatures: Numbers) -> Numbers:
        """Return conductivities, of the shape of the temperatures [S/m].

        Raises:
            NumericsError: some are not above 0.
        """
        if isinstance(self.given, TemperatureTable):
            return self.given.at(temperatures)
        # Formulas may leave the positive numbers; the first temperature at which they do is named.
        tree = compile_expression(self.given, (SURFACE,)).tree
        with np.errstate(all="ignore"):
            found = np.asarray(evaluate(tree, {SURFACE: temperatures}), np.float64)
        found = np.broadcast_to(found, temperatures.shape)

        wrong = np.isfinite(temperatures) & ~((found > 0) & (found < math.inf))
        if wrong.any():
            first = int(np.argmax(wrong))
            msg = (
                f"model.electric.conductivities.{self.material}: at {temperatures[first]:.6g} degC "
                f"it is {found[first]:.6g} S/m; let it stay above 0 at all temperatures that are "
                "reached, as a table does beyond its ends"
            )
            raise NumericsError(msg)
        return found

    def rise(self, temperatures: Numbers) -> Numbers:
        """Return its logarithmic derivative [1/K]."""
        # Central difference of the logarithm: exact for exponential laws, and free of scale.
        low, high = (np.log(self.at(temperatures + d)) for d in (-_APART, _APART))
        return np.asarray((high - low) / (2 * _APART))


class Circuit:
    """The conductors of a body, and its electrodes: unknowns are the potentials of cells, and after
    them those of the electrodes.

    Args:
        electric: its section.
        contacts: of its materials.
        found: the body.
        periodic: per axis.

    Attributes:
        follows: whether a conductivity depends on temperature.

    Raises:
        ConfigError: nothing conducts at an electrode, or a current has no way.
    """

    def __init__(
        self,
        electric: ElectricSection,
        contacts: Sequence[ContactSection],
        found: GridScan,
        periodic: Sequence[bool],
    ) -> None:
        self.grid, self.section = found.painting.grid, electric
        grid, n = self.grid, self.grid.n_points
        whole = tuple((0, m) for m in grid.shape)
        names = [None if it.substance is None else it.substance.name for it in found.fillings]
        ids = found.medium().ids(whole)

        # What has no electric conductivity insulates: voids, fluids and other materials.
        laws = {name: electric.conductivities.get(name or "") for name in names}
        numbers = [it if isinstance(it, float) else 0.0 for it in map(laws.get, names)]
        self._constant = np.append(
            np.array(numbers)[ids].reshape(-1), np.full(len(electric.electrodes), np.inf)
        )
        self._laws = list[_Law]()
        for name, given in laws.items():
            if name is not None and isinstance(given, str | TemperatureTable):
                of_id = np.array([it == name for it in names])
                self._laws.append(_Law(name, given, np.flatnonzero(of_id[ids])))
        self.follows = bool(self._laws)
        carries = np.array([laws[name] is not None for name in names])[ids]

        # Pairs of unknowns with what makes resistances of conductivities on either side [1/m], and
        # half of what their contact resists [Ohm].
        # One resistor per face between two conducting cells: half a cell on either side, and the
        # contact.
        flat, pairs = np.arange(n).reshape(grid.shape), list[tuple[Any, Any, Any, Any, Any]]()
        joined = _joined(contacts, found)
        openings, reaches = (found.by_id(it) for it in (found.openings, found.reaches))
        for axis in range(grid.ndim):
            half = np.broadcast_to(grid.distances(axis, whole), grid.shape) / 2
            area = np.broadcast_to(grid.areas(axis, whole), grid.shape)
            above, beyond, carry, other_ids = (
                np.roll(it, -1, axis) for it in (flat, half, carries, ids)
            )
            joint = joined[axis][ids, other_ids]
            # Nothing flows through the faces that an axis or a centre takes away.
            on = carries & carry & (area > 0) & np.isfinite(joint)
            if not periodic[axis] or grid.shape[axis] == 1:
                on[(slice(None),) * axis + (-1,)] = False
            # Where walls lie off the faces of cells, less or more passes, on another way.
            here, there = ids[on], other_ids[on]
            open_ = area[on] * (1.0 if openings is None else openings[axis, here, there])
            way, beyond_it = (
                1.0 if reaches is None else reaches[axis, a, b]
                for a, b in ((here, there), (there, here))
            )
            # Length over area; divided by the conductivity of each side it is a resistance.
            own, other = half[on] * way / open_, beyond[on] * beyond_it / open_
            pairs.append((flat[on], above[on], own, other, joint[on] / open_ / 2))
        # An electrode is one unknown more, which touches the cells under it.
        for number, it in enumerate(electric.electrodes):
            if periodic[grid.axis_names.index(it.face[:-1])]:
                msg = f"model.electric.electrodes.{number}: {it.face} is no face; it is periodic"
                raise ConfigError(msg)
            cells, own = _covered(grid, it, carries, flat)
            if not len(cells):
                msg = f"model.electric.electrodes.{number}: nothing that conducts lies there"
                raise ConfigError(msg)
            if openings is not None:
                here = ids.reshape(-1)[cells]
                own = own / openings[grid.axis_names.index(it.face[:-1]), here, here]
            nothing = np.zeros(len(cells))
            pairs.append((cells, np.full(len(cells), n + number), own, nothing, nothing))
        a, b, self._own, self._other, self._joint = (
            np.concatenate(it) for it in zip(*pairs, strict=True)
        )
        ends = [n + k for k, it in enumerate(electric.electrodes) if it.voltage is not None]
        volts = [it.voltage for it in electric.electrodes if it.voltage is not None]
        # Kirchhoff's law at every unknown: currents in are 0 in cells, and given at electrodes.
        drive = np.append(np.zeros(n), [it.current or 0.0 for it in electric.electrodes])
        self._network = ResistorNetwork(a, b, dict(zip(ends, volts, strict=True)), drive, grid.ndim)
        if (drive[self._network.apart] != 0).any():
            msg = (
                "model.electric.electrodes: a current flows into a part that no other electrode "
                "touches"
            )
            raise ConfigError(msg)

    @property
    def varying(self) -> Any:
        """Flat numbers of the cells whose conductivities depend on temperature."""
        return np.concatenate([it.cells for it in self._laws])

    def conductivities(self, state: Numbers) -> Numbers:
        """Return those of cells at temperatures of the grid's shape, and of electrodes, flat [S/m].

        Raises:
            NumericsError: some are not above 0.
        """
        found, flat = self._constant.copy(), np.asarray(state, np.float64).reshape(-1)
        for it in self._laws:
            found[it.cells] = it.at(flat[it.cells])
        return found

    def of_varying(self, values: Numbers) -> Numbers:
        """Return the same with those of `varying` given, at temperatures that are not known."""
        found = self._constant.copy()
        found[self.varying] = values
        return found

    def begin(self, temperature: float) -> Currents:
        """Return the currents where all is as warm [degC].

        Raises:
            ConfigError: a conductivity is not above 0, or the potential is not found.
        """
        try:
            return self.currents(self.conductivities(np.full(self.grid.shape, temperature)))
        except NumericsError as error:
            raise ConfigError(str(error)) from error

    def currents(self, conductivities: Numbers) -> Currents:
        """Return the currents of given conductivities.

        Raises:
            NumericsError: the potential is not found.
        """
        it, n = self._solved(conductivities), self.grid.n_points
        into = -it.into[n:]
        # Tellegen's theorem: what electrodes give (V I) equals what resistors turn into heat. A
        # difference means that the linear system was not solved well enough.
        power, heat = float((it.potential[n:] * into).sum()), float(it.heat.sum())
        if not abs(power - heat) <= _LOST * abs(heat):
            msg = (
                f"model.electric: the potential is not found: electrodes give {power:.6g} W, and "
                f"cells get {heat:.6g} W; let conductivities differ by less"
            )
            raise NumericsError(msg)
        shape, ends = self.grid.shape, zip(it.potential[n:].tolist(), into.tolist(), strict=True)
        return Currents(it.potential[:n].reshape(shape), it.heat[:n].reshape(shape), tuple(ends))

    def _solved(self, s: Numbers) -> ResistorState:
        # Half of the heat of a contact goes to either side.
        own, other = self._own / s[self._network.a], self._other / s[self._network.b]
        return self._network.at(own + self._joint, other + self._joint)

    def slopes(self, state: Numbers) -> Callable[[Numbers], Numbers]:
        """Return what makes flat changes of heat [W] of flat changes of temperatures: as the
        resistances change, so do the potentials.
        """
        s, n = self.conductivities(state), self.grid.n_points
        it, a, b = self._solved(s), self._network.a, self._network.b
        own, other = self._own / s[a], self._other / s[b]
        flat, rise = np.asarray(state, np.float64).reshape(-1), np.zeros(len(s))
        for law in self._laws:
            # d ln sigma/dT; resistances of half cells change by minus that, relatively.
            rise[law.cells] = law.rise(flat[law.cells])

        def along(v: Numbers) -> Numbers:
            steep = np.append(rise[:n] * v, rise[n:])
            return self._network.heated(it, -own * steep[a], -other * steep[b])[:n]

        return along


class JouleHeat:
    """The heat of a circuit that follows temperatures; see `CurrentHeat`.

    Explicit steps keep it until a conductivity has changed by `CHANGED` somewhere.

    Args:
        circuit: with conductivities that depend on temperature.
        rates: see `CurrentHeat`.
        joules: what a heat of a cell is in watts.
        decides: whether steps are explicit.
    """

    name = "currents"

    def __init__(self, circuit: Circuit, rates: Numbers, joules: float, *, decides: bool) -> None:
        self.circuit, self.rates, self.joules = circuit, rates, joules
        number = range(1, len(circuit.section.electrodes) + 1)
        self.columns = tuple(
            (f"electrode {n} {of}", unit)
            for n in number
            for of, unit in (("voltage", "V"), ("current", "A"))
        )
        names = (self.name, *(name for name, _ in self.columns)) if decides else ()
        self.signals = tuple(Signal(it, 0.0) for it in names)
        # What held at the last decision: the conductivities that vary, and the heat.
        self._since: Numbers | None = None
        self._kept = np.zeros(0)

    @property
    def notes(self) -> tuple[str, ...]:
        """Say when the potential is solved for."""
        if self.signals:
            return (
                "conductivities depend on temperature: the potential is solved for anew whenever "
                f"one has changed by {CHANGED:.1%} somewhere; the whole state is looked at in "
                "every step, one step at a time",
            )
        return (
            "conductivities depend on temperature: the potential is solved for with every state "
            "that Newton's method tries",
        )

    def _of(self, state: Numbers) -> Currents:
        return self.circuit.currents(self.circuit.conductivities(state))

    def decide(self, state: Numbers, time: float) -> None:
        """Solve for the currents of the step that begins at a time [s], if they have changed."""
        flat = np.asarray(state, np.float64).reshape(-1)
        varying = self.circuit.varying
        if not np.isfinite(flat[varying]).all():
            return  # the run ends by itself
        now = self.circuit.conductivities(state)
        if self._since is not None:
            # Relative change in either direction, since conductivities span decades.
            ratio = now[varying] / self._since
            if np.maximum(ratio, 1 / ratio).max() <= 1 + CHANGED:
                return
        found = self._take(now)
        ends = itertools.chain.from_iterable(found.electrodes)
        for signal, value in zip(self.signals, (found.power, *ends), strict=True):
            signal.decide(time, value)

    def _take(self, conductivities: Numbers) -> Currents:
        found = self.circuit.currents(conductivities)
        self._since = conductivities[self.circuit.varying]
        self._kept = found.heat / self.joules
        return found

    def heat(self, state: Numbers) -> Numbers:
        """Return what each cell of a state gets, of its shape, in the units of `Moving.flows`."""
        if self._since is not None:
            return self._kept
        if not np.isfinite(np.asarray(state).reshape(-1)[self.circuit.varying]).all():
            # Newton's method sees NaN and takes a shorter step, instead of an error here.
            return np.full(state.shape, np.nan)
        return np.asarray(self._of(state).heat / self.joules)

    def slopes(self, state: Numbers) -> Slopes:
        """Return the derivatives of the rates of all cells by their temperatures."""
        from scipy.sparse import csr_matrix

        n, rates = self.rates.size, self.rates.reshape(-1) / self.joules
        along = self.circuit.slopes(state)
        nothing = csr_matrix((n, 0)), np.zeros((0, 0)), csr_matrix((0, n))
        return Slopes(*nothing, np.zeros(n), lambda v: rates * along(v))

    def given(self, state: Numbers, span: Span) -> float:
        """Return what all cells get in a step, in the units of `Moving.flows`."""
        if self.signals:
            return warmth(self.signals[0], span) / self.joules
        return self._of(state).power / self.joules

    def said(self, state: Numbers, time: float) -> list[float]:
        """Return voltage [V] and current [A] of each electrode at a time [s]."""
        if self.signals:
            return [warmth(it, (time, time)) for it in self.signals[1:]]
        return [*itertools.chain.from_iterable(self._of(state).electrodes)]

    def remembered(self) -> str:
        """Return the conductivities of the last decision as a text; empty before it."""
        if self._since is None:
            return ""
        return base64.b64encode(zlib.compress(self._since.tobytes())).decode()

    def recall(self, text: str) -> None:
        """Solve for the currents of the last decision once more."""
        if not text:
            return
        values = np.frombuffer(zlib.decompress(base64.b64decode(text)))
        self._take(self.circuit.of_varying(values))


def find_circuit(model: HeatModel, found: GridScan, periodic: Sequence[bool]) -> Circuit | None:
    """Return what conducts in a body; None if it has no electrodes.

    Args:
        model: with its section.
        found: the body.
        periodic: per axis.

    Raises:
        ConfigError: nothing conducts at an electrode, or a current has no way.
    """
    if (electric := model.electric) is None:
        return None
    if found.enthalpy is not None:
        msg = (
            "model.electric: a body with currents has constant thermal properties, and here "
            "something melts, radiates to a fluid or a gap, or depends on temperature; give "
            "numbers. Electric conductivities may depend on it"
        )
        raise ConfigError(msg)
    return Circuit(electric, model.contacts, found, periodic)


def _joined(contacts: Sequence[ContactSection], found: GridScan) -> Numbers:
    """Resistances of contacts to currents, by axis and ids, per area of the faces of cells (ndim,
    n_ids, n_ids) [Ohm m^2].
    """
    # It reads the sections of bodies, and these read the one of currents.
    from tetris_sim.apps.heat.survey import joints

    resisting = [
        it.model_copy(update={"resistance": it.electric_resistance, "emissivity": None})
        for it in contacts
        if it.electric_resistance is not None
    ]
    table, _ = joints(found.painting, resisting, found.painting.cuts.shares())
    return table[:, found.of_id][:, :, found.of_id]


def _covered(grid: Grid, it: ElectrodeSection, carries: Any, flat: Any) -> tuple[Any, Numbers]:
    """The cells under an electrode, and what makes their resistances to it [1/m]."""
    axis = grid.axis_names.index(it.face[:-1])
    end = 0 if it.face[-1] == "-" else grid.shape[axis] - 1
    plane = tuple(slice(end, end + 1) if k == axis else slice(None) for k in range(grid.ndim))

    # The lower face of the box is the upper one of cells that are not there.
    at_face = -1 if end == 0 and it.face[-1] == "-" else end
    box = tuple((at_face, at_face + 1) if k == axis else (0, m) for k, m in enumerate(grid.shape))
    whole = tuple((0, m) for m in grid.shape)
    # From the centre of a cell to the electrode on its outer face.
    half = np.broadcast_to(grid.distances(axis, whole), grid.shape)[plane] / 2
    area = np.broadcast_to(grid.areas(axis, box), half.shape)
    on = carries[plane] & (area > 0)
    if it.where is not None:
        at: dict[str, Any] = {}
        for k, name in enumerate(grid.axis_names):
            along = [-1 if other == k else 1 for other in range(grid.ndim)]
            places = grid.coordinates(k) if k != axis else grid.ends(k)[[end + (at_face >= 0)]]
            at[name] = places.reshape(along)
        tree = compile_expression(it.where, grid.axis_names).tree
        on = on & np.broadcast_to(np.asarray(evaluate(tree, at)) != 0, on.shape)
    return flat[plane][on], half[on] / area[on]
