"""Where compiled kernels are kept, and what is said if they cannot be."""

from __future__ import annotations

import logging

import pytest

from tetris_sim.cache import cache_directory, can_be_kept
from tetris_sim.commands.doctor import _whether_kept


def test_a_cache_that_cannot_be_written_to_is_said_once_and_shown_by_doctor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TETRIS_SIM_NO_CACHE", raising=False)
    monkeypatch.setenv("TETRIS_SIM_CACHE_DIR", "/dev/null/cache")
    with caplog.at_level(logging.WARNING, logger="tetris_sim"):
        folders = {cache_directory("kernels") for _ in range(3)}
    (folder,) = folders
    assert not can_be_kept("kernels")
    assert folder.is_dir()
    assert _whether_kept("kernels") == "not kept: the cache folder cannot be written to"
    assert [record.getMessage() for record in caplog.records] == [
        "/dev/null/cache cannot be written to, so what is compiled is not kept. Set "
        "TETRIS_SIM_CACHE_DIR."
    ]


def test_a_cache_that_is_kept_is_called_so(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.delenv("TETRIS_SIM_NO_CACHE", raising=False)
    monkeypatch.setenv("TETRIS_SIM_CACHE_DIR", str(tmp_path))
    cache_directory("kernels")
    assert _whether_kept("kernels") == "kept"
    monkeypatch.setenv("TETRIS_SIM_NO_CACHE", "1")
    assert _whether_kept("kernels") == "not kept: TETRIS_SIM_NO_CACHE"
