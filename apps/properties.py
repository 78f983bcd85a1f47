"""Properties that depend on temperature: what a material section says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tetris_sim.apps.curves import Melting, Table
from tetris_sim.quantities import TEMPERATURE, Quantity
from tetris_sim.section import Section
from tetris_sim.wording import describe


class TableSection(Section):
    """A property that depends on temperature, in the place of a number."""

    table: Table
    """A list of [temperature, value], temperatures ascending; straight lines between them, and the
    first and the last value beyond the ends.
    """


@dataclass(frozen=True)
class ByTemperature:
    """Within an `Annotated[..., ...]`: a table over temperature is allowed too.

    Attributes:
        quantity: what the table is of.
    """

    quantity: Quantity

    def read(self, value: object, others: Callable[[object], Any]) -> Any:
        """The table in SI units, or what the other types make of the value.

        Raises:
            ValueError: it is no table, with a sentence saying what was found and what is wanted.
        """
        if isinstance(value, TableSection):
            return value
        if not (isinstance(value, Mapping) and "table" in value):
            return others(value)
        if set(value) != {"table"}:
            msg = f"{describe(value)} was found; a table stands alone"
            raise ValueError(msg)
        table = value["table"]
        if not isinstance(table, list | tuple) or not table:
            msg = f"{describe(table)} was found; a list of [temperature, value] is wanted"
            raise ValueError(msg)

        rows = []
        for number, row in enumerate(table, 1):
            if not isinstance(row, list | tuple) or len(row) != 2:
                msg = (
                    f"row {number} of the table is {describe(row)}; [temperature, value] is wanted"
                )
                raise ValueError(msg)
            try:
                rows.append((TEMPERATURE.read(row[0]), self.quantity.read(row[1])))
            except ValueError as error:
                msg = f"row {number} of the table: {error}"
                raise ValueError(msg) from None
        _ascending(rows)
        return TableSection(table=tuple(rows))

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        # What is no table is none of a table's mistakes.
        others = [kind for kind in get_args(source) if kind is not TableSection]
        return core_schema.no_info_wrap_validator_function(
            self.read,
            core_schema.union_schema([handler.generate_schema(kind) for kind in others]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: value.model_dump(mode="json") if isinstance(value, Section) else value
            ),
        )


def _ascending(rows: list[tuple[float, float]]) -> None:
    steps = np.diff([temperature for temperature, _ in rows])
    if not (steps > 0).all():
        row = int(np.argmin(steps > 0))
        msg = (
            f"the temperatures of a table ascend, but {rows[row][0]:g} degC of row {row + 1} is "
            f"followed by {rows[row + 1][0]:g} degC"
        )
        raise ValueError(msg)


def make_melting(
    latent_heat: float | None, solidus: float | None, liquidus: float | None
) -> Melting | None:
    """The change of phase that a section describes, if it describes one; it takes one temperature
    if only one is given.

    Raises:
        ValueError: what is given does not go together.
    """
    ends = [it for it in (solidus, liquidus) if it is not None]
    if latent_heat is None and ends:
        msg = "solidus and liquidus, where a material melts, need its latent_heat"
        raise ValueError(msg)
    if latent_heat is None:
        return None
    if not ends:
        msg = "latent_heat needs solidus, liquidus, or both, where the material melts"
        raise ValueError(msg)
    if ends[-1] < ends[0]:
        msg = f"liquidus, {ends[-1]:g} degC, is below solidus, {ends[0]:g} degC"
        raise ValueError(msg)
    return Melting(latent_heat, ends[0], ends[-1])
