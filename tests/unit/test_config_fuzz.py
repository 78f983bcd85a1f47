"""Whatever is given as a configuration: it is refused with a clean error, or it is right and builds
a problem.

Thousands of inputs of five kinds, each from seeds that are printed with a failure: trees of random
data, good configurations with random changes, good texts with random changes, random YAML, random
bytes.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import random
import string
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tetris_sim.commands.init import TEMPLATES, template_text
from tetris_sim.config import Config, load_config, make_config, read_config
from tetris_sim.config.errors import ConfigMistakesError
from tetris_sim.config.words import Kind, keys_of, tags_of
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import TetrisError
from tetris_sim.problem import Problem

# seconds that one input may take on a busy machine; the longest of them takes two on a quiet one
LONGEST = 30.0
JARGON = (
    "input should be",
    "valid integer",
    "field required",
    "extra inputs",
    "value error",
    "pydantic",
    "union_tag",
)


def settle(make: Callable[[], Config]) -> Config | None:
    """The configuration, built and led through its text; None if it is refused, as it should be."""
    start = time.perf_counter()
    try:
        config = make()
    except ConfigMistakesError as error:
        check_words(error)
        return None
    else:
        check_config(config)
        return config
    finally:
        assert time.perf_counter() - start < LONGEST


def check_words(error: ConfigMistakesError) -> None:
    assert error.problems
    assert str(error)
    for problem in error.problems[:100]:
        assert problem.message
        assert "\n" not in problem.message
        assert len(problem.message) < 2000
        assert not any(word in problem.message.lower() for word in JARGON), problem.message
        assert "Kind(" not in problem.message
        json.dumps(problem.as_json())


def check_config(config: Config) -> None:
    text = config.resolved_text()
    again = read_config(text, name="again", base=Path("/nowhere"), environ={})
    assert again == config, text
    assert again.resolved_text() == text
    with contextlib.suppress(TetrisError):
        problem = config.build()
        assert isinstance(problem, Problem)
        assert problem.dt > 0
        assert math.isfinite(problem.dt)
        assert problem.steps >= 0


def make(data: Any) -> Callable[[], Config]:
    return lambda: make_config(data, base=Path("/nowhere"), environ={})


def read(text: str, *overrides: str) -> Callable[[], Config]:
    return lambda: read_config(
        text, name="c.yaml", base=Path("/nowhere"), overrides=overrides, environ={}
    )


# ---- what good configurations look like, and words that occur in them

TEXTS = {name: template_text(name) for name in TEMPLATES}


def tree_of(text: str) -> dict[str, Any]:
    root, mistakes = read_yaml(text, "template")
    assert root is not None
    assert not mistakes
    tree = root.plain()
    assert isinstance(tree, dict)
    return tree


TREES = {name: tree_of(text) for name, text in TEXTS.items()}


def _all_keys(section: Any = Config) -> Iterator[str]:
    for key, kind in keys_of(section).items():
        yield key
        for inner in _inner(kind):
            yield from _all_keys(inner)


def _inner(kind: Kind) -> list[Any]:
    if kind.section is not None:
        return [kind.section]
    return list(tags_of(kind).values()) if kind.tag is not None else []


KEYS = sorted({*_all_keys(), "x-", "x", "y+", "z-", "*", "at", "every", "name", "compression"})
WORDS = sorted(
    {
        *(
            "auto",
            "cpu",
            "gpu",
            "float32",
            "float64",
            "heat",
            "stencil",
            "copper",
            "gaussian",
            "expression",
            "constant",
        ),
        *(
            "random",
            "file",
            "dirichlet",
            "fixed",
            "neumann",
            "robin",
            "periodic",
            "gzip",
            "none",
            "heat-2d",
            "box-2d9p",
        ),
        *(
            "15 mm",
            "300 K",
            "1 ms",
            "2 h",
            "100 steps",
            "30 min wall",
            "1 m^2/s",
            "25 W/(m^2 K)",
            "9**9**9 m",
            "1e999 m",
        ),
        *(
            "${HOME}",
            "${X",
            "x+y",
            "9**9**9",
            "x.y",
            "__import__('os')",
            "0, 0",
            "1, 0, 0",
            "",
            " ",
            "null",
            "true",
            "\0",
        ),
        *(
            "\ud800",
            "\u2028",
            "é",
            "- a",
            "a: b",
            "*",
            "&a",
            "x" * 3000,
            "1" * 400,
            "nan",
            "inf",
            "-",
            "'",
            '"',
        ),
    }
)
NUMBERS: list[Any] = [
    0,
    1,
    -1,
    2,
    3,
    7,
    0.1,
    0.5,
    1e-3,
    1e-9,
    1e-300,
    5e-324,
    1e300,
    -1e300,
    1.5,
    2**31,
    2**53,
    2**63,
]
NUMBERS += [
    2**64,
    10**30,
    10**400,
    -(10**400),
    math.inf,
    -math.inf,
    math.nan,
    1e-30,
    1e15,
    100,
    1000,
    -0.0,
]


def random_value(rng: random.Random, depth: int = 0) -> Any:
    choice = rng.random()
    if choice < 0.35:
        return rng.choice(NUMBERS)
    if choice < 0.65:
        return rng.choice(WORDS)
    if choice < 0.75 or depth > 3:
        return rng.choice([None, True, False])
    if choice < 0.88:
        return [random_value(rng, depth + 1) for _ in range(rng.randrange(5))]
    return {rng.choice(KEYS): random_value(rng, depth + 1) for _ in range(rng.randrange(5))}


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every key path of the tree."""
    inner = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    return [each for key, part in inner for each in ((*path, key), *places(part, (*path, key)))]


