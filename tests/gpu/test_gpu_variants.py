"""Kernels that only benchmarks ask for: whole steps agree with the reference, emulated and on a
GPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import mixed_boundaries, stencil_of
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.emulator.host_gpu import HostGpu
from tests.support.variants import NAMES, VARIANTS, agrees

QUICK = ("gpu.sparse, TF32", "layouts in FP64", "gpu.tcstencil, BF16")
EMULATED = [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in VARIANTS
]


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
@pytest.mark.parametrize("name", EMULATED)
def test_a_variant_agrees_with_the_reference(name: str) -> None:
    boundaries = [boundary for _, boundary in mixed_boundaries(2)]
    agrees(VARIANTS[name], stencil_of("box-2d9p"), boundaries[2], (41, 197), HostGpu())


@pytest.mark.gpu
@pytest.mark.parametrize("stencil", NAMES)
@pytest.mark.parametrize("name", VARIANTS)
def test_a_variant_agrees_with_the_reference_on_a_gpu(name: str, stencil: str, gpu: Any) -> None:
    for number, (_, boundary) in enumerate(mixed_boundaries(2)):
        agrees(
            VARIANTS[name], stencil_of(stencil), boundary, ((203, 331), (37, 1025))[number % 2], gpu
        )
