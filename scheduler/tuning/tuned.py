"""Stored results of earlier tuning: the user's own, one small file per kind of problem in the cache
folder, and those of `known.json`, measured on common GPUs.

A file is found by the digest of everything that decides which method is fastest. A file that cannot
be read, or that belongs to another version, counts as missing and is replaced.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tetris_sim import cpu_kernels, gpu_kernels
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.conduction import Conduction, RuledFace
from tetris_sim.model.equations import Equations
from tetris_sim.model.lowering import one_stencil
from tetris_sim.model.method import ReducedPrecision
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.machine.machine import Gpu, Machine
from tetris_sim.scheduler.tuning.choice import Candidate, Known
from tetris_sim.support.files import atomic_text, cache_directory, digest_of
from tetris_sim.version import __version__

# Methods known to be the fastest on certain GPUs: such a method is tried first, and taken where
# nothing may be measured.
#
# `known.json` beside this file holds it, as benchmarks/first_choice.py writes it. Another GPU
# is taken for the one of these whose memory gives each multiprocessor about as many bytes in a
# cycle: that decides how many steps a launch has to make.

_PAIR_COST = 10  # instructions of a pair for one of float64, at most


def kind_of(problem: Problem) -> tuple[Any, ...]:
    """The properties that decide most about which kernel is the fastest: axes, reach, number of
    terms and precision.
    """
    stencil = problem.stencil
    return stencil.ndim, stencil.radius, stencil.n_points, problem.dtype.name


def is_mirrored(problem: Problem) -> bool:
    """Whether the weights stay the same when any axis is reversed."""
    return all(problem.stencil.is_mirrored(axis) for axis in range(problem.stencil.ndim))


def balance_of(gpu: Gpu) -> float:
    """Memory bandwidth per multiprocessor and clock cycle [bytes]; 0 if the driver does not report
    it.
    """
    cycles = gpu.multiprocessors * gpu.clock
    return (gpu.bandwidth or 0.0) / cycles if cycles else 0.0


def find_known(problem: Problem, gpu: Gpu | None) -> Known | None:
    """The fastest method measured for this kind of problem on the most similar GPU; None if there
    is no measurement of the kind.
    """
    if gpu is None or one_stencil(problem) is None:
        return None

    kind, mirrored, points = kind_of(problem), is_mirrored(problem), problem.grid.n_points
    alike = [known for known in all_known() if known.kind == kind]
    named = [known for known in alike if known.gpu == gpu.name]

    # Order of similarity: first the GPU's balance, then mirror symmetry, then the size of the grid.
    # Ratios are compared as logarithms.
    def distance(known: Known) -> tuple[float, bool, float]:
        there = balance_of(gpu) or known.balance
        size = abs(math.log(known.points / points))
        return abs(math.log(known.balance / there)), known.mirrored != mirrored, size

    return min(named or alike, key=distance, default=None)


def pairs_first(
    candidates: Sequence[Candidate], problem: Problem, gpu: Gpu | None
) -> list[Candidate]:
    """Candidates in the order in which to try them: where pairs of float32 were requested and
    should beat float64, methods that compute in pairs precede the others of the same guess.

    A GeForce GPU makes 64 float32 instructions in the time of one float64 instruction, while a pair
    takes seven to nine of them (docs/decisions/0049).
    """
    if not problem.pairs or gpu is None or (gpu.float64_cost or 0.0) <= _PAIR_COST:
        return list(candidates)
    return sorted(
        candidates, key=lambda it: (it.guess, not isinstance(it.method, ReducedPrecision))
    )


@functools.cache
def all_known() -> tuple[Known, ...]:
    """All measurements in `known.json`."""
    rows = json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8"))
    return tuple(Known(**row | {"kind": tuple(row["kind"])}) for row in rows)


_FORMAT = 2
_PART = "tuning"
# Exceptions that a damaged file can raise when it is read, for example one with endless nesting or
# with numbers of a thousand digits.
_UNREADABLE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True)
class Remembered:
    """A choice of an earlier run, as it is stored.

    Attributes:
        method: name of the method.
        parameters: its chosen parameters.
        threads: size of the team, which may be smaller than the number of available threads.
        points_per_second: rate measured then.
        latency: extra time of a block measured then [s].
        date: day and time of the measurement, ISO 8601.
        good_for: longest run for which the choice is valid [s]; None for any run, since all methods
            had their turn.
        checked: whether it was compared with the reference; not if a signal ended the tuning.
    """

    method: str
    parameters: Mapping[str, int]
    threads: int
    points_per_second: float
    latency: float
    date: str
    good_for: float | None = None
    checked: bool = True

    @property
    def chosen(self) -> tuple[str, Mapping[str, int]]:
        """(name of the method, its parameters)."""
        return self.method, self.parameters


Key = Mapping[str, Any]


def shape_class(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape with every length rounded to a power of the square root of 2.

    The choice between methods and tile sizes depends on which of row, plane and state fit into
    which cache, and cache levels differ by factors of 8 and more. So lengths within 19 % of each
    other share a choice, and a small change of a configuration does not start the tuning again.

    >>> shape_class((4800, 4096)), shape_class((4500, 4000)), shape_class((3,))
    ((4096, 4096), (4096, 4096), (2,))
    """
    return tuple(int(2 ** (round(2 * math.log2(n)) / 2)) for n in shape)


