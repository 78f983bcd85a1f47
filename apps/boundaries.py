"""Boundary conditions by face: turns the `boundaries` section into a `Boundary`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tetris_sim.config.sections.conditions import (
    ClampedFace,
    CurvatureFace,
    DirichletFace,
    ExtrapolatedFace,
    FaceCondition,
    FaceSection,
    FixedFace,
    FreeFace,
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
from tetris_sim.model.grid import AXIS_NAMES


def find_face(boundaries: Mapping[str, FaceCondition], name: str) -> str | None:
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
            f"boundaries: nothing is said about the face {name}; name it, its axis `{name[:-1]}`, "
            "or `*` for the rest"
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
