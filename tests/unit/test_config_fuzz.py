"""Whatever is given as a configuration: it is refused with a clean error, or it is right and builds
a problem.

Thousands of inputs of five kinds, each from seeds that are printed with a failure: trees of random
data, good configurations with random changes, good texts with random changes, random YAML, random
bytes.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.config_mutants import (
    KEYS,
    NUMBERS,
    TEXTS,
    TREES,
    WORDS,
    changed_text,
    changed_tree,
    make,
    random_value,
    read,
    settle,
)
from tetris_sim.config import load_config


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(it, marks=pytest.mark.full) for it in range(4, 8))]
)
def test_a_good_configuration_with_random_changes_is_refused_or_right(seed: int) -> None:
    rng = random.Random(seed)
    right = 0
    for _ in range(250):
        right += settle(make(changed_tree(rng))) is not None
    assert 10 < right < 240  # both ways are taken


@pytest.mark.parametrize("seed", range(2))
def test_a_good_text_with_random_changes_is_refused_or_right(seed: int) -> None:
    rng = random.Random(1000 + seed)
    right = 0
    for _ in range(200):
        right += settle(read(changed_text(rng))) is not None
    assert 2 < right < 198


@pytest.mark.parametrize("seed", range(4))
def test_random_data_is_refused_or_right(seed: int) -> None:
    rng = random.Random(2000 + seed)
    for _ in range(500):
        top = {
            key: random_value(rng)
            for key in rng.sample(["grid", "model", "initial", "boundaries", "time"], 4)
        }
        settle(make(top if rng.random() < 0.9 else random_value(rng)))


@pytest.mark.parametrize("seed", range(2))
def test_random_overrides_are_refused_or_right(seed: int) -> None:
    rng = random.Random(3000 + seed)
    for _ in range(150):
        words = [rng.choice([*KEYS, "0", "1", "-1", "", "x"]) for _ in range(rng.randrange(1, 4))]
        section = rng.choice([*TREES["plate_2d"], ""])
        value = rng.choice(
            [*WORDS, *map(str, NUMBERS), "[1, 2]", "{type: heat}", "[", "{a: 1, a: 2}"]
        )
        settle(
            read(
                TEXTS["plate_2d"],
                ".".join([section, *words]) + rng.choice(["=", "=", "=", ""]) + value,
            )
        )


_YAML_PIECES = [
    *":,[]{}#&*!|>'\"%@`-?\n \t",
    ": ",
    "- ",
    "\n  ",
    "\n    ",
    "? ",
    "&a ",
    "*a",
    "!!str ",
    "---\n",
    "...\n",
    "<<",
]
_YAML_PIECES += [
    "%YAML 1.2\n",
    "%TAG ! x\n",
    '"\\x',
    '"\\U',
    "\x85",
    "\u2028",
    "\ud800",
    "\x07",
    "|2-\n",
    ">+\n",
    *KEYS[:20],
]


@given(
    st.one_of(
        st.text(max_size=200), st.lists(st.sampled_from(_YAML_PIECES), max_size=60).map("".join)
    )
)
@settings(max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
def test_random_yaml_is_refused(text: str) -> None:
    settle(read(text))


@given(
    st.recursive(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=20),
            st.binary(max_size=3),
        ),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(), st.integers()), inner),
        ),
        max_leaves=30,
    )
)
@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
def test_any_python_data_is_refused_or_right(data: Any) -> None:
    settle(make(data))


def test_random_bytes_in_a_file_are_refused(tmp_path: Path) -> None:
    rng = random.Random(4000)
    for size in [*range(40), *([200] * 200), 5000, 100_000]:
        (tmp_path / "c.yaml").write_bytes(rng.randbytes(size))
        settle(lambda: load_config(tmp_path / "c.yaml", environ={}))


@pytest.mark.parametrize(
    "text",
    [
        "- " * 200_000,
        "[" * 500_000,
        "{" * 500_000,
        "? " * 200_000,
        "a: 1\n" * 20_000,
        "a: [" + "1, " * 30_000 + "]",
        "grid: {shape: [" + "9" * 500_000 + "]}",
        '"' + "\n" * 500_000,
        "#" * 1_000_000,
        "a: &a [1]\n" + "".join(f"b{i}: *a\n" for i in range(7_000)),
        "initial: {type: expression, expression: '" + "(" * 500_000 + "'}",
        "boundaries: {" + ", ".join(f"k{i}: {{type: fixed}}" for i in range(3_500)) + "}",
        "output: {probes: [" + "{at: [1], every: x}, " * 2_500 + "]}",
    ],
    ids=lambda text: text[:12],
)
def test_a_large_text_is_refused_in_bounded_time(text: str) -> None:
    assert settle(read(text)) is None


def test_data_nested_without_end_is_refused() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert settle(make({"grid": deep})) is None
    loop: dict[str, Any] = {}
    loop["grid"] = [loop, loop]
    assert settle(make(loop)) is None


def test_the_templates_themselves_are_right() -> None:
    for name, tree in TREES.items():
        assert settle(make(tree)) is not None, name
        assert settle(read(TEXTS[name])) is not None, name