def tuning_key(
    problem: Problem,
    machine: Machine,
    *,
    threads: int,
    fixed_threads: bool,
    candidates: Sequence[str],
    gpu: Gpu | None = None,
) -> Key:
    """Everything that decides which candidate is the fastest, as plain data.

    Args:
        problem: problem to advance; of its stencil only the offsets count, since compiled code
            takes weights as arguments.
        machine: hardware to advance it on.
        threads: CPU threads.
        fixed_threads: whether the number of threads must not be reduced.
        candidates: the methods to choose from, with their parameters where those are requested.
        gpu: the GPU to run on; None for CPU threads.
    """
    import llvmlite.binding

    # A changed kernel, compiler target or driver changes the key, which invalidates the stored
    # choice.
    return {
        "format": _FORMAT,
        "version": __version__,
        "sources": _kernel_sources(cpu_kernels if gpu is None else gpu_kernels),
        "device": [machine.cpu, llvmlite.binding.get_host_cpu_name()]
        if gpu is None
        else [gpu.name, gpu.driver],
        "threads": threads,
        "fixed_threads": fixed_threads,
        "candidates": list(candidates),
        "offsets": [",".join(map(str, offset)) for offset in problem.stencil.offsets],
        "axes": [
            "periodic" if problem.boundary.periodic(k) else "reflecting"
            for k in range(problem.grid.ndim)
        ],
        "shape": list(shape_class(problem.grid.shape)),
        "n_fields": problem.n_fields,
        "dtype": problem.precision,
        # The key has entries only for parts that the problem has.
        **({} if problem.conduction is None else {"conduction": _body(problem.conduction)}),
        **({} if problem.conduction is None else {"faces": _programs(problem)}),
        **({} if problem.equations is None else {"equations": _stages(problem.equations)}),
    }


def _body(conduction: Conduction) -> Mapping[str, Any]:
    """The parts of a conduction problem that are compiled in, and the sizes of its tables."""
    return {
        "n_ids": conduction.medium.n_ids,
        "source": conduction.source and conduction.source.program.text,
        "coefficients": conduction.coefficients is not None,
        **({} if (it := conduction.enthalpy) is None else {"pieces": it.n_pieces}),
        **({"radiates": True} if it is not None and it.radiates else {}),
    }


def _stages(equations: Equations) -> str:
    """Digest of the formulas and instructions of all stages."""
    written = [(*stage.formulas, stage.programs.instructions) for stage in equations.stages]
    return hashlib.sha256(repr([equations.fields, equations.results, written]).encode()).hexdigest()


def _programs(problem: Problem) -> list[list[str]]:
    # Formulas of the faces, by axis and side; they are compiled into kernels.
    return [
        [face.rule.program.text for face in pair if isinstance(face, RuledFace)]
        for pair in problem.boundary.faces
    ]


def recall(key: Key) -> Remembered | None:
    """The choice stored for this key; None if there is none that can be read."""
    try:
        kept = json.loads(_path(key).read_text(encoding="utf-8"))
        # The file name is a shortened digest, so the full key is compared as well.
        if kept["key"] != key:
            return None
        choice = Remembered(**kept["choice"])

        # Users may edit the file, so its values are validated.
        numbers = [choice.points_per_second, choice.latency, choice.good_for or 0.0]
        counts = (choice.threads, *choice.parameters.values())
        sound = (
            choice.threads >= 1
            and choice.points_per_second > 0
            and all(map(math.isfinite, numbers))
            and all(isinstance(count, int) for count in counts)
            and isinstance(choice.checked, bool)
        )
    except _UNREADABLE:
        return None
    return choice if sound else None


def remember(key: Key, choice: Remembered, tried: Sequence[Mapping[str, Any]]) -> None:
    """Store a choice; if the folder cannot be written, the next run measures again.

    Args:
        key: key of the choice.
        choice: the choice to store.
        tried: all measurements, for people who read the file.
    """
    text = json.dumps({"key": key, "choice": asdict(choice), "tried": list(tried)}, indent=1)
    with contextlib.suppress(OSError, UnsupportedError):
        atomic_text(_path(key), text + "\n")


def now() -> str:
    """The current date and time, for a choice made now."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _path(key: Key) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    return cache_directory(_PART) / f"{digest}.json"


@functools.cache
def _kernel_sources(package: ModuleType) -> str:
    assert package.__file__ is not None
    # Any change of a source, templates of generated code included, invalidates stored choices.
    folder, kinds = Path(package.__file__).parent, (".py", ".cu", ".cuh")
    return digest_of(sorted(path for path in folder.rglob("*") if path.suffix in kinds))[:24]
