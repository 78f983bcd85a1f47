"""Boundary conditions by face: turns the `boundaries` section into a `Boundary`."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tetris_sim.apps.time_functions import formula
from tetris_sim.config.sections.conditions import (
    ClampedFace,
    CurvatureFace,
    DirichletFace,
    ExtrapolatedFace,
    FaceCondition,
    FaceSection,
    FixedFace,
    ForcedConvection,
    FreeFace,
    NaturalConvection,
    NeumannFace,
    NoFluxFace,
    PeriodicFace,
    RadiationFace,
    RobinFace,
    SupportedFace,
)
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import (
    FREE,
    Boundary,
    Derivatives,
    Dirichlet,
    Face,
    Fixed,
    Neumann,
    NoFlux,
    Periodic,
    Robin,
)
from tetris_sim.model.conduction import Numbers
from tetris_sim.model.formula import Constant, Node, Variable, evaluate
from tetris_sim.model.grid import AXIS_NAMES


def find_face(boundaries: Mapping[str, object], name: str) -> str | None:
    """Find the key that decides about a face: its name before its axis before `*`; None if none
    does.

    Args:
        boundaries: the section, by key.
        name: of the face, for example "x-".
    """
    return next((key for key in (name, name[:-1], "*") if key in boundaries), None)


def patches(
    boundaries: Mapping[str, FaceCondition],
) -> Iterator[tuple[tuple[str | int, ...], FaceSection]]:
    """Yield every section with its key path below `boundaries`; lists of sections are flattened."""
    for key, condition in boundaries.items():
        if isinstance(condition, tuple):
            yield from (((key, number), patch) for number, patch in enumerate(condition))
        else:
            yield (key,), condition


def is_constant(condition: FaceCondition) -> bool:
    """Whether a face has one condition of numbers, uniform over the face and constant in time."""
    if isinstance(condition, tuple | RadiationFace):
        return False
    if isinstance(condition, RobinFace) and not condition.is_linear:
        return False
    return all(
        isinstance(getattr(condition, name, 0.0), float)
        for name in ("value", "flux", "h", "ambient", "slope", "curvature")
    )


def conductivity_gaps(
    boundaries: Mapping[str, FaceCondition], ndim: int, axes: Sequence[str] = AXIS_NAMES
) -> Iterator[tuple[str, str]]:
    """Find the faces that cannot be computed without the conductivity of the body.

    Yields pairs (key, kind of face in words).
    """
    seen: set[str] = set()

    # Several faces may share a key (`x` or `*`); each key is reported once.
    for axis in axes[:ndim]:
        for sign in "-+":
            key = find_face(boundaries, axis + sign)
            if key is None or key in seen:
                continue
            seen.add(key)

            # A heat flow becomes a temperature gradient only through the conductivity of the body;
            # an insulated face has no gradient and needs none.
            for _, section in patches({key: boundaries[key]}):
                if isinstance(section, RobinFace) and section.conductivity is None:
                    yield key, "a robin face"
                if isinstance(section, RadiationFace):
                    yield key, "a radiation face"
                if (
                    isinstance(section, NeumannFace)
                    and section.flux != 0
                    and section.conductivity is None
                ):
                    yield key, "a neumann face with a flux"


def make_boundary(
    boundaries: Mapping[str, FaceCondition],
    ndim: int,
    *,
    conductivity: float | Sequence[float] | None,
    axes: Sequence[str] = AXIS_NAMES,
) -> Boundary:
    """Build the boundary of a problem in which every face has one condition of numbers.

    Args:
        boundaries: the section, by key: x-, x+, y-, ..., an axis for both of its faces, `*` for the
            rest.
        ndim: number of axes of the grid.
        conductivity: of the body [W/(m K)], one or per axis in array order, if it is known.
        axes: names of the axes, in the order of the configuration.

    Raises:
        ConfigError: a face has no condition, lacks the conductivity, or is periodic while its
            opposite is not.
    """
    faces: list[tuple[Face, Face]] = []

    # A scalar conductivity holds along every axis.
    along = conductivity if isinstance(conductivity, Sequence) else (conductivity,) * ndim
    # The configuration lists x, y, z; arrays (z, y, x).
    for axis, own in zip(reversed(axes[:ndim]), along, strict=True):
        low, high = (_face(boundaries, axis + sign, own) for sign in "-+")
        refuse_half_ring(axis, isinstance(low, Periodic), isinstance(high, Periodic))
        faces.append((low, high))
    return Boundary(faces=tuple(faces))


def refuse_half_ring(axis: str, low: bool, high: bool) -> None:
    """Raise unless both faces of an axis are periodic or neither is."""
    if low != high:
        msg = (
            f"boundaries: only one of the faces {axis}- and {axis}+ is periodic, but they are "
            f"joined to each other; write `{axis}: {{type: periodic}}` for both or for neither"
        )
        raise ConfigError(msg)


def condition_of(boundaries: Mapping[str, FaceCondition], name: str) -> tuple[str, FaceCondition]:
    """Return the key that decides about a face, and its condition.

    Raises:
        ConfigError: no key covers the face.
    """
    key = find_face(boundaries, name)
    if key is None:
        msg = (
            f"boundaries: no condition is given for the face {name}; name it, its axis "
            f"`{name[:-1]}`, or `*` for the rest"
        )
        raise ConfigError(msg)
    return key, boundaries[key]


def _face(boundaries: Mapping[str, FaceCondition], name: str, conductivity: float | None) -> Face:
    key, section = condition_of(boundaries, name)

    match section:
        case DirichletFace(value=float(value)):
            return Dirichlet(value)
        case FixedFace(value=float(value)):
            return Fixed(value)
        # Insulated: no gradient, so the conductivity does not matter.
        case NeumannFace(flux=0):
            return Neumann()
        # A face may override the conductivity of the body.
        case NeumannFace(flux=float(flux), conductivity=own):
            return Neumann(flux, _known(own or conductivity, key))
        # A flux besides is convection from what is warmer by flux / h.
        case RobinFace(h=float(h), ambient=float(ambient), conductivity=own, flux=float(flux)):
            if h == 0 and flux != 0:
                return Neumann(flux, _known(own or conductivity, key))
            return Robin(h, ambient + (flux / h if h else 0.0), _known(own or conductivity, key))
        case PeriodicFace():
            return Periodic()
        case NoFluxFace():
            return NoFlux()
        case ClampedFace(value=float(value), slope=float(slope)):
            return Derivatives(orders=(0, 1), values=(value, slope))
        case SupportedFace(value=float(value), curvature=float(curvature)):
            return Derivatives(orders=(0, 2), values=(value, curvature))
        case FreeFace():
            return FREE
        case CurvatureFace(curvature=float(curvature)):
            return Derivatives(orders=(2,), values=(curvature,))
        case ExtrapolatedFace():
            return Derivatives()
    msg = (
        f"boundaries.{key}: this model takes one condition of numbers for a whole face; radiation, "
        "expressions, tables and lists of parts belong to model.type: heat"
    )
    raise ConfigError(msg)


def _known(conductivity: float | None, key: str) -> float:
    if conductivity is None:
        msg = (
            f"boundaries.{key}: a heat flow through a face needs the conductivity of the body, "
            "which is not known; give model.conductivity or model.material"
        )
        raise ConfigError(msg)
    return conductivity


# Convection by published correlations: h as a formula of the temperatures of surface and fluid.
#
# Nusselt numbers Nu = h L / k follow from the Rayleigh number Ra = g beta |T - ambient| L^3 / (nu
# alpha) or the Reynolds number Re = U L / nu, and the Prandtl number. All properties are those of
# the film, at the mean of both temperatures; in a tube they are those of the fluid.
#
# Sources, by the numbers of F. P. Incropera et al., Fundamentals of Heat and Mass Transfer, 7th
# ed.:
#
#     vertical plate          S. W. Churchill, H. H. S. Chu, Int. J. Heat Mass Transfer 18 (1975)
#                             1323: (9.26)
#     horizontal plates       W. H. McAdams, Heat Transmission, 1954: (9.30) to (9.32)
#     cylinder                S. W. Churchill, H. H. S. Chu, Int. J. Heat Mass Transfer 18 (1975)
#                             1049: (9.34)
#     sphere                  S. W. Churchill, Heat Exchanger Design Handbook, 1983: (9.35)
#     plate in a flow         laminar (7.30), then mixed from Re = 5e5 (7.38)
#     tube                    laminar 3.66 (8.55), then V. Gnielinski, Int. Chem. Eng. 16 (1976)
#                             359: (8.62) with (8.21)
#
# The properties of air at 1 atm and of water are the rows of its tables A.4 and A.6, here as
# polynomials through all rows: `tests/unit/test_apps_convection.py` measures how close they are.

_GRAVITY = 9.80665  # m/s^2
_ZERO = 273.15  # 0 degC in kelvin
_DEGREE = 6  # of the polynomials
_NEAREST = 1e-6  # K: where temperatures are equal, powers of their difference have no slope

# Temperature [K], kinematic viscosity [1e-6 m^2/s], conductivity [1e-3 W/(m K)], Prandtl number.
_AIR = """
    200 7.590 18.1 0.737    250 11.44 22.3 0.720    300 15.89 26.3 0.707    350 20.92 30.0 0.700
    400 26.41 33.8 0.690    450 32.39 37.3 0.686    500 38.79 40.7 0.684    550 45.57 43.9 0.683
    600 52.69 46.9 0.685    650 60.21 49.7 0.690    700 68.10 52.4 0.695    750 76.37 54.9 0.702
    800 84.93 57.3 0.709    850 93.80 59.6 0.716    900 102.9 62.0 0.720    950 112.2 64.3 0.723
    1000 121.9 66.7 0.726
