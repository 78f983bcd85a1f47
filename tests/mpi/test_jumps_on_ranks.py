"""A run that jumps on several ranks: one of them has the whole grid."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from tests.support.thread_ranks import run_ranks
from tetris_sim.config import Config, read_config
from tetris_sim.scheduler.comm.communicator import Communicator
from tetris_sim.simulation.launch import launch

PLATE = """
schema: 1
grid: {shape: [16, 12], size: [16 mm, 12 mm]}
model: {type: heat, material: copper}
initial: {type: expression, expression: "1e5*x*y + sin(3000*x)"}
boundaries: {"*": {type: neumann, flux: 100}, x-: {type: dirichlet, value: 50}, y: {type: periodic}}
time: {cfl: 0.2, steps: 90, scheme: spectral}
compute: {threads: 1}
output: {pictures: false, fields: {every: 30 steps}, statistics: {every: 20 steps}}
"""


def test_of_several_ranks_one_has_the_whole_grid(tmp_path: Path) -> None:
    def config(name: str) -> Config:
        directory = f"output.directory={tmp_path / name}"
        return read_config(PLATE, name="plate", base=tmp_path, overrides=[directory])

    def work(ranks: Communicator) -> int:
        return launch(config("two"), ranks=ranks).step

    assert run_ranks(2, work) == [90, 90]
    launch(config("one"))
    states = []
    for name in ("one", "two"):
        with h5py.File(tmp_path / name / "fields.h5") as file:
            states.append(np.asarray(file["temperature"]))
    np.testing.assert_array_equal(states[1], states[0])