def mutate(tree: dict[str, Any], rng: random.Random) -> None:
    """One random change somewhere."""
    *way, last = rng.choice(places(tree))
    parent: Any = tree
    for part in way:
        parent = parent[part]
    kind = rng.randrange(7)
    if kind == 0:
        del parent[last]
    elif kind == 1 and isinstance(parent, dict):
        parent[typo(str(last), rng)] = parent.pop(last)
    elif kind == 2 and isinstance(parent, dict):
        parent[rng.choice(KEYS)] = random_value(rng)
    elif kind == 3:
        parent[last] = rng.choice([[parent[last]], {"value": parent[last]}, str(parent[last])])
    elif kind == 4 and isinstance(parent[last], int | float) and abs(parent[last]) < 1e300:
        parent[last] = parent[last] * rng.choice([-1, 0, 0.5, 2, 10, 1e10, 1e-10])
    elif kind == 5:
        source: Any = rng.choice(list(TREES.values()))
        for part in rng.choice(places(source)):
            source = source[part]
        parent[last] = copy.deepcopy(source)
    else:
        parent[last] = random_value(rng)


def typo(word: str, rng: random.Random) -> str:
    at = rng.randrange(len(word) + 1)
    letter: str = rng.choice([*string.ascii_letters, "_", "é", ""])
    return word[:at] + letter + word[at + rng.randrange(2) :]


# ---- the tests


@pytest.mark.parametrize("seed", range(8))
def test_a_good_configuration_with_random_changes_is_refused_or_right(seed: int) -> None:
    rng = random.Random(seed)
    right = 0
    for _ in range(250):
        tree = copy.deepcopy(rng.choice(list(TREES.values())))
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            if tree:
                mutate(tree, rng)
        right += settle(make(tree)) is not None
    assert 10 < right < 240  # both ways are taken


@pytest.mark.parametrize("seed", range(2))
def test_a_good_text_with_random_changes_is_refused_or_right(seed: int) -> None:
    rng = random.Random(1000 + seed)
    signs = [*":,[]{}#&*!|>'\"%@`-?\n\t ~e.x\x00\ufeffé", "<<", "---", "!!int ", "&a ", "*a"]
    right = 0
    for _ in range(200):
        # Without comments, where most changes would fall.
        text = "\n".join(
            line.partition("#")[0].rstrip()
            for line in rng.choice(list(TEXTS.values())).splitlines()
        )
        for _ in range(rng.choice([1, 1, 3, 10])):
            at = rng.randrange(len(text))
            text = (
                text[:at]
                + rng.choice(signs if rng.random() < 0.3 else "0123456789")
                + text[at + rng.randrange(2) :]
            )
        if rng.random() < 0.2:
            lines = text.splitlines()
            rng.shuffle(lines)
            text = "\n".join(lines)
        right += settle(read(text)) is not None
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
        "a: 1\n" * 60_000,
        "a: [" + "1, " * 90_000 + "]",
        "grid: {shape: [" + "9" * 500_000 + "]}",
        '"' + "\n" * 500_000,
        "#" * 1_000_000,
        "a: &a [1]\n" + "".join(f"b{i}: *a\n" for i in range(20_000)),
        "initial: {type: expression, expression: '" + "(" * 500_000 + "'}",
        "boundaries: {" + ", ".join(f"k{i}: {{type: fixed}}" for i in range(10_000)) + "}",
        "output: {probes: [" + "{at: [1], every: x}, " * 8_000 + "]}",
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
