from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tetris_sim.apps.domain import keeps_fluxes
from tetris_sim.apps.stencil import StencilModel
from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError, UnstableStepError
from tetris_sim.model import reference
from tetris_sim.model.boundary import Boundary, Neumann, Periodic, Robin
from tetris_sim.model.problem import Field, Problem
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES, named_stencil


def build(model: dict[str, Any], dt: float | None = None, **sections: Any) -> Problem:
    config = make_config(
        {
            "grid": {"shape": [9, 8]},
            "model": {"type": "stencil", **model},
            "initial": {"type": "constant", "value": 1},
            "boundaries": {"*": {"type": "periodic"}},
            "time": {"steps": 7},
            **sections,
        }
    )
    return config.model.build(config, dt=dt)


def operator(**keys: Any) -> Stencil:
    return StencilModel(type="stencil", **keys).operator()


@pytest.mark.parametrize("name", STENCIL_NAMES)
def test_a_named_stencil_is_that_of_the_catalogue(name: str) -> None:
    stencil = named_stencil(name).stencil
    problem = build({"stencil": name}, grid={"shape": [9, 8, 7][: stencil.ndim]})
    assert problem.stencil == stencil
    assert (problem.dt, problem.steps, problem.dt_limit) == (1.0, 7, math.inf)


@pytest.mark.parametrize(
    "name",
    ["upwind-1d-order5", "semi-lagrangian-2d16p", "cahn-hilliard-2d", "d3q19-3d", "jacobi-3d"],
)
def test_the_whole_catalogue_has_names_and_its_time_steps_and_filters_are_accepted(
    name: str,
) -> None:
    stencil = named_stencil(name).stencil
    assert build({"stencil": name}, grid={"shape": [9, 8, 7][: stencil.ndim]}).stencil == stencil


def test_an_operator_of_the_catalogue_is_for_one_application() -> None:
    with pytest.raises(
        UnstableStepError,
        match=r"grows by a factor of 8 .*laplacian-2d-order2 is made to be applied once.*times 1/8 are stable",
    ):
        build({"stencil": "laplacian-2d-order2"})
    problem = build({"stencil": "laplacian-2d-order2", "allow_growth": True})
    assert problem.stencil == named_stencil("laplacian-2d-order2").stencil
    tamed = named_stencil("laplacian-2d-order2").repeatable
    assert (
        build({"stencil": "laplacian-2d-order2", "weights": list(tamed.weights)}).stencil == tamed
    )


def test_an_unknown_name_leads_to_the_list() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'laplacian-2d9p'.*info --stencils"):
        build({"stencil": "laplacean-2d9p"})


def test_a_name_can_have_weights_of_your_own_with_x_fastest() -> None:
    stencil = operator(stencil="heat-2d", weights=[0.1, 0.2, 0.3, 0.15, 0.25])
    assert stencil.terms == {(-1, 0): 0.1, (0, -1): 0.2, (0, 0): 0.3, (0, 1): 0.15, (1, 0): 0.25}


def test_weights_can_be_given_by_offset_along_x_y_z() -> None:
    by_offset = {"0,0": 0.3, " -1, 0": 0.2, "1,0": 0.15, "0,-1": 0.1, "0,+1": 0.25}
    expected = {(-1, 0): 0.1, (0, -1): 0.2, (0, 0): 0.3, (0, 1): 0.15, (1, 0): 0.25}
    assert operator(stencil="heat-2d", weights=by_offset).terms == expected
    assert operator(weights=by_offset).terms == expected


