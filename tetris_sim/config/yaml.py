"""What does a YAML text say, and on which line and column does it say it?

Reads the events of ruamel.yaml's parser into a tree of nodes that know their places. The rules are
those of the YAML 1.2 core schema, and only plain values come out: tags are refused, keys are text,
and aliases are counted as if they were written out, so that a short text cannot mean a huge one.
There is no recursion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tetris_sim.config.errors import ConfigMistakesError, KeyPath, Mistake, Place
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

    def place(self, path: KeyPath, source: str, *, at_key: bool = False) -> Place:
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

        return Place(source, line, column)


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
        raise ConfigMistakesError([Mistake((), message, Place(source))])
    tree = _Tree(source)
    for event in _events(text, source):
        tree.take(event)
    return tree.root, tree.mistakes


def _events(text: str, source: str) -> Iterator[Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    message, place = "", Place(source)
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except ReaderError as error:
        before = text[: error.position]
        place = Place(source, before.count("\n") + 1, error.position - before.rfind("\n"))
        message = f"the character U+{error.character:04X} is not allowed in YAML"
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = place if mark is None else Place(source, mark.line + 1, mark.column + 1)
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
        self.mistakes.append(Mistake((), message, Place(self.source, line, column)))

    def stop(self, message: str, line: int, column: int) -> None:
        """Give up: what follows would make no sense."""
        raise ConfigMistakesError(
            [*self.mistakes, Mistake((), message, Place(self.source, line, column))]
        )
