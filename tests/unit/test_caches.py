"""Cache sizes are read as Linux writes them, per core; where nothing is written they are the usual
ones.
"""

from __future__ import annotations

from pathlib import Path

from tetris_sim.cpu_kernels.common.caches import Caches, read_caches


def write_cache(folder: Path, index: int, *, level: str, kind: str, size: str, shared: str) -> None:
    entry = folder / f"index{index}"
    entry.mkdir()
    for name, text in (
        ("level", level),
        ("type", kind),
        ("size", size),
        ("shared_cpu_list", shared),
    ):
        (entry / name).write_text(text + "\n")


def test_a_shared_cache_is_divided_by_the_processors_that_share_it(tmp_path: Path) -> None:
    write_cache(tmp_path, 0, level="1", kind="Data", size="48K", shared="0")
    write_cache(tmp_path, 1, level="1", kind="Instruction", size="96K", shared="0")
    write_cache(tmp_path, 2, level="2", kind="Unified", size="2M", shared="0-1")
    write_cache(tmp_path, 3, level="3", kind="Unified", size="32768K", shared="0-3,8-11")
    assert read_caches(tmp_path) == Caches(l1=48 << 10, l2=1 << 20, l3=4 << 20)


def test_what_cannot_be_read_is_usual(tmp_path: Path) -> None:
    assert read_caches(tmp_path / "nothing") == Caches()
    write_cache(tmp_path, 0, level="2", kind="Unified", size="a lot", shared="0")
    write_cache(tmp_path, 1, level="1", kind="Data", size="64K", shared="0")
    assert read_caches(tmp_path) == Caches(l1=64 << 10)
