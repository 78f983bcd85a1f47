"""gpu.tcstencil: fused steps as products of windows with bands (`tcstencil_windows.py`), FP16 in
memory.

Several steps are composed into one stencil (`Stencil.power`), which `tcstencil.cu` applies once.
Along x, radius 4 costs as many products as any smaller one, 2 r + 1 per 128 results, which tensor
cores make while points are copied: steps within that radius cost little more than one.

Parameters:
    steps_per_block: steps composed into one stencil.
    warps, warps_x: warps per block of threads, and how many of them lie side by side along x (3D;
        else all).
    units: tiles of 128 results that a warp makes at a time, side by side along x, in 3D along y.
    blocks: smallest number of blocks per multiprocessor (limits registers).
    steps: steps of the stream per stage of shared memory; one in 3D.
    stages: stages in shared memory; all but one are being prefetched.
    sums: bits of the sums, 32 by default, or 16.
    mirrored: 0 by default; 1 (2D): rows at the same distance share a product, r + 1 of them, as in
        the paper.
    format: format of the products: 0 (FP16, default), 1 (BF16), 2 (TF32). BF16 and TF32 need
        float32 in memory, which FP16 can be made of as well.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import (
    FLOAT16,
    FORMATS,
    FusedKernel,
    SharedTile,
    StreamedAxis,
    blocks_beside,
    braces,
    half_refusal,
    operand_weights,
    refuse_bad_rounding,
    round_up,
    rounded,
    rounds_well,
)
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.gpu_kernels.tensor_cores.tcstencil_windows import (
    CHUNK,
    RESULTS,
    WINDOWS,
    Bands,
    Words,
    matrix_registers,
    mirror_rows,
    window_bands,
    window_lead,
    windows_rate,
    without_zeros,
)
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.stencil import Stencil

# Stars as in the paper, P S + S Q: the kernel tcstencil_star.cu, one step of a 2D star of radius up
# to 4.
#
# Its parameters are steps_per_block = 1; star = 1, which distinguishes it from tcstencil.cu; warps,
# blocks and stages as there, with three stages or more; units, the tiles of 16 x 16 results that a
# warp makes side by side.

FARTHEST = 4  # largest radius: windows of 16 points have 8 results
TILE = 16  # rows of results, those of an FP16 product
_LEAD = 8  # points before the first result: a vector of 16 bytes

Array = npt.NDArray[np.float64]


def suits(stencil: Stencil) -> bool:
    """Whether the star kernel can compute a stencil: all points lie on the axes, some of them on x
    beside the centre.
    """
    if stencil.ndim != 2 or not 0 < stencil.radius <= FARTHEST or stencil.radii[1] == 0:
        return False
    return stencil.is_star


def star_parameters(stencil: Stencil) -> tuple[Mapping[str, int], ...]:
    """Candidate parameters of the star kernel; none where it does not apply."""
    shape = {"steps_per_block": 1, "star": 1, "warps": 4, "units": 4, "stages": 4, "blocks": 5}
    return (shape,) if suits(stencil) and rounds_well(stencil, 1) else ()


def star_bands(stencil: Stencil) -> tuple[Array, Array]:
    """The bands P, (16, 24), over the rows from ry above the results on, and Q, (16, 8), over a
    window.
    """
    box, (ry, rx) = stencil.dense(), stencil.radii
    along_y, along_x = np.zeros((TILE, TILE + 8)), np.zeros((TILE, 8))
    for i in range(TILE):
        along_y[i, i : i + 2 * ry + 1] = box[:, rx]
    row = box[ry].copy()
    row[rx] = 0.0  # the point in the middle is in the column
    for n in range(8):
        along_x[FARTHEST - rx + n : FARTHEST + rx + n + 1, n] = row
    return along_y, along_x


def star_registers(along_y: Array, along_x: Array) -> Words:
    """`struct Weights` of tcstencil_star.cu, (8, 32): P as A of one product of depth 16 and one of
    depth 8, then Q as B.

    Lane 4 g + t holds rows g and g + 8 of A, columns 2 t and 2 t + 1 of each eight.
    """
    bits = along_y.astype(np.float16).view(np.uint16).astype(np.uint32)
    bits = bits.reshape(2, 8, 3, 4, 2)  # half, g, eight, t
    p = (bits[..., 0] | bits[..., 1] << np.uint32(16)).transpose(2, 0, 1, 3).reshape(6, 32)
    q = matrix_registers(along_x[None], FLOAT16, run=2)[0].T
    return np.ascontiguousarray(np.concatenate([p, q]))


def star_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel for one step of a star.

    Args:
        stencil: a star.
        dtype: float16.
        parameters: one of `star_parameters`.

    Raises:
        ValueError: the kernel does not apply.
    """
    if not suits(stencil) or parameters["steps_per_block"] != 1 or np.dtype(dtype) != np.float16:
        msg = f"two products make one step of a 2D star of radius up to {FARTHEST}, in float16"
        raise ValueError(msg)

    warps, units, stages = parameters["warps"], parameters["units"], parameters["stages"]
    width = TILE * warps * units
    # Two leads for windows; with a third, rows are an odd multiple of 16 bytes, which avoids bank
    # conflicts.
    row_points = width + 3 * _LEAD
    numbers = star_registers(*star_bands(operand_weights(stencil, FLOAT16)))
    reach = (0, *stencil.radii)

    return FusedKernel(
        source="tcstencil_star.cu",
        entry="tcstencil_star",
        defines={
            "TS_REAL": "Half",
            "TS_RADIUS_Y": stencil.radii[0],
            "TS_WARPS": warps,
            "TS_MIN_BLOCKS": parameters["blocks"],
            "TS_UNITS": units,
            "TS_STAGES": stages,
            "TS_LEAD": _LEAD,
            "TS_ROW_POINTS": row_points,
            "TS_REACH": braces(reach),
        },
        depth=1,
        tile=(1, TILE, width),
        threads=32 * warps,
        shared_bytes=2 * stages * TILE * row_points,
        weights=numbers,
        stream=StreamedAxis(axis=1, repeated=2 * stencil.radii[0], unit=TILE),
        by_pointer=True,
    )


