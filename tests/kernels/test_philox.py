"""Random numbers of the compiled loop have the bits of NumPy's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.apps import initial
from tetris_sim.apps.initial import BLOCK_POINTS, make_initial
from tetris_sim.config.sections.conditions import RandomInitial
from tetris_sim.cpu_kernels.compiled import philox
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Slab

BOUNDS = st.floats(-1e300, 1e300)


def stream_of(seed: int, number: int) -> np.random.Philox:
    return np.random.Philox(np.random.SeedSequence(seed, spawn_key=(number,)))


@given(
    seed=st.integers(0, 2**63),
    number=st.integers(0, 10**6),
    count=st.integers(0, 1100),
    low=BOUNDS,
    high=BOUNDS,
)
def test_the_numbers_are_those_of_numpy(
    seed: int, number: int, count: int, low: float, high: float
) -> None:
    words = stream_of(seed, number).random_raw(count) >> np.uint64(11)
    unit = words * 2.0**-53
    with np.errstate(over="ignore"):
        wanted = (1 - unit) * low + unit * high
    found = philox.random_values(stream_of(seed, number), count, low, high)
    np.testing.assert_array_equal(found, wanted)


def test_large_fields_are_made_by_it_with_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid((3, BLOCK_POINTS // 1000, 2001), (1.0,) * 3, (0.0,) * 3)
    section = RandomInitial(type="random", low=-1.0, high=3.0, seed=5)
    part = Slab((1, 7, 0), (3, 200, 2001), ((0, 0),) * 3)

    made: list[int] = []
    real = philox.random_values

    def counted(
        stream: np.random.Philox, count: int, low: float, high: float
    ) -> npt.NDArray[np.float64]:
        made.append(count)
        return real(stream, count, low, high)

    monkeypatch.setattr(philox, "random_values", counted)
    few = make_initial(section, grid, np.dtype("float64"))(part)
    assert not made
    monkeypatch.setattr(initial, "_MANY_POINTS", grid.n_points)
    many = make_initial(section, grid, np.dtype("float64"))(part)
    assert sum(made) > part.n_points
    np.testing.assert_array_equal(few, many)
