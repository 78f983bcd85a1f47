"""Cells that go by themselves, since they are too hot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tetris_sim as ts
from tests.support.phase_cases import (
    BURNING,
    IMPLICIT,
    QUICK,
    SOLVED,
    balance_of,
    changed,
)
from tests.support.thread_ranks import run_ranks
from tetris_sim.commands import sources
from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError
from tetris_sim.outputs.series import open_fields
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.simulation.launch import launch

Q, HOT = 1e6, 1000.0  # W/m^2, degC
CHAR = {"conductivity": 1.0, "density": 1000.0, "specific_heat": 1000.0}
ABLATION: dict[str, Any] = {
    "grid": {"shape": [120], "size": ["12 mm"]},
    "model": {
        "type": "heat",
        "materials": {"char": CHAR},
        "regions": [
            # So hot that the flux does not depend on the temperature of the surface.
            {"name": "flame", "fluid": {"ambient": 1e9, "h": Q / 1e9}},
            {"name": "char", "material": "char", "box": {"x": ["0.5 mm", "12 mm"]}},
        ],
    },
    "initial": {"type": "constant", "value": 0},
    "boundaries": {"*": {"type": "neumann"}},
    "time": {"t_end": "6 s"},
    "compute": QUICK,
}
ABLATION["model"]["regions"][1]["goes"] = {"above": HOT}


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_a_surface_recedes_as_fast_as_heat_comes(scheme: str, tmp_path: Path) -> None:
    time = {"t_end": "6 s"} | ({"scheme": "implicit", "dt": "2 ms"} if scheme == "implicit" else {})
    output = {"directory": str(tmp_path), "fields": {"every": "0.5 s"}, "pictures": False}
    output["statistics"] = {"every": "0.5 s"}
    config = {
        **ABLATION,
        "time": time,
        "output": output,
        "compute": {"devices": "cpu", "threads": 1},
    }
    ts.run(config)
    table = balance_of(tmp_path)
    gone, heat = table["heat gone [J/m^2]"], table["heat stored [J/m^2]"]
    assert abs(table["heat residual [J/m^2]"]).max() < 1e-9 * gone[-1]
    np.testing.assert_allclose(heat + gone, Q * table["time [s]"], rtol=1e-4, atol=50)

    # Landau (1950) without latent heat: v = q / (rho c T_a), T = T_a exp(-v x / alpha).
    speed, alpha = Q / (1e6 * HOT), 1e-6
    h = 1e-4
    with h5py.File(tmp_path / "fields.h5") as file:
        field, times = np.asarray(file["temperature"])[:, :], np.asarray(file["time"])
    # A cell that has gone shows the flame.
    there = field < 1e6
    places = [np.flatnonzero(it)[0] * h for it in there]
    late = times > 3
    found = np.polyfit(times[late], np.array(places)[late], 1)[0]
    assert found == pytest.approx(speed, rel=0.02)
    x = (np.arange(there[-1].sum()) + 0.5) * h
    profile = field[-1][there[-1]]
    # The surface lies up to a cell before the place where it would be.
    shift = alpha / speed * np.log(HOT / profile[5]) - x[5]
    assert abs(shift) < h
    wanted = HOT * np.exp(-speed * (x + shift) / alpha)
    inner = (x > 5 * h) & (x < 4 * alpha / speed)
    np.testing.assert_allclose(profile[inner], wanted[inner], rtol=0, atol=2e-3 * HOT)


def _burning(directory: Path, scheme: str = "explicit", **sections: Any) -> Any:
    output = {"statistics": {"every": "0.5 s"}, "fields": {"every": "0.5 s"}, "pictures": False}
    output["directory"] = str(directory)
    config = changed(BURNING, output=output, **sections)
    if scheme == "implicit":
        config = {**changed(config, time=IMPLICIT), "compute": SOLVED}
    return make_config(config, environ={})


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_heat_of_what_burns_is_in_the_balance(scheme: str, tmp_path: Path) -> None:
    launch(_burning(tmp_path, scheme))
    table = balance_of(tmp_path)
    gone = table["heat gone [J/m]"]
    assert gone[-1] > 1e4
    assert len({*gone.round(3)}) > 5
    assert abs(table["heat residual [J/m]"]).max() < 1e-7 * gone[-1]
    # What was between felt and plate at first is between air and plate at the end.
    assert table["heat flow steel to air [W/m]"][-1] != 0
    assert (np.diff(gone) >= 0).all()
    # Some of it goes at a time at which it is looked at, never between.
    time = table["time [s]"]
    changed = time[1:][np.diff(gone) > 0]
    changed = changed[abs(changed - 1.75) > 1e-6]  # when the lid is taken off
    np.testing.assert_allclose(changed * 10, (changed * 10).round(), atol=1e-6)
    # Maps of the time of a record show what is left.
    with open_fields(tmp_path / "fields.h5") as series:
        left = []
        for record in range(len(series.times)):
            (material,) = (it for it in series.maps_at(record) if it.name == "material")
            left.append(
                int((material.read(((0, 12), (0, 16))) == material.meanings.index("felt")).sum())
            )
    assert left[0] == 72
    assert 0 < left[-1] < left[0]
    assert left == sorted(left, reverse=True)


@pytest.mark.parametrize("scheme", ["explicit", "implicit"])
def test_what_has_gone_is_in_checkpoints(scheme: str, tmp_path: Path) -> None:
    kept = {"checkpoint": {"every": "0.4 s", "keep": 100}}
    launch(_burning(tmp_path / "whole", scheme, **kept))
    for first in (2, 5):
        shutil.copytree(tmp_path / "whole", tmp_path / f"part{first}")
        for path in sorted((tmp_path / f"part{first}/checkpoints").glob("*.h5"))[first:]:
            path.unlink()
        launch(_burning(tmp_path / f"part{first}", scheme, **kept), resume="auto")
        parts = tmp_path / f"part{first}", tmp_path / "whole"
        assert len({(it / "statistics.csv").read_text() for it in parts}) == 1
        with h5py.File(parts[0] / "fields.h5") as one, h5py.File(parts[1] / "fields.h5") as two:
            np.testing.assert_array_equal(one["temperature"], two["temperature"])
    # A checkpoint shows the body of its time.
    found = []
    for path in sorted((tmp_path / "whole/checkpoints").glob("*.h5")):
        with sources.open_series(path) as series:
            (material,) = (it for it in series.maps if it.name == "material")
            felt = material.meanings.index("felt")
            found.append(int((material.read(((0, 12), (0, 16))) == felt).sum()))
    assert len({*found}) > 3
    assert found == sorted(found, reverse=True)


def test_what_burns_is_the_same_on_ranks_and_by_every_method(tmp_path: Path) -> None:
    def work(ranks: Communicator) -> None:
        launch(_burning(tmp_path / "two"), ranks=ranks)

    tiled = {"devices": "cpu", "method": "cpu.tessellate", "threads": 2}
    launch(_burning(tmp_path / "one"))
    launch(_burning(tmp_path / "tiled", compute=tiled))
    run_ranks(2, work)
    for other in ("two", "tiled"):
        with (
            h5py.File(tmp_path / "one/fields.h5") as a,
            h5py.File(tmp_path / other / "fields.h5") as b,
        ):
            np.testing.assert_array_equal(a["temperature"], b["temperature"])
        one, two = (balance_of(tmp_path / it) for it in ("one", other))
        for key, values in one.items():
            np.testing.assert_array_equal(values, two[key], err_msg=key)


def test_a_simulation_goes_on_without_what_has_gone() -> None:
    with ts.simulate(BURNING) as simulation:
        simulation.run(2.0)
        before = np.array(simulation.field())
        gone = simulation.problem.phase
        assert gone > 3
        with simulation.with_boundary({"y-": {"type": "insulated"}}) as other:
            np.testing.assert_array_equal(other.field(), before)
            assert other.problem.phase == gone
            other.run()
            assert other.problem.phase >= gone


def test_all_may_go(tmp_path: Path) -> None:
    regions = [{"name": "air", "void": True}, BURNING["model"]["regions"][2]]
    model = {"regions": regions, "materials": {"felt": BURNING["model"]["materials"]["felt"]}}
    config = _burning(tmp_path, model=model, boundaries={"y-": {"type": "insulated"}})
    launch(config)
    table = balance_of(tmp_path)
    assert table["heat [J/m]"][-1] == 0
    residual = abs(table["heat residual [J/m]"]).max()
    assert residual < 1e-9 * table["heat gone [J/m]"][-1]


def test_what_cannot_go_is_refused() -> None:
    def told(number: int, **keys: Any) -> str:
        regions = [dict(it) for it in BURNING["model"]["regions"]]
        regions[number] |= keys
        with pytest.raises(ConfigError) as raised:
            make_config(changed(BURNING, model={"regions": regions}), environ={}).build()
        return str(raised.value)

    assert "model.regions.0.goes: only a material" in told(0, goes={"above": 100})
    slanted = told(2, box=None, where="hypot(x - 8e-3, y - 7e-3) < 3e-3")
    assert "model.regions.2.goes: cells go whole" in slanted
    assert "above" in told(2, goes={"every": "1 s"})
    config = make_config(BURNING, environ={})
    (going, lid) = config.model.notes(config)  # type: ignore[union-attr]
    assert going == "cells of felt go above 300 degC, looked at every 0.1 s"
    assert lid == "at 1.75 s lid goes"