def test_offsets_of_your_own_are_along_x_y_z_in_the_order_of_their_weights() -> None:
    stencil = operator(offsets=[[2, 0, 0], [0, -1, 3], [0, 0, 0]], weights=[0.5, 0.25, 0.125])
    assert stencil.terms == {(0, 0, 0): 0.125, (0, 0, 2): 0.5, (3, -1, 0): 0.25}


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({}, "either the name of a stencil, or offsets and weights"),
        ({"weights": [1.0]}, "either the name"),
        ({"stencil": "heat-2d", "offsets": [[0, 0]], "weights": [1]}, "either the name"),
        ({"stencil": "heat-2D"}, "did you mean 'heat-2d'"),
        ({"offsets": [[0, 0]]}, "without weights"),
        ({"offsets": [[0, 0], [1, 0]], "weights": [1]}, "1 weights are given for 2 offsets"),
        ({"stencil": "heat-2d", "weights": [1]}, "1 weights are given for 5 offsets"),
        (
            {"stencil": "heat-2d", "weights": {"0,0": 1}},
            "do not match at the offsets 0, -1; -1, 0; 1, 0; 0, 1",
        ),
        ({"weights": {"0,0": 1, "0, 0": 1}}, "given twice"),
        ({"weights": {}}, "empty"),
        ({"weights": {"a": 1}}, "pattern"),
        ({"offsets": [[0, 0], [0, 0]], "weights": [1, 1]}, "more than once"),
        ({"offsets": [[0, 0], [0]], "weights": [1, 1]}, "same 1, 2 or 3 components"),
    ],
)
def test_offsets_and_weights_that_do_not_belong_together_are_refused(
    keys: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        operator(**keys)


def test_the_grid_has_the_axes_of_the_stencil() -> None:
    with pytest.raises(
        ConfigError, match=r"model\.stencil.*the stencil has 3 axes, but the grid has 2"
    ):
        build({"stencil": "heat-3d"})
    with pytest.raises(ConfigError, match=r"model\.offsets.*1 axes"):
        build({"offsets": [[0]], "weights": [1]})


@pytest.mark.parametrize(
    "time", [{"steps": 1, "dt": 0.5}, {"steps": 1, "cfl": 0.1}, {"steps": 1, "dt": "auto"}]
)
def test_a_time_step_means_nothing(time: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"time\.(dt|cfl).*means nothing for a bare stencil"):
        build({"stencil": "heat-2d"}, time=time)


def test_an_end_time_counts_steps() -> None:
    assert build({"stencil": "heat-2d"}, time={"t_end": 12}).steps == 12


def test_a_continued_run_takes_up_the_same_steps() -> None:
    assert build({"stencil": "heat-2d"}, dt=1.0).steps == 7


def test_a_stencil_that_amplifies_a_wave_is_refused_unless_growth_is_allowed() -> None:
    growing = {"offsets": [[0, 0], [1, 0], [-1, 0]], "weights": [1.5, -0.3, -0.3]}
    with pytest.raises(
        UnstableStepError, match=r"grows by a factor of 2\.1 at every step, .*allow_growth"
    ):
        build(growing)
    assert build({**growing, "allow_growth": True}).stencil.n_points == 3


def test_weights_of_both_signs_are_accepted_if_no_wave_grows() -> None:
    problem = build({"offsets": [[-1, 0], [0, 0], [1, 0]], "weights": [-0.25, 0.5, -0.25]})
    assert problem.stencil.spectral_radius <= 1
    assert build(
        {
            "offsets": [[-2, 0], [-1, 0], [0, 0], [1, 0], [2, 0]],
            "weights": [-0.1, 0.4, 0.4, 0.4, -0.1],
        }
    ).steps


def test_for_a_stencil_without_symmetry_the_message_says_that_the_bound_is_the_periodic_one() -> (
    None
):
    with pytest.raises(UnstableStepError, match="periodic faces, as the stencil is not symmetric"):
        build({"offsets": [[0, 0], [1, 0]], "weights": [1.5, -0.5]})


def test_a_stencil_too_large_to_search_is_refused_with_the_way_out() -> None:
    wide = {"offsets": [[-40000], [0], [40000]], "weights": [0.6, 0.6, -0.6]}
    sections: dict[str, Any] = {"grid": {"shape": [50000]}}
    many = {"offsets": [[k] for k in range(4096)], "weights": [0.001, *[-0.001] * 4095]}
    with pytest.raises(UnstableStepError, match="grows by"):
        build(wide, **sections)
    assert build({**many, "allow_growth": True}, **sections).steps == 7
    with pytest.raises(UnstableStepError, match=r"sum to 1e\+300.*too large|grows"):
        build({"offsets": [[0]], "weights": [1e300]}, **sections)


def test_flows_are_those_of_the_conductivity_that_the_face_says() -> None:
    faces = {
        "x": {"type": "robin", "h": 2, "ambient": 3, "conductivity": 1},
        "y": {"type": "periodic"},
    }
    assert build({"stencil": "heat-2d"}, boundaries=faces).boundary == Boundary(
        ((Periodic(), Periodic()), (Robin(2, 3, 1), Robin(2, 3, 1)))
    )
    flux = {"*": {"type": "neumann", "flux": 4, "conductivity": 5}}
    assert build({"stencil": "heat-2d"}, boundaries=flux).boundary == Boundary.everywhere(
        Neumann(4, 5), 2
    )


@pytest.mark.parametrize(
    "face", [{"type": "robin", "h": "2 W/(m^2 K)", "ambient": 3}, {"type": "neumann", "flux": 4}]
)
def test_a_flow_through_a_face_of_a_bare_stencil_is_not_guessed(face: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"boundaries\.x: a .* bare stencil has none.*conductivity: 1"
    ):
        build({"stencil": "heat-2d"}, boundaries={"*": {"type": "neumann"}, "x": face})


SKEW = ("heat-2d-tensor", "triangle-mass-2d7p", "motion-blur-2d5p")
FLUX_FACES = [
    {"type": "neumann"},
    {"type": "robin", "h": 1, "ambient": 0, "conductivity": 1},
]


@pytest.mark.parametrize("face", FLUX_FACES)
@pytest.mark.parametrize("name", SKEW)
def test_a_stencil_that_conducts_askew_is_refused_where_mirrored_ghosts_would_create_heat(
    name: str, face: dict[str, Any]
) -> None:
    with pytest.raises(
        ConfigError, match=r"y: the weights .* change when y .*take periodic, fixed or dirichlet"
    ):
        build({"stencil": name}, boundaries={"x": {"type": "periodic"}, "y": face})
    for kept in ({"type": "fixed", "value": 1}, {"type": "dirichlet", "value": 1}):
        assert build({"stencil": name}, boundaries={"*": kept}).steps == 7


@pytest.mark.parametrize(
    ("name", "kept"),
    [("heat-2d-tensor", False), ("heat-2d-anisotropic", True), ("box-2d9p", True)],
)
def test_what_is_refused_does_create_heat_and_what_is_not_does_not(name: str, kept: bool) -> None:
    stencil, insulated = named_stencil(name).stencil, Boundary.everywhere(Neumann(), 2)
    state: Field = np.zeros((1, 8, 9))
    state[0, 0, 0] = 64.0
    for _ in range(200):
        state = reference.step(state, stencil, insulated, (1.0, 1.0))
    assert (abs(state.sum() - 64.0) < 1e-10) == kept
    assert all(keeps_fluxes(stencil, axis) is kept for axis in (0, 1))


@pytest.mark.parametrize("name", ["upwind-2d", "sobel-2d", "d2q9-flow-2d", "box-2d25p"])
def test_a_stencil_without_a_flux_to_keep_takes_a_slope_of_zero(name: str) -> None:
    assert build({"stencil": name, "allow_growth": True}, boundaries={"*": {"type": "neumann"}})


def test_the_variable_has_no_unit() -> None:
    variable = build({"stencil": "heat-2d"}).variables[0]
    assert (variable.name, variable.unit, variable.total.unit, variable.total.density) == (
        "u",
        "1",
        "m^2",
        1.0,
    )
