"""How outcomes become short texts, and the command line inside of this process."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import runpy
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import tetris_sim as ts

Config = dict[str, Any]
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d.,]*(?:e[-+]?\d+)?", re.IGNORECASE)
_TEMPORARY = re.compile(r"/[^\s'\":,;]*?/tetris_sim_\w+")
_LONG = 2000


def of_array(array: npt.NDArray[Any]) -> str:
    """Type, shape and a digest of all bytes."""
    whole = np.ascontiguousarray(array)
    shape = "x".join(str(n) for n in whole.shape)
    return f"{whole.dtype} {shape} {hashlib.sha256(whole.tobytes()).hexdigest()[:24]}"


def of_text(text: str) -> str:
    """A digest of a text."""
    return f"{len(text)} characters {hashlib.sha256(text.encode()).hexdigest()[:24]}"


def of_data(data: Any) -> str:
    """A digest of plain data, whatever the order of its keys."""
    return of_text(json.dumps(data, sort_keys=True, default=str))


def settled(text: str) -> str:
    """A text without what differs from one process to the next."""
    plain = _TEMPORARY.sub("<folder>", _ADDRESS.sub("<address>", text))
    return plain if len(plain) <= _LONG else f"{plain[:_LONG]} ... {of_text(plain)}"


def without_numbers(text: str) -> str:
    """A sentence in which every number is a sign, for those that were measured."""
    return _NUMBER.sub("#", settled(text))


def outcome(make: Callable[[], str]) -> str:
    """What a call returns, or how it was refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make()
    except (Exception, SystemExit) as error:  # noqa: BLE001  an error is evidence, too
        return settled(f"{type(error).__name__}: {error}")


def final_state(config: Config) -> str:
    """Run a configuration to its end: step, time and digest of the last state of all fields."""
    with ts.simulate(config) as simulation:
        simulation.run()
        state = of_array(np.asarray(simulation.field()))
        return f"{state} step {simulation.step} time {simulation.time!r}"


def merged(first: Mapping[str, Any], *others: Mapping[str, Any]) -> Config:
    """A configuration with sections of others laid over it; what is given last counts."""
    found: Config = dict(first)
    for other in others:
        for key, value in other.items():
            if isinstance(value, Mapping) and isinstance(found.get(key), Mapping):
                found[key] = merged(found[key], value)
            else:
                found[key] = value
    return found


@dataclass(frozen=True)
class Answer:
    """What a command said.

    Attributes:
        code: its exit code.
        out: its standard output.
        err: its standard error.
    """

    code: int
    out: str
    err: str

    def text(self) -> str:
        """All of it."""
        return f"exit {self.code}\n{self.out}{self.err}"


def command(*words: str) -> Answer:
    """`python -m tetris_sim WORDS` in this process."""
    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["tetris-sim", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            runpy.run_module("tetris_sim", run_name="__main__", alter_sys=False)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    finally:
        sys.argv = before
    return Answer(code, out.getvalue(), err.getvalue())


def as_yaml(config: Config) -> str:
    """A configuration as a file holds it; JSON is YAML."""
    return json.dumps(config, indent=1)


def family(key: str) -> str:
    """Cases that share kernels, so that one process compiles them once."""
    return "/".join(key.split("/")[:3])


def in_part(key: str, part: int, parts: int) -> bool:
    """Whether a case belongs to this part of so many."""
    number = int.from_bytes(hashlib.sha256(family(key).encode()).digest()[:4], "big")
    return number % parts == part


Case = tuple[str, Callable[[], str]]
Cases = Sequence[Case]
