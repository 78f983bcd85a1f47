"""Thermal resistances, impedances with their networks, effective conductivity, transmittance."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from tetris_sim.__main__ import main
from tetris_sim.api.characteristics import (
    effective_conductivity,
    thermal_impedance,
    thermal_resistances,
    thermal_transmittance,
    to_cauer,
)
from tetris_sim.config import Config, make_config
from tetris_sim.errors import ConfigError
from tetris_sim.verification.standards import bridges

COOLED = {"type": "robin", "h": 1000, "ambient": 20}
INSULATED = {"type": "neumann"}


def metal(k: float) -> dict[str, float]:
    return {"conductivity": k, "density": 8000, "specific_heat": 400}


def config(shape: list[int], size: list[float], model: dict[str, Any], **faces: Any) -> Config:
    return make_config(data(shape, size, model, **faces))


def data(shape: list[int], size: list[float], model: dict[str, Any], **faces: Any) -> Any:
    return {
        "grid": {"shape": shape, "size": size},
        "model": {"type": "heat", **model},
        "initial": {"type": "constant", "value": 20},
        "boundaries": {**faces, "*": INSULATED},
        "time": {"t_end": 1},
    }


def slab(ends: tuple[float, ...] = (0.0, 0.005, 0.01)) -> dict[str, Any]:
    """A rod of two parts that heat, k = 100."""
    parts = [
        {"material": "m", "name": name, "box": {"x": list(ends[n : n + 2])}}
        for n, name in enumerate("ab")
    ]
    return {
        "materials": {"m": metal(100)},
        "regions": [{"material": "m"}, *parts],
        "sources": [{"region": "a", "density": 3e7}, {"region": "b", "power": 5}],
    }


def test_resistances_of_a_rod_are_those_of_its_parts_in_series() -> None:
    rod = config([200], [0.02], slab(), **{"x+": COOLED})
    found = thermal_resistances(rod)
    assert found.sources == ("a", "b")
    # From the middle of a part of length l that heats evenly: l/(3 k) to its own end for itself,
    # l/(2 k) for another.
    own = 0.005 / (3 * 100)
    a = own + 0.015 / 100 + 1e-3
    b = own + 0.01 / 100 + 1e-3
    both = 0.005 / (2 * 100) + 0.01 / 100 + 1e-3
    assert found.mean == pytest.approx(np.array([[a, both], [both, b]]), rel=1e-5)
    assert (found.largest >= found.mean - 1e-12).all()


def test_resistances_are_reciprocal_and_do_not_depend_on_the_power() -> None:
    chip = config([24, 12], [0.024, 0.012], slab((0.0, 0.004, 0.009)), **{"y+": COOLED})
    found = thermal_resistances(chip)
    assert found.mean == pytest.approx(found.mean.T, rel=1e-8)


def test_the_impedance_of_a_lumped_body_is_one_exponential() -> None:
    heated = {**metal(4e4), "sources": [{"density": 1e6}]}
    plate = config([4], [0.01], heated, **{"x+": {**COOLED, "h": 10}})
    tau = 8000 * 400 * 0.01 / 10
    found = thermal_impedance(plate, begin=tau / 1e3, end=10 * tau)
    assert found.impedance == pytest.approx(0.1 * -np.expm1(-found.times / tau), rel=2e-3)
    assert found.misfit < 1e-5
    assert sum(r for r, _ in found.foster) == pytest.approx(0.1, rel=1e-3)
    capacity = sum(c for _, c in found.cauer)
    assert capacity == pytest.approx(8000 * 400 * 0.01, rel=0.05)


def test_the_impedance_of_a_rod_ends_at_its_resistance_and_begins_as_a_half_space() -> None:
    rod = config([400], [0.02], slab((0.0, 0.00005, 0.01)), **{"x+": COOLED})
    found = thermal_impedance(rod, "a", begin=1e-3, end=2000)
    assert found.impedance[-1] == pytest.approx(thermal_resistances(rod).mean[0, 0], rel=1e-3)
    # H. S. Carslaw, J. C. Jaeger, Conduction of Heat in Solids, 1959, section 2.9, less what the
    # middle of the first cell lags behind the surface.
    early = (found.times > 5e-3) & (found.times < 0.5)
    effusivity = math.sqrt(100 * 8000 * 400)
    exact = 2 * np.sqrt(found.times / math.pi) / effusivity
    assert found.impedance[early] == pytest.approx(exact[early], abs=5e-7)
    assert found.misfit < 1e-3 * found.impedance[-1]


def test_a_cauer_network_has_the_impedance_of_its_foster_network() -> None:
    foster = [(0.3, 1e-3), (0.7, 0.05), (2.0, 1.0), (0.1, 30.0)]
    cauer = to_cauer(foster)
    assert sum(r for r, _ in cauer) == pytest.approx(3.1)
    for s in (0.0, 0.01, 1.0, 100.0, 1e4):
        wanted = sum(r / (1 + s * tau) for r, tau in foster)
        found = 0.0
        for r, c in reversed(cauer):
            found = 1 / (s * c + 1 / (r + found))
        assert found == pytest.approx(wanted, rel=1e-9)


def two(regions: list[dict[str, Any]], good: float = 10.0) -> dict[str, Any]:
    return {
        "materials": {"g": metal(good), "p": metal(1)},
        "regions": [{"material": "g"}, *regions],
    }


def test_layers_conduct_as_the_bounds_say() -> None:
    layers = two([{"material": "p", "box": {"y": [0, 0.01]}}])
    found = effective_conductivity(config([6, 30], [0.02, 0.03], layers))
    assert found.values == pytest.approx({"x": 7.0, "y": 2.5}, rel=1e-7)
    assert (found.lowest, found.highest) == pytest.approx((2.5, 7.0))


def test_a_checkerboard_conducts_as_the_geometric_mean() -> None:
    # J. B. Keller, J. Math. Phys. 5, 548 (1964), for squares in a periodic plane: between
    # insulated faces through their middles, one period is as good.
    board = two([{"material": "p", "where": "(x - 0.5)*(y - 0.5) > 0"}], 4.0)
    errors = []
    for n in (32, 64, 128):
        found = effective_conductivity(config([n, n], [1.0, 1.0], board))
        assert found.values["x"] == pytest.approx(found.values["y"], rel=1e-6)
        errors.append(abs(found.values["x"] - 2.0))
        low, high = found.isotropic
        assert low < found.values["x"] < high
    assert errors[2] < errors[1] < errors[0] < 0.1
    assert errors[2] < 0.02


def test_dilute_spheres_conduct_as_maxwell_says() -> None:
    # J. C. Maxwell's formula is Hashin and Shtrikman's bound of the matrix around.
    ball = "hypot(x - 0.5, hypot(y - 0.5, z - 0.5)) < 0.25"
    found = effective_conductivity(
        config([32] * 3, [1.0] * 3, two([{"material": "p", "where": ball}]))
    )
    assert found.values["z"] == pytest.approx(found.isotropic[1], rel=1e-2)
    assert set(found.values) == {"x", "y", "z"}


def test_the_balcony_has_the_coupling_of_the_standard() -> None:
    # ISO 10211, case 2: 9.5 W/m between 20 and 0 degC.
    sheet = bridges()[1]
    detail = make_config({"initial": {"type": "constant", "value": 10}, **sheet.sections})
    coupling, psi = thermal_transmittance(detail, 20, 0, [(0.5, 0.5), (0.2, 0.25)])
    assert coupling == pytest.approx(9.5 / 20, abs=0.005)
    assert psi == pytest.approx(coupling - 0.3, rel=1e-12)


def test_a_bar_in_a_room_has_the_coupling_of_the_standard() -> None:
    # Case 4, a quarter of it, between 1 and 0 degC: 0.540 W.
    bar = bridges()[3]
    detail = make_config({"initial": {"type": "constant", "value": 0.5}, **bar.sections})
    coupling, _ = thermal_transmittance(detail, 1, 0)
    assert 4 * coupling == pytest.approx(0.540, rel=0.01)


def test_an_even_wall_has_no_bridge() -> None:
    wall = config(
        [8, 8], [0.1, 1.0], metal(0.5),
        **{"x-": {**COOLED, "h": 8, "ambient": 20}, "x+": {**COOLED, "h": 25, "ambient": -10}},
    )  # fmt: skip
    u = 1 / (1 / 8 + 0.1 / 0.5 + 1 / 25)
    coupling, psi = thermal_transmittance(wall, 20, -10, [(u, 1.0)])
    assert coupling == pytest.approx(u, rel=1e-9)
    assert psi == pytest.approx(0.0, abs=1e-9)


def test_mistakes_are_told() -> None:
    rod = config([20], [0.02], slab(), **{"x+": COOLED})
    with pytest.raises(ConfigError, match="there are a, b"):
        thermal_impedance(rod, "c", begin=1, end=2)
    with pytest.raises(ConfigError, match="ascend"):
        thermal_impedance(rod, begin=2, end=1)
    with pytest.raises(ConfigError, match="volume sources"):
        thermal_resistances(config([20], [0.02], metal(1), **{"x+": COOLED}))
    with pytest.raises(ConfigError, match="fluids or voids"):
        effective_conductivity(
            config([20, 4], [0.02, 0.01], two([{"void": True, "box": {"x": [0, 0.004]}}]))
        )
    with pytest.raises(ConfigError, match="warmer"):
        thermal_transmittance(rod, 0, 20)


@pytest.fixture
def chip(tmp_path: Path) -> str:
    path = tmp_path / "rod.yaml"
    with path.open("w") as file:
        YAML().dump(data([40], [0.02], slab(), **{"x+": COOLED}), file)
    return str(path)


def test_the_verb_prints_tables(chip: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["characterize", chip, "resistance"]) == 0
    assert "rise of the mean" in capsys.readouterr().out
    times = ["--begin", "0.1", "--end", "1000"]
    assert main(["characterize", chip, "impedance", *times, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["source"] == "a"
    assert facts["impedance"] == sorted(facts["impedance"])
    assert main(["characterize", chip, "conductivity"]) == 0
    assert "along x: 100 W/(m K)" in capsys.readouterr().out
    assert main(["characterize", chip, "impedance"]) == 2
    sides = ["--inside", "20", "--outside", "0"]
    assert main(["characterize", chip, "transmittance", *sides, "--flanking", "1"]) == 2
