"""Several at once: processes that compile into one empty cache, runs into one folder, simulations of
several threads. Each gets the right answer or a sentence.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tests.support.fault_runs import assert_same_results, command, tetris_here, write_plate
from tetris_sim.errors import ConfigError

PROCESSES = 8


def plate(**sections: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": [20, 14], "size": ["20 mm", "14 mm"]},
        "model": {"type": "heat", "material": "copper"},
        "initial": {"type": "gaussian", "amplitude": 100, "sigma": "4 mm"},
        "boundaries": {"*": {"type": "neumann"}},
        "time": {"dt": "0.5 ms", "steps": 40},
        "compute": {"method": "cpu.plain", "threads": 1},
    } | sections


@pytest.mark.slow
def test_processes_that_compile_into_one_empty_cache_give_the_answer_of_one(tmp_path: Path) -> None:
    environment = os.environ | {"TETRIS_SIM_CACHE_DIR": str(tmp_path / "cache")}
    configs = [
        write_plate(tmp_path / str(k), steps=40, often=20, checkpoint=20) for k in range(PROCESSES)
    ]
    started = [
        subprocess.Popen(
            command("run", it, "-q"), env=environment, stderr=subprocess.PIPE, text=True
        )
        for it in configs
    ]
    said = [process.communicate(timeout=600)[1] for process in started]
    assert [process.returncode for process in started] == [0] * PROCESSES, said
    assert not any("Traceback" in it or "cannot" in it for it in said), said

    alone = write_plate(tmp_path / "alone", steps=40, often=20, checkpoint=20)
    assert tetris_here("run", alone).returncode == 0
    for config in configs:
        assert_same_results(config.parent / "out", alone.parent / "out")
    # Each kernel was compiled once: one file of code for each index of Numba.
    kernels = tmp_path / "cache" / "kernels"
    codes = [path.name.rpartition(".")[0] for path in kernels.rglob("*.nbc")]
    indices = [path.name.rpartition(".")[0] for path in kernels.rglob("*.nbi")]
    assert len(codes) == len(set(codes)) >= len(indices) > 0
    assert not list(kernels.rglob("*.part"))


@pytest.mark.slow
def test_of_runs_into_one_folder_one_is_made_and_the_others_say_why_not(tmp_path: Path) -> None:
    config = write_plate(tmp_path, steps=4000, often=20, checkpoint=200, fields=2000)
    started = [
        subprocess.Popen(command("run", config, "-q"), stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = [process.communicate(timeout=600)[1] for process in started]
    codes = [process.returncode for process in started]
    assert sorted(codes) == [0, 2, 2], said
    for code, text in zip(codes, said, strict=True):
        assert (code == 0) == (not text), said
        assert code == 0 or "another run is writing" in text or "already holds" in text

    whole = write_plate(tmp_path / "whole", steps=4000, often=20, checkpoint=200, fields=2000)
    assert tetris_here("run", whole).returncode == 0
    assert_same_results(tmp_path / "out", whole.parent / "out")


def test_threads_with_simulations_of_their_own_have_the_bits_of_one_after_the_other() -> None:
    sections: list[dict[str, Any]] = [
        {},
        {"grid": {"shape": [17, 9], "size": ["17 mm", "9 mm"]}},
        {"initial": {"type": "expression", "expression": "1e3*x"}},
    ]
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        try:
            found[k] = ts.run(plate(**sections[k]), progress=False).field()
        except BaseException as error:  # noqa: BLE001  told below
            found[k] = error

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(sections))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive()
    for k, given in enumerate(sections):
        np.testing.assert_array_equal(
            found[k], ts.run(plate(**given), progress=False).field(), err_msg=str(found[k])
        )


def test_threads_of_one_folder_take_turns(tmp_path: Path) -> None:
    """The second is refused while the first is under way, and welcome afterwards."""
    said: list[str] = []

    def other() -> None:
        with pytest.raises(ConfigError) as refused:
            ts.run(plate(), tmp_path, resume="auto", progress=False)
        said.append(str(refused.value))

    def meanwhile(_: Any) -> None:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()

    with ts.simulate(plate(), tmp_path) as sim:
        sim.run(every="20 steps", call=meanwhile)
    assert len(said) == 2
    assert all("another run is writing" in it for it in said)
    assert ts.run(plate(), tmp_path, resume="auto", progress=False).report.step == 40


FAILING = """
import signal, sys, os
import tetris_sim as ts

def call(sim):
    if sim.step >= 12:
        {what}

try:
    with ts.simulate({plate!r}, {folder!r}) as sim:
        sim.run(every="4 steps", call=call)
        sim.run(every="4 steps", call=call)
except BaseException as error:
    print(type(error).__name__, flush=True)
"""


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("os.kill(os.getpid(), signal.SIGTERM)", ""),
    ],
)
def test_what_ends_a_call_leaves_a_state_to_go_on_from(
    what: str, name: str, tmp_path: Path
) -> None:
    script = FAILING.format(what=what, plate=plate(), folder=str(tmp_path / "out"))
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    assert done.stdout.strip() == name, done.stdout + done.stderr
    rest = ts.run(plate(), tmp_path / "out", resume="auto", progress=False)
    assert 12 <= rest.report.first_step < 40
    np.testing.assert_array_equal(rest.field(), ts.run(plate(), progress=False).field())
