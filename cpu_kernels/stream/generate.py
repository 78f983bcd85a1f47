"""Make the compiled code of `cpu.stream` once and keep it on disk: a loop for each dtype, kernels
for each stencil.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.cpu_kernels.stream.kernels import KernelShape, kernel_source
from tetris_sim.model.stencil import Offset
from tetris_sim.support.cache import generated_module

_HERE = Path(__file__).parent
_CONSTANTS = "# [dtype and lanes]\n"
_MARK = "# [copied into each generated module from here on]\n"


def make_loop(ndim: int, dtype: np.dtype[Any], lanes: int) -> Callable[..., None]:
    """The compiled `advance` of `block.py`."""
    names = ("rows.py", "line.py" if ndim == 1 else "strips.py", "block.py")
    texts = [(_HERE / name).read_text() for name in names]
    head = texts[0].split(_CONSTANTS)[0] + "".join(
        _imports(text.split(_MARK)[0]) for text in texts[1:]
    )
    source = (
        head
        + f"REAL, LANES = types.{dtype.name}, {lanes}\n"
        + "\n\n".join(text.split(_MARK)[1] for text in texts)
    )
    return generated_module(source, part="kernels", salt=_callees()).advance  # type: ignore[no-any-return]


def make_kernels(
    offsets: tuple[Offset, ...], dtype: np.dtype[Any], lanes: int, shape: KernelShape
) -> dict[str, int]:
    """Addresses of the compiled kernels of a stencil, by their names in `numbers.py`."""
    module = generated_module(
        kernel_source(offsets, dtype.name, lanes, shape), part="kernels", salt=_callees()
    )
    names = ("kernel", "single_kernel", "line_kernel")
    return {name: getattr(module, name).address for name in names if hasattr(module, name)}


def _imports(head: str) -> str:
    """The imports of a template, without those from its neighbours: they are in the same module
    now.
    """
    statements = []
    for statement in head.split("\nfrom ")[1:]:
        module = statement.split(" import ")[0]
        if module != "__future__" and module.rpartition(".")[2] not in ("rows", "strips"):
            statements.append("from " + statement.strip() + "\n")
    return "".join(statements)


@functools.cache
def _callees() -> str:
    # Numba's cache knows when a function's own file changed, but not the files of what it calls.
    others = (
        _HERE.parent / "compiled" / name for name in ("intrinsics.py", "vectors.py", "barrier.py")
    )
    return "".join(path.read_text() for path in (*others, _HERE / "numbers.py"))
