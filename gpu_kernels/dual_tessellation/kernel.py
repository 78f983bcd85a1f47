"""dual_tessellation: fused steps as products with ConvStencil's weight matrices, on FP64 tensor
cores.

Several steps are composed into one stencil (`Stencil.power`), which a kernel applies once:
`dual_tessellation_1d.cu`, `dual_tessellation.cu` (2D) and `dual_tessellation_3d.cu`. What they
compute is written out in NumPy in `tests/papers/convstencil/stencil2row.py`; how fast it can be, in
`convstencil_model.py`. The paper is Chen et al., "ConvStencil", PPoPP 2024.

Parameters:
    steps_per_block: steps composed.
    warps: warps per block of threads.
    blocks: blocks that a multiprocessor holds at least: limits the registers per thread.
    rows: rows that a block of threads writes (2D), or that a warp has (3D).
    planes: planes that a block of threads writes (3D).
    stages: rows or planes in shared memory (2D and 3D); all but one are on their way.
    unroll: rows per turn of the loop (2D).
    cuda_points: planes of the stencil with so many taps or fewer go through CUDA cores (3D).
    tensor, padding, dirty_bits: 1 unless given. 0 leaves out one of the paper's optimisations, for
        its figure 6: CUDA cores compute, shared memory has bank conflicts, matrix B is kept apart
        and points are asked where they belong.

GStencil/s on one H200, November 2026, 10,240,000, 10240 x 10240 and 1024^3 points: heat-1d 11900
(76 steps), star-1d5p 5850 (38), heat-2d 700, box-2d9p 670 (4), star-2d9p 390, box-2d25p 331 (2),
star-2d13p 218, box-2d49p 188, heat-3d 443 (2), box-3d27p 218. Where several steps are composed the
GPU lowers its clock to stay below its power limit, and rates vary by 5 %; one step at a time is
limited by memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.dual_tessellation.convstencil_model import explain_rate
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, braces, round_up
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.model.stencil import Stencil

_GROUP = 8  # neighbouring results: columns of a weight matrix
_WARP_POINTS = 16 * _GROUP
_SEGMENT = 64  # 1D: points of a row of the matrix
_CHUNK = 4  # depth of the smallest matrix instruction
_REAL_BYTES = 8
_SWITCHES = ("tensor", "padding", "dirty_bits")

# Largest radius after fusion. 2D and 3D keep weights and results in flight in registers.
_FARTHEST = {1: 76, 2: 4, 3: 2}
_REGISTERS = 190  # that they may take together, of 255


def _volume(warps: int, blocks: int, *, rows: int, stages: int, cuda_points: int) -> dict[str, int]:
    # Three planes on their way pay more than the absence of bank conflicts: padding 0 makes room
    # for them.
    shape = {"warps": warps, "blocks": blocks, "rows": rows, "planes": 64, "stages": stages}
    return {**shape, "cuda_points": cuda_points, "padding": 0}


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
    """Why these kernels cannot do it, as a sentence for the user; None if they can."""
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
    """Parameters worth trying, the best guess first: the deepest in every shape, then fewer
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
    """Depths worth trying, the best guess first; none if not even one step fits."""
    radius, farthest = stencil.radius, _FARTHEST[stencil.ndim]
    if not 0 < radius <= farthest:
        return ()
    if stencil.ndim == 1:
        return tuple(dict.fromkeys(max(1, reach // radius) for reach in (farthest, 44, 28, 12)))
    return tuple(
        n for n in range(farthest // radius, 0, -1) if _registers(stencil.power(n)) <= _REGISTERS
    )


def _registers(fused: Stencil) -> int:
    """What weight matrices and results in flight take, 2D and 3D, in the first shape."""
    shape = _SHAPES[fused.ndim][0]
    reach, radius = _reach(fused), fused.radii[-1]
    points = np.where(reach < 0, 0, 2 * reach + 1).sum(axis=-1)
    planes = reach[points > shape["cuda_points"]] if fused.ndim == 3 else reach
    fragments = sum(_used_chunks(int(far), radius) for far in planes.flat)
    in_flight = len(reach) * (shape["rows"] if fused.ndim == 3 else 1)
    return 2 * (fragments + 4 * in_flight)  # a double takes two


def _kernel_1d(fused: Stencil, parameters: Mapping[str, int]) -> FusedKernel:
    warps, dirty_bits = parameters["warps"], parameters["dirty_bits"]
    radius = fused.radius

    # A tile of 8 results reads an even number of chunks, of which the first begins a multiple of 4
    # points in front.
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
    return {
        "TS_REAL": "double",
        "TS_N_WEIGHTS": fused.dense().size,
        "TS_RADIUS_X": fused.radii[-1],
        "TS_WARPS": parameters["warps"],
        "TS_MIN_BLOCKS": parameters["blocks"],
        **{f"TS_{name.upper()}": parameters[name] for name in _SWITCHES},
    }


def _reach(fused: Stencil) -> npt.NDArray[np.int64]:
    """How far the points of each row of a stencil go along x, -1 where there are none; ([2 rz + 1,]
    2 ry + 1).
    """
    reach = np.full([2 * r + 1 for r in fused.radii[:-1]], -1)
    for offset in fused.offsets:
        row = tuple(o + r for o, r in zip(offset[:-1], fused.radii, strict=False))
        reach[row] = max(reach[row], abs(offset[-1]))
    return reach


def _lead(radius: int) -> int:
    """Points in front of its group that matrix A begins with: an even number."""
    return round_up(radius, 2)


def _used_chunks(reach: int, radius: int) -> int:
    """Chunks of points that a row with taps as far as `reach` multiplies (stencil2row.cuh:
    chunk_used).
    """
    if reach < 0:
        return 0
    first, last = _lead(radius) - reach, _lead(radius) + _GROUP - 1 + reach
    return last // _CHUNK - first // _CHUNK + 1


def _row_bytes(radius: int, parameters: Mapping[str, int]) -> int:
    """Shared memory for a row of the grid as a warp needs it (stencil2row.cuh)."""
    lead, dirty_bits = _lead(radius), parameters["dirty_bits"]
    shift = round_up(lead, _CHUNK) - lead if dirty_bits else 0
    points = shift + _WARP_POINTS - _GROUP + round_up(lead + _GROUP + radius, _CHUNK)
    pitch = _GROUP + _CHUNK if parameters["padding"] else _GROUP
    return round_up(points, _GROUP) // _GROUP * pitch * _REAL_BYTES * (1 if dirty_bits else 2)


_FAMILY = Family(dual_tessellation_kernel, dual_tessellation_parameters, dual_tessellation_refusal)

METHOD = FusedMethod("gpu.dual_tessellation", dict.fromkeys((1, 2, 3), _FAMILY), explain_rate)
