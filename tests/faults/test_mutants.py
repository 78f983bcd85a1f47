"""Some thousand inputs that nobody wrote: every reader reads them or refuses them with a sentence,
in bounded time. `mutants.py` tries a million.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import cast

import pytest

from tests.support import mutants
from tests.support.mutant_inputs import READERS, Samples, make_samples

CASES = {
    "expression": 3000,
    "tuning file": 2000,
    "checkpoint": 500,
    "configuration": 40,
    "initial field": 150,
    "field file": 100,
}


def test_every_kind_of_input_is_tried() -> None:
    assert CASES.keys() == mutants.SHARES.keys() == READERS.keys()
    assert sum(mutants.SHARES.values()) == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CASES)
def test_what_nobody_wrote_is_read_or_refused_soon(kind: str, tmp_path: Path) -> None:
    found = mutants.watch(kind, CASES[kind], 1, make_samples(tmp_path / "files"), longest=60.0)
    assert not found.failures, "\n".join(found.failures)
    assert found.cases == CASES[kind]
    assert found.longest < 10
    assert found.deadly <= CASES[kind] // 50  # by far the most are read, or refused for a reason


def test_an_input_that_is_not_refused_is_a_failure_with_its_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def bad(samples: Samples, rng: random.Random) -> None:
        if (case := next(cases)) == 2:
            raise KeyError("not ours")
        if case == 4:
            time.sleep(60)

    cases = iter(range(100))
    monkeypatch.setitem(READERS, "expression", bad)
    nothing = cast(Samples, None)
    found = mutants.watch("expression", 5, 3, nothing, longest=1.0)
    assert found.cases == 5
    assert [text.split(":")[0] for text in found.failures] == ["expression 3 2", "expression 3 4"]
    assert "not ours" in found.failures[0]
    assert "took more than" in found.failures[1]
