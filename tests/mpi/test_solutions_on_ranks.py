"""Runs that solve on several ranks: one of them alone, or all together; the plan says which."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.support.thread_ranks import run_ranks
from tetris_sim.config import Config, read_config
from tetris_sim.errors import ConfigError, ElsewhereError
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.scheduler.plan import solving
from tetris_sim.simulation.launch import launch
from tetris_sim.solvers import distributed

BLOCK = """
schema: 1
grid: {shape: [14, 12, 26], size: [14 mm, 12 mm, 26 mm]}
model:
  type: heat
  materials:
    steel: {conductivity: 45, density: 7800, specific_heat: 480}
    foam: {conductivity: 0.04, density: 30, specific_heat: 1400}
  regions:
    - {material: steel}
    - {material: foam, box: {z: [9 mm, 12 mm]}}
    - {material: steel, box: {x: [0 mm, 4 mm], y: [0 mm, 6 mm]}}
initial: {type: expression, expression: "20 + 1e3*z"}
boundaries:
  "*": {type: neumann, flux: 0}
  z-: {type: dirichlet, value: 50}
  z+: {type: radiation, emissivity: 0.8, ambient: 900}
  y: {type: periodic}
compute: {threads: 1}
output: {pictures: false, fields: {every: 1 step}, statistics: {every: 1 step}}
"""
PLATE = """
schema: 1
grid: {shape: [16, 12], size: [16 mm, 12 mm]}
model: {type: heat, material: copper}
initial: {type: expression, expression: "1e5*x*y"}
boundaries: {"*": {type: neumann, flux: 100}, x-: {type: dirichlet, value: 50}}
compute: {threads: 1}
output: {pictures: false, fields: {every: 1 step}, statistics: {every: 1 step}}
"""


@pytest.mark.parametrize("time", ["{scheme: steady}", "{scheme: implicit, dt: 1 s, steps: 3}"])
def test_of_several_ranks_one_solves(time: str, tmp_path: Path) -> None:
    def config(name: str) -> Config:
        overrides = [f"output.directory={tmp_path / name}", f"time={time}"]
        return read_config(PLATE, name="plate", base=tmp_path, overrides=overrides)

    def work(ranks: Communicator) -> tuple[str, ...]:
        return launch(config("two"), ranks=ranks).plan

    launch(config("one"))  # compiles, for which ranks do not wait
    for reasons in run_ranks(2, work):
        assert any("up to 32768 points" in reason for reason in reasons)
    states = []
    for name in ("one", "two"):
        with h5py.File(tmp_path / name / "fields.h5") as file:
            states.append(np.asarray(file["temperature"]))
    np.testing.assert_array_equal(states[1], states[0])


@pytest.fixture
def _shared_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "TOGETHER", 64)
    monkeypatch.setattr(solving, "TOGETHER", 64)
    monkeypatch.setattr(solving, "_SURELY", 1e9)


@pytest.mark.usefixtures("_shared_always")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    "time",
    [
        "{scheme: steady, tolerance: 1e-10}",
        "{scheme: implicit, dt: 20 s, steps: 3, tolerance: 1e-10}",
        "{scheme: implicit, t_end: 60 s, tolerance: 1e-3}",
    ],
)
def test_all_ranks_solve_together(time: str, ranks: int, tmp_path: Path) -> None:
    def config(name: str) -> Config:
        overrides = [f"output.directory={tmp_path / name}", f"time={time}"]
        return read_config(BLOCK, name="block", base=tmp_path, overrides=overrides)

    def work(ranks: Communicator) -> tuple[str, ...]:
        return launch(config("all"), ranks=ranks).plan

    launch(config("one"))
    for reasons in run_ranks(ranks, work):
        assert any(f"{ranks} ranks solve linear systems together" in it for it in reasons)
    states = []
    for name in ("one", "all"):
        with h5py.File(tmp_path / name / "fields.h5") as file:
            states.append(np.asarray(file["temperature"]))
    assert states[0].shape == states[1].shape
    assert np.ptp(states[0]) > 1.0
    np.testing.assert_allclose(states[1], states[0], rtol=0, atol=1e-6 * np.ptp(states[0]))


@pytest.mark.usefixtures("_shared_always")
def test_ranks_keep_a_system_for_later_time_blocks(tmp_path: Path) -> None:
    """A linear system stays the same, so rank 0 sends it once for all blocks."""

    def config(name: str) -> Config:
        overrides = [
            f"output.directory={tmp_path / name}",
            "time={scheme: implicit, dt: 20 s, steps: 4, tolerance: 1e-10}",
            "boundaries.z+={type: neumann, flux: 100}",
        ]
        return read_config(BLOCK, name="block", base=tmp_path, overrides=overrides)

    launch(config("one"))
    run_ranks(2, lambda ranks: launch(config("all"), ranks=ranks).exit_code)
    states = []
    for name in ("one", "all"):
        with h5py.File(tmp_path / name / "fields.h5") as file:
            states.append(np.asarray(file["temperature"]))
    assert states[0].shape[0] == 5
    np.testing.assert_allclose(states[1], states[0], rtol=0, atol=1e-6 * np.ptp(states[0]))


@pytest.mark.usefixtures("_shared_always")
def test_all_ranks_hear_that_there_is_no_steady_state(tmp_path: Path) -> None:
    heated = "model.sources=[{power: 1 W, material: steel}]"
    overrides = [
        *(f"output.directory={tmp_path}", "time={scheme: steady}", heated),
        "boundaries={'*': {type: neumann, flux: 0}}",
    ]

    def work(ranks: Communicator) -> str:
        config = read_config(BLOCK, name="block", base=tmp_path, overrides=overrides)
        with pytest.raises((ConfigError, ElsewhereError)) as caught:
            launch(config, ranks=ranks)
        assert ranks.ending
        return type(caught.value).__name__

    assert run_ranks(3, work) == ["ConfigError", "ElsewhereError", "ElsewhereError"]
