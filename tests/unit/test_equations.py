"""A step by equations: the stages in NumPy by hand give the same, and slabs know what they need."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tetris_sim.apps.time_functions import substitute
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Dirichlet, Neumann, Periodic
from tetris_sim.model.conduction import Parameter
from tetris_sim.model.equations import Equations, Stage, as_tap, tap
from tetris_sim.model.formula import Node, compile_expression
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem, Total
from tetris_sim.model.problem import StateVariable as Field
from tetris_sim.model.reference import allowed_error
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import star_mean

RING = Boundary(((Periodic(), Periodic()),) * 2)
NONE = Total("total", "1", 1.0)


def formula(text: str, **taps: Node) -> Node:
    """A formula in which names stand for taps."""
    names = [*taps, "dt", "a", "x", "y"]
    return substitute(compile_expression(text, names).tree, taps)


def around(name: str) -> dict[str, Node]:
    """Names for the taps of a star: center, north, south, west, east."""
    offsets = {"c": (0, 0), "n": (-1, 0), "s": (1, 0), "w": (0, -1), "e": (0, 1)}
    return {key: tap(name, offset) for key, offset in offsets.items()}


def laplace(name: str) -> Node:
    return formula("n + s + w + e - 4*c", **around(name))


def problem(equations: Equations, shape: tuple[int, ...] = (7, 9), **changes: Any) -> Problem:
    rng = np.random.default_rng(5)
    state = rng.uniform(0.1, 1.0, (len(equations.fields), *shape))
    return Problem(
        grid=Grid(shape, (1.0,) * len(shape), (0.0,) * len(shape)),
        stencil=star_mean(len(shape), equations.radii),
        boundary=next(iter(equations.boundaries.values())),
        initial=lambda slab: state[(slice(None), *(slice(*span) for span in slab.spans))],
        dt=0.1,
        steps=4,
        dtype=np.dtype(changes.pop("dtype", np.float64)),
        variables=tuple(Field(name, "1", name, NONE) for name in equations.fields),
        equations=equations,
        **changes,
    )


def step_of(tree: Node) -> Node:
    return formula("c + dt*rhs", c=tap("u", (0, 0)), rhs=tree)


DT = Parameter("dt", np.array([0.1]))


def test_a_tap_is_a_name_and_an_offset() -> None:
    assert as_tap(tap("u.1", (0, -12, 3)).name) == ("u.1", (0, -12, 3))
    assert as_tap("1/dx") is None


def test_one_stage_is_a_step_with_ghosts() -> None:
    walls = Boundary(((Dirichlet(2.0), Neumann(0.5)), (Neumann(), Dirichlet(0.0))))
    equations = Equations(
        ("u",), (Stage({"u'": step_of(laplace("u"))}),), {"u": "u'"}, {"u": walls}, (DT,)
    )
    it = problem(equations)
    u = it.initial(Slab.whole(it.grid))

    padded = reference.with_ghosts(u, walls, it.grid.spacing, (1, 1))[0]
    sums = padded[:-2, 1:-1] + padded[2:, 1:-1] + padded[1:-1, :-2] + padded[1:-1, 2:]
    expected = u[0] + 0.1 * (sums - 4 * u[0])

    np.testing.assert_allclose(reference.advance(u, it, 1)[0], expected, rtol=1e-14)


def test_coefficients_parameters_of_time_and_coordinates() -> None:
    rising = Parameter("a", lambda times: times[:, np.newaxis] + 1)
    stage = Stage({"u'": formula("c*a + k*x + y", c=tap("u", (0, 0)), k=tap("k", (0, 1)))})

    def given(box: tuple[tuple[int, int], ...]) -> Any:
        rows, columns = (np.arange(*span) for span in box)
        return np.add.outer(10.0 * rows, columns)

    walls = Boundary(((Neumann(), Neumann()),) * 2)
    it = problem(Equations(("u",), (stage,), {"u": "u'"}, {"u": walls}, (rising,), {"k": given}))
    u = it.initial(Slab.whole(it.grid))
    y, x = np.meshgrid(np.arange(7.0), np.arange(9.0), indexing="ij")
    k = np.add.outer(10.0 * np.arange(7), np.minimum(np.arange(9) + 1, 8))

    np.testing.assert_allclose(reference.advance(u, it, 1, first=3)[0], u[0] * 1.3 + k * x + y)


def cahn_hilliard(*, slowly: bool = False) -> Equations:
    """Two stages: the potential, then its Laplacian; and a field that both change."""
    potential = formula("c**3 - c - m", c=tap("u", (0, 0)), m=laplace("u"))
    counted = formula("c + dt*p", c=tap("v", (0, 0)), p=tap("mu", (0, 0)))
    return Equations(
        ("u", "v"),
        (Stage({"mu": potential}), Stage({"u'": step_of(laplace("mu")), "v'": counted})),
        {"u": "u'", "v": "v'"},
        {"u": RING, "mu": RING},
        (Parameter("dt", np.array([0.01 if slowly else 0.1])),),
    )


def test_stages_read_what_earlier_ones_gave() -> None:
    it = problem(cahn_hilliard())
    u, v = it.initial(Slab.whole(it.grid))

    def ring(a: Any) -> Any:
        return sum(np.roll(a, shift, axis) for shift in (-1, 1) for axis in (0, 1)) - 4 * a

    mu = u**3 - u - ring(u)
    expected = np.stack([u + 0.1 * ring(mu), v + 0.1 * mu])

    np.testing.assert_allclose(reference.advance(np.stack([u, v]), it, 1), expected, rtol=1e-12)


def test_slabs_know_how_far_each_stage_reaches() -> None:
    equations = cahn_hilliard()

    assert equations.margins == ((1, 1), (0, 0))
    assert equations.radii == (2, 2)
    assert equations.ghosts == {"u": (1, 1), "mu": (1, 1)}


def test_a_stage_beside_the_points_reaches_there_though_it_reads_no_field() -> None:
    stages = (Stage({"w": formula("x*y")}), Stage({"u'": step_of(laplace("w"))}))
    assert Equations(("u",), stages, {"u": "u'"}, {"w": RING}, (DT,)).radii == (1, 1)


def test_names_that_are_not_needed_together_share_memory() -> None:
    chain = [f"k{number}" for number in range(4)]
    before = ["u", *chain]
    stages = [Stage({new: laplace(old)}) for old, new in zip(before, chain, strict=False)]
    stages.append(Stage({"u'": step_of(laplace("k3"))}))
    equations = Equations(
        ("u",), tuple(stages), {"u": "u'"}, dict.fromkeys([*chain, "u"], RING), (DT,)
    )

    assert equations.n_work == 2
    assert all(equations.work[a] != equations.work[b] for a, b in itertools.pairwise(chain))
    assert equations.radii == (5, 5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_allowed_error_is_of_the_size_of_rounding(dtype: str) -> None:
    it = problem(cahn_hilliard(slowly=True), dtype=dtype)
    u = it.initial(Slab.whole(it.grid)).astype(dtype)
    expected = reference.advance(u, it, 4)
    allowed = allowed_error(u, expected, it, 4)
    eps = np.finfo(dtype).eps

    assert (allowed > 4 * eps).all()
    assert (allowed < 4000 * eps).all()


def test_on_a_larger_grid_coefficients_begin_anew() -> None:
    def given(box: tuple[tuple[int, int], ...]) -> Any:
        assert all(0 <= low < high <= n for (low, high), n in zip(box, (7, 9), strict=True))
        return np.add.outer(np.arange(*box[0]), np.arange(*box[1])).astype(float)

    stage = Stage({"u'": formula("c*k", c=tap("u", (0, 0)), k=tap("k", (0, 0)))})
    it = problem(Equations(("u",), (stage,), {"u": "u'"}, {"u": RING}, (), {"k": given}))
    larger = it.on_shape((14, 18))

    whole = larger.padded_coefficient("k", ((0, 14), (0, 18)))
    np.testing.assert_array_equal(whole[7:, 9:], whole[:7, :9])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": (Stage({"u'": laplace("w")}),)}, "nothing gave before"),
        ({"stages": (Stage({"u": laplace("u")}),)}, "given once"),
        ({"results": {"u": "v"}}, "needs a stage"),
        ({"boundaries": {}}, "no boundary"),
    ],
)
def test_what_does_not_fit_together_is_refused(changes: dict[str, Any], message: str) -> None:
    right = {
        "fields": ("u",),
        "stages": (Stage({"u'": laplace("u")}),),
        "results": {"u": "u'"},
        "boundaries": {"u": RING},
    }
    with pytest.raises(ValueError, match=message):
        Equations(**right | changes)
