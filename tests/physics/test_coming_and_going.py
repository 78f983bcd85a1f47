"""Regions that come and go: layers that are laid down, parts that are taken away."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import tetris_sim as ts
from tests.support.phase_cases import (
    BEADS,
    BODIES,
    BURNING,
    END,
    JOINED,
    JOINT,
    LENGTH,
    QUICK,
    SOLVED,
    STEEL,
    Numbers,
    balance_of,
    changed,
    mistakes,
    with_region,
)
from tests.support.thread_ranks import run_ranks
from tetris_sim.commands import sources
from tetris_sim.config import make_config
from tetris_sim.errors import CheckpointError, ConfigError
from tetris_sim.model.adjoint import why_not_transposed
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.series import open_fields
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.simulation.launch import launch


def _joined(x: Numbers, time: float) -> Numbers:
    """The series of both halves after they were joined."""
    a = STEEL["conductivity"] / STEEL["density"] / STEEL["specific_heat"]
    half = (np.arange(4000) + 0.5) / 4000 * LENGTH / 2
    base = 300 + 200 * np.cos(2 * np.pi * half / LENGTH) * math.exp(
        -a * (2 * np.pi / LENGTH) ** 2 * JOINED
    )
    both, at = (
        np.concatenate([base, np.full(4000, 900.0)]),
        np.concatenate([half, half + LENGTH / 2]),
    )
    found = np.full(x.shape, both.mean())
    for n in range(1, 200):
        k = n * np.pi / LENGTH
        amplitude = 2 * (both * np.cos(k * at)).mean()
        found += amplitude * np.cos(k * x) * math.exp(-a * k**2 * (time - JOINED))
    return found


@pytest.mark.parametrize("scheme", [{}, {"scheme": "implicit", "dt": "0.02 s"}], ids=["e", "i"])
def test_two_halves_that_are_joined_follow_their_series(scheme: dict[str, Any]) -> None:
    errors = []
    for n in (40, 80):
        config = changed(JOINT, grid={"shape": [n]}, time=scheme)
        config = {**config, "compute": SOLVED if scheme else QUICK}
        with ts.simulate(config) as simulation:
            simulation.run(JOINED)
            assert simulation.field()[0, -1] == 900  # it is there from that step on
            simulation.run()
            found = simulation.field()[0]
        x = (np.arange(n) + 0.5) * LENGTH / n
        errors.append(float(np.abs(found - _joined(x, END)).max()))
    assert errors[0] < 0.5
    assert errors[1] < 0.3 * errors[0]  # of second order


def test_steps_end_when_something_comes_or_goes() -> None:
    problem = make_config(BEADS, environ={}).build()
    assert [problem.time(step) for step in problem.changes] == pytest.approx([1, 2.5, 4], abs=1e-12)
    assert problem.dt <= problem.dt_limit
    # The step is the smallest of all parts of the run: braze conducts best.
    assert problem.dt_limit < make_config(JOINT, environ={}).build().dt_limit


@pytest.mark.parametrize("name", list(BODIES))
def test_what_comes_and_goes_is_in_the_balance(name: str, tmp_path: Path) -> None:
    config = changed(BODIES[name], output={"statistics": {"every": "0.5 s"}, "pictures": False})
    ts.run(changed(config, output={**config["output"], "directory": str(tmp_path)}))
    table = balance_of(tmp_path)
    arrived, gone = table["heat arrived [J/m]"], table["heat gone [J/m]"]
    assert arrived[0] == gone[0] == 0
    assert arrived[-1] > 1e4
    assert gone[-1] > 1e3
    assert abs(table["heat residual [J/m]"]).max() < 1e-7 * arrived[-1]
    # A record is made whenever the body changes.
    assert {1.0, 2.5, 4.0} <= {round(float(it), 9) for it in table["time [s]"]}

    first = [key for key in table if key.startswith("braze ") and "mean" in key]
    there = ~np.isnan(table[first[0]])
    time = np.round(table["time [s]"], 9)
    np.testing.assert_array_equal(there, (time >= 1) & (time < 4))


def test_what_is_not_there_is_nan_in_files_and_blank_in_pictures(tmp_path: Path) -> None:
    output = {"directory": str(tmp_path), "fields": {"every": "0.5 s"}, "pictures": True}
    for name in ("air", "void"):
        ts.run({**BODIES[name], "output": output}, overwrite=True)
        with h5py.File(tmp_path / "fields.h5") as file:
            field, times = np.asarray(file["temperature"]), np.asarray(file["time"])
        bead = field[:, 5, 4]
        there = (times > 0.99) & (times < 3.99)
        assert (np.isnan(bead) == (~there if name == "void" else False)).all()
        assert bead[2] == 1200

        with open_fields(tmp_path / "fields.h5") as series:
            for record, present in enumerate(there):
                (material,) = (it for it in series.maps_at(record) if it.name == "material")
                number = int(material.read(((5, 6), (4, 5))).item())
                assert (number in material.outside) == (not present)


@pytest.mark.parametrize("name", ["air", "melting", "implicit"])
def test_a_run_continued_before_at_and_after_a_change_has_the_same_bits(
    name: str, tmp_path: Path
) -> None:
    outputs = {"fields": {"every": "0.5 s"}, "statistics": {"every": "0.5 s"}, "pictures": False}
    # Of what conducts badly steps are few, and each of them can be saved.
    slow = {
        key: {**it, "conductivity": 4} for key, it in BODIES[name]["model"]["materials"].items()
    }
    body = changed(BODIES[name], model={"materials": slow})
    steps = make_config(body, environ={}).build().changes
    config = {**body, "output": outputs, "checkpoint": {"every": "1 step", "keep": 1000}}

    def asked(directory: Path) -> Any:
        return make_config(
            {**config, "output": {**outputs, "directory": str(directory)}}, environ={}
        )

    launch(asked(tmp_path / "whole"))
    for step in (steps[0] - 1, steps[0], steps[1] + 1, steps[2]):
        folder = tmp_path / f"part{step}"
        shutil.copytree(tmp_path / "whole", folder)
        for path in (folder / "checkpoints").glob("*.h5"):
            if int(path.stem.split("_")[1]) > step:
                path.unlink()
        launch(asked(folder), resume="auto")
        tables = [it / "statistics.csv" for it in (folder, tmp_path / "whole")]
        assert tables[0].read_text() == tables[1].read_text()
        with h5py.File(folder / "fields.h5") as one, h5py.File(tmp_path / "whole/fields.h5") as two:
            np.testing.assert_array_equal(one["temperature"], two["temperature"])
        assert {it.name for it in (folder / "fields").iterdir()} >= {
            it.name for it in (tmp_path / "whole/fields").glob("fields_*")
        }


def test_every_exact_method_has_the_same_bits() -> None:
    states = []
    for compute in (QUICK, {**QUICK, "method": "cpu.tessellate", "threads": 2}):
        with ts.simulate({**BODIES["air"], "compute": compute}) as simulation:
            simulation.run()
            states.append(np.array(simulation.field()))
    np.testing.assert_array_equal(states[0], states[1])


@pytest.mark.parametrize("name", ["air", "implicit"])
def test_ranks_agree(name: str, tmp_path: Path) -> None:
    outputs = {"fields": {"every": "1 s"}, "statistics": {"every": "0.5 s"}, "pictures": False}

    def asked(directory: str) -> Any:
        output = {**outputs, "directory": str(tmp_path / directory)}
        return make_config({**BODIES[name], "output": output}, environ={})

    def work(ranks: Communicator) -> None:
        launch(asked("two"), ranks=ranks)

    launch(asked("one"))
    run_ranks(2, work)
    with h5py.File(tmp_path / "one/fields.h5") as one, h5py.File(tmp_path / "two/fields.h5") as two:
        np.testing.assert_array_equal(one["temperature"], two["temperature"])
    tables = [balance_of(tmp_path / it) for it in ("one", "two")]
    assert {*tables[0]} == {*tables[1]}
    for key, values in tables[0].items():
        np.testing.assert_array_equal(values, tables[1][key], err_msg=key)


def test_a_checkpoint_shows_the_body_of_its_time(tmp_path: Path) -> None:
    output = {"directory": str(tmp_path), "pictures": False}
    ts.run({**BODIES["air"], "output": output, "checkpoint": {"every": "1 s", "keep": 9}})
    for path in (tmp_path / "checkpoints").glob("*.h5"):
        with sources.open_series(path) as series:
            (material,) = (it for it in series.maps if it.name == "material")
            present = 0.99 < series.times[0] < 3.99
            number = int(material.read(((5, 6), (4, 5))).item())
            assert (number in material.outside) == (not present)


def test_a_simulation_goes_on_with_changes_in_the_same_phase() -> None:
    with ts.simulate(BODIES["air"]) as simulation:
        simulation.run(3.0)
        before = np.array(simulation.field())
        with simulation.with_boundary({"y-": {"type": "insulated"}}) as other:
            np.testing.assert_array_equal(other.field(), before)
            assert other.problem.phase == simulation.problem.phase == 2
            other.run()
            assert other.problem.phase == 3
            assert other.field()[0, 5, 4] == 15  # the air that is left


def test_a_melt_keeps_its_heat_content() -> None:
    # What has half melted when another bead comes stays so.
    with ts.simulate(BODIES["melting"]) as simulation:
        problem = simulation.problem
        simulation.advance(problem.changes[1] - 1)
        simulation.advance(1)
        kept = simulation.problem
        assert kept.phase == 2
        fresh = kept.initial(Slab.whole(kept.grid))
        assert simulation.field()[0, 6, 10] == fresh[0, 6, 10] > 800 * 4e6
        assert simulation.field()[0, 1, 1] != fresh[0, 1, 1]


def test_what_cannot_be_is_refused() -> None:
    assert "come and go" in mistakes(time={"scheme": "steady", "t_end": None})
    assert "come and go" in mistakes(time={"scheme": "spectral"})
    assert "give a later `to`" in mistakes(model=with_region(2, **{"from": "4 s"}))
    assert "only a material arrives" in mistakes(model=with_region(0, arrives_at=20))
    assert "together with velocity" in mistakes(model={"velocity": [0.001, 0]})
    assert "covers the centre of no cell" in mistakes(
        model=with_region(3, box={"x": ["20 mm", "21 mm"]})
    )
    # A time that no step can end at.
    assert "within a step" in mistakes(time={"t_end": None, "steps": 1000, "dt": "0.0031 s"})


def test_no_gradient_passes_over_what_comes_and_goes() -> None:
    for config in (BEADS, BURNING):
        problem = make_config(config, environ={}).build()
        assert "come and go" in str(why_not_transposed(problem))


def test_what_is_named_has_to_be_there_at_some_time() -> None:
    regions = BEADS["model"]["regions"]
    never = mistakes(model={"regions": [*regions[:2], regions[3]]})
    assert "contacts" in never
    # A source of a bead that comes later is none until then.
    problem = make_config(BEADS, environ={}).build()
    assert problem.phases is not None
    assert [problem.phases.make(k).body.source is not None for k in range(4)] == [True] * 4


def test_a_later_end_must_not_move_changes_into_a_step(tmp_path: Path) -> None:
    output = {"directory": str(tmp_path), "pictures": False}
    config = {**BODIES["air"], "output": output, "time": {"t_end": "2 s"}}
    launch(make_config(config, environ={}))
    later = {**config, "time": {"t_end": "6 s"}}
    with pytest.raises((ConfigError, CheckpointError), match="within a step"):
        launch(make_config({**later, "time": {"t_end": "6.123 s"}}, environ={}), resume="auto")


def test_what_comes_and_goes_is_said() -> None:
    config = make_config(BEADS, environ={})
    notes = config.model.notes(config)  # type: ignore[union-attr]
    assert notes[:3] == ("at 1 s first comes", "at 2.5 s second comes", "at 4 s first goes")
