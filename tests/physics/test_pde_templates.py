"""Every template of equations runs, on a small grid and for a few steps, and so does its restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tetris_sim.__main__ import main
from tetris_sim.commands.init import TEMPLATES, template_text
from tetris_sim.config import Config, read_config
from tetris_sim.errors import ExitCode
from tetris_sim.model import reference
from tetris_sim.model.slab import Slab

NAMES = [name for name in TEMPLATES if "type: pde" in template_text(name)]


def small(name: str, *more: str) -> Config:
    """A template on few points of the same distance, for a few steps."""
    whole = read_config(template_text(name), name=name, base=Path("/nowhere"), environ={})
    least = 12 if len(whole.grid.shape) > 1 else 40  # third derivatives of fourth order reach 16
    shape = [least if n > 2 else n for n in whole.grid.shape]
    spacing = whole.build().grid.spacing[::-1]
    overrides = [f"grid.shape={shape}", f"grid.spacing={[*spacing]}"]
    text = template_text(name)
    kept = [line for line in text.splitlines() if not line.startswith(("  size:", "  spacing:"))]
    text = "\n".join(kept).partition("\noutput:")[0].replace("  t_end:", "  steps: 6 # ")
    text = text.replace("at: [1203 m, 54 m]", "at: [53 m, 54 m]").replace("  align:", "  # align:")
    text = text.replace("cells: 20", "cells: 4")
    text = text.replace(", center: [1.2, 1.0]", "").replace(", center: [400 km, 500 km]", "")
    return read_config(
        text, name=name, base=Path("/nowhere"), overrides=[*overrides, *more], environ={}
    )


def test_there_are_templates_of_all_kinds() -> None:
    assert len(NAMES) == 15


@pytest.mark.parametrize("name", NAMES)
def test_templates_are_computed(name: str) -> None:
    problem = small(name).build()
    assert problem.equations is not None
    assert 0 < problem.dt <= problem.dt_limit

    before = problem.initial(Slab.whole(problem.grid))
    after = reference.advance(before, problem, problem.steps)
    assert np.isfinite(after).all()
    assert not np.array_equal(before, after)


def test_a_run_is_continued_to_the_same_bits(tmp_path: Path) -> None:
    """Leapfrog, whose first step differs from the others, with outputs of all fields."""
    text = """\
    grid: {shape: [20, 16]}
    model:
      type: pde
      constants: {c: 0.5}
      fields:
        w: {second_order: "c**2*laplace(w) - 0.1*w_velocity", initial: {type: gaussian, amplitude: 1, sigma: 2},
            boundaries: {x-: {type: dirichlet, value: 2}}}
        u: {second_order: laplace(w) - u, initial: {type: random}}
    boundaries: {"*": {type: neumann}}
    time: {steps: 12, dt: 0.1}
    compute: {method: cpu.plain, threads: 1, tuning_budget: 0}
    output:
      statistics: {every: 4 steps}
      fields: {every: 6 steps}
      probes: [{at: [0.0, 8.0], every: 6 steps}]
    """
    (tmp_path / "c.yaml").write_text(text)
    whole, parts = tmp_path / "whole", tmp_path / "parts"

    def run(verb: str, where: Any, *sets: str, code: int = ExitCode.OK) -> None:
        options = [part for it in sets for part in ("--set", it)]
        assert main([verb, str(where), *options]) == code

    run("run", tmp_path / "c.yaml", f"output.directory={whole}")
    run("run", tmp_path / "c.yaml", f"output.directory={parts}", "time.steps=5")
    run("restart", parts, "time.steps=12", "model.constants.c=0.6", code=ExitCode.CONFIG)
    run("restart", parts, "time.steps=12", "model.accuracy=4", code=ExitCode.CONFIG)
    run("restart", parts, "time.steps=12")

    fields = []
    for directory in (whole, parts):
        with h5py.File(directory / "fields" / "fields_000000000012.h5") as file:
            fields.append({name: file[name][...] for name in ("w", "w_velocity", "u")})
    for name, values in fields[0].items():
        np.testing.assert_array_equal(fields[1][name], values)
    probe = np.genfromtxt(whole / "probes" / "probe_1.csv", delimiter=",", names=True)
    assert probe.dtype.names is not None
    assert probe[next(it for it in probe.dtype.names if it.startswith("w"))][-1] == 2.0
    table = (whole / "statistics.csv").read_text()
    assert "w_velocity" in table
    assert {it.name for it in whole.glob("final*.png")} == {
        "final.png", "final_w_velocity.png", "final_u.png", "final_u_velocity.png"
    }  # fmt: skip