"""
# The same of water, and its expansion [1e-6/K] besides.
_WATER = """
    273.15 1.750 569 12.99 -68.05    280 1.422 582 10.26 46.04    290 1.081 598 7.56 174.0
    300 0.8576 613 5.83 276.1        310 0.6999 628 4.62 361.9    320 0.5834 640 3.77 436.7
    330 0.4968 650 3.15 504.0        340 0.4288 660 2.66 566.0    350 0.3749 668 2.29 624.2
    360 0.3350 674 2.02 697.9        370 0.3008 679 1.80 728.7    373.15 0.2913 680 1.76 750.1
"""


@dataclass(frozen=True, eq=False)
class FluidProperties:
    """A fluid over temperature.

    Attributes:
        rows: temperature [K], kinematic viscosity [m^2/s], conductivity [W/(m K)], Prandtl number
            and expansion [1/K], (n, 5).
    """

    rows: Numbers

    @property
    def span(self) -> tuple[float, float]:
        """The temperatures of the table [degC]."""
        return float(self.rows[0, 0]) - _ZERO, float(self.rows[-1, 0]) - _ZERO

    def at(self, kelvin: Node) -> dict[str, Node]:
        """The properties as formulas of a temperature, by the names nu, k, pr and beta."""
        temperatures = self.rows[:, 0]
        middle, half = (temperatures[-1] + temperatures[0]) / 2, np.ptp(temperatures) / 2
        # Beyond the table its ends are taken: polynomials run away there.
        at = formula(
            "clip((kelvin - middle)/half, -1, 1)",
            kelvin=kelvin,
            middle=Constant(float(middle)),
            half=Constant(float(half)),
        )
        return {
            name: self._fitted(self.rows[:, column], at)
            for column, name in enumerate(("nu", "k", "pr", "beta"), 1)
        }

    def _fitted(self, values: Numbers, at: Node) -> Node:
        temperatures = self.rows[:, 0]
        middle, half = (temperatures[-1] + temperatures[0]) / 2, np.ptp(temperatures) / 2
        # Water shrinks below 4 degC; all other properties are positive.
        logarithmic = bool((values > 0).all())
        wanted = np.log(values) if logarithmic else values
        numbers = np.polyfit((temperatures - middle) / half, wanted, _DEGREE)
        tree: Node = Constant(float(numbers[0]))
        for number in numbers[1:]:
            tree = formula("tree*at + more", tree=tree, at=at, more=Constant(float(number)))
        return formula("exp(tree)", tree=tree) if logarithmic else tree


def _read(text: str, columns: int) -> Numbers:
    return np.array(text.split(), np.float64).reshape(-1, columns) * 10.0 ** np.array(
        [0, -6, -3, 0, -6][:columns]
    )


@functools.cache
def properties(fluid: str) -> FluidProperties:
    """Those of `air`, an ideal gas whose expansion is 1/T, or of `water`."""
    if fluid == "water":
        return FluidProperties(_read(_WATER, 5))
    rows = _read(_AIR, 4)
    return FluidProperties(np.column_stack([rows, 1 / rows[:, 0]]))


# Nusselt numbers by name, as formulas of ra, re and pr, and the ranges that their sources give. One
# that is a function of pieces is continuous where that is possible: Newton's method meets no jump.

_NATURAL = {
    "vertical plate": "(0.825 + 0.387*ra**(1/6)/(1 + (0.492/pr)**(9/16))**(8/27))**2",
    "cylinder": "(0.60 + 0.387*ra**(1/6)/(1 + (0.559/pr)**(9/16))**(8/27))**2",
    "sphere": "2 + 0.589*ra**(1/4)/(1 + (0.469/pr)**(9/16))**(4/9)",
}
_RISING = "max(0.54*ra**(1/4), 0.15*ra**(1/3))"
_STABLE = "0.27*ra**(1/4)"
_FORCED = {
    "plate": "(0.664*re**0.5 if re < 5e5 else 0.037*re**0.8 - 871)*pr**(1/3)",
    "tube": "3.66 if re < 2300 else f/8*(re - 1000)*pr/(1 + 12.7*sqrt(f/8)*(pr**(2/3) - 1))",
}
_FRICTION = "(0.79*log(re) - 1.64)**-2"
_RANGES = {
    "vertical plate": ("Ra", 0.0, 1e12),
    "horizontal plate up": ("Ra", 1e4, 1e11),
    "horizontal plate down": ("Ra", 1e4, 1e11),
    "cylinder": ("Ra", 0.0, 1e12),
    "sphere": ("Ra", 0.0, 1e11),
    "plate": ("Re", 0.0, 1e8),
    "tube": ("Re", 0.0, 5e6),
}
Correlation = NaturalConvection | ForcedConvection


def _numbers(given: Correlation, surface: Node, ambient: Node) -> dict[str, Node]:
    """Rayleigh or Reynolds number with the properties, by name, of two temperatures [degC]."""
    warmth = formula(
        "ambient + zero" if given.correlation == "tube" else "(surface + ambient)/2 + zero",
        surface=surface,
        ambient=ambient,
        zero=Constant(_ZERO),
    )
    found = {**properties(given.fluid).at(warmth), "length": Constant(given.length)}
    if isinstance(given, ForcedConvection):
        found["re"] = formula("speed*length/nu", speed=Constant(given.speed), **found)
        return found

    apart = formula(
        "max(abs(surface - ambient), least)",
        surface=surface,
        ambient=ambient,
        least=Constant(_NEAREST),
    )
    text = "g*abs(beta)*apart*length**3*pr/nu**2"
    found["ra"] = formula(text, g=Constant(_GRAVITY), apart=apart, **found)
    return found


def coefficient(given: Correlation, surface: Node, ambient: Node) -> Node:
    """H [W/(m^2 K)] as a formula of the temperatures of surface and fluid [degC]."""
    found = _numbers(given, surface, ambient)
    if given.correlation in _FORCED:
        found["f"] = formula(_FRICTION, **found)
        nusselt = formula(_FORCED[given.correlation], **found)
    elif given.correlation in _NATURAL:
        nusselt = formula(_NATURAL[given.correlation], **found)
    else:
        # Under a cold plate the fluid sinks as it rises over a warm one.
        warm, cold = (_RISING, _STABLE) if given.correlation.endswith("up") else (_STABLE, _RISING)
        sides = {"surface": surface, "ambient": ambient}
        text = f"{warm} if (surface - ambient)*beta >= 0 else {cold}"
        nusselt = formula(text, **sides, **found)
    return formula("nusselt*k/length", nusselt=nusselt, **found)


def outside(given: Correlation, temperatures: Mapping[str, Numbers]) -> list[str]:
    """Say where a correlation or a table is used beyond its range, at some temperatures.

    Args:
        given: the correlation.
        temperatures: of `surface` and `ambient`, of one shape [degC].
    """
    found = _numbers(given, Variable("surface"), Variable("ambient"))
    name, low, high = _RANGES[given.correlation]
    values = np.asarray(evaluate(found[name.lower()], temperatures))
    told = []

    # A surface as warm as its fluid has Ra = 0, and exchanges next to nothing.
    largest = float(np.max(values))
    if not low <= largest <= high:
        limits = f"{low:g} to {high:g}" if low else f"up to {high:g}"
        told.append(f"{name} is {largest:.3g}, and {given.correlation} is known for {limits}")
    warmth = (
        temperatures["ambient"]
        if given.correlation == "tube"
        else (temperatures["surface"] + temperatures["ambient"]) / 2
    )
    span = properties(given.fluid).span
    if np.min(warmth) < span[0] or np.max(warmth) > span[1]:
        beyond = np.max(warmth) if np.max(warmth) > span[1] else np.min(warmth)
        told.append(
            f"the film is {float(beyond):.4g} degC warm, and the table of {given.fluid} has "
            f"{math.ceil(span[0])} to {math.floor(span[1])} degC; its ends are taken beyond"
        )
    return told


# Flows inside of tubes and channels, by numbers of one moment (`heat/streams.py`).

LAMINAR_BELOW = 2300.0  # Re
_IN_TUBES = {
    "tube": _FORCED["tube"],
    # F. W. Dittus, L. M. K. Boelter, 1930: (8.60), for what is heated.
    "dittus-boelter": "0.023*re**0.8*pr**0.4",
}


def tube_properties(fluid: str, ambient: float) -> dict[str, float]:
    """Return the conductivity k [W/(m K)] and the Prandtl number pr of a fluid at some degC."""
    found = properties(fluid).at(Constant(ambient + _ZERO))
    return {name: float(evaluate(found[name], {})) for name in ("k", "pr")}


def nusselt_in_tube(correlation: str, re: float, pr: float, laminar: float) -> float:
    """Return the Nusselt number of a flow in a tube.

    >>> [round(nusselt_in_tube("tube", re, 5.83, 3.66), 1) for re in (1000.0, 1e4)]
    [3.7, 74.2]

    Args:
        correlation: for flows that are not laminar, `tube` or `dittus-boelter`.
        re: Reynolds number.
        pr: Prandtl number.
        laminar: what it is of laminar ones.
    """
    if re < LAMINAR_BELOW:
        return laminar
    at: dict[str, Node] = {"re": Constant(re), "pr": Constant(pr)}
    tree = formula(_IN_TUBES[correlation], f=formula(_FRICTION, **at), **at)
    return float(evaluate(tree, {}))
