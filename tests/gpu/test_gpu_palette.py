"""Without a GPU: kernels of bodies of a few materials, whole launches on the host, against plain
NumPy.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.launching import several_tiles
from tests.support.emulator.palette_launching import check, make_body
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.stream.palette import PaletteKind, palette_numbers
from tetris_sim.gpu_kernels.stream.palette_tiles import (
    PaletteScheme,
    PaletteTile,
    palette_2d_kernel,
    palette_2d_parameters,
    palette_2d_words,
    palette_3d_kernel,
    palette_3d_parameters,
    palette_3d_words,
)
from tetris_sim.model.method import Parameters

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
REGISTERS = 65536  # of a multiprocessor
FEW_BYTES = 80  # spilled in a proposal that is the fastest nevertheless

GRAINS = (0, 1, 60)  # one id, a random one at each point, boxes


def tile_2d(scheme: PaletteScheme, copies: int) -> Parameters:
    """A small one."""
    names = PaletteTile.__dataclass_fields__
    branch, registers = (3, 4, 6, 2, 1, 1), (6, 3, 4, 2, 1, 2)
    numbers = branch if scheme == PaletteScheme.BRANCH else registers
    return dict(zip(names, (*numbers, int(scheme), copies, 0), strict=True))


@emulated
@pytest.mark.parametrize(
    ("scheme", "copies", "isotropic", "sources", "dtype", "n_ids", "series"),
    [
        (PaletteScheme.BRANCH, 1, True, False, "float64", 5, False),
        (PaletteScheme.BRANCH, 1, True, True, "float64", 5, False),
        (PaletteScheme.BRANCH, 16, False, True, "float64", 5, False),
        (PaletteScheme.BRANCH, 1, False, False, "float32", 5, False),
        (PaletteScheme.REGISTERS, 1, False, False, "float64", 5, False),
        (PaletteScheme.REGISTERS, 16, True, False, "float32", 5, False),
        (PaletteScheme.BRANCH, 1, True, True, "float64", 17, True),
        (PaletteScheme.BRANCH, 1, False, False, "float32", 40, True),
        (PaletteScheme.BRANCH, 1, False, True, "float64", 33, False),
        (PaletteScheme.REGISTERS, 1, False, False, "float64", 256, True),
        (PaletteScheme.REGISTERS, 8, True, False, "float64", 64, True),
        (PaletteScheme.REGISTERS, 8, False, False, "float32", 20, True),
        (PaletteScheme.REGISTERS, 1, True, False, "float64", 100, False),
    ],
)
def test_a_palette_in_2d(
    scheme: PaletteScheme,
    copies: int,
    isotropic: bool,
    sources: bool,
    dtype: str,
    n_ids: int,
    series: bool,
) -> None:
    parameters = tile_2d(scheme, copies)
    body = make_body(
        2,
        n_ids,
        parameters["steps_per_block"],
        isotropic=isotropic,
        sources=sources,
        series=series,
    )
    assert body.kind.series == (series or n_ids <= 16)
    numbers = palette_numbers(body.conductance, body.rate, body.kind, dtype)
    kernel = palette_2d_kernel(body.kind, numbers, parameters)
    words = palette_2d_words(body.kind, parameters, np.dtype(dtype).itemsize)
    for grain in GRAINS:
        counts = several_tiles(kernel, (0, 1, 1))
        check(kernel, words, body, counts, grain, margin=0, descending=False)
        check(kernel, words, body, (1, 5, 3), grain, margin=2, descending=True)


@emulated
@pytest.mark.parametrize(
    ("copies", "isotropic", "sources", "dtype"),
    [
        (1, True, False, "float64"),
        (1, True, True, "float64"),
        (16, False, True, "float64"),
        (1, False, False, "float64"),
        (1, False, True, "float32"),
    ],
)
def test_a_palette_in_3d(copies: int, isotropic: bool, sources: bool, dtype: str) -> None:
    parameters = {"steps_per_block": 2, "rows": 3, "warps": 2, "blocks": 1, "ahead": 2}
    parameters["copies"] = copies
    body = make_body(3, 5, parameters["steps_per_block"], isotropic=isotropic, sources=sources)
    numbers = palette_numbers(body.conductance, body.rate, body.kind, dtype)
    kernel = palette_3d_kernel(body.kind, numbers, parameters)
    words = palette_3d_words(body.kind, parameters, numbers.dtype.itemsize)
    for grain in GRAINS:
        counts = several_tiles(kernel, (1, 1, 1))
        check(kernel, words, body, counts, grain, margin=0, descending=False)
        check(kernel, words, body, (1, 2, 3), grain, margin=2, descending=True)


def kernels(kind: PaletteKind, dtype: str) -> list[FusedKernel]:
    """Every proposal in 2D and 3D."""
    numbers = np.zeros(1, dtype)
    return [
        *(palette_2d_kernel(kind, numbers, it) for it in palette_2d_parameters(kind, dtype)),
        *(palette_3d_kernel(kind, numbers, it) for it in palette_3d_parameters(kind, dtype)),
    ]


def compile_and_count(kernel: FusedKernel, architecture: str) -> None:
    compiled = compile_source(kernel.source, kernel.defines, architecture)
    assert compiled.registers[kernel.entry] * kernel.threads <= REGISTERS
    assert compiled.spilled <= FEW_BYTES


def test_kernels_of_palettes_compile_and_spill_nothing() -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    proposed = kernels(PaletteKind(8, isotropic=True, sources=False), "float64")
    entries = [kernel.entry for kernel in proposed]
    for entry in ("palette_2d", "palette_2d_registers", "palette_3d"):
        compile_and_count(proposed[entries.index(entry)], "sm_90")
    kind = PaletteKind(8, isotropic=True, sources=False)
    many = kernels(PaletteKind(256, isotropic=True, sources=False), "float64")
    for kernel in many[:2]:
        compile_and_count(kernel, "sm_90")
    assert [kernel.entry for kernel in many[:2]] == ["palette_2d_registers", "palette_2d"]
    words = palette_2d_words(kind, tile_2d(PaletteScheme.BRANCH, 1), 8)
    assert compile_source(words.source, words.defines, "sm_80").spilled == 0


@pytest.mark.full
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("sources", [False, True])
@pytest.mark.parametrize("isotropic", [True, False])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_all_kernels_of_palettes_compile_and_spill_nothing(
    dtype: str, isotropic: bool, sources: bool, architecture: str
) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    for n_ids in (2, 8, 16, 64, 256):
        proposed = kernels(PaletteKind(n_ids, isotropic=isotropic, sources=sources), dtype)
        assert {it.source for it in proposed} >= {"palette_2d.cu"}
        for kernel in proposed:
            compile_and_count(kernel, architecture)
