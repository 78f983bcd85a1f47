"""What a person may write for a number or an interval, and what is said if it cannot be read."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, TypeAdapter, ValidationError

from tetris_sim.config.sections import quantities
from tetris_sim.config.sections.quantities import (
    AnyInterval,
    Every,
    Interval,
    IntervalText,
    Quantity,
)

ANNOTATED: dict[str, Any] = {
    name: getattr(quantities, name)
    for name in (
        "Length",
        "PositiveLength",
        "PositiveDuration",
        "WallTime",
        "Temperature",
        "TemperatureDifference",
        "Diffusivity",
        "Conductivity",
        "Density",
        "SpecificHeat",
        "HeatFlux",
        "HeatTransferCoefficient",
    )
}
ADAPTERS = {name: TypeAdapter[float](annotated) for name, annotated in ANNOTATED.items()}


def complaint(name: str, value: object) -> str:
    """The sentence with which `value` is refused."""
    with pytest.raises(ValidationError) as caught:
        ADAPTERS[name].validate_python(value)
    (error,) = caught.value.errors()
    return str(error["ctx"]["error"])


@pytest.mark.parametrize(
    ("name", "text", "number"),
    [
        ("Length", "15 mm", 0.015),
        ("Length", "15.3mm", 0.0153),
        ("Length", "-2 cm", -0.02),
        ("Length", "0.1 inch", 0.00254),
        ("Length", "58.6 µm", 58.6e-6),
        ("PositiveDuration", "2 h", 7200.0),
        ("PositiveDuration", "30 min", 1800.0),
        ("PositiveDuration", "19.22 ms", 0.01922),
        ("Temperature", "300 K", 26.85),
        ("Temperature", "0 K", -273.15),
        ("Temperature", "20°C", 20.0),
        ("Temperature", "212 degF", 100.0),
        ("TemperatureDifference", "100 K", 100.0),
        ("TemperatureDifference", "100 degC", 100.0),
        ("TemperatureDifference", "180 degF", 100.0),
        ("Diffusivity", "111 mm**2/s", 1.11e-4),
        ("Diffusivity", "1.11e-4 m^2/s", 1.11e-4),
        ("Diffusivity", "111 mm²/s", 1.11e-4),
        ("Conductivity", "401 W/(m K)", 401.0),
        ("Conductivity", "4.01 W/cm/K", 401.0),
        ("Conductivity", "401 W/(m degC)", 401.0),
        ("Density", "8.96 g/cm^3", 8960.0),
        ("SpecificHeat", "385 J/(kg K)", 385.0),
        ("SpecificHeat", "0.385 J/(g K)", 385.0),
        ("HeatFlux", "-20 kW/m^2", -20_000.0),
        ("HeatTransferCoefficient", "25 W/(m^2 K)", 25.0),
    ],
)
def test_text_with_a_unit_becomes_the_si_number_exactly(
    name: str, text: str, number: float
) -> None:
    assert (
        ADAPTERS[name].validate_python(text) == number
    )  # decimal arithmetic: not a single rounding more


@pytest.mark.parametrize("name", ANNOTATED)
def test_plain_numbers_are_si_whatever_type_they_have(name: str) -> None:
    for value in (2, 2.5, "2.5", " 2.5e0 ", np.float32(2.5), np.int64(3), Fraction(5, 2)):
        assert ADAPTERS[name].validate_python(value) == float(value)


@given(st.floats(1e-12, 1e12), st.sampled_from(["nm", "um", "mm", "cm", "m", "km"]))
def test_a_unit_scales_by_exactly_its_power_of_ten(number: float, unit: str) -> None:
    power = {"nm": -9, "um": -6, "mm": -3, "cm": -2, "m": 0, "km": 3}[unit]
    exact = Fraction(repr(number)) * Fraction(10) ** power
    assert ADAPTERS["Length"].validate_python(f"{number!r} {unit}") == float(exact)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("Length", "15 s", "'15 s' is a time; a length is wanted, for example '15 mm'"),
        ("Temperature", "25 C", "'25 C' is an electric charge (did you mean '25 degC'? C is the coulomb); a temperature is wanted, "
         "for example '20 degC' or '300 K'"),
        ("Length", "3 kg m", "'3 kg m' is a quantity of another dimension; a length is wanted, for example '15 mm'"),
        ("Length", "3 %", "'3 %' is a number without dimension; a length is wanted, for example '15 mm'"),
        ("Length", "3 lightparsnips", "'lightparsnips' in '3 lightparsnips' is not a unit; a length is wanted, "
         "for example '15 mm'"),
        ("Length", True, "true was found; a length is wanted, for example '15 mm'"),
        ("Length", None, "nothing was found; a length is wanted, for example '15 mm'"),
        ("Length", [1], "a list of 1 was found; a length is wanted, for example '15 mm'"),
        ("Length", math.inf, "inf is not a finite number; a length is wanted, for example '15 mm'"),
        ("Length", "1e999", "'1e999' is not a finite number; a length is wanted, for example '15 mm'"),
        ("Length", "1e308 Ym", "'1e308 Ym' is not a finite number; a length is wanted, for example '15 mm'"),
        ("Length", 10**400, "a whole number of very many digits is not a finite number; a length is wanted, "
         "for example '15 mm'"),
        ("PositiveLength", "0 mm", "'0 mm' was found; a length greater than 0 is wanted, for example '15 mm'"),
        ("HeatTransferCoefficient", -1, "-1 was found; a heat transfer coefficient of 0 or more is wanted, "
         "for example '25 W/(m^2 K)'"),
        ("Temperature", "-1 K", "'-1 K' is below absolute zero; a temperature is wanted, "
         "for example '20 degC' or '300 K'"),
        ("WallTime", "soon", "'soon' was found; a time greater than 0 is wanted, for example '2 h' or '30 min'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_with_a_sentence(
    name: str, value: object, sentence: str
) -> None:
    assert complaint(name, value) == sentence


@pytest.mark.parametrize(
    "text",
    ["9**9**9 m", "1 m**99", "1 m**9**9", "2 m.real", "1 __import__('os')", "1 m;s", "0x10 m"],
)
def test_text_outside_of_the_strict_pattern_never_reaches_the_unit_library(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reached(*_: object, **__: object) -> float:
        pytest.fail(f"{text!r} was handed on")

    monkeypatch.setattr(quantities, "convert", reached)
    assert "was found; a length is wanted" in complaint("Length", text)


_SIGNS = "0123456789.eE+-*/^()[]{} _%°µ²³!,;:=<>'\"\\\n\t\x00\ud800ﬁ٣Å"
_WORDS = (
    "m",
    "s",
    "K",
    "degC",
    "delta_",
    "W",
    "J",
    "k",
    "Y",
    "**",
    "^-9",
    "1e9",
    "dB",
    "Np",
    "pi",
    "c",
    "nan",
    "None",
)
_PIECES = st.sampled_from([*_SIGNS, *_WORDS])


@given(
    st.one_of(
        st.text(max_size=90),
        st.lists(_PIECES, max_size=30).map("".join),
        st.lists(_PIECES, max_size=12).map(lambda pieces: "1.5 m" + "".join(pieces)),
    ),
    st.sampled_from(sorted(ANNOTATED)),
)
def test_any_text_is_read_as_a_finite_number_or_refused(text: str, name: str) -> None:
    (quantity,) = ANNOTATED[name].__metadata__
    outcome: float | ValueError
    try:
        outcome = quantity.read(text)
    except ValueError as error:
        outcome = error
    if isinstance(outcome, ValueError):
        assert type(outcome) is ValueError  # our own sentence, nothing that escaped from below
        assert quantity.wanted in str(outcome)
    else:
        assert math.isfinite(outcome)


@pytest.mark.parametrize(
    ("value", "every"),
    [
        ("100 steps", Every(100, "steps")),
        ("1 step", Every(1, "steps")),
        ("1e3 steps", Every(1000, "steps")),
        ("1 ms", Every(1e-3, "s")),
        ("2", Every(2.0, "s")),
        (0.25, Every(0.25, "s")),
        (Every(7, "steps"), Every(7, "steps")),
    ],
)
def test_an_interval_is_steps_or_simulated_time(value: object, every: Every) -> None:
    assert TypeAdapter[Every](Interval).validate_python(value) == every
    assert TypeAdapter[Every](AnyInterval).validate_python(value) == every


def test_wall_time_is_for_those_that_allow_it() -> None:
    assert IntervalText(wall=True).read("30 min wall") == Every(1800.0, "wall")
    with pytest.raises(ValueError, match="'30 min wall' is wall time, which is for checkpoints"):
        IntervalText(wall=False).read("30 min wall")
    with pytest.raises(ValueError, match="is wall time"):
        IntervalText(wall=False).read(Every(3.0, "wall"))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("0 steps", "'0 steps' was found; a whole number of steps, 1 or more, is wanted"),
        ("1.5 steps", "'1.5 steps' was found; a whole number of steps, 1 or more, is wanted"),
        ("1e17 steps", "'1e17 steps' was found; a whole number of steps, 1 or more, is wanted"),
        ("15 mm", "'15 mm' is a length; an interval greater than 0 is wanted, for example '100 steps', '1 ms' or "
         "'30 min wall'"),
        (0, "0 was found; an interval greater than 0 is wanted, for example '100 steps', '1 ms' or '30 min wall'"),
        (True, "true was found; an interval greater than 0 is wanted, for example '100 steps', '1 ms' or "
         "'30 min wall'"),
        ("-1 s wall", "'-1 s' was found; an interval greater than 0 is wanted, for example '100 steps', '1 ms' or "
         "'30 min wall'"),
    ],
)  # fmt: skip
def test_what_is_no_interval_is_refused_with_a_sentence(value: object, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        IntervalText(wall=True).read(value)
    assert str(caught.value) == sentence


@given(
    st.one_of(
        st.builds(Every, st.integers(1, 2**53).map(float), st.just("steps")),
        st.builds(
            Every,
            st.floats(min_value=0, exclude_min=True, allow_infinity=False),
            st.sampled_from(["s", "wall"]),
        ),
    )
)
def test_an_interval_survives_being_written_and_read(every: Every) -> None:
    class Holder(BaseModel):
        every: AnyInterval

    dumped = Holder(every=every).model_dump(mode="json")
    assert isinstance(dumped["every"], str)
    assert Holder.model_validate(dumped).every == every


@pytest.mark.parametrize(
    ("value", "unit"),
    [(0, "s"), (-1, "steps"), (1.5, "steps"), (math.nan, "s"), (math.inf, "wall")],
)
def test_an_interval_that_means_nothing_cannot_be_made(value: float, unit: Any) -> None:
    with pytest.raises(ValueError, match="interval"):
        Every(value, unit)


def test_numbers_without_foreign_units_do_not_import_the_unit_library() -> None:
    code = (
        "import sys, tetris_sim, tetris_sim.config\n"
        "from tetris_sim.config.sections.quantities import Quantity\n"
        "assert Quantity('a length', 'm', ('15 mm',)).read('2 m') == 2\n"
        "print('pint' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_long_text_that_almost_matches_is_refused_at_once() -> None:
    start = time.perf_counter()
    for text in (
        "1 " + "a" * 77 + "!",
        "1 " + "m " * 38 + "!",
        "1 " + "m^2" * 25 + "!!!",
        "1" * 79 + "!",
    ):
        assert "was found" in complaint("Length", text)
    assert time.perf_counter() - start < 5  # a pattern that tries every split would take ages


def test_a_quantity_names_its_bound() -> None:
    assert Quantity("a length", "m", ("15 mm",), "positive").wanted == "a length greater than 0"
