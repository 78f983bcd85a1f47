"""gpu.dual_tessellation: fused steps as products with ConvStencil's weight matrices, on FP64
tensor cores.

Several steps are composed into one stencil (`Stencil.power`), which a kernel applies once:
`dual_tessellation_1d.cu`, `dual_tessellation.cu` (2D) and `dual_tessellation_3d.cu`. The same
computation in NumPy is in `tests/papers/convstencil/stencil2row.py`; the first part of this module
is the paper's performance model. The paper is Chen et al., "ConvStencil", PPoPP 2024.

Parameters:
    steps_per_block: steps composed into one stencil.
    warps: warps per block of threads.
    blocks: smallest number of blocks per multiprocessor: limits the registers per thread.
    rows: rows that a block of threads writes (2D), or that a warp has (3D).
    planes: planes that a block of threads writes (3D).
    stages: rows or planes in shared memory (2D and 3D); all but one are being prefetched.
    unroll: rows per turn of the loop (2D).
    cuda_points: planes of the stencil with so many taps or fewer run on CUDA cores (3D).
    tensor, padding, dirty_bits: 1 by default. 0 leaves out one of the paper's optimisations, for
        its figure 6: CUDA cores compute, shared memory has bank conflicts, matrix B is stored
        separately and every point is tested for where it belongs.

GStencil/s on one H200, November 2026, 10,240,000, 10240 x 10240 and 1024^3 points: heat-1d 11900
(76 steps), star-1d5p 5850 (38), heat-2d 700, box-2d9p 670 (4), star-2d9p 390, box-2d25p 331 (2),
star-2d13p 218, box-2d49p 188, heat-3d 443 (2), box-3d27p 218. Where several steps are composed the
GPU lowers its clock to stay below its power limit, and rates vary by 5 %; one step at a time is
limited by memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, braces, round_up
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.model.method import STEPS_PER_BLOCK, KnownGpu, Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencil import Stencil

# ConvStencil's performance model: the time that a stencil takes as matrix products, and the memory
# traffic.
#
# Equations, tables and sections are those of Chen et al., "ConvStencil: Transform Stencil
# Computation to Matrix Multiplication on Tensor Cores", PPoPP 2024. Where the paper divides integer
# quantities, the ceiling is taken (its own text has 2 ceil(n^2 / 4) products per dual tessellation
# where equation 13 prints a floor). n is the width of the kernel after fusion, 2 * radius + 1;
# times are in seconds, for one application to all points.
#
# The paper has the equations for 2D kernels up to 7 points wide. `predict_rate` extends them as
# sections 4.1 and 4.2 suggest: a 1D kernel has one row, a 3D one is a sum of 2D ones, and weight
# matrices of more than 8 columns take several products.

REAL_BYTES = 8  # float64
MMA_SHAPE = (8, 8, 4)  # m, n, k of WMMA's float64 product, the only one that the paper uses
GROUPS_PER_TILE = MMA_SHAPE[0]


@dataclass(frozen=True)
class TensorMachine:
    """The properties of a GPU in the model (table 1).

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


# Cycles of a tensor core per product of MMA_SHAPE: section 5.1 for sm_80, measured for sm_90. FP64
# tensor cores of other architectures have a few per cent of these speeds or have not been measured.
_CYCLES = {"sm_80": 16.0, "sm_90": 8.0}
_TENSOR_CORES, _SHARED_BYTES_PER_CYCLE = 4, 128  # of a multiprocessor


