"""Without a GPU: kernels of bodies of a few materials, whole launches on the host, against plain
NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest
from emulator.emulation import COMPILER, NO_COMPILER
from emulator.launching import several_tiles
from emulator.palette_launching import check, make_body

from tetris_sim.gpu_kernels.stream.palette import palette_numbers
from tetris_sim.gpu_kernels.stream.palette_2d import (
    PaletteTile,
    Scheme,
    palette_2d_kernel,
    palette_2d_words,
)
from tetris_sim.gpu_kernels.stream.palette_3d import palette_3d_kernel, palette_3d_words
from tetris_sim.method import Parameters

pytestmark = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

GRAINS = (0, 1, 60)  # one id, a random one at each point, boxes


def tile_2d(scheme: Scheme, copies: int) -> Parameters:
    """A small one."""
    names = PaletteTile.__dataclass_fields__
    branch, registers = (3, 4, 6, 2, 1, 1), (6, 3, 4, 2, 1, 2)
    numbers = branch if scheme == Scheme.BRANCH else registers
    return dict(zip(names, (*numbers, int(scheme), copies, 0), strict=True))


@pytest.mark.parametrize(
    ("scheme", "copies", "isotropic", "sources", "dtype"),
    [
        (Scheme.BRANCH, 1, True, False, "float64"),
        (Scheme.BRANCH, 1, True, True, "float64"),
        (Scheme.BRANCH, 16, False, True, "float64"),
        (Scheme.BRANCH, 1, False, False, "float32"),
        (Scheme.REGISTERS, 1, False, False, "float64"),
        (Scheme.REGISTERS, 16, True, False, "float32"),
    ],
)
def test_a_palette_in_2d(
    scheme: Scheme, copies: int, isotropic: bool, sources: bool, dtype: str
) -> None:
    parameters = tile_2d(scheme, copies)
    body = make_body(2, 5, parameters["steps_per_block"], isotropic=isotropic, sources=sources)
    numbers = palette_numbers(body.conductance, body.rate, body.kind, dtype)
    kernel = palette_2d_kernel(body.kind, numbers, parameters)
    words = palette_2d_words(parameters, np.dtype(dtype).itemsize)
    for grain in GRAINS:
        counts = several_tiles(kernel, (0, 1, 1))
        check(kernel, words, body, counts, grain, margin=0, descending=False)
        check(kernel, words, body, (1, 5, 3), grain, margin=2, descending=True)


@pytest.mark.parametrize(
    ("copies", "isotropic", "sources"),
    [(1, True, False), (1, True, True), (16, False, True), (1, False, False)],
)
def test_a_palette_in_3d(copies: int, isotropic: bool, sources: bool) -> None:
    parameters = {"steps_per_block": 2, "rows": 3, "warps": 2, "blocks": 1, "ahead": 2}
    parameters["copies"] = copies
    body = make_body(3, 5, parameters["steps_per_block"], isotropic=isotropic, sources=sources)
    numbers = palette_numbers(body.conductance, body.rate, body.kind, "float64")
    kernel = palette_3d_kernel(body.kind, numbers, parameters)
    words = palette_3d_words(parameters)
    for grain in GRAINS:
        counts = several_tiles(kernel, (1, 1, 1))
        check(kernel, words, body, counts, grain, margin=0, descending=False)
        check(kernel, words, body, (1, 2, 3), grain, margin=2, descending=True)
