"""Numbers for data sheets: thermal resistances between sources, the thermal impedance of one
with its Foster and Cauer networks, effective conductivities, transmittance of details.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.apps.heat.sources import BeamSource
from tetris_sim.config import Config, make_config
from tetris_sim.errors import ConfigError
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.materials import BodyMaterials
from tetris_sim.scheduler.comm.communicator import Alone
from tetris_sim.simulation.loop import open_simulation
from tetris_sim.simulation.preparation import prepare
from tetris_sim.verification.standards import Answer

Numbers = npt.NDArray[np.float64]

_STEADY = {"scheme": "steady", "tolerance": 1e-10}
_INSULATED = {"type": "neumann"}
_POINTS = 10  # times per decade at which an impedance is looked at
_STEPS = 4  # implicit steps from one to the next
_TERMS = 8  # time constants per decade that a fit may choose from
_SMALL = 1e-3  # of the whole resistance: terms of a network that are left off


@dataclass(frozen=True)
class ThermalResistances:
    """Rises of temperature per power: row i, column j is that of i while j alone heats.

    Attributes:
        sources: names of the places that heat.
        mean: rise of the mean over the volume of a source [K/W].
        largest: rise of its hottest cell [K/W].
    """

    sources: tuple[str, ...]
    mean: Numbers
    largest: Numbers


@dataclass(frozen=True)
class ThermalImpedance:
    """Rise of a source per power at times after it was switched on.

    Attributes:
        source: its name.
        times: (n,) [s].
        impedance: of the mean over its volume, (n,) [K/W].
        foster: resistances [K/W] and time constants [s], by ascending time constant.
        cauer: resistances [K/W] and heat capacities [J/K] from the source to the ambient; each
            capacity lies before its resistance.
        misfit: largest difference between the networks and the impedance [K/W].
    """

    source: str
    times: Numbers
    impedance: Numbers
    foster: tuple[tuple[float, float], ...]
    cauer: tuple[tuple[float, float], ...]
    misfit: float


@dataclass(frozen=True)
class EffectiveConductivity:
    """Conductivities of a body as of one material [W/(m K)].

    Attributes:
        values: by axis: flow between two opposite faces, the others insulated.
        lowest: harmonic mean over the volume, less than which no axis has.
        highest: arithmetic mean, more than which none has (O. Wiener, 1912).
        isotropic: bounds of a mixture of the same parts without direction (Z. Hashin and S.
            Shtrikman, J. Appl. Phys. 33, 3125 (1962)).
    """

    values: dict[str, float]
    lowest: float
    highest: float
    isotropic: tuple[float, float]


def thermal_resistances(config: Config) -> ThermalResistances:
    """Solve for the steady state with each volume source alone at 1 W, and with none.

    With radiation, tables over temperature or in 2D, where powers are per metre of depth, the
    numbers are those of 1 W (1 W/m) above the state without sources.

    Raises:
        ConfigError: it is no body with volume sources.
        TetrisError: there is no steady state, or it cannot be solved for.
    """
    # Differences from the state without sources leave out ambients of any temperatures, so that
    # faces need not be changed, and a film that depends on temperature is met where the body works.
    names = _sources(config)
    without = _steady(config, None)
    places = _heated(config)
    mean, largest = np.empty((2, len(names), len(names)))
    for j in range(len(names)):
        rise = _steady(config, j) - without
        for i, (where, volume) in enumerate(places):
            mean[i, j] = (rise[where] * volume).sum() / volume.sum()
            largest[i, j] = rise[where].max()
    return ThermalResistances(names, mean, largest)


def thermal_impedance(
    config: Config, source: str | None = None, *, begin: float, end: float
) -> ThermalImpedance:
    """Switch a source on at 1 W in the steady state without sources, and follow its temperature.

    The Foster network is the non-negative least-squares fit of exponentials with fixed time
    constants, the Cauer network the continued fraction of its impedance.

    Args:
        config: the body.
        source: name of the source; the first if not given.
        begin: the first time [s].
        end: the last one [s].

    Raises:
        ConfigError: there is no such source, or the times do not ascend.
        TetrisError: there is no steady state, or it cannot be solved for.
    """
    names = _sources(config)
    if source is not None and source not in names:
        msg = f"no source is called {source}; there are {', '.join(names)}"
        raise ConfigError(msg)
    if not 0 < begin < end:
        msg = f"times from {begin:g} to {end:g} s; they must be positive and ascend"
        raise ConfigError(msg)

    # Times span decades, so each piece has its own length of steps; an implicit step damps what a
    # longer one cannot follow.
    number = 0 if source is None else names.index(source)
    where, volume = _heated(config)[number]
    without = _steady(config, None)
    count = math.ceil(_POINTS * math.log10(end / begin)) + 1
    times = np.geomspace(begin, end, max(count, 2))
    state, found = without, list[float]()
    for low, high in itertools.pairwise([0.0, *times]):
        time = {"scheme": "implicit", "dt": (high - low) / _STEPS, "steps": _STEPS}
        state, _ = _solved(_varied(config, number, time), state)
        found.append(float(((state - without)[where] * volume).sum() / volume.sum()))
    impedance = np.array(found)
    foster = _fit(times, impedance)
    told = sum(r * -np.expm1(-times / tau) for r, tau in foster)
    misfit = float(abs(told - impedance).max())
    return ThermalImpedance(names[number], times, impedance, foster, to_cauer(foster), misfit)


def effective_conductivity(config: Config) -> EffectiveConductivity:
    """Solve for the steady state between 1 and 0 degC on opposite faces, axis by axis.

    Raises:
        ConfigError: its conductivities have no number each, or parts are fluids or voids.
        TetrisError: it cannot be solved for.
    """
    model, problem = _model(config), config.build()
    grid = problem.grid
    if grid.axis_names[0] not in "xyz":
        msg = "grid.coordinates: an effective conductivity is that of a box along x, y and z"
        raise ConfigError(msg)
    k, share = _parts(model, problem)

    # Insulated sides make the flow that of a periodic body where the cell has mirror planes.
    lengths = [float(np.sum(grid.widths(k))) for k in range(grid.ndim)]
    values = dict[str, float]()
    for axis, name in enumerate(grid.axis_names):
        faces = {
            f"{name}-": {"type": "dirichlet", "value": 1},
            f"{name}+": {"type": "dirichlet", "value": 0},
            "*": _INSULATED,
        }
        _, found = _solved({**_varied(config, None, _STEADY), "boundaries": faces})
        area = math.prod(lengths) / lengths[axis]
        values[name] = found[f"{name}-"] * lengths[axis] / area

    lowest, highest = float(1 / (share / k).sum()), float((share * k).sum())
    low, high = (_hashin_shtrikman(k, share, float(it), grid.ndim) for it in (k.min(), k.max()))
    return EffectiveConductivity(dict(reversed(values.items())), lowest, highest, (low, high))


def thermal_transmittance(
    config: Config, inside: float, outside: float, flanking: Sequence[tuple[float, float]] = ()
) -> tuple[float, float]:
    """Solve for the steady state of a detail between two temperatures (ISO 10211).

    Args:
        config: the detail, with the temperatures of both sides in its faces.
        inside: the warmer one [degC].
        outside: the colder one [degC].
        flanking: of each element beside the detail its U-value [W/(m^2 K)] and its length [m] in
            2D, or area [m^2] in 3D.

    Returns:
        (thermal coupling coefficient, what the detail adds to the elements): in 2D L2D and psi
        [W/(m K)], in 3D L3D and chi [W/K].

    Raises:
        ConfigError: the temperatures are not those of a warmer and a colder side.
        TetrisError: it cannot be solved for.
    """
    if not inside > outside:
        msg = f"inside {inside:g}, outside {outside:g} degC: the inside must be warmer"
        raise ConfigError(msg)
    _model(config)
    # What enters on one side leaves on the other, so the sum over surfaces with heat that enters is
    # the heat from the inside, whichever surfaces that has.
    prepared = prepare(make_config(_varied(config, None, _STEADY)), Alone())
    with open_simulation(prepared.problem, prepared.plan) as simulation:
        simulation.run()
        answer = Answer(simulation.snapshot(), simulation.time)
        flows = answer.flows()
        faces = [flows.get(name, 0.0) for name in _faces(prepared.problem)]
        entering = sum(it for it in faces if it > 0)
        body = prepared.problem.conduction
        if body is not None and np.isinf(body.medium.capacity).any():
            if body.coefficients is None:
                msg = "fluids of a detail need grid.graded; write its axes as segments"
                raise ConfigError(msg)
            entering += sum(it for it in answer.from_fluids().values() if it > 0)

    coupling = entering / (inside - outside)
    return coupling, coupling - sum(u * length for u, length in flanking)


def _faces(problem: Problem) -> list[str]:
    return [f"{name}{side}" for name in problem.grid.axis_names for side in "-+"]


def _hashin_shtrikman(k: Numbers, share: Numbers, around: float, ndim: int) -> float:
    more = (ndim - 1) * around
    return float(1 / (share / (k + more)).sum() - more)


def to_cauer(foster: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Turn a Foster network into the Cauer network with the same impedance: its continued fraction.

    >>> to_cauer([(2.0, 3.0)])
    ((2.0, 1.5),)

    Args:
        foster: resistances [K/W] and time constants [s].

    Returns:
        Resistances [K/W] and heat capacities [J/K] from the source to the ambient.
    """
    from fractions import Fraction

    # In exact arithmetic: each division takes away a leading term, and time constants span decades.
    below, above = [Fraction(1)], [Fraction(0)]
    exact = [(Fraction(r), Fraction(tau)) for r, tau in foster]
    for r, tau in exact:
        factor = [Fraction(1), tau]
        above = _trimmed(_sum(_product(above, factor), [r * it for it in below]))
        below = _product(below, factor)

    found = list[tuple[float, float]]()
    while any(above):
        capacity = below[-1] / above[-1]  # Y = below/above = s C + the rest
        rest = _trimmed(_sum(below, [Fraction(0), *(-capacity * it for it in above)]))
        resistance = above[-1] / rest[-1]
        found.append((float(resistance), float(capacity)))
        below, above = rest, _trimmed(_sum(above, [-resistance * it for it in rest]))
    return tuple(found)


