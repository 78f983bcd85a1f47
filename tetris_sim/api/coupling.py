"""Coupling: a face whose condition another program computes, exchanged through preCICE.

Of every time window the other program's temperatures or heat fluxes come in, at its begin and its
end and linear in between; at its end the heat fluxes or temperatures of this side go out. An
implicit scheme of preCICE repeats windows until both sides agree; then what crosses the face is
what would flow between two cells of one grid.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tetris_sim.config import Config, load_config, make_config
from tetris_sim.config.overrides import Override
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.conduction import AFFINE, Conduction, Ids, Numbers, Parameter, Rule, RuledFace
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.slab import Ranges, Slab
from tetris_sim.scheduler.comm.communicator import Alone
from tetris_sim.scheduler.facts.shares import Plan
from tetris_sim.simulation.driving import reading
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.preparation import prepare
from tetris_sim.support.wording import listed

Kind = Literal["temperature", "flux"]
_KEYS = ("coupling_mesh_name", "read_data_name", "write_data_name")


@dataclass(frozen=True)
class Coupled:
    """Result of a coupled run.

    Attributes:
        field: the last state, (n0, ...) [degC].
        time: when that is [s].
        windows: how many time windows were agreed on.
        iterations: how often a window was computed, in all.
    """

    field: Field
    time: float
    windows: int
    iterations: int


def couple(
    config: str | Path | Mapping[str, Any],
    face: str,
    adapter: str | Path = "precice-adapter-config.json",
    *,
    corner: Sequence[float] = (),
    call: Callable[[float, Field], object] | None = None,
) -> Coupled:
    """Advance a body as one participant of a coupled simulation, until preCICE ends it.

    Temperatures are degC, heat fluxes W/m^2: one that is read enters this body, one that is written
    leaves it. Steps are as long as is stable and fits into a window.

    Args:
        config: as of `run`, of conducted heat. What it says of `face`, of `time.t_end` and of
            outputs does not matter.
        face: the coupled one, for example "x+". Vertices of the mesh are the middles of its cells.
        adapter: the file that adapters of preCICE read: `participant_name`, `config_file_name`, and
            in `interface` the keys `coupling_mesh_name`, `read_data_name` and `write_data_name`.
            What is read is a temperature or a flux as its name says.
        corner: of the box in the coordinates of the mesh, x first [m]; the origin if not given.
        call: called with the time [s] and the state (n0, ...) after each window.

    Raises:
        ConfigError: the configuration or the adapter's file cannot be coupled like this.
        UnsupportedError: preCICE is not installed.
    """
    link = _read_adapter(Path(adapter))
    problem, plan = _prepare(config, face, link.reads)
    side = Interface(problem, *_place(problem, face), link.reads)
    participant = link.open()
    if participant.get_mesh_dimensions(link.mesh) != problem.grid.ndim:
        msg = (
            f"the mesh {link.mesh} of preCICE has {participant.get_mesh_dimensions(link.mesh)} "
            f"dimensions, the grid {problem.grid.ndim} axes; they have to be as many"
        )
        raise ConfigError(msg)
    # Grids begin at 0; the corner says where that is on the mesh of the others.
    shift = np.array(corner or [0.0] * problem.grid.ndim)
    vertices = participant.set_mesh_vertices(link.mesh, side.vertices + shift)

    shape = problem.grid.shape
    whole = Slab(start=(0,) * len(shape), stop=shape, halo=((0, 0),) * len(shape))
    state, time = np.array(problem.initial(whole)), 0.0
    if participant.requires_initial_data():
        participant.write_data(link.mesh, link.write, vertices, side.extrapolated(state))
    participant.initialize()

    # Implicit coupling repeats a window until both sides agree: preCICE asks to keep a state and to
    # go back to it.
    kept, windows, iterations = (state, time), 0, 0
    while participant.is_coupling_ongoing():
        if participant.requires_writing_checkpoint():
            kept = state, time

        # One window of preCICE is as many stable steps of equal length as needed; what is given is
        # linear in time between its ends.
        length = participant.get_max_time_step_size()
        begin, end = (
            np.asarray(participant.read_data(link.mesh, link.read, vertices, at))
            for at in (0.0, length)
        )
        state = _advance(side.given(begin, end, time, length), plan, state, time, length)
        participant.write_data(link.mesh, link.write, vertices, side.answer(state, end))
        time, iterations = time + length, iterations + 1
        participant.advance(length)

        if participant.requires_reading_checkpoint():
            state, time = kept
        elif participant.is_time_window_complete():
            windows += 1
            if call is not None:
                call(time, state[0])
    participant.finalize()
    return Coupled(state[0], time, windows, iterations)


@dataclass(frozen=True)
class _Link:
    """Contents of an adapter's file."""

    participant: str
    config: Path
    mesh: str
    read: str
    write: str

    @property
    def reads(self) -> Kind:
        return "temperature" if "temperature" in self.read.lower() else "flux"

    def open(self) -> Any:
        """The participant of preCICE; the first thing that needs the library."""
        try:
            precice = importlib.import_module("precice")
        except ImportError as error:
            msg = (
                f"coupling needs preCICE, which is not here ({error}); install its library and "
                "`pip install pyprecice`"
            )
            raise UnsupportedError(msg) from error
        return precice.Participant(self.participant, str(self.config), 0, 1)


