"""Constant stencils, and heat in one material: methods, faces, precisions, threads, workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .digests import Config

STENCILS = {
    "heat-1d": 1,
    "star-1d5p": 1,
    "heat-2d": 2,
    "star-2d9p": 2,
    "box-2d9p": 2,
    "box-2d25p": 2,
    "heat-2d-tensor": 2,
    "heat-3d": 3,
    "star-3d13p": 3,
    "box-3d27p": 3,
}
ASKEW = ("heat-2d-tensor",)  # takes no mirrored ghosts
SHAPES = {1: [1237], 2: [61, 47], 3: [23, 17, 19]}
LARGE = {1: [20011], 2: [301, 257], 3: [131, 67, 53]}
SPACING = {1: [0.5], 2: [0.25, 0.5], 3: [0.125, 0.25, 0.5]}
METHODS = ("cpu.plain", "cpu.tessellate", "cpu.stream")
PRECISIONS = ("float64", "float32", "float16")
TEAMS: dict[str, Config] = {
    "1 thread": {"devices": "cpu", "threads": 1},
    "2 threads": {"devices": "cpu", "threads": 2},
    "2 workers": {"devices": ["cpu", "cpu"], "threads": 2, "shares": [3, 2]},
}
ON_GPU = (
    ("gpu.plain", "float64"),
    ("gpu.plain", "float16"),
    ("gpu.stream", "float64"),
    ("gpu.trapezoid", "float64"),
    ("gpu.dual_tessellation", "float64"),
    ("gpu.tcstencil", "float16"),
    ("gpu.sparse", "float16"),
    ("gpu.resident", "float64"),
)
STEPS = 13
_ROBIN = {"type": "robin", "h": 4.0, "ambient": 0.5, "conductivity": 1.5}
_FLUX = {"type": "neumann", "flux": 3.0, "conductivity": 2.0}
_GIVEN = {"type": "dirichlet", "value": 1.5}
_HELD = {"type": "fixed", "value": -0.75}
_RING = {"type": "periodic"}


def faces(kind: str, ndim: int, *, askew: bool = False) -> Config:
    """Conditions of all faces, by the name of their kind."""
    if kind == "periodic":
        return {"*": _RING}
    if kind == "mixed":
        pairs = [(_GIVEN, _ROBIN), (_FLUX, _HELD), ({"type": "neumann"}, _GIVEN)]
        if askew:
            pairs = [(_GIVEN, _HELD), (_HELD, _HELD), (_GIVEN, _GIVEN)]
        return _sides(pairs, ndim)
    if kind == "held":
        found = {"x": _HELD, "y": _RING, "z": _GIVEN}
        return {axis: found[axis] for axis in "xyz"[:ndim]}
    changing: list[tuple[Config, Config]] = [
        ({"type": "dirichlet", "value": "1 + 0.4*sin(3*t)"}, _table()),
        ({"type": "neumann", "flux": "2*t"}, {"type": "robin", "h": "2 + t", "ambient": 0.5}),
        ({"type": "fixed", "value": "0.5*cos(t)"}, {"type": "neumann"}),
    ]
    return _sides(changing, ndim)


def _table() -> Config:
    return {"type": "robin", "h": 3.0, "ambient": {"table": [[0, 0.0], [0.4, 2.0], [9, 1.0]]}}


def _sides(pairs: list[tuple[Any, Any]], ndim: int) -> Config:
    return {
        f"{axis}{sign}": face
        for axis, pair in zip("xyz"[:ndim], pairs, strict=False)
        for sign, face in zip("-+", pair, strict=True)
    }


def stencil_config(
    name: str, kind: str, compute: Config, *, large: bool = False, steps: int = STEPS
) -> Config:
    """A bare stencil that smooths random numbers."""
    ndim = STENCILS[name]
    shape = (LARGE if large else SHAPES)[ndim]
    return {
        "grid": {"shape": list(shape), "spacing": list(SPACING[ndim])},
        "model": {"type": "stencil", "stencil": name},
        "initial": {"type": "random", "low": -1, "high": 2, "seed": 7},
        "boundaries": faces(kind, ndim, askew=name in ASKEW),
        "time": {"steps": steps},
        "compute": {"tuning_budget": 0, **compute},
    }


def heat_config(ndim: int, kind: str, compute: Config, *, large: bool = False) -> Config:
    """Heat in one material with numbers near 1; faces may change with time."""
    return {
        "grid": {"shape": list((LARGE if large else SHAPES)[ndim]), "spacing": SPACING[ndim]},
        "model": {"type": "heat", "conductivity": 1.5, "density": 2.0, "specific_heat": 4.0},
        "initial": {"type": "random", "low": -1, "high": 2, "seed": 9},
        "boundaries": faces(kind, ndim),
        "time": {"steps": STEPS},
        "compute": {"tuning_budget": 0, **compute},
    }


def cpu_cases() -> Iterator[tuple[str, Config]]:
    """Key and configuration of each."""
    for name in STENCILS:
        for precision in PRECISIONS:
            for method in METHODS:
                for kind in ("periodic", "mixed", "held"):
                    for team, compute in TEAMS.items():
                        if kind == "held" and team == "2 threads":
                            continue
                        asked = {"method": method, "precision": precision, **compute}
                        key = f"results/stencil/{name}/{method}/{precision}/{kind}/{team}"
                        yield key, stencil_config(name, kind, asked)
        yield (
            f"results/stencil/{name}/refused/changing faces",
            stencil_config(name, "changing", TEAMS["1 thread"]),
        )
    for ndim in (1, 2, 3):
        for method in METHODS:
            for precision in PRECISIONS:
                for kind in ("changing", "mixed"):
                    for team, compute in TEAMS.items():
                        asked = {"method": method, "precision": precision, **compute}
                        key = f"results/heat/{ndim}D/{method}/{precision}/{kind}/{team}"
                        yield key, heat_config(ndim, kind, asked)


def gpu_cases() -> Iterator[tuple[str, Config]]:
    """The same on a GPU, with what nothing has to be measured for."""
    for name in STENCILS:
        for method, precision in ON_GPU:
            for kind in ("periodic", "mixed"):
                asked = {"devices": "gpu", "method": method, "precision": precision}
                key = f"results/gpu stencil/{name}/{method}/{precision}/{kind}"
                yield key, stencil_config(name, kind, asked, large=True, steps=21)
    for ndim in (1, 2, 3):
        for method, precision in ON_GPU:
            asked = {"devices": "gpu", "method": method, "precision": precision}
            key = f"results/gpu heat/{ndim}D/{method}/{precision}/changing"
            yield key, heat_config(ndim, "changing", asked, large=True)
