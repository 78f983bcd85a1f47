"""Scene of a configuration: what holds at its faces, what heats it, where probes are, in words.

Pictures (`preview.py`) and texts say the same of a configuration because both read it here.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.apps.boundaries import find_face
from tetris_sim.apps.domain import make_grid
from tetris_sim.apps.heat.boundaries import beam_path
from tetris_sim.apps.heat.shapes import Condition
from tetris_sim.apps.heat.sources import BeamSource
from tetris_sim.config import Config
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem
from tetris_sim.outputs.materials import BodyMaterials, described
from tetris_sim.outputs.sampling import CrossSection
from tetris_sim.support.wording import listed

N_TIMES = 2001  # at which the path of a beam is followed
# Resolved sections are in SI units.
_UNITS = {
    "ambient": "°C",
    "conductivity": "W/(m K)",
    "d4sigma": "m",
    "density": "W/m³",
    "flux": "W/m²",
    "h": "W/(m² K)",
    "power": "W",
    "value": "°C",
}


@dataclass(frozen=True)
class FacePart:
    """A condition of a face, or of a part of it.

    Attributes:
        text: the condition in words.
        where: the formula of the part; None for the whole face, or for the rest of it.
    """

    text: str
    where: str | None = None


@dataclass(frozen=True)
class Scene:
    """Everything that a preview shows of a configuration.

    Attributes:
        config: the configuration.
        problem: what it builds; None where its input files are gone.
        grid: the computed cells.
    """

    config: Config
    problem: Problem | None
    grid: Grid = field(init=False)

    def __post_init__(self) -> None:
        grid = make_grid(self.config.grid) if self.problem is None else self.problem.grid
        object.__setattr__(self, "grid", grid)

    @property
    def materials(self) -> BodyMaterials | None:
        """The materials of the body; None for one of a single material."""
        if self.problem is None or self.problem.conduction is None:
            return None
        body = BodyMaterials(self.problem)
        return body if len(body.materials) > 1 else None

    @property
    def faces(self) -> dict[str, tuple[FacePart, ...]]:
        """The conditions by name of the face, "x-" and so on, beams among them."""
        said = self.config.resolved()["boundaries"]
        names = [axis + sign for axis in self.grid.axis_names[::-1] for sign in "-+"]
        return {name: self._parts(name, said) for name in names}

    def _parts(self, name: str, said: Mapping[str, Any]) -> tuple[FacePart, ...]:
        key = find_face(said, name)
        if name == "r-" and self.grid.system.is_curved and self.grid.bounds(-1)[0] == 0:
            return (FacePart("axis"),)
        if key is None:
            return (FacePart("not said"),)
        sections = said[key] if isinstance(said[key], list) else [said[key]]

        beams = [str(n) for n, it in self.beams if it.face == name]
        # A face under a beam is not insulated, whatever its section says.
        also = f"; beam of source {listed(beams, 'and')}" if beams else ""
        units = self.units
        return tuple(FacePart(face_text(it, units) + also, it.get("where")) for it in sections)

    @property
    def units(self) -> Mapping[str, str]:
        """The unit of each number of a condition or source; none for equations and stencils."""
        return _UNITS if self.config.model.type == "heat" else {}

    @property
    def sources(self) -> Sequence[Any]:
        """The sources of a body."""
        return getattr(self.config.model, "sources", ())

    @property
    def beams(self) -> list[tuple[int, BeamSource]]:
        """The beams with their numbers among the sources."""
        return [(n, it) for n, it in enumerate(self.sources) if isinstance(it, BeamSource)]

    def path(self, number: int, beam: BeamSource) -> dict[str, npt.NDArray[np.float64]]:
        """Where the centre of a beam is during the run, by axis of its face [m]."""
        end = 0.0 if self.problem is None else self.problem.time(self.problem.steps)
        times = np.linspace(0.0, end if math.isfinite(end) else 0.0, N_TIMES)
        return beam_path(beam, number, self.grid, times)

    @property
    def probes(self) -> list[tuple[str, dict[str, float]]]:
        """Name and position of each probe [m]; those without a name are numbered."""
        names = self.grid.axis_names[::-1]
        return [
            (it.name or f"probe {n}", dict(zip(names, it.at, strict=False)))
            for n, it in enumerate(self.config.output.probes)
        ]

    def words(self) -> str:
        """All of it in a sentence, for those who cannot see the picture."""
        faces = [
            f"{name}: {listed([it.text for it in parts])}" for name, parts in self.faces.items()
        ]
        probes = [name for name, _ in self.probes]
        body = self.materials
        of = f"; materials {listed(described(body.materials), 'and')}" if body else ""
        at = f"; probes {listed(probes, 'and')}" if probes else ""
        return f"{'; '.join(faces)}{of}{at}"


def face_text(section: Mapping[str, Any], units: Mapping[str, str] = MappingProxyType({})) -> str:
    """A condition in words, the kind first.

    >>> face_text({"type": "robin", "h": 25.0, "ambient": 20.0, "flux": 0.0}, {"ambient": "°C"})
    'robin, h 25, ambient 20 °C'
    >>> face_text({"type": "neumann", "flux": 0.0})
    'insulated'

    Args:
        section: the condition, resolved.
        units: unit of each number, by key.
    """
    kind = str(section.get("type", ""))
    if kind == "neumann" and section.get("flux") in (0, 0.0, None):
        return "insulated"
    return ", ".join([kind, *pairs_in_words(section, units)])


def pairs_in_words(section: Mapping[str, Any], units: Mapping[str, str]) -> list[str]:
    """Say the numbers of a section, without those that are zero or not given."""
    hidden = ("type", "where", "path", "over_time")
    return [
        f"{key} {_short(it)}" + (f" {units[key]}" if isinstance(it, float) and key in units else "")
        for key, it in section.items()
        if key not in hidden and it not in (None, 0, 0.0, {}, [], "")
    ]


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict):
        if "table" in value:
            return "over time"
        return ", ".join(f"{key} {_short(it)}" for key, it in value.items() if it is not None)
    if isinstance(value, list):
        return " to ".join(map(_short, value))
    return textwrap.shorten(str(value), 40, placeholder="…")


def face_spans(
    scene: Scene, face: str, along: str, cut: CrossSection
) -> Iterable[tuple[FacePart, float, float]]:
    """Find the parts of a face on the line in which a plane meets it, each from and to [m].

    Args:
        scene: of the face.
        face: its name.
        along: name of the axis of the line.
        cut: the plane.
    """
    grid, parts = scene.grid, scene.faces[face]
    normal, axis = grid.axis_names.index(face[:-1]), grid.axis_names.index(along)
    if len(parts) == 1:
        yield (parts[0], *grid.bounds(axis))
        return

    # The cells beside the face on that line: conditions are asked of cell centres.
    box = [(0, 1)] * grid.ndim
    box[axis] = (0, grid.shape[axis])
    last = grid.shape[normal] - 1
    box[normal] = (0, 1) if face[-1] == "-" else (last, last + 1)
    if cut.axis is not None:
        box[cut.axis] = (cut.index, cut.index + 1)

    # The first part whose condition is true holds, as in a run.
    holds = np.full(grid.shape[axis], len(parts) - 1)
    for number, part in reversed(list(enumerate(parts))):
        inside = (
            np.ones(holds.shape, bool)
            if part.where is None
            else Condition(part.where, grid, f"boundaries.{face}")(tuple(box)).ravel()
        )
        holds[inside] = number
    # Runs of cells in which the same part holds.
    ends = grid.ends(axis)
    turns = [0, *(np.flatnonzero(np.diff(holds)) + 1).tolist(), len(holds)]
    for low, high in itertools.pairwise(turns):
        yield parts[holds[low]], float(ends[low]), float(ends[high])