def _read_adapter(path: Path) -> _Link:
    """The adapter's file; paths in it start where it lies.

    Raises:
        ConfigError: it cannot be read, lacks something, or names what is read neither a temperature
            nor a flux.
    """
    try:
        data = json.loads(path.read_text())
        interface = data["interface"]
        names = [str(interface[key]) for key in _KEYS]
        link = _Link(str(data["participant_name"]), path.parent / data["config_file_name"], *names)
    except (OSError, ValueError, TypeError, KeyError) as error:
        msg = (
            f"{path} is no adapter's configuration ({type(error).__name__}: {error}); "
            "participant_name, config_file_name and an interface with "
            f"{listed(_KEYS, 'and')} are wanted"
        )
        raise ConfigError(msg) from error

    if not any(word in link.read.lower() for word in ("temperature", "flux")):
        msg = f"{path} reads {link.read!r}; a name with Temperature or Flux in it is wanted"
        raise ConfigError(msg)
    return link


def _prepare(
    config: str | Path | Mapping[str, Any], face: str, reads: Kind
) -> tuple[Problem, Plan]:
    """The problem with a face to be coupled, and the plan for it."""
    # A condition that changes over time; what it says is replaced.
    # The face has to be one that changes with time, so that the plan takes methods which allow
    # that.
    stand_in = {"type": "dirichlet", "value": "t"}
    overrides = [
        Override("face=", ("boundaries", face), stand_in),
        Override("face=", ("time", "scheme"), "explicit"),
    ]
    if isinstance(config, str | Path):
        found: Config = load_config(Path(config), overrides=overrides)
    else:
        found = make_config(config, overrides=overrides)

    def with_face(problem: Problem) -> Problem:
        side = Interface(problem, *_place(problem, face), reads)
        nothing = np.zeros(side.n_vertices)
        return side.given(nothing, nothing, 0.0, 1.0)

    prepared = prepare(found, Alone(), adapt=with_face)
    return prepared.problem, prepared.plan


def _place(problem: Problem, face: str) -> tuple[int, int]:
    """Axis and side, 0 or 1, of a face; refused if it cannot be coupled.

    Raises:
        ConfigError: there is no such face, or what happens there is not conduction between even
            cells.
    """
    names = problem.grid.axis_names
    places = {
        f"{name}{sign}": (k, s) for k, name in enumerate(names) for s, sign in enumerate("-+")
    }
    if face not in places:
        msg = f"face is {face!r}; one face is coupled: {listed(sorted(places))}"
        raise ConfigError(msg)

    conduction = problem.conduction
    if conduction is None or conduction.coefficients or conduction.enthalpy:
        msg = (
            "only bodies of materials with constant properties on even grids can be coupled: no "
            "melting, no k from a file, no graded axes, no equations of your own"
        )
        raise ConfigError(msg)
    return places[face]


def _advance(problem: Problem, plan: Plan, state: Field, time: float, length: float) -> Field:
    """The state at the end of a window [s], in steps of one length that are stable."""
    steps = math.ceil(length / problem.dt * (1 - 1e-9))
    window = dataclasses.replace(
        problem, initial=reading(state), dt=length / steps, steps=steps, start=(0, time)
    )
    with open_simulation(window, plan) as simulation:
        simulation.run()
        return np.array(simulation.field())


