"""What is wrong with a body is told at once, with the place where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.body_samples import PLAIN, build, heat_model, settings
from tetris_sim.config import ConfigMistakesError, load_config, make_config
from tetris_sim.errors import ConfigError, UnstableStepError

TWO = {"a": PLAIN, "b": {**PLAIN, "conductivity": 50}}
HALVES = ({"material": "a"}, {"material": "b", "where": "x > 0.6"})


def mistakes(**sections: Any) -> dict[str, str]:
    with pytest.raises(ConfigMistakesError) as caught:
        make_config(settings(**sections))
    return {mistake.key: mistake.message for mistake in caught.value.problems}


def of_model(*regions: dict[str, Any], **keys: Any) -> dict[str, str]:
    return mistakes(model=heat_model(*regions, materials=TWO, **keys))


TEXT = """
grid: {shape: [12], size: [1.2]}
model:
  type: heat
  materials:
    a: copper
    b: {conductivity: 3, density: 1, specific_heat: 1}
  regions:
    - {material: a}
    - {material: b, box: {x: [2, 3]}}
    - material: b
      where: "sqrt(x)"
  contacts: [{between: [a, b], resistance: 1}]
  sources:
    - {power: 1, box: {x: [0.2, 0.3]}}
    - power: 3
      where: "x > 7"
