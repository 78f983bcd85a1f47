"""A run that solves on several ranks: one of them has the whole grid, and the plan says so."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from thread_ranks import run_ranks

from tetris_sim.config import Config, read_config
from tetris_sim.launch import launch
from tetris_sim.scheduler.comm.communicator import Communicator

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
        assert any("One of 2 ranks solves for the whole grid" in reason for reason in reasons)
    states = []
    for name in ("one", "two"):
        with h5py.File(tmp_path / name / "fields.h5") as file:
            states.append(np.asarray(file["temperature"]))
    np.testing.assert_array_equal(states[1], states[0])
