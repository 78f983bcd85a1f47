"""Lumped parts beside a body: exact networks, heat that is kept, and runs that go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.linalg import expm

import tetris_sim as ts
from tetris_sim.config.loading import make_config
from tetris_sim.errors import ConfigError, ConfigMistakesError

Numbers = npt.NDArray[np.float64]
QUIET = {"tuning_budget": 0, "threads": 1, "devices": ["cpu"]}


def config(lumps: dict[str, Any], **sections: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [8], "size": [0.1]},
        "model": {"type": "heat", "material": "steel", "lumps": lumps} | sections.pop("model", {}),
        "initial": {"type": "constant", "value": 80},
        "boundaries": {"*": {"type": "neumann", "flux": 0}},
        "time": {"t_end": 100},
        "output": {"statistics": {"every": "1 step"}, "pictures": False},
        "compute": QUIET,
    } | sections


def table(directory: Path) -> dict[str, Numbers]:
    path = directory / "statistics.csv"
    with path.open() as file:
        names = [it.split(" [")[0] for it in file.readline().strip().split(",")]
        return dict(zip(names, np.loadtxt(file, delimiter=",", ndmin=2).T, strict=True))


def run(directory: Path, *given: Any, **sections: Any) -> dict[str, Numbers]:
    ts.run(config(*given, **sections), directory, progress=False)
    return table(directory)


def test_a_lump_alone_cools_as_an_exponential_however_long_steps_are(tmp_path: Path) -> None:
    lumps = {
        "sink": {
            "capacity": "140 J/K",
            "initial": 90,
            "exchanges": [{"ambient": "20 degC", "resistance": "0.3 K/W"}],
        },
        # A thousandth of a step: what an explicit step could not do.
        "wire": {
            "capacity": 1e-6,
            "initial": 20,
            "power": 10,
            "exchanges": [{"ambient": 20, "resistance": 0.3}],
        },
    }
    found = run(tmp_path, lumps)
    t = found["time"]
    assert len(t) > 5
    exact = 20 + 70 * np.exp(-t / (140 * 0.3))
    assert abs(found["sink"] - exact).max() < 1e-10
    assert abs(found["wire"][1:] - 23).max() < 1e-9
    assert abs(found["temperature max"] - 80).max() == 0


def test_a_chain_of_lumps_is_the_exponential_of_its_matrix(tmp_path: Path) -> None:
    capacity, resistance, power = [3.0, 50.0, 400.0], [0.5, 2.0, 0.8], 12.0
    lumps: dict[str, Any] = {}
    for k, c in enumerate(capacity):
        beyond = {"lump": f"part{k + 1}"} if k < 2 else {"ambient": 15}
        lumps[f"part{k}"] = {
            "capacity": c,
            "initial": 20 + 10 * k,
            "power": power if k == 0 else 0,
            "exchanges": [beyond | {"resistance": resistance[k]}],
        }
    found = run(tmp_path, lumps)

    g = 1 / np.array(resistance)
    matrix = np.array([[-g[0], g[0], 0], [g[0], -g[0] - g[1], g[1]], [0, g[1], -g[1] - g[2]]])
    drive = np.array([power, 0, 15 * g[2]])
    lasts = np.linalg.solve(matrix, -drive)
    for t, *now in zip(*(found[it] for it in ("time", "part0", "part1", "part2")), strict=True):
        rates = matrix / np.array(capacity)[:, None]
        exact = lasts + expm(rates * t) @ (np.array([20, 30, 40]) - lasts)
        assert abs(exact - now).max() < 1e-9


@pytest.mark.parametrize("kind", ["face", "region", "fluid", "graded"])
def test_a_body_in_a_tank_ends_at_the_common_temperature(tmp_path: Path, kind: str) -> None:
    exchange: dict[str, Any] = {"face": "x+", "h": 5000}
    sections: dict[str, Any] = {}
    if kind == "region":
        exchange = {"region": "end", "resistance": 2e-3}
        box = {"x": [0.05, 0.1]}
        regions = [{"material": "steel"}, {"name": "end", "material": "steel", "box": box}]
        sections = {"model": {"material": None, "regions": regions}}
    if kind == "fluid":
        exchange = {"region": "water"}
        water = {"name": "water", "fluid": {"ambient": 55, "h": 5000}, "box": {"x": [0.05, 0.1]}}
        regions = [{"material": "steel"}, water]
        sections = {"model": {"material": None, "regions": regions}}
    if kind == "graded":
        edges = [0, 0.03, 0.05, 0.08, 0.1]
        sections = {"grid": {"shape": [4], "size": [0.1], "graded": {"x": {"edges": edges}}}}
    lumps = {"tank": {"capacity": 3e5, "initial": 20, "exchanges": [exchange]}}
    sections.setdefault("grid", {"shape": [4], "size": [0.1]})
    rare = {"statistics": {"every": "40 steps"}, "pictures": False}
    found = run(tmp_path, lumps, time={"t_end": 5000}, output=rare, **sections)

    heat, tank = found["heat"], found["tank"]
    total = heat + 3e5 * tank
    assert abs(total - total[0]).max() < 1e-9 * abs(total[0])
    capacity = heat[0] / 80
    common = total[0] / (capacity + 3e5)
    assert found["temperature mean"][-1] == pytest.approx(common, abs=1e-3)
    assert tank[-1] == pytest.approx(common, abs=1e-3)
    assert abs(found["heat residual"]).max() < 1e-9 * abs(heat[0])
    assert np.ptp(tank) > 10


def test_a_run_that_stopped_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    lumps = {
        "plate": {
            "capacity": 2000,
            "initial": 20,
            "power": {"table": [[0, 0], [40, 500], [90, 100]]},
            "exchanges": [
                {"face": "x-", "h": 800},
                {"lump": "room", "resistance": 0.01},
            ],
        },
        "room": {
            "capacity": 1e4,
            "initial": 15,
            "exchanges": [{"ambient": "10 + t/20", "resistance": 0.1}],
        },
    }
    whole = run(tmp_path / "whole", lumps)
    limit = float(whole["temperature mean"][len(whole["time"]) // 2])
    ts.run(
        config(
            lumps,
            time={"t_end": 100, "until": {"any": [{"mean": "all", "below": limit}]}},
            output={
                "statistics": {"every": "1 step", "over": {"all": {"box": {"x": [0, 0.1]}}}},
                "pictures": False,
            },
        ),
        tmp_path / "cut",
        progress=False,
    )
    cut = table(tmp_path / "cut")
    assert 2 < len(cut["time"]) < len(whole["time"])
    ts.run(
        config(
            lumps,
            output={
                "statistics": {"every": "1 step", "over": {"all": {"box": {"x": [0, 0.1]}}}},
                "pictures": False,
            },
        ),
        tmp_path / "cut",
        progress=False,
        resume="auto",
    )
    again = table(tmp_path / "cut")
    for name in ("plate", "room", "temperature mean", "heat"):
        np.testing.assert_array_equal(again[name], whole[name])


@pytest.mark.parametrize(
    ("exchange", "told"),
    [
        ({"face": "y+", "h": 5}, "is no face"),
        ({"face": "x+"}, "belong together"),
        ({"lump": "sink", "resistance": 1}, "with itself"),
        ({"lump": "sank", "resistance": 1}, "did you mean"),
        ({"region": "fins", "resistance": 1}, "is no region"),
        ({"ambient": 20}, "without resistance"),
        ({"ambient": 20, "lump": "sink", "resistance": 1}, "give one of"),
    ],
)
def test_mistakes_of_exchanges_are_told(exchange: dict[str, Any], told: str) -> None:
    lumps = {"sink": {"capacity": 1, "initial": 20, "exchanges": [exchange]}}
    with pytest.raises(ConfigMistakesError, match=told) as caught:
        make_config(config(lumps))
    assert "model.lumps.sink.exchanges" in str(caught.value)


def test_lumps_need_free_faces_and_steady_ones_numbers() -> None:
    sink = {"capacity": 1, "initial": 20, "exchanges": [{"face": "x+", "h": 5}]}
    with pytest.raises(ConfigError, match="neumann"):
        make_config(config({"sink": sink}, boundaries={"*": {"type": "dirichlet", "value": 0}}))
    with pytest.raises(ConfigError, match="no eigenvectors"):
        make_config(config({"sink": sink}, time={"scheme": "spectral", "t_end": 1}))
    with pytest.raises(ConfigError, match="change with time"):
        make_config(config({"sink": sink | {"power": "5*t"}}, time={"scheme": "steady"})).build()


def chain() -> tuple[dict[str, Any], Numbers, Numbers]:
    """A heated wire, a plate on the body and a room, with the matrix and the drive of a body of
    one temperature, the last one.
    """
    between = {"lump": "plate", "resistance": 0.5}
    room = {"lump": "room", "resistance": 0.02}
    lumps = {
        "wire": {"capacity": 1e-3, "initial": 20, "power": 50, "exchanges": [between]},
        "plate": {
            "capacity": 3000,
            "initial": 30,
            "exchanges": [room, {"region": "bar", "resistance": 1 / 40}],
        },
        "room": {
            "capacity": 2e4,
            "initial": 15,
            "exchanges": [{"ambient": 10, "resistance": 0.05}],
        },
    }
    g = np.zeros((4, 4))
    for i, j, value in ((0, 1, 2.0), (1, 2, 50.0), (1, 3, 40.0)):
        g[i, j] = g[j, i] = value
    matrix = g - np.diag(g.sum(axis=1) + np.array([0, 0, 20.0, 0]))
    return lumps, matrix, np.array([50.0, 0, 200.0, 0])


METAL = {"conductivity": 1e5, "density": 1000.0, "specific_heat": 100.0}


def with_chain(scheme: str, **time: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    lumps, *_ = chain()
    bar = {"name": "bar", "material": "metal"}
    model = {"materials": {"metal": METAL}, "material": None, "regions": [bar]}
    return lumps, {"model": model, "time": {"scheme": scheme} | time}


def test_implicit_steps_follow_a_network_beside_a_body(tmp_path: Path) -> None:
    lumps, sections = with_chain("implicit", t_end=400, tolerance=1e-7)
    found = run(tmp_path, lumps, **sections)
    _, matrix, drive = chain()
    rates = matrix / np.array([1e-3, 3000, 2e4, 0.1 * 1e5])[:, None]
    lasts = np.linalg.solve(matrix, -drive)
    names = ("wire", "plate", "room", "temperature mean")
    for t, *now in zip(*(found[it] for it in ("time", *names)), strict=True):
        exact = lasts + expm(rates * t) @ (np.array([20, 30, 15, 80]) - lasts)
        assert abs(exact - now).max() < 1e-3
    # Far fewer than a lump of 1 mJ/K would ask explicit steps for.
    assert len(found["time"]) < 200


def test_a_steady_network_takes_what_it_is_given(tmp_path: Path) -> None:
    lumps, sections = with_chain("steady", tolerance=1e-12)
    found = run(tmp_path, lumps, **sections)
    _, matrix, drive = chain()
    lasts = np.linalg.solve(matrix, -drive)
    for name, exact in zip(("wire", "plate", "room", "temperature mean"), lasts, strict=True):
        assert found[name][-1] == pytest.approx(exact, rel=1e-9)
    assert abs(found["heat flow plate"][-1]) < 1e-6


@pytest.mark.parametrize("scheme", ["implicit", "steady"])
def test_a_body_and_its_tank_keep_their_heat(tmp_path: Path, scheme: str) -> None:
    tank = {"capacity": 3e5, "initial": 20, "exchanges": [{"face": "x+", "h": 5000}]}
    time = {"scheme": scheme} | ({"t_end": 50000} if scheme == "implicit" else {})
    found = run(tmp_path, {"tank": tank}, time=time)
    capacity = found["heat"][-1] / found["temperature mean"][-1]
    common = (capacity * 80 + 3e5 * 20) / (capacity + 3e5)
    assert found["tank"][-1] == pytest.approx(common, abs=1e-3)
    assert found["temperature mean"][-1] == pytest.approx(common, abs=1e-3)


def test_an_implicit_run_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    lumps, sections = with_chain("implicit", t_end=100, dt=10)
    whole = run(tmp_path / "whole", lumps, **sections)
    half = sections | {"time": sections["time"] | {"t_end": 50}}
    run(tmp_path / "cut", lumps, **half)
    ts.run(config(lumps, **sections), tmp_path / "cut", progress=False, resume="auto")
    again = table(tmp_path / "cut")
    for name in ("wire", "plate", "room", "temperature mean"):
        np.testing.assert_array_equal(again[name], whole[name])


BAR = {"material": "steel", "box": {"x": [0, 0.05]}, "name": "bar"}


def of_bar(*regions: dict[str, Any], **lumps: Any) -> dict[str, Any]:
    return {"material": None, "regions": [BAR, *regions], "lumps": lumps}


def test_a_region_gives_through_its_surface_what_a_fluid_would_take(tmp_path: Path) -> None:
    """Beside a void, h of a region is the same as a fluid of that h and the same capacity."""
    rest = {"x": [0.05, 0.1]}
    void = {"void": True, "box": rest}
    tank = {"capacity": 1e5, "initial": 20, "exchanges": [{"region": "bar", "h": 3000}]}
    water = {"name": "tank", "box": rest}
    water["fluid"] = {"capacity": 1e5, "initial": 20, "h": 3000}
    end: dict[str, Any] = {"time": {"t_end": 2000}}
    by_region = run(tmp_path / "region", {}, model=of_bar(void, tank=tank), **end)
    by_fluid = run(tmp_path / "fluid", {}, model=of_bar(water), **end)
    for name in ("tank", "temperature mean", "heat from tank", "heat flow tank"):
        assert by_region[name] == pytest.approx(by_fluid[name], rel=1e-12)

    # Flows are those of the step that begins, in the first record too.
    given = np.diff(by_region["heat from tank"]) / np.diff(by_region["time"])
    assert by_region["heat flow tank"][:-1] == pytest.approx(given, rel=1e-6, abs=1e-6)
    assert by_region["tank"][-1] > 40
    total = by_region["heat"] + 1e5 * by_region["tank"]
    assert np.ptp(total) < 1e-9 * abs(total[0])
    assert abs(by_region["heat residual"]).max() < 1e-9 * abs(total[0])


def test_a_round_surface_has_its_true_area(tmp_path: Path) -> None:
    radius, capacity = 0.03, 1e-3
    disc = {"name": "disc", "material": "copper", "where": f"hypot(x - 0.05, y - 0.05) < {radius}"}
    sink = {"capacity": capacity, "initial": 80, "exchanges": [{"region": "disc", "h": 10}]}
    model = {"material": None, "regions": [{"void": True}, disc], "lumps": {"sink": sink}}
    grid = {"shape": [40, 40], "size": [0.1, 0.1]}
    sink["power"] = 100
    found = run(tmp_path, {}, model=model, grid=grid, time={"t_end": 0.2})
    # A lump of next to no capacity is as warm as its power needs: P = h A (T - T_body).
    warmer = found["sink"][-1] - found["temperature max"][-1]
    assert warmer == pytest.approx(100 / (10 * 2 * np.pi * radius), rel=2e-3)


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_a_fluid_follows_what_is_given_over_time(tmp_path: Path, scheme: str) -> None:
    h, slope = 400.0, 50.0
    air: dict[str, Any] = {"name": "air", "box": {"x": [0.05, 0.1]}}
    air["fluid"] = {"ambient": {"table": [[0, 80], [10, 80 + slope * 10]]}, "h": h}
    metal = {"conductivity": 1e4, "density": 1000.0, "specific_heat": 1000.0}
    model: dict[str, Any] = {"materials": {"metal": metal}, "material": None, "lumps": {}}
    model["regions"] = [BAR | {"material": "metal"}, air]
    found = run(tmp_path, {}, model=model, time={"t_end": 3, "scheme": scheme})
    # One temperature that lags behind a ramp.
    t, lag = found["time"], 0.05 * 1e6 / h
    exact = 80 + slope * (t - lag * (1 - np.exp(-t / lag)))
    assert abs(found["temperature mean"] - exact).max() < 5e-3
    assert abs(found["air"] - (80 + slope * t)).max() < 1e-9
    limit = 1e-9 if scheme == "explicit" else 1e-7
    assert abs(found["heat residual"]).max() < limit * np.ptp(found["heat"])


@pytest.mark.parametrize("time", [{"dt": 50}, {"tolerance": 1e-5}])
def test_implicit_steps_count_what_a_tank_takes(tmp_path: Path, time: dict[str, Any]) -> None:
    """The tank is as warm as the bar after a tenth of a step: no record would know its heat flow."""
    tank = {"fluid": {"capacity": 100, "initial": 20, "h": 500}, "name": "tank"}
    model: dict[str, Any] = {
        "regions": [BAR, tank | {"box": {"x": [0.05, 0.1]}}],
        "material": None,
        "lumps": {},
    }
    found = run(tmp_path, {}, model=model, time={"t_end": 200, "scheme": "implicit"} | time)
    assert found["tank"][-1] == pytest.approx(found["temperature mean"][-1], abs=1e-3)
    gained = 100 * (found["tank"] - 20)
    assert found["heat from tank"] == pytest.approx(-gained, rel=1e-8)
    assert abs(found["heat residual"]).max() < 1e-8 * gained[-1]


@pytest.mark.parametrize(
    ("fluid", "told"),
    [
        ({"h": 5}, "give either the ambient"),
        ({"h": 5, "capacity": 5}, "belong together"),
        ({"h": 5, "capacity": 5, "initial": 20, "ambient": 20}, "give either the ambient"),
        ({"h": 5, "ambient": "20 + t", "emissivity": 0.5}, "does not radiate"),
        ({"h": 5, "ambient": "20 + t"}, "give the region a name"),
    ],
)
def test_mistakes_of_fluids_are_told(fluid: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigMistakesError, match=told) as caught:
        make_config(config({}, model=of_bar({"fluid": fluid, "box": {"x": [0.05, 0.1]}})))
    assert "model.regions.1" in str(caught.value)