def tensor_machine(
    architecture: str, *, multiprocessors: int, clock: float, bandwidth: float | None
) -> TensorMachine | None:
    """The model's properties of a GPU from its driver's data; None if too little is known.

    >>> tensor_machine("sm_80", multiprocessors=108, clock=1.41e9, bandwidth=1935e9) == A100
    True

    Args:
        architecture: for example "sm_90".
        multiprocessors: number of multiprocessors.
        clock: highest clock of the cores [Hz].
        bandwidth: memory bandwidth [bytes/s]; None if unknown, and then it does not limit the rate.
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
        stencil: stencil of one step.
        steps: steps that are composed into one kernel.
        shape: points of the grid, in array order.
    """
    reach = [steps * radius for radius in stencil.radii]
    n, columns = 2 * reach[-1] + 1, shape[-1]
    kernel_rows = 2 * reach[-2] + 1 if len(reach) > 1 else 1
    planes = 2 * reach[-3] + 1 if len(reach) > 2 else 1

    # A tile is eight groups of n + 1 points; each takes two products per chunk of 4 taps and per 8
    # columns of a weight matrix.
    tiles = math.prod(shape[:-1]) * math.ceil(columns / (GROUPS_PER_TILE * (n + 1)))
    per_tile = 2 * math.ceil(n * kernel_rows / MMA_SHAPE[2]) * math.ceil((n + 1) / MMA_SHAPE[1])
    products = tiles * planes * per_tile

    # Global memory sees the grid twice; shared memory takes the matrices and gives each product its
    # A.
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
    """Equation 2: the larger of compute and memory time, since they overlap [s]."""
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
    """Equation 4: the larger of the times of global and shared memory, since they overlap [s]; all
    amounts in bytes.
    """
    return max(
        (read + written) / machine.global_bandwidth,
        (shared_written + shared_read) / machine.shared_bandwidth,
    )


def stencil2row_factor(n: int) -> float:
    """The size of matrices A and B together relative to the grid (table 3; equations 7, 8).

    >>> stencil2row_factor(7)
    1.75
    """
    return 2 * n / (n + 1)


_GROUP = 8  # neighbouring results: columns of a weight matrix
_WARP_POINTS = 16 * _GROUP
_SEGMENT = 64  # 1D: points of a row of the matrix
_CHUNK = 4  # depth of the smallest matrix instruction
_REAL_BYTES = 8
_SWITCHES = ("tensor", "padding", "dirty_bits")

# Largest radius after fusion. 2D and 3D keep weights and results in flight in registers.
_FARTHEST = {1: 76, 2: 4, 3: 2}
_REGISTERS = 190  # of 255, for weights and results in flight together


def _volume(warps: int, blocks: int, *, rows: int, stages: int, cuda_points: int) -> dict[str, int]:
    # Three prefetched planes are worth more than freedom from bank conflicts: padding 0 makes room
    # for them.
    shape = {"warps": warps, "blocks": blocks, "rows": rows, "planes": 64, "stages": stages}
    return {**shape, "cuda_points": cuda_points, "padding": 0}


# Parameters of a block by number of axes, the best guess first.
_SHAPES: Mapping[int, tuple[Mapping[str, int], ...]] = {
    1: ({"warps": 2, "blocks": 6}, {"warps": 1, "blocks": 12}, {"warps": 4, "blocks": 3}),
    2: (
        {"warps": 4, "blocks": 2, "rows": 130, "stages": 8, "unroll": 2},
        {"warps": 4, "blocks": 2, "rows": 64, "stages": 4, "unroll": 2},
        {"warps": 4, "blocks": 2, "rows": 128, "stages": 6, "unroll": 1},
    ),
    3: (
        _volume(8, 1, rows=4, stages=4, cuda_points=13),
        _volume(4, 2, rows=4, stages=4, cuda_points=5),
        _volume(4, 2, rows=4, stages=4, cuda_points=13),
        _volume(4, 2, rows=2, stages=3, cuda_points=5),
    ),
}

# A third block of threads on a multiprocessor, where stencils take few registers (a radius of 3).
_LIGHT_SHAPE = {"warps": 4, "blocks": 3, "rows": 131, "stages": 4, "unroll": 1}
_LIGHT_REGISTERS = 112


