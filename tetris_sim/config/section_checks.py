"""Validation of each section by itself, with messages in the words of the configuration.

The first half reads annotations of sections: which one a pydantic error location means, what is
wanted there, its keys, and where a misplaced one belongs. The second validates and translates.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union

import annotated_types
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from tetris_sim.config.sections.quantities import (
    IntervalText,
    Quantity,
    Section,
)
from tetris_sim.config.sections.schema import EXAMPLES, FILMS, FOREIGN_KEYS
from tetris_sim.config.sections.varying import Varying
from tetris_sim.errors import Finding, KeyPath
from tetris_sim.support.wording import describe, likely, listed, suggestion

# "of at most 2147483647" would only distract from a message about something else.
_LARGE = 1e6  # upper limits above it are named only if a value exceeds them


@dataclass(frozen=True)
class KeyKind:
    """An annotation taken apart.

    Attributes:
        base: the type without `Annotated`.
        metadata: what `Annotated` adds, with pydantic's `Field` objects opened.
        tag: the key that selects the member of a union, if one does.
        description: that of the field, if it has one.
    """

    base: Any
    metadata: tuple[Any, ...] = ()
    tag: str | None = None
    description: str | None = None

    @property
    def members(self) -> tuple[Any, ...]:
        """The members of a union without None; empty if it is no union."""
        if typing.get_origin(self.base) not in (Union, types.UnionType):
            return ()
        return tuple(member for member in typing.get_args(self.base) if member is not type(None))

    @property
    def section(self) -> type[Section] | None:
        """The section class, if the annotation is one; None otherwise."""
        return self.base if isinstance(self.base, type) and issubclass(self.base, Section) else None


@dataclass(frozen=True)
class Spot:
    """Location of a pydantic error in the configuration.

    Attributes:
        path: the keys and list indices of the location, without pydantic's own parts.
        kind: the annotation there; None for a key that does not exist.
        owner: the section that the key belongs to.
        choices: lengths of the path at which unions of several types began.
    """

    path: KeyPath
    kind: KeyKind | None
    owner: type[Section] | None = None
    choices: tuple[int, ...] = ()


def open_annotation(annotation: Any) -> KeyKind:
    """Take an annotation apart; `X | None` counts as X."""
    metadata: list[Any] = []
    tag = description = None
    # Annotated[Annotated[T, a], b] nests where a named type is annotated again.
    while typing.get_origin(annotation) is Annotated:
        annotation, *extra = typing.get_args(annotation)
        for item in extra:
            if isinstance(item, FieldInfo):
                metadata += item.metadata
                tag = item.discriminator if isinstance(item.discriminator, str) else tag
                description = item.description or description
            else:
                metadata.append(item)

    kind = KeyKind(annotation, tuple(metadata), tag, description)
    # Only None besides one type: the inner annotation decides, the outer metadata still apply.
    if len(kind.members) == 1 and tag is None:
        inner = open_annotation(kind.members[0])
        return replace(
            inner,
            metadata=inner.metadata + kind.metadata,
            description=inner.description or description,
        )
    return kind


@functools.cache
def keys_of(section: type[Section]) -> dict[str, KeyKind]:
    """The keys of a section as written in files, and the annotation of each."""
    # Annotations are text (`from __future__ import annotations`), so resolve them first.
    hints = typing.get_type_hints(section, include_extras=True)
    return {
        field.alias or name: open_annotation(hints[name])
        for name, field in section.model_fields.items()
    }


def tags_of(kind: KeyKind) -> dict[str, type[Section]]:
    """The values of the key that selects from a union of sections, with the section of each."""
    tags = {}
    for member in kind.members:
        section = open_annotation(member).section
        if section is not None and kind.tag is not None:
            tags.update(dict.fromkeys(typing.get_args(keys_of(section)[kind.tag].base), section))
    return tags


def find_spot(kind: KeyKind, location: Sequence[str | int], path: KeyPath = ()) -> Spot:
    """Follow a pydantic error location, leaving out parts that are no keys.

    Args:
        kind: the annotation at `path`.
        location: the rest of the location.
        path: the path so far.
    """
    spot = Spot(path, kind)
    for i, part in enumerate(location):
        if spot.kind is None or part == "[key]":
            break
        spot = _step(spot, spot.kind, part, location[i + 1 :])
    return spot


def _step(spot: Spot, kind: KeyKind, part: str | int, rest: Sequence[str | int]) -> Spot:
    path = (*spot.path, part)
    # A key of a section is the only kind of part, besides indices, that a file contains.
    if kind.section is not None:
        return replace(
            spot, path=path, kind=keys_of(kind.section).get(str(part)), owner=kind.section
        )
    # In a tagged union pydantic inserts the tag's value, which is no level of the file.
    if kind.tag is not None:
        return replace(spot, kind=KeyKind(tags_of(kind).get(str(part))))

    if kind.members:
        # In a plain union it inserts the name of the member type, which is no level either.
        choices = (*spot.choices, len(spot.path))
        return replace(spot, kind=_member(kind, str(part), rest) or kind, choices=choices)

    # Entries of a list or values of a mapping, all of one type.
    arguments, origin = typing.get_args(kind.base), typing.get_origin(kind.base)
    if origin is tuple:
        return replace(spot, path=path, kind=open_annotation(arguments[0]), owner=None)
    if origin is dict:
        # "[key]" marks errors in the key itself, whose type is the first argument.
        return replace(
            spot,
            path=path,
            kind=open_annotation(arguments[int("[key]" not in rest[:1])]),
            owner=None,
        )
    return spot


def _member(kind: KeyKind, part: str, rest: Sequence[str | int]) -> KeyKind | None:
    """The member of a union that a location continues in; None if it ends at the union itself.

    Args:
        kind: the union.
        part: pydantic's name of the member, which contains that of a section.
        rest: the location from there on.
    """
    members = [open_annotation(member) for member in kind.members]

    # Pydantic names members in its own way; the shape of the rest identifies the type.
    if part.startswith("tagged-union"):
        return next((member for member in members if member.tag is not None), None)
    if rest and isinstance(rest[0], int):
        return next((it for it in members if typing.get_origin(it.base) is tuple), None)

    if rest:
        return next(
            (
                it
                for it in members
                if typing.get_origin(it.base) is dict
                or (it.section is not None and it.section.__name__ in part)
            ),
            None,
        )
    return None


def words(kind: KeyKind) -> list[str]:
    """The words that may be chosen, for suggestions."""
    if typing.get_origin(kind.base) is Literal:
        return [str(value) for value in typing.get_args(kind.base)]
    return [word for member in kind.members for word in words(open_annotation(member))]


def wanted(kind: KeyKind) -> str:
    """The allowed values as a phrase: "auto or a time greater than 0"."""
    # Most specific first: a quantity names its unit, a description is written by hand.
    for item in kind.metadata:
        if isinstance(item, Quantity | IntervalText | Varying):
            return item.wanted
    if kind.description is not None:
        return kind.description

    if kind.tag is not None:
        return f"a section with a {kind.tag} ({listed(list(tags_of(kind)))})"
    if kind.members:
        # Literal words are listed one by one, other members by their own phrases.
        members = [open_annotation(member) for member in kind.members]
        return listed(
            [option for member in members for option in words(member) or [wanted(member)]]
        )

    arguments, origin = typing.get_args(kind.base), typing.get_origin(kind.base)
    if origin is Literal:
        return listed([str(value) for value in arguments])
    if origin is tuple:
        return f"a list of {_count(kind)}, each {wanted(open_annotation(arguments[0]))}"
    if origin is dict or kind.section is not None:
        return "a section of keys and values"

    names = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    return names.get(kind.base, "something else") + _bounds(kind)


def _bounds(kind: KeyKind) -> str:
    limits: list[str] = []
    for item in kind.metadata:
        match item:
            case annotated_types.Gt(gt=limit):
                limits.append(f"greater than {limit}")
            case annotated_types.Ge(ge=limit):
                limits.append(f"of at least {limit}")
            case annotated_types.Le(le=int() | float() as limit) if limit < _LARGE:
                limits.append(f"of at most {limit}")
    return f" {' and '.join(limits)}" if limits else ""


def _count(kind: KeyKind) -> str:
    least = next(
        (item.min_length for item in kind.metadata if isinstance(item, annotated_types.MinLen)), 0
    )
    most = next(
        (item.max_length for item in kind.metadata if isinstance(item, annotated_types.MaxLen)),
        None,
    )
    if most is None:
        return f"{least} or more entries" if least else "entries"
    return f"{least} entries" if least == most else f"{least} to {most} entries"


def homes(section: type[Section], key: str) -> list[str]:
    """The sections that a key belongs to: "time", "initial (type: gaussian)", "output.fields"."""
    # Every tagged section has a `type`, so that key says nothing about a section.
    return [] if key == "type" else list(_all_homes(section).get(key, ()))


@functools.cache
def _all_homes(section: type[Section]) -> dict[str, dict[str, None]]:
    found: dict[str, dict[str, None]] = {}
    for name, place in _keys_below(section, ""):
        found.setdefault(name, {})[place] = None
    return found


def _keys_below(section: type[Section], place: str) -> Iterator[tuple[str, str]]:
    for name, kind in keys_of(section).items():
        yield name, place or "the top level"
        yield from _keys_in(kind, f"{place}.{name}" if place else name)


def _keys_in(kind: KeyKind, place: str) -> Iterator[tuple[str, str]]:
    arguments = typing.get_args(kind.base)
    # A tagged union is walked by tags below, so that the place can name the tag.
    if kind.tag is None:
        for part in kind.members:
            yield from _keys_in(open_annotation(part), place)
    if kind.section is not None:
        yield from _keys_below(kind.section, place)
    elif kind.tag is not None:
        for tag, member in tags_of(kind).items():
            yield from _keys_below(member, f"{place} ({kind.tag}: {tag})")
    elif typing.get_origin(kind.base) is tuple:
        yield from _keys_in(open_annotation(arguments[0]), place)
    elif typing.get_origin(kind.base) is dict:
        yield from _keys_in(open_annotation(arguments[1]), place)


# Validation of each section by itself, and pydantic's errors in plain words.

# Error types that say more than that a value is not an allowed word; they are reported first.
_TELLING = ("value_error", "less_than_equal")
# Unknown keys of a section that are compared with those that exist: a file of thousands of them is
# no configuration.
_MOST_EXPLAINED = 200
_MOST_HOMES = 3  # places that a message lists for a key that stands in the wrong one
_COLLECTIONS = ("output",)  # sections whose keys say nothing about one another


def check_sections(
    whole: type[Section], values: Mapping[str, Any]
) -> tuple[dict[str, Any], list[Finding]]:
    """Check every section by itself.

    Args:
        whole: the class of the whole configuration.
        values: plain values by key.

    Returns:
        The valid sections by key, with defaults filled in; and the mistakes in the others.
    """
    right: dict[str, Any] = {}
    unknown = [key for key in values if key not in keys_of(whole)]
    # Unknown sections first: one that is a misspelt section explains why that is missing.
    findings = [_unknown_key((key,), whole, whole, k) for k, key in enumerate(unknown)]
    meant = [finding.meant for finding in findings]  # so it is not missing, but misspelt

    for key, field in ((field.alias or name, field) for name, field in whole.model_fields.items()):
        # A section whose every line is commented out is empty text; it means the defaults, if
        # there are any.
        if values.get(key) is None and not field.is_required():
            right[key] = field.get_default(call_default_factory=True)
        elif values.get(key) is None and key not in meant:
            example = f", for example {EXAMPLES[key]}" if key in EXAMPLES else ""
            said = f"missing; {wanted(keys_of(whole)[key])} is wanted{example}"
            findings.append(Finding((key,), said))
        elif values.get(key) is None:
            continue
        else:
            try:
                right[key] = _adapter(whole, key).validate_python(values[key])
            except ValidationError as error:
                wrong = list(_explain(error, keys_of(whole)[key], values, key, whole))
                findings += wrong

                # Where mistakes are confined to keys of the section, the remaining keys form a
                # valid section, and the checks across sections can go on and find more.
                below = all(len(it.path) > 1 for it in wrong)  # not the section itself
                if below and (key in _COLLECTIONS or all(it.unknown for it in wrong)):
                    with contextlib.suppress(ValidationError):  # the rest may still be checked
                        right[key] = _adapter(whole, key).validate_python(
                            _without(values[key], wrong)
                        )

    return right, findings


def _without(section: Mapping[str, Any], wrong: Sequence[Finding]) -> Any:
    """A section without its mistakes; a misspelt key is read as the key that was meant.

    Args:
        section: the section as written.
        wrong: the mistakes below it.
    """
    left = copy.deepcopy(section)
    for finding in wrong:
        # An unknown key is removed alone, any other mistake with its whole top-level key.
        *way, key = finding.path[1:] if finding.unknown else finding.path[1:2]
        keys = _keys_at(left, way)
        if key not in keys:
            continue  # an earlier finding has removed it
        value = keys.pop(key)
        # Unless the key that was meant is written as well: then the misspelt value is dropped.
        if finding.meant and not (finding.meant in keys or finding.meant in _keys_at(section, way)):
            keys[finding.meant] = value
    return left


def as_written(path: KeyPath, wrong: Sequence[Finding], values: Mapping[str, Any]) -> KeyPath:
    """The path with the key as written, where `check_sections` read the key that was meant.

    Args:
        path: path of something in a valid section.
        wrong: the findings of `check_sections`.
        values: the configuration as written, by key.
    """
    for finding in wrong:
        *way, _ = finding.path
        read = (*way, finding.meant)
        if not way or not finding.meant or path[: len(read)] != read:
            continue
        if finding.meant not in _keys_at(values, way):
            return (*finding.path, *path[len(read) :])
    return path


def _keys_at(values: Any, way: Sequence[str | int]) -> dict[str | int, Any]:
    """The section at the end of the path; an empty one if there is none."""
    for part in way:
        if isinstance(values, list) and isinstance(part, int) and part < len(values):
            values = values[part]
        else:
            values = values.get(part) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


@functools.cache
def _adapter(whole: type[Section], key: str) -> TypeAdapter[Any]:
    hints = typing.get_type_hints(whole, include_extras=True)
    return TypeAdapter(
        next(
            hints[name] for name, field in whole.model_fields.items() if key in (field.alias, name)
        )
    )


def _explain(
    error: ValidationError, kind: KeyKind, values: Mapping[str, Any], key: str, whole: type[Section]
) -> Iterator[Finding]:
    """Findings for pydantic's errors; those about one value of several types become one."""
    complaints = error.errors(include_url=False, include_input=False)
    spots = [(find_spot(kind, complaint["loc"], (key,)), complaint) for complaint in complaints]

    # Where one of the possible types matches but for a part, only that part is worth reporting.
    inner = {
        spot.path[:choice]
        for spot, _ in spots
        for choice in spot.choices
        if len(spot.path) > choice
    }
    # A list is called too short for entries that are wrong, too.
    broken = {spot.path[:-1] for spot, _ in spots}
    # One finding per value of several types, the most informative first.
    told: set[KeyPath] = set()
    spots.sort(key=lambda pair: pair[1]["type"] not in _TELLING)
    for number, (spot, complaint) in enumerate(spots):
        short = complaint["type"] == "too_short" and spot.path in broken
        if short or (len(spot.path) in spot.choices and spot.path in inner) or spot.path in told:
            continue
        if spot.choices:
            told.add(spot.path)
        yield _finding(spot, complaint, values, whole, number)


