"""Names that people rely on: of the package, of configurations, of the command line."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tetris_sim as ts

from . import body_cases, stencil_cases
from .digests import Case, Config, command, of_data, of_text, outcome, settled

_MODULES = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])")
_ROOT = Path(__file__).resolve().parents[2]
VERBS = (
    *("init", "validate", "plan", "run", "sweep", "restart", "watch", "info", "report", "plot"),
    *("export", "verify", "tune", "bench", "doctor", "completion"),
)
LISTS = (("init", "--list"), ("info", "--stencils", "--json"), ("completion", "bash"))


def cases() -> Iterator[Case]:
    """Key and call of each."""
    yield "names/all", lambda: ", ".join(sorted(ts.__all__))
    for name in sorted(ts.__all__):
        thing = getattr(ts, name)
        if not callable(thing):
            continue
        yield f"names/api/{name}", partial(_signed, thing)
        if inspect.isclass(thing):
            for part in sorted(vars_of(thing)):
                yield f"names/api/{name}.{part}", partial(_described, thing, part)
    yield "names/help/tetris-sim", partial(_told, "--help")
    for verb in VERBS:
        yield f"names/help/{verb}", partial(_told, verb, "--help")
    for words in LISTS:
        yield f"names/lists/{' '.join(words)}", partial(_listed, *words)
    yield from _keys()
    for name, config in _samples().items():
        yield f"names/resolved/{name}", partial(_resolved, config)


def vars_of(thing: type) -> list[str]:
    """Public attributes of a class, inherited ones too, but for those of its library."""
    return [
        name for name in dir(thing) if not name.startswith(("_", "model_")) and _ours(thing, name)
    ]


def _ours(thing: type, name: str) -> bool:
    for base in thing.__mro__:
        if name in vars(base):
            return base.__module__.startswith("tetris_sim")
    return False


def plain(text: str) -> str:
    """A signature whose annotations have no modules."""
    return settled(_MODULES.sub("", text.replace("'", "")))


def _signed(thing: Any) -> str:
    return outcome(lambda: plain(str(inspect.signature(thing))))


def _described(thing: type, name: str) -> str:
    found = inspect.getattr_static(thing, name)
    if isinstance(found, property | functools.cached_property):
        return "property"
    if callable(getattr(thing, name)):
        return _signed(getattr(thing, name))
    return type(found).__name__


def _told(*words: str) -> str:
    return settled(command(*words).text())


def _listed(*words: str) -> str:
    answer = command(*words)
    return f"exit {answer.code} {of_text(answer.out)}"


def _keys() -> Iterator[Case]:
    """Each row of the reference of configurations, which a test compares with the sections."""
    title, page = "", _ROOT / "docs" / "guide" / "configuration.md"
    for line in page.read_text().splitlines() if page.exists() else ():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("| `"):
            key = line.split("`")[1]
            yield f"names/keys/{title}/{key}", partial(str, line)


def _samples() -> dict[str, Config]:
    stencil = stencil_cases.stencil_config("heat-2d", "mixed", {"devices": "cpu"})
    of_solved = {f"solved {name}": it for name, it in body_cases.SOLVED.items()}
    return {"stencil": stencil, **body_cases.BODIES, **body_cases.EQUATIONS, **of_solved}


def _resolved(config: Config) -> str:
    def resolve() -> str:
        found = ts.make_config(config)
        return f"{of_data(found.resolved())} {of_text(found.resolved_text())}"

    return outcome(resolve)
