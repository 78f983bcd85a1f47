"""A process does not age: many simulations, and many outputs of one, hold what a few do.

`long_life.py` makes a thousand and more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.long_life import Age, grown

SCRIPT = Path(__file__).resolve().parents[1] / "support" / "long_life.py"
MIB = 1024


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Age]]:
    """What a process of its own holds, so that no other test adds to it."""
    path = tmp_path_factory.mktemp("long_life") / "told.json"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "40", "--outputs", "100", "--json", str(path)],
        # What glibc keeps for threads, or does not give back at once, is no growth.
        env=os.environ | {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "65536"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(path.read_text())
    return {name: [Age(**it) for it in found[name]] for name in ("simulations", "outputs")}


def test_many_simulations_hold_what_a_few_do(told: dict[str, list[Age]]) -> None:
    ages = told["simulations"]
    assert [it.count for it in ages] == list(range(4, 41, 4))
    assert grown(ages[3:], "memory_kib") < 4 * MIB  # 24 more
    assert {it.descriptors for it in ages[1:]} == {ages[1].descriptors}
    assert {it.threads for it in ages[1:]} == {ages[1].threads}


def test_many_outputs_and_checkpoints_hold_what_a_few_do(told: dict[str, list[Age]]) -> None:
    ages = told["outputs"]
    assert [it.count for it in ages] == list(range(10, 101, 10))
    # With the last output the run ends, which loads what draws its pictures.
    assert grown(ages[3:-1], "memory_kib") < 4 * MIB
    # The watcher loads while the first are written; what it draws grows to forty characters.
    assert grown(ages[5:], "watcher_kib") < 12 * MIB
    assert max(it.descriptors for it in ages) <= min(it.descriptors for it in ages) + 4
    # Threads that write come and go; one that stayed after each output would make a hundred.
    assert max(it.threads for it in ages) <= 20


def test_what_grows_is_seen() -> None:
    ages = [Age(k, 1.0, 1000 * k, 5, 3) for k in range(1, 11)]
    assert grown(ages, "memory_kib") == 9000
    assert grown(ages, "descriptors") == 0