def _product(a: list[Any], b: list[Any]) -> list[Any]:
    found = [0 * a[0]] * (len(a) + len(b) - 1)
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            found[i + j] += x * y
    return found


def _sum(a: list[Any], b: list[Any]) -> list[Any]:
    return [x + y for x, y in itertools.zip_longest(a, b, fillvalue=0 * a[0])]


def _trimmed(a: list[Any]) -> list[Any]:
    while a and a[-1] == 0:
        a = a[:-1]
    return a


def _fit(times: Numbers, impedance: Numbers) -> tuple[tuple[float, float], ...]:
    from scipy.optimize import least_squares, nnls

    decades = math.log10(times[-1] / times[0]) + 1
    constants = np.geomspace(times[0] / 3, times[-1] * 3, math.ceil(_TERMS * decades))

    def fitted(among: Numbers) -> Numbers:
        return np.asarray(nnls(-np.expm1(-times[:, None] / among), impedance)[0])

    # Non-negative resistances are what makes a network of parts that exist, and what keeps a fit
    # with more constants than the curve has from swinging.
    # Neighbours share what is between them; of a few together one at their mean is as good.
    weights = fitted(constants)
    taken, merged, total = weights > 0, list[float](), weights.sum()
    for group in np.split(np.arange(len(constants)), np.flatnonzero(np.diff(taken)) + 1):
        if taken[group[0]]:
            share = weights[group] / weights[group].sum()
            merged.append(float(np.exp((share * np.log(constants[group])).sum())))
    among = np.array(merged)
    weights = fitted(among)
    keep = weights > _SMALL * total

    # The constants between those of the grid, with resistances that stay positive.
    def off(logs: Numbers) -> Numbers:
        r, tau = np.exp(logs).reshape(2, -1)
        return np.asarray((-np.expm1(-times[:, None] / tau) @ r - impedance) / total)

    begun = np.log(np.concatenate([weights[keep], among[keep]]))
    polished = least_squares(off, begun, xtol=1e-12, ftol=1e-14, gtol=1e-14)
    r, tau = np.exp(polished.x).reshape(2, -1)
    order = np.argsort(tau)
    return tuple(zip(r[order].tolist(), tau[order].tolist(), strict=True))


