"""The campaign of formulas judges rightly, and tells what it cannot judge with its number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.physics import pde_fuzz_many as campaign
from tests.physics import test_pde_fuzz


@pytest.fixture
def workers() -> Iterator[dict[str, Any]]:
    found = campaign.find_workers("none")
    yield found
    found["cpu"].close()


def test_a_remainder_by_noise_is_judged_by_operations_rounded_once(workers: dict[str, Any]) -> None:
    # The fourth difference of a line: 0 for the oracle, whose remainder is no number then.
    with np.errstate(all="ignore"):
        tally = campaign.attempt(range(313635, 313636), workers)
    assert not tally.failures
    assert tally.counts["decided by rounding"] == 1


@pytest.mark.parametrize("name", ["inexact", "difference"])
def test_what_raises_is_a_failure_with_its_number(
    name: str, workers: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bool:
        raise OverflowError("cannot convert float infinity to integer")

    monkeypatch.setattr(test_pde_fuzz if name == "inexact" else campaign, name, fail)
    with np.errstate(all="ignore"):
        (failure,) = campaign.attempt(range(313635, 313636), workers).failures
    assert failure.startswith("313635")
    assert "OverflowError" in failure
