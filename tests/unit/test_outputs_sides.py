"""Probes and slices read the side that a position lies on; voids are NaN in what people see."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from tests.support.outputs_samples import FakeSnapshot
from tetris_sim.__main__ import main
from tetris_sim.api.running import run
from tetris_sim.config import make_config
from tetris_sim.errors import NumericsError
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.output import StateSnapshot
from tetris_sim.outputs.regions import Along, neighbours_of, read_along

PLAIN = {"conductivity": 2.0, "density": 1000, "specific_heat": 1000}
BETTER = {"conductivity": 8.0, "density": 1000, "specific_heat": 1000}
INSULATED = {"type": "neumann", "flux": 0}


def config(**sections: Any) -> dict[str, Any]:
    return {
        "initial": {"type": "constant", "value": 0},
        "time": {"scheme": "steady"},
        "output": {"pictures": False},
        **sections,
    }


def probed(data: dict[str, Any], *places: Any) -> list[float]:
    """What probes read in the last state."""
    data = {
        **data,
        "output": {
            "pictures": False,
            "probes": [
                {"name": f"p{n}", "at": list(np.atleast_1d(at)), "every": "1 step"}
                for n, at in enumerate(places)
            ],
        },
    }
    probes = run(data, progress=False).probes
    return [float(probes[f"p{n}"].iloc[-1, -1]) for n in range(len(places))]


HALF_VOID = config(
    grid={"shape": [4], "size": ["4 mm"]},
    model={
        "type": "heat",
        "regions": [{"material": "copper"}, {"void": True, "box": {"x": ["2 mm", "4 mm"]}}],
    },
    boundaries={"x-": {"type": "dirichlet", "value": 100}, "x+": INSULATED},
)


def test_the_void_beside_a_body_is_not_read() -> None:
    found = probed(HALF_VOID, "2 mm", "1.9 mm", "0 mm", "2.1 mm")
    np.testing.assert_allclose(found, [100, 100, 100, math.nan], rtol=1e-9)


@pytest.mark.parametrize("graded", [False, True])
def test_a_surface_in_a_fluid_has_its_temperature_by_h(graded: bool) -> None:
    grid: dict[str, Any] = {"shape": [20], "size": [0.2]}
    if graded:
        segments = [{"to": 0.06, "n": 2}, {"to": 0.1, "n": 5}, {"to": 0.2, "n": 13}]
        grid["graded"] = {"x": {"segments": segments}}
    data = config(
        grid=grid,
        model={
            "type": "heat",
            "materials": {"m": PLAIN},
            "regions": [
                {"material": "m"},
                {"fluid": {"ambient": 10, "h": 20}, "box": {"x": [0.1, 0.2]}},
            ],
        },
        boundaries={"x-": {"type": "dirichlet", "value": 100}, "x+": INSULATED},
    )
    # Half of the resistance is that of the body, 0.1/2, half that of the film, 1/20.
    found = probed(data, 0.1, 0.099, 0.0, 0.101, 0.2)
    np.testing.assert_allclose(found, [55, 55.45, 100, 10, 10], rtol=1e-7)


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("resistance", [None, 0.025])
def test_either_side_of_a_joint_has_a_temperature_of_its_own(
    graded: bool, resistance: float | None
) -> None:
    grid: dict[str, Any] = {"shape": [10, 3], "size": [0.1, 0.03]}
    if graded:
        segments = [{"to": 0.05, "n": 4}, {"to": 0.1, "n": 6}]
        grid["graded"] = {"x": {"segments": segments}}
    contact = {"between": ["m", "better"], "resistance": resistance}
    data = config(
        grid=grid,
        model={
            "type": "heat",
            "materials": {"m": PLAIN, "better": BETTER},
            "regions": [{"material": "m"}, {"material": "better", "box": {"x": [0.05, 0.1]}}],
            "contacts": [] if resistance is None else [contact],
        },
        boundaries={
            "x-": {"type": "dirichlet", "value": 100},
            "x+": {"type": "dirichlet", "value": 0},
            "y": INSULATED,
        },
    )
    flux = 100 / (0.05 / 2 + (resistance or 0.0) + 0.05 / 8)
    low, high = 100 - flux * 0.05 / 2, flux * 0.05 / 8
    found = probed(data, (0.049, 0.011), (0.051, 0.011), (0.05, 0.011), (0.05, 0.01))
    middle = (low + high) / 2
    np.testing.assert_allclose(
        found, [low + flux * 1e-3 / 2, high - flux * 1e-3 / 8, middle, middle], rtol=1e-6
    )


def test_surface_temperatures_are_of_second_order() -> None:
    """A plate with a source q cos(pi x / 2L), cooled by a fluid: (2 L / pi) q / h on its surface."""
    errors = []
    for n in (8, 16, 32):
        data = config(
            grid={"shape": [2 * n], "size": [0.4]},
            model={
                "type": "heat",
                "materials": {"m": PLAIN},
                "regions": [
                    {"material": "m"},
                    {"fluid": {"ambient": 0, "h": 50}, "box": {"x": [0.2, 0.4]}},
                ],
                "sources": [{"density": "1e4*cos(pi*x/0.4)"}],
            },
            boundaries={"x": INSULATED},
        )
        flux = 1e4 * 0.4 / math.pi
        at = 0.19
        inside = 1e4 * (0.4 / math.pi) ** 2 / 2 * math.cos(math.pi * at / 0.4)
        found = probed(data, 0.2, at)
        errors.append([abs(found[0] - flux / 50), abs(found[1] - flux / 50 - inside)])
    np.testing.assert_array_less(errors[2], np.array(errors[0]) / 12)


def built(data: dict[str, Any]) -> Problem:
    return make_config(data).build()


def seen(problem: Problem) -> StateSnapshot:
    state = problem.initial(Slab.whole(problem.grid))
    return StateSnapshot(
        problem, 0, lambda box: state[(slice(None), *(slice(*span) for span in box))]
    ).seen()


CORNERED = config(
    grid={"shape": [6, 6, 6], "size": [6, 6, 6]},
    model={
        "type": "heat",
        "materials": {"m": PLAIN},
        "regions": [
            {"material": "m"},
            {"void": True, "box": {"x": [3, 6], "y": [3, 6]}},
            {"fluid": {"ambient": -50, "h": 1}, "box": {"x": [0, 2], "z": [4, 6]}},
        ],
    },
    initial={"type": "expression", "expression": "100 + x + 2*y + 3*z"},
    boundaries={"*": INSULATED},
)


def test_at_edges_of_voids_and_fluids_the_body_counts_alone() -> None:
    problem = built(CORNERED)
    shown = seen(problem)

    def at(x: float, y: float, z: float) -> float:
        axes = [neighbours_of(problem, k, it) for k, it in enumerate((z, y, x))]
        return float(read_along(shown, axes)[0])

    # Walls of voids are insulated: from the last point to the wall nothing changes.
    assert at(2.9, 4.5, 1.5) == pytest.approx(100 + 2.5 + 9 + 4.5)
    # In the edge of the void: cells in front of it, none of it.
    corner = at(3, 3, 1.5)
    cells = [(2.5, 2.5), (3.5, 2.5), (2.5, 3.5)]
    each = [100 + x + 2 * y + 4.5 for x, y in cells]
    assert min(each) <= corner <= max(each) + 1.5
    assert math.isnan(at(4.0, 4.0, 2.0))
    assert at(1.0, 1.0, 5.0) == -50
    # Where all points around are of the body, as ever.
    assert at(2.25, 1.1, 2.9) == pytest.approx(100 + 2.25 + 2.2 + 8.7)


def test_a_slice_along_a_wall_reads_body_fluid_and_void_each_by_itself() -> None:
    problem = built(CORNERED)
    axes: list[Along] = [neighbours_of(problem, 0, 4.0), (0, 6), (0, 6)]
    (plane,) = read_along(seen(problem), axes)
    x, y = np.meshgrid(np.arange(6) + 0.5, np.arange(6) + 0.5)
    assert np.array_equal(np.isnan(plane), (x > 3) & (y > 3))
    fluid = (x < 2) & ~np.isnan(plane)
    body = ~fluid & ~np.isnan(plane)
    np.testing.assert_allclose(plane[body], (100 + x + 2 * y + 12)[body])
    # Below the fluid the surface of the body, cooled by h = 1 through half a cell of k = 2.
    inside = (100 + x + 2 * y + 10.5)[fluid]
    np.testing.assert_allclose(plane[fluid], inside + (-50 - inside) * 0.25 / 1.25)


def test_a_body_of_one_material_keeps_its_bits() -> None:
    """Sources make several ids of one material."""
    data = config(
        grid={"shape": [7, 5], "size": [7, 5]},
        model={
            "type": "heat",
            "materials": {"m": PLAIN},
            "regions": [{"material": "m"}],
            "sources": [{"density": 5.0, "box": {"x": [2, 4]}}],
        },
        initial={"type": "expression", "expression": "sin(x) + y**2"},
        boundaries={"*": {"type": "dirichlet", "value": 3}},
    )
    problem = built(data)
    assert problem.conduction is not None
    assert problem.conduction.medium.n_ids == 2
    state = problem.initial(Slab.whole(problem.grid))
    axes = [neighbours_of(problem, k, it) for k, it in enumerate((2.3, 3.7))]
    (found,) = read_along(FakeSnapshot(problem, 0, state), axes)
    rows = 0.2 * state[0, 1] + 0.8 * state[0, 2]
    assert found == pytest.approx(0.8 * rows[3] + 0.2 * rows[4], rel=1e-14)


MELTING = {**PLAIN, "latent_heat": 1e5, "solidus": 50, "liquidus": 60}


@pytest.mark.parametrize("material", [PLAIN, MELTING])
@pytest.mark.parametrize("precision", ["float64", "float32"])
def test_voids_are_nan_in_files_and_not_in_checkpoints(
    tmp_path: Path, material: dict[str, Any], precision: str
) -> None:
    data = config(
        grid={"shape": [8, 6], "size": [0.08, 0.06]},
        model={
            "type": "heat",
            "materials": {"m": material},
            "regions": [
                {"material": "m"},
                {"void": True, "where": "hypot(x - 0.05, y - 0.03) < 0.02"},
            ],
        },
        initial={"type": "expression", "expression": "20 + 1e3*x"},
        boundaries={"*": {"type": "neumann", "flux": 1e4}},
        time={"dt": "auto", "steps": 20},
        compute={"precision": precision},
        output={
            "pictures": True,
            "fields": {"every": "10 steps"},
            "statistics": {"every": "10 steps"},
        },
        checkpoint={"every": "10 steps", "keep": 5},
    )
    problem = built(data)
    void = problem.voids(((0, 6), (0, 8)))
    assert void is not None
    assert 0 < void.sum() < 48
    result = run(data, tmp_path / "first", progress=False)
    with h5py.File(tmp_path / "first" / "fields.h5") as file:
        for name in [variable.name for variable in problem.seen.variables]:
            assert np.array_equal(np.isnan(file[name][-1]), void), name
    assert np.isfinite(result.statistics.iloc[-1]).all()
    checkpoints = sorted((tmp_path / "first" / "checkpoints").glob("checkpoint_*.h5"))
    assert len(checkpoints) >= 2
    for path in checkpoints:
        with h5py.File(path) as file:
            assert all(np.isfinite(it[()]).all() for it in file["fields"].values())

    # A run that goes on from a checkpoint ends with the same bits, whatever lies in the void.
    for path in checkpoints[1:]:
        path.unlink()
    again = run(data, tmp_path / "first", progress=False, resume="auto")
    assert np.array_equal(again.field("temperature"), result.field("temperature"), equal_nan=True)

    # The end of a run begins another one, though its voids are NaN.
    for path in (tmp_path / "first" / "checkpoints").glob("*"):
        path.unlink()
    begun = {**data, "initial": {"type": "run", "from": str(tmp_path / "first"), "at": "last"}}
    start = make_config(begun).build()
    (first, *_) = start.see(start.initial)(Slab.whole(problem.grid))
    np.testing.assert_allclose(first, result.field("temperature"), rtol=1e-5)

    # But not where the new body has something in its place.
    begun["model"] = {**data["model"], "regions": [{"material": "m"}]}
    filled = make_config(begun).build()
    with pytest.raises(NumericsError, match="gives nan at"):
        filled.initial(Slab.whole(problem.grid))


def test_a_run_with_voids_ends_when_nothing_changes_and_takes_its_own_fields() -> None:
    data = {
        **HALF_VOID,
        "time": {"dt": "auto", "t_end": "100 s", "until": {"change": "1e-3 K/s"}},
    }
    result = run(data, progress=False)
    assert result.report.step < result.report.steps
    np.testing.assert_allclose(result.field()[:2], 100, atol=0.1)


def test_a_slice_of_a_file_leaves_voids_out(tmp_path: Path) -> None:
    data = {**CORNERED, "output": {"fields": {"every": "1 step"}, "pictures": False}}
    run(data, tmp_path / "run", progress=False)
    written = tmp_path / "cut.npy"
    for place, expected in (("3", False), ("3.2", True), ("2.9", False)):
        main(
            ["export", str(tmp_path / "run"), "--last", "--slice", f"x={place}", "-o", str(written)]
            + (["--overwrite"] if written.exists() else [])
        )
        assert np.isnan(np.load(written)[..., 3:, :].squeeze()).any() == expected, place
        written.unlink()
