"""A stage of shared memory is read while others arrive, so there must be two."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.emulator.half_emulation import weighted
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.tensor_cores.sparse import sparse_kernel, sparse_parameters
from tetris_sim.gpu_kernels.tensor_cores.tcstencil import tcstencil_kernel, tcstencil_parameters


@pytest.mark.parametrize(
    ("make", "propose"),
    [(sparse_kernel, sparse_parameters), (tcstencil_kernel, tcstencil_parameters)],
)
@pytest.mark.parametrize("name", ["heat-1d", "heat-2d", "heat-3d"])
def test_a_single_stage_does_not_compile(make, propose, name: str) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    stencil = weighted(name)
    kernel = make(stencil, np.float16, {**propose(stencil, np.float16)[0], "stages": 1})
    with pytest.raises(UnsupportedError, match="a stage is read while others arrive"):
        compile_source(kernel.source, kernel.defines, "sm_90")
