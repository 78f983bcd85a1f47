"""Currents between electrodes: potentials, resistances, and heat that is what electrodes give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.integrate import solve_ivp

import tetris_sim as ts
from tetris_sim.apps.heat.conduction import examine
from tetris_sim.apps.heat.electric import Currents
from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.config.loading import make_config
from tetris_sim.errors import ConfigMistakesError, NumericsError
from tetris_sim.verification.heated import electric_cases
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


@pytest.mark.parametrize("joint", [0.05, 0.0533, 0.0571])
def test_currents_go_as_far_as_walls_between_faces_are(joint: float) -> None:
    """A bar of 53.3 mm in height, of two metals, on 11 x 11 cells of 9.09 mm."""
    height = 0.0533
    found = currents(
        grid={"shape": [11, 11], "size": [0.1, 0.1]},
        model={
            "regions": [
                {"void": True},
                {"material": "good", "box": {"y": [0, height]}},
                {"material": "bad", "box": {"x": [0, joint], "y": [0, height]}},
            ]
        },
    )
    resistance = (joint / 1e6 + (0.1 - joint) / 1e7) / height
    assert found.electrodes[0][1] == pytest.approx(2 / resistance, rel=1e-6)


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
    monkeypatch.setattr("tetris_sim.solvers.elliptic._SOLVED", few)
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


RISES = 0.0039  # of a resistance, per kelvin
COPPER = f"58e6/(1 + {RISES}*(T - 20))"


def follows(given: Any = COPPER, *electrodes: Any, **sections: Any) -> dict[str, Any]:
    """The body of two materials, one of a conductivity that follows its temperature."""
    made = config(*electrodes, **sections)
    made["model"]["electric"]["conductivities"] = {"good": given, "bad": 1e6}
    return made


def wire(current: float, end: float, **sections: Any) -> dict[str, Any]:
    """A wire of one temperature; a current per area flows through it."""
    only = [{"material": "good"}], {"good": METAL}
    electrodes = {"face": "x-", "current": current}, {"face": "x+", "voltage": 0}
    made = follows(COPPER, *electrodes, **{"time": {"t_end": end}} | sections)
    made["grid"] = {"shape": [10], "size": [0.1]}
    made["model"] |= {"regions": only[0], "materials": only[1]}
    made["model"]["electric"]["conductivities"] = {"good": made["model"].pop("given", COPPER)}
    return made


def warmed(current: float, end: float) -> float:
    """The temperature of that wire by its differential equation."""
    heats = current**2 / 58e6 / (METAL["density"] * METAL["specific_heat"])

    def slope(_: float, y: Any) -> Any:
        return heats * (1 + RISES * (y - 20))

    return float(solve_ivp(slope, (0, end), [20.0], rtol=1e-10, atol=1e-10).y[0, -1])


@pytest.mark.parametrize(
    ("time", "within"),
    [
        ({"dt": 1e-3}, 1e-3),
        ({"scheme": "implicit", "dt": 0.05}, 1e-5),
        ({"scheme": "implicit", "tolerance": 1e-6}, 1e-4),
    ],
)
def test_a_wire_warms_as_its_resistance_lets_it(
    tmp_path: Path, time: dict[str, Any], within: float
) -> None:
    current, end = 1e8, 2.0
    ts.run(wire(current, end, time=time | {"t_end": end}), tmp_path, progress=False)
    found, exact = table(tmp_path), warmed(current, end)
    assert found["temperature mean"][-1] - 20 == pytest.approx(exact - 20, rel=within)
    # What electrodes give is what cells get, and all of it is counted.
    given = found["electrode 1 voltage"] * found["electrode 1 current"]
    np.testing.assert_allclose(found["heat flow currents"], given, rtol=1e-8)
    resistance = 0.1 / 58e6 * (1 + RISES * (found["temperature mean"] - 20))
    np.testing.assert_allclose(found["electrode 1 voltage"], current * resistance, rtol=1.1e-3)
    gained = found["heat"][-1] - found["heat"][0]
    assert found["heat from currents"][-1] == pytest.approx(gained, rel=1e-8)
    # Explicit steps solve anew only where something has changed.
    if "scheme" not in time:
        changes = np.count_nonzero(np.diff(found["electrode 1 voltage"]))
        assert changes < len(found["time"])
        assert given[-1] / given[0] == pytest.approx(1 + RISES * (exact - 20), rel=2e-3)


def test_a_table_and_a_formula_of_the_same_conductivity_heat_alike(tmp_path: Path) -> None:
    warm = np.linspace(-50, 200, 400)
    rows = [[float(t), float(58e6 / (1 + RISES * (t - 20)))] for t in warm]
    runs = {}
    for name, given in (("formula", COPPER), ("table", {"table": rows})):
        ts.run(wire(1e8, 0.2, model={"given": given}), tmp_path / name, progress=False)
        runs[name] = table(tmp_path / name)["temperature mean"][-1]
    assert runs["table"] - 20 == pytest.approx(runs["formula"] - 20, rel=1e-5)


def test_a_wire_between_cold_ends_settles(tmp_path: Path) -> None:
    """k T'' + j^2 r (1 + a (T - 20)) = 0 has a cosine for a solution."""
    cold = {it: {"type": "dirichlet", "value": 20} for it in ("x-", "x+")}
    current, n = 1.2e7, 101
    made = wire(current, 0, time={"scheme": "steady"}, boundaries=cold)
    made["grid"]["shape"] = [n]
    ts.run(made, tmp_path, progress=False)
    m = np.sqrt(current**2 / 58e6 * RISES / METAL["conductivity"])
    highest = 20 + (1 / np.cos(m * 0.05) - 1) / RISES
    found = table(tmp_path)
    assert found["temperature max"][-1] - 20 == pytest.approx(highest - 20, rel=1e-3)
    # V = j r (2/m) tan(m L/2): the mean of the resistance along the wire.
    voltage = current / 58e6 * 2 / m * np.tan(m * 0.05)
    assert found["electrode 1 voltage"][-1] == pytest.approx(voltage, rel=1e-4)
    assert found["heat flow currents"][-1] == pytest.approx(voltage * current, rel=1e-4)


BENT = [{"material": "good"}, {"void": True, "box": {"x": [0.04, 0.1], "y": [0, 0.03]}}]


def bent(time: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A bent bar between two voltages, whose conductivity falls with temperature."""
    ends = {"face": "y-", "voltage": 0.2}, {"face": "x+", "voltage": 0}
    cold = {it["face"]: {"type": "dirichlet", "value": 20} for it in ends}
    model = {"regions": BENT, "materials": {"good": METAL}}
    made = follows(
        COPPER, *ends, time=time, boundaries=cold | {"*": {"type": "neumann", "flux": 0}}
    )
    made["model"] |= model
    made["model"]["electric"]["conductivities"] = {"good": COPPER}
    return made | sections


