"""Where compiled kernels are kept, and what is said if they cannot be."""

from __future__ import annotations

import logging
import os
import py_compile
import sys
from pathlib import Path

import pytest

from tetris_sim.commands.doctor import _whether_kept
from tetris_sim.support.files import cache_directory, generated_module, why_not_kept


def test_a_cache_that_cannot_be_written_to_is_said_once_and_shown_by_doctor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TETRIS_SIM_NO_CACHE", raising=False)
    monkeypatch.setenv("TETRIS_SIM_CACHE_DIR", "/dev/null/cache")
    with caplog.at_level(logging.WARNING, logger="tetris_sim"):
        folders = {cache_directory("kernels") for _ in range(3)}
    (folder,) = folders
    assert why_not_kept("kernels") == "/dev/null/cache cannot be written to"
    assert folder.is_dir()
    assert _whether_kept("kernels") == "not kept: /dev/null/cache cannot be written to"
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


@pytest.mark.parametrize("inner", ["kernels", "kernels/__pycache__"])
def test_a_folder_that_others_may_write_to_is_not_used(
    inner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("TETRIS_SIM_NO_CACHE", raising=False)
    monkeypatch.setenv("TETRIS_SIM_CACHE_DIR", str(tmp_path))
    assert cache_directory("kernels") == tmp_path / "kernels"
    assert (tmp_path / "kernels").stat().st_mode & 0o777 == 0o700

    (tmp_path / inner).mkdir(exist_ok=True)
    (tmp_path / inner).chmod(0o777)
    with caplog.at_level(logging.WARNING, logger="tetris_sim"):
        assert cache_directory("kernels") != tmp_path / "kernels"
    assert f"{tmp_path / inner} belongs to another user or may be written to" in caplog.text


def test_a_module_that_others_may_have_written_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TETRIS_SIM_NO_CACHE", raising=False)
    monkeypatch.setenv("TETRIS_SIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    cache_directory("kernels").chmod(0o755)
    source = f"ANSWER = {len(str(tmp_path))}\n"
    module = generated_module(source, part="kernels")
    (compiled,) = (tmp_path / "kernels" / "__pycache__").glob("*.pyc")
    path = Path(str(module.__file__))

    # Compiled code that says something else for the same source.
    path.write_text(source.replace("=", "=-"))
    py_compile.compile(str(path), cfile=str(compiled), doraise=True)
    planted = compiled.read_bytes()
    it = path.stat()
    path.write_text(source)
    os.utime(path, ns=(it.st_atime_ns, it.st_mtime_ns))
    compiled.write_bytes(planted[:12] + len(source).to_bytes(4, "little") + planted[16:])
    compiled.chmod(0o666)

    generated_module.cache_clear()
    assert len(str(tmp_path)) == generated_module(source, part="kernels").ANSWER


def test_a_link_to_a_file_elsewhere_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TETRIS_SIM_NO_CACHE", raising=False)
    monkeypatch.setenv("TETRIS_SIM_CACHE_DIR", str(tmp_path))
    source = f"PLACE = {str(tmp_path)!r}\n"
    path = Path(str(generated_module(source, part="kernels").__file__))
    path.unlink()
    (tmp_path / "theirs.py").write_text(source)
    path.symlink_to(tmp_path / "theirs.py")

    generated_module.cache_clear()
    generated_module(source, part="kernels")
    assert not path.is_symlink()
