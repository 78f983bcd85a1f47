"""The wave equation by a kernel that makes one step a sweep, which a compiler of finite differences
would write (`one_sweep_wave.cu`): its best block and number of planes, as a measure for others.
"""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np

_SOURCE = Path(__file__).with_suffix(".cu")
_BLOCKS = ((32, 8), (32, 16), (64, 4), (64, 8), (128, 2), (128, 4), (256, 2), (32, 32))
_PLANES = (8, 16, 32, 64, 128, 1024)
_SECONDS = 0.1
_SQUARE = 0.1  # (c dt / h)^2


def one_sweep_rates(n: int, accuracy: int, dtype: str, gpu: Any) -> tuple[str, list[float]]:
    """Which block and planes are fastest, and three rates in billions of points and steps a
    second.

    Args:
        n: points along each of three axes.
        accuracy: order of the differences, 2 or 4.
        dtype: of the state.
        gpu: the device.
    """
    radius, item = accuracy // 2, np.dtype(dtype).itemsize
    first = 128 // item  # rows begin at a line
    pitch = n + 2 * first
    near, far = (_SQUARE, 0.0) if accuracy == 2 else (_SQUARE * 4 / 3, -_SQUARE / 12)
    numbers = [np.dtype(dtype).type(it) for it in (near, far, -6 * (near + far))]
    sizes = [np.int32(n)] * 3
    with gpu.use() as cupy:
        shape = (n + 2 * radius, n + 2 * radius, pitch)
        states = [cupy.zeros(shape, dtype) for _ in range(2)]
        for state in states:
            state.ravel()[...] = cupy.arange(state.size, dtype=dtype) % 17
        found: dict[tuple[int, int, int], float] = {}
        functions = {
            block: _compiled(cupy, block, radius, pitch, first, dtype) for block in _BLOCKS
        }

        def rate(block: tuple[int, int], planes: int, seconds: float) -> float:
            grid = (-(-n // block[0]), -(-n // block[1]), -(-n // planes))

            def steps(count: int) -> float:
                cupy.cuda.Device().synchronize()
                begin = time.perf_counter()
                for k in range(count):
                    pair = states[k % 2], states[1 - k % 2]
                    functions[block](grid, block, (*pair, *sizes, np.int32(planes), *numbers))
                cupy.cuda.Device().synchronize()
                return time.perf_counter() - begin

            steps(2)
            count = 2 * max(1, round(seconds / steps(2)))
            return count * n**3 / steps(count) / 1e9

        for block, planes in itertools.product(_BLOCKS, _PLANES):
            found[*block, planes] = rate(block, planes, _SECONDS / 5)
        best = max(found, key=lambda it: found[it])
        return str(best), [rate(best[:2], best[2], _SECONDS) for _ in range(3)]


def check_one_sweep(accuracy: int, gpu: Any) -> None:
    """Compare a step on few points with NumPy."""
    radius, n, first = accuracy // 2, 40, 16
    shape = (n + 2 * radius, n + 2 * radius, n + 2 * first)
    rng = np.random.default_rng(1)
    u, before = rng.uniform(size=(2, *shape))
    near, far = (_SQUARE, 0.0) if accuracy == 2 else (_SQUARE * 4 / 3, -_SQUARE / 12)
    inner = (*(slice(radius, radius + n),) * 2, slice(first, first + n))
    change = -6 * (near + far) * u
    for axis, (distance, weight) in itertools.product(range(3), ((1, near), (2, far))):
        change += weight * (np.roll(u, distance, axis) + np.roll(u, -distance, axis))
    expected = (2 * u - before + change)[inner]
    with gpu.use() as cupy:
        function = _compiled(cupy, (32, 8), radius, shape[2], first, "float64")
        there = cupy.asarray(before)
        numbers = (near, far, -6 * (near + far))
        sizes = [np.int32(n)] * 3
        grid = (2, 5, 5)
        function(grid, (32, 8), (cupy.asarray(u), there, *sizes, np.int32(8), *numbers))
        np.testing.assert_allclose(there.get()[inner], expected, atol=1e-13)


def _compiled(
    cupy: Any, block: tuple[int, int], radius: int, pitch: int, first: int, dtype: str
) -> Any:
    options = {
        "TS_REAL": {"float64": "double", "float32": "float"}[dtype],
        "TS_RADIUS": radius,
        "TS_X": block[0],
        "TS_Y": block[1],
        "TS_PITCH": pitch,
        "TS_FIRST": first,
    }
    flags = tuple(f"-D{key}={value}" for key, value in options.items())
    return cupy.RawKernel(_SOURCE.read_text(encoding="utf-8"), "one_sweep", ("-std=c++17", *flags))