def test_explicit_and_implicit_steps_heat_alike(tmp_path: Path) -> None:
    implicit = {"scheme": "implicit", "dt": 0.05, "t_end": 1}
    times: dict[str, dict[str, Any]] = {"e": {"t_end": 1, "dt": 0.002}, "i": implicit}
    for name, time in times.items():
        ts.run(bent(time), tmp_path / name, progress=False)
    e, i = (table(tmp_path / it) for it in times)
    rise = i["temperature mean"][-1] - 20
    assert rise > 10
    assert e["temperature mean"][-1] - 20 == pytest.approx(rise, rel=2e-3)
    assert abs(e["heat residual"]).max() < 1e-9 * e["heat from currents"][-1]
    for name in ("heat flow currents", "electrode 2 current"):
        assert e[name][-1] == pytest.approx(i[name][-1], rel=3e-3)


def test_the_derivative_of_the_heat_is_that_of_its_differences() -> None:
    made = make_config(bent({"scheme": "steady"}))
    assert isinstance(made.model, HeatModel)
    body, _ = examine(made.model, made)
    assert body is not None
    heat = body.around.currents
    assert heat is not None
    random = np.random.default_rng(1)
    state, v = 20 + 100 * random.random((6, 10)), random.random((6, 10)) - 0.5
    low, high = (heat.heat(state + d * v) for d in (-0.5, 0.5))
    along = heat.slopes(state).along(v.reshape(-1)).reshape(v.shape)
    np.testing.assert_allclose(along, (high - low) * heat.rates, atol=1e-4 * abs(along).max())


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_a_run_goes_on_with_the_same_bits(tmp_path: Path, scheme: str) -> None:
    time = {"scheme": scheme, "dt": 0.002 if scheme == "explicit" else 0.05, "t_end": 0.4}
    every = {"output": {"statistics": {"every": "1 step"}, "pictures": False}}
    ts.run(bent(time, **every), tmp_path / "whole", progress=False)
    whole = table(tmp_path / "whole")
    if scheme == "explicit":
        # It is continued between two solutions.
        assert 2 < len(np.unique(whole["electrode 1 current"])) < len(whole["time"]) / 1.5
    ts.run(bent(time | {"t_end": 0.25}, **every), tmp_path / "cut", progress=False)
    ts.run(bent(time, **every), tmp_path / "cut", progress=False, resume="auto")
    again = table(tmp_path / "cut")
    for name, values in whole.items():
        np.testing.assert_array_equal(again[name], values, err_msg=name)
    two = {"compute": {"tuning_budget": 0, "devices": ["cpu"] * (1 + (scheme == "explicit"))}}
    ts.run(bent(time, **every, **two), tmp_path / "two", progress=False)
    np.testing.assert_array_equal(table(tmp_path / "two")["heat"], whole["heat"])


