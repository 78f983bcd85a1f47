"""Where compiled kernels and measurements are kept between runs."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from pathlib import Path

import platformdirs


def caching() -> bool:
    """Whether anything may be kept: not if TETRIS_SIM_NO_CACHE is set to something but 0."""
    return os.environ.get("TETRIS_SIM_NO_CACHE", "0") in ("", "0")


def cache_directory(part: str) -> Path:
    """The folder for one kind of cached thing, made if it is missing.

    TETRIS_SIM_CACHE_DIR, or the user's cache folder; a folder that goes with the process if nothing may be kept or
    the place cannot be written to (a read-only home must not stop a run).

    Args:
        part: name of the kind, for example "kernels".
    """
    if caching():
        root = os.environ.get("TETRIS_SIM_CACHE_DIR") or platformdirs.user_cache_dir("tetris_sim")
        directory = Path(root) / part
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(directory, os.W_OK | os.X_OK):
            return directory
    directory = _temporary_directory() / part
    directory.mkdir(exist_ok=True)
    return directory


@functools.cache
def _temporary_directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tetris_sim_"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
