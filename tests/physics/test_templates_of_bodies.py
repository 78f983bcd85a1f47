"""Templates of bodies say what formulas and standards say of them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import tetris_sim as ts
from tests.physics.test_examples_of_bodies import last_row, named
from tetris_sim.commands.init import template_text
from tetris_sim.config import read_config
from tetris_sim.simulation.launch import launch


def run(name: str, directory: Path, *overrides: str) -> dict[str, float]:
    """The last row of the statistics of a template, and the last value of each probe."""
    quick = ("compute.tuning_budget=0", "output.pictures=false", f"output.directory={directory}")
    config = read_config(
        template_text(name), name=name, base=directory, overrides=[*quick, *overrides], environ={}
    )
    launch(config)
    table = directory / "statistics.csv"
    found = last_row(table) if table.exists() else {}
    for probe in (directory / "probes").glob("*.csv"):
        found[probe.stem] = next(
            value for key, value in last_row(probe).items() if key.startswith("temperature")
        )
    return found


def config(name: str) -> Any:
    return read_config(template_text(name), name=name, base=Path("/nowhere"), environ={})


def test_a_pin_fin_has_the_heat_flow_of_the_formula(tmp_path: Path) -> None:
    h, k, d, length = 100.0, 200.0, 4e-3, 0.04
    m = math.sqrt(4 * h / (k * d))
    root = math.sqrt(h * math.pi * d * k * math.pi * d**2 / 4)
    formula = root * 80 * math.tanh(m * (length + d / 4))
    found = run("pin_fin", tmp_path / "r")
    assert named(found, "heat flow z-") == pytest.approx(formula, rel=1e-3)


def test_the_u_value_of_a_wall_is_between_the_limits_of_iso_6946() -> None:
    common = 0.13 + 0.0125 / 0.25 + 0.015 / 0.13 + 0.06 / 0.045 + 0.04
    wool, stud, share = 0.16 / 0.035, 0.16 / 0.13, 60 / 625
    least = (1 - share) / (common + wool) + share / (common + stud)
    most = 1 / (common + 1 / ((1 - share) / wool + share / stud))
    coupling, _ = ts.thermal_transmittance(config("wall_u_value"), inside=20, outside=-10)
    u_value = coupling / 0.625
    assert least < u_value < most
    assert u_value == pytest.approx(0.183, abs=5e-4)


def test_all_the_power_of_a_chip_leaves_through_its_sink(tmp_path: Path) -> None:
    found = run("finned_heat_sink", tmp_path / "r")
    assert named(found, "sources") == pytest.approx(40, rel=1e-9)
    assert found["junction"] == pytest.approx(25 + 40 * 0.99, abs=0.3)
    assert 2 < found["junction"] - found["base"] < 5  # 40 W through 256 mm^2 of paste


def test_vias_take_most_of_the_resistance_of_a_board(tmp_path: Path) -> None:
    assert run("pcb_vias", tmp_path / "r")["pad"] == pytest.approx(25 + 7.5, abs=0.1)


def test_a_borehole_cools_as_the_line_source(tmp_path: Path) -> None:
    found = run("borehole", tmp_path / "r", "time.t_end=180 d")
    diffusivity = 2.5 / (2600 * 870)
    seconds = 180 * 86400
    drop = (math.log(4 * diffusivity * seconds / 0.08**2) - 0.5772) * 40 / (4 * math.pi * 2.5)
    assert 10 + 0.026 * 50 - found["wall"] == pytest.approx(drop, rel=0.02)
