"""Areas and volumes of bodies whose surfaces are not parallel to the axes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
import pytest

import tetris_sim as ts
from tetris_sim.apps.heat.conduction import examine
from tetris_sim.apps.heat.surfaces import Places, Voxels
from tetris_sim.config.loading import make_config
from tetris_sim.model.grid import Grid
from tetris_sim.model.problem import Problem

if TYPE_CHECKING:
    from tetris_sim.apps.heat.model import HeatModel

SIZE = 24e-3
GOOD = {"conductivity": 4e4, "density": 8900, "specific_heat": 385}  # of one temperature
DISC = "hypot(x - 12e-3, y - 12e-3) < 10e-3"
BALL = "hypot(x - 12e-3, y - 12e-3, z - 12e-3) < 10e-3"


def immersed(n: int, region: dict[str, Any], ndim: int = 2, **model: Any) -> dict[str, Any]:
    """A body heated with 100 W in a fluid of 0 degC with h = 100 W/(m^2 K)."""
    return {
        "grid": {"shape": [n] * ndim, "size": [SIZE] * ndim},
        "model": {
            "type": "heat",
            "materials": {"metal": GOOD},
            "regions": [{"fluid": {"ambient": 0, "h": 100}}, {"material": "metal", **region}],
            "sources": [{"material": "metal", "power": 100}],
            **model,
        },
        "boundaries": {"*": {"type": "neumann"}},
        "initial": {"type": "constant", "value": 0},
        "time": {"scheme": "steady"},
    }


def area(config: dict[str, Any]) -> float:
    """The area by which a body gives off its heat [m^2]."""
    field = ts.run(config).field()
    return float(100 / 100 / field[field > 0].mean())


def problem_of(config: dict[str, Any]) -> Problem:
    made = make_config({**config, "time": {"dt": "auto", "steps": 1}})
    return made.model.build(made)


def rotated(angle: float) -> str:
    """A plate of 6 mm x 16 mm, turned about the middle."""
    c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    x, y = "(x - 12e-3)", "(y - 12e-3)"
    return f"abs({x}*{c} + {y}*{s}) < 3e-3 and abs({y}*{c} - {x}*{s}) < 8e-3"


@pytest.mark.parametrize(("n", "within"), [(48, 1e-2), (192, 3e-3)])
def test_a_heated_disc_in_a_fluid_is_as_warm_as_its_circumference_lets_it_be(
    n: int, within: float
) -> None:
    config = immersed(n, {"where": DISC})
    config["model"]["materials"] = {"metal": {**GOOD, "conductivity": 400}}
    found = float(ts.run(config).field().max())
    exact = 100 / (100 * 2 * math.pi * 10e-3) + 100 / (4 * math.pi * 400)
    assert found == pytest.approx(exact, rel=within)


@pytest.mark.parametrize("n", [48, 96])
def test_a_contact_has_the_area_of_the_circle(n: int) -> None:
    config = immersed(n, {"where": DISC})
    metal = {**GOOD, "conductivity": 400}
    config["model"] |= {
        "materials": {"disc": metal, "metal": metal},
        "regions": [{"material": "metal"}, {"material": "disc", "where": DISC}],
        "sources": [{"material": "disc", "power": 100}],
        "contacts": [{"between": ["disc", "metal"], "resistance": 1e-2}],
    }
    config["boundaries"] = {"*": {"type": "dirichlet", "value": 0}}
    assert float(ts.run(config).field().max()) == pytest.approx(15.93, rel=5e-3)


@pytest.mark.parametrize("n", [24, 48])
def test_the_area_of_a_ball(n: int) -> None:
    assert area(immersed(n, {"where": BALL}, 3)) == pytest.approx(4e-4 * math.pi, rel=2e-3)


@pytest.mark.parametrize("angle", [5, 17, 30, 45, 72])
def test_the_area_of_a_plate_does_not_depend_on_how_it_lies(angle: float) -> None:
    # The last part of a cell at each of its corners is uncertain.
    assert area(immersed(96, {"where": rotated(angle)})) == pytest.approx(44e-3, rel=1e-3)


def test_areas_on_graded_axes() -> None:
    config = immersed(96, {"where": DISC})
    edges = SIZE * (np.linspace(0, 1, 97) + 0.05 * np.sin(np.linspace(0, 2 * math.pi, 97)))
    config["grid"]["graded"] = {"x": {"edges": edges.tolist()}}
    assert area(config) == pytest.approx(20e-3 * math.pi, rel=5e-3)


def test_what_melts_has_the_area_of_its_surface() -> None:
    config = immersed(48, {"where": DISC})
    config["model"]["materials"]["metal"] = {
        **GOOD, "latent_heat": 1e5, "solidus": 500, "liquidus": 510,
    }  # fmt: skip
    assert area(config) == pytest.approx(20e-3 * math.pi, rel=1e-2)


@pytest.mark.parametrize("name", ["ellipsoid", "box", "gear"])
def test_areas_of_closed_surfaces(name: str, tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    match name:
        case "ellipsoid":
            mesh = trimesh.creation.icosphere(subdivisions=4, radius=10.0)
            mesh.apply_scale([1, 0.7, 0.4])
        case "box":
            mesh = trimesh.creation.box([12, 8, 14])
            mesh.apply_transform(trimesh.transformations.rotation_matrix(0.5, [1, 2, 3]))
        case _:
            angles = np.linspace(0, 2 * math.pi, 240, endpoint=False)
            radii = 8 + np.cos(8 * angles)
            outline = np.stack([radii * np.cos(angles), radii * np.sin(angles)], axis=1)
            mesh = extruded(outline, 6.0)
    mesh.apply_translation([12, 12, 12])
    mesh.export(tmp_path / "body.stl")
    config = immersed(48, {"labels": str(tmp_path / "body.stl"), "scale": "1 mm"}, 3)
    assert area(config) == pytest.approx(mesh.area * 1e-6, rel=1e-4)


def extruded(outline: npt.NDArray[np.float64], height: float) -> Any:
    """A prism around the origin over an outline that is a star about it."""
    trimesh = pytest.importorskip("trimesh")
    n = len(outline)
    rings = [np.column_stack([outline, np.full(n, z)]) for z in (-height / 2, height / 2)]
    corners = np.concatenate([*rings, [[0, 0, -height / 2], [0, 0, height / 2]]])
    faces = []
    for i in range(n):
        j = (i + 1) % n
        faces += [(i, j, n + j), (i, n + j, n + i), (j, i, 2 * n), (n + i, n + j, 2 * n + 1)]
    return trimesh.Trimesh(corners, faces)


def test_solids_of_one_file_that_overlap_are_one_body(tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    parts = [trimesh.creation.box([12, 8, 8]), trimesh.creation.box([6, 6, 20])]
    mesh = trimesh.util.concatenate(parts)
    mesh.apply_translation([12, 12, 12])
    mesh.export(tmp_path / "two.stl")
    config = immersed(24, {"labels": str(tmp_path / "two.stl"), "scale": "1 mm"}, 3)
    field = ts.run(config).field()
    assert np.count_nonzero(field) == 12 * 8 * 8 + 6 * 6 * 12  # no hole where they overlap


def test_areas_of_pictures_and_arrays(tmp_path: Path) -> None:
    def found(inside: npt.NDArray[np.bool_]) -> float:
        np.save(tmp_path / "labels.npy", inside.astype(np.uint8))
        return area(immersed(len(inside), {"labels": str(tmp_path / "labels.npy")}, inside.ndim))

    x = (np.arange(96) + 0.5) / 4 - 12
    here = np.meshgrid(x, x, indexing="ij")
    assert found(np.hypot(*here) < 10) == pytest.approx(20e-3 * math.pi, rel=3e-3)
    for angle in (5, 17, 30, 45):
        c, s = math.cos(math.radians(angle)), math.sin(math.radians(angle))
        u, v = here[1] * c + here[0] * s, here[0] * c - here[1] * s
        assert found((abs(u) < 3) & (abs(v) < 8)) == pytest.approx(44e-3, rel=2e-2)
    space = np.meshgrid(*[x[::2]] * 3, indexing="ij")
    assert found(space[0] ** 2 + space[1] ** 2 + space[2] ** 2 < 100) == pytest.approx(
        4e-4 * math.pi, rel=1.2e-2
    )


@pytest.mark.parametrize("shape", [(40, 40), (26, 26, 26)])
def test_boxes_of_voxels_keep_their_faces(shape: tuple[int, ...]) -> None:
    rng, ndim = np.random.default_rng(1), len(shape)
    for _ in range(40):
        inside = np.zeros(shape, np.bool_)
        inside[:5] = True  # a plate with a pin
        low = rng.integers(4, 9, ndim)
        high = low + rng.integers(1, 10, ndim)
        inside[tuple(slice(*span) for span in zip([5, *low[1:]], high, strict=True))] = True
        for axis in range(ndim):
            if np.diff(inside.astype(int), axis=axis).any():
                assert (shares(inside, axis) == 1).all()


def shares(inside: npt.NDArray[np.bool_], axis: int) -> npt.NDArray[np.float64]:
    grid = Grid(inside.shape, (1.0,) * inside.ndim, (0.5,) * inside.ndim)
    voxels = Voxels(lambda box: inside[tuple(slice(*span) for span in box)], grid)
    below: Places = np.argwhere(np.diff(inside.astype(int), axis=axis) != 0)
    return voxels.crossings(axis, below, None).share


def test_walls_on_the_faces_of_cells_keep_their_bits() -> None:
    box = {"x": [5e-3, 15e-3], "y": [4e-3, 17e-3]}
    tables = []
    for region in (
        {"box": box},
        {"where": "5e-3 < x < 15e-3 and y > 4e-3 and y < 17e-3"},
        {"where": "max(abs(x - 10e-3) - 5e-3, abs(y - 10.5e-3) - 6.5e-3) < 0"},
    ):
        medium = problem_of(immersed(24, region)).conduction.medium  # type: ignore[union-attr]
        assert sorted(medium.names) == ["fluid", "metal"]
        tables.append((medium.conductance, medium.capacity, medium.ids(((0, 24), (0, 24)))))
    for other in tables[1:]:
        for a, b in zip(tables[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


BOXES = {
    1: ({"x": [5.23e-3, 15.01e-3]}, 2.0, 9.78e-3),
    2: ({"x": [5.23e-3, 15.01e-3], "y": [4.3e-3, 17.7e-3]}, 46.36e-3, 131.052e-6),
    3: (
        {"x": [5.23e-3, 15.01e-3], "y": [4.3e-3, 17.7e-3], "z": [3.1e-3, 9.9e-3]},
        577.352e-6,
        891.1536e-9,
    ),
}


@pytest.mark.parametrize("ndim", [1, 2, 3])
@pytest.mark.parametrize("n", [24, 37])
def test_boxes_off_the_faces_of_cells_are_exact(ndim: int, n: int) -> None:
    box, surface, volume = BOXES[ndim]
    config = immersed(n, {"box": box}, ndim)
    # Held and heated throughout: the power of a density is that of the volume.
    config["model"]["sources"] = [{"material": "metal", "density": 100 / volume}]
    assert area(config) == pytest.approx(surface, rel=1e-5)  # of a body of nearly one temperature
    assert heat_capacity(problem_of(config)) == pytest.approx(volume, rel=1e-12)


def test_walls_of_conditions_are_those_of_boxes() -> None:
    made = [
        problem_of(immersed(24, region))
        for region in (
            {"box": BOXES[2][0]},
            {"where": "5.23e-3 < x < 15.01e-3 and 4.3e-3 < y < 17.7e-3"},
        )
    ]
    assert heat_capacity(made[1]) == pytest.approx(heat_capacity(made[0]), rel=1e-4)
    field = immersed(24, {"where": "5.23e-3 < x < 15.01e-3 and 4.3e-3 < y < 17.7e-3"})
    assert area(field) == pytest.approx(BOXES[2][1], rel=3e-3)


@pytest.mark.parametrize(
    "where", ["x % 6e-3 < 2e-3", "floor(x/1e-3) < 4", "ceil(x/4e-3) < 3", "abs(x - 10e-3) < 4e-3"]
)
def test_conditions_that_jump_turn_where_they_do(where: str) -> None:
    """Remainders and whole numbers are no lines between cells: their walls lie on faces here."""
    model = {
        "type": "heat",
        "materials": {"fin": "aluminium"},
        "regions": [
            {"fluid": {"ambient": 20, "h": 40}},
            {"material": "fin", "where": where},
        ],
    }
    config = make_config(
        {
            "grid": {"shape": [24, 10], "size": [24e-3, 10e-3]},
            "model": model,
            "initial": {"type": "constant", "value": 30},
            "boundaries": {"*": {"type": "neumann"}},
            "time": {"steps": 1},
        }
    )
    body = config.build().conduction
    assert body is not None
    capacity = body.medium.capacity
    # No cell is cut, so there are two kinds: metal and air, whose capacity is without bounds.
    assert len(np.unique(capacity[np.isfinite(capacity)])) == 1


@pytest.mark.parametrize("graded", [False, True])
def test_heat_spreads_along_a_bar_whose_walls_are_off_the_faces(graded: bool) -> None:
    """Its cells hold as much more heat as more passes through them."""
    y = np.linspace(0, SIZE, 25)
    fields = []
    for walls in ([8e-3, 12e-3], [7.7e-3, 12.45e-3]):
        config = immersed(24, {"box": {"y": walls}})
        config["model"] |= {
            "regions": [{"void": True}, {"material": "metal", "box": {"y": walls}}],
            "sources": [],
        }
        if graded:
            edges = y + 1e-4 * np.sin(y / SIZE * 2 * math.pi)
            config["grid"]["graded"] = {"x": {"edges": edges.tolist()}}
        config["initial"] = {"type": "expression", "expression": "cos(x/24e-3*pi)"}
        config["time"] = {"scheme": "explicit", "dt": 1e-7, "steps": 40}
        config["compute"] = {"method": "cpu.plain"}
        fields.append(ts.run(config, progress=False).field()[8:12])
    assert np.abs(fields[0]).min() < 0.9
    np.testing.assert_allclose(fields[1], fields[0], rtol=0, atol=1e-12)


def walled(wall: float, beyond: dict[str, Any], **material: Any) -> dict[str, Any]:
    """A rod of k 10 up to a wall between the faces of 11 cells of 1/110 m; x- is at 100 degC."""
    usual = {"density": 1000, "specific_heat": 1000}
    return {
        "grid": {"shape": [11], "size": [0.1]},
        "model": {
            "type": "heat",
            "materials": {"rod": {"conductivity": 10, **usual, **material}},
            "regions": [beyond, {"name": "rod", "material": "rod", "box": {"x": [0, wall]}}],
        },
        "initial": {"type": "constant", "value": 100},
        "boundaries": {"*": {"type": "neumann"}, "x-": {"type": "dirichlet", "value": 100}},
        "time": {"scheme": "steady"},
        "compute": {"threads": 1},
    }


@pytest.mark.parametrize("wall", [0.05, 0.0533, 0.0571])
@pytest.mark.parametrize("law", ["constant", "table", "melts"])
@pytest.mark.parametrize("beyond", ["fluid", "solid"])
def test_heat_goes_as_far_as_a_wall_between_faces_is(beyond: str, law: str, wall: float) -> None:
    laws: dict[str, dict[str, Any]] = {
        "constant": {},
        "table": {"specific_heat": {"table": [[0, 1000], [100, 2000]]}},
        "melts": {"latent_heat": 1e5, "solidus": 40, "liquidus": 45},
    }
    config = walled(wall, {"fluid": {"ambient": 0, "h": 1000}}, **laws[law])
    resistance = wall / 10 + 1 / 1000
    if beyond == "solid":
        model = config["model"]
        model["materials"]["end"] = {"conductivity": 1, "density": 900, "specific_heat": 800}
        model["regions"][0] = {"material": "end"}
        model["contacts"] = [{"between": ["rod", "end"], "resistance": 1e-3}]
        config["boundaries"]["x+"] = {"type": "dirichlet", "value": 0}
        resistance = wall / 10 + 1e-3 + (0.1 - wall) / 1
    # Two cells of the rod that no wall cuts.
    first, second = ts.run(config, progress=False).field()[1:3]
    assert (first - second) * 110 * 10 == pytest.approx(100 / resistance, rel=1e-5)


def test_steps_are_stable_where_a_wall_is_near_a_centre() -> None:
    """Light insulation whose outermost centre lies on the copper beside it."""
    copper = {"conductivity": 400, "density": 8900, "specific_heat": 385}
    config = walled(0.05, {"material": "foam"}, **copper)
    foam = {"conductivity": 0.05, "density": 30, "specific_heat": 1000}
    config["model"]["materials"]["foam"] = foam
    config["initial"] = {"type": "random", "low": 0, "high": 100, "seed": 1}
    config["time"] = {"dt": "auto", "steps": 1000}
    config["compute"] |= {"method": "cpu.plain"}
    field = ts.run(config, progress=False).field()
    assert 0 < field.min() < field.max() < 100.001


def test_lumps_see_a_wall_where_it_is() -> None:
    config = walled(0.0533, {"void": True})
    around = [{"region": "rod", "h": 1000}, {"ambient": 0, "resistance": 1e-9}]
    config["model"]["lumps"] = {"sink": {"capacity": 1, "initial": 0, "exchanges": around}}
    first, second = ts.run(config, progress=False).field()[1:3]
    flow = 100 / (0.0533 / 10 + 1 / 1000)
    assert (first - second) * 110 * 10 == pytest.approx(flow, rel=1e-5)


def test_a_layer_between_faces_cools_as_fast_as_it_holds_heat() -> None:
    """A layer of 3.3 cells on one that resists little: rho c of its whole thickness counts."""
    config = immersed(20, {"box": {"x": [0, 3.96e-3]}}, 1)
    config["model"]["sources"] = []
    config["initial"] = {"type": "constant", "value": 1}
    config["time"] = {"scheme": "implicit", "dt": 5, "t_end": 100}
    field = ts.run(config, progress=False).field()
    rate = 100 / (8900 * 385 * 3.96e-3)
    assert field[0] == pytest.approx(math.exp(-100 * rate), rel=1e-4)


def test_what_cut_cells_cost_is_said() -> None:
    made = make_config(immersed(48, {"box": BOXES[2][0]}))
    body, _ = examine(cast("HeatModel", made.model), made)
    assert body is not None
    volume, surface, step = body.found.extents()
    assert volume == "metal: volume 0.00013105 m^2, 0.00013105 as computed, 0.00013 in its cells"
    assert surface == (
        "metal to fluid: area 0.04636 m, 0.04636 as computed, 0.046 as faces of cells"
    )
    assert "the largest stable time step 0.68 of" in step


def heat_capacity(problem: Problem) -> float:
    assert problem.conduction is not None
    medium = problem.conduction.medium
    capacity = medium.capacity[medium.ids(tuple((0, n) for n in problem.grid.shape))]
    stored = np.where(np.isinf(capacity), 0.0, capacity).sum()
    return float(stored) * problem.grid.cell_volume / (8900 * 385)


def test_heat_capacity_and_power_of_a_body_converge_to_second_order() -> None:
    volumes, powers = [], []
    for n in (20, 80, 320):
        config = immersed(n, {"where": "hypot(x - 12.1e-3, y - 11.7e-3) < 7.3e-3"})
        source = {"density": 1e6, "where": "hypot(x - 10.1e-3, y - 10.7e-3) < 3.3e-3"}
        config["model"]["sources"] = [source]
        problem = problem_of(config)
        assert problem.conduction is not None
        assert problem.conduction.source is not None
        ids = problem.conduction.medium.ids(((0, n), (0, n)))
        (density,) = (it.values for it in problem.conduction.source.parameters)
        assert isinstance(density, np.ndarray)
        powers.append(
            abs(density[ids].sum() * problem.grid.cell_volume / 1e6 - 3.3e-3**2 * math.pi)
        )
        volumes.append(abs(heat_capacity(problem) - 7.3e-3**2 * math.pi))
    for errors in (volumes, powers):
        assert errors[2] < errors[0] / 100  # 16 times finer: 256 times smaller, but for luck


def test_the_plan_says_areas_and_volumes() -> None:
    def notes(region: dict[str, Any]) -> tuple[str, ...]:
        made = make_config(immersed(96, region))
        body, _ = examine(cast("HeatModel", made.model), made)
        assert body is not None
        return body.found.extents()

    volume, surface = notes({"where": DISC})
    assert volume.startswith("metal: volume 0.000314")
    assert "metal to fluid: area 0.0628" in surface
    assert "0.08 as faces of cells" in surface
    assert notes({"box": {"x": [0, 0.01]}}) == ()


def test_states_do_not_depend_on_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    import tetris_sim.apps.heat.geometry as geometry
    import tetris_sim.apps.initial as initial

    whole = problem_of(immersed(31, {"where": DISC}))
    monkeypatch.setattr(initial, "BLOCK_POINTS", 64)
    monkeypatch.setattr(geometry, "BLOCK_POINTS", 64)
    config = immersed(31, {"where": DISC})
    config["title"] = "in blocks of 64 points"
    cut = problem_of(config)
    assert whole.conduction is not None
    assert cut.conduction is not None
    medium, other = whole.conduction.medium, cut.conduction.medium
    ids, same = (it.ids(((0, 31), (0, 31))) for it in (medium, other))
    np.testing.assert_allclose(medium.capacity[ids], other.capacity[same], rtol=1e-13)
    for axis in (0, 1):
        first, second = (
            it.conductance[axis][np.take(n, range(30), axis), np.take(n, range(1, 31), axis)]
            for it, n in ((medium, ids), (other, same))
        )
        np.testing.assert_allclose(first, second, rtol=1e-13)
