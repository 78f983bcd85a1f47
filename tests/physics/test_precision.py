"""The precision report: rounding is exact, deviations are those of the states, and frozen fields
are called so.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from tetris_sim.__main__ import main
from tetris_sim.errors import ExitCode
from tetris_sim.model.slab import Slab
from tetris_sim.model.stencil import Stencil
from tetris_sim.model.stencils.catalogue import named_stencil
from tetris_sim.scheduler.machine.machine import find_machine
from tetris_sim.verification.case import CaseSolver
from tetris_sim.verification.precision import (
    BFLOAT16,
    EMULATED,
    FLOAT16,
    FLOAT32,
    TF32,
    NumberFormat,
    PrecisionCase,
    as_json,
    compare,
    default_steps,
    deviation,
    emulate,
    notes,
    plate,
    rounded_stencil,
    sum_less_one,
)
from tetris_sim.verification.suite import choose_methods

SOLVER = CaseSolver(choose_methods("cpu.plain")[0], find_machine())


def floats(*values: float) -> npt.NDArray[np.float32]:
    return np.array(values, dtype=np.float32)


def nearest_even(value: Fraction, digits: int) -> Fraction:
    """The number of so many binary digits nearest to `value`, the even one of two."""
    exponent = math.frexp(float(value))[1] - digits
    return (
        round(value / Fraction(2) ** exponent) * Fraction(2) ** exponent
    )  # Python rounds halves to even


@pytest.mark.parametrize("form", EMULATED, ids=lambda form: form.name)
def test_rounding_is_to_nearest_and_ties_go_to_even(
    form: NumberFormat, rng: np.random.Generator
) -> None:
    values = (
        rng.uniform(1, 2, 400) * 2.0 ** rng.integers(-12, 14, 400) * rng.choice([-1, 1], 400)
    ).astype(np.float32)
    ulp = 2.0 ** (1 - form.digits)
    ties = floats(*(sign * (1 + (k + 0.5) * ulp) for k in range(6) for sign in (-1, 1)))
    for value, found in zip(
        [*values, *ties], form.rounded(np.concatenate([values, ties])), strict=True
    ):
        assert Fraction(float(found)) == nearest_even(Fraction(float(value)), form.digits)


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        (BFLOAT16, 1 + 2**-8, 1.0),
        (BFLOAT16, 1 + 3 * 2**-8, 1 + 2**-6),
        (BFLOAT16, 100.3, 100.5),
        (BFLOAT16, 0.23, 0.23046875),
        (BFLOAT16, 3.4e38, math.inf),
        (TF32, 1 + 2**-11, 1.0),
        (TF32, 1 + 2**-11 + 2**-20, 1 + 2**-10),
        (TF32, 100.03, 100.0),
        (TF32, 100.04, 100.0625),
        (TF32, 70000.0, 70016.0),
        (FLOAT16, 100.04, 100.0625),
        (FLOAT16, 70000.0, math.inf),
        (FLOAT16, 2.0**-24 * 1.5, 2.0**-23),
        (FLOAT16, 2.0**-26, 0.0),
        (TF32, -0.0, -0.0),
        (BFLOAT16, -math.inf, -math.inf),
    ],
)
def test_rounding_gives_exact_values(form: NumberFormat, value: float, expected: float) -> None:
    found = form.rounded(floats(value))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, floats(expected))
    assert np.signbit(found[0]) == np.signbit(expected)


@pytest.mark.parametrize("form", EMULATED, ids=lambda form: form.name)
def test_a_nan_stays_one_and_what_fits_stays_as_it_is(form: NumberFormat) -> None:
    odd = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000], dtype=np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):
        assert np.isnan(form.rounded(odd)).all()
    fitting = floats(0.0, 1.0, -1.5, 100.0, 2.0**-10)
    np.testing.assert_array_equal(form.rounded(fitting), fitting)


@pytest.mark.parametrize(
    ("form", "spacing"), [(FLOAT16, 2**-4), (TF32, 2**-4), (BFLOAT16, 0.5), (FLOAT32, 2**-17)]
)
def test_the_spacing_at_100_degrees_is_that_of_the_format(
    form: NumberFormat, spacing: float
) -> None:
    assert form.spacing(100.0) == spacing
    if form != FLOAT32:
        steps = form.rounded(floats(100 + 0.49 * spacing, 100 + 0.51 * spacing))
        np.testing.assert_array_equal(steps, floats(100, 100 + spacing))


def test_balanced_weights_sum_to_one_and_rounded_ones_do_not() -> None:
    stencil = plate(16, 1, "float64").stencil
    for form in EMULATED:
        balanced, rounded = (
            rounded_stencil(stencil, form, balanced=choice) for choice in (True, False)
        )
        assert sum_less_one(balanced) == 0
        assert sum_less_one(rounded) != 0
        for one in (balanced, rounded):
            np.testing.assert_array_equal(form.rounded(floats(*one.weights)), floats(*one.weights))
            assert (
                max(abs(a - b) for a, b in zip(one.weights, stencil.weights, strict=True))
                < 2.0**-form.digits
            )
    assert sum_less_one(stencil, np.dtype(np.float32)) == pytest.approx(2.0**-26, rel=1e-6)


@pytest.mark.parametrize("form", EMULATED, ids=lambda form: form.name)
def test_one_emulated_step_is_that_of_exact_arithmetic_rounded(form: NumberFormat) -> None:
    # One product per point: rounded to the format once to enter it, exact in float32, and once more
    # to be stored.
    problem = plate(9, 1, "float64")
    carried = rounded_stencil(Stencil(((0, 1),), (0.3,)), form, balanced=False)
    start = problem.initial(Slab.whole(problem.grid))
    found, before = emulate(start, dataclasses.replace(problem, stencil=carried), form)
    entered = form.rounded(start.astype(np.float32))
    np.testing.assert_array_equal(before, entered)
    neighbour = np.concatenate([entered[..., 1:], entered[..., -1:]], axis=-1)
    product = floats(carried.weights[0])[0] * neighbour
    np.testing.assert_array_equal(found, form.rounded(product) if form.stored else product)
    assert (form != TF32) == np.array_equal(form.rounded(found), found)


def test_the_table_says_how_far_each_format_is() -> None:
    case, formats = compare(SOLVER, 64, default_steps(64))
    rows = {row.name: row for row in formats}
    assert list(rows) == ["float64", "float32", "tf32", "bfloat16", "float16"]
    assert case.steps == 169
    assert case.centre == pytest.approx(52.0, abs=0.15)  # the paper's 52.0 degC
    assert case.time_s == pytest.approx(19.22e-3, rel=2e-3)
    exact, single = rows["float64"], rows["float32"]
    assert (exact.largest, exact.unchanged, exact.absolute) == (0.0, 0.0, (0.0, 0.0, 0.0))
    assert 0 < single.largest < 1e-3
    assert single.absolute == single.relative == (0.0, 0.0, 0.0)
    for row in rows.values():
        assert list(row.absolute) == sorted(row.absolute, reverse=True)
        assert list(row.relative) == sorted(row.relative, reverse=True)
    assert rows["bfloat16"].largest > rows["float16"].largest > 100 * single.largest
    assert rows["bfloat16"].absolute[2] > rows["float16"].absolute[2]


def test_float16_as_a_method_stores_it_is_as_far_off_as_the_emulated_one() -> None:
    case, formats = compare(SOLVER, 64, default_steps(64), half=[SOLVER])
    *_, emulated, stored = formats
    assert (emulated.computed_by, stored.computed_by) == ("emulated", "cpu.plain")
    assert stored.largest == pytest.approx(emulated.largest, rel=0.3)
    assert stored.unchanged == pytest.approx(emulated.unchanged, abs=0.1)
    assert abs(stored.weights_less_one) < 1e-6
    assert stored.label == "float16 (cpu.plain)"
    assert case.steps == 169


def test_a_field_whose_changes_are_below_the_spacing_is_said_to_freeze() -> None:
    case, formats = compare(SOLVER, 192, 150)
    rows = {row.name: row for row in formats}
    coarse, single = rows["bfloat16"], rows["float32"]
    assert (
        coarse.spacing == 0.5 > 2 * case.first_change
    )  # so that rounding undoes every step in the middle
    assert coarse.frozen
    assert coarse.centre == 100.0
    (note,) = notes(case, coarse)
    assert "the field freezes" in note
    assert "0.5 degC apart" in note
    assert f"{case.first_change:.2g} degC at first" in note
    assert not single.frozen
    assert not any("freezes" in note for note in notes(case, single))


def test_weights_that_are_rounded_one_by_one_change_the_heat() -> None:
    case, formats = compare(SOLVER, 24, 400, balanced=False)
    rows = {row.name: row for row in formats}
    for name in ("tf32", "float16"):
        assert rows[name].weights_less_one < 0
        assert any(
            "multiply all heat by 0.9759 in 400 steps" in note for note in notes(case, rows[name])
        )
    assert rows["bfloat16"].centre > 1.5 * case.centre
    assert not list(notes(case, rows["float32"]))


def test_shares_are_those_of_the_points_that_are_off_and_what_is_not_finite_is_off() -> None:
    case = PrecisionCase(2, 1, 1.0, 100.0, 1.0, 1.0, 50.0)
    exact = np.array([[[10.0, 20.0], [50.0, 50.0]]])
    found = np.array([[[10.2, 20.7], [np.nan, np.inf]]], dtype=np.float32)
    row = deviation(FLOAT32, "by hand", (found, exact, found == exact), 0.0, case)
    assert row.absolute == (1.0, 0.75, 0.5)
    assert row.relative == (1.0, 0.75, 0.5)
    assert (row.unchanged, row.frozen, math.isnan(row.largest)) == (0.0, False, True)
    assert as_json(row)["largest"] is None


def test_numbers_beyond_float16_become_infinite() -> None:
    problem = plate(16, 40, "float64")
    start = problem.initial(Slab.whole(problem.grid))
    growing = dataclasses.replace(problem, stencil=Stencil(((0, 0),), (4.0,)))
    assert np.isinf(emulate(start, growing, FLOAT16)[0]).any()
    assert np.isfinite(emulate(start, growing, BFLOAT16)[0]).all()


def test_the_command_prints_the_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--precision", "--points", "32", "--method", "cpu.plain"]) == ExitCode.OK
    shown = capsys.readouterr().out
    for part in (
        "32 x 32 points, 42 steps",
        r"bfloat16 +emulated +\d",
        r"float32 +paper, table 4 +73\.1% +17\.2%",
    ):
        assert re.search(part, shown), part
    command = [
        "verify",
        "--precision",
        "--points",
        "32",
        "--steps",
        "5",
        "--method",
        "cpu.plain",
        "--json",
    ]
    assert main(command) == ExitCode.OK
    document = json.loads(capsys.readouterr().out)
    assert PrecisionCase(**document["case"]).steps == 5
    names = ["float64", "float32", "tf32", "bfloat16", "float16", "float16"]
    assert [row["name"] for row in document["formats"]][:6] == names
    assert document["formats"][5]["computed_by"] == "cpu.plain"
    assert document["paper"]["absolute"] == pytest.approx([0.731, 0.172, 0.113])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--points", "32"], "--points belongs to --precision"),
        (["--precision", "--points", "4"], "at least 8 points"),
        (["--precision", "--steps", "0"], "at least 8 points and 1 step"),
        (["--precision", "--case", "mode"], "--case chooses"),
        (["--precision", "--quick"], "--quick chooses"),
        (["--precision", "--method", "cpu.fast"], "not one of this machine's methods"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", *arguments]) == ExitCode.CONFIG
    assert complaint in capsys.readouterr().err


def test_the_plate_is_that_of_the_example() -> None:
    problem = plate(16, 3, "float64")
    assert problem.stencil.terms[(0, 0)] == pytest.approx(1 - 4 * 0.23)
    assert set(problem.stencil.terms) == set(named_stencil("heat-2d").stencil.terms)
