from __future__ import annotations

import pytest

from tetris_sim.apps.heat.materials import MATERIALS

# Diffusivities [m^2/s] printed in the same tables: a check of the typing. They are rounded to three
# digits, as are the numbers they were computed from; the book's own rows are off by up to 1.4 %
# (iron).
PRINTED = {
    "aluminium": 97.1e-6,
    "brass": 33.9e-6,
    "copper": 117e-6,
    "gold": 127e-6,
    "iron": 23.1e-6,
    "lead": 24.1e-6,
    "nickel": 23.0e-6,
    "silicon": 89.2e-6,
    "silver": 174e-6,
    "stainless-steel": 3.95e-6,
    "stainless-steel-316": 3.48e-6,
    "steel": 17.7e-6,
    "titanium": 9.32e-6,
    "tungsten": 68.3e-6,
    "zinc": 41.8e-6,
    "air": 22.5e-6,
}


@pytest.mark.parametrize("name", MATERIALS)
def test_every_material_names_the_row_its_numbers_come_from(name: str) -> None:
    source = MATERIALS[name].source
    assert "Table A." in source
    assert "300 K" in source
    assert not source.endswith(": ")


@pytest.mark.parametrize("name", PRINTED)
def test_the_numbers_of_a_material_lead_to_the_printed_diffusivity(name: str) -> None:
    assert MATERIALS[name].diffusivity == pytest.approx(PRINTED[name], rel=0.014)


@pytest.mark.parametrize("name", MATERIALS)
def test_every_number_has_the_size_that_a_substance_can_have(name: str) -> None:
    material = MATERIALS[name]
    assert 0.02 < material.conductivity < 500
    assert 1 < material.density < 23000
    assert 100 < material.specific_heat < 4200
    assert 5e-8 < material.diffusivity < 2e-4


def test_the_materials_people_ask_for_first_are_there() -> None:
    assert {
        "copper",
        "aluminium",
        "steel",
        "stainless-steel",
        "glass",
        "concrete",
        "wood",
        "water",
    } <= set(MATERIALS)