initial: {type: constant, value: 0}
boundaries: {"*": {type: neumann}}
time: {steps: 1}
"""


def test_what_a_look_at_the_points_finds_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(TEXT)
    with pytest.raises(ConfigMistakesError) as caught:
        load_config(path)
    assert [(m.key, m.place.line) for m in caught.value.problems] == [
        ("model.regions.1", 10),
        ("model.contacts.0.between", 13),
        ("model.sources.1", 16),
    ]


def test_every_mistake_of_names_and_axes_is_told() -> None:
    found = of_model(
        {"material": "c"},
        {"material": "copper", "box": {"z": [0, 1]}, "name": "r"},
        {"material": "a", "where": "y > 0", "name": "r"},
        contacts=[{"between": ["a", "a"], "resistance": 1}],
        sources=[{"power": 1, "region": "s"}, {"power": 1, "material": "bb"}, {"density": "y"}],
    )
    assert list(found) == [
        "model.regions.0.material",
        "model.regions.1.box.z",
        "model.regions.2.where",
        "model.regions.1.name",
        "model.regions.2.name",
        "model.contacts.0.between",
        "model.sources.0.region",
        "model.sources.1.material",
        "model.sources.2.density",
    ]
    assert "did you mean 'b'" in found["model.sources.1.material"]


@pytest.mark.parametrize(
    ("material", "key", "message"),
    [
        ({**PLAIN, "conductivity": -1}, ".conductivity", "-1 was found; a thermal conductivity"),
        ({**PLAIN, "conductivity": 0}, ".conductivity", "greater than 0"),
        ({**PLAIN, "conductivity": {"x": 1, "y": 0}}, ".conductivity.y", "greater than 0"),
        ({"conductivity": 1}, "", "density and specific_heat missing"),
        ("coper", "", "did you mean 'copper'"),
    ],
)
def test_materials_that_are_none_are_refused(material: Any, key: str, message: str) -> None:
    found = mistakes(model=heat_model({"material": "m"}, materials={"m": material}))
    assert list(found) == [f"model.materials.m{key}"]
    assert message in found[f"model.materials.m{key}"]


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ({}, "no filling given"),
        ({"material": "a", "void": True}, "material and void given"),
        ({"materials": {"0": "a"}}, "give labels"),
        ({"material": "a", "box": {"x": [1, 0]}}, "holds nothing"),
    ],
)
def test_regions_that_are_none_are_refused(region: dict[str, Any], message: str) -> None:
    found = of_model({"material": "a"}, region)
    (said,) = found.values()
    assert message in said


def test_points_that_no_region_covers_are_told() -> None:
    found = of_model({"material": "a", "box": {"x": [0, 0.42]}})
    assert "no region covers x = 0.45 m (array index [4])" in found["model.regions"]


def test_a_formula_that_is_not_finite_somewhere_is_told_with_the_place() -> None:
    assert (
        "nan at x = 0.05 m"
        in of_model({"material": "a"}, {"material": "b", "where": "log(x - 0.1)"})[
            "model.regions.1.where"
        ]
    )
    found = of_model(
        {"material": "a"},
        sources=[
            {"density": "1/floor(x/0.3)", "where": "x > 0.6"},
            {"density": "1/floor(x/0.3)"},
            {"power": "1/t", "box": {"x": [0, 0.2]}},
        ],
    )
    assert list(found) == ["model.sources.1.density", "model.sources.2.power"]
    assert "x = 0.05 m" in found["model.sources.1.density"]
    assert "t = 0 s" in found["model.sources.2.power"]

    grid = {"shape": [4, 3], "size": [4, 3]}
    faces = {
        "x": {"type": "neumann"},
        "y+": {"type": "dirichlet", "value": "sqrt(2 - y)"},
        "y-": {"type": "robin", "h": "5 - t", "ambient": "1/(x - 1.5)"},
    }
    found = mistakes(grid=grid, boundaries=faces, time={"dt": 0.01, "steps": 1000})
    assert set(found) == {"boundaries.y-.h", "boundaries.y-.ambient", "boundaries.y+.value"}
    assert "x = 1.5 m" in found["boundaries.y-.ambient"]


def test_faces_in_parts_say_what_every_part_is() -> None:
    part = {"type": "neumann", "where": "x < 1"}
    grid = {"shape": [4, 3], "size": [4, 3]}
    faces: dict[str, Any] = {"x": {"type": "neumann"}, "y": [part]}
    assert (
        "no entry of the list is about x = 1.5 m"
        in mistakes(grid=grid, boundaries=faces)["boundaries.y"]
    )
    faces["y"] = [{"type": "neumann"}, part]
    assert "holds at no point" in mistakes(grid=grid, boundaries=faces)["boundaries.y.1"]
    faces["y"] = part
    assert "write the face as a list" in mistakes(grid=grid, boundaries=faces)["boundaries.y.where"]
    faces["y"] = [part, {"type": "periodic"}]
    assert list(mistakes(grid=grid, boundaries=faces)) == ["boundaries.y.1.type"]
    faces["y"] = [{"type": "neumann", "flux": "2 K"}]
    assert list(mistakes(grid=grid, boundaries=faces)) == ["boundaries.y.0.flux"]


def test_a_beam_needs_a_face_that_takes_heat() -> None:
    beam = {"type": "beam", "power": 1, "d4sigma": 0.1, "face": "x-"}
    held = {"type": "dirichlet", "value": 1}
    model = {"type": "heat", **PLAIN, "sources": [beam]}
    found = mistakes(model=model, boundaries={"*": {"type": "neumann"}, "x-": held})
    assert "a beam heats nothing there" in found["model.sources.0.face"]
    model["sources"] = [{**beam, "face": "z+"}, {**beam, "path": {"x": 1}}]
    assert list(mistakes(model=model)) == ["model.sources.0.face", "model.sources.1.path.x"]


def test_numbers_of_a_body_stand_in_one_place() -> None:
    model = heat_model({"material": "copper"}, conductivity=3)
    assert "conductivity is given beside" in mistakes(model=model)["model"]
    model = {"type": "heat", "materials": TWO}
    assert "2 materials and no regions" in mistakes(model=model)["model.materials"]
    model = heat_model(*HALVES, materials=TWO, stencil="heat-1d")
    assert "of one material" in mistakes(model=model)["model.stencil"]


def test_what_needs_the_capacity_is_refused_without_it() -> None:
    model = {"type": "heat", "diffusivity": 1, "sources": [{"power": 1}]}
    assert list(mistakes(model=model)) == ["model.sources"]
    model = {"type": "heat", "diffusivity": 1}
    faces = {"*": {"type": "radiation", "emissivity": 1, "ambient": 0}}
    assert (
        "radiation face needs the conductivity"
        in mistakes(model=model, boundaries=faces)["boundaries.*"]
    )


def test_a_step_that_is_too_large_is_refused_with_the_material() -> None:
    model = heat_model(*HALVES, materials=TWO)
    limit = build(model=model).dt_limit
    assert limit == pytest.approx(0.01 / 100)
    with pytest.raises(UnstableStepError, match="it is b that sets the limit"):
        build(model=model, time={"dt": 1.01 * limit, "steps": 1})
    with pytest.raises(UnstableStepError, match="it is b that sets the limit"):
        build(model=model, time={"cfl": 0.51, "steps": 1})


def test_the_stencil_model_takes_numbers_only() -> None:
    for face in (
        {"type": "neumann", "flux": "t"},
        {"type": "radiation", "emissivity": 1, "ambient": 0},
        [{"type": "neumann"}],
    ):
        config = make_config(
            settings(
                grid={"shape": [12]},
                model={"type": "stencil", "stencil": "heat-1d"},
                boundaries={"*": face},
                time={"steps": 1},
            )
        )
        with pytest.raises(ConfigError, match=r"belong to model\.type: heat"):
            config.build()


@pytest.mark.parametrize(
    ("between", "words"),
    [
        ("[a, air]", "no cell is of air"),
        ("[air, a]", "no cell is of air"),
        ("[steel, air]", "no cell is of steel or air"),
        ("[b, copper]", "no cell is of copper"),
        ("[die, air]", "'die' is no material"),
    ],
)
def test_contacts_of_what_is_not_there_are_told_with_their_line(
    between: str, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "c.yaml"
    text = TEXT.replace("between: [a, b]", f"between: {between}")
    for old, new in (("[2, 3]", "[0, 0.3]"), ("sqrt(x)", "x > 1"), ("x > 7", "x > 1.1")):
        text = text.replace(old, new)
    path.write_text(text)
    with pytest.raises(ConfigMistakesError) as caught:
        load_config(path)
    (found,) = caught.value.problems
    assert found.key.startswith("model.contacts.0.between")
    assert found.place.line == 13
    assert words in found.message
