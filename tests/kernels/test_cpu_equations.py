"""CPU methods by equations: the oracle's answer, and the same bits however they are computed."""

from __future__ import annotations

import functools
import threading
from typing import Any

import numpy as np
import pytest

from tests.support.cases import run
from tests.support.cpu_equation_cases import CASES, problem
from tests.support.exact import equation_step
from tetris_sim.cpu_kernels import METHODS
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.equations import tables
from tetris_sim.cpu_kernels.equations.rings import follow
from tetris_sim.cpu_kernels.equations.steppers import Sweeps
from tetris_sim.model import reference
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import padded
from tetris_sim.model.method import Method, Parameters
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.reference import allowed_error
from tetris_sim.model.slab import Slab

STREAM, PLAIN = METHODS[0], METHODS[-1]
# Strips of few points: every one lies at a face or beside others.
WAYS: dict[str, tuple[Method, Parameters]] = {
    "plain": (PLAIN, {}),
    "stream": (STREAM, {"steps_per_block": 3, "tile_x": 8, "tile_y": 4, "visit": 1}),
    "stream, one step": (STREAM, {"steps_per_block": 1, "tile_x": 1000, "tile_y": 3, "visit": 2}),
    "stream, many steps": (STREAM, {"steps_per_block": 9, "tile_x": 16, "tile_y": 5, "visit": 3}),
}
STEPS = 12
# Compiling takes most of the time, so few of them in float32.
SINGLE = ("gray-scott", "corners 2d", "conditions", "brusselator")
BLOCKS = (1, 7, 4)


def whole(it: Problem) -> Field:
    return it.initial(Slab.whole(it.grid))


@functools.cache
def plain(name: str, dtype: str = "float64", steps: int = STEPS) -> Field:
    """What one thread makes of a case in one block."""
    team = ThreadTeam(1)
    found = run(PLAIN, problem(name, dtype), {}, team, (steps,))
    team.close()
    return found


@pytest.mark.parametrize(
    ("name", "dtype"), [*((it, "float64") for it in CASES), *((it, "float32") for it in SINGLE)]
)
def test_it_agrees_with_the_reference(name: str, dtype: str) -> None:
    it = problem(name, dtype)
    expected = reference.advance(whole(it), it, STEPS)
    found = plain(name, dtype)

    assert found.dtype == it.dtype
    error = np.abs(found.astype(float) - expected)
    assert (error <= allowed_error(whole(it), expected, it, STEPS)).all()
    assert not np.array_equal(found, whole(it))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", CASES)
def test_any_number_of_threads_and_blocks_has_the_same_bits(
    name: str, way: str, teams: dict[int, ThreadTeam]
) -> None:
    method, parameters = WAYS[way]
    for team in teams.values():
        found = run(method, problem(name), parameters, team, BLOCKS)
        np.testing.assert_array_equal(found, plain(name))


def test_threads_that_come_together_read_the_tables_that_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    it, team, together, tell = (
        problem("gray-scott"),
        ThreadTeam(2),
        threading.Barrier(2),
        Sweeps._tell,
    )

    def met(self: Sweeps, *args: Any) -> tuple[Any, ...]:
        found = tell(self, *args)
        together.wait(20)  # both have made tables before either of them begins
        return found

    read: list[Any] = []
    monkeypatch.setattr(Sweeps, "_tell", met)
    stepper: Any = PLAIN.prepare(it, Slab.whole(it.grid), {}, team)
    monkeypatch.setattr(stepper._advance, "_loop", lambda *of: read.append(of[2]))
    stepper.load(it.initial)
    stepper.advance(1)
    stepper.close()
    team.close()
    # Compiled code reads by address what Python frees with the last reference to it.
    kept = [own for own, *_ in stepper._advance._known.values()]
    assert [id(own) for own in read] == [id(kept[0])] * 2


@pytest.mark.parametrize("name", ["gray-scott", "corners 2d", "brusselator"])
def test_what_lies_around_strips_is_not_read(name: str, teams: dict[int, ThreadTeam]) -> None:
    it, team = problem(name, "float32"), teams[2]
    method, parameters = WAYS["stream"]
    stepper = method.prepare(it, Slab.whole(it.grid), parameters, team)
    stepper.load(it.initial)
    stepper._advance._rings.fill(np.nan)  # type: ignore[attr-defined]
    stepper.advance(STEPS)
    found = stepper.interior()
    stepper.close()
    np.testing.assert_array_equal(found, plain(name, "float32"))


SMALL: dict[str, tuple[int, ...]] = {
    "gray-scott": (4, 5),
    "cahn-hilliard": (4, 5),
    "leapfrog, own ghosts": (4, 5),
    "corners 1d": (7,),
    "corners 2d": (4, 5),
    "corners 3d, rings": (3, 3, 5),
    "conditions": (3, 6),
    "kuramoto-sivashinsky, walls": (9,),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((it, "float64") for it in SMALL), *((it, "float32") for it in SMALL if it in SINGLE)],
)
def test_bits_are_those_of_the_instructions(
    name: str, dtype: str, teams: dict[int, ThreadTeam]
) -> None:
    it = problem(name, dtype, SMALL[name])
    expected = whole(it)
    for number in range(2):
        expected = equation_step(expected, it, number)
    np.testing.assert_array_equal(run(PLAIN, it, {}, teams[2], (2,)), expected)


