"""Ghosts beyond a face that changes with time, filled once for a block, against single steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import pytest

from tetris_sim.model.deep_ghosts import BoundaryExpansion, make_course

Numbers = npt.NDArray[np.float64]
course_of = functools.cache(make_course)  # in exact numbers, which takes a while
EPS = float(np.finfo(np.float64).eps)
WEIGHTS, SLOPES, DEPTHS = (1 / 3, 0.25, 0.1, 0.01), (-1.0, 0.0, 0.8, 1.0), (2, 3, 16, 64, 128)
SLOW: dict[str, Callable[[Numbers], Numbers]] = {
    "constant": lambda t: 0.7 + 0 * t,
    "wave": lambda t: 0.5 + 0.4 * np.sin(t / 5000),
    "ramp": lambda t: 1 + 3e-4 * t,
}
ROUGH: dict[str, Callable[[Numbers], Numbers]] = {
    "jumps": lambda t: np.where(t % 100 < 50, 0.2, 1.0),
    "kinks": lambda t: np.abs(t % 90 - 45) / 45,
    "quick wave": lambda t: np.sin(t / 7),
    "noise": lambda t: np.modf(np.abs(np.sin(t * 12.9898)) * 43758.5453)[0],
}


def blocks(
    u: Numbers, w: float, b: float, course: BoundaryExpansion, a: Numbers
) -> tuple[Numbers, list[int]]:
    """The state of a line after blocks of steps with ghosts filled before each, and which of the
    blocks are right; a wall at the high end.

    Args:
        u: before.
        w: weight of each neighbour.
        b: of the face at the low end.
        course: of it.
        a: by block and step.
    """
    terms = course.terms(a)
    right = course.right(a, terms)
    n, depth = len(u), a.shape[1]
    for block, given in enumerate(terms):
        if not right[block]:
            u = steps(u, w, b, a[block])
            continue
        added = course.parts @ given
        whole = np.concatenate([np.zeros(depth), u, u[::-1][:depth]])
        for g in range(depth):
            powers = b ** np.arange(g)[::-1]
            whole[depth - 1 - g] = (b * b - 1) * (powers @ u[:g]) + b * u[g] + added[g]
        for _ in range(depth):
            whole[1:-1] = (1 - 2 * w) * whole[1:-1] + w * (whole[:-2] + whole[2:])
        u = whole[depth : depth + n]
    return u, np.flatnonzero(right).tolist()


def steps(u: Numbers, w: float | Numbers, b: float | Numbers, a: Numbers) -> Numbers:
    """The same by single steps, of one line or of several (..., n)."""
    whole = np.empty((*u.shape[:-1], u.shape[-1] + 2))
    for given in a:
        whole[..., 1:-1], whole[..., -1:] = u, u[..., -1:]
        whole[..., :1] = given + b * u[..., :1]
        u = (1 - 2 * w) * whole[..., 1:-1] + w * (whole[..., :-2] + whole[..., 2:])
    return u


def courses_of(depth: int, of: Callable[[Numbers], Numbers], n: int) -> Numbers:
    return of(np.arange(float(n * depth))).reshape(n, depth)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("kind", [*SLOW, *ROUGH])
def test_blocks_that_are_right_are_as_near_as_single_steps(
    rng: np.random.Generator, kind: str, depth: int
) -> None:
    a, pairs = courses_of(depth, (SLOW | ROUGH)[kind], 24), [*product(WEIGHTS, SLOPES)]
    states = rng.uniform(0, 1, (len(pairs), 2 * depth + 3))
    weights, slopes = np.array(pairs).T[..., None]
    all_wanted = steps(states, weights, slopes, a.reshape(-1))
    for (w, b), u, wanted in zip(pairs, states, all_wanted, strict=True):
        found, right = blocks(u, w, b, course_of(w, b, depth), a)
        # What `reference.tolerance` allows, a ghost being up to 2 * a / (1 - b) where that is large.
        largest = max(1.0, np.abs(wanted).max(), np.abs(a).max())
        assert np.abs(found - wanted).max() <= 2 * a.size * 8 * EPS * largest
        if kind in SLOW and depth <= 64:
            assert right == list(range(24))


def test_jumps_within_deep_blocks_are_found(rng: np.random.Generator) -> None:
    a = courses_of(16, ROUGH["jumps"], 25)
    jumps = {k // 16 for k in range(1, 400) if a.flat[k] != a.flat[k - 1] and k % 16}
    for w, b in product(WEIGHTS, SLOPES):
        course = course_of(w, b, 16)
        right = course.right(a, course.terms(a))
        assert set(np.flatnonzero(~right)) == jumps


@pytest.mark.parametrize(("w", "b"), [(0.25, -1.0), (0.25, 0.6), (0.02, -1.0), (0.02, 0.6)])
def test_what_is_told_of_a_jump_would_be_wrong(
    rng: np.random.Generator, w: float, b: float
) -> None:
    """Sixteen terms tell it, but rounding errors of 16 steps exceed what is allowed."""
    course, a = make_course(w, b, 16), np.zeros((1, 16))
    a[0, 8:] = 1.0
    terms = course.terms(a)
    assert np.abs(terms @ course.values.T - a).max() < 1e-14
    assert not course.right(a, terms)[0]


def test_a_wave_after_many_periods_is_right(rng: np.random.Generator) -> None:
    """Its values are noisy: an argument of 1e4 is rounded by a thousand times the last place."""
    t = 5e6 + np.arange(16.0 * 20)
    a = (0.5 + 0.4 * np.sin(t / 500)).reshape(20, 16)
    course = make_course(0.2, 0.8, 16)
    assert course.right(a, course.terms(a)).all()
    u = rng.uniform(0, 1, 40)
    found, _ = blocks(u, 0.2, 0.8, course, a)
    assert np.abs(found - steps(u, 0.2, 0.8, a.reshape(-1))).max() < 1e-14


def test_sums_are_those_of_the_recurrence() -> None:
    """S_g by single differences in exact numbers."""
    w, depth = Fraction(1, 5), 6
    a = [Fraction(k**3 - 4 * k, 7) for k in range(2 * depth)]
    before, now = a, [x + (y - x) / (2 * w) for x, y in pairwise(a)]
    sums = [before[0], now[0]]
    for _ in range(2, depth):
        nexts = [2 * x + (y - x) / w - z for x, y, z in zip(now, now[1:], before, strict=False)]
        before, now = now, nexts
        sums.append(now[0])
    ghosts = [float(sums[0])]
    for it in sums[1:]:
        ghosts.append(-0.5 * ghosts[-1] + 2 * float(it))
    course = make_course(0.2, -0.5, depth)
    terms = course.terms(np.array([[float(it) for it in a[:depth]]]))
    np.testing.assert_allclose(course.parts @ terms[0], ghosts, rtol=1e-12, atol=1e-13)