def test_a_run_goes_on_whose_conductivity_is_none_at_0_degc(tmp_path: Path) -> None:
    time, every = {"dt": 0.002, "t_end": 0.1}, {"output": {"statistics": {"every": "1 step"}}}
    made = {}
    for name, end in {"whole": 0.1, "cut": 0.06}.items():
        made = bent(time | {"t_end": end}, **every)
        made["model"]["electric"]["conductivities"] = {"good": "2e6*T"}
        ts.run(made, tmp_path / name, progress=False)
    made["time"] = time
    ts.run(made, tmp_path / "cut", progress=False, resume="auto")
    again, whole = table(tmp_path / "cut"), table(tmp_path / "whole")
    np.testing.assert_array_equal(again["heat"], whole["heat"])
    assert whole["temperature mean"][-1] > 20.5


def test_lumps_and_enclosures_go_with_currents(tmp_path: Path) -> None:
    sink = {"capacity": 100, "initial": 20, "exchanges": [{"face": "y+", "h": 500}]}
    hole = {"void": {"radiates": True}, "box": {"x": [0.02, 0.03], "y": [0.04, 0.05]}}
    steel = METAL | {"emissivity": 0.8}
    steps, jumps = {"dt": 0.004}, {"scheme": "implicit", "dt": 0.05}
    times: dict[str, dict[str, Any]] = {"e": steps, "i": jumps}
    found = {}
    for name, time in times.items():
        made = bent(time | {"t_end": 0.4})
        made["model"] |= {"regions": [*BENT, hole], "materials": {"good": steel}}
        made["model"]["lumps"] = {"sink": sink}
        ts.run(made, tmp_path / name, progress=False)
        found[name] = table(tmp_path / name)
    for name in ("sink", "temperature mean"):
        rise = found["i"][name][-1] - 20
        assert rise > 0.5
        # Explicit steps of a hundredth of the time lag by half of one.
        assert found["e"][name][-1] - 20 == pytest.approx(rise, rel=1.2e-2)


def test_a_conductivity_stays_above_zero(tmp_path: Path) -> None:
    with pytest.raises(ConfigMistakesError, match="at 20 degC it is -1000 S/m"):
        make_config(follows("-50*T"))
    for scheme in ("explicit", "implicit"):
        time = {"scheme": scheme, "t_end": 1, "dt": 0.002 if scheme == "explicit" else 0.1}
        made = wire(1e8, 0, time=time, model={"given": "58e6*(1 - T/40)"})
        with pytest.raises(NumericsError, match=r"conductivities.good: at .* above 0"):
            ts.run(made, tmp_path / scheme, progress=False)


def test_conductivities_are_numbers_formulas_or_tables() -> None:
    for given, told in (("58e6/(1 + a*T)", "a"), ("58e6*t", "t"), (0, "greater than 0")):
        with pytest.raises(ConfigMistakesError, match=told) as caught:
            make_config(follows(given))
        assert "model.electric.conductivities.good" in str(caught.value)
    with pytest.raises(ConfigMistakesError, match="greater than 0"):
        make_config(follows({"table": [[20, 1e6], [100, 0]]}))


