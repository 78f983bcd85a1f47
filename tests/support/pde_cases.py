"""Configurations of equations, small, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tetris_sim.config import Config, make_config

SINE: dict[str, Any] = {"type": "expression", "expression": "sin(2*pi*x/Lx)"}


def field(equation: str, initial: Any = 0.0, **more: Any) -> dict[str, Any]:
    """The section of a field; `initial` a number, a formula or a section."""
    if isinstance(initial, str):
        initial = {"type": "expression", "expression": initial}
    elif not isinstance(initial, Mapping):
        initial = {"type": "constant", "value": initial}
    return {"equation": equation, "initial": initial, **more}


def second(equation: str, initial: Any = 0.0, **more: Any) -> dict[str, Any]:
    """The section of a field with an equation of second order."""
    section = field(equation, initial, **more)
    section["second_order"] = section.pop("equation")
    return section


def config(
    fields: Mapping[str, Any],
    *,
    shape: tuple[int, ...] = (24, 20),
    size: tuple[float, ...] | None = None,
    boundaries: Mapping[str, Any] | None = None,
    time: Mapping[str, Any] | None = None,
    precision: str = "float64",
    **model: Any,
) -> Config:
    """A configuration; lists are x, y, z, faces periodic if nothing is said."""
    grid: dict[str, Any] = {"shape": list(shape)}
    if size is not None:
        grid["size"] = list(size)
    return make_config(
        {
            "grid": grid,
            "model": {"type": "pde", "fields": dict(fields), **model},
            "boundaries": boundaries or {"*": {"type": "periodic"}},
            "time": time or {"steps": 3, "dt": 1e-3},
            "compute": {"precision": precision},
        },
        environ={},
    )
