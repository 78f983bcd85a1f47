"""The optional dependencies do what they are for, as installed here."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_mpi_extra_brings_a_launcher_and_a_library_that_work_together(
    launcher: str, ranks: int
) -> None:
    code = (
        "from mpi4py.MPI import COMM_WORLD as w; sums = w.gather(w.allreduce(w.rank + 1)); w.rank "
        "or print(sums)"
    )
    done = subprocess.run(
        [launcher, "-n", str(ranks), sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == str([ranks * (ranks + 1) // 2] * ranks)


@pytest.mark.gpu
def test_the_gpu_extra_compiles_and_runs_a_kernel() -> None:
    import cupy

    code = 'extern "C" __global__ void twice(double* u) { u[threadIdx.x] *= 2.0; }'
    u = cupy.arange(7, dtype=cupy.float64)
    cupy.RawKernel(code, "twice")((1,), (7,), (u,))
    np.testing.assert_array_equal(u.get(), 2.0 * np.arange(7))
