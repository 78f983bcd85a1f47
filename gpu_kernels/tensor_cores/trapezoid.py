"""Tensor Trapezoid Folding on FP64 tensor cores: plan the kernels of trapezoid.cu and
trapezoid_1d.cu for a stencil.

Several steps are one launch of the composed stencil (`Stencil.power`): a band of radius r costs 8 +
2 * r multiplications per point and offset across it, so that fused steps share the 8.
`numerics.py` says what is computed.
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

# Tensor Trapezoid Folding: a stencil as the matrices of trapezoid.cu and trapezoid_1d.cu.
#
# Eight points in a row along one axis depend on 8 + 2 * radius by a banded matrix, whose columns
# are the weights, each shifted down by one (papers/004, section 3.2: a stair tetromino). One such
# matrix belongs to every offset across that axis; the products of all of them with the shifted
# rows, accumulated, are the stencil (the plane tetrominoes). tests/papers/tetris/folding.py applies
# them in NumPy.

GROUP = 8  # points that one product updates: columns of B in mma.m16n8k4
CHUNK = 4  # points that one product reads: rows of B

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Folding:
    """A stencil as banded matrices along one axis: y, in 1D x.

    Attributes:
        weights: their matrix [dz][tap][dy], where tap is dx counted from the lowest, or from 0 if
            the stencil is mirrored. In 1D [0][0][dx].
        mirrored: whether offsets dx and -dx have the same weights, so that their points are added
            before they are multiplied.
    """

    weights: Float64
    mirrored: bool

    @cached_property
    def radii(self) -> tuple[int, int, int]:
        """How far it reaches along z, the folded axis, and x."""
        n_z, n_taps, n_along = self.weights.shape
        return n_z // 2, n_along // 2, n_taps - 1 if self.mirrored else n_taps // 2

    @cached_property
    def chunks(self) -> int:
        """Chunks of four rows that a group of eight depends on."""
        return math.ceil((GROUP + 2 * self.radii[1]) / CHUNK)

    @cached_property
    def reaches(self) -> npt.NDArray[np.int64]:
        """How far the weights of [dz][tap] that are not zero reach along the folded axis; -1 where
        all are zero.
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
    across = np.ascontiguousarray(dense.transpose(0, 2, 1))
    mirrored = radii[2] > 0 and np.array_equal(across, across[:, ::-1])
    return Folding(
        np.ascontiguousarray(across[:, radii[2] :]) if mirrored else across, mirrored=bool(mirrored)
    )


# Kernel arguments had 4096 bytes before CUDA 12.1; the rest of ours takes less than 128.
_MOST_WEIGHTS = (4096 - 128) // 8
_MOST_SHARED = 163 * 1024  # bytes per block on sm_80; sm_90 has 227 KB
_SECTOR = 32  # bytes: the smallest piece of memory that moves


def trapezoid_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why this stencil cannot be computed so, as a sentence for the user; None if it can."""
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
    """What a tuner may try, the best guess first; nothing where `trapezoid_refusal` has something
    to say.

    The guesses are ordered by what one H200 did (November 2026): a reach of 4 to 6 points (2D), 1
    to 2 (3D) or 128 (1D) balances products against memory. The later ones take fewer registers or
    less shared memory.
    """
    if trapezoid_refusal(stencil, dtype) is not None:
        return ()

    propose = {1: _line_proposals, 2: _plane_proposals, 3: _volume_proposals}[stencil.ndim]
    radius = max(1, stencil.radius)
    proposals: list[Mapping[str, int]] = []
    for reach, most, shape in propose(fold(stencil).mirrored):
        steps = max(1, reach // radius)
        parameters = {"steps_per_block": steps} | shape
        if steps * radius > most or parameters in proposals:
            continue
        if trapezoid_refusal(stencil.power(steps), dtype) is None:
            proposals.append(parameters)

    return tuple(
        p for p in proposals if trapezoid_kernel(stencil, dtype, p).shared_bytes <= _MOST_SHARED
    )


# Each proposal has the reach that its steps should have together, the most for which its fragments
# stay in registers (found by compiling), and the parameters.
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
    """How to compile and launch it.

    Args:
        stencil: of one step.
        dtype: float64.
        parameters: one of `trapezoid_parameters`.
    """
    refusal = trapezoid_refusal(stencil, dtype)
    if refusal is not None:
        raise ValueError(refusal)
    folding = fold(stencil.power(parameters["steps_per_block"]))
    return (_line_kernel if stencil.ndim == 1 else _tile_kernel)(folding, parameters)


def _line_kernel(folding: Folding, parameters: Mapping[str, int]) -> FusedKernel:
    """trapezoid_1d.cu; the names and numbers are explained there."""
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
    """trapezoid.cu; the names and numbers are explained there."""
    rz, ry, rx = folding.radii
    columns, planes, stages = parameters["columns"], parameters["planes"], parameters["stages"]
    warps_x, warps_z = parameters["warps_x"], parameters["warps_z"]
    width, margin = 16 * columns * warps_x, rx + rx % 2

    # Of shared memory: rows on their way, results of the warps, and the bands between zeros.
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
