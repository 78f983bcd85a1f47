"""Which condition holds on which face? Turns the `boundaries` section into a `Boundary`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tetris_sim.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.conditions import (
    DirichletFace,
    FaceSection,
    FixedFace,
    NeumannFace,
    PeriodicFace,
    RobinFace,
)
from tetris_sim.errors import ConfigError
from tetris_sim.grid import AXIS_NAMES


def find_face(boundaries: Mapping[str, FaceSection], name: str) -> str | None:
    """The key that decides about a face: its name before its axis before `*`; None if none does.

    Args:
        boundaries: the section, by key.
        name: of the face, for example "x-".
    """
    return next((key for key in (name, name[0], "*") if key in boundaries), None)


def conductivity_gaps(
    boundaries: Mapping[str, FaceSection], ndim: int
) -> Iterator[tuple[str, str]]:
    """Faces that cannot be computed without the conductivity of the body: (key, kind of face)."""
    seen: set[str] = set()
    for axis in AXIS_NAMES[:ndim]:
        for sign in "-+":
            key = find_face(boundaries, axis + sign)
            if key is None or key in seen:
                continue
            seen.add(key)
            section = boundaries[key]
            if isinstance(section, RobinFace) and section.conductivity is None:
                yield key, "a robin face"
            if (
                isinstance(section, NeumannFace)
                and section.flux != 0
                and section.conductivity is None
            ):
                yield key, "a neumann face with a flux"


def make_boundary(
    boundaries: Mapping[str, FaceSection], ndim: int, *, conductivity: float | None
) -> Boundary:
    """The condition on every face.

    Args:
        boundaries: the section, by key: x-, x+, y-, ..., an axis for both of its faces, `*` for the
            rest.
        ndim: number of axes of the grid.
        conductivity: of the body [W/(m K)], if it is known.

    Raises:
        ConfigError: a face has no condition, lacks the conductivity, or is periodic while its
            opposite is not.
    """
    faces: list[tuple[Face, Face]] = []
    for axis in reversed(AXIS_NAMES[:ndim]):  # the configuration lists x, y, z; arrays (z, y, x)
        low, high = (_face(boundaries, axis + sign, conductivity) for sign in "-+")
        if isinstance(low, Periodic) != isinstance(high, Periodic):
            msg = (
                f"boundaries: only one of the faces {axis}- and {axis}+ is periodic, but they are "
                f"joined to each other; write `{axis}: {{type: periodic}}` for both or for neither"
            )
            raise ConfigError(msg)
        faces.append((low, high))
    return Boundary(faces=tuple(faces))


def _face(boundaries: Mapping[str, FaceSection], name: str, conductivity: float | None) -> Face:
    key = find_face(boundaries, name)
    if key is None:
        msg = (
            f"boundaries: nothing is said about the face {name}; name it, its axis `{name[0]}`, or "
            "`*` for the rest"
        )
        raise ConfigError(msg)

    section = boundaries[key]
    match section:
        case DirichletFace():
            return Dirichlet(section.value)
        case FixedFace():
            return Fixed(section.value)
        case NeumannFace() if section.flux == 0:
            return Neumann()
        case NeumannFace():
            return Neumann(section.flux, _known(section.conductivity or conductivity, key))
        case RobinFace():
            known = _known(section.conductivity or conductivity, key)
            return Robin(section.h, section.ambient, known)
        case PeriodicFace():
            return Periodic()


def _known(conductivity: float | None, key: str) -> float:
    if conductivity is None:
        msg = (
            f"boundaries.{key}: a heat flow through a face needs the conductivity of the body, "
            "which is not known; give model.conductivity or model.material"
        )
        raise ConfigError(msg)
    return conductivity