def _finding(
    spot: Spot,
    error: Mapping[str, Any],
    values: Mapping[str, Any],
    whole: type[Section],
    number: int,
) -> Finding:
    last, kind = spot.path[-1], spot.kind
    if error["type"] == "extra_forbidden":
        return _unknown_key(spot.path, spot.owner, whole, number)
    # Errors in keys themselves exist only for mappings such as `boundaries`.
    if error["loc"][-1:] == ("[key]",):
        is_what = "allowed here" if kind is None or kind.description is None else kind.description
        return Finding(spot.path, f"{describe(last)} is not {is_what}", at_key=True)
    if kind is None:  # not reached: every other complaint is about a key that the schema has
        return Finding(spot.path, str(error["msg"]))
    if error["type"] == "missing":
        return Finding(spot.path, f"missing; {wanted(kind)} is wanted")

    value = _value_at(values, spot.path)
    # Tagged union: report at the tag's own key, with the tags as suggestions.
    if error["type"] in ("union_tag_invalid", "union_tag_not_found") and kind.tag is not None:
        tag, allowed = value.get(kind.tag), list(tags_of(kind))
        seen = "missing" if tag is None else f"{describe(tag)} was found"
        return Finding(
            (*spot.path, kind.tag), f"{seen}; {listed(allowed)} is wanted{suggestion(tag, allowed)}"
        )

    if error["type"] == "less_than_equal":
        return Finding(
            spot.path, f"{describe(value)} was found; at most {error['ctx']['le']:.6g} is allowed"
        )
    if error["type"] == "value_error":
        # Sentences of this project's own validators.
        return Finding(spot.path, _own_words(str(error["ctx"]["error"]), spot, kind, value))
    return Finding(
        spot.path, f"{describe(value)} was found; {wanted(kind)} is wanted{_meant(value, kind)}"
    )


