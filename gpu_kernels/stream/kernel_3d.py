"""gpu.stream in 3D: blocks of threads stream along z, with all levels of a pass in flight
(`stream_3d.cu`).

It takes any list of offsets up to radius 4, as far as registers hold the unfinished sums of a tile
that is not all halo. Stencils that are symmetric along all axes are folded: points that share a
weight are added first.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.layout import LINE, REAL
from tetris_sim.gpu_kernels.fused.kernel import FusedKernel, StreamedAxis
from tetris_sim.gpu_kernels.stream.kernel_1d import unit_tap_weights
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import PAIR
from tetris_sim.model.stencil import Offset, Stencil

_LARGEST_RADIUS = 4
_WORD, _SECTOR = 16, 32  # bytes: the widest access, the smallest unit of a memory transfer
_REGISTERS = 65536  # 4-byte registers per multiprocessor
_LARGEST_BODY = 2048  # multiply-adds per plane: with more, compiling takes ten seconds
_SMALLEST_YIELD = 0.6  # smallest share of a tile's points that it writes

# Steps, rows, warps, blocks per multiprocessor, planes ahead. On an H200 at 1024^3 (2026-11-21)
# heat-3d made 595, 571, 576, 576 GStencil/s with the first, third, fourth, sixth; symmetric
# box-3d27p 485, 446 with the second, fifth; any box-3d27p 316, 309, 312 with the second, fifth,
# eighth.
_SHAPES = (
    (3, 6, 8, 1, 3),
    (3, 5, 8, 1, 3),
    (3, 4, 12, 1, 3),
    (3, 3, 16, 1, 3),
    (3, 3, 12, 1, 3),
    (4, 3, 12, 1, 3),
    (3, 4, 8, 1, 2),  # less than 96 KB of shared memory
    (2, 3, 8, 2, 2),
    (2, 8, 8, 1, 2),
    (2, 5, 8, 1, 2),
    (2, 3, 12, 1, 2),
    (1, 4, 12, 1, 3),
    (1, 3, 12, 1, 3),
    (1, 3, 8, 1, 2),
    (1, 2, 8, 1, 2),
)
# Pairs of floats, as in 2D: heat-3d at 512^3 made 216, 213, 213, 198 GStencil/s (H200, 2026-11-24)
# with these, 185 with the first one for doubles.
_PAIR_SHAPES = (
    (2, 3, 16, 1, 2),
    (2, 4, 12, 1, 2),
    (2, 4, 8, 2, 2),
    (3, 4, 12, 1, 3),
    *_SHAPES[-4:],
)
_MOST_PROPOSALS = 7

# Parameters that are macros of the same name in the source.
_SHAPE_NAMES = ("columns", "rows", "warps", "ahead", "blocks")


class _Tap(NamedTuple):
    """A term of the sum, or several that share a weight."""

    offset: Offset
    weight: float
    n_points: int  # that share the weight


def stream_3d_refusal(stencil: Stencil, dtype: npt.DTypeLike) -> str | None:
    """Why the kernel refuses a stencil, as a sentence for the user; None if it does not."""
    if stencil.ndim != 3:
        return f"it streams through three axes, and the stencil has {stencil.ndim}"
    if np.dtype(dtype).name not in REAL:
        return f"it computes in float64, float32 or pairs, and {np.dtype(dtype)} was asked for"
    if stencil.radius > _LARGEST_RADIUS:
        return (
            f"it takes neighbours up to {_LARGEST_RADIUS} points away, and the stencil reads "
            f"{stencil.radius} away"
        )
    if not stream_3d_parameters(stencil, dtype):
        return (
            f"{stencil.n_points} points with a radius of {stencil.radius} do not fit its registers"
        )
    return None


def stream_3d_parameters(stencil: Stencil, dtype: npt.DTypeLike) -> tuple[Parameters, ...]:
    """Candidate parameters for autotuning, the best guess first.

    A thread owns `rows` x `columns` points of a tile, whose `warps` lie below each other; `ahead`
    planes are prefetched.
    """
    real = np.dtype(dtype)
    names = ("steps_per_block", "rows", "warps", "blocks", "ahead")
    columns = _WORD // real.itemsize
    shapes = _PAIR_SHAPES if real == PAIR else _SHAPES
    proposals = (dict(zip(names, shape, strict=True)) | {"columns": columns} for shape in shapes)
    return tuple(
        itertools.islice((p for p in proposals if _fits(stencil, real, p)), _MOST_PROPOSALS)
    )


def stream_3d_kernel(stencil: Stencil, dtype: npt.DTypeLike, parameters: Parameters) -> FusedKernel:
    """The kernel for a stencil with parameters of `stream_3d_parameters`."""
    real = np.dtype(dtype)
    steps, folded = parameters["steps_per_block"], _folds(stencil)
    taps = _folded_taps(stencil) if folded else _plain_taps(stencil)
    scaled, weights = unit_tap_weights(
        [t.weight for t in taps], steps, real, [t.n_points for t in taps]
    )

    defines: dict[str, str | int] = {
        "TS_REAL": REAL[real.name],
        "TS_TAPS": "{" + ",".join("{{{},{},{}}}".format(*tap.offset) for tap in taps) + "}",
        "TS_N_TAPS": len(taps),
        "TS_N_WEIGHTS": weights.size,
        "TS_STEPS": steps,
        "TS_SCALED": int(scaled),
        "TS_FOLDED": int(folded),
    }
    defines |= {
        f"TS_RADIUS_{axis}": radius for axis, radius in zip("ZYX", stencil.radii, strict=True)
    }
    defines |= {f"TS_{name.upper()}": parameters[name] for name in _SHAPE_NAMES}

    return FusedKernel(
        source="stream_3d.cu",
        entry="stream_3d",
        defines=defines,
        depth=steps,
        tile=_written(stencil, real, parameters),
        threads=32 * parameters["warps"],
        shared_bytes=_shared_bytes(stencil, real, parameters),
        weights=weights,
        # Each level lags a plane behind the one before, hence steps - 1.
        stream=StreamedAxis(axis=0, repeated=2 * steps * stencil.radii[0] + steps - 1, unit=1),
        line=_SECTOR,
        # A launch of heat-3d on 1024^3 points with a box and tiles from (3, 3, 4) on took 6569 us,
        # from (3, 3, 8) 5631, from (3, 3, 0) 5509 (H200, float64, 2026-11-24).
        begins=LINE // real.itemsize,
    )


def _folds(stencil: Stencil) -> bool:
    """Whether the stencil is symmetric along all axes, and adding points of equal weight first
    saves work.
    """
    mirrored = all(stencil.is_mirrored(axis) for axis in range(3))
    return mirrored and not stencil.is_star  # a star's rows and planes have no sums to share


def _plain_taps(stencil: Stencil) -> list[_Tap]:
    return [_Tap(offset, weight, 1) for offset, weight in stencil.terms.items()]


def _folded_taps(stencil: Stencil) -> list[_Tap]:
    """One tap for each combination of distances along the three axes, the largest first."""
    # The octant of non-negative offsets represents all points.
    first = {offset: weight for offset, weight in stencil.terms.items() if min(offset) >= 0}
    return [
        _Tap(offset, weight, 2 ** sum(map(bool, offset)))
        for offset, weight in sorted(first.items(), reverse=True)
    ]


def _fits(stencil: Stencil, real: np.dtype[Any], parameters: Parameters) -> bool:
    """Whether the compiler should manage without spilling, and enough of the tile is written."""
    steps, rows, columns = (parameters[name] for name in ("steps_per_block", "rows", "columns"))
    radius_z, radius_y, _ = stencil.radii
    _, written_y, written_x = _written(stencil, real, parameters)
    share = written_y * written_x / (rows * parameters["warps"] * 32 * columns)
    if min(written_y, written_x) <= 0 or (
        steps > 1 and (radius_y > rows or share < _SMALLEST_YIELD)
    ):
        return False

    # Unfinished sums of every level, and for all levels but the first the plane that waits for the
    # next turn.
    kept = rows * columns * (steps * max(1, 2 * radius_z) + steps - 1) * real.itemsize // 4
    registers = min(255, _REGISTERS // (32 * parameters["warps"] * parameters["blocks"]) // 8 * 8)
    body = stencil.n_points * rows * columns * steps
    return kept <= registers * _share_kept(stencil) and body <= _LARGEST_BODY


def _share_kept(stencil: Stencil) -> float:
    """The share of a thread's registers that may be live from turn to turn without spilling, found
    by compiling.
    """
    if stencil.is_star:
        return 0.79 if stencil.radius == 1 else 0.72
    return 0.64 if stencil.radius <= 2 else 0.3


def _written(stencil: Stencil, real: np.dtype[Any], parameters: Parameters) -> tuple[int, int, int]:
    """Points that a block writes along z, y, x: one plane, and the part of its tile that is still
    valid after `steps` steps.
    """
    steps = parameters["steps_per_block"]
    _, radius_y, radius_x = stencil.radii
    word, sector = _WORD // real.itemsize, _SECTOR // real.itemsize
    # Rounded up to whole words on the left, so that accesses are aligned.
    halo = -(-steps * radius_x // word) * word
    x = (32 * parameters["columns"] - halo - steps * radius_x) // sector * sector
    return 1, parameters["warps"] * parameters["rows"] - 2 * steps * radius_y, x


def _shared_bytes(stencil: Stencil, real: np.dtype[Any], parameters: Parameters) -> int:
    """Shared memory for a ring of planes of the state, and two buffers of the rows that warps
    exchange at each level in between [bytes].
    """
    steps, warps = parameters["steps_per_block"], parameters["warps"]
    row = 32 * parameters["columns"] * real.itemsize
    state = (parameters["ahead"] + 1) * warps * parameters["rows"]
    ends = max(1, 2 * (steps - 1)) * warps * max(1, 2 * stencil.radii[1])
    return (state + ends) * row