# The general kernel, tcstencil.cu: any stencil, any number of steps that fits.
_TILE = RESULTS * WINDOWS
_REACHES = {1: (108, 60, 28, 12, 4), 2: (4, 8), 3: (4,)}  # radii after fusion worth trying
_FARTHEST = {1: 108, 2: 12, 3: 8}  # largest radius after fusion
_WIDE = 4  # radius after fusion up to which a warp may have two tiles in 2D
_REGISTERS = 200  # of 255, for matrices and results in flight
_OTHERS = 56  # registers for everything else


def tcstencil_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernel refuses a stencil, as a sentence for the user; None if it does not."""
    return half_refusal(stencil, dtype, _steps_to_try, "the matrices")


def tcstencil_parameters(stencil: Stencil, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Parameters worth trying, the best guess first; none where `tcstencil_refusal` refuses."""
    if tcstencil_refusal(stencil, dtype) is not None:
        return ()
    steps = _steps_to_try(stencil)
    first = [_shape(stencil, n) for n in steps]

    # Variations of the best guess.
    others = [{**first[0], "stages": 4}, {**first[0], "stages": 5 - first[0]["stages"]}]
    if stencil.ndim == 3:
        others += [{**first[0], "warps": 8}]
    else:  # two tiles of deep steps side by side do not fit into registers
        shallow = (
            shape
            for shape in first
            if stencil.ndim == 1 or shape["steps_per_block"] * stencil.radius <= _WIDE
        )
        others += [{**shape, "units": 2} for shape in itertools.islice(shallow, 1)]

    windows = ({**shape, "blocks": _blocks(stencil, shape)} for shape in (*first, *others))
    return (*windows, *star_parameters(stencil))


