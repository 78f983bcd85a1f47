"""Write docs/guide/configuration.md from the sections of the schema: `python
docs/make_config_reference.py`.

A test compares the page with what this would write, so the page cannot rot.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from tetris_sim.apps import MODELS
from tetris_sim.config.sections.quantities import IntervalText, Quantity, Section
from tetris_sim.config.sections.schema import Request
from tetris_sim.config.sections.varying import TimeTable, Varying
from tetris_sim.model.formula import FUNCTIONS, RECIPROCALS

PAGE = Path(__file__).parent / "guide" / "configuration.md"

INTRODUCTION = """# Configuration

<!-- written by docs/make_config_reference.py from the schema; do not edit -->

A configuration is a YAML 1.2 file. Numbers are SI, temperatures in degC; text may carry a unit ("15 mm", "300 K",
"2 h"), which is checked. Lists along axes are in the order x, y, z. Unknown keys are errors. `tetris-sim init --list`
shows commented files to start from, `tetris-sim validate` reports all mistakes at once.

Points are cell centres: spacing = size / shape, and the first point lies half a spacing inside the box. Along axes that
are `graded` every cell has a width of its own. A face lies halfway between the outermost point and its ghost.

A value that may vary is given as a number, an expression in quotes (`"10 + 8*sin(2*pi*t/86400)"`, lengths in m, t in s), or a
table over time, straight lines between its rows and the first and last value beyond them: `{table: FILE.csv}`, two
columns time [s] and value, whose first line may name them with units (`time [h], ambient [degC]`), or
`{table: [[0, 20 degC], [1 h, 30 degC]]}`. Two rows of one time are a jump, and with `hold: true` each value holds until the next row, as
stairs. `{file: trace.csv, column: core0, time: t, unit: W}` takes two columns of many by their names, without units; `time` is the name of
the column of times if that is not `time`, and `unit` is for a column whose name has none.

`conductivity` and `specific_heat` of `model.materials`, and electric conductivities, may be such a table over temperature: rows `[20 degC, 385]`, a file of two columns,
or `{file: steel.csv, column: k, temperature: T}`. Two rows of one temperature are a jump, as between solid and liquid.

Expressions know `+ - * / // % **`, comparisons (`<`, `<=`, `==`, also `0 < x < 1`), `and`, `or`, `not`,
`A if CONDITION else B`, the numbers `pi` and `e`, and the functions {functions}. Angles are in radians, `log` is natural, a power
is `**`. Formulas of `model.type: pde` know derivatives besides ([equations](equations.md)).

Intervals (`every`) are steps ("100 steps") or simulated time ("1 ms", or a number of seconds); for checkpoints also
wall time ("30 min wall"). The last step is always written.
"""


def page() -> str:
    """The whole page."""
    functions = ", ".join(f"`{name}`" for name in sorted({*FUNCTIONS, *RECIPROCALS}))
    parts = [INTRODUCTION.replace("{functions}", functions), _section("Top level", Request, "")]
    for model in MODELS.values():
        parts += _with_children("model", model)
    for name in (
        *("grid", "initial", "boundaries", "time", "control"),
        *("compute", "output", "checkpoint", "run"),
    ):
        for section in _sections(Request.model_fields[name].annotation, Request.model_fields[name]):
            parts += _with_children(name, section)
    return "\n".join(dict.fromkeys(parts))


def _with_children(name: str, section: type[Section]) -> list[str]:
    kind = section.model_fields.get("type")
    title = f"{name}, type: {get_args(kind.annotation)[0]}" if kind is not None else name
    found = [_section(title, section, f"{name}.")]
    for key, field in section.model_fields.items():
        for child in _sections(field.annotation, field):
            if name == "model.fields" and child in _SHARED:
                continue  # explained under the top level's initial and boundaries
            found += _with_children(f"{name}.{key}", child)
    return found


def _sections(annotation: Any, field: FieldInfo | None = None) -> list[type[Section]]:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return [] if annotation is TimeTable else [annotation]  # the introduction explains tables
    return [section for part in get_args(annotation) for section in _sections(part)]


_SHARED = [
    section
    for name in ("initial", "boundaries")
    for section in _sections(Request.model_fields[name].annotation, Request.model_fields[name])
]


def _meanings(section: type[Section]) -> dict[str, str]:
    """The text below each key of a section, also of those that it inherits."""
    found: dict[str, str] = {}
    for owner in reversed(section.__mro__):
        if owner is Section or not issubclass(owner, Section):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef)
        for key, text in itertools.pairwise(tree.body):
            if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(key.target, ast.Name)
                assert isinstance(text.value, ast.Constant)
                found[key.target.id] = str(text.value.value)
    return found


def _section(title: str, section: type[Section], prefix: str) -> str:
    lines = [
        f"## {title}",
        "",
        " ".join((section.__doc__ or "").split()),
        "",
        "| Key | Takes | Default | Meaning |",
        "|---|---|---|---|",
    ]
    meanings = _meanings(section)
    for name, field in section.model_fields.items():
        meaning = " ".join((field.description or meanings.get(name, "")).split())
        lines.append(
            f"| `{field.alias or name}` | {_takes(field.annotation, field.metadata)} | "
            f"{_default(field)} | {meaning} |"
        )
    return "\n".join(lines) + "\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "needed"
    value = field.default
    if (
        value is None
        or value is PydanticUndefined
        or isinstance(value, Section)
        or value in ((), {}, "")
    ):
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _takes(annotation: Any, metadata: Any = ()) -> str:
    for mark in metadata:
        if isinstance(mark, Quantity):
            return f"{mark.wanted} [{mark.unit.replace('delta_degC', 'K')}]"
        if isinstance(mark, IntervalText):
            return "an interval"
        if isinstance(mark, Varying):
            unit = mark.quantity.unit
            kinds = f"an expression of {', '.join(mark.names)}, or a table"
            return f"{mark.quantity.wanted} [{unit.replace('dimensionless', '1')}], {kinds}"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _takes(parts[0], parts[1:])
    if origin is Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (Union, types.UnionType):
        members = [part for part in parts if part is not type(None)]
        if len(members) > 1 and all(map(_sections, members)):
            return "a section"
        return ", or ".join(dict.fromkeys(map(_takes, members)))
    if origin is tuple:
        return f"a list: {_takes(parts[0])}" if not _sections(parts[0]) else "a list of sections"
    if origin is dict:
        return (
            f"a section of {_takes(parts[1])}"
            if not _sections(parts[1])
            else f"a section per {'face' if 'pattern' in str(parts[0]) else 'name'}"
        )
    if _sections(annotation):
        return "a section"
    return {int: "a whole number", float: "a number", str: "text", bool: "true or false"}.get(
        annotation, str(annotation)
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
