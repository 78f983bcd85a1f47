"""Where compiled kernels and measurements are kept between runs."""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import importlib.util
import logging
import os
import shutil
import sys
import tempfile
import threading
from pathlib import Path
from types import ModuleType

import platformdirs

from tetris_sim.files import atomic_text

log = logging.getLogger("tetris_sim")


def caching() -> bool:
    """Whether anything may be kept: not if TETRIS_SIM_NO_CACHE is set to something but 0."""
    return os.environ.get("TETRIS_SIM_NO_CACHE", "0") in ("", "0")


def cache_directory(part: str) -> Path:
    """The folder for one kind of cached thing, made if it is missing.

    TETRIS_SIM_CACHE_DIR, or the user's cache folder; a folder that goes with the process if nothing
    may be kept or the place cannot be written to (a read-only home must not stop a run).

    Args:
        part: name of the kind, for example "kernels".
    """
    if caching():
        directory = _lasting_directory(part)
        with contextlib.suppress(OSError):
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if can_be_kept(part):
            return directory
        _warn_once(directory)
    directory = _temporary_directory() / part
    directory.mkdir(exist_ok=True)
    return directory


def can_be_kept(part: str) -> bool:
    """Whether the folder that lasts can be written to."""
    return os.access(_lasting_directory(part), os.W_OK | os.X_OK)


def _lasting_directory(part: str) -> Path:
    return (
        Path(os.environ.get("TETRIS_SIM_CACHE_DIR") or platformdirs.user_cache_dir("tetris_sim"))
        / part
    )


_IMPORTING = threading.Lock()


@functools.cache
def generated_module(source: str, *, part: str, salt: str = "") -> ModuleType:
    """Import a text as a module in the cache folder, where Numba keeps what it compiles of it.

    Args:
        source: Python source; it is run.
        part: as for `cache_directory`.
        salt: whatever else the compiled code depends on, for example the source of functions that
            it calls.
    """
    with _IMPORTING:  # two threads may want the same kernel at once
        return _import_generated(source, part, salt)


def _import_generated(source: str, part: str, salt: str) -> ModuleType:
    digest = hashlib.sha256((source + salt).encode()).hexdigest()[:24]
    name = f"tetris_sim_{part}_{digest}"
    path = cache_directory(part) / f"{name}.py"
    if not path.exists() or path.read_text() != source:
        atomic_text(path, source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018  a path ending in .py always has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Numba looks the module of a cached function up by name
    spec.loader.exec_module(module)
    return module


@functools.cache
def _warn_once(directory: Path) -> None:
    log.warning(
        "%s cannot be written to, so what is compiled is not kept. Set TETRIS_SIM_CACHE_DIR.",
        directory.parent,
    )


@functools.cache
def _temporary_directory() -> Path:
    path = Path(tempfile.mkdtemp(prefix="tetris_sim_"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path
