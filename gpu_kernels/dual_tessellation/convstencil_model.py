"""ConvStencil's performance model: how long a stencil takes as products of matrices, and how much
memory.

Equations, tables and sections are those of Chen et al., "ConvStencil: Transform Stencil Computation
to Matrix Multiplication on Tensor Cores", PPoPP 2024. Where the paper divides what must be whole,
the ceiling is taken (its own text has 2 ceil(n^2 / 4) products per dual tessellation where equation
13 prints a floor). n is the width of the kernel after fusion, 2 * radius + 1; times are in seconds
and for one application of it to all points.

The paper writes the equations for 2D kernels up to 7 points wide. `predict_rate` reads them for
others as sections 4.1 and 4.2 suggest: a 1D kernel has one row, a 3D one is a sum of 2D ones, and
weight matrices of more than 8 columns take several products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencil import Stencil

REAL_BYTES = 8  # float64
MMA_SHAPE = (8, 8, 4)  # m, n, k of WMMA's float64 product, the only one that the paper uses
GROUPS_PER_TILE = MMA_SHAPE[0]


@dataclass(frozen=True)
class TensorMachine:
    """What the model knows about a GPU (table 1).

    Attributes:
        frequency: clock of the cores [Hz].
        n_tensor_cores: tensor cores of the whole GPU.
        cycles_per_product: cycles that a product of MMA_SHAPE takes a tensor core.
        global_bandwidth: bandwidth of global memory [bytes/s].
        shared_bandwidth: bandwidth of the shared memory of all multiprocessors [bytes/s].
    """

    frequency: float
    n_tensor_cores: int
    cycles_per_product: float
    global_bandwidth: float
    shared_bandwidth: float


# Section 3.3 and 5.1. Shared memory: 108 multiprocessors give 128 bytes a cycle each (CUDA C++
# Programming Guide).
A100 = TensorMachine(1.41e9, 432, 16.0, 1935e9, 108 * 128 * 1.41e9)

# Measured on one H200 (132 multiprocessors), November 2026: 4.28 TB/s; m16n8k4 65.5 TFLOP/s at 1.98
# GHz, so a product of MMA_SHAPE, which is half of one of those, takes 8 cycles. With the paper's
# own shape it takes 16: 32.9 TFLOP/s.
H200 = TensorMachine(1.98e9, 528, 8.0, 4.28e12, 132 * 128 * 1.98e9)


# Cycles of a tensor core per product of MMA_SHAPE: section 5.1 for sm_80, measured for sm_90. Other
# architectures have FP64 tensor cores of a few per cent of these speeds, or nobody measured them.
_CYCLES = {"sm_80": 16.0, "sm_90": 8.0}
_TENSOR_CORES, _SHARED_BYTES_PER_CYCLE = 4, 128  # of a multiprocessor


def tensor_machine(
    architecture: str, *, multiprocessors: int, clock: float, bandwidth: float | None
) -> TensorMachine | None:
    """A GPU from what its driver says of it; None if too little is known.

    >>> tensor_machine("sm_80", multiprocessors=108, clock=1.41e9, bandwidth=1935e9) == A100
    True

    Args:
        architecture: for example "sm_90".
        multiprocessors: how many it has.
        clock: the highest of the cores [Hz].
        bandwidth: of its memory [bytes/s]; None if the driver does not say: then it limits nothing.
    """
    cycles = _CYCLES.get(architecture)
    if cycles is None or multiprocessors <= 0 or clock <= 0:
        return None
    shared = multiprocessors * _SHARED_BYTES_PER_CYCLE * clock
    return TensorMachine(
        clock, _TENSOR_CORES * multiprocessors, cycles, bandwidth or math.inf, shared
    )


def explain_rate(
    problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu
) -> str | None:
    """The predicted rate beside the measured one [points/s]; None for unknown GPUs."""
    machine = tensor_machine(
        gpu.architecture,
        multiprocessors=gpu.multiprocessors,
        clock=gpu.clock,
        bandwidth=gpu.bandwidth,
    )
    if machine is None:
        return None

    steps = max(1, parameters.get(STEPS_PER_BLOCK, 1))
    predicted = predict_rate(machine, problem.stencil, steps, problem.grid.shape)
    memory = (
        f"memory at {gpu.bandwidth / 1e12:.3g} TB/s"
        if gpu.bandwidth
        else "memory of unknown speed left out"
    )
    return (
        f"ConvStencil's performance model predicts {predicted / 1e9:.3g} GStencil/s for "
        f"gpu.dual_tessellation with {steps} steps per block ({gpu.multiprocessors} "
        f"multiprocessors at {gpu.clock / 1e9:.3g} GHz, {memory}); measured {rate / 1e9:.3g} "
        "GStencil/s."
    )


def predict_rate(
    machine: TensorMachine, stencil: Stencil, steps: int, shape: Sequence[int]
) -> float:
    """Point updates per second of dual tessellation, by equations 2 to 4, 7, 8 and 13.

    Args:
        machine: the GPU.
        stencil: of one step.
        steps: that are composed into one kernel.
        shape: points, array order.
    """
    reach = [steps * radius for radius in stencil.radii]
    n, columns = 2 * reach[-1] + 1, shape[-1]
    kernel_rows = 2 * reach[-2] + 1 if len(reach) > 1 else 1
    planes = 2 * reach[-3] + 1 if len(reach) > 2 else 1
    tiles = math.prod(shape[:-1]) * math.ceil(columns / (GROUPS_PER_TILE * (n + 1)))
    per_tile = 2 * math.ceil(n * kernel_rows / MMA_SHAPE[2]) * math.ceil((n + 1) / MMA_SHAPE[1])
    products = tiles * planes * per_tile

    grid = math.prod(shape) * REAL_BYTES
    memory = memory_time(
        machine,
        read=grid,
        written=grid,
        shared_written=stencil2row_factor(n) * grid,
        shared_read=products * MMA_SHAPE[0] * MMA_SHAPE[2] * REAL_BYTES,
    )
    return math.prod(shape) * steps / total_time(compute_time(machine, products), memory)


def total_time(compute: float, memory: float) -> float:
    """Equation 2: the slower of the two, for they overlap [s]."""
    return max(compute, memory)


def compute_time(machine: TensorMachine, products: float) -> float:
    """Equation 3 for one type of instruction [s]."""
    return products * machine.cycles_per_product / (machine.frequency * machine.n_tensor_cores)


def memory_time(
    machine: TensorMachine,
    *,
    read: float,
    written: float,
    shared_written: float,
    shared_read: float,
) -> float:
    """Equation 4: the slower of global and shared memory, for they overlap; all amounts in bytes
    [s].
    """
    return max(
        (read + written) / machine.global_bandwidth,
        (shared_written + shared_read) / machine.shared_bandwidth,
    )


def stencil2row_factor(n: int) -> float:
    """Size of matrices A and B together over that of the grid (table 3; equations 7, 8).

    >>> stencil2row_factor(7)
    1.75
    """
    return 2 * n / (n + 1)
