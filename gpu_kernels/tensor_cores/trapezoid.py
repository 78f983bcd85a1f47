"""gpu.trapezoid: tensor trapezoid folding on FP64 tensor cores, with the kernels trapezoid.cu and
trapezoid_1d.cu.

Several steps are one launch of the composed stencil (`Stencil.power`): a band of radius r costs 8 +
2 * r multiplications per point and offset across it, so that fused steps share the 8. Begin with
`Folding`, the matrices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.fused.kernel import FusedKernel
from tetris_sim.gpu_kernels.fused.method import Family, FusedMethod
from tetris_sim.model.grid import on_three
from tetris_sim.model.stencil import Stencil

# A stencil as the banded matrices of trapezoid.cu and trapezoid_1d.cu.
#
# Eight consecutive points along one axis depend on 8 + 2 * radius points by a banded matrix, whose
# columns are the weights, each shifted down by one (Tetris, section 3.2: a stair tetromino). One
# such matrix belongs to every offset across that axis; the sum of its products with the shifted
# rows is the stencil (the plane tetrominoes). tests/papers/tetris/folding.py applies them in NumPy.

GROUP = 8  # points that one product updates: columns of B in mma.m16n8k4
CHUNK = 4  # points that one product reads: rows of B

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Folding:
    """A stencil as banded matrices along one axis: y, in 1D x.

    Attributes:
        weights: the weights as [dz][tap][dy], where tap is dx counted from the lowest, or from 0 if
            the stencil is mirrored; in 1D [0][0][dx].
        mirrored: whether offsets dx and -dx have the same weights, so that their points are added
            before they are multiplied.
    """

    weights: Float64
    mirrored: bool

    @cached_property
    def radii(self) -> tuple[int, int, int]:
        """The radius along z, along the folded axis, and along x."""
        n_z, n_taps, n_along = self.weights.shape
        return n_z // 2, n_along // 2, n_taps - 1 if self.mirrored else n_taps // 2

    @cached_property
    def chunks(self) -> int:
        """Chunks of four rows on which a group of eight points depends."""
        return math.ceil((GROUP + 2 * self.radii[1]) / CHUNK)

    @cached_property
    def reaches(self) -> npt.NDArray[np.int64]:
        """The largest distance of non-zero weights along the folded axis for each [dz][tap]; -1
        where all are zero.
        """
        distance = np.abs(np.arange(self.weights.shape[2]) - self.radii[1])
        reaches: npt.NDArray[np.int64] = np.where(self.weights != 0, distance, -1).max(axis=2)
        return reaches


def fold(stencil: Stencil) -> Folding:
    """Fold a stencil along y, in 1D along x."""
    radii = on_three(stencil.radii, 0)
    dense = stencil.dense().reshape([2 * radius + 1 for radius in radii])  # [dz][dy][dx]
    if stencil.ndim == 1:
        return Folding(dense, mirrored=False)
    # [dz][dx][dy]: bands run along the last axis.
    across = np.ascontiguousarray(dense.transpose(0, 2, 1))
    # Mirrored points are added before the product, so their weights must be equal.
    mirrored = radii[2] > 0 and np.array_equal(across, across[:, ::-1])
    return Folding(
        np.ascontiguousarray(across[:, radii[2] :]) if mirrored else across, mirrored=bool(mirrored)
    )


# Kernel arguments were limited to 4096 bytes before CUDA 12.1; the other arguments take less than
# 128.
_MOST_WEIGHTS = (4096 - 128) // 8
_MOST_SHARED = 163 * 1024  # bytes per block on sm_80; sm_90 has 227 KB
_SECTOR = 32  # bytes: the smallest unit of a memory transfer


def trapezoid_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernels refuse a stencil, as a sentence for the user; None if they do not."""
    if np.dtype(dtype) != np.float64:
        return (
            f"tensor cores round {np.dtype(dtype)} to fewer bits; trapezoid folding is for float64"
        )
    n_weights = fold(stencil).weights.size
    if n_weights > _MOST_WEIGHTS:
        return (
            f"the box around this stencil has {n_weights} weights, kernel arguments hold "
            f"{_MOST_WEIGHTS}"
        )
    return None


