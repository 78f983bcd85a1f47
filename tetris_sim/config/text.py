"""From Python data to plain values, from variables to paths, and from plain values to YAML."""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.config.errors import ConfigMistakesError, Finding, KeyPath, Mistake
from tetris_sim.config.yaml import DEEPEST, LONGEST_WHOLE, MOST_NODES, scalar
from tetris_sim.support.wording import describe

_VARIABLE = re.compile(r"\$\{([^}]*)\}")
# Needs no quotes in YAML.
_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*")

# Where paths stand; "*" is any key or entry of a list. All but the last are of input files.
PATHS: tuple[KeyPath, ...] = (
    ("initial", "path"),
    ("initial", "from"),
    ("model", "fields", "*", "initial", "path"),
    ("model", "fields", "*", "initial", "from"),
    ("model", "fields", "*", "initial_velocity", "path"),
    ("model", "fields", "*", "initial_velocity", "from"),
    ("boundaries", "*", "*", "table"),
    ("boundaries", "*", "*", "*", "table"),
    ("model", "regions", "*", "labels"),
    ("model", "sources", "*", "over_time"),
    ("model", "sources", "*", "*", "table"),
    ("model", "sources", "*", "path", "*", "table"),
    ("output", "directory"),
)


def plain_values(data: Mapping[str, Any], mistakes: list[Mistake]) -> dict[str, Any]:
    """The data as dicts, lists and scalars of its own, so that it may be changed.

    Args:
        data: mappings, sequences, numbers (NumPy's too), text, paths, sections of the schema.
        mistakes: what is wrong is added here.

    Raises:
        ConfigMistakesError: the data is nested too deeply or too large, as it is if it contains
            itself.
    """
    budget = [MOST_NODES]

    def plain(value: Any, path: KeyPath) -> Any:
        budget[0] -= 1
        if len(path) > DEEPEST or budget[0] < 0:
            message = (
                f"more than {MOST_NODES} values, or more than {DEEPEST} levels; does the data "
                "contain itself?"
            )
            raise ConfigMistakesError([*mistakes, Mistake(path[:3], message)])

        if hasattr(value, "model_dump"):
            value = value.model_dump(mode="json", by_alias=True)
        if isinstance(value, Mapping):
            mistakes.extend(
                Mistake(path, f"a key is {describe(key)}; keys are text")
                for key in value
                if not isinstance(key, str)
            )
            return {
                key: plain(part, (*path, key))
                for key, part in value.items()
                if isinstance(key, str)
            }

        if isinstance(value, np.ndarray | np.generic) and value.size <= MOST_NODES:
            value = value.tolist()
        if isinstance(value, list | tuple):
            return [plain(part, (*path, i)) for i, part in enumerate(value)]

        if isinstance(value, str):
            return _whole_text(value, path, mistakes)
        if isinstance(value, int) and abs(value) >= 10**LONGEST_WHOLE:
            return float(value) if abs(value) < 10**308 else math.inf if value > 0 else -math.inf
        return str(value) if isinstance(value, Path) else value

    if not isinstance(data, Mapping):
        raise ConfigMistakesError(
            [Mistake((), "a section of keys and values is wanted at the top level")]
        )
    values: dict[str, Any] = plain(data, ())
    return values


def _whole_text(text: str, path: KeyPath, mistakes: list[Mistake]) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        mistakes.append(Mistake(path, "this text holds half of a character (a lone surrogate)"))
        return ""
    return str(text)


def expand_paths(
    values: Mapping[str, Any], *, environ: Mapping[str, str], base: Path
) -> list[Finding]:
    """Replace ${VAR} in paths, and let the relative path of an input file start at `base`.

    Args:
        values: plain values by key; changed.
        environ: the variables.
        base: the folder of the configuration file.

    Returns:
        What could not be replaced.
    """
    findings: list[Finding] = []
    for pattern in PATHS:
        for section, path in _matches(values, pattern):
            expanded, trouble = _expand(section[path[-1]], environ)
            if trouble is not None:
                findings.append(Finding(path, trouble))
            elif pattern != PATHS[-1]:
                expanded = os.path.normpath(base.absolute() / expanded)
            section[path[-1]] = expanded
    return findings


def _matches(values: Any, pattern: KeyPath, path: KeyPath = ()) -> Iterator[tuple[Any, KeyPath]]:
    """The texts that a pattern of `PATHS` fits: what holds each, and its path."""
    first, *rest = pattern
    keys: Iterable[Any] = range(len(values)) if isinstance(values, list) else ()
    if isinstance(values, dict):
        keys = list(values)
    for key in keys:
        if first not in ("*", key):
            continue
        if rest:
            yield from _matches(values[key], tuple(rest), (*path, key))
        elif isinstance(values[key], str):
            yield values, (*path, key)


def _expand(text: str, environ: Mapping[str, str]) -> tuple[str, str | None]:
    unset = [name for name in _VARIABLE.findall(text) if name not in environ]
    if unset:
        return (
            text,
            f"the environment variable {unset[0]} is not set; set it, or write the path out",
        )

    expanded = _VARIABLE.sub(lambda match: environ[match[1]], text)
    if "\0" in expanded or not expanded:
        return text, "a path is wanted; it is not empty and holds no null character"
    # What comes out is written to checkpoints and read again, when it must mean the same.
    if _VARIABLE.search(expanded):
        return (
            text,
            (
                "the value of a variable holds ${...} itself, which is not expanded again; write "
                "the path out"
            ),
        )
    return expanded, None


def write_yaml(values: Mapping[str, Any]) -> str:
    """Plain values as YAML text that `read_yaml` reads as the equal values."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.default_flow_style = False
    yaml.width = 1 << 30  # no line breaks inside of text
    stream = io.StringIO()
    yaml.dump(_quoted(values), stream)
    return stream.getvalue()


def _quoted(value: Any) -> Any:
    """The value with quotes for every text that would be something else without."""
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, Mapping):
        return {_quoted(key): _quoted(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        sequence = CommentedSeq(_quoted(part) for part in value)
        if not any(isinstance(part, Mapping) for part in value):
            sequence.fa.set_flow_style()
        return sequence
    if isinstance(value, str) and not (
        _PLAIN_TEXT.fullmatch(value) and isinstance(scalar(value), str)
    ):
        return DoubleQuotedScalarString(value)
    return value
