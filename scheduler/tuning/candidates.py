"""Tuning candidates for a problem: the proposed parameters of each method that accepts it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tetris_sim.config.sections.schema import ComputeSection
from tetris_sim.errors import ConfigError, NumericsError, TetrisError, UnsupportedError
from tetris_sim.model.method import Method, Parameters, ReducedPrecision
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.machine.machine import Device, Gpu, Machine
from tetris_sim.scheduler.machine.placement import ComputeResource, every_method
from tetris_sim.scheduler.tuning.choice import Candidate, Known
from tetris_sim.support.wording import gib, listed, suggestion

log = logging.getLogger("tetris_sim")

# Bytes kept free for the interpreter, libraries and output buffers, beyond what is in use already.
RESERVE = 256 << 20
_LARGEST = 1 << 20  # parameter value: more than the steps of any block or the points of any tile
_FAILED = "it failed with "  # begins what is said of a method that raised


def usable_bytes(machine: Machine, compute: ComputeSection, device: Device, gpu: Gpu | None) -> int:
    """Bytes of a device's memory that the state may take."""
    if device.kind == "cpu":
        return machine.memory - RESERVE
    free = int(compute.simulated.memory) if gpu is None else gpu.memory - RESERVE
    return free if compute.gpu_memory == "auto" else min(free, int(compute.gpu_memory))


@dataclass(frozen=True)
class TuningRequest:
    """Method and parameters that the configuration, or the checkpoint of a continued run, requests.

    Attributes:
        method: name of a method, or "auto".
        parameters: values for some or all parameters of that method; empty to leave them to the
            tuner.
        by: origin of the request, for messages.
    """

    method: str = "auto"
    parameters: Parameters | None = None
    by: str = "compute.method"


def find_candidates(
    problem: Problem,
    asked: TuningRequest,
    memory: int,
    place: ComputeResource,
    known: Known | None = None,
) -> tuple[list[Candidate], dict[str, str]]:
    """(candidates, the best guess of each method first; a sentence for each refused method or
    candidate).

    Args:
        problem: problem to advance.
        asked: requested method and parameters.
        memory: bytes that the whole grid may take.
        place: device to run on.
        known: fastest method of an earlier measurement: tried first, or replaced by the best guess
            of that method if it proposes other parameters here.

    Raises:
        ConfigError: a requested method or parameter does not exist.
    """
    refused: dict[str, str] = {}
    candidates: list[Candidate] = []

    for method in _allowed(problem, asked, place):
        sentence, proposals = _proposals(problem, method)
        if sentence is not None:
            refused[method.name] = sentence
        elif asked.parameters:
            proposals = (_with_asked(method, proposals, asked),)

        # The last method of a device is the one that never refuses, and it compiles quickly.
        for guess, parameters in enumerate(proposals):
            candidate = Candidate(method, parameters, guess, quick=method is place.methods[-1])
            sentence = _too_large(problem, candidate, memory)
            if sentence is None:
                candidates.append(candidate)
            else:
                refused[candidate.label] = sentence

    # The sort is stable: among equal guesses the methods keep their order of preference.
    candidates.sort(key=lambda candidate: candidate.guess)
    if known is not None:
        _put_first(candidates, known)
    return candidates, refused


def _put_first(candidates: list[Candidate], known: Known) -> None:
    of_method = [it for it in candidates if it.method.name == known.method]
    same = [it for it in of_method if it.parameters == known.parameters]
    # Parameters found on another GPU or size count only if they are proposed here too; the method's
    # name counts in any case.
    for candidate in (same or of_method)[:1]:
        candidates.remove(candidate)
        candidates.insert(0, dataclasses.replace(candidate, guess=0, known=known))


def find_method(name: str, *, by: str) -> Method:
    """The method with this name.

    Raises:
        ConfigError: no method has this name.
    """
    methods = {method.name: method for method in every_method()}
    if name not in methods:
        msg = (
            f"{by} is {name!r}, which is not one of the methods: auto, "
            f"{', '.join(methods)}{suggestion(name, methods)}"
        )
        raise ConfigError(msg)
    return methods[name]


def check_asked(problem: Problem, asked: TuningRequest) -> None:
    """Validate a requested method and its parameters without opening a device.

    Raises:
        ConfigError: the method or a parameter does not exist, or the value is out of range.
    """
    if asked.method == "auto":
        return
    method = find_method(asked.method, by=asked.by)
    sentence, proposals = _proposals(problem, method)
    if sentence is None and asked.parameters:
        _with_asked(method, proposals, asked)


