"""What a user would write by hand with Numba: the loops that our kernels are compared with.

Two forms of one sweep with `prange`: `indexed` writes u[i + di, j + dj], as the formula is printed;
`slices` names a shifted view per point of the stencil, so that the inner loop has one index (in 1D
of a piece of the array). The array carries its ghost ring; boundaries are not updated, which
flatters these loops. The threads of OpenMP spin between two sweeps as they do for any user: on
small grids beside another busy process that costs nearly everything (301 x 200 points on two cores:
4.9 GStencil/s alone, 0.007 beside one; Zen 4, November 2026).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.bench.problems import random_field
from tetris_sim.model.stencil import Offset, Stencil
from tetris_sim.support.cache import generated_module

Array = npt.NDArray[Any]
Form = Literal["slices", "indexed"]
FORMS: tuple[Form, ...] = ("indexed", "slices")
_NAMES = "ijk"
# points; from 1024 to one piece per thread the rate is the same (2.2 GStencil/s, Zen 4, November
# 2026)
_PIECE = 4096

# Each thread touches first what it will compute: prange deals the outermost axis out alike in every
# loop.
_FILL = """
@njit(parallel=True, cache=True)
def fill(u, values):
    for i in prange(u.shape[0]):
        u[i] = values[i]
"""


def prange_source(stencil: Stencil, form: Form) -> str:
    """The text of `sweep(u, v, w)`: v = one step of u on the interior, all of it written out."""
    body = _indexed(stencil) if form == "indexed" else _slices(stencil)
    head = ["from numba import njit, prange", "", ""]
    head += ["@njit(parallel=True, cache=True, fastmath={'contract'})", "def sweep(u, v, w):"]
    return "\n".join([*head, *body]) + "\n"


def _indexed(stencil: Stencil) -> list[str]:
    index = _NAMES[: stencil.ndim]
    lines = _loops(stencil, stencil.ndim)
    terms = [f"w[{k}] * u[{_place(offset, index)}]" for k, offset in enumerate(stencil.offsets)]
    return [*lines, f"{'    ' * (stencil.ndim + 1)}v[{', '.join(index)}] = {' + '.join(terms)}"]


def _slices(stencil: Stencil) -> list[str]:
    inner, r = stencil.ndim - 1, stencil.radii[-1]
    pad, index = "    " * max(2, stencil.ndim), _NAMES[:inner]
    if inner == 0:
        lines = [
            f"    end = u.shape[0] - {r}",
            f"    for piece in prange((end - {r} + {_PIECE - 1}) // {_PIECE}):",
        ]
        lines += [f"{pad}low = {r} + piece * {_PIECE}", f"{pad}high = min(low + {_PIECE}, end)"]
    else:
        lines = _loops(stencil, inner)
        lines.append(f"{pad}low, high = {r}, u.shape[{inner}] - {r}")

    # A view for each point of the stencil, so that the inner loop has one index for all.
    for k, offset in enumerate(stencil.offsets):
        along = f"low + {offset[-1]} : high + {offset[-1]}"
        lines.append(f"{pad}u{k} = u[{_join(_place(offset[:-1], index), along)}]")
    lines.append(f"{pad}o = v[{_join(', '.join(index), 'low : high')}]")
    lines.append(f"{pad}for x in range(o.size):")
    lines.append(
        f"{pad}    o[x] = {' + '.join(f'w[{k}] * u{k}[x]' for k in range(stencil.n_points))}"
    )
    return lines


def _loops(stencil: Stencil, n_axes: int) -> list[str]:
    """The loops over the first axes, the outermost in parallel."""
    return [
        f"{'    ' * (axis + 1)}for {_NAMES[axis]} in {'range' if axis else 'prange'}"
        f"({stencil.radii[axis]}, u.shape[{axis}] - {stencil.radii[axis]}):"
        for axis in range(n_axes)
    ]


def _place(offset: Offset, index: str) -> str:
    return ", ".join(f"{name} + {d}" for name, d in zip(index, offset, strict=True))


def _join(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


@functools.cache
def make_prange(stencil: Stencil, form: Form) -> Callable[[Array, Array, Array], None]:
    """The compiled sweep, on as many threads as `numba.set_num_threads` says."""
    return generated_module(prange_source(stencil, form), part="baselines").sweep  # type: ignore[no-any-return]


def padded_pair(stencil: Stencil, shape: tuple[int, ...], dtype: npt.DTypeLike) -> list[Array]:
    """Two equal arrays of random numbers with a ghost ring, each part touched first by the thread
    that computes it.
    """
    fill = generated_module("from numba import njit, prange\n\n" + _FILL, part="baselines").fill
    values = random_field(
        tuple(n + 2 * r for n, r in zip(shape, stencil.radii, strict=True)), dtype
    )
    pair = [np.empty(values.shape, dtype=dtype) for _ in range(2)]
    for array in pair:
        fill(array, values)
    return pair
