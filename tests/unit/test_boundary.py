from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tetris_sim.model.boundary import (
    SIDES,
    Boundary,
    Dirichlet,
    Face,
    Fixed,
    Neumann,
    Periodic,
    Robin,
    Side,
)

SPACING, WIDTH = 0.25, 3
DISTANCES = tuple((2 * j - 1) * SPACING for j in (1, 2, 3))  # between ghost j and its mirror point
finite = st.floats(-1e6, 1e6)
positive = st.floats(1e-3, 1e3)


def reflections(face: Face, side: Side = "low") -> tuple[tuple[float, float], ...]:
    return Boundary(((face, face),)).reflections(0, side, spacing=SPACING, width=WIDTH)


@given(value=finite, mirror=finite)
def test_dirichlet_makes_the_average_of_ghost_and_mirror_the_value(
    value: float, mirror: float
) -> None:
    for a, b in reflections(Dirichlet(value)):
        assert (a + b * mirror + mirror) / 2 == pytest.approx(value, abs=1e-9)


@given(value=finite)
def test_fixed_gives_ghosts_the_value_whatever_is_inside(value: float) -> None:
    assert reflections(Fixed(value)) == ((value, 0.0),) * WIDTH


@given(flux=finite, conductivity=positive, mirror=finite)
def test_neumann_makes_the_slope_at_the_face_the_flux_into_the_body(
    flux: float, conductivity: float, mirror: float
) -> None:
    for (a, b), distance in zip(reflections(Neumann(flux, conductivity)), DISTANCES, strict=True):
        slope = (a + b * mirror - mirror) / distance  # outward, as the ghost lies outside
        assert conductivity * slope == pytest.approx(flux, rel=1e-9, abs=1e-6 * conductivity)


@given(
    h=st.floats(0, 1e3),
    ambient=st.floats(-300, 300),
    conductivity=positive,
    mirror=st.floats(-300, 300),
)
def test_robin_makes_conducted_and_convected_heat_equal_at_the_face(
    h: float, ambient: float, conductivity: float, mirror: float
) -> None:
    for (a, b), distance in zip(
        reflections(Robin(h, ambient, conductivity)), DISTANCES, strict=True
    ):
        ghost = a + b * mirror
        conducted = conductivity * (ghost - mirror) / distance
        convected = h * (ambient - (ghost + mirror) / 2)
        scale = (conductivity / distance + h) * 600
        assert conducted == pytest.approx(convected, abs=1e-13 * scale)


def test_robin_without_convection_is_an_insulated_face() -> None:
    assert reflections(Robin(h=0.0, ambient=50.0)) == reflections(Neumann())


def test_robin_with_strong_convection_tends_to_the_ambient_value_on_the_face() -> None:
    for (a, b), (a_limit, b_limit) in zip(
        reflections(Robin(1e12, 20.0)), reflections(Dirichlet(20.0)), strict=True
    ):
        assert a == pytest.approx(a_limit, rel=1e-9)
        assert b == pytest.approx(b_limit, rel=1e-9)


def test_a_warm_ambient_and_a_flux_into_the_body_both_warm_it() -> None:
    (a, b) = reflections(Robin(h=2.0, ambient=100.0))[0]
    assert a + b * 20.0 > 20.0
    (a, b) = reflections(Neumann(flux=5.0))[0]
    assert a + b * 20.0 > 20.0


def test_each_side_of_an_axis_has_its_own_condition() -> None:
    boundary = Boundary(((Dirichlet(1.0), Fixed(2.0)), (Periodic(), Periodic())))
    assert boundary.reflections(0, "low", spacing=1.0, width=1) == ((2.0, -1.0),)
    assert boundary.reflections(0, "high", spacing=1.0, width=1) == ((2.0, 0.0),)
    assert [boundary.periodic(axis) for axis in (0, 1)] == [False, True]


def test_one_condition_can_hold_everywhere() -> None:
    assert Boundary.everywhere(Fixed(1.0), 2).faces == ((Fixed(1.0), Fixed(1.0)),) * 2


def test_an_axis_that_is_periodic_on_one_side_only_is_refused() -> None:
    for faces in ((Periodic(), Fixed(0.0)), (Fixed(0.0), Periodic())):
        with pytest.raises(ValueError, match="periodic on one side only"):
            Boundary((faces,))


def test_a_periodic_axis_has_no_reflections() -> None:
    for side in SIDES:
        with pytest.raises(TypeError, match="copies, not reflections"):
            reflections(Periodic(), side)


@pytest.mark.parametrize(
    "face",
    [
        lambda: Robin(-1.0, 0.0),
        lambda: Robin(1.0, 0.0, 0.0),
        lambda: Neumann(1.0, -2.0),
    ],
)
def test_a_face_that_creates_heat_out_of_nothing_is_refused(face: object) -> None:
    assert callable(face)
    with pytest.raises(ValueError, match="must be"):
        face()


@pytest.mark.parametrize(
    ("face", "message"),
    [
        (lambda: Robin(math.nan, 0), r"Robin\(h=\) takes a finite number, got nan"),
        (lambda: Robin(h="5", ambient=1), r"Robin\(h=\) takes a finite number, got '5'"),  # type: ignore[arg-type]
        (lambda: Dirichlet(math.inf), r"Dirichlet\(value=\) takes a finite number, got inf"),
    ],
)
def test_what_is_no_number_is_refused(face: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        face()


def test_numbers_that_overflow_are_refused() -> None:
    with pytest.raises(ValueError, match="not finite"):
        reflections(Dirichlet(1.7e308))
