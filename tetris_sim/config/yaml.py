"""YAML with positions: text to a tree of nodes that know their lines and columns, and back to text.

Reads the events of ruamel.yaml's parser. The rules are those of the YAML 1.2 core schema, and only
plain values come out: tags are refused, keys are text, and aliases count as if they were written
out, so that a short text cannot expand to a huge one. There is no recursion while reading. The
second half turns Python data into plain values, and writes YAML.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tetris_sim.config.sections.units import as_text
from tetris_sim.errors import ConfigMistakesError, KeyPath, Mistake, SourcePosition
from tetris_sim.support.wording import describe

# Limits of a configuration text, far above any real one: reading it must not exhaust memory.
MOST_CHARACTERS = 1 << 20
MOST_NODES = 100_000  # with aliases written out
DEEPEST = 32

# Spellings of the core schema (YAML 1.2.2, section 10.3.2). "yes" and "no" are plain text there.
_NULL = {"", "~", "null", "Null", "NULL"}
_TRUTH = {
    word: word.lower() == "true" for word in ("true", "True", "TRUE", "false", "False", "FALSE")
}
_WHOLE = re.compile(r"[-+]?[0-9]+")
_BASED = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)")
# Patterns of the parser's messages, of which the first that fits counts, and what to do.
_PLAIN_WORDS = {
    r"found character '\\t'": "there is a tab here; indent with blanks",
    "could not find expected ':'": "there is a key without ':' in front of this",
    r"expected ',' or '(.)'": "a bracket is open; close it with {0}, or put a comma before this",
    "scanning an alias": '* stands for something else in YAML: quote it, "*"',
    "scanning an anchor": "& stands for something else in YAML: put the text into quotes",
    r"found character '(.)'|scanning a directive|document start": "text cannot begin with the "
    "character {0}; put it into quotes",
    "scanning a quoted scalar": "a quotation mark before this is not closed",
    r"unknown escape character '(.)'|expected escape sequence": "a backslash in double quotes "
    "stands for something else in YAML; use single quotes, '...'",
    "scanning a block scalar": "nothing may follow | or > on its line; put the text into quotes",
    "block collection.*<block end>": "a list and keys are mixed here; begin every entry with '- ', "
    "or none",
    r"<block end>, but found '-'": "a list begins here, where a key is wanted; give it a key, and "
    "indent it",
    r"<block end>, but found '<scalar>'": "text follows a value that is complete; put all of it "
    "into quotes, or begin a key with ':'",
    r"<block end>, but found '([]}])'": "this {0} closes nothing; remove it",
    "<block end>": "this line is indented differently from the others of its section",
    "sequence entries are not allowed": "a list may not begin on this line; put '- ' on a line of "
    "its own, or write [...]",
    "mapping keys are not allowed": "'? ' means something else in YAML; put the text into quotes",
    r"node content, but found '([^<]+)'": "a value is missing before {0!r}, or it closes nothing",
    "undefined tag handle|(parsing|scanning) an? (local )?tag": "! begins a tag; put the text into "
    "quotes",
}
_SECOND_COLON = "there is a second ': ' here; put text that holds ': ' into quotes"
_CONTINUED = "this continues the text above: a ':' is missing there, or this is indented too deeply"
_GLUED_KEY = re.compile(r"[\w*+-]+:[^\s/]")  # `type:heat`, but no address
LONGEST_WHOLE = 40  # digits; longer ones lose nothing that a configuration needs by being floats


@dataclass(frozen=True)
class Node:
    """A value of the text with its position.

    Attributes:
        value: None, bool, int, float or str; a list of nodes; or a dict of nodes.
        line: the line where it begins, counted from 1.
        column: the column where it begins, counted from 1.
        text: a scalar as it was written, without quotes.
        keys: for a dict: (line, column) of each key.
        size: number of nodes in it, itself included, with aliases written out.
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
        """Position of `path`; if it does not exist, that of its deepest section that does.

        Args:
            path: the key looked for.
            source: name of the text.
            at_key: whether the key is meant rather than its value.
        """
        node, line, column = self, self.line, self.column

        for i, part in enumerate(path):
            if isinstance(node.value, dict) and part in node.value:
                node, section = node.value[part], node
                # A mistake is usually about a single value; a section begins at its key, and an
                # empty value has no position.
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
    """The value of unquoted text by the rules of the YAML 1.2 core schema.

    >>> scalar("1e3"), scalar("0x10"), scalar("yes"), scalar("~")
    (1000.0, 16, 'yes', None)
    """
    if text in _NULL:
        return None
    if text in _TRUTH:
        return _TRUTH[text]
    # Whole numbers too long for an int become floats, which lose nothing that matters here.
    if _WHOLE.fullmatch(text):
        return int(text) if len(text) <= LONGEST_WHOLE else float(text)
    if _BASED.fullmatch(text):
        return int(text, 0) if len(text) <= LONGEST_WHOLE else float("inf")

    # After integers, whose pattern the one of floats includes.
    if _FLOAT.fullmatch(text):
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", ""))

    return float("nan") if text in (".nan", ".NaN", ".NAN") else text


