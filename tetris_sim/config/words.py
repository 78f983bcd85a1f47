"""What does the schema allow at a key, in words a person uses?

Reads the annotations of the sections: which one a pydantic error location means, what is wanted
there, which keys a section has, and where else a misplaced key belongs.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Union

import annotated_types
from pydantic.fields import FieldInfo

from tetris_sim.config.errors import KeyPath
from tetris_sim.quantities import IntervalText, Quantity
from tetris_sim.section import Section
from tetris_sim.support.wording import listed
from tetris_sim.varying import Varying

_LARGE = 1e6  # upper limits above it are told only to those who exceed them


@dataclass(frozen=True)
class Kind:
    """An annotation taken apart.

    Attributes:
        base: the type without `Annotated`.
        metadata: what `Annotated` adds, fields of pydantic opened.
        tag: the key that decides between the members of a union, if one does.
        description: of a field, if it has one.
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
        """The section class it is, if it is one."""
        return self.base if isinstance(self.base, type) and issubclass(self.base, Section) else None


@dataclass(frozen=True)
class Spot:
    """Where in the configuration a pydantic error is.

    Attributes:
        path: keys and list indices only.
        kind: what is allowed there; None for a key that does not exist.
        owner: the section whose key it is.
        choices: lengths of the path at which unions of several types began.
    """

    path: KeyPath
    kind: Kind | None
    owner: type[Section] | None = None
    choices: tuple[int, ...] = ()


def open_annotation(annotation: Any) -> Kind:
    """The annotation taken apart; `X | None` counts as X."""
    metadata: list[Any] = []
    tag = description = None
    while typing.get_origin(annotation) is Annotated:
        annotation, *extra = typing.get_args(annotation)
        for item in extra:
            if isinstance(item, FieldInfo):
                metadata += item.metadata
                tag = item.discriminator if isinstance(item.discriminator, str) else tag
                description = item.description or description
            else:
                metadata.append(item)

    kind = Kind(annotation, tuple(metadata), tag, description)
    if len(kind.members) == 1 and tag is None:
        inner = open_annotation(kind.members[0])
        return replace(
            inner,
            metadata=inner.metadata + kind.metadata,
            description=inner.description or description,
        )
    return kind


@functools.cache
def keys_of(section: type[Section]) -> dict[str, Kind]:
    """The keys of a section as they are written, and what each allows."""
    hints = typing.get_type_hints(section, include_extras=True)
    return {
        field.alias or name: open_annotation(hints[name])
        for name, field in section.model_fields.items()
    }


def tags_of(kind: Kind) -> dict[str, type[Section]]:
    """The allowed values of the deciding key of a union of sections, and the section of each."""
    tags = {}
    for member in kind.members:
        section = open_annotation(member).section
        if section is not None and kind.tag is not None:
            tags.update(dict.fromkeys(typing.get_args(keys_of(section)[kind.tag].base), section))
    return tags


def find_spot(kind: Kind, location: Sequence[str | int], path: KeyPath = ()) -> Spot:
    """Follow a pydantic error location, leaving out what is no key.

    Args:
        kind: what is allowed at `path`.
        location: the rest of the way.
        path: the way so far.
    """
    spot = Spot(path, kind)
    for i, part in enumerate(location):
        if spot.kind is None or part == "[key]":
            break
        spot = _step(spot, spot.kind, part, location[i + 1 :])
    return spot


def _step(spot: Spot, kind: Kind, part: str | int, rest: Sequence[str | int]) -> Spot:
    path = (*spot.path, part)
    if kind.section is not None:
        return replace(
            spot, path=path, kind=keys_of(kind.section).get(str(part)), owner=kind.section
        )
    if kind.tag is not None:
        return replace(spot, kind=Kind(tags_of(kind).get(str(part))))

    if kind.members:
        choices = (*spot.choices, len(spot.path))
        return replace(spot, kind=_member(kind, str(part), rest) or kind, choices=choices)

    # Parts of a list or a section, any of which has the same type.
    arguments, origin = typing.get_args(kind.base), typing.get_origin(kind.base)
    if origin is tuple:
        return replace(spot, path=path, kind=open_annotation(arguments[0]), owner=None)
    if origin is dict:
        return replace(
            spot,
            path=path,
            kind=open_annotation(arguments[int("[key]" not in rest[:1])]),
            owner=None,
        )
    return spot


def _member(kind: Kind, part: str, rest: Sequence[str | int]) -> Kind | None:
    """The member of a union that a location goes on into: one that has parts, or a choice itself.

    Args:
        kind: the union.
        part: pydantic's name of the member, which holds that of a section.
        rest: the location from there.
    """
    members = [open_annotation(member) for member in kind.members]
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


def words(kind: Kind) -> list[str]:
    """The words among which one may choose, for suggestions."""
    if typing.get_origin(kind.base) is Literal:
        return [str(value) for value in typing.get_args(kind.base)]
    return [word for member in kind.members for word in words(open_annotation(member))]


def wanted(kind: Kind) -> str:
    """What is allowed, as a phrase: "auto or a time greater than 0"."""
    for item in kind.metadata:
        if isinstance(item, Quantity | IntervalText | Varying):
            return item.wanted
    if kind.description is not None:
        return kind.description

    if kind.tag is not None:
        return f"a section with a {kind.tag} ({listed(list(tags_of(kind)))})"
    if kind.members:
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


def _bounds(kind: Kind) -> str:
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


def _count(kind: Kind) -> str:
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
    """Where a key belongs: "time", "initial (type: gaussian)", "output.fields"."""
    return (
        []
        if key == "type"
        else list(dict.fromkeys(place for name, place in _all_keys(section) if name == key))
    )


@functools.cache
def _all_keys(section: type[Section]) -> tuple[tuple[str, str], ...]:
    return tuple(_keys_below(section, ""))


def _keys_below(section: type[Section], place: str) -> Iterator[tuple[str, str]]:
    for name, kind in keys_of(section).items():
        yield name, place or "the top level"
        yield from _keys_in(kind, f"{place}.{name}" if place else name)


def _keys_in(kind: Kind, place: str) -> Iterator[tuple[str, str]]:
    arguments = typing.get_args(kind.base)
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