def tcstencil_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel that applies `steps_per_block` steps at once.

    Args:
        stencil: stencil of one step.
        dtype: float16; float32 for the formats that only benchmarks use.
        parameters: one of `tcstencil_parameters`, or others as in the module's docstring.

    Raises:
        ValueError: the parameters contradict each other or the dtype, or FP16 does not have the
            weights.
    """
    format_, item = FORMATS[parameters.get("format", 0)], np.dtype(dtype).itemsize
    if format_ is FLOAT16:
        refuse_bad_rounding(stencil, parameters["steps_per_block"])
    if parameters.get("star", 0):
        return star_kernel(stencil, dtype, parameters)
    if item != 4 and (item != 2 or format_ is not FLOAT16):
        msg = f"{format_.name} is not made of {np.dtype(dtype)}"
        raise ValueError(msg)

    # One product of matrices applies all steps of the launch: the stencil to their power.
    fused = without_zeros(operand_weights(stencil.power(parameters["steps_per_block"]), format_))
    mirrored = bool(parameters.get("mirrored", 0))
    if mirrored and fused.ndim != 2:
        msg = f"rows at the same distance share a product in 2D, not in {fused.ndim}D"
        raise ValueError(msg)

    # Rows of the stencil become band matrices; equal ones are stored once and numbered.
    bands = window_bands(mirror_rows(fused) if mirrored else fused)
    table, matrices = bands.numbered(mirrored=mirrored)
    if len(matrices) == 0:
        matrices = np.zeros((1, CHUNK, RESULTS))  # unused: `struct Weights` must not be empty
    numbers = matrix_registers(matrices, format_, run=item)

    stage = _stage(bands, parameters, 16 // item)
    reach = on_three(fused.radii, 0)
    return FusedKernel(
        source="tcstencil.cu",
        entry="tcstencil",
        defines={
            "TS_REAL": "Half" if item == 2 else "float",
            "TS_FORMAT": FORMATS.index(format_),
            "TS_SUMS": parameters.get("sums", 32),
            "TS_MIRRORED": int(mirrored),
            "TS_AXIS": LAST[fused.ndim][0],
            "TS_FLIGHT": bands.flight,
            "TS_ACROSS": bands.across,
            "TS_CHUNKS": bands.chunks,
            "TS_HALF": int(bands.has_half),
            "TS_BANDS": braces(table.reshape(-1)),
            "TS_MATRICES": len(matrices),
            "TS_WARPS": parameters["warps"],
            "TS_WARPS_X": _warps_x(parameters),
            "TS_MIN_BLOCKS": parameters["blocks"],
            "TS_UNITS": parameters["units"],
            "TS_STEPS": parameters["steps"],
            "TS_STAGES": parameters["stages"],
            "TS_LEAD": stage.lead,
            "TS_ROW_POINTS": stage.row_points,
            "TS_ROWS": stage.rows,
            "TS_REACH": braces(reach),
        },
        depth=parameters["steps_per_block"],
        tile=stage.tile,
        threads=32 * parameters["warps"],
        shared_bytes=item * parameters["stages"] * stage.rows * stage.row_points + numbers.nbytes,
        weights=numbers,
        stream=stage.stream,
        by_pointer=True,
    )


def _steps_to_try(stencil: Stencil) -> tuple[int, ...]:
    """Numbers of steps within `_REACHES`, and in 2D a few more; those that the model ranks fastest
    come first.
    """
    radius, reaches = max(1, stencil.radius), _REACHES[stencil.ndim]
    wanted = [reach // radius for reach in reaches]
    if stencil.ndim > 1:
        most = max(1, wanted[0])
        deeper = range(2 * most, max(most, 2 * most - 3), -1) if stencil.ndim == 2 else ()
        # Also fewer steps, and in 2D up to twice as many.
        wanted = [*range(most, 0, -1), *deeper, *wanted]

    possible = [
        n
        for n in dict.fromkeys(wanted)
        if 0 < n * radius <= _FARTHEST[stencil.ndim] and rounds_well(stencil, n)
    ]
    fitting = [n for n in possible if _registers(stencil, _shape(stencil, n)) <= _REGISTERS]
    return tuple(sorted(fitting, key=lambda n: -n * windows_rate(_matrices(stencil, n)[0])))


def _shape(stencil: Stencil, steps: int) -> dict[str, int]:
    # The parameters of the best guess for a number of steps.
    if stencil.ndim == 1:
        return {"steps_per_block": steps, "warps": 4, "units": 1, "steps": 4, "stages": 3}

    if stencil.ndim == 2:
        # The fastest of 54 tiles for one step and for four on an H200, 10240 x 10240.
        reach = steps * stencil.radius
        warps = 8 if reach <= 4 else 4 if reach < 8 else 2
        return {
            "steps_per_block": steps,
            "warps": warps,
            "units": 1,
            "steps": 4 if reach <= 2 else 8,
            "stages": 2,
        }

    reach = steps * stencil.radii[0]
    units = 4 if reach <= 1 else 2 if reach <= 4 else 1
    return {
        "steps_per_block": steps,
        "warps": 4,
        "warps_x": 1,
        "units": units,
        "steps": 1,
        "stages": 3,
    }


def _warps_x(parameters: Mapping[str, int]) -> int:
    return parameters.get("warps_x", parameters["warps"])


def _registers(stencil: Stencil, shape: Mapping[str, int]) -> int:
    """Registers per thread for matrices and results in flight."""
    steps, units = shape["steps_per_block"], shape["units"]
    flight = 2 * steps * stencil.radii[0] + 1 if stencil.ndim > 1 else 1
    # In 1D the compiler loads many windows before it multiplies one.
    loaded = units * (1 + window_lead(steps * stencil.radii[-1]) // 4) if stencil.ndim == 1 else 0
    return 2 * _matrices(stencil, steps)[1] + 4 * units * (flight + 1) + loaded


@functools.lru_cache(maxsize=256)
def _matrices(stencil: Stencil, steps: int) -> tuple[float, int]:
    """(products, matrices) of a composed stencil, approximately: its weights are rounded one by
    one.
    """
    fused = stencil.power(steps)
    near = rounded(fused.weights, FLOAT16).tolist()
    bands = window_bands(without_zeros(Stencil(fused.offsets, tuple(near))))
    return bands.products, len(bands.numbered()[1])


def _blocks(stencil: Stencil, shape: Mapping[str, int]) -> int:
    """Blocks that fit on a multiprocessor."""
    return blocks_beside(32 * shape["warps"], _registers(stencil, shape) + _OTHERS)


def _stage(bands: Bands, parameters: Mapping[str, int], vector: int) -> SharedTile:
    # The tile that a block holds in shared memory, by number of axes.
    warps, units, steps = parameters["warps"], parameters["units"], parameters["steps"]
    lead = round_up(bands.lead, vector)
    # Half a chunk may be loaded as a whole one.
    behind = round_up(bands.lead + bands.has_half * RESULTS, vector)

    if bands.ndim == 3:
        warps_x = _warps_x(parameters)
        height, width = warps // warps_x * units, _TILE * warps_x
        stream = StreamedAxis(axis=0, repeated=bands.flight - 1, unit=1)
        return SharedTile(
            lead, lead + width + behind, height + bands.across - 1, (1, height, width), stream
        )

    width = _TILE * warps * units
    if bands.ndim == 2:
        stream = StreamedAxis(axis=1, repeated=bands.flight - 1, unit=steps)
        return SharedTile(lead, lead + width + behind, steps, (1, steps, width), stream)
    stream = StreamedAxis(axis=2, repeated=0, unit=steps * width)
    return SharedTile(lead, lead + steps * width + behind, 1, (1, 1, steps * width), stream)


METHOD = FusedMethod(
    "gpu.tcstencil",
    dict.fromkeys((1, 2, 3), Family(tcstencil_kernel, tcstencil_parameters, tcstencil_refusal)),
)