HALOS: list[tuple[str, tuple[tuple[int, int], ...]]] = [
    ("gray-scott", ((4, 5), (0, 0))),
    ("gray-scott", ((0, 4), (4, 0))),
    ("gray-scott, rings", ((3, 3), (3, 3))),
    ("cahn-hilliard", ((4, 4), (0, 0))),
    ("leapfrog, own ghosts", ((5, 4), (0, 0))),
    ("brusselator", ((4, 0), (0, 0), (0, 0))),
    ("kuramoto-sivashinsky", ((8, 9),)),
    ("kuramoto-sivashinsky, walls", ((0, 8),)),
    ("corners 2d", ((4, 4), (8, 0))),
    ("corners 3d", ((0, 3), (3, 3), (0, 6))),
    ("corners 3d, rings", ((0, 2), (2, 2), (4, 4))),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("name", "halo"), HALOS)
def test_a_slab_has_the_bits_of_the_whole(
    name: str, halo: tuple[tuple[int, int], ...], way: str, teams: dict[int, ThreadTeam]
) -> None:
    it = problem(name)
    shape, radii = it.grid.shape, it.stencil.radii
    steps = min(
        width // radius for pair, radius in zip(halo, radii, strict=True) for width in pair if width
    )
    rings = [it.boundary.periodic(axis) for axis in range(len(shape))]
    # A ring that is cut begins at 1, so that its halo goes around.
    start = tuple(
        (1 if ring else n // 2) if low else 0
        for n, ring, (low, _) in zip(shape, rings, halo, strict=True)
    )
    stop = tuple(
        (n - 1 if ring else n - high) if high else n
        for n, ring, (_, high) in zip(shape, rings, halo, strict=True)
    )
    slab, first = Slab(start, stop, halo), 3
    before, after = plain(name, steps=first), plain(name, steps=first + steps)

    method, parameters = WAYS[way]
    stepper = method.prepare(it, slab, parameters, teams[3])
    stepper.load(_pick(before), first)
    for axis, widths in enumerate(halo):
        for side, width in zip(SIDES, widths, strict=True):
            if width:
                box = slab.globally(slab.halo_ranges(axis, SIDES.index(side)))
                planes = [padded(_of(field), box, shape, rings) for field in before]
                stepper.set_halo(axis, side, np.stack(planes))
    stepper.advance(steps)
    found = stepper.interior()
    stepper.close()
    np.testing.assert_array_equal(found, _pick(after)(slab))


def _of(field: Any) -> Any:
    return lambda box: field[tuple(slice(*span) for span in box)]


def _pick(state: Field) -> Any:
    return lambda slab: state[(slice(None), *(slice(*span) for span in slab.spans))]


@pytest.mark.parametrize("way", ["plain", "stream"])
def test_a_restart_at_a_step_goes_on_with_the_same_bits(
    way: str, teams: dict[int, ThreadTeam]
) -> None:
    it, (method, parameters) = problem("corners 2d"), WAYS[way]
    stepper = method.prepare(it, Slab.whole(it.grid), parameters, teams[2])
    stepper.load(_pick(plain("corners 2d", steps=65)), 65)
    stepper.advance(5)
    found = stepper.interior()
    stepper.close()

    np.testing.assert_array_equal(found, plain("corners 2d", steps=70))
    assert not np.array_equal(found, plain("corners 2d", steps=69))


@pytest.mark.parametrize("way", ["plain", "stream"])
def test_blocks_longer_than_their_tables_have_the_same_bits(
    way: str, teams: dict[int, ThreadTeam], monkeypatch: pytest.MonkeyPatch
) -> None:
    method, parameters = WAYS[way]
    expected = plain("corners 2d")
    monkeypatch.setattr(tables, "_MOST_NUMBERS", 7)
    found = run(method, problem("corners 2d"), parameters, teams[2], (STEPS,))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["gray-scott", "brusselator", "kuramoto-sivashinsky"])
def test_what_the_tuner_may_choose_is_taken(name: str, teams: dict[int, ThreadTeam]) -> None:
    it = problem(name)
    for parameters in STREAM.parameters(it):
        found = run(STREAM, it, parameters, teams[1], BLOCKS)
        np.testing.assert_array_equal(found, plain(name))
        assert STREAM.memory(it, Slab.whole(it.grid), parameters) > 2 * it.state_bytes


def test_memory_counts_work_and_coefficients() -> None:
    for name, arrays in (("cahn-hilliard", 3), ("corners 2d", 3), ("gray-scott", 2)):
        it = problem(name)
        wanted = arrays * it.state_bytes
        assert wanted <= PLAIN.memory(it, Slab.whole(it.grid), {}) < 8 * wanted


@pytest.mark.parametrize("method", [PLAIN, STREAM])
def test_half_precision_is_refused(method: Method) -> None:
    refusal = method.refusal(problem("gray-scott", "float16"))
    assert refusal is not None
    assert "float64 or float32" in refusal
    assert method.refusal(problem("gray-scott", "float32")) is None


def test_planes_of_rings_are_few_and_stages_follow_closely() -> None:
    found = follow(CASES["gray-scott"][1](), 2, 1)
    assert (found.lags, found.lag, found.period) == ((1,), 1, 3)
    assert found.depths == {"u": 3, "v": 3}

    found = follow(CASES["cahn-hilliard"][1](), 2, 2)
    assert (found.lags, found.lag) == ((1, 2), 2)
    assert found.depths == {"u": 4, "mu": 4}
