"""Make the compiled time loop of one stencil shape and dtype, once, and keep it on disk.

The source of a template (`sweep.py`, `tile_sweep.py`) with the row update of the stencil in place
of its own becomes a module in the cache folder: Numba keeps compiled code on disk for functions
that live in real files only. Weights and boundary values are arguments, so a new time step compiles
nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from tetris_sim.model import grid
from tetris_sim.model.grid import OUTER, on_three
from tetris_sim.model.problem import arithmetic_of
from tetris_sim.model.stencil import Offset, chain_order
from tetris_sim.support.files import digest_of, generated_module

_ROOMS = Path(__file__).parents[1]
_BEGIN, _END = "# [the row update begins]\n", "# [the row update ends]\n"


def row_update(offsets: tuple[Offset, ...], dtype: np.dtype[Any]) -> str:
    """Source of `update_row` for a stencil: one multiplication, then one fused multiply-add per
    further point.

    The chain runs in `chain_order`, so every loop around it gives the same bits. Values of float16
    are computed in float32, and rounded before they are stored.
    """
    stored = "round_to_half(value)" if dtype == np.float16 else "value"
    lines = [f"REAL = types.{arithmetic_of(dtype).name}", "", ""]
    lines += [
        '@njit(nogil=True, cache=True, inline="always")',
        "def update_row(u, v, p, n, pitch0, pitch1, weights):",
    ]

    # Addresses and weights do not depend on x, so they are hoisted out of the loop.
    for k, offset in enumerate(offsets):
        i, j, x = on_three(offset, 0, OUTER)
        lines += [f"    w{k} = weights[{k}]", f"    p{k} = p + {i} * pitch0 + {j} * pitch1 + {x}"]
    first, *others = chain_order(offsets)
    lines += ["    for x in range(n):", f"        value = w{first} * load(u, p{first} + x)"]
    lines += [f"        value = fma(w{k}, load(u, p{k} + x), value)" for k in others]
    lines += [f"        store(v, p + x, {stored})", "", ""]
    return "\n".join(lines)


def make_advance(offsets: tuple[Offset, ...], dtype: np.dtype[Any]) -> Callable[..., None]:
    """The compiled `advance` of `sweep.py` for a stencil's offsets and dtype."""
    ghosts = splice("plain/ghosts.py", stored_source(dtype))
    part = f"from {ghosts.__name__} import fill_ghosts\n\n" + row_update(offsets, dtype)
    return splice("plain/sweep.py", part).advance  # type: ignore[no-any-return]


def stored_source(dtype: np.dtype[Any]) -> str:
    """Source of `as_stored` for the dtype of a state."""
    lines = [
        '@njit(nogil=True, cache=True, inline="always")',
        "def as_stored(value):",
        f"    return {'round_to_half(value)' if dtype == np.float16 else 'value'}",
        "",
        "",
    ]
    return "\n".join(lines)


def splice(template: str, part: str) -> ModuleType:
    """A file of cpu_kernels as a generated module, with a text in place of what stands between its
    two markers.
    """
    # Text replacement keeps the template a valid module, which tests and tools can import.
    head, rest = (_ROOMS / template).read_text().split(_BEGIN)
    _, tail = rest.split(_END)
    return compiled_module(head + part + tail)


def copied_module(name: str) -> ModuleType:
    """A file of cpu_kernels as a module of the cache folder; whoever installed this one may not be
    who runs it.
    """
    return compiled_module((_ROOMS / name).read_text())


def compiled_module(source: str) -> ModuleType:
    """A source that Numba compiles as a module of the cache folder, so that the compiled code is
    kept.
    """
    return generated_module(source, part="kernels", salt=sources_digest())


def digested_sources() -> list[Path]:
    """Every file that compiled code may depend on: all of cpu_kernels, and the model, whose order
    of a chain and placement of axes decide what the kernels' sources are.

    Whole folders, because a list of callees that is kept by hand misses the next one.
    """
    folders = (_ROOMS, Path(grid.__file__).parent)
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


@functools.cache
def sources_digest() -> str:
    """A digest of `digested_sources`, under which compiled code is kept.

    Numba's cache knows when a function's own file changed, but not the files of what it calls.
    """
    return digest_of(digested_sources())
