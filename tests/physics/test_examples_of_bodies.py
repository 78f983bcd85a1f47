"""The examples of bodies run, small, and their numbers are those of the physics."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

import tetris_sim as ts
from tetris_sim.outputs.audit import GIVEN, RESIDUAL
from tetris_sim.simulation.launch import launch

EXAMPLES = Path(__file__).parents[2] / "examples"


def last_row(path: Path) -> dict[str, float]:
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return dict(zip(header, map(float, rows[-1]), strict=True))


def run(name: str, directory: Path, *overrides: str) -> dict[str, float]:
    """The last row of the statistics of an example, and the last value of each probe."""
    small = ("compute.method=cpu.plain", "compute.tuning_budget=0", "output.pictures=false")
    where = f"output.directory={directory}"
    path = EXAMPLES / f"{name}.yaml"
    launch(ts.load_config(path, overrides=(*small, where, *overrides), environ={}))
    found = last_row(directory / "statistics.csv")
    for probe in (directory / "probes").glob("*.csv"):
        found[probe.stem] = list(last_row(probe).values())[-1]
    return found


def balance(found: dict[str, float]) -> float:
    """What the balance of heat misses, of what the sources gave."""
    return abs(named(found, RESIDUAL)) / named(found, GIVEN)


def named(found: dict[str, float], name: str) -> float:
    return next(number for key, number in found.items() if key.split(" [")[0] == name)


def test_a_bare_sixth_of_a_steam_pipe_loses_most_of_the_heat(tmp_path: Path) -> None:
    found = run("steam_pipe", tmp_path / "r", "compute.method=auto")
    lost = {it: named(found, f"heat flow {it}") for it in ("r-", "r+", "steel to air")}
    # Through a sixth of the wall, which is nearly as hot as the steam: h A (T - Tair).
    bare = 12 * math.pi / 3 * 0.03 * 160
    assert lost["steel to air"] == pytest.approx(bare, rel=0.01)
    assert lost["steel to air"] > lost["r-"] / 2
    given = lost["r-"] + lost["r+"] - lost["steel to air"]
    assert named(found, "heat flow wool to air") == pytest.approx(given, rel=1e-6)


def test_cores_of_a_chip_follow_their_load(tmp_path: Path) -> None:
    found = run("chip_package", tmp_path / "r", "grid.shape=[30, 30, 28]", "time.t_end=30 ms")
    # The first core idles for two thirds of the time; 45 W flow by then.
    assert named(found, "sources") == pytest.approx(30 + 18, rel=1e-9)
    assert 45 < found["core-a"] < 70
    assert 45 < found["core-b"] < 60
    assert named(found, "heat flow z+") < 0
    assert balance(found) < 1e-3


def test_a_wall_damps_the_weather(tmp_path: Path) -> None:
    found = run("wall_weather", tmp_path / "r", "grid.shape=[52]", "time.t_end=30 h")
    assert 18 < found["inside"] < 20
    assert -5 < found["outside"] < 15
    assert named(found, "heat flow x-") > 0


def test_fins_carry_the_heat_of_their_base(tmp_path: Path) -> None:
    found = run("heat_sink", tmp_path / "r", "grid.shape=[100, 80]", "time.t_end=5 s")
    assert 25 < found["tip"] < found["below"] < 60
    assert named(found, "sources") == pytest.approx(600, rel=1e-9)
    assert balance(found) < 1e-2


def test_a_laser_melts_a_track(tmp_path: Path) -> None:
    found = run("laser_track", tmp_path / "r", "grid.shape=[75, 15, 15]", "time.t_end=600 us")
    assert named(found, "temperature max") > 1500
    assert named(found, "temperature min") == pytest.approx(25, abs=1)


FLASK = ("grid.shape=[15, 60]", "time.scheme=explicit", "time.dt=0.1 s")


def test_walls_of_a_flask_radiate_alike_in_explicit_and_implicit_steps(tmp_path: Path) -> None:
    end = ("grid.shape=[15, 60]", "time.t_end=2 min", "output.statistics.every=1 min")
    steps = run("vacuum_flask", tmp_path / "e", *FLASK, *end)
    implicit = ("compute.method=auto", "time.dt=2 s")
    jumps = run("vacuum_flask", tmp_path / "i", *implicit, *end)
    for found in (steps, jumps):
        assert abs(named(found, RESIDUAL)) < 1e-6 * abs(named(found, "heat from room"))
    for name in ("tea mean", "inner mean", "heat flow inner to outer", "heat flow outer to room"):
        assert named(steps, name) == pytest.approx(named(jumps, name), rel=2e-3)
    assert named(steps, "heat flow inner to outer") > 0.1


def test_walls_that_radiate_have_one_answer_on_workers_and_when_continued(tmp_path: Path) -> None:
    whole = run("vacuum_flask", tmp_path / "a", *FLASK, "time.steps=40", "time.t_end=null")
    devices = "compute.devices=[cpu, cpu]"
    split = run("vacuum_flask", tmp_path / "b", *FLASK, "time.steps=40", "time.t_end=null", devices)
    assert split == whole

    run("vacuum_flask", tmp_path / "c", *FLASK, "time.steps=20", "time.t_end=null")
    more = ("compute.method=cpu.plain", "compute.tuning_budget=0", "output.pictures=false")
    where = (f"output.directory={tmp_path / 'c'}", "time.steps=40", "time.t_end=null")
    path = EXAMPLES / "vacuum_flask.yaml"
    config = ts.load_config(path, overrides=(*more, *FLASK, *where), environ={})
    launch(config, resume="auto")
    again = last_row(tmp_path / "c" / "statistics.csv")
    assert {name: value for name, value in again.items() if "heat" not in name} == {
        name: value for name, value in whole.items() if "heat" not in name
    }


def test_water_takes_what_modules_give_a_cold_plate(tmp_path: Path) -> None:
    found = run("cold_plate", tmp_path / "r", "compute.method=auto", "grid.shape=[30, 20, 4]")
    assert named(found, "water outlet") == pytest.approx(20 + 650 / (0.02 * 4181), abs=1e-4)
    assert named(found, "heat flow water") == pytest.approx(-650, rel=1e-6)
    assert 60 < named(found, "temperature max") < 66


def test_threads_warm_the_core_that_they_are_on(tmp_path: Path) -> None:
    small = ("compute.method=auto", "grid.shape=[20, 16, 16]", "output.fields=null")
    found = run("chip_stack", tmp_path / "r", *small)
    # In the last ten rows of the trace the fourth core has 7.5 or 5.5 W, the others 1.5 W.
    assert 60 < named(found, "core3 mean") < 75
    assert max(named(found, f"core{n} mean") for n in range(3)) < 56
    assert named(found, "bank1 mean") > named(found, "bank2 mean")
    assert balance(found) < 1e-6
