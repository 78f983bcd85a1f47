"""Random changes of good configurations and texts, and what must hold of whatever comes out:
refused with a clean error, or right and built.
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

from tetris_sim.commands.init import TEMPLATES, template_text
from tetris_sim.config import Config, make_config, read_config
from tetris_sim.config.section_checks import KeyKind, keys_of, tags_of
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import ConfigMistakesError, TetrisError
from tetris_sim.model.problem import Problem

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


def _inner(kind: KeyKind) -> list[Any]:
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


SIGNS = [*":,[]{}#&*!|>'\"%@`-?\n\t ~e.x\x00\ufeffé", "<<", "---", "!!int ", "&a ", "*a"]


def changed_tree(rng: random.Random) -> dict[str, Any]:
    """A good configuration with a few random changes."""
    tree = copy.deepcopy(rng.choice(list(TREES.values())))
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        if tree:
            mutate(tree, rng)
    return tree


def changed_text(rng: random.Random) -> str:
    """A good text with a few random changes."""
    # Without comments, where most changes would fall.
    text = "\n".join(
        line.partition("#")[0].rstrip() for line in rng.choice(list(TEXTS.values())).splitlines()
    )
    for _ in range(rng.choice([1, 1, 3, 10])):
        at = rng.randrange(len(text))
        text = (
            text[:at]
            + rng.choice(SIGNS if rng.random() < 0.3 else "0123456789")
            + text[at + rng.randrange(2) :]
        )
    if rng.random() < 0.2:
        lines = text.splitlines()
        rng.shuffle(lines)
        text = "\n".join(lines)
    return text
