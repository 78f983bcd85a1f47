"""The largest stable step of equations is found soon, whatever is asked for."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from tetris_sim.apps.initial import block_shape
from tetris_sim.apps.pde import stability
from tetris_sim.config import make_config
from tetris_sim.model.grid import Grid
from tetris_sim.model.slab import Slab

SHAPES = [(40, 648, 64), (1024, 1024, 1024), (3000, 3000), (1_100_000,), (300, 5, 1000)]


def place(slab: Slab) -> Any:
    """A state that says where it is."""
    along = [np.arange(*ends) for ends in zip(slab.start, slab.stop, strict=True)]
    found = sum(part * 1000.0**axis for axis, part in enumerate(np.ix_(*along)))
    return np.broadcast_to(found, (2, *slab.shape))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_that_boxes_share_are_made_once(shape: tuple[int, ...]) -> None:
    sizes = block_shape(shape)
    made: list[tuple[int, ...]] = []

    def initial(slab: Slab) -> Any:
        spans = (
            range(start // size, -(-stop // size))
            for start, stop, size in zip(slab.start, slab.stop, sizes, strict=True)
        )
        made.extend(itertools.product(*spans))
        return place(slab)

    grid = Grid(shape, (1.0,) * len(shape), (0.0,) * len(shape))
    boxes = stability._boxes(grid)
    states = stability._read(initial, boxes, grid)
    for box, state in zip(boxes, states, strict=True):
        assert np.array_equal(state, place(Slab.box(box)))
    assert len(made) <= 4 * len(set(made))  # the four ranges along an axis may overlap


def bisected(spectrum: Any, factor: Any, growth: float) -> float:
    """The shortest of the limits of all waves, each found for itself."""
    low, high = np.zeros(spectrum.shape), 20 / np.abs(spectrum)
    high = np.minimum(high, 8 / growth) if growth else high
    for _ in range(60):
        middle = (low + high) / 2
        good = np.abs(factor(spectrum * middle)) <= np.exp(growth * middle) * (1 + 1e-14)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return float(low.min())


@pytest.mark.parametrize("growth", [0.0, 0.3])
def test_limits_that_cannot_be_shortest_do_not_matter(growth: float) -> None:
    rng = np.random.default_rng(3)
    spectrum = rng.uniform(-9, -1e-3, 500) + 1j * rng.uniform(-2, 2, 500)
    spectrum = np.append(spectrum, growth) if growth else spectrum
    found = stability.longest_step(spectrum, "rk2")
    assert found == bisected(spectrum, lambda z: 1 + z + z * z / 2, growth) * (1 + 1e-7)


def system(fields: int) -> dict[str, Any]:
    names = [f"u{k}" for k in range(fields)]
    return {
        "grid": {"shape": [8, 8, 8], "spacing": ["1 m"] * 3},
        "model": {
            "type": "pde",
            "fields": {
                name: {
                    "equation": f"laplace({name}) - {name}*{names[k - 1]} + sin(t)*{names[k - 2]}",
                    "initial": {"type": "random", "low": 0.1, "high": 1, "seed": k},
                }
                for k, name in enumerate(names)
            },
        },
        "boundaries": {"*": {"type": "periodic"}},
        "time": {"t_end": "1 s"},
    }


@pytest.mark.parametrize("fields", [3])
def test_many_fields_are_looked_at_in_fewer_places(
    fields: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    solved = np.linalg.eigvals

    def eigvals(symbols: Any) -> Any:
        sizes.append(symbols.size)
        return solved(symbols)

    whole = make_config(system(fields)).build().dt
    monkeypatch.setattr(np.linalg, "eigvals", eigvals)
    monkeypatch.setattr(stability, "_SYMBOLS", 1 << 16)
    few = make_config(system(fields)).build().dt
    one_sample_at_all_moments = 9 * 405 * fields**2
    assert len(sizes) == 18
    assert sum(sizes) <= 2 * max(1 << 16, one_sample_at_all_moments)
    assert math.isclose(few, whole, rel_tol=0.2)