# Solutions of a configuration with other sources, times and faces.


def _model(config: Config) -> HeatModel:
    if not isinstance(config.model, HeatModel):
        msg = "model.type: heat is wanted, a body that conducts heat"
        raise ConfigError(msg)
    return config.model


def _sources(config: Config) -> tuple[str, ...]:
    """The name of each volume source; moving beams are none."""
    sources = _model(config).sources
    if not sources or any(isinstance(it, BeamSource) for it in sources):
        msg = "model.sources: volume sources are wanted, of which each heats alone in turn"
        raise ConfigError(msg)
    told = [
        getattr(it, "region", None) or getattr(it, "material", None) or f"source {n}"
        for n, it in enumerate(sources, 1)
    ]
    return tuple(name if told.count(name) == 1 else f"{name} {n}" for n, name in enumerate(told, 1))


def _varied(config: Config, source: int | None, time: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with one source at 1 W, or with none."""
    data = config.resolved()
    data["time"], data["output"] = dict(time), {}
    model = data["model"] = dict(data["model"])
    kept = model.pop("sources", None) or []
    if source is not None:
        one = {k: v for k, v in kept[source].items() if k not in ("density", "over_time", "power")}
        model["sources"] = [{**one, "power": 1.0}]
    return data


def _solved(
    data: Mapping[str, Any], state: Numbers | None = None
) -> tuple[Numbers, dict[str, float]]:
    """(temperatures at the end [degC], heat that enters by name of the surface [W]); from a state
    if one is given.
    """

    def begin(problem: Problem) -> Problem:
        def initial(slab: Slab) -> Numbers:
            owned = (slice(a, b) for a, b in zip(slab.start, slab.stop, strict=True))
            assert state is not None
            return state[(None, *owned)]

        return dataclasses.replace(problem, initial=initial)

    prepared = prepare(make_config(data), Alone(), adapt=None if state is None else begin)
    with open_simulation(prepared.problem, prepared.plan) as simulation:
        simulation.run()
        answer = Answer(simulation.snapshot().seen(), simulation.time)
        return np.array(answer.field(), np.float64), answer.flows()


def _steady(config: Config, source: int | None) -> Numbers:
    return _solved(_varied(config, source, _STEADY))[0]


def _cell_volumes(problem: Problem) -> Numbers:
    """Volumes of all cells [m^3]."""
    grid, conduction = problem.grid, problem.conduction
    if conduction is not None and conduction.coefficients is not None:
        whole = tuple((0, n) for n in grid.shape)
        return np.asarray(conduction.coefficients.volume(whole), np.float64)
    return np.asarray(functools.reduce(np.multiply.outer, map(grid.widths, range(grid.ndim))))


def _heated(config: Config) -> list[tuple[tuple[Any, ...], Numbers]]:
    """The cells of each source with their volumes."""
    problem = config.build()
    whole = tuple((0, n) for n in problem.grid.shape)
    volumes = _cell_volumes(problem)
    heated = _model(config).heated(config)
    cells = [np.nonzero(heated[n](whole)) for n in sorted(heated)]
    return [(where, volumes[where]) for where in cells]


def _parts(model: HeatModel, problem: Problem) -> tuple[Numbers, Numbers]:
    """(conductivity, share of the volume) of each material."""
    substances = model.substances()
    if problem.conduction is None:
        volumes = {name: 1.0 for name in substances}
    else:
        body, volumes = BodyMaterials(problem), dict.fromkeys(substances, 0.0)
        cells = _cell_volumes(problem)
        numbers = body.numbers[body.ids(tuple((0, n) for n in problem.grid.shape))]
        for number, material in enumerate(body.materials):
            if material.held:
                msg = "an effective conductivity is that of solids; there are fluids or voids"
                raise ConfigError(msg)
            volumes[material.name] += float(cells[numbers == number].sum())

    used = [name for name, volume in volumes.items() if volume > 0]
    uneven = [
        it for it in used if substances[it].properties or len(set(substances[it].factors)) > 1
    ]
    if uneven:
        msg = f"{uneven[0]} has no conductivity of one number, as bounds of a mixture need"
        raise ConfigError(msg)
    share = np.array([volumes[name] for name in used])
    return np.array([substances[name].conductivity[0] for name in used]), share / share.sum()
