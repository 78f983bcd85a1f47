"""Every verification case, with every method of this machine, one result after the other."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tetris_sim import cpu_kernels
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.method import Method
from tetris_sim.scheduler.machine.machine import Machine, find_machine
from tetris_sim.scheduler.machine.placement import every_method
from tetris_sim.verification.bodies import wall_cases
from tetris_sim.verification.case import (
    CaseSolver,
    Outcome,
    RefusalError,
    VerificationCase,
    finite_or_null,
)
from tetris_sim.verification.heated import heated_cases
from tetris_sim.verification.invariants import invariant_cases, mode_cases
from tetris_sim.verification.melting import melting_cases
from tetris_sim.verification.solutions import solution_cases

# One case of a kind, in two dimensions or one, and of bodies what shares kernels: compiling takes
# nearly all of the time.
_QUICK = (
    ("wave heat-2d, periodic", 2),
    ("mode heat-2d, mixed", 2),
    ("convective cooling, series solution", 2),
    ("composite wall", 1),  # with the kernels of the next one
    ("NAFEMS T3, varying temperature", 1),
    ("chip with a power trace", 2),
    ("Stefan, two phases", 1),
)

Verdict = Literal["pass", "FAIL", "refused"]


@dataclass(frozen=True)
class VerificationResult:
    """One case with one method in one precision.

    Attributes:
        case: its name.
        ndim: number of axes.
        method: by which it was computed.
        dtype: in which precision.
        verdict: pass, FAIL, or refused if the method does not do such problems.
        outcome: the numbers; None if there are none.
        note: why there are none.
    """

    case: str
    ndim: int
    method: str
    dtype: str
    verdict: Verdict
    outcome: Outcome | None = None
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values for --json; numbers that JSON cannot hold become null."""
        numbers = dataclasses.asdict(self.outcome) if self.outcome is not None else {}
        return {**dataclasses.asdict(self), "outcome": finite_or_null(numbers) or None}


@functools.cache
def all_cases() -> tuple[VerificationCase, ...]:
    """Every case, in the order of the table."""
    return (
        *mode_cases(),
        *invariant_cases(),
        *solution_cases(),
        *wall_cases(),
        *heated_cases(),
        *melting_cases(),
    )


def quick_cases() -> tuple[VerificationCase, ...]:
    """One case of a kind, in double precision."""
    return tuple(
        dataclasses.replace(case, precisions=("float64",))
        for case in all_cases()
        if (case.name, case.ndim) in _QUICK
    )


def choose_methods(name: str | None) -> tuple[Method, ...]:
    """The method of that name, or all of this machine's.

    Raises:
        ConfigError: there is no such method.
    """
    here = every_method() if find_machine().gpus else cpu_kernels.METHODS
    chosen = tuple(method for method in here if name in (None, method.name))
    if not chosen:
        names = ", ".join(method.name for method in here)
        msg = f"--method {name} is not one of this machine's methods: {names}"
        raise ConfigError(msg)
    return chosen


def verify(
    methods: tuple[Method, ...], cases: tuple[VerificationCase, ...], machine: Machine | None = None
) -> Iterator[VerificationResult]:
    """Compute the cases; each result is given as soon as it is there.

    Args:
        methods: with each of them.
        cases: what to compute.
        machine: on what; this machine if not given.
    """
    machine = machine or find_machine()
    for method in methods:
        solver = CaseSolver(method, machine)
        for case in cases:
            for precision in case.precisions:
                yield _result(case, solver, precision)


def _result(case: VerificationCase, solver: CaseSolver, precision: str) -> VerificationResult:
    about = (case.name, case.ndim, solver.method.name, precision)
    try:
        outcome = case.check(solver, np.dtype(precision))
    except RefusalError as refusal:
        return VerificationResult(*about, "refused", note=str(refusal))
    except UnsupportedError as error:  # it disagrees with the reference already on the trial piece
        return VerificationResult(*about, "FAIL", note=str(error))
    return VerificationResult(*about, "pass" if outcome.passed else "FAIL", outcome)