def read_yaml(text: str, source: str) -> tuple[Node | None, list[Mistake]]:
    """Parse a text into a tree of nodes.

    Args:
        text: the YAML text.
        source: its name, for messages.

    Returns:
        The root, None if the text is empty; and the mistakes that leave it readable.

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
        message = f"this is not YAML: {_in_words(said, text, place)}"
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
        # The parser's own failures on odd texts, such as an escape beyond the last Unicode
        # character.
        message = f"this is not YAML ({' '.join(str(error).split())})"

    if message:
        raise ConfigMistakesError([Mistake((), message, place)]) from None


def _in_words(said: str, text: str, place: SourcePosition) -> str:
    """A message of the parser about a place, as what to do there."""
    lines = text.splitlines()
    line = lines[place.line - 1] if place.line and place.line <= len(lines) else ""
    # The parser stops where the next key begins; what is wrong stands above it.
    above = next((it for it in reversed(lines[: (place.line or 1) - 1]) if it.strip()), "").strip()
    if "mapping values are not allowed" in said:
        if _GLUED_KEY.match(above):
            return f"a blank is missing behind the ':' of {above.partition(':')[0]!r} above"
        return _CONTINUED if line[: (place.column or 1) - 1].count(": ") == 0 else _SECOND_COLON
    if "could not find expected ':'" in said and above.startswith("*"):
        return f"{_PLAIN_WORDS['scanning an alias']}, in the line above"
    for pattern, words in _PLAIN_WORDS.items():
        if match := re.search(pattern, said):
            # What no group caught is the character at the place.
            here = line[(place.column or 1) - 1 :].lstrip()[:1] or line.lstrip()[:1]
            return words.format((match[1] if match.re.groups else None) or here)
    return said


@dataclass
class _Open:
    """A list or section whose end has not been read yet."""

    value: Any
    line: int
    column: int
    anchor: str | None
    keys: dict[str, tuple[int, int]] = field(default_factory=dict)
    key: tuple[str, int, int] | None = None  # read, waiting for its value
    size: int = 1


class _Tree:
    """Builder of the tree, fed event by event; a stack of open nodes replaces recursion."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Node | None = None
        self.mistakes: list[Mistake] = []
        self.open: list[_Open] = []
        self.anchors: dict[str, Node] = {}

    def take(self, event: Any) -> None:
        """Process one event of the parser."""
        # The parser counts lines and columns from 0.
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
            # A scalar with a style is quoted or a block, and then text whatever it looks like.
            text = self.whole_characters(event.value, line, column)
            self.finish(
                Node(text if event.style else scalar(text), line, column, text=text), event.anchor
            )
        elif kind == "AliasEvent":
            # Anchors are registered when their node is complete, so an alias cannot contain itself.
            if event.anchor not in self.anchors:
                self.stop(
                    f"*{event.anchor} stands for nothing, or for something that contains it"
                    + ('; quote it, "*":' if event.anchor in ("", ":") else ""),
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
        """Attach a complete node to its parent, or make it the root."""
        if anchor is not None:
            self.anchors[anchor] = node

        if not self.open:
            self.root = node
            return

        parent = self.open[-1]
        # A node that an alias repeats counts each time: sizes, not objects, are limited.
        parent.size += node.size
        if parent.size > MOST_NODES:
            self.stop(
                f"this holds more than {MOST_NODES} values with all aliases written out",
                node.line,
                node.column,
            )

        if isinstance(parent.value, list):
            parent.value.append(node)
        # In a mapping keys and values alternate.
        elif parent.key is None:
            parent.key = self.read_key(node)
        else:
            self.put(parent, parent.key, node)
            parent.key = None

    def read_key(self, node: Node) -> tuple[str, int, int]:
        """The text, line and column of a node that is a key."""
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
        """Store a value under its key, unless the key exists already."""
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
        """Record a mistake and continue."""
        self.mistakes.append(Mistake((), message, SourcePosition(self.source, line, column)))

    def stop(self, message: str, line: int, column: int) -> None:
        """Raise: whatever follows would make no sense."""
        raise ConfigMistakesError(
            [*self.mistakes, Mistake((), message, SourcePosition(self.source, line, column))]
        )


# Python data to plain values, and plain values to YAML.

_LONG = 64  # entries of a list, from which on its numbers are written here
# Text that needs no quotes in YAML.
_PLAIN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9_./+-]*( [A-Za-z0-9_./+-]+)*")


