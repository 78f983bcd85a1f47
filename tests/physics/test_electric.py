"""Currents between electrodes: potentials, resistances, and heat that is what electrodes give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tetris_sim as ts
from tetris_sim.apps.heat.conduction import examine
from tetris_sim.apps.heat.electric import Currents
from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.config.errors import ConfigMistakesError
from tetris_sim.config.loading import make_config
from tetris_sim.verification.engineering import engineering_cases
from tetris_sim.verification.standards import Standard

Numbers = npt.NDArray[np.float64]
METAL = {"conductivity": 100, "density": 8000, "specific_heat": 400}
ENDS = ({"face": "x-", "voltage": 2}, {"face": "x+", "voltage": 0})


def config(*electrodes: Any, **sections: Any) -> dict[str, Any]:
    model = {
        "type": "heat",
        "materials": {"good": METAL, "bad": METAL},
        "regions": [{"material": "good"}, {"material": "bad", "box": {"x": [0.06, 0.08]}}],
        "electric": {
            "conductivities": {"good": 1e7, "bad": 1e6},
            "electrodes": [*(electrodes or ENDS)],
        },
    }
    return {
        "grid": {"shape": [10, 6], "size": [0.1, 0.06]},
        "model": model | sections.pop("model", {}),
        "initial": {"type": "constant", "value": 20},
        "boundaries": {"*": {"type": "neumann", "flux": 0}},
        "time": {"t_end": 1e-3},
        "output": {"statistics": {"every": "10 steps"}, "pictures": False},
        "compute": {"tuning_budget": 0, "threads": 1, "devices": ["cpu"]},
    } | sections


def currents(*electrodes: Any, **sections: Any) -> Currents:
    made = make_config(config(*electrodes, **sections))
    assert isinstance(made.model, HeatModel)
    body, _ = examine(made.model, made)
    assert body is not None
    assert body.currents is not None
    return body.currents


def test_materials_in_series_share_the_voltage() -> None:
    found = currents()
    resistance = (0.08 / 1e7 + 0.02 / 1e6) / 0.06
    for (voltage, current), v, sign in zip(found.electrodes, (2, 0), (1, -1), strict=True):
        assert voltage == v
        assert current == pytest.approx(sign * 2 / resistance, rel=1e-12)
    assert found.heat.sum() == pytest.approx(4 / resistance, rel=1e-12)
    bad = found.heat[:, 6:8].sum() / found.heat.sum()
    assert bad == pytest.approx(0.02 / 1e6 / (0.08 / 1e7 + 0.02 / 1e6), rel=1e-12)
    # The same from the current.
    driven = currents({"face": "x-", "current": 2 / resistance}, ENDS[1])
    np.testing.assert_allclose(driven.heat, found.heat, rtol=1e-10)
    np.testing.assert_allclose(driven.potential, found.potential, rtol=1e-10)


def test_electrodes_on_parts_of_faces_give_what_cells_get() -> None:
    regions = [
        {"material": "good"},
        {"material": "bad", "where": "hypot(x - 0.05, y - 0.03) < 0.02"},
        {"void": True, "box": {"x": [0.07, 0.08], "y": [0.03, 0.05]}},
    ]
    found = currents(
        {"face": "y-", "where": "x < 0.03", "voltage": 1},
        {"face": "y+", "where": "x > 0.07", "current": -3e5},
        {"face": "x+", "voltage": 0.2},
        model={"regions": regions},
    )
    given = sum(v * i for v, i in found.electrodes)
    assert sum(i for _, i in found.electrodes) == pytest.approx(0, abs=1e-6)
    assert found.electrodes[1][1] == pytest.approx(-3e5, rel=1e-10)
    assert found.heat.sum() == pytest.approx(given, rel=1e-10)
    assert (found.heat[3:5, 7] == 0).all()


def test_factors_and_iterations_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    electrodes = {"face": "y-", "where": "x < 0.03", "voltage": 1}, ENDS[1]
    direct = currents(*electrodes)
    few = dict.fromkeys((1, 2, 3), 0)
    monkeypatch.setattr("tetris_sim.apps.heat.electric._FACTORISED", few)
    sections = {"initial": {"type": "constant", "value": 21}, "time": {"t_end": 2e-3}}
    np.testing.assert_allclose(currents(*electrodes, **sections).heat, direct.heat, rtol=1e-7)


def table(directory: Path) -> dict[str, Numbers]:
    with (directory / "statistics.csv").open() as file:
        names = [it.split(" [")[0] for it in file.readline().strip().split(",")]
        return dict(zip(names, np.loadtxt(file, delimiter=",", ndmin=2).T, strict=True))


@pytest.mark.parametrize("graded", [False, True])
def test_the_heat_is_part_of_the_balance(tmp_path: Path, graded: bool) -> None:
    grid = {"shape": [10, 6], "size": [0.1, 0.06]}
    if graded:
        grid |= {
            "graded": {
                "x": {"edges": [0, 0.01, 0.02, 0.03, 0.04, 0.06, 0.07, 0.08, 0.085, 0.09, 0.1]}
            }
        }
    given = config(grid=grid, time={"t_end": 0.2, "dt": 0.002})
    ts.run(given, tmp_path / "e", progress=False)
    steps = table(tmp_path / "e")
    power = 4 / ((0.08 / 1e7 + 0.02 / 1e6) / 0.06)
    np.testing.assert_allclose(steps["heat flow currents"], power, rtol=1e-10)
    gained = steps["heat"] - steps["heat"][0]
    np.testing.assert_allclose(gained, power * steps["time"], rtol=1e-9)
    assert abs(steps["heat residual"]).max() < 1e-9 * gained[-1]
    np.testing.assert_allclose(steps["heat from currents"], gained, rtol=1e-8, atol=1e-3)

    implicit = {"scheme": "implicit", "dt": 0.02, "t_end": 0.2}
    ts.run(given | {"time": implicit}, tmp_path / "i", progress=False)
    jumps = table(tmp_path / "i")
    assert jumps["heat"][-1] - jumps["heat"][0] == pytest.approx(power * 0.2, rel=1e-6)
    assert jumps["bad mean"][-1] == pytest.approx(steps["bad mean"][-1], rel=1e-3)


@pytest.mark.parametrize(
    "case",
    [it for it in engineering_cases() if "current" in it.name or "bar" in it.name],
    ids=lambda it: it.name,
)
def test_cases_of_the_suite(case: Standard) -> None:
    assert [row for row in case.rows() if not row.passed] == []


@pytest.mark.parametrize(
    ("electrodes", "told"),
    [
        (({"face": "x-", "current": 2}, {"face": "x+", "current": -2}), "let one have voltage"),
        (({"face": "x-"}, ENDS[1]), "either voltage or current"),
        (({"face": "z-", "voltage": 2}, ENDS[1]), "is no face"),
        (({"face": "x-", "voltage": 2, "where": "q < 1"}, ENDS[1]), "q"),
        (({"face": "x-", "voltage": 2, "where": "y > 1"}, ENDS[1]), "nothing that conducts"),
        (({"face": "x-", "voltage": "2 A"}, ENDS[1]), "voltage"),
    ],
)
def test_mistakes_of_electrodes_are_told(electrodes: Any, told: str) -> None:
    with pytest.raises(ConfigMistakesError, match=told) as caught:
        make_config(config(*electrodes))
    assert "model.electric.electrodes" in str(caught.value)


def test_what_currents_cannot_go_with_is_told() -> None:
    electric = {"conductivities": {"god": 1e7}, "electrodes": [*ENDS]}
    with pytest.raises(ConfigMistakesError, match="did you mean 'good'"):
        make_config(config(model={"electric": electric}))
    apart = [{"material": "good"}, {"void": True, "box": {"x": [0.04, 0.05]}}]
    driven = {"face": "x-", "current": 2}, ENDS[1]
    with pytest.raises(ConfigMistakesError, match="no other electrode touches"):
        make_config(config(*driven, model={"regions": apart}))
