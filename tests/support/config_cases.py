"""A good configuration, and ways to read it and to change it, for the tests of configurations."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tetris_sim.config import Config, read_config
from tetris_sim.errors import ConfigMistakesError, ExitCode

GOOD = """\
grid: {shape: [12, 10], size: [15 mm, 12.5 mm]}
model: {type: heat, material: copper}
initial: {type: gaussian, amplitude: 100 K, sigma: 2 mm}
boundaries:
  "*": {type: neumann}
  x-: {type: dirichlet, value: 300 K}
time: {t_end: 1 ms}
"""


def read(text: str, *overrides: str, **environ: str) -> Config:
    base = Path("/nowhere")
    return read_config(
        textwrap.dedent(text), name="c.yaml", base=base, overrides=overrides, environ=environ
    )


def mistakes(text: str, *overrides: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigMistakesError) as caught:
        read(text, *overrides, **environ)
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    assert caught.value.exit_code == ExitCode.CONFIG
    return str(caught.value).splitlines()


def changed(line: str, new: str) -> str:
    """GOOD with the line that begins with `line` replaced."""
    lines = [new if each.startswith(line) else each for each in GOOD.splitlines()]
    assert lines != GOOD.splitlines()
    return "\n".join(lines) + "\n"


def long_plate(steps: int) -> str:
    """The text of a copper plate on cores, without a title, that is advanced so many steps."""
    return f"""
schema: 1
grid: {{shape: [64, 48], size: [15 mm, 15 mm]}}
model: {{type: heat, material: copper}}
initial: {{type: gaussian, amplitude: 100 K, sigma: 2 mm}}
boundaries: {{"*": {{type: neumann}}}}
time: {{dt: auto, steps: {steps}}}
compute: {{method: cpu.plain, threads: 1, tuning_budget: 0}}
output: {{directory: out, pictures: false}}
"""