def plain_values(data: Mapping[str, Any], mistakes: list[Mistake]) -> dict[str, Any]:
    """A copy of the data as new dicts, lists and scalars, which may be changed.

    Args:
        data: mappings, sequences, numbers (also NumPy's), text, paths, sections of the schema.
        mistakes: a list to which mistakes are appended.

    Raises:
        ConfigMistakesError: the data is nested too deeply or too large, as is data that contains
            itself.
    """
    # Shared by all calls of `plain`: values that may still be read.
    budget = [MOST_NODES]

    def plain(value: Any, path: KeyPath) -> Any:
        budget[0] -= 1
        if len(path) > DEEPEST or budget[0] < 0:
            message = (
                f"more than {MOST_NODES} values, or more than {DEEPEST} levels; does the data "
                "contain itself?"
            )
            raise ConfigMistakesError([*mistakes, Mistake(path[:3], message)])

        value = as_text(value)  # of a quantity of pint
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

        # Arrays and NumPy scalars become Python numbers; a larger array is refused later as no
        # value.
        if isinstance(value, np.ndarray | np.generic) and value.size <= MOST_NODES:
            value = value.tolist()
        if isinstance(value, list | tuple):
            return [plain(part, (*path, i)) for i, part in enumerate(value)]

        if isinstance(value, str):
            return _whole_text(value, path, mistakes)
        # As for YAML text: integers of more digits become floats.
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


def write_yaml(values: Mapping[str, Any]) -> str:
    """Plain values as YAML text, which `read_yaml` reads back as equal values."""
    from ruamel.yaml import YAML

    yaml = YAML(typ="rt", pure=True)
    yaml.default_flow_style = False
    yaml.width = 1 << 30  # no line breaks inside of text
    stream, long_lists = io.StringIO(), list[str]()
    word = "numbers"
    while word in repr(values):
        word += "_"
    yaml.dump(_quoted(values, word, long_lists), stream)
    return re.sub(rf"{word}(\d+)-", lambda it: long_lists[int(it[1])], stream.getvalue())


def _quoted(value: Any, word: str, long_lists: list[str]) -> Any:
    """The value with quotes around every text that would otherwise be read as something else.

    The writer takes 0.1 ms for a number. So a long list of numbers is appended to `long_lists` as
    text, and `word`, which occurs nowhere, stands for it with its index.
    """
    from ruamel.yaml.comments import CommentedSeq
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    if isinstance(value, Mapping):
        pairs = [(_quoted(it, word, long_lists) for it in pair) for pair in value.items()]
        return {key: part for key, part in pairs}
    if isinstance(value, list | tuple):
        if len(value) >= _LONG and (text := _numbers(value)) is not None:
            long_lists.append(text)
            return f"{word}{len(long_lists) - 1}-"

        sequence = CommentedSeq(_quoted(part, word, long_lists) for part in value)
        # Lists of plain values on one line, lists of sections one entry per line.
        if not any(isinstance(part, Mapping) for part in value):
            sequence.fa.set_flow_style()
        return sequence
    # Bare text must survive a round trip: no special characters, and not a number or truth value.
    if isinstance(value, str) and not (
        _PLAIN_TEXT.fullmatch(value) and isinstance(scalar(value), str)
    ):
        return DoubleQuotedScalarString(value)
    return value


def _numbers(value: Any) -> str | None:
    """A number, or a list of numbers and such lists, as ruamel.yaml writes it; None of others."""
    if type(value) is int or (type(value) is float and math.isfinite(value)):
        return repr(value)
    if not isinstance(value, list | tuple):
        return None
    parts = [_numbers(part) for part in value]
    return None if None in parts else f"[{', '.join(filter(None, parts))}]"
