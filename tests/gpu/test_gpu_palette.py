"""Without a GPU: kernels of bodies of a few materials, whole launches on the host, against plain
NumPy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulator.emulation import COMPILER, NO_COMPILER
from emulator.launching import several_tiles
from emulator.palette_launching import check, make_body

from tetris_sim.gpu_kernels.stream.palette import palette_numbers
from tetris_sim.gpu_kernels.stream.palette_2d import (
    palette_2d_kernel,
    palette_2d_parameters,
    palette_2d_words,
)

from tetris_sim.gpu_kernels.stream.palette_3d import palette_3d_kernel, palette_3d_words

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

SMALL_2D = {
    "branch": {"steps_per_block": 3, "rows": 4, "columns": 6, "warps": 2, "blocks": 1, "edges": 1, "scheme": 0, "copies": 1},
    "registers": {"steps_per_block": 6, "rows": 3, "columns": 4, "warps": 2, "blocks": 1, "edges": 1, "scheme": 1, "copies": 1},
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize("sources", [False, True])
@pytest.mark.parametrize("grain", [0, 1, 90])
@pytest.mark.parametrize("scheme", ["branch", "registers"])
def test_a_palette_in_2d(
    scheme: str, grain: int, sources: bool, isotropic: bool, dtype: str
) -> None:
    if scheme == "registers" and sources:
        return
    parameters = SMALL_2D[scheme]
    body = make_body(2, 5, parameters["steps_per_block"], isotropic=isotropic, sources=sources)
    numbers = palette_numbers(body.conductance, body.rate, body.kind, dtype)
    kernel = palette_2d_kernel(body.kind, numbers, parameters)
    words = palette_2d_words(parameters, np.dtype(dtype).itemsize)
    counts = several_tiles(kernel, (0, 1, 1))
    check(kernel, words, body, counts, grain, margin=0, descending=False)
    check(kernel, words, body, (1, 5, 3), grain, margin=2, descending=True)


@pytest.mark.parametrize("copies", [1, 16])
@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize("sources", [False, True])
@pytest.mark.parametrize("grain", [0, 1, 30])
def test_a_palette_in_3d(grain: int, sources: bool, isotropic: bool, copies: int) -> None:
    parameters = {"steps_per_block": 2, "rows": 3, "warps": 2, "blocks": 1, "ahead": 2, "copies": copies}
    body = make_body(3, 5, parameters["steps_per_block"], isotropic=isotropic, sources=sources)
    numbers = palette_numbers(body.conductance, body.rate, body.kind, "float64")
    kernel = palette_3d_kernel(body.kind, numbers, parameters)
    words = palette_3d_words(parameters)
    counts = several_tiles(kernel, (1, 1, 1))
    check(kernel, words, body, counts, grain, margin=0, descending=False)
    check(kernel, words, body, (1, 2, 3), grain, margin=2, descending=True)
