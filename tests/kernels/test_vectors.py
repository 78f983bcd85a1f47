"""Vector operations do what their names say, for every length that a machine may have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import njit

from tetris_sim.cpu_kernels.compiled.intrinsics import elements_of
from tetris_sim.cpu_kernels.compiled.vectors import (
    add_vector,
    align_pair,
    any_signed,
    divide_vector,
    halves_pair,
    native_width,
    vector_operations,
    where_reached,
    where_signed,
)

KINDS = [
    ("float64", 8),
    ("float64", 4),
    ("float64", 2),
    ("float32", 16),
    ("float32", 8),
    ("float32", 4),
]


def compile_all(dtype: str, lanes: int) -> Any:
    v = vector_operations(dtype, lanes)
    load, store, past = v.load, v.store, v.store_past_caches
    broadcast, multiply, fma = v.broadcast, v.multiply, v.fma
    up, down, last = v.shift_up, v.shift_down, v.last
    align, low_halves, high_halves = (
        align_pair(dtype, lanes, 1),
        halves_pair(dtype, lanes, high=False),
        halves_pair(dtype, lanes, high=True),
    )

    @njit
    def all_of(a, out, s):  # type: ignore[no-untyped-def]
        x, y = load(a, 0), load(a, lanes)
        store(out, 0, fma(x, y, broadcast(s)))
        store(out, lanes, multiply(x, y))
        store(out, 2 * lanes, up(x, s))
        store(out, 3 * lanes, down(x, s))
        store(out, 4 * lanes, align(x, y))
        store(out, 5 * lanes, low_halves(x, y))
        store(out, 6 * lanes, high_halves(x, y))
        past(out, 7 * lanes, y)
        return last(x)

    return all_of


@pytest.mark.parametrize(("dtype", "lanes"), KINDS)
def test_operations(dtype: str, lanes: int) -> None:
    a = np.random.default_rng(0).random(2 * lanes).astype(dtype)
    out = np.zeros(16 * lanes, dtype=dtype)
    out = out[(-out.ctypes.data) % 64 // out.itemsize :][: 8 * lanes]
    s = np.dtype(dtype).type(0.75)
    assert compile_all(dtype, lanes)(a, out, s) == a[lanes - 1]
    x, y = a[:lanes], a[lanes:]
    fused, product, up, down, align, low, high, past = out.reshape(8, lanes)
    np.testing.assert_array_almost_equal_nulp(fused, x * y + s, 1)
    np.testing.assert_array_equal(product, x * y)
    np.testing.assert_array_equal(up, [s, *x[:-1]])
    np.testing.assert_array_equal(down, [*x[1:], s])
    np.testing.assert_array_equal(align, [*x[1:], y[0]])
    pieces = np.stack([x, y]).reshape(2, lanes * out.itemsize // 16, -1)
    half = pieces.shape[2] // 2
    np.testing.assert_array_equal(low, pieces[:, :, :half].transpose(1, 0, 2).ravel())
    np.testing.assert_array_equal(high, pieces[:, :, half:].transpose(1, 0, 2).ravel())
    np.testing.assert_array_equal(past, y)


@pytest.mark.parametrize(("dtype", "lanes"), [("float64", 4), ("float32", 8), ("float64", 1)])
def test_differences_signs_and_numbers_from_a_table(dtype: str, lanes: int) -> None:
    v = vector_operations(dtype, lanes)
    load, store, subtract, negative, gather = v.load, v.store, v.subtract, v.negative, v.gather

    @njit
    def all_of(a, places, out):  # type: ignore[no-untyped-def]
        store(out, 0, subtract(load(a, 0), load(a, lanes)))
        store(out, lanes, negative(load(a, 0)))
        store(out, 2 * lanes, gather(elements_of(a), elements_of(places), 1))

    a = np.random.default_rng(0).uniform(-1, 1, 2 * lanes).astype(dtype)
    places = np.random.default_rng(1).permutation(2 * lanes)[: lanes + 1].astype(np.int32)
    out = np.zeros(3 * lanes, dtype)
    all_of(a, places, out)
    np.testing.assert_array_equal(out[:lanes], a[:lanes] - a[lanes:])
    np.testing.assert_array_equal(out[lanes : 2 * lanes], -a[:lanes])
    np.testing.assert_array_equal(out[2 * lanes :], a[places[1:]])


@pytest.mark.parametrize(("dtype", "lanes"), [("float64", 4), ("float32", 8), ("float64", 1)])
def test_lanes_choose_for_themselves(dtype: str, lanes: int) -> None:
    v = vector_operations(dtype, lanes)
    load, store = v.load, v.store

    @njit
    def all_of(a, b, out):  # type: ignore[no-untyped-def]
        x, y = load(a, 0), load(b, 0)
        store(out, 0, where_reached(x, y, add_vector(x, y), divide_vector(x, y)))
        store(out, lanes, where_signed(x, y, x))
        return any_signed(x), any_signed(y)

    special = np.array([0.0, -0.0, 1.0, np.nan, -3.0, 2.0, np.inf, 5.0], dtype)[:lanes]
    marks = np.array([0.0, 4.0, 1.0, 2.0, 7.0, 4.0, 1.0, 6.0], dtype)[:lanes]
    out = np.zeros(2 * lanes, dtype)
    assert all_of(special, marks, out) == (lanes > 1, False)
    with np.errstate(all="ignore"):
        expected = np.where(special >= marks, special + marks, special / marks)
    np.testing.assert_array_equal(out[:lanes], expected)
    np.testing.assert_array_equal(out[lanes:], np.where(np.signbit(special), marks, special))


@pytest.mark.parametrize(("dtype", "lanes"), KINDS)
def test_transposition_and_its_inverse(dtype: str, lanes: int) -> None:
    v = vector_operations(dtype, lanes)
    transpose_in, transpose_out, past = v.transpose_in, v.transpose_out, v.transpose_out_past_caches

    @njit
    def there_and_back(a, stride, b, c, d):  # type: ignore[no-untyped-def]
        transpose_in(a, 3, stride, b, 0)
        transpose_out(b, 0, c, 0, stride)
        past(b, 0, d, 0, stride)

    stride = 64
    a = np.random.default_rng(0).random(lanes * stride + 64).astype(dtype)
    b = np.zeros(lanes * lanes, dtype=dtype)
    c = np.zeros(lanes * stride + 64, dtype=dtype)
    d = np.zeros(lanes * stride + 64, dtype=dtype)
    d = d[(-d.ctypes.data) % 64 // d.itemsize :]
    there_and_back(a, stride, b, c, d)
    square = a[3 : 3 + lanes * stride].reshape(lanes, stride)[:, :lanes]
    np.testing.assert_array_equal(b.reshape(lanes, lanes), square.T)
    for back in (c, d):
        np.testing.assert_array_equal(
            back[: lanes * stride].reshape(lanes, stride)[:, :lanes], square
        )


def test_the_width_of_this_machine_is_one_that_exists() -> None:
    assert native_width() in (16, 32, 64)
