"""Jumps: what any number of steps gives, for every face, stencil and layer that has one."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.body_samples import PLAIN, build, heat_model
from tests.support.cases import make_problem
from tests.support.jump_cases import KINDS, MATERIALS, HostArrays, jumped, stack, star, with_weights
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.solve.arithmetic import SPECTRAL
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.solvers.spectral.axis import Layered, ModalExpansion, Separable, SpectralAxis
from tetris_sim.solvers.spectral.operator import read_operator, why_not_spectral
from tetris_sim.solvers.spectral.propagation import SeparablePropagation, after, lasting_modes

MANY = 10_000
FACES: tuple[Face, ...] = (
    Dirichlet(2.0),
    Neumann(0.3, 2.0),
    Robin(3.0, 5.0, 0.7),
    Robin(0.01, -1.0, 0.7),
    Fixed(1.5),
)
PAIRS = [*itertools.product(FACES, FACES), (Periodic(), Periodic())]
ENDS = [(1.0, 1.0), (-1.0, -1.0), (1.0, -1.0), (-1.0, 1.0), (0.0, 0.0), (0.3, -0.7), (1.0, 0.99)]


def matrix_of(problem: Problem) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """A step of the reference as (A, f)."""
    n, shape = problem.grid.n_points, (1, *problem.grid.shape)
    f = reference.advance(np.zeros(shape), problem, 1).reshape(-1)
    units = np.eye(n).reshape(n, *shape)
    columns = [reference.advance(unit, problem, 1).reshape(-1) - f for unit in units]
    return np.stack(columns, axis=1), f


def stepped(problem: Problem, steps: int) -> npt.NDArray[Any]:
    """The state after steps of the reference, one after the other."""
    u = problem.initial(Slab.whole(problem.grid))
    if steps < 100:
        return np.asarray(reference.advance(u, problem, steps)[0])
    matrix, f = matrix_of(problem)
    flat = u.reshape(-1).astype(np.float64)
    for _ in range(steps):
        flat = matrix @ flat + f
    return flat.reshape(problem.grid.shape)


def assert_same(problem: Problem, steps: int, **options: Any) -> None:
    """To 1e-12 of the largest value; f has been rounded as part of A in `stepped`."""
    expected = stepped(problem, steps)
    largest = max(1.0, float(np.abs(expected).max()))
    np.testing.assert_allclose(
        jumped(problem, steps, **options), expected, rtol=0, atol=1e-12 * largest
    )


@pytest.mark.parametrize("n", [1, 2, 6, 7])
@pytest.mark.parametrize("ends", [None, *ENDS], ids=str)
def test_eigenvectors_are_orthonormal_and_their_transforms_agree(
    n: int, ends: tuple[float, float] | None, rng: np.random.Generator
) -> None:
    axis = SpectralAxis(n, ends)
    vectors = axis.vectors(np.arange(n))
    difference = np.eye(n, k=1) + np.eye(n, k=-1) - 2 * np.eye(n)
    if ends is None:
        difference = np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0) - 2 * np.eye(n)
    else:
        difference[0, 0] += ends[0]
        difference[-1, -1] += ends[1]
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(n), atol=1e-14)
    np.testing.assert_allclose(
        vectors @ difference, 2 * axis.less_one()[:, None] * vectors, atol=1e-14
    )

    u = rng.random((4, n, 3))
    whole = ModalExpansion(axis, 1, HostArrays())
    coefficients = whole.expand(u.copy())
    np.testing.assert_allclose(coefficients, np.einsum("kn,anb->akb", vectors, u), atol=1e-14)
    np.testing.assert_allclose(whole.sum(coefficients.copy()), u, atol=1e-14)


def test_vectors_of_a_long_axis_do_not_err_to_one_side() -> None:
    axis = SpectralAxis(1500, (0.99, 1.0))
    vectors = axis.matrix(np)
    ones = np.ones(axis.n)
    np.testing.assert_allclose(vectors.T @ (vectors @ ones), ones, rtol=0, atol=1.5e-14)


def test_angles_of_a_long_axis_keep_their_digits() -> None:
    # A face that hardly takes up heat: tan(theta / 2) tan(n theta) = e, for a first theta so small
    # that e / n = theta^2 / 2 but for parts of 1e-8.
    n, e = 10_000, 1e-12
    axis = SpectralAxis(n, ((1 - e) / (1 + e), 1.0))
    given_e = (1 - axis.ends[0]) / (1 + axis.ends[0])  # type: ignore[index]
    assert -axis.less_one()[0] == pytest.approx(given_e / n, rel=1e-7)
    theta = axis.theta[0]
    assert math.tan(theta / 2) * math.tan(n * theta) == pytest.approx(given_e, rel=1e-12)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(type(it).__name__ for it in pair))
def test_a_jump_over_many_steps_on_a_line(pair: tuple[Face, Face]) -> None:
    problem, _ = make_problem(star(1, 0.9), Boundary((pair,)), shape=(11,))
    problem = with_weights(problem, star(1, 0.9))
    for steps in (1, 2, 7, MANY):
        assert_same(problem, steps)


@settings(max_examples=25, deadline=None)
@given(
    pairs=st.lists(st.sampled_from(PAIRS), min_size=2, max_size=3),
    shape=st.tuples(*[st.integers(3, 6)] * 3),
    number=st.floats(0.01, 0.95),
    types=st.sampled_from([(1, 2, 3, 4), (2, 3)]),
)
def test_a_jump_over_many_steps_for_any_faces_in_2d_and_3d(
    pairs: list[tuple[Face, Face]], shape: tuple[int, ...], number: float, types: tuple[int, ...]
) -> None:
    ndim = len(pairs)
    problem, _ = make_problem(star(ndim, number), Boundary(tuple(pairs)), shape=shape[:ndim])
    assert_same(with_weights(problem, star(ndim, number)), MANY, arrays=HostArrays(types))


@pytest.mark.parametrize(
    ("name", "faces"),
    [
        ("box-2d9p", ((Robin(3.0, 5.0), Fixed(1.0)), (Neumann(0.2), Dirichlet(1.0)))),
        ("box-3d27p", ((Robin(3.0, 5.0), Fixed(1.0)), (Periodic(),) * 2, (Neumann(), Robin(1, 2)))),
        ("box-2d25p", ((Neumann(), Dirichlet(1.0)), (Periodic(),) * 2)),
        ("star-2d9p", ((Neumann(), Dirichlet(1.0)), (Fixed(2.0), Fixed(1.0)))),
        ("star-2d13p", ((Fixed(0.5), Fixed(1.0)), (Dirichlet(1.0),) * 2)),
    ],
)
def test_a_jump_of_wide_stencils(name: str, faces: tuple[tuple[Face, Face], ...]) -> None:
    stencil = named_stencil(name).stencil
    shape = (7, 9, 5)[: stencil.ndim]
    problem, _ = make_problem(stencil, Boundary(faces), shape=shape, mirrored=True)
    for steps in (1, 6, MANY):
        assert_same(problem, steps)


@pytest.mark.parametrize("kinds", [*itertools.product("dnrf", repeat=2), ("p", "p")], ids="".join)
def test_a_jump_through_layers(kinds: tuple[str, str]) -> None:
    faces = {"x-": KINDS[kinds[0]], "x+": KINDS[kinds[1]]}
    problem = stack((13,), "x", faces)
    assert isinstance(read_operator(problem), Layered)
    for steps in (1, MANY):
        assert_same(problem, steps)


@pytest.mark.parametrize(
    ("shape", "across", "kinds"),
    [
        *(((6, 7), across, kinds) for across, kinds in itertools.product("xy", ("nd", "rp", "fd"))),
        ((5, 4, 7), "z", "rdp"),
        ((5, 4, 7), "y", "ndp"),
        ((4, 7, 5), "x", "rdf"),
    ],
)
def test_a_jump_of_stacks(shape: tuple[int, ...], across: str, kinds: str) -> None:
    lateral = [name for name in "xyz"[: len(shape)] if name != across]
    faces = {f"{across}-": KINDS[kinds[0]], f"{across}+": KINDS["d" if kinds[0] == "r" else "r"]}
    faces |= {name: KINDS[kind] for name, kind in zip(lateral, kinds[1:], strict=False)}
    problem = stack(shape, across, faces)
    for steps in (1, MANY):
        assert_same(problem, steps)


def test_contacts_sources_and_parts_of_faces_come_along() -> None:
    faces = {"x": KINDS["d"], "y": KINDS["r"]}
    contact = [{"between": ["a", "b"], "resistance": 0.05}]
    assert_same(stack((6, 7), "y", faces, contacts=contact), MANY)
    heated = [{"density": "3 + x*y", "where": "x > 0.2"}]
    assert_same(stack((6, 7), "y", faces, sources=heated), MANY)

    parts = [{"type": "dirichlet", "value": 9.0, "where": "y > 0.3"}, KINDS["d"]]
    problem = build(
        grid={"shape": [6, 7], "size": [0.6, 0.7]},
        model={"type": "heat", **PLAIN, "sources": [{"density": 30, "where": "x > 0.3"}]},
        boundaries={"x": parts, "y": KINDS["r"]},
    )
    assert isinstance(read_operator(problem), Separable)
    assert_same(problem, MANY)


def test_what_has_decayed_is_left_out_and_not_missed() -> None:
    problem, _ = make_problem(
        star(2, 0.9),
        Boundary(((Neumann(), Neumann()), (Robin(1.0, 0.0), Robin(2.0, 0.0)))),
        shape=(40, 61),
    )
    problem = with_weights(problem, star(2, 0.9))
    operator = read_operator(problem)
    assert isinstance(operator, Separable)
    for place, n in enumerate(problem.grid.shape):
        assert 1 < len(lasting_modes(operator, place, 500)) < n // 2
    jump = SeparablePropagation(operator, HostArrays())
    few = jump.advance(problem.initial(Slab.whole(problem.grid))[0].copy(), 500)
    jump._picked = lambda steps: (None, None)  # type: ignore[assignment]
    every = jump.advance(problem.initial(Slab.whole(problem.grid))[0].copy(), 500)
    assert float(np.abs(every).max()) > 1e-3
    np.testing.assert_allclose(few, every, rtol=0, atol=1e-15)


@pytest.mark.parametrize("less", [-1e-9, -0.3, -1.7, 0.0])
def test_growth_keeps_its_digits_over_millions_of_steps(less: float) -> None:
    steps = 3_800_001
    power, total = after(np, np.array([less]), steps, sums=True)
    with localcontext() as exact:
        exact.prec = 60
        g = 1 + Decimal(less)
        expected = g**steps
        sums = Decimal(steps) if less == 0 else (1 - expected) / (1 - g)
    assert power[0] == pytest.approx(float(expected), rel=1e-14, abs=1e-300)
    assert total[0] == pytest.approx(float(sums), rel=1e-14)


def test_a_state_of_float32_is_computed_in_float64_and_rounded() -> None:
    boundary = Boundary(((Dirichlet(2.0), Robin(3.0, 5.0)), (Periodic(), Periodic())))
    problem, _ = make_problem(star(2, 0.9), boundary, shape=(9, 8), dtype=np.float32)
    problem = with_weights(problem, star(2, 0.9))
    team = ThreadTeam(2)
    stepper = SPECTRAL.prepare(problem, Slab.whole(problem.grid), {}, team)
    stepper.load(problem.initial)
    stepper.advance(300)
    got = stepper.interior()
    stepper.close()
    team.close()
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got[0], jumped(problem, 300).astype(np.float32))


def body(**changes: Any) -> Problem:
    return build(
        **{
            "grid": {"shape": [6, 7], "size": [0.6, 0.7]},
            "model": {"type": "heat", "materials": MATERIALS, "regions": [{"material": "a"}]},
            **changes,
        }
    )


REFUSED = {
    "both sides of each axis": lambda: make_problem(
        Stencil(((0,), (-1,), (1,)), (0.5, 0.3, 0.2)), Boundary(((Periodic(), Periodic()),))
    )[0],
    "float16": lambda: make_problem(
        star(1, 0.5), Boundary(((Neumann(), Neumann()),)), dtype=np.float16, mirrored=True
    )[0],
    "of several fields": lambda: make_problem(
        star(1, 0.5), Boundary(((Neumann(), Neumann()),)), n_fields=2, mirrored=True
    )[0],
    "takes up heat by h": lambda: make_problem(
        named_stencil("star-1d5p").stencil,
        Boundary(((Robin(1.0, 0.0), Neumann()),)),
        mirrored=True,
    )[0],
    "points off its axes": lambda: make_problem(
        named_stencil("box-2d25p").stencil, Boundary(((Fixed(1.0), Fixed(1.0)),) * 2), mirrored=True
    )[0],
    "more than one axis": lambda: body(
        model=heat_model(
            {"material": "a"},
            {"material": "b", "where": "x > 0.3"},
            {"material": "c", "where": "y > 0.3"},
            materials=MATERIALS,
        )
    ),
    "face x- changes": lambda: body(
        boundaries={
            "*": {"type": "neumann"},
            "x-": {"type": "dirichlet", "value": "20 + 5*sin(t)"},
        }
    ),
    "sources change with time": lambda: body(
        model=heat_model(
            {"material": "a"},
            materials=MATERIALS,
            sources=[{"density": 30, "over_time": [[0, 0], ["1 s", 1]]}],
        )
    ),
    "not the same everywhere on it": lambda: body(
        boundaries={
            "*": {"type": "neumann"},
            "x-": [{"type": "dirichlet", "value": 9.0, "where": "y > 0.3"}, {"type": "neumann"}],
        }
    ),
    "depend on temperature": lambda: body(
        model=heat_model(
            {"material": "a"},
            materials={"a": {**PLAIN, "conductivity": {"table": [[0, 1], [100, 2]]}}},
        )
    ),
    "differ in width": lambda: body(
        grid={
            "size": [0.6, 0.7],
            "shape": [2100, 7],
            "graded": {"x": {"segments": [{"to": 0.3, "n": 2000}, {"to": 0.6, "n": 100}]}},
        }
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_what_has_no_jump_says_why(reason: str) -> None:
    assert reason in (why_not_spectral(REFUSED[reason]()) or "")


def test_a_layer_that_a_lateral_face_cools_is_refused() -> None:
    problem = stack((6, 7), "y", {"x": KINDS["r"], "y": KINDS["d"]})
    assert "the face x- is not the same everywhere" in (why_not_spectral(problem) or "")


def test_a_jump_wants_the_whole_grid() -> None:
    problem, _ = make_problem(star(1, 0.5), Boundary(((Neumann(), Neumann()),)), mirrored=True)
    half = Slab((0,), (5,), ((0, 1),))
    with pytest.raises(ValueError, match="whole grid"):
        SPECTRAL.prepare(problem, half, {}, SimpleNamespace(size=1))
