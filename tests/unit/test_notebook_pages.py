"""What a notebook shows: tables and pictures that are well-formed and say what is there."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.config import make_config
from tetris_sim.model.stencils.catalogue import catalogue

ROD = {
    "title": "A rod & <more>",
    "grid": {"shape": [30], "size": ["1 m"]},
    "model": {"type": "heat", "material": "copper"},
    "initial": {"type": "constant", "value": 5},
    "boundaries": {"x-": {"type": "dirichlet", "value": 0}, "x+": {"type": "neumann"}},
    "time": {"dt": "1 s", "steps": 4},
    "compute": {"method": "cpu.plain", "threads": 1},
}


def page(shown: Any) -> str:
    """The text of what is shown, which must be well-formed."""
    return " ".join(ET.fromstring(f"<div>{shown._repr_html_()}</div>").itertext())


def test_a_configuration_shows_its_sections_and_a_sketch() -> None:
    text = page(make_config(ROD))
    for words in ("A rod & <more>", "shape: [30]", "dirichlet", "neumann", "1 m"):
        assert words in text, words


@pytest.mark.parametrize("ndim", [2, 3])
def test_a_sketch_names_every_face(ndim: int) -> None:
    faces = ["dirichlet", "fixed", "neumann", "robin"]
    boundaries: dict[str, Any] = {
        "x-": {"type": "dirichlet", "value": 0},
        "x+": {"type": "fixed", "value": 0},
        "y-": {"type": "neumann"},
        "y+": {"type": "robin", "h": 3, "ambient": 1},
        **({"z": {"type": "periodic"}} if ndim == 3 else {}),
    }
    more = {"grid": {"shape": [8] * ndim, "size": [1.0] * ndim}, "boundaries": boundaries}
    text = page(make_config({**ROD, **more}))
    for words in [*faces, *(["z-: periodic, z+: periodic"] if ndim == 3 else [])]:
        assert words in text, words


def test_plan_simulation_and_result_show_what_they_are() -> None:
    with ts.simulate(ROD) as sim:
        sim.run(until="2 s")
        assert "step 2 of 4" in page(sim)
        assert "data:image/png;base64," in sim._repr_html_()
        assert "cpu.plain" in page(sim.plan)
        assert sim.plan.reasons[0] in page(sim.plan)
    assert "Simulation, closed" in page(sim)
    text = page(ts.run(ROD, progress=False))
    for words in ("A rod & <more>", "step 4 of 4", "cpu.plain", "30 of float64"):
        assert words in text, words


@pytest.mark.parametrize("name", catalogue())
def test_a_stencil_shows_a_point_per_weight(name: str) -> None:
    stencil = catalogue()[name].stencil
    html = stencil._repr_html_()
    assert html.count("<circle") == len(stencil.offsets)
    assert f"{len(stencil.offsets)}" in page(stencil)
    assert html.count('fill="#3d6bc8"') == int(np.sum(np.array(stencil.weights) <= 0))
