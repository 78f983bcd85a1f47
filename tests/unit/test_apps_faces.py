from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from tests.support.body_samples import PLAIN, build, finish
from tetris_sim.apps.boundaries import conductivity_gaps, find_face, make_boundary
from tetris_sim.config.sections.conditions import FaceSection
from tetris_sim.errors import ConfigError
from tetris_sim.model.boundary import Boundary, Dirichlet, Fixed, Neumann, Periodic, Robin

ADAPTER: TypeAdapter[Any] = TypeAdapter(dict[str, FaceSection])


def sections(**faces: dict[str, Any]) -> dict[str, FaceSection]:
    """Sections by key; `x_low` stands for x-, `x_high` for x+, `rest` for *."""
    keys = {
        name.replace("_low", "-").replace("_high", "+").replace("rest", "*"): face
        for name, face in faces.items()
    }
    return dict(ADAPTER.validate_python(keys))


def fixed(value: float) -> dict[str, Any]:
    return {"type": "fixed", "value": value}


def test_the_face_itself_counts_more_than_its_axis_and_that_more_than_the_rest() -> None:
    faces = sections(rest=fixed(0), x=fixed(1), x_low=fixed(2))
    assert [find_face(faces, name) for name in ("x-", "x+", "y-")] == ["x-", "x", "*"]
    assert find_face(sections(x=fixed(1)), "y-") is None
    assert make_boundary(faces, 2, conductivity=None) == Boundary(
        ((Fixed(0), Fixed(0)), (Fixed(2), Fixed(1)))
    )


def test_faces_are_turned_from_x_y_z_into_array_order() -> None:
    faces = sections(
        x_low=fixed(1),
        x_high=fixed(2),
        y_low=fixed(3),
        y_high=fixed(4),
        z_low=fixed(5),
        z_high=fixed(6),
    )
    boundary = make_boundary(faces, 3, conductivity=None)
    assert boundary.faces == ((Fixed(5), Fixed(6)), (Fixed(3), Fixed(4)), (Fixed(1), Fixed(2)))


def test_every_kind_of_face_becomes_its_condition() -> None:
    faces = sections(
        x_low={"type": "dirichlet", "value": 1},
        x_high={"type": "neumann", "flux": 7},
        y_low={"type": "robin", "h": 3, "ambient": 4},
        y_high={"type": "robin", "h": 3, "ambient": 4, "conductivity": 9},
        z={"type": "periodic"},
    )
    assert make_boundary(faces, 3, conductivity=5.0).faces == (
        (Periodic(), Periodic()),
        (Robin(3, 4, 5), Robin(3, 4, 9)),
        (Dirichlet(1), Neumann(7, 5)),
    )


def test_an_insulated_face_needs_no_conductivity() -> None:
    assert make_boundary(sections(rest={"type": "neumann"}), 1, conductivity=None) == Boundary(
        ((Neumann(), Neumann()),)
    )


def test_heat_through_a_face_needs_the_conductivity() -> None:
    faces = sections(
        rest={"type": "neumann", "flux": 1},
        x={"type": "robin", "h": 1, "ambient": 0},
        y={"type": "robin", "h": 1, "ambient": 0, "conductivity": 2},
    )
    assert [key for key, _ in conductivity_gaps(faces, 2)] == [
        "x"
    ]  # `*` decides about no face of a 2D grid
    assert [key for key, _ in conductivity_gaps(faces, 3)] == ["x", "*"]
    with pytest.raises(
        ConfigError, match=r"boundaries\.\*.*model\.conductivity or model\.material"
    ):
        make_boundary(faces, 3, conductivity=None)


def test_a_face_of_which_nothing_is_said_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no condition is given for the face y-"):
        make_boundary(sections(x=fixed(0), y_high=fixed(0)), 2, conductivity=None)


def test_an_axis_periodic_on_one_side_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"only one of the faces x- and x[+] is periodic"):
        make_boundary(sections(rest=fixed(0), x_low={"type": "periodic"}), 2, conductivity=None)


@pytest.mark.parametrize("emissivity", [0.0, 0.9])
@pytest.mark.parametrize("flux", [700.0, "700 + 0*t"])
def test_flux_convection_and_radiation_of_one_face_add_up(emissivity: float, flux: Any) -> None:
    from scipy.optimize import brentq

    kind = {"type": "radiation", "emissivity": emissivity} if emissivity else {"type": "robin"}
    problem = build(
        boundaries={
            "x-": {"type": "dirichlet", "value": 20},
            "x+": {**kind, "h": 8, "ambient": -5, "flux": flux},
        },
        model={"type": "heat", **PLAIN, "conductivity": 2},
        time={"dt": "auto", "steps": 3000},
    )
    u, sigma = finish(problem), 5.670374419e-8

    def gained(t: float) -> float:
        radiated = emissivity * sigma * (268.15**4 - (t + 273.15) ** 4)
        return 700 + 8 * (-5 - t) + radiated - 2 * (t - 20) / 1.2

    surface = brentq(gained, 0, 200)
    np.testing.assert_allclose(u, 20 + (surface - 20) * (np.arange(12) + 0.5) / 12, rtol=1e-7)


def test_a_flux_beside_no_convection_is_that_flux() -> None:
    face = {"type": "robin", "h": 0, "ambient": 5, "flux": 3}
    assert make_boundary(sections(rest=face), 1, conductivity=2.0) == Boundary(
        ((Neumann(3.0, 2.0), Neumann(3.0, 2.0)),)
    )
