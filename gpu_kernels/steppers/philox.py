"""Random initial fields, made on a GPU with the bits that they have on the host (`philox.cu`)."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tetris_sim.gpu_kernels.common.layout import by_value, to_device
from tetris_sim.gpu_kernels.common.terms import STORED
from tetris_sim.gpu_kernels.steppers.passes import State
from tetris_sim.model.grid import on_three
from tetris_sim.model.problem import InitialField, RandomField, RandomNumbers

# Points from which on a GPU makes them: compiling the kernel took 0.23 s, once in a cache, which is
# long beside what fewer points take (one H200, 2026-11-23).
_MANY_POINTS = 1 << 24
_THREADS, _PER_THREAD = 256, 4
_MOST_BLOCKS = 65535


def random_numbers(initial: InitialField, state: State) -> RandomNumbers | None:
    """What a GPU can make of an initial field; None if the host has to.

    It does not look for numbers that are not finite, so there must be none.
    """
    if not isinstance(initial, RandomField) or state.layout.n_fields > 1:
        return None
    many = math.prod(state.slab.shape) >= _MANY_POINTS
    largest = float(np.finfo(state.layout.dtype).max) / 2
    numbers = initial.numbers
    finite = max(abs(numbers.low), abs(numbers.high)) <= largest
    return numbers if many and finite else None


def fill(numbers: RandomNumbers, state: State) -> None:
    """Write the owned points of a slab; returns when they are there."""
    device, slab = state.device, state.slab
    touched = [
        range(start // width, -(-stop // width))
        for start, stop, width in zip(slab.start, slab.stop, numbers.block, strict=True)
    ]
    keys = np.array([numbers.key(place) for place in itertools.product(*touched)], np.uint64)

    first = on_three([blocks.start for blocks in touched], 0)
    count = on_three([len(blocks) for blocks in touched], 1)
    shape, width = on_three(numbers.shape, 1), on_three(numbers.block, 1)
    start, stop = on_three(slab.start, 0), on_three(slab.stop, 1)
    blocks = np.array([*shape, *start, *stop, *width, *first, *count], np.int32)
    limits = np.array([numbers.low, numbers.high])

    defines = {"TS_REAL": STORED[state.layout.dtype.name]}
    groups = -(-math.prod(width) // _PER_THREAD)
    grid = (-(-groups // _THREADS), min(math.prod(count), _MOST_BLOCKS), 1)
    with device.use():
        function = device.function("philox.cu", "fill", defines)
        there = to_device(device, keys)
        (now, _), *_ = state.fields()
        arguments = (now, there, state.memory, by_value(blocks), by_value(limits))
        function(grid, (_THREADS, 1, 1), arguments)
        device.stream.synchronize()
