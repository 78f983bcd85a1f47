"""docs/guide/messages.md has the messages that the program says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "make_messages_page.py"
MADE = runpy.run_path(str(SCRIPT))
WRONG = [(what, MADE["wrong"](old, new)) for what, old, new in MADE["MISTAKES"]]


def test_the_page_is_what_the_program_says() -> None:
    assert MADE["PAGE"].read_text() == MADE["page"](), "run python docs/make_messages_page.py"
    assert MADE["message"](MADE["BODY"]) == ""


@pytest.mark.parametrize(("what", "body"), WRONG, ids=[what for what, _ in WRONG])
def test_every_mistake_is_refused_once_with_its_line(what: str, body: str) -> None:
    said = MADE["message"](body)
    of_one = not what.startswith(("a decimal comma", "a region outside"))
    assert len(said.splitlines()) == 1 or not of_one
    # A step that is too long is found when the problem is built, from numbers of all sections.
    assert re.match(r"sink\.yaml:\d+:\d+: ", said) or said.startswith("time.dt = 1 s is unstable")


def test_keys_of_textbooks_are_translated() -> None:
    said = MADE["message"](MADE["wrong"]("silicon}", "{rho: 1, cp: 2}}"))
    assert "did you mean 'density'?" in said
    assert "did you mean 'specific_heat'?" in said