@dataclass(frozen=True, eq=False)
class Interface:
    """The coupled face of a problem.

    Attributes:
        problem: whose face it is.
        axis: of the face.
        side: 0 for the lower one, 1 for the upper one.
        reads: what is given there.
    """

    problem: Problem
    axis: int
    side: int
    reads: Kind

    @functools.cached_property
    def vertices(self) -> Numbers:
        """The middles of the cells' faces, (n_vertices, ndim), x first [m]."""
        grid = self.problem.grid
        places = [
            np.array([grid.bounds(k)[self.side]]) if k == self.axis else grid.coordinates(k)
            for k in range(grid.ndim)
        ]
        mesh = np.meshgrid(*places, indexing="ij")
        return np.stack([it.reshape(-1) for it in mesh[::-1]], axis=1)

    @property
    def n_vertices(self) -> int:
        """As many as the face has cells."""
        return self.problem.grid.n_points // self.problem.grid.shape[self.axis]

    def given(self, begin: Numbers, end: Numbers, time: float, length: float) -> Problem:
        """The problem with what holds there in a window, (n_vertices,) at its begin and end.

        Args:
            begin: temperatures [degC], or fluxes into the body [W/m^2].
            end: likewise.
            time: when the window begins [s].
            length: of the window [s].
        """
        # Ghosts by material: half a cell of it lies between the face and the centre.
        by_id = self._through(np.arange(self._medium.n_ids))

        def values(times: Numbers) -> Numbers:
            share = np.clip((times - time) / length, 0.0, 1.0)[:, None]
            both = (1 - share) * begin + share * end
            if self.reads == "temperature":
                return np.repeat(2 * both, len(by_id), axis=1)
            # Where nothing is conducted, nothing flows in.
            inverse = np.divide(1.0, by_id, out=np.zeros_like(by_id), where=by_id > 0)
            return (both[:, :, None] * inverse).reshape(len(times), -1)

        mirrored = -1.0 if self.reads == "temperature" else 1.0
        rule = Rule(AFFINE, (Parameter("a", values), Parameter("b", np.array([mirrored]))))
        made = RuledFace(rule, self._patch, self.n_vertices)
        faces = [list(pair) for pair in self.problem.boundary.faces]
        faces[self.axis][self.side] = made
        boundary = dataclasses.replace(
            self.problem.boundary, faces=tuple((low, high) for low, high in faces)
        )
        return dataclasses.replace(self.problem, boundary=boundary)

    def answer(self, state: Field, given: Numbers) -> Numbers:
        """Return the other quantity at the coupled face: outward fluxes, or temperatures."""
        # Half a cell conducts twice as well as the distance of two centres, hence the factor 2.
        inside, through = self._layer(state, 0), self._through(self._ids)
        if self.reads == "temperature":
            return 2 * through * (inside - given)
        return inside + np.divide(given, 2 * through, out=np.zeros_like(inside), where=through > 0)

    def extrapolated(self, state: Field) -> Numbers:
        """The same where nothing was given yet, from two layers of cells."""
        inside, before = self._layer(state, 0), self._layer(state, 1)
        if self.reads == "temperature":
            return self._through(self._ids) * (before - inside)
        return inside + (inside - before) / 2

    @property
    def _medium(self) -> Any:
        conduction = self.problem.conduction
        assert isinstance(conduction, Conduction)
        return conduction.medium

    def _through(self, ids: Ids) -> Numbers:
        """Heat flux by difference of temperature of neighbours of the same id [W/(m^2 K)]."""
        own = np.diagonal(self._medium.conductance[self.axis])
        return np.asarray(own[ids] * self.problem.grid.spacing[self.axis], np.float64)

    @functools.cached_property
    def _ids(self) -> Ids:
        n = self.problem.grid.shape[self.axis]
        box = [(0, it) for it in self.problem.grid.shape]
        box[self.axis] = (n - 1, n) if self.side else (0, 1)
        return np.asarray(self._medium.ids(tuple(box))).reshape(-1)

    def _layer(self, state: Field, depth: int) -> Numbers:
        """The cells so deep below the face, or as deep as there are any."""
        n = self.problem.grid.shape[self.axis]
        depth = min(depth, n - 1)
        layer = state[0].take(n - 1 - depth if self.side else depth, axis=self.axis)
        return np.asarray(layer, np.float64).reshape(-1)

    def _patch(self, box: Ranges) -> Ids:
        """The number of the vertex of each point of the face."""
        shape = tuple(1 if k == self.axis else n for k, n in enumerate(self.problem.grid.shape))
        numbers = np.arange(self.n_vertices, dtype=np.uint32).reshape(shape)
        cut = (slice(0, 1) if k == self.axis else slice(*span) for k, span in enumerate(box))
        return numbers[tuple(cut)]
