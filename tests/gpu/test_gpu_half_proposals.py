"""What methods of float16 propose, they take: also for weights whose powers leave its range."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tetris_sim.gpu_kernels.tensor_cores.dual_tessellation import dual_tessellation_refusal
from tetris_sim.gpu_kernels.tensor_cores.sparse import sparse_kernel, sparse_parameters
from tetris_sim.gpu_kernels.tensor_cores.tcstencil import tcstencil_kernel, tcstencil_parameters
from tetris_sim.model.stencil import Stencil


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("growth", [0.3, 30.0, 255.99, 256.01, 6e4])
def test_no_proposal_is_refused(ndim: int, growth: float) -> None:
    offsets = [o for o in itertools.product((-1, 0, 1), repeat=ndim) if sum(map(abs, o)) <= 1]
    stencil = Stencil(tuple(offsets), tuple(np.full(len(offsets), growth / len(offsets))))
    for parameters in tcstencil_parameters(stencil, np.float16):
        assert tcstencil_kernel(stencil, np.float16, parameters).depth >= 1
    for parameters in sparse_parameters(stencil, np.float16):
        assert sparse_kernel(stencil, np.float16, parameters).depth >= 1


def test_a_single_point_is_not_called_too_many() -> None:
    reason = dual_tessellation_refusal(Stencil(((0, 0),), (0.5,)), np.float64)
    assert (
        reason == "dual tessellation multiplies neighbours by matrices, and this stencil has none"
    )
