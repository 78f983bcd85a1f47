"""What all sections of a configuration have in common: what they refuse whatever their keys are."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, model_validator


class Section(BaseModel):
    """Base of every section: no unknown keys, no changes, no NaN and infinity."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        validate_default=True,
        defer_build=True,  # of what a configuration leaves out, nothing is built
    )

    @model_validator(mode="before")
    @classmethod
    def _true_is_not_one(cls, values: object) -> object:
        if not isinstance(values, Mapping):
            return values
        return {
            key: value if _takes_truth(cls, key) else _without_truth(value)
            for key, value in values.items()
        }


def _takes_truth(section: type[Section], key: object) -> bool:
    field = section.model_fields.get(str(key))
    return field is not None and field.annotation is bool


def _without_truth(value: object) -> object:
    """The value with true and false as text, which pydantic does not take for 1 and 0."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return [_without_truth(part) for part in value]
    if isinstance(value, Mapping):
        return {
            key: _without_truth(part) if isinstance(part, bool) else part
            for key, part in value.items()
        }
    return value
