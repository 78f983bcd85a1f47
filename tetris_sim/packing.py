"""Packing: the ways in which values in HDF5 files are made smaller without losing a bit.

What HDF5 knows by itself needs nothing. LZ4 and Zstd come with hdf5plugin, for who writes and for
who reads (docs/file-format.md).
"""

from __future__ import annotations

import functools
from typing import Any

from tetris_sim.errors import UnsupportedError

# Filters whose output is what went in or an error: deflate, shuffle, fletcher32, LZ4, Zstd. Blosc,
# which is faster, ends the process with one damaged chunk or another.
TRUSTED = frozenset({1, 2, 3, 32004, 32015})
_INSTALL = "pip install 'tetris-sim[compression]'"


def packed(compression: str, chunk: tuple[int, ...]) -> dict[str, Any]:
    """Options of a dataset whose values are packed in chunks of this shape.

    Args:
        compression: "gzip", "lz4" or "zstd".
        chunk: points per axis.

    Raises:
        UnsupportedError: hdf5plugin is needed, and not installed.
    """
    options: dict[str, Any] = {"chunks": chunk, "shuffle": True}
    if compression == "gzip":
        # Level 1: nearly the size of level 9 on smooth fields in a fraction of the time; the
        # shuffle does the work.
        return options | {"compression": "gzip", "compression_opts": 1}
    refuse_missing(compression)
    import hdf5plugin

    packer: Any = hdf5plugin.LZ4() if compression == "lz4" else hdf5plugin.Zstd(clevel=1)
    return options | dict(packer)


def refuse_missing(compression: str) -> None:
    """Raise an `UnsupportedError` if hdf5plugin is needed, and not installed."""
    if compression in ("lz4", "zstd") and not load_filters():
        msg = f"compression: {compression} needs hdf5plugin, which is not installed: {_INSTALL}"
        raise UnsupportedError(msg)


@functools.cache
def load_filters() -> bool:
    """Let HDF5 know the filters of hdf5plugin, if it is installed; takes 0.1 s."""
    try:
        import hdf5plugin  # noqa: F401  which tells HDF5
    except ImportError:
        return False
    return True


def unknown_filter(number: int) -> str:
    """What is to be said of values that a filter has packed that HDF5 does not know here."""
    return f"its values are packed by the HDF5 filter {number}, which is not known here: {_INSTALL}"