def dual_tessellation_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernels refuse a stencil, as a sentence for the user; None if they do not."""
    if np.dtype(dtype) != np.float64:
        return (
            "dual tessellation multiplies matrices of float64 on tensor cores, not of "
            f"{np.dtype(dtype)}"
        )
    if stencil.radius == 0:
        return "dual tessellation multiplies neighbours by matrices, and this stencil has none"
    if not _steps_to_try(stencil):
        return (
            f"dual tessellation keeps the weights of a step in registers: {stencil.n_points} "
            f"points of radius {stencil.radius} in {stencil.ndim}D are too many"
        )
    return None


def dual_tessellation_parameters(
    stencil: Stencil, dtype: npt.DTypeLike
) -> tuple[Mapping[str, int], ...]:
    """Parameters worth trying, the best guess first: the deepest fusion in every shape, then fewer
    steps.
    """
    if dual_tessellation_refusal(stencil, dtype) is not None:
        return ()
    first, *others = _SHAPES[stencil.ndim]
    steps = _steps_to_try(stencil)
    light = [
        n for n in steps if stencil.ndim == 2 and _registers(stencil.power(n)) <= _LIGHT_REGISTERS
    ]
    return (
        *({"steps_per_block": steps[0], **shape} for shape in (first, *others)),
        *({"steps_per_block": n, **_LIGHT_SHAPE} for n in light[:1]),
        *({"steps_per_block": n, **first} for n in steps[1:]),
    )


def dual_tessellation_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel that applies `steps_per_block` steps at once."""
    make = {1: _kernel_1d, 2: _kernel_2d, 3: _kernel_3d}[stencil.ndim]
    return make(
        stencil.power(parameters["steps_per_block"]), {**dict.fromkeys(_SWITCHES, 1), **parameters}
    )


