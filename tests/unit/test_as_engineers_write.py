"""Units, face types and ranges as engineers write them, and what is said where they slip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.body_samples import heat_model, settings
from tetris_sim.apps.heat.model import HeatModel
from tetris_sim.commands.sweep import read_over
from tetris_sim.config import make_config
from tetris_sim.config.sections import quantities as q
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import ConfigError, TetrisError
from tetris_sim.model.formula import ExpressionError, compile_expression

DIFFERENCE, RESISTANCE, ANY = (
    it.__metadata__[0]  # type: ignore[attr-defined]
    for it in (q.TemperatureDifference, q.ContactResistance, q.AnyNumber)
)
SPELLINGS: list[tuple[q.Quantity, float, str]] = [
    (
        q.HEAT_TRANSFER_COEFFICIENT,
        25.0,
        "25 W/m2K|25 W m-2 K-1|25 W/(m2 K)|25 W/m²K|25W/(m^2*K)|25 W/m2 K|25 W/m2/K|25 W/m2°C|"
        "25 W·m⁻²·K⁻¹|25 W / m2 / K|25 W/m2.K|2.5 mW/cm2K|25 W*m**-2*K**-1|25 W/(m² °C)",
    ),
    (q.CONDUCTIVITY, 401.0, "401 W/mK|401 W/m K|401 W m-1 K-1|4.01 W/cmK|401 W/m°C|401 W/m.K"),
    (q.SPECIFIC_HEAT, 385.0, "0.385 J/gK|0.385 kJ/(kg·K)|0.385 kJ/kg K|385 J/kgK|385 J kg-1 K-1"),
    (q.LENGTH, 5e-6, "5 um|5 μm|5 µm|0.005mm"),
    (q.LENGTH, 0.3048, "12 in|1 ft"),
    (q.TEMPERATURE, 20.0, "20 degC|20 °C|20 ° C|20 ºC|20 ℃|20 deg C|68 °F|68 deg F|68 degF"),
    (q.TEMPERATURE, -40.0, "−40 °C|-40 °F"),
    (DIFFERENCE, 10.0, "10 K|10 °C|18 °F|18 degF"),
    (q.POWER, 0.005, "5 mW|5e-6 kW"),
    (q.HEAT_FLUX, 5e4, "5 W/cm2|50 kW/m2|50 kW m-2"),
    (RESISTANCE, 1e-5, "1e-5 m2K/W|10 mm2 K/W|0.1 cm2·K/W"),
    (ANY, 5 / 60000, "5 l/min"),
    (ANY, 0.5, "0.5 K/W"),
    (ANY, 0.003, "3 mK/s"),
]


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [(kind, number, text) for kind, number, some in SPELLINGS for text in some.split("|")],
)
def test_a_unit_is_read_as_engineers_write_it(kind: q.Quantity, number: float, text: str) -> None:
    assert kind.read(text) == pytest.approx(number, rel=1e-15)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (q.LENGTH, "10MM", "did you mean '10 mm'? capitals and small letters differ"),
        (q.LENGTH, "10 CM", "did you mean '10 cm'?"),
        (q.POWER, "5 w", "did you mean '5 W'?"),
        (q.CONDUCTIVITY, "401 w/mk", "did you mean '401 W/mK'?"),
        (q.LENGTH, "0,5 mm", "write '0.5 mm', with a point"),
        (q.HEAT_TRANSFER_COEFFICIENT, "25 W/m2", "is a heat flux"),
        (ANY, "3 W/mK", "has two meanings; put what is divided by into parentheses"),
    ],
)
def test_a_slip_is_told_with_what_was_meant(kind: q.Quantity, text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        kind.read(text)
    assert said in str(caught.value)


def test_quantities_of_pint_are_read_with_their_units() -> None:
    import pint

    units = pint.UnitRegistry()
    assert q.HEAT_TRANSFER_COEFFICIENT.read(units.Quantity(2.5, "mW/cm^2/K")) == 25.0
    assert q.TEMPERATURE.read(units.Quantity(300, "K")) == 26.85
    with pytest.raises(ValueError, match="a number without dimension"):
        q.LENGTH.read(units.Quantity(3, ""))
    config = make_config(
        settings(grid={"shape": [8, 6], "size": units.Quantity(np.array([15, 12]), "mm")})
    )
    assert config.resolved()["grid"]["size"] == [0.015, 0.012]


def test_synonyms_of_faces_are_kept_and_mean_the_same() -> None:
    faces: dict[str, dict[str, Any]] = {
        "x-": {"type": "symmetry"},
        "x+": {"type": "convection", "h": "25 W/m2K", "ambient": 20},
        "y-": {"type": "heat_flux", "flux": "500 W/m2"},
        "y+": {"type": "temperature", "value": 30},
    }
    plain = {"x-": "neumann", "x+": "robin", "y-": "neumann", "y+": "dirichlet"}
    both = []
    for types in (faces, {key: {**it, "type": plain[key]} for key, it in faces.items()}):
        grid = {"shape": [8, 6], "size": [0.8, 0.6]}
        both.append(make_config(settings(grid=grid, boundaries=types)))
    found = both[0].resolved()["boundaries"]
    assert [found[key]["type"] for key in faces] == [it["type"] for it in faces.values()]
    assert both[0].build().boundary == both[1].build().boundary


@pytest.mark.parametrize(
    ("face", "said"),
    [
        ({"type": "insulated", "flux": 3}, "nothing flows through a face of type insulated"),
        ({"type": "symmetry", "flux": "t"}, "nothing flows through a face of type symmetry"),
        ({"type": "heat_flux"}, "heat_flux needs flux"),
    ],
)
def test_a_face_that_contradicts_its_type_is_refused(face: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_config(settings(boundaries={"*": face}))


@pytest.mark.parametrize(("ndim", "per"), [(1, "m2"), (2, "m"), (3, "")])
@pytest.mark.parametrize("given", ["", "m", "m2"])
def test_a_power_is_given_per_length_or_area_of_the_missing_axes(
    ndim: int, per: str, given: str
) -> None:
    power = f"0.2 kW/{given}" if given else "0.2 kW"
    sections = settings(
        grid={"shape": [6] * ndim, "size": [0.6] * ndim},
        model=heat_model({"material": "copper"}, sources=[{"power": power}]),
    )
    if given not in ("", per):
        with pytest.raises(ConfigError, match=rf"it is in W per .+; in {ndim}D it is W"):
            make_config(sections)
    else:
        assert make_config(sections).resolved()["model"]["sources"][0]["power"] == 200.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("b:\n  *: {type: x}", 'quote it, "*"'),
        ("a: *\nb: 2", 'quote it, "*"'),
        ("a: [1, 2\nb: 3", "a bracket is open; close it with ]"),
        ("a: 'text\nb: 3", "a quotation mark before this is not closed"),
        ("a:\n  b: 1\n c: 2", "indented differently"),
        ("a: @x", "text cannot begin with the character @; put it into quotes"),
        ("a: %x", "text cannot begin with the character %"),
        ("a: {b: 1}}", "this } closes nothing"),
        ("- 1\na: 2", "a list and keys are mixed"),
        ("a: - 1", "a list may not begin on this line"),
        ('a: "x" y', "text follows a value that is complete"),
        ("a\nb: 1", "a ':' is missing there"),
        ('a: "\\q"', "use single quotes"),
    ],
)
def test_the_parser_speaks_in_words(text: str, said: str) -> None:
    with pytest.raises(TetrisError) as caught:
        read_yaml(text, "c.yaml")
    assert said in str(caught.value)
    assert "while " not in str(caught.value)


def test_all_unknown_names_of_a_formula_are_told_at_once() -> None:
    with pytest.raises(ExpressionError) as caught:
        compile_expression("kk*x + q*sin(zz) + kk", ["k", "x"])
    assert "unknown names 'kk'" in str(caught.value)
    assert all(repr(name) in str(caught.value) for name in ("kk", "q", "zz"))


def test_a_region_that_later_ones_cover_is_told() -> None:
    model = heat_model(
        {"material": "copper"},
        {"material": "steel", "box": {"x": [0.6, 0.9]}, "name": "fins"},
        {"material": "aluminium", "box": {"x": [0.5, 1.2]}},
    )
    config = make_config(settings(model=model))
    assert isinstance(config.model, HeatModel)
    (note,) = (it for it in config.model.notes(config) if "later regions" in it)
    assert note.startswith("model.regions.1 (fins): later regions cover all of it")


@pytest.mark.parametrize("given", ["10:50", "1 mm:5 mm", "10:50:0.5", "10:50:"])
def test_a_range_without_a_count_says_what_is_missing(given: str) -> None:
    with pytest.raises(ConfigError, match="a whole number of values is missing"):
        read_over(f"boundaries.x+.h={given}")


TOO_COLD: dict[str, tuple[str, Any]] = {
    "initial.value": ("initial", {"type": "constant", "value": -300}),
    "initial.amplitude": ("initial", {"type": "gaussian", "amplitude": -400, "sigma": 0.1}),
    "boundaries.*.value": ("boundaries", {"*": {"type": "dirichlet", "value": -274}}),
    "boundaries.*.ambient: row 2": (
        "boundaries",
        {"*": {"type": "robin", "h": 1, "ambient": {"table": [[0, 0], [9, -280]]}}},
    ),
    "boundaries.*.ambient: it is -300 at t = 0": (
        "boundaries",
        {"*": {"type": "robin", "h": 1, "ambient": "t - 300"}},
    ),
    "boundaries.*.radiation.0.ambient": (
        "boundaries",
        {
            "*": {
                "type": "convection",
                "h": 1,
                "ambient": 0,
                "radiation": [{"emissivity": 0.5, "ambient": -300}],
            }
        },
    ),
    "model.materials.it.specific_heat: row 1": (
        "model",
        heat_model(
            {"material": "it"},
            materials={
                "it": {
                    "conductivity": 1,
                    "density": 1,
                    "specific_heat": {"table": [[-300, 400], [0, 500]]},
                }
            },
        ),
    ),
}


@pytest.mark.parametrize("told", TOO_COLD)
def test_nothing_is_colder_than_absolute_zero(told: str) -> None:
    key, section = TOO_COLD[told]
    with pytest.raises(ConfigError) as refused:
        make_config(settings(**{key: section}), environ={})
    said = str(refused.value)
    assert told in said
    assert "below absolute zero" in said or "-273.15 or more" in said