CONTACT = {"between": ["good", "bad"], "electric_resistance": "2e-9 ohm m2"}


@pytest.mark.parametrize("graded", [False, True])
def test_contacts_resist_and_heat_either_side(graded: bool) -> None:
    sections: dict[str, Any] = {"model": {"contacts": [CONTACT]}}
    if graded:
        edges = {"edges": [0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.085, 0.1]}
        sections["grid"] = {"shape": [10, 6], "size": [0.1, 0.06], "graded": {"x": edges}}
    driven = {"face": "x-", "current": 100.0}, ENDS[1]
    plain = {key: it for key, it in sections.items() if key != "model"}
    found, without = currents(*driven, **sections), currents(*driven, **plain)
    # Two contacts of the whole section, V = I (R + 2 R_c).
    voltage, before = found.electrodes[0][0], without.electrodes[0][0]
    assert voltage == pytest.approx(before + 100 * 2 * 2e-9 / 0.06, rel=1e-10)
    assert found.power == pytest.approx(100 * voltage, rel=1e-10)
    more = (found.heat - without.heat).sum(axis=0)
    half = 100**2 * 2e-9 / 0.06 / 2
    np.testing.assert_allclose(more, half * np.isin(range(10), [5, 6, 7, 8]), atol=1e-6 * half)


def test_a_contact_on_a_curved_surface_has_its_true_area() -> None:
    """Half a disc whose contact is all that resists: I = V pi r / R_c, faces of cells are stairs."""
    grid = {"shape": [50, 30], "size": [0.1, 0.06]}
    disc = {"material": "bad", "where": "hypot(x - 0.1, y - 0.03) < 0.02"}
    contact = {"between": ["bad", "good"], "electric_resistance": 1e-5}
    ends = ENDS[0], {"face": "x+", "voltage": 0, "where": "abs(y - 0.03) < 0.019"}
    model = {"regions": [{"material": "good"}, disc], "contacts": [contact]}
    found = currents(*ends, grid=grid, model=model)
    assert found.electrodes[0][1] == pytest.approx(2 * np.pi * 0.02 / 1e-5, rel=0.01)


def test_currents_cross_a_periodic_seam() -> None:
    """Wherever the seam lies, a ring is the same ring."""
    full = {
        "grid": {
            "coordinates": "cylindrical",
            "axes": ["r", "theta"],
            "shape": [6, 36],
            "size": [0.02, "360 deg"],
            "origin": {"r": "10 mm"},
        },
        "boundaries": {"r": {"type": "neumann", "flux": 0}},
    }
    across = [{"material": "good"}]
    found = []
    for first in (0.0, 2.0):
        ends = [
            {"face": "r+", "where": f"abs(theta - {at % 6.283185307179586}) < 0.3", "voltage": v}
            for at, v in ((first + 0.6, 1), (first + 5.6, 0))
        ]
        model = {"regions": across, "materials": {"good": METAL, "bad": METAL}}
        found.append(currents(*ends, **full, model=model).electrodes[0][1])
    assert found[0] == pytest.approx(found[1], rel=0.03)


def test_contacts_need_currents_and_electrodes_faces() -> None:
    lone: dict[str, Any] = {"contacts": [{**CONTACT, "between": ["good", "worse"]}]}
    lone["materials"] = {"good": METAL, "bad": METAL, "worse": METAL}
    with pytest.raises(ConfigMistakesError, match="has none of worse") as caught:
        make_config(config(model=lone))
    assert "model.contacts.0.electric_resistance" in str(caught.value)
    made = config(model={"contacts": [CONTACT]})
    del made["model"]["electric"]
    with pytest.raises(ConfigMistakesError, match="has none of good and bad"):
        make_config(made)
    with pytest.raises(ConfigMistakesError, match="electric_resistance"):
        make_config(config(model={"contacts": [{"between": ["good", "bad"]}]}))
    around = {"x": {"type": "periodic"}, "y": {"type": "neumann", "flux": 0}}
    with pytest.raises(ConfigMistakesError, match="it is periodic"):
        make_config(config(boundaries=around))


@pytest.mark.parametrize(
    "case",
    [*electric_cases()],
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
