"""What a user would write by hand with Numba: the loops that our kernels are compared with.

Two forms of one sweep with `prange` over the outermost axis: `slices` names a shifted view per point of the stencil, so
that the inner loop has one index; `indexed` writes u[i + di, j + dj], as the formula is printed. The array carries its
ghost ring; boundaries are not updated, which flatters these loops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.cache import generated_module
from tetris_sim.stencil import Stencil

Form = Literal["slices", "indexed"]
_NAMES = "ijk"


def prange_source(stencil: Stencil, form: Form) -> str:
    """The text of `sweep(u, v, w)`: v = one step of u on the interior, all of it written out."""
    ndim, radii = stencil.ndim, stencil.radii
    index = _NAMES[:ndim]
    lines = ["from numba import njit, prange", "", ""]
    lines += ["@njit(parallel=True, cache=True, fastmath={'contract'})", "def sweep(u, v, w):"]
    inner = ndim - 1
    for axis in range(ndim):
        if axis == inner and form == "slices" and ndim > 1:
            break
        loop = "prange" if axis == 0 else "range"
        lines.append(
            f"{'    ' * (axis + 1)}for {index[axis]} in {loop}({radii[axis]}, u.shape[{axis}] - {radii[axis]}):"
        )
    if form == "indexed" or ndim == 1:
        terms = [
            f"w[{k}] * u[{', '.join(f'{index[axis]} + {d}' for axis, d in enumerate(offset))}]"
            for k, offset in enumerate(stencil.offsets)
        ]
        lines.append(f"{'    ' * (ndim + 1)}v[{', '.join(index)}] = {' + '.join(terms)}")
        return "\n".join(lines) + "\n"
    pad, r = "    " * ndim, radii[inner]
    for k, offset in enumerate(stencil.offsets):
        outer = ", ".join(f"{index[axis]} + {offset[axis]}" for axis in range(inner))
        lines.append(f"{pad}u{k} = u[{outer}, {r + offset[inner]} : u.shape[{inner}] - {r - offset[inner]}]")
    lines.append(f"{pad}o = v[{', '.join(index[:inner])}, {r} : u.shape[{inner}] - {r}]")
    lines.append(f"{pad}for x in range(o.size):")
    lines.append(f"{pad}    o[x] = {' + '.join(f'w[{k}] * u{k}[x]' for k in range(stencil.n_points))}")
    return "\n".join(lines) + "\n"


@functools.cache
def make_prange(stencil: Stencil, form: Form) -> Callable[[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]], None]:
    """The compiled sweep; with `form` "slices" in 1D the array is cut into one piece per thread by prange itself."""
    source = prange_source(stencil, form)
    return generated_module(source, part="baselines").sweep  # type: ignore[no-any-return]


def padded_random(stencil: Stencil, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Random data with a ghost ring around it; never zeros, which some machines multiply faster."""
    padded = tuple(n + 2 * r for n, r in zip(shape, stencil.radii, strict=True))
    return np.random.default_rng(0).uniform(0.0, 1.0, padded).astype(dtype)
