"""What a YAML text means, and what is said where it means nothing."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.config_cases import GOOD, changed, mistakes, read
from tetris_sim.config.yaml import MOST_CHARACTERS, read_yaml, write_yaml


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "c.yaml:1:1: this is empty; a configuration is wanted, and `init` writes one"),
        ("# only a comment\n", "c.yaml:1:1: this is empty"),
        ("- 1\n- 2\n", "c.yaml:1:1: a section of keys and values is wanted at the top level"),
        ("just text", "c.yaml:1:1: a section of keys and values is wanted at the top level"),
        ("a: [1, 2\nb: 3", "c.yaml:2:2: this is not YAML: "),
        ("a: b: c", "c.yaml:1:5: this is not YAML: there is a second ': ' here; put text that holds ': ' into quotes"),
        ("a:\n\tb: 1", "c.yaml:2:1: this is not YAML: there is a tab here; indent with blanks"),
        ("a: '\x00'", "c.yaml:1:5: the character U+0000 is not allowed in YAML"),
        ("a: 1\n---\nb: 2", "c.yaml:2:1: a second document begins here; a configuration is one document"),
        ("[" * 1000, "c.yaml:1:33: this is nested too deeply; at most 32 levels are allowed"),
        ("a: &x [*x]", "c.yaml:1:8: *x stands for nothing, or for something that contains it"),
        ("a: *x", "c.yaml:1:4: *x stands for nothing"),
        ("? [1]\n: 2", "c.yaml:1:3: a key must be text, not a list or a section"),
        ("<<: {a: 1}", "c.yaml:1:1: merging with << is not part of YAML 1.2; write the keys out"),
        ('a: "\\Uffffffff"', "c.yaml: this is not YAML"),
        ("x" * (MOST_CHARACTERS + 1), f"c.yaml: the text has {MOST_CHARACTERS + 1} characters; a configuration has at"),
    ],
)  # fmt: skip
def test_text_that_cannot_be_a_configuration_is_refused_at_its_place(text: str, told: str) -> None:
    (only,) = mistakes(text)
    assert only.startswith(told)


def test_a_key_given_twice_is_told_with_both_places() -> None:
    text = GOOD.replace("time: {t_end: 1 ms}", "time:\n  t_end: 1 ms\n  t_end: 2 ms\n")
    assert mistakes(text) == [
        "c.yaml:9:3: 't_end' is given twice; the first is on line 8, column 3"
    ]
    told = mistakes(text.replace("sigma: 2 mm", "sigma: 2 s"))
    assert [line.split(": ")[0] for line in told] == ["c.yaml:3:52", "c.yaml:9:3"]


def test_a_tag_is_told_and_nothing_is_made_of_it() -> None:
    told = mistakes(
        GOOD.replace("material: copper", "material: !!python/object/apply:os.getcwd []")
    )
    assert told[1] == (
        "c.yaml:2:31: the tag 'tag:yaml.org,2002:python/object/apply:os.getcwd' is not allowed; "
        "write plain values"
    )


def test_aliases_mean_what_they_stand_for_and_their_mistakes_have_a_place() -> None:
    text = GOOD.replace("{type: neumann}", "&cold {type: dirichlet, value: 1}").replace(
        "x-: {type: dirichlet, value: 300 K}", "y: *cold"
    )
    assert read(text).resolved()["boundaries"] == {
        key: {"type": "dirichlet", "value": 1.0} for key in ("*", "y")
    }
    told = mistakes(text.replace("value: 1", "value: 1 m"))
    assert [line.split(": ")[:2] for line in told] == [
        ["c.yaml:5:39", "boundaries.*.value"],
        ["c.yaml:5:39", "boundaries.y.value"],
    ]


def test_a_small_text_cannot_mean_a_huge_one() -> None:
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    (only,) = mistakes("\n".join(lines))
    assert "more than 100000 values with all aliases written out" in only


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1), ("-7", -7), ("+3", 3), ("007", 7), ("0o17", 15), ("0x1F", 31), ("1e3", 1000.0), (".5e1", 5.0),
        ("1.", 1.0), ("-.5", -0.5), ("true", True), ("False", False), ("~", None), ("null", None), ("", None),
        ("yes", "yes"), ("on", "on"), ("1_000", "1_000"), ("12:30", "12:30"), ("2001-01-01", "2001-01-01"),
        ("'1'", "1"), ('"true"', "true"), (".inf", math.inf), ("-.INF", -math.inf), ("0o8", "0o8"), ("1e", "1e"),
        ("9" * 5000, math.inf), ("0x" + "f" * 5000, math.inf), ("x y", "x y"), ('"\\ud83d\\ude00"', "😀"),
    ],
)  # fmt: skip
def test_scalars_are_those_of_yaml_1_2(text: str, value: Any) -> None:
    root, told = read_yaml(f"a: {text}", "x")
    assert root is not None
    assert root.plain() == {"a": value}
    assert type(root.plain()["a"]) is type(value)
    assert told == []


def test_places_are_lines_and_characters_not_bytes() -> None:
    text = GOOD.replace("copper", "'ü', größe: 3")
    told = mistakes(text)
    assert any(line.startswith("c.yaml:2:36: model.größe: unknown key") for line in told)


def test_a_mistake_in_a_long_expression_points_at_the_line_it_begins_on() -> None:
    folded = "initial:\n  type: expression\n  expression: >\n    x +\n    qq"
    (only,) = mistakes(changed("initial", folded))
    assert only.startswith("c.yaml:5:15: initial.expression: unknown name 'qq'")
    assert only.endswith("(character 5 of the expression)")


def test_half_of_a_character_is_told_and_both_halves_are_one() -> None:
    root, told = read_yaml('a: "\\ud800"\nb: "\\ud83d\\ude00"', "x")
    assert [str(mistake) for mistake in told] == [
        "x:1:4: this holds half of a character (a lone surrogate)"
    ]
    assert root is not None
    assert root.plain()["b"] == "😀"


def test_long_lists_of_numbers_are_written_as_short_ones_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    numbers = [1e20, 1e-7, 3, 2.5, -1e-300, 0.1, -0.0, 10**30, 1.5e300] * 20
    values = {
        "edges": numbers,
        "table": [[1, 2.0], [3, [4.5, 1e22]]] * 100,
        "truth": [True, 1] * 50,
        "endless": [float("inf"), 1.0] * 50,
        "empty": [[]] * 70,
        "numbers0-": "numbers0- numbers1-",  # what stands for lists meanwhile is no such text
        "sections": [{"x": numbers, "y": 2}],
    }
    text = write_yaml(values)
    node, _ = read_yaml(text, "text")
    assert node is not None
    assert node.plain() == values
    with monkeypatch.context() as patched:
        patched.setattr("tetris_sim.config.yaml._LONG", 1 << 60)
        assert write_yaml(values) == text