def _steps_to_try(stencil: Stencil) -> tuple[int, ...]:
    """Numbers of steps worth trying, the best guess first; none if not even one step fits."""
    radius, farthest = stencil.radius, _FARTHEST[stencil.ndim]
    if not 0 < radius <= farthest:
        return ()
    if stencil.ndim == 1:
        return tuple(dict.fromkeys(max(1, reach // radius) for reach in (farthest, 44, 28, 12)))
    return tuple(
        n for n in range(farthest // radius, 0, -1) if _registers(stencil.power(n)) <= _REGISTERS
    )


def _registers(fused: Stencil) -> int:
    """Registers per thread for weight matrices and results in flight, 2D and 3D, in the first
    shape.
    """
    shape = _SHAPES[fused.ndim][0]
    reach, radius = _reach(fused), fused.radii[-1]
    # Planes with few taps run on CUDA cores and keep no matrices in registers.
    points = np.where(reach < 0, 0, 2 * reach + 1).sum(axis=-1)
    planes = reach[points > shape["cuda_points"]] if fused.ndim == 3 else reach
    fragments = sum(_used_chunks(int(far), radius) for far in planes.flat)
    in_flight = len(reach) * (shape["rows"] if fused.ndim == 3 else 1)
    return 2 * (fragments + 4 * in_flight)  # two registers per double


def _kernel_1d(fused: Stencil, parameters: Mapping[str, int]) -> FusedKernel:
    # The kernel dual_tessellation_1d.cu for a composed stencil.
    warps, dirty_bits = parameters["warps"], parameters["dirty_bits"]
    radius = fused.radius

    # A tile of 8 results reads an even number of chunks, of which the first begins at a multiple of
    # 4 points before the results.
    behind = round_up(round_up(radius, _CHUNK) + _GROUP + radius, 2 * _CHUNK) - _GROUP
    row = _SEGMENT if dirty_bits else _SEGMENT + behind
    pitch = round_up(row, 16) + _CHUNK if parameters["padding"] else row
    rows = round_up(16 * _SEGMENT + behind, _SEGMENT) // _SEGMENT if dirty_bits else 16

    return FusedKernel(
        source="dual_tessellation_1d.cu",
        entry="dual_tessellation_1d",
        defines=_defines(fused, parameters),
        depth=parameters["steps_per_block"],
        tile=(1, 1, warps * 16 * _SEGMENT),
        threads=32 * warps,
        shared_bytes=warps * rows * pitch * _REAL_BYTES,
        weights=fused.dense().reshape(-1),
    )


def _kernel_2d(fused: Stencil, parameters: Mapping[str, int]) -> FusedKernel:
    # The kernel dual_tessellation.cu for a composed stencil.
    warps, rows, stages = parameters["warps"], parameters["rows"], parameters["stages"]

    return FusedKernel(
        source="dual_tessellation.cu",
        entry="dual_tessellation",
        defines=_defines(fused, parameters)
        | {
            "TS_RADIUS_Y": fused.radii[0],
            "TS_REACH": braces(_reach(fused)),
            "TS_ROWS": rows,
            "TS_STAGES": stages,
            "TS_UNROLL": parameters["unroll"],
        },
        depth=parameters["steps_per_block"],
        tile=(1, rows, warps * _WARP_POINTS),
        threads=32 * warps,
        shared_bytes=warps * stages * _row_bytes(fused.radii[-1], parameters),
        weights=fused.dense().reshape(-1),
    )


def _kernel_3d(fused: Stencil, parameters: Mapping[str, int]) -> FusedKernel:
    # The kernel dual_tessellation_3d.cu for a composed stencil.
    warps, rows, stages = parameters["warps"], parameters["rows"], parameters["stages"]
    radius_z, radius_y, radius_x = fused.radii

    return FusedKernel(
        source="dual_tessellation_3d.cu",
        entry="dual_tessellation_3d",
        defines=_defines(fused, parameters)
        | {
            "TS_RADIUS_Y": radius_y,
            "TS_RADIUS_Z": radius_z,
            "TS_REACH": braces(_reach(fused)),
            "TS_ROWS": rows,
            "TS_PLANES": parameters["planes"],
            "TS_STAGES": stages,
            "TS_CUDA_POINTS": parameters["cuda_points"],
        },
        depth=parameters["steps_per_block"],
        tile=(parameters["planes"], warps * rows, _WARP_POINTS),
        threads=32 * warps,
        shared_bytes=stages * (warps * rows + 2 * radius_y) * _row_bytes(radius_x, parameters),
        weights=fused.dense().reshape(-1),
    )


def _defines(fused: Stencil, parameters: Mapping[str, int]) -> dict[str, str | int]:
    # Macros that the three kernels share.
    return {
        "TS_REAL": "double",
        "TS_N_WEIGHTS": fused.dense().size,
        "TS_RADIUS_X": fused.radii[-1],
        "TS_WARPS": parameters["warps"],
        "TS_MIN_BLOCKS": parameters["blocks"],
        **{f"TS_{name.upper()}": parameters[name] for name in _SWITCHES},
    }


def _reach(fused: Stencil) -> npt.NDArray[np.int64]:
    """The largest distance along x of the points in each row of a stencil, -1 where a row has none;
    ([2 rz + 1,] 2 ry + 1).
    """
    reach = np.full([2 * r + 1 for r in fused.radii[:-1]], -1)
    for offset in fused.offsets:
        row = tuple(o + r for o, r in zip(offset[:-1], fused.radii, strict=False))
        reach[row] = max(reach[row], abs(offset[-1]))
    return reach


def _lead(radius: int) -> int:
    """Points of matrix A before its group of results: an even number."""
    return round_up(radius, 2)


def _used_chunks(reach: int, radius: int) -> int:
    """Chunks of points that a row with taps up to `reach` multiplies (stencil2row.cuh:
    chunk_used).
    """
    if reach < 0:
        return 0
    first, last = _lead(radius) - reach, _lead(radius) + _GROUP - 1 + reach
    return last // _CHUNK - first // _CHUNK + 1


def _row_bytes(radius: int, parameters: Mapping[str, int]) -> int:
    """Shared memory for a row of the grid in a warp's layout [bytes] (stencil2row.cuh)."""
    lead, dirty_bits = _lead(radius), parameters["dirty_bits"]
    shift = round_up(lead, _CHUNK) - lead if dirty_bits else 0
    points = shift + _WARP_POINTS - _GROUP + round_up(lead + _GROUP + radius, _CHUNK)
    # Padding shifts consecutive groups to other banks.
    pitch = _GROUP + _CHUNK if parameters["padding"] else _GROUP
    return round_up(points, _GROUP) // _GROUP * pitch * _REAL_BYTES * (1 if dirty_bits else 2)


_FAMILY = Family(dual_tessellation_kernel, dual_tessellation_parameters, dual_tessellation_refusal)

METHOD = FusedMethod("gpu.dual_tessellation", dict.fromkeys((1, 2, 3), _FAMILY), explain_rate)
