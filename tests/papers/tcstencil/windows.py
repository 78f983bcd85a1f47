"""Windows times bands in NumPy: what tcstencil.cu computes, without a GPU."""

from __future__ import annotations

import math

import numpy as np

from tetris_sim.gpu_kernels.tensor_cores.tcstencil_windows import CHUNK, RESULTS, Array, Bands


def apply_bands(bands: Bands, u: Array) -> Array:
    """One application by products, on the points whose neighbours all lie in `u`.

    Args:
        bands: of a stencil.
        u: values along as many axes as the stencil has.

    Returns:
        The new values, smaller by what the bands reach: flight - 1 along the streamed axis, and so
        on; along x by `lead` on either side.
    """
    rows = u.reshape((1,) * (3 - u.ndim) + u.shape)
    if bands.ndim == 2:
        rows = rows.transpose(1, 0, 2)  # (streamed, across, x)
    n_streamed, n_across = rows.shape[0] - bands.flight + 1, rows.shape[1] - bands.across + 1
    columns = rows.shape[2] - 2 * bands.lead

    result = np.zeros((n_streamed, n_across, columns))
    for i, j in np.ndindex(bands.flight, bands.across):
        met = rows[i : i + n_streamed, j : j + n_across]
        for k, first in np.ndindex(bands.chunks, math.ceil(columns / RESULTS)):
            low = RESULTS * first + CHUNK * k
            window = np.zeros((*met.shape[:2], CHUNK))
            part = met[..., low : low + CHUNK]
            window[..., : part.shape[2]] = part  # behind it zeros, which the band's zeros meet
            made = window @ bands.matrices[i, j, k]
            end = RESULTS * (first + 1)
            result[..., RESULTS * first : end] += made[..., : columns - RESULTS * first]

    if bands.ndim == 2:
        result = result.transpose(1, 0, 2)
    return result.reshape(result.shape[3 - bands.ndim :])