def trapezoid_parameters(stencil: Stencil, dtype: npt.DTypeLike) -> tuple[Mapping[str, int], ...]:
    """Candidate parameters for autotuning, the best guess first; none where `trapezoid_refusal`
    refuses.

    The order is that of measurements on one H200 (November 2026): a reach of 4 to 6 points (2D), 1
    to 2 (3D) or 128 (1D) balances products against memory. Later ones need fewer registers or less
    shared memory.
    """
    if trapezoid_refusal(stencil, dtype) is not None:
        return ()

    propose = {1: _line_proposals, 2: _plane_proposals, 3: _volume_proposals}[stencil.ndim]
    radius = max(1, stencil.radius)
    proposals: list[Mapping[str, int]] = []
    for reach, most, shape in propose(fold(stencil).mirrored):
        steps = max(1, reach // radius)
        parameters = {"steps_per_block": steps} | shape
        # Beyond `most` the fragments spill; stencils of large radius repeat proposals of one step.
        if steps * radius > most or parameters in proposals:
            continue
        if trapezoid_refusal(stencil.power(steps), dtype) is None:
            proposals.append(parameters)

    return tuple(
        p for p in proposals if trapezoid_kernel(stencil, dtype, p).shared_bytes <= _MOST_SHARED
    )


# A proposal has the reach of its steps together, the largest reach for which its fragments stay in
# registers (found by compiling), and the parameters.
_Proposals = Iterator[tuple[int, int, dict[str, int]]]


def _line_proposals(mirrored: bool) -> _Proposals:
    for reach, blocks in ((128, 3), (96, 4), (64, 5), (32, 5), (16, 5), (1, 5)):
        yield reach, 1024, {"groups": 4, "warps": 4, "blocks": blocks}


def _plane_proposals(mirrored: bool) -> _Proposals:
    if mirrored:
        yield 6, 6, _tile(5, stages=3, blocks=2, product_rows=8)
        yield 4, 4, _tile(5, stages=2, blocks=2, product_rows=8)
        yield 8, 8, _tile(3, stages=3, blocks=3, product_rows=4)
    else:
        yield 4, 4, _tile(5, stages=2, blocks=2, product_rows=8)
        yield 4, 4, _tile(3, stages=3, blocks=3, product_rows=8)
    yield 4, 4, _tile(5, stages=2, blocks=3, product_rows=4)
    yield 4, 4, _tile(3, stages=3, blocks=4, product_rows=4)
    yield 6, 8, _tile(3, stages=2, blocks=3, product_rows=4)
    yield 2, 8, _tile(3, stages=2, blocks=3, product_rows=4)
    yield 8, 1024, _tile(1, stages=3, blocks=3, product_rows=4)


def _volume_proposals(mirrored: bool) -> _Proposals:
    high = {"planes": 2, "warps_x": 1, "warps_z": 4, "groups": 64}
    two_steps = 2, 3, _tile(3, stages=2, blocks=2, product_rows=4) | high
    one_step = 1, 3, _tile(3, stages=2, blocks=2, product_rows=8) | high
    yield from (two_steps, one_step) if mirrored else (one_step, two_steps)
    yield 1, 3, _tile(3, stages=2, blocks=2, product_rows=4) | high
    wide = {"warps_x": 2, "warps_z": 2}
    yield 1, 1024, _tile(1, stages=2, blocks=2, product_rows=4) | high | wide


def _tile(columns: int, *, stages: int, blocks: int, product_rows: int) -> dict[str, int]:
    # Parameters of trapezoid.cu that most proposals share.
    return {
        "columns": columns,
        "planes": 1,
        "warps_x": 4,
        "warps_z": 1,
        "groups": 54,
        "stages": stages,
        "blocks": blocks,
        "product_rows": product_rows,
    }


def trapezoid_kernel(
    stencil: Stencil, dtype: npt.DTypeLike, parameters: Mapping[str, int]
) -> FusedKernel:
    """The kernel that applies `steps_per_block` steps at once.

    Args:
        stencil: stencil of one step.
        dtype: float64.
        parameters: one of `trapezoid_parameters`.

    Raises:
        ValueError: `trapezoid_refusal` refuses the stencil or dtype.
    """
    refusal = trapezoid_refusal(stencil, dtype)
    if refusal is not None:
        raise ValueError(refusal)
    folding = fold(stencil.power(parameters["steps_per_block"]))
    return (_line_kernel if stencil.ndim == 1 else _tile_kernel)(folding, parameters)


def _line_kernel(folding: Folding, parameters: Mapping[str, int]) -> FusedKernel:
    """The kernel trapezoid_1d.cu, where its names and numbers are explained."""
    groups, warps = parameters["groups"], parameters["warps"]
    rx = folding.radii[1]
    chunks = -(-(GROUP + 2 * rx + rx % 2) // CHUNK)
    segment, width = GROUP * groups, 16 * GROUP * groups * warps
    n_read = width - GROUP + CHUNK * chunks

    return FusedKernel(
        source="trapezoid_1d.cu",
        entry="trapezoid_1d",
        defines={
            "TS_REAL": "double",
            "TS_RADIUS_X": rx,
            "TS_GROUPS": groups,
            "TS_WARPS": warps,
            "TS_BLOCKS": parameters["blocks"],
        },
        depth=parameters["steps_per_block"],
        tile=(1, 1, width),
        threads=32 * warps,
        shared_bytes=8 * (n_read + n_read // segment * 4 + CHUNK * chunks + GROUP),
        weights=folding.weights.reshape(-1),
        line=_SECTOR,
    )


def _tile_kernel(folding: Folding, parameters: Mapping[str, int]) -> FusedKernel:
    """The kernel trapezoid.cu, where its names and numbers are explained."""
    rz, ry, rx = folding.radii
    columns, planes, stages = parameters["columns"], parameters["planes"], parameters["stages"]
    warps_x, warps_z = parameters["warps_x"], parameters["warps_z"]
    width, margin = 16 * columns * warps_x, rx + rx % 2

    # Shared memory: prefetched rows, results of the warps, and the bands between zeros. The pitch
    # is an odd multiple of four doubles.
    pitch = (width + 2 * margin + 3) // 8 * 8 + 4
    ring = stages * (warps_z * planes + 2 * rz) * 8 * pitch
    staged = warps_x * warps_z * planes * 8 * (16 * columns + 2)
    padded = folding.reaches.size * (CHUNK * folding.chunks + GROUP)

    return FusedKernel(
        source="trapezoid.cu",
        entry="trapezoid",
        defines={
            "TS_REAL": "double",
            "TS_RADIUS_Z": rz,
            "TS_RADIUS_Y": ry,
            "TS_RADIUS_X": rx,
            "TS_MIRRORED": int(folding.mirrored),
            "TS_REACHES": ",".join(map(str, folding.reaches.reshape(-1))),
            "TS_COLUMNS": columns,
            "TS_PLANES": planes,
            "TS_WARPS_X": warps_x,
            "TS_WARPS_Z": warps_z,
            "TS_GROUPS": parameters["groups"],
            "TS_STAGES": stages,
            "TS_PRODUCT_ROWS": parameters["product_rows"],
            "TS_BLOCKS": parameters["blocks"],
        },
        depth=parameters["steps_per_block"],
        tile=(warps_z * planes, GROUP * parameters["groups"], width),
        threads=32 * warps_x * warps_z,
        shared_bytes=8 * (ring + staged + padded + stages),
        weights=folding.weights.reshape(-1),
        line=_SECTOR,
    )


_FAMILY = Family(trapezoid_kernel, trapezoid_parameters, trapezoid_refusal)
METHOD = FusedMethod("gpu.trapezoid", dict.fromkeys((1, 2, 3), _FAMILY), planes=_FAMILY)