def nothing_left(asked: TuningRequest, refused: Mapping[str, str]) -> TetrisError:
    """The error to raise if no candidate is left: it blames the user's parameters or numbers, or
    lists all refusals.
    """
    if asked.parameters:
        reasons = "; ".join(f"{name}: {sentence}" for name, sentence in refused.items())
        advice = "Change compute.parameters, or leave them out"
        return ConfigError(
            f"these parameters of {asked.method} cannot be used. {reasons}. {advice}"
        )
    # What all methods say of the numbers of the problem is no fault of this machine.
    mark = f"{_FAILED}{NumericsError.__name__}: "
    said = {it.removeprefix(mark) for it in refused.values() if it.startswith(_FAILED)}
    if len(said) == 1 and all(f"{mark}{it}" in refused.values() for it in said):
        return NumericsError(said.pop())
    reasons = " ".join(f"Not {name}: {sentence}." for name, sentence in refused.items())
    return UnsupportedError(f"no method can advance this problem on this machine. {reasons}")


def _allowed(problem: Problem, asked: TuningRequest, place: ComputeResource) -> tuple[Method, ...]:
    if asked.method != "auto":
        method = find_method(asked.method, by=asked.by)
        if method not in place.methods:
            msg = (
                f"{asked.by} is {asked.method}, which does not run on {place.name}; change it, or "
                "compute.devices"
            )
            raise ConfigError(msg)
        return (method,)

    # Parameters have a meaning for one method only.
    if asked.parameters:
        msg = (
            "compute.parameters belong to one method: name it with compute.method, or leave the "
            "parameters out"
        )
        raise ConfigError(msg)
    if problem.pairs:
        return place.methods
    # Methods with reduced precision are left out without a sentence unless the user asked for such
    # numbers.
    return tuple(method for method in place.methods if not isinstance(method, ReducedPrecision))


def _proposals(problem: Problem, method: Method) -> tuple[str | None, tuple[Parameters, ...]]:
    """(why the method refuses, no proposals) or (None, the parameters that it proposes)."""
    try:
        sentence = method.refusal(problem)
        return sentence, () if sentence is not None else method.parameters(problem)
    except Exception as error:  # a method that fails must not stop a run that another can do
        log.debug("%s failed", method.name, exc_info=True)
        return describe_failure(error), ()


def _too_large(problem: Problem, candidate: Candidate, memory: int) -> str | None:
    try:
        needed = candidate.method.memory(problem, Slab.whole(problem.grid), candidate.parameters)
    except Exception as error:  # as above
        log.debug("%s failed", candidate.label, exc_info=True)
        return describe_failure(error)
    return (
        f"it needs {gib(needed)} of memory, and {gib(memory)} can be had"
        if needed > memory
        else None
    )


def describe_failure(error: Exception) -> str:
    """A sentence part about a method that raised: the type of the error and the first line of its
    message.
    """
    said = (str(error).strip().splitlines() or [""])[0]
    return f"{_FAILED}{type(error).__name__}{': ' if said else ''}{said.rstrip('.')}"


def _with_asked(
    method: Method, proposals: tuple[Parameters, ...], asked: TuningRequest
) -> Parameters:
    """The first proposal that has all requested parameters, with the requested values."""
    assert asked.parameters is not None
    known = list(dict.fromkeys(name for proposal in proposals for name in proposal))
    for name, value in asked.parameters.items():
        if name not in known:
            takes = (
                f"{method.name} takes {listed(known, 'and')}"
                if known
                else f"{method.name} takes none"
            )
            msg = (
                f"compute.parameters.{name} is not a parameter of the method; "
                f"{takes}{suggestion(name, known)}"
            )
            raise ConfigError(msg)

        # A parameter that is 0 or missing in some proposal can be switched off, so 0 is allowed;
        # one that never is 0 is a size, so the least value is 1.
        least = 0 if any(not proposal.get(name) for proposal in proposals) else 1
        if not least <= value <= _LARGEST:
            msg = (
                f"compute.parameters.{name} is {value}; {method.name} takes from {least} to "
                f"{_LARGEST}, and proposes {proposals[0].get(name, least)}"
            )
            raise ConfigError(msg)

    # The other parameters come from a proposal that goes with the requested ones.
    wanted = set(asked.parameters)
    like = next((proposal for proposal in proposals if wanted <= set(proposal)), proposals[0])
    return {**like, **asked.parameters}
