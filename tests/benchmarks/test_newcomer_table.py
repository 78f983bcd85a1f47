"""What the newcomer's inputs compute is what the exact solutions say; the table counts what is typed."""

from __future__ import annotations

import ast
import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

import tetris_sim as ts
from benchmarks.newcomer_table import OURS, PEERS, TASKS, joined, lines_of
from tetris_sim.commands import VERBS
from tetris_sim.model import reference
from tetris_sim.model.slab import Slab

TASK = {task.name: task for task in TASKS}
# Largest differences of the range: twice what the spacing of the grid leaves; of `own` what the
# longest stable steps of euler leave, beside 2.7e-3 of the grid.
STEPPED = {"tensor": 8e-3, "initial": 2.2e-4, "own": 1.5e-2, "restart": 1.2e-4, "laser": 2.1e-2}
SOLVED = {"radiation": 1e-9, "steady": 2e-4, "fin": 5e-5}


@pytest.mark.parametrize("name", STEPPED)
def test_the_reference_answers_a_task_right(name: str) -> None:
    (source,) = (path for path in TASK[name].sources(OURS) if path.suffix == ".yaml")
    problem = ts.load_config(source).build()
    state = reference.advance(problem.initial(Slab.whole(problem.grid)), problem, problem.steps)
    assert TASK[name].error(state[0]) < STEPPED[name]


@pytest.mark.parametrize("name", SOLVED)
def test_a_steady_task_is_answered_right(name: str, tmp_path: Path) -> None:
    (source,) = TASK[name].sources(OURS)
    quick = {"compute.threads": 1, "output.pictures": False}
    result = ts.run(source, tmp_path / "found", changes=quick, progress=False)
    assert TASK[name].error(np.asarray(result.field(), np.float64)) < SOLVED[name]


def test_other_answers_are_not_taken_for_right() -> None:
    wanted = TASK["fin"].wanted()
    assert TASK["fin"].error(wanted) == 0
    assert TASK["fin"].error(wanted + 0.01 * np.ptp(wanted)) == pytest.approx(0.01)
    # Of the steady plate the series is for the upper three quarters.
    plate = TASK["steady"].wanted()
    whole = np.concatenate([np.full((25, 60), np.inf), plate])
    assert TASK["steady"].error(whole) == 0


def test_every_task_has_an_input_and_those_of_the_peers_are_python() -> None:
    assert len(TASKS) == 15
    for task in TASKS:
        assert task.sources(OURS), task.name
        for program in PEERS:
            for path in task.sources(program):
                ast.parse(path.read_text(encoding="utf-8"))
            assert bool(task.sources(program)) == (task.name != "verbs")
            assert len(task.commands(program, "python")) == len(task.sources(program)) * task.again


def test_all_verbs_are_all_verbs(monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = TASK["verbs"].sources(OURS)
    typed = [shlex.split(line)[1] for line in script.read_text(encoding="utf-8").splitlines()]
    assert set(typed) == set(VERBS)
    assert TASK["verbs"].commands(OURS, sys.executable)[0][1:4] == ["-m", "tetris_sim", "init"]


def test_lines_say_something_and_results_of_one_machine_are_joined(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text('"""Words."""\n\n# a remark\nx = 1\nprint(x)\n')
    assert lines_of([tmp_path / "a.py"]) == 2

    one = {"cpu": "Some CPU", "cores": 2, "date": "2026-01-02", "versions": {}}
    for name, cores in (("b", 2), ("c", 2), ("d", 4)):
        row = {"task": name, "program": OURS}
        (tmp_path / f"{name}.json").write_text(json.dumps({**one, "cores": cores, "rows": [row]}))
    runs = joined([tmp_path / f"{name}.json" for name in "bcd"])["runs"]
    assert [[row["task"] for row in run["rows"]] for run in runs.values()] == [["b", "c"], ["d"]]