def _own_words(said: str, spot: Spot, kind: KeyKind, value: Any) -> str:
    """A sentence of our validators, extended by the other types that the value may have."""
    if len(spot.path) not in spot.choices or isinstance(value, Mapping):
        return said
    return f"{said.partition('; ')[0]}; {wanted(kind)} is wanted{_meant(value, kind)}"


def _meant(value: Any, kind: KeyKind) -> str:
    if kind.tag is not None and isinstance(value, str) and value in tags_of(kind):
        return f"; write {{{kind.tag}: {value}}}"
    if typing.get_origin(kind.base) is dict and isinstance(value, str):
        # One word for a section of many parts, such as `boundaries: periodic`, is meant for all.
        for member in _members(open_annotation(typing.get_args(kind.base)[1])):
            if value in tags_of(member):
                return f'; write {{"*": {{{member.tag}: {value}}}}}'
    return suggestion(value, words(kind))


def _members(kind: KeyKind) -> Iterator[KeyKind]:
    """A kind, and those that it may be instead."""
    yield kind
    for member in kind.members:
        yield from _members(open_annotation(member))


def _unknown_key(
    path: KeyPath, owner: type[Section] | None, whole: type[Section], number: int
) -> Finding:
    """The finding for a key that is not in the schema; after many of them only that it is not."""
    if number >= _MOST_EXPLAINED:
        return Finding(path, "unknown key", at_key=True, unknown=True)
    key, allowed = str(path[-1]), [] if owner is None else list(keys_of(owner))
    # A word of another program wins over a word that merely looks alike: `rho` is no `r`.
    foreign = FOREIGN_KEYS.get(key.lower(), ())
    meant = next((it for it in foreign if it in allowed), "") or likely(key, allowed)
    places = homes(whole, key)
    if re.fullmatch(r"[0-9]+\b.*", key):
        said = f"unknown key; is {key!r} what follows a decimal comma? Write a point, as in 0.5"
        return Finding(path, said, at_key=True, unknown=True)
    if key.lower() in FILMS and "pictures" in allowed:
        said = "unknown key; write fields, and after the run: tetris-sim export RESULTS -o film.gif"
        return Finding(path, said, at_key=True, unknown=True)

    if places and not meant:
        # A key that belongs elsewhere, unless it rather looks like a misspelling of a key here.
        said = f"unknown key; {key} belongs under {listed(places[:_MOST_HOMES])}"
    elif allowed:
        hint = f" (did you mean {meant!r}?)" if meant else ""
        said = f"unknown key{hint}; the keys here are {listed(allowed, 'and')}"
    else:
        said = "unknown key"
    return Finding(path, said, at_key=True, unknown=True, meant=meant)


def _value_at(values: Any, path: KeyPath) -> Any:
    for part in path:
        values = values[part]
    return values
