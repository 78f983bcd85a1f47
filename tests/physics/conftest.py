"""What physics tests share: methods are taken by their best guess, as is their answer; how fast they
are is measured in tests of the tuner.
"""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tetris_sim.schema._TUNING_SECONDS", 0.0)
