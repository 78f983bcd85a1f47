"""docs/guide/configuration.md says what the schema says."""

from __future__ import annotations

import runpy
from pathlib import Path

from tetris_sim.apps import MODELS
from tetris_sim.config.sections.schema import Request

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_configuration_page_is_what_the_schema_would_write() -> None:
    page = runpy.run_path(str(DOCS / "make_config_reference.py"))["page"]()
    assert (DOCS / "guide" / "configuration.md").read_text() == page, (
        "run python docs/make_config_reference.py"
    )


def test_the_configuration_page_names_every_section_and_model() -> None:
    text = (DOCS / "guide" / "configuration.md").read_text()
    for name, field in Request.model_fields.items():
        assert f"| `{field.alias or name}` |" in text
    for name in MODELS:
        assert f"## model, type: {name}" in text
