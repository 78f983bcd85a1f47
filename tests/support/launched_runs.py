"""A small run on ranks that are threads, and what it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.support.thread_ranks import run_ranks
from tetris_sim.config import Config, read_config
from tetris_sim.simulation.launch import launch
from tetris_sim.simulation.report import Report
from tetris_sim.simulation.resuming import Resume

PLATE = """
schema: 1
title: Plate on ranks
grid: {shape: [31, 23], size: [62 mm, 23 mm]}
model: {type: heat, material: copper}
initial: {type: expression, expression: "100*exp(-((x-0.02)**2+(y-0.01)**2)/1e-4)"}
boundaries: {"*": {type: neumann, flux: 100}, x-: {type: dirichlet, value: 50}, y: {type: periodic}}
time: {cfl: 0.15, steps: 60}
compute: {method: cpu.plain, threads: 1, tuning_budget: 0, time_block: 4}
output:
  pictures: false
  fields: {every: 15 steps}
  statistics: {every: 10 steps}
  probes: [{at: [10 mm, 20 mm], every: 10 steps, name: one}, {at: [61 mm, 22.9 mm], every: 7 steps, name: seam}]
checkpoint: {every: 20 steps, keep: 2}
"""
PICTURES = "output.pictures=true"
THIN = ("grid.shape=[200, 9]", "grid.size=[200 mm, 23 mm]")


def config_of(directory: Path, *overrides: str) -> Config:
    return read_config(
        PLATE,
        name="plate.yaml",
        base=directory.parent,
        overrides=[f"output.directory={directory}", *overrides],
    )


def launch_on(size: int, directory: Path, *overrides: str, resume: Resume = "never") -> Report:
    config = config_of(directory, *overrides)
    reports = run_ranks(size, lambda ranks: launch(config, resume=resume, ranks=ranks))
    assert len({(report.exit_code, report.step) for report in reports}) == 1
    return reports[0]


def contents(directory: Path) -> dict[str, Any]:
    """Everything that must not depend on the number of ranks; parts of checkpoints as the fields
    they show.
    """
    found: dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.suffix == ".h5" and "parts_" not in name:
            with h5py.File(path) as file:
                numbers: dict[str, bytes] = {}
                file.visititems(
                    lambda key, item, numbers=numbers: numbers.update(_numbers(key, item))
                )
                found |= {f"{name}:{key}": value for key, value in numbers.items()}
        elif path.suffix in (".csv", ".png", ".xdmf"):
            found[name] = path.read_bytes()
    return found


def _numbers(key: str, item: Any) -> dict[str, bytes]:
    is_numbers = isinstance(item, h5py.Dataset) and item.dtype.kind in "iuf"
    return {key: np.asarray(item[()]).tobytes()} if is_numbers else {}


def assert_same(directory: Path, expected: Path, *, pictures: bool = False) -> None:
    ours, theirs = contents(directory), contents(expected)
    if not pictures:  # they take longer than all the rest
        theirs = {name: content for name, content in theirs.items() if not name.endswith(".png")}
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []
    for needed in (
        "statistics.csv",
        "probes/seam.csv",
        "fields.xdmf",
        *(["overview.png"] if pictures else []),
    ):
        assert needed in ours
