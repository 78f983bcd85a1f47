"""Bodies whose regions come and go."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError

Numbers = npt.NDArray[np.float64]
LENGTH, JOINED, END = 0.04, 4.0, 10.0
STEEL = {"conductivity": 50, "density": 8000, "specific_heat": 500}
QUICK = {"devices": "cpu", "method": "cpu.plain", "threads": 1}
SOLVED = {"devices": "cpu", "threads": 1}

JOINT: dict[str, Any] = {
    "grid": {"shape": [40], "size": [LENGTH]},
    "model": {
        "type": "heat",
        "materials": {"steel": STEEL},
        "regions": [
            {"void": True},
            {"material": "steel", "box": {"x": [0, LENGTH / 2]}},
            {
                "name": "layer",
                "material": "steel",
                "box": {"x": [LENGTH / 2, LENGTH]},
                "from": JOINED,
                "arrives_at": 900,
            },
        ],
    },
    "initial": {"type": "expression", "expression": f"300 + 200*cos(2*pi*x/{LENGTH})"},
    "boundaries": {"*": {"type": "neumann"}},
    "time": {"t_end": END},
    "compute": QUICK,
}
# Beads on a plate in air, one of which is taken away again.
BEADS: dict[str, Any] = {
    "grid": {"shape": [16, 12], "size": ["16 mm", "12 mm"]},
    "model": {
        "type": "heat",
        "materials": {"steel": STEEL, "braze": {**STEEL, "conductivity": 90}},
        "regions": [
            {"name": "air", "fluid": {"ambient": 15, "h": 300}},
            {"material": "steel", "box": {"y": [0, "4 mm"]}},
            {
                "name": "first",
                "material": "braze",
                "box": {"x": ["2 mm", "8 mm"], "y": ["4 mm", "7 mm"]},
                "from": "1 s",
                "to": "4 s",
                "arrives_at": 1200,
            },
            {
                "name": "second",
                "material": "steel",
                "box": {"x": ["8 mm", "14 mm"], "y": ["4 mm", "8 mm"]},
                "from": "2.5 s",
                "arrives_at": 800,
            },
        ],
        "contacts": [{"between": ["steel", "braze"], "resistance": 1e-4}],
        "sources": [{"region": "second", "power": 500}, {"density": "1e5*(1+100*x)"}],
    },
    "initial": {"type": "constant", "value": 20},
    "boundaries": {"*": {"type": "neumann"}, "y-": {"type": "robin", "h": 800, "ambient": 10}},
    "time": {"t_end": "6 s"},
    "compute": QUICK,
}


def changed(config: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {**config, **{name: {**config.get(name, {}), **it} for name, it in sections.items()}}


def melting() -> dict[str, Any]:
    melts = {**STEEL, "latent_heat": 2.5e5, "solidus": 600, "liquidus": 640}
    model = BEADS["model"]
    return changed(BEADS, model={"materials": {**model["materials"], "steel": melts}})


def graded() -> dict[str, Any]:
    edges = [0, 0.001, 0.002, 0.004, 0.005, 0.007, 0.008, 0.012]
    return changed(BEADS, grid={"shape": [16, 7], "graded": {"y": {"edges": edges}}})


def cut() -> dict[str, Any]:
    plate, first = BEADS["model"]["regions"][1:3]
    slanted = {**first, "box": None, "where": "hypot(x - 5.2e-3, y - 4e-3) < 3.1e-3"}
    regions = [BEADS["model"]["regions"][0], slanted, plate, BEADS["model"]["regions"][3]]
    return changed(BEADS, model={"regions": regions})


def in_void() -> dict[str, Any]:
    regions = [{"name": "air", "void": True}, *BEADS["model"]["regions"][1:]]
    return changed(BEADS, model={"regions": regions})


IMPLICIT = {"scheme": "implicit", "dt": "0.05 s"}
BODIES = {
    "air": BEADS,
    "void": in_void(),
    "melting": melting(),
    "graded": graded(),
    "cut": cut(),
    "implicit": {**changed(BEADS, time=IMPLICIT), "compute": SOLVED},
    "implicit, melting": {**changed(melting(), time=IMPLICIT), "compute": SOLVED},
    "beam": changed(
        in_void(),
        model={
            "sources": [
                {
                    "type": "beam",
                    "face": "y-",
                    "d4sigma": "3 mm",
                    "power": 100,
                    "path": {"x": "2e-3*t"},
                }
            ]
        },
    ),
}


BURNING: dict[str, Any] = {
    **BEADS,
    "model": {
        "type": "heat",
        "materials": {"steel": STEEL, "felt": {**STEEL, "conductivity": 5, "density": 1000}},
        "regions": [
            {"name": "air", "fluid": {"ambient": 15, "h": 300}},
            {"name": "plate", "material": "steel", "box": {"y": [0, "4 mm"]}},
            {
                "name": "felt",
                "material": "felt",
                "box": {"x": ["2 mm", "14 mm"], "y": ["4 mm", "10 mm"]},
                "goes": {"above": 300, "every": "0.1 s"},
            },
            {"name": "lid", "material": "steel", "box": {"y": ["10 mm", "12 mm"]}, "to": "1.75 s"},
        ],
        "sources": [{"material": "felt", "density": "2e8*(0.2+100*x)"}],
    },
    "time": {"t_end": "3 s"},
}


def balance_of(directory: Path) -> dict[str, Numbers]:
    with (directory / "statistics.csv").open() as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, np.array(rows, np.float64).T, strict=True))


def mistakes(**sections: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        make_config(changed(BEADS, **sections), environ={}).build()
    return str(raised.value)


def with_region(number: int, **keys: Any) -> dict[str, Any]:
    regions = [dict(it) for it in BEADS["model"]["regions"]]
    regions[number] |= keys
    return {"regions": regions}
