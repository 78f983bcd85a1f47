"""What does a YAML text say, and on which line and column does it say it?

Reads the events of ruamel.yaml's parser into a tree of nodes that know their places. The rules are
those of the YAML 1.2 core schema, and only plain values come out: tags are refused, keys are text,
and aliases are counted as if they were written out, so that a short text cannot mean a huge one.
There is no recursion.
"""

from __future__ import annotations

import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.config.errors import ConfigMistakesError, Finding, KeyPath, Mistake, SourcePosition
from tetris_sim.support.wording import describe

MOST_CHARACTERS = 1 << 20
MOST_NODES = 100_000  # with aliases written out
DEEPEST = 32

_NULL = {"", "~", "null", "Null", "NULL"}
_TRUTH = {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
# What the parser says, and what a person needs to know instead.
_PLAIN_WORDS = {
    "mapping values are not allowed here": "there is a second ': ' here; "
    "put text that holds ': ' into quotes",
    "found character '\\t' that cannot start any token": "there is a tab here; indent with blanks",
    "could not find expected ':'": "there is a key without ':' in front of this",
}
LONGEST_WHOLE = 40  # digits; longer ones lose nothing that a configuration needs by being floats


@dataclass(frozen=True)
class Node:
    """A value of the text.

    Attributes:
        value: None, bool, int, float or str; a list of nodes; or a dict of nodes.
        line: where it begins, counted from 1.
        column: likewise.
        text: a scalar as it was written, without quotes.
        keys: for a dict: (line, column) of each key.
        size: number of nodes in it, itself included, aliases written out.
    """

    value: Any
    line: int
    column: int
    text: str | None = None
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    size: int = 1

    def plain(self) -> Any:
        """The value without places: scalars, lists and dicts."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def find(self, path: KeyPath) -> Any:
        """The plain value at `path`, which exists."""
        node = self
        for part in path:
            node = node.value[part]
        return node.plain()

    def place(self, path: KeyPath, source: str, *, at_key: bool = False) -> SourcePosition:
        """Where `path` is written; where its section is, as far as it exists, if it is not.

        Args:
            path: the key looked for.
            source: name of the text.
            at_key: whether the key is meant rather than its value.
        """
        node, line, column = self, self.line, self.column

        for i, part in enumerate(path):
            if isinstance(node.value, dict) and part in node.value:
                node, section = node.value[part], node
                # A single value is what a mistake is usually about; a section begins at its key,
                # and what is empty is nowhere.
                single = bool(node.text) and not at_key and i == len(path) - 1
                line, column = (node.line, node.column) if single else section.keys[str(part)]
            elif (
                isinstance(node.value, list)
                and isinstance(part, int)
                and 0 <= part < len(node.value)
            ):
                node = node.value[part]
                line, column = node.line, node.column
            else:
                break

        return SourcePosition(source, line, column)


def scalar(text: str) -> bool | int | float | str | None:
    """What text without quotes means.

    >>> scalar("1e3"), scalar("0x10"), scalar("yes"), scalar("~")
    (1000.0, 16, 'yes', None)
    """
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    if _WHOLE.fullmatch(text):
        return int(text) if len(text) <= LONGEST_WHOLE else float(text)
    if _BASED.fullmatch(text):
        return int(text, 0) if len(text) <= LONGEST_WHOLE else float("inf")

    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))

    return float("nan") if text in (".nan", ".NaN", ".NAN") else text


def read_yaml(text: str, source: str) -> tuple[Node | None, list[Mistake]]:
    """The tree of a text, None if it is empty, and mistakes that leave it readable.

    Args:
        text: the YAML text.
        source: its name, for messages.

    Raises:
        ConfigMistakesError: the text cannot be read as YAML at all.
    """
    if len(text) > MOST_CHARACTERS:
        message = (
            f"the text has {len(text)} characters; a configuration has at most {MOST_CHARACTERS}"
        )
        raise ConfigMistakesError([Mistake((), message, SourcePosition(source))])
    tree = _Tree(source)
    for event in _events(text, source):
        tree.take(event)
    return tree.root, tree.mistakes


def _events(text: str, source: str) -> Iterator[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    message, place = "", SourcePosition(source)
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except ReaderError as error:
        before = text[: error.position]
        place = SourcePosition(source, before.count("\n") + 1, error.position - before.rfind("\n"))
        message = f"the character U+{error.character:04X} is not allowed in YAML"
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = place if mark is None else SourcePosition(source, mark.line + 1, mark.column + 1)
        said = " ".join(str(part) for part in (error.context, error.problem) if part)
        known = next((words for part, words in _PLAIN_WORDS.items() if part in said), said)
        message = f"this is not YAML: {known}"
    except (
        YAMLError,
        ValueError,
        OverflowError,
        AssertionError,
        LookupError,
        AttributeError,
        TypeError,
        RecursionError,
    ) as error:
        # The parser's own slips on odd texts, such as an escape beyond the last Unicode character.
        message = f"this is not YAML ({' '.join(str(error).split())})"

    if message:
        raise ConfigMistakesError([Mistake((), message, place)]) from None


@dataclass
class _Open:
    """A list or section whose end has not come yet."""

    value: Any
    line: int
    column: int
    anchor: str | None
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    key: tuple[str, int, int] | None = None  # read, waiting for its value
    size: int = 1


class _Tree:
    """Grows the tree event by event."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Node | None = None
        self.mistakes: list[Mistake] = []
        self.open: list[_Open] = []
        self.anchors: dict[str, Node] = {}

    def take(self, event: Any) -> None:
        """Add what the event says."""
        line, column = event.start_mark.line + 1, event.start_mark.column + 1
        kind = type(event).__name__
        if (
            kind in ("ScalarEvent", "SequenceStartEvent", "MappingStartEvent")
            and event.tag is not None
        ):
            self.note(
                f"the tag {describe(str(event.tag))} is not allowed; write plain values",
                line,
                column,
            )

        if kind == "ScalarEvent":
            text = self.whole_characters(event.value, line, column)
            self.finish(
                Node(text if event.style else scalar(text), line, column, text=text), event.anchor
            )
        elif kind == "AliasEvent":
            if event.anchor not in self.anchors:
                self.stop(
                    f"*{event.anchor} stands for nothing, or for something that contains it",
                    line,
                    column,
                )
            self.finish(self.anchors[event.anchor], None)
        elif kind in ("SequenceStartEvent", "MappingStartEvent"):
            if len(self.open) >= DEEPEST:
                self.stop(
                    f"this is nested too deeply; at most {DEEPEST} levels are allowed", line, column
                )
            self.open.append(
                _Open([] if kind.startswith("Seq") else {}, line, column, event.anchor)
            )
        elif kind in ("SequenceEndEvent", "MappingEndEvent"):
            done = self.open.pop()
            self.finish(
                Node(done.value, done.line, done.column, keys=done.keys, size=done.size),
                done.anchor,
            )
        elif kind == "DocumentStartEvent" and self.root is not None:
            self.stop(
                "a second document begins here; a configuration is one document", line, column
            )

    def whole_characters(self, text: str, line: int, column: int) -> str:
        """The text with pairs of escaped surrogates joined, as in JSON; a lone one is a mistake."""
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self.note("this holds half of a character (a lone surrogate)", line, column)
            return ""

    def finish(self, node: Node, anchor: str | None) -> None:
        """Put a complete node where it belongs."""
        if anchor is not None:
            self.anchors[anchor] = node

        if not self.open:
            self.root = node
            return

        parent = self.open[-1]
        parent.size += node.size
        if parent.size > MOST_NODES:
            self.stop(
                f"this holds more than {MOST_NODES} values with all aliases written out",
                node.line,
                node.column,
            )

        if isinstance(parent.value, list):
            parent.value.append(node)
        elif parent.key is None:
            parent.key = self.read_key(node)
        else:
            self.put(parent, parent.key, node)
            parent.key = None

    def read_key(self, node: Node) -> tuple[str, int, int]:
        """The key that a node is."""
        if node.text is None:
            self.stop("a key must be text, not a list or a section", node.line, node.column)
        if node.text == "<<":
            self.stop(
                "merging with << is not part of YAML 1.2; write the keys out",
                node.line,
                node.column,
            )
        return node.text or "", node.line, node.column

    def put(self, parent: _Open, key: tuple[str, int, int], node: Node) -> None:
        """Store a value under its key, unless the key is there already."""
        name, line, column = key
        if name in parent.keys:
            first = parent.keys[name]
            self.note(
                f"{name!r} is given twice; the first is on line {first[0]}, column {first[1]}",
                line,
                column,
            )
            return
        parent.keys[name] = (line, column)
        parent.value[name] = node

    def note(self, message: str, line: int, column: int) -> None:
        """Remember a mistake and go on."""
        self.mistakes.append(Mistake((), message, SourcePosition(self.source, line, column)))

    def stop(self, message: str, line: int, column: int) -> None:
        """Give up: what follows would make no sense."""
        raise ConfigMistakesError(
            [*self.mistakes, Mistake((), message, SourcePosition(self.source, line, column))]
        )


# From Python data to plain values, from variables to paths, and from plain values to YAML.

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
