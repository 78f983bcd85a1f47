"""Is each section of a configuration right by itself, and if not, how is that said plainly?"""

from __future__ import annotations

import contextlib
import copy
import functools
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tetris_sim.config.errors import Finding, KeyPath
from tetris_sim.config.words import Kind, Spot, find_spot, homes, keys_of, tags_of, wanted, words
from tetris_sim.section import Section
from tetris_sim.support.wording import describe, likely, listed, suggestion

# These say more than that a value is not one of the allowed words.
_TELLING = ("value_error", "less_than_equal")
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
        The sections that are right, by key, defaults included; and what is wrong with the others.
    """
    right: dict[str, Any] = {}
    findings = [_unknown_key((key,), whole, whole) for key in values if key not in keys_of(whole)]

    for key, field in ((field.alias or name, field) for name, field in whole.model_fields.items()):
        # A section whose every line is commented out is empty text, which means the defaults, if
        # there are any.
        if values.get(key) is None and not field.is_required():
            right[key] = field.get_default(call_default_factory=True)
        elif values.get(key) is None:
            findings.append(Finding((key,), f"missing; {wanted(keys_of(whole)[key])} is wanted"))
        else:
            try:
                right[key] = _adapter(whole, key).validate_python(values[key])
            except ValidationError as error:
                wrong = list(_explain(error, keys_of(whole)[key], values, key, whole))
                findings += wrong
                below = all(len(it.path) > 1 for it in wrong)  # not the section itself
                if below and (key in _COLLECTIONS or all(it.unknown for it in wrong)):
                    with contextlib.suppress(ValidationError):  # the rest may be looked at further
                        right[key] = _adapter(whole, key).validate_python(
                            _without(values[key], wrong)
                        )

    return right, findings


def _without(section: Mapping[str, Any], wrong: Sequence[Finding]) -> Any:
    """A section without what is wrong in it; a key that is misspelt is read as what was meant.

    Args:
        section: what was written.
        wrong: what is wrong below it.
    """
    left = copy.deepcopy(section)
    for finding in wrong:
        *way, key = finding.path[1:] if finding.unknown else finding.path[1:2]
        keys = _keys_at(left, way)
        if key not in keys:
            continue  # a finding before this one took it away
        value = keys.pop(key)
        if finding.meant and finding.meant not in {*keys, *_keys_at(section, way)}:
            keys[finding.meant] = value
    return left


def as_written(path: KeyPath, wrong: Sequence[Finding], values: Mapping[str, Any]) -> KeyPath:
    """The path with the key that stands where `check_sections` read what was meant by it.

    Args:
        path: of something in a section that is right.
        wrong: what `check_sections` found.
        values: what was written, by key.
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
    """The section at the end of the way; an empty one if none is there."""
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
    error: ValidationError, kind: Kind, values: Mapping[str, Any], key: str, whole: type[Section]
) -> Iterator[Finding]:
    """What pydantic complains of; complaints about one value of several types become one."""
    complaints = error.errors(include_url=False, include_input=False)
    spots = [(find_spot(kind, complaint["loc"], (key,)), complaint) for complaint in complaints]

    # Where one of the possible types fits and only a part of it is wrong, that part alone is worth
    # telling.
    inner = {
        spot.path[:choice]
        for spot, _ in spots
        for choice in spot.choices
        if len(spot.path) > choice
    }

    told: set[KeyPath] = set()
    for spot, complaint in sorted(spots, key=lambda pair: pair[1]["type"] not in _TELLING):
        at_choice = len(spot.path) in spot.choices
        if (at_choice and spot.path in inner) or spot.path in told:
            continue
        if spot.choices:
            told.add(spot.path)
        yield _finding(spot, complaint, values, whole)


def _finding(
    spot: Spot, error: Mapping[str, Any], values: Mapping[str, Any], whole: type[Section]
) -> Finding:
    last, kind = spot.path[-1], spot.kind
    if error["type"] == "extra_forbidden":
        return _unknown_key(spot.path, spot.owner, whole)
    if error["loc"][-1:] == ("[key]",):
        is_what = "allowed here" if kind is None or kind.description is None else kind.description
        return Finding(spot.path, f"{describe(last)} is not {is_what}", at_key=True)
    if kind is None:  # not reached: every other complaint is about a key that the schema has
        return Finding(spot.path, str(error["msg"]))
    if error["type"] == "missing":
        return Finding(spot.path, f"missing; {wanted(kind)} is wanted")

    value = _value_at(values, spot.path)
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
        return Finding(spot.path, _own_words(str(error["ctx"]["error"]), spot, kind, value))
    return Finding(
        spot.path, f"{describe(value)} was found; {wanted(kind)} is wanted{_meant(value, kind)}"
    )


def _own_words(said: str, spot: Spot, kind: Kind, value: Any) -> str:
    """A sentence of ours, completed by the other types that the value may have."""
    if len(spot.path) not in spot.choices:
        return said
    return f"{said.partition('; ')[0]}; {wanted(kind)} is wanted{_meant(value, kind)}"


def _meant(value: Any, kind: Kind) -> str:
    if kind.tag is not None and isinstance(value, str) and value in tags_of(kind):
        return f"; write {{{kind.tag}: {value}}}"
    return suggestion(value, words(kind))


def _unknown_key(path: KeyPath, owner: type[Section] | None, whole: type[Section]) -> Finding:
    key, allowed = str(path[-1]), [] if owner is None else list(keys_of(owner))
    meant = likely(key, allowed)
    places = homes(whole, key)

    if places and not meant:
        said = f"unknown key; {key} belongs under {listed(places[:_MOST_HOMES])}"
    elif allowed:
        said = f"unknown key{suggestion(key, allowed)}; the keys here are {listed(allowed, 'and')}"
    else:
        said = "unknown key"
    return Finding(path, said, at_key=True, unknown=True, meant=meant)


def _value_at(values: Any, path: KeyPath) -> Any:
    for part in path:
        values = values[part]
    return values
