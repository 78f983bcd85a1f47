"""A small run that ended, whose files the tests of hostile files change."""

from __future__ import annotations

from pathlib import Path

import pytest
from fault_runs import tetris_here, write_plate


@pytest.fixture(scope="session")
def ended_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results directory of 20 steps; whoever changes a file makes a copy."""
    folder = tmp_path_factory.mktemp("ended_run")
    config = write_plate(folder, steps=20, often=10, checkpoint=10, fields=10)
    assert tetris_here("run", config).returncode == 0
    return folder / "out"
