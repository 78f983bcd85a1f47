"""Voids whose surfaces radiate: view factors, exact networks, and runs that agree."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tetris_sim as ts
from tetris_sim.apps.heat.enclosures import balanced
from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.config.loading import make_config
from tetris_sim.errors import ConfigError, ConfigMistakesError
from tetris_sim.model.radiation import KELVIN, Enclosure, Enclosures
from tetris_sim.verification.engineering import engineering_cases
from tetris_sim.verification.standards import Standard

Numbers = npt.NDArray[np.float64]
SOLID = {"conductivity": 20, "density": 2000, "specific_heat": 500, "emissivity": 0.7}
BOX = {"x": [1, 11], "y": [1, 11]}


def config(shape: list[int], size: list[float], *regions: Any, **sections: Any) -> dict[str, Any]:
    return {
        "grid": {"shape": shape, "size": size},
        "model": {
            "type": "heat",
            "materials": {"wall": SOLID} | sections.pop("materials", {}),
            "regions": [{"material": "wall"}, *regions],
        },
        "initial": {"type": "constant", "value": 20},
        "boundaries": {"*": {"type": "neumann", "flux": 0}},
        "time": {"scheme": "steady"},
        "compute": {"tuning_budget": 0, "threads": 1, "devices": ["cpu"]},
    } | sections


def enclosures(*given: Any, **sections: Any) -> Enclosures:
    moving = make_config(config(*given, **sections)).build().moving
    assert moving is not None
    assert moving.around.enclosures is not None
    return moving.around.enclosures


def hole(box: dict[str, Any], patch: float | None = None) -> dict[str, Any]:
    return {"name": "hole", "void": {"radiates": True, "patch": patch}, "box": box}


def factors(it: Enclosure) -> Numbers:
    return np.asarray(it.seen / it.areas[:, None])


def test_sides_of_a_square_and_of_a_cube_see_each_other() -> None:
    (square,) = enclosures([12, 12], [12, 12], hole(BOX, 10)).each
    f = factors(square)
    opposite = math.sqrt(2) - 1
    np.testing.assert_allclose(np.sort(f, axis=1)[:, 3], opposite, rtol=1e-13)
    np.testing.assert_allclose(np.sort(f, axis=1)[:, 1:3], (1 - opposite) / 2, rtol=1e-13)

    (cube,) = enclosures([12] * 3, [12] * 3, hole(BOX | {"z": [1, 11]}, 10)).each
    rows = np.sort(factors(cube), axis=1)
    np.testing.assert_allclose(rows[:, 1], 0.199825, atol=1e-6)
    np.testing.assert_allclose(rows[:, 2:], 0.200044, atol=1e-6)
    # Parts of sides, on cells that are longer than wide, are parts of the same.
    (parts,) = enclosures([24, 12, 12], [12] * 3, hole(BOX | {"z": [1, 11]}, 5)).each
    assert len(parts.areas) == 24
    sums = np.add.reduceat(np.add.reduceat(parts.seen, range(0, 24, 4), 0), range(0, 24, 4), 1)
    np.testing.assert_allclose(np.sort(sums / 100, axis=1)[:, 1], 0.199825, atol=1e-6)


def test_a_pillar_hides_what_lies_behind_it() -> None:
    pillar = {"material": "wall", "box": {"x": [1.5, 2.5], "y": [1.5, 2.5]}}
    void = hole({"x": [0.5, 3.5], "y": [0.5, 3.5]}, 9)
    (it,) = enclosures([40, 40], [4, 4], void, pillar).each
    np.testing.assert_allclose(np.sort(it.areas), [1] * 4 + [3] * 4)
    f, outer = factors(it), np.flatnonzero(it.areas > 2)
    # Strings on both sides of the pillar, crossed less uncrossed.
    past = 2 * (math.sqrt(5) - 2) / 3
    opposite = f[np.ix_(outer, outer)]
    np.testing.assert_allclose(np.sort(opposite, axis=1)[:, 0], 0, atol=1e-15)
    assert abs(opposite - past).min(axis=1).max() < 2e-4
    inner = np.flatnonzero(it.areas < 2)
    assert abs(f[np.ix_(inner, inner)]).max() == 0  # it is convex


def test_a_cube_in_a_cube_sees_nothing_of_itself() -> None:
    box = {name: [1.5, 2.5] for name in "xyz"}
    void = hole({name: [0.5, 3.5] for name in "xyz"}, 9)
    (it,) = enclosures([20] * 3, [4] * 3, void, {"material": "wall", "box": box}).each
    f, inner = factors(it), it.areas < 2
    np.testing.assert_allclose(f[np.ix_(inner, inner)], 0, atol=1e-15)
    np.testing.assert_allclose(f[np.ix_(~inner, inner)].sum(axis=1), 1 / 9, rtol=0.01)
    np.testing.assert_allclose(it.seen, it.seen.T, rtol=0, atol=0)
    np.testing.assert_allclose(f.sum(axis=1), 1, rtol=1e-13)


def test_what_is_exchanged_adds_up_to_nothing() -> None:
    pillar = {"material": "wall", "where": "hypot(x - 2.1, y - 1.8) < 0.6"}
    found = enclosures([40, 40], [4, 4], hole({"x": [0.5, 3.5], "y": [0.5, 3.5]}, 0.2), pillar)
    (it,) = found.each
    state = np.random.default_rng(3).uniform(20, 900, (40, 40))
    q, surface = it.fluxes(state.reshape(-1)[it.cells])
    assert abs(math.fsum(it.areas * q)) < 1e-12 * abs(it.areas * q).max()
    # Behind each face flows to it what leaves it.
    inside = state.reshape(-1)[it.cells] + KELVIN
    np.testing.assert_allclose(surface, inside - it.resistance * q[it.patch], rtol=1e-10)
    heat = found.heat(state)
    assert abs(math.fsum(heat.reshape(-1))) < 1e-12 * abs(heat).max()
    assert abs(it.fluxes(np.full(len(it.cells), 700.0))[0]).max() < 1e-8

    slopes = found.slopes(state)
    v = np.random.default_rng(4).normal(size=state.size)
    step = 1e-4
    ahead, behind = (found.heat(state + s * step * v.reshape(state.shape)) for s in (1, -1))
    by_differences = ((ahead - behind) / (2 * step) * found.rates).reshape(-1)
    along = slopes.along(v)
    np.testing.assert_allclose(along, by_differences, atol=1e-6 * abs(along).max())
    np.testing.assert_allclose(slopes.matrix @ v, along, atol=1e-12 * abs(along).max())


def test_few_and_many_patches_have_the_same_fluxes(monkeypatch: pytest.MonkeyPatch) -> None:
    (it,) = enclosures([12, 12], [12, 12], hole(BOX, 1)).each
    state = np.random.default_rng(3).uniform(20, 1500, len(it.cells))
    few = it.fluxes(state)[0]
    monkeypatch.setattr("tetris_sim.model.radiation._FEW", 0)
    np.testing.assert_allclose(it.fluxes(state)[0], few, rtol=1e-9)


def test_an_oven_for_painted_panels_is_that_of_the_book() -> None:
    """A triangular duct: heated at 1200 K, panels at 500 K, an insulated side (F. P. Incropera et
    al., Fundamentals of Heat and Mass Transfer, 6th ed., example 13.6: 37 kW/m, 1102 K).
    """
    half, one, e = np.full((3, 3), 0.5), np.ones(3), np.array([0.8, 0.4, 0.8])
    np.fill_diagonal(half, 0)
    cells = np.arange(3)
    oven = Enclosure("oven", cells, cells, one, np.zeros(3), one, e, balanced(half, one))
    low, high = 500.0, 1200.0
    for _ in range(60):  # the temperature at which the insulated side keeps nothing
        middle = (low + high) / 2
        q, _ = oven.fluxes(np.array([1200.0, 500.0, middle]) - KELVIN)
        low, high = (low, middle) if q[2] > 0 else (middle, high)
    assert q[0] == pytest.approx(37e3, abs=500)
    assert middle == pytest.approx(1102, abs=2)


@pytest.mark.parametrize(
    "case",
    [it for it in engineering_cases() if "void" in it.name or "shield" in it.name],
    ids=lambda it: it.name,
)
def test_shells_exchange_what_formulas_say(case: Standard) -> None:
    assert [row for row in case.rows() if not row.passed] == []


def room(**sections: Any) -> dict[str, Any]:
    materials = {"hot": SOLID | {"emissivity": 0.4}}
    left = {"material": "hot", "box": {"x": [0, 0.03]}}
    void = hole({"x": [0.03, 0.07], "y": [0.02, 0.08]}, 0.02)
    pillar = {"material": "hot", "box": {"x": [0.05, 0.06], "y": [0.04, 0.05]}}
    initial = {"type": "expression", "expression": "where(x < 0.03, 900, 20)"}
    output = {"statistics": {"every": "10 steps"}, "pictures": False}
    return config(
        *([10, 10], [0.1, 0.1], left, void, pillar),
        materials=materials,
        initial=initial,
        output=output,
        **sections,
    )


def table(directory: Path) -> dict[str, Numbers]:
    with (directory / "statistics.csv").open() as file:
        names = [it.split(" [")[0] for it in file.readline().strip().split(",")]
        return dict(zip(names, np.loadtxt(file, delimiter=",", ndmin=2).T, strict=True))


NAMES = ("wall mean", "hot mean", "hot min", "wall max")


def test_explicit_and_implicit_steps_agree_and_keep_all_heat(tmp_path: Path) -> None:
    ts.run(room(time={"t_end": 400}), tmp_path / "e", progress=False)
    implicit = {"scheme": "implicit", "t_end": 400, "dt": 10}
    ts.run(room(time=implicit), tmp_path / "i", progress=False)
    steps, jumps = table(tmp_path / "e"), table(tmp_path / "i")
    heat = steps["heat"]
    assert abs(heat - heat[0]).max() < 1e-12 * heat[0]
    assert abs(steps["heat residual"]).max() < 1e-12 * heat[0]
    assert abs(jumps["heat"] - heat[0]).max() < 1e-8 * heat[0]
    for name in NAMES:
        assert steps[name][-1] == pytest.approx(jumps[name][-1], abs=0.1)
    # Nothing but radiation warms the pillar.
    assert steps["hot min"][-1] > steps["hot min"][0] + 20


def test_workers_and_continued_runs_have_the_same_bits(tmp_path: Path) -> None:
    ts.run(room(time={"steps": 40}), tmp_path / "whole", progress=False)
    whole = table(tmp_path / "whole")
    two = {"tuning_budget": 0, "devices": ["cpu", "cpu"]}
    ts.run(room(time={"steps": 40}) | {"compute": two}, tmp_path / "two", progress=False)
    ts.run(room(time={"steps": 20}), tmp_path / "cut", progress=False)
    ts.run(room(time={"steps": 40}), tmp_path / "cut", progress=False, resume="auto")
    for name in NAMES:
        np.testing.assert_array_equal(table(tmp_path / "two")[name], whole[name])
        np.testing.assert_array_equal(table(tmp_path / "cut")[name][-1], whole[name][-1])


def test_large_systems_are_solved_as_small_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = {"x-": {"type": "dirichlet", "value": 900}, "x+": {"type": "dirichlet", "value": 20}}
    steady = {"boundaries": ends | {"*": {"type": "neumann", "flux": 0}}}
    output = {"statistics": {"every": "1 step"}, "pictures": False}
    sections = room() | steady | {"output": output}
    ts.run(sections, tmp_path / "few", progress=False)
    monkeypatch.setattr("tetris_sim.solvers.newton._DIRECT", 10)
    ts.run(sections, tmp_path / "many", progress=False)
    few, many = table(tmp_path / "few"), table(tmp_path / "many")
    for name in NAMES:
        assert few[name][-1] == pytest.approx(many[name][-1], abs=1e-5)
    assert few["heat flow x-"][-1] == pytest.approx(-few["heat flow x+"][-1], rel=1e-6)


def test_notes_say_how_many_patches_there_are() -> None:
    made = make_config(config([12, 12], [12, 12], hole(BOX, 10)))
    assert isinstance(made.model, HeatModel)
    (note,) = (it for it in made.model.notes(made) if "patches" in it)
    assert "hole radiates between 4 patches" in note


@pytest.mark.parametrize(
    ("region", "key", "told"),
    [
        (hole({"x": [1, 12]}), "model.regions.1.void", "reaches the face"),
        (hole(BOX, 1) | {"fluid": {"ambient": 20, "h": 5}}, "model.regions.1", "give one of"),
        ({"void": {"radiates": 3}, "box": BOX}, "model.regions.1.void", "radiates"),
    ],
)
def test_mistakes_of_voids_are_told(region: dict[str, Any], key: str, told: str) -> None:
    with pytest.raises(ConfigMistakesError, match=told) as caught:
        make_config(config([12, 12], [12, 12], region))
    assert key in str(caught.value)


def test_what_enclosures_cannot_go_with_is_told() -> None:
    plain = {"material": "steel", "box": {"x": [0, 3]}}
    with pytest.raises(ConfigError, match="steel bounds it and has no emissivity"):
        make_config(config([12, 12], [12, 12], plain, hole(BOX)))
    with pytest.raises(ConfigError, match="no void radiates"):
        make_config(config([12, 12], [12, 12], {"void": True, "box": BOX}))
    time = {"scheme": "spectral", "t_end": 1}
    with pytest.raises(ConfigError, match="explicit, implicit or steady"):
        make_config(config([12, 12], [12, 12], hole(BOX), time=time))
    water = {"fluid": {"ambient": 20, "h": 5}, "box": {"x": [1, 3], "y": [1, 11]}}
    with pytest.raises(ConfigError, match="touches a fluid"):
        make_config(config([12, 12], [12, 12], hole(BOX), water))
    melting = SOLID | {"latent_heat": 1e5, "liquidus": 900}
    with pytest.raises(ConfigError, match="constant properties"):
        make_config(config([12, 12], [12, 12], hole(BOX), materials={"wall": melting}))
    axes = {"coordinates": "cylindrical", "axes": ["r", "z"]}
    curved, void = axes | {"shape": [12, 12], "size": [12, 12]}, hole({"r": [1, 11], "z": [1, 11]})
    with pytest.raises(ConfigError, match="between shells"):
        make_config(config([12, 12], [12, 12], void, grid=curved))
