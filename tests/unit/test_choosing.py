"""Schemes: which one gets a run from one wanted step to the next, and that all end alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tetris_sim.commands.plan import as_text, collect
from tetris_sim.config import Config, make_config
from tetris_sim.errors import UnsupportedError
from tetris_sim.outputs.checkpoint import open_checkpoint
from tetris_sim.scheduler.comm.communicator import Alone
from tetris_sim.scheduler.plan.solving import SpectralPlan
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.preparation import find_jumps, prepare

LAYERS = {
    "type": "heat",
    "regions": [{"material": "copper"}, {"material": "steel", "where": "y > 0.004"}],
}
CORNER = {
    "regions": [
        LAYERS["regions"][0],
        {"material": "steel", "where": "min(x - 0.008, y - 0.004) > 0"},
    ]
}
STEPPING = {"method": "cpu.plain", "devices": ["cpu"], "tuning_budget": 0, "threads": 1}


def plate(directory: Path, **sections: Any) -> Config:
    time = {"cfl": 0.2, "steps": 90, **sections.pop("time", {})}
    return make_config(
        {
            "grid": {"shape": [16, 12], "size": [0.016, 0.012]},
            "model": {"type": "heat", "material": "copper"},
            "initial": {"type": "expression", "expression": "1e5*x*y + sin(3000*x)"},
            "boundaries": {
                "*": {"type": "neumann"},
                "x-": {"type": "dirichlet", "value": 3},
                "y": {"type": "periodic"},
            },
            "compute": {"devices": ["cpu"], "tuning_budget": 0, "threads": 1},
            "output": {
                "directory": str(directory),
                "pictures": False,
                "fields": {"every": "30 steps"},
                "statistics": {"every": "20 steps"},
            },
            "checkpoint": {"every": "45 steps"},
            "time": time,
            **sections,
        }
    )


def fields_of(directory: Path) -> np.ndarray[Any, Any]:
    with h5py.File(directory / "fields.h5") as file:
        return np.asarray(file["temperature"])


def test_jumps_write_what_steps_write(tmp_path: Path) -> None:
    launch(plate(tmp_path / "steps", model=LAYERS, compute=STEPPING))
    report = launch(plate(tmp_path / "jumps", model=LAYERS, time={"scheme": "spectral"}))
    assert report.methods["cpu:0"] == "cpu.spectral"

    expected = fields_of(tmp_path / "steps")
    assert len(expected) == 4
    np.testing.assert_allclose(fields_of(tmp_path / "jumps"), expected, rtol=1e-12, atol=1e-12)
    tables = [
        np.genfromtxt(tmp_path / name / "statistics.csv", delimiter=",", skip_header=1)
        for name in ("steps", "jumps")
    ]
    # step, time, minimum, maximum, mean
    np.testing.assert_allclose(tables[1][:, :5], tables[0][:, :5], rtol=1e-12, atol=1e-12)


def test_linear_equations_step_or_jump_as_they_are_asked(tmp_path: Path) -> None:
    found = {}
    for scheme, method in (("rk4", "cpu.plain"), ("auto", "cpu.spectral")):
        values = plate(tmp_path / scheme, compute=STEPPING if scheme == "rk4" else {}).resolved()
        field = {"equation": "laplace(u) - 0.1*u", "initial": values.pop("initial")}
        values |= {"model": {"type": "pde", "fields": {"u": field}}}
        values["time"] = {"dt": 1e-8, "steps": 90, "scheme": scheme}
        report = launch(make_config(values))
        assert report.methods["cpu:0"] == method
        with h5py.File(tmp_path / scheme / "fields.h5") as file:
            found[scheme] = np.asarray(file["u"])
    assert len(found["rk4"]) == 4
    # Jumps have no error in time, and rk4 hardly any.
    np.testing.assert_allclose(found["auto"], found["rk4"], rtol=0, atol=1e-4)


def test_a_run_that_jumps_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    config = plate(tmp_path / "run", time={"scheme": "spectral"})
    launch(config)
    last = tmp_path / "run" / "checkpoints" / "checkpoint_000000000090.h5"
    with open_checkpoint(last) as checkpoint:
        state = checkpoint.read(((0, 12), (0, 16)))
    last.unlink()

    report = launch(plate(tmp_path / "run", time={"scheme": "auto"}), resume="auto")
    assert report.first_step == 45
    assert any("as the run was begun" in sentence for sentence in report.plan)
    with open_checkpoint(last) as checkpoint:
        np.testing.assert_array_equal(checkpoint.read(((0, 12), (0, 16))), state)

    last.unlink()
    report = launch(plate(tmp_path / "run", compute=STEPPING), resume="auto")
    assert report.methods["cpu:0"] == "cpu.plain"
    with open_checkpoint(last) as checkpoint:
        np.testing.assert_allclose(checkpoint.read(((0, 12), (0, 16))), state, rtol=1e-12)


def test_jumps_end_where_somebody_wants_the_state(tmp_path: Path) -> None:
    config = plate(tmp_path)
    problem = config.build()
    # 20, 30, 40, 45, 60, 80, 90
    assert find_jumps(config, problem) == SpectralPlan(7, 20)
    assert find_jumps(config, problem, 45) == SpectralPlan(3, 20)

    rare = plate(tmp_path, time={"steps": 10**9}, checkpoint={}, output={})
    assert find_jumps(rare, rare.build()) == SpectralPlan(1, 10**9)
    often = plate(tmp_path, time={"steps": 10**9}, checkpoint={"every": "10 steps"}, output={})
    assert find_jumps(often, often.build()) == SpectralPlan(10**8, 10)


def test_plan_compares_the_schemes(tmp_path: Path) -> None:
    seldom = {"checkpoint": {}, "output": {"directory": str(tmp_path)}}
    config = plate(tmp_path, time={"steps": 10**9}, **seldom)
    prepared = prepare(config, Alone(), compare=True)
    facts = collect(config, prepared)
    assert facts["scheme"] == "explicit"
    assert facts["seconds"] == facts["schemes"]["explicit"]["seconds"] > 100
    assert 0 < facts["schemes"]["spectral"]["seconds"] < facts["seconds"]
    assert "jumps over the same steps (spectral) about" in as_text(facts)

    jumping = plate(tmp_path, time={"steps": 10**9, "scheme": "auto"}, **seldom)
    facts = collect(jumping, prepare(jumping, Alone(), compare=True))
    assert facts["scheme"] == "spectral"
    assert facts["workers"][0]["method"] == "cpu.spectral"
    assert facts["seconds"] == facts["schemes"]["spectral"]["seconds"]


def test_steps_are_as_they_were_where_nothing_is_asked(tmp_path: Path) -> None:
    prepared = prepare(plate(tmp_path), Alone())
    assert prepared.plan.scheme == "explicit"
    assert not any("spectral" in sentence for sentence in prepared.plan.reasons)


def test_auto_makes_steps_where_there_is_no_jump(tmp_path: Path) -> None:
    corner = {"type": "heat", **CORNER}
    prepared = prepare(plate(tmp_path, model=corner, time={"scheme": "auto"}), Alone())
    assert prepared.plan.scheme == "explicit"
    assert "its materials change along more than one axis" in prepared.plan.reasons[0]

    named = plate(tmp_path, time={"scheme": "auto"}, compute=STEPPING)
    plan = prepare(named, Alone()).plan
    assert plan.scheme == "explicit"
    assert "cpu.plain makes one step after the other" in plan.reasons[0]


def test_a_jump_that_is_not_possible_is_refused_with_the_reason(tmp_path: Path) -> None:
    config = plate(tmp_path, model={"type": "heat", **CORNER}, time={"scheme": "spectral"})
    with pytest.raises(UnsupportedError, match=r"time.scheme is spectral, but .* more than one"):
        prepare(config, Alone())


def test_a_grid_that_does_not_fit_is_refused_with_its_size_and_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Waves along axes of millions of points take half a minute.
    monkeypatch.setattr("tetris_sim.scheduler.plan.solving.read_operator", None)
    config = plate(tmp_path, grid={"shape": [2**17, 2**17], "spacing": [1e-4, 1e-4]})
    large = config.model_copy(
        update={"time": config.time.model_copy(update={"scheme": "spectral"})}
    )
    with pytest.raises(UnsupportedError, match="the whole grid on one device takes 512 GiB"):
        prepare(large, Alone())
