"""What is done for a quick start gives what the slow way gives: units, and the largest time step."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

from tetris_sim.config.sections import units
from tetris_sim.model.stencil import Stencil, _descend, largest_stable_dt
from tetris_sim.model.stencils.catalogue import laplacian_names, named_stencil

NUMBERS = ("1", "15.3", "-4e-3", "0.1", "123456.789012345", "3e300", "7e-11")
ENTRIES = [
    *((unit, target) for target, some in units.COMMON.items() for unit in some),
    *units.ZEROS,
]


@pytest.mark.parametrize(("unit", "target"), ENTRIES)
def test_common_units_convert_as_pint_has_them_to_the_bit(
    unit: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    difference = target == "delta_degC"
    quick = [units.convert(number, unit, target, difference=difference) for number in NUMBERS]
    monkeypatch.setattr(units, "COMMON", {})
    monkeypatch.setattr(units, "ZEROS", {})
    assert quick == [
        units.convert(number, unit, target, difference=difference) for number in NUMBERS
    ]


def test_a_table_of_units_says_nothing_of_other_dimensions() -> None:
    assert units.convert("1", "inch", "m") == float(Decimal("0.0254"))
    for unit, target in (("mm", "s"), ("K", "m"), ("W", "W/m^2")):
        with pytest.raises(units.UnitError):
            units.convert("1", unit, target)


def scipy_descend(objective: Any, simplex: Any) -> float:
    options = {"initial_simplex": simplex, "xatol": 1e-10, "fatol": 1e-15}
    return float(minimize(objective, simplex[0], method="Nelder-Mead", options=options).fun)


@pytest.mark.parametrize("name", [name for n in (1, 2, 3) for name in laplacian_names(n)])
def test_the_largest_step_has_the_bits_of_scipys_search(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(len(name))
    terms = named_stencil(name).stencil.terms
    for _ in range(3):
        scale = float(rng.uniform(1e-3, 1e3))
        skew = {offset: float(rng.uniform(0.9, 1.1)) for offset in terms}
        for operator in (
            Stencil.from_terms({k: scale * (v - (not any(k))) for k, v in terms.items()}),
            Stencil.from_terms({k: skew[k] * (v - (not any(k))) for k, v in terms.items()}),
        ):
            found = largest_stable_dt(operator)
            with monkeypatch.context() as patch:
                patch.setattr("tetris_sim.model.stencil._descend", scipy_descend)
                assert found == largest_stable_dt(operator)


@pytest.mark.parametrize("seed", range(12))
def test_a_simplex_goes_down_as_scipys_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 1 + seed % 3
    a, b = rng.normal(size=(n, n)), rng.normal(size=n)

    def bumpy(point: Any) -> float:
        return float(((a @ point - b) ** 2).sum() + np.sin(3 * point).sum() + abs(point[0]))

    simplex = np.vstack([b, b + 0.3 * np.eye(n)])
    assert _descend(bumpy, simplex.copy()) == scipy_descend(bumpy, simplex)
