"""What was tuned before: one small file per kind of problem in the cache folder, so that the next
run need not measure.

A file is found by the digest of everything that decides which method is fastest. What cannot be
read, or belongs to another version, is as good as not there, and is replaced.
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
from tetris_sim.model.homogeneous import one_stencil
from tetris_sim.model.method import ReducedPrecision
from tetris_sim.model.problem import Problem
from tetris_sim.scheduler.machine.machine import Gpu, Machine
from tetris_sim.scheduler.tuning.choice import Candidate, Known
from tetris_sim.support.cache import cache_directory
from tetris_sim.support.files import atomic_text
from tetris_sim.version import __version__

# What was the fastest on GPUs that were measured: it is tried first, and taken where nothing may be
# measured.
#
# `known.json` beside this file holds it, as benchmarks/first_choice.py writes it. Another GPU
# is taken for the one of these whose memory gives each multiprocessor about as many bytes in a
# cycle: that decides how many steps a launch has to make.

_PAIR_COST = 10  # instructions of a pair for one of float64, at most


def kind_of(problem: Problem) -> tuple[Any, ...]:
    """What decides which kernel is the fastest before all else: axes, reach, terms, kind of
    number.
    """
    stencil = problem.stencil
    return stencil.ndim, stencil.radius, stencil.n_points, problem.dtype.name


def is_mirrored(problem: Problem) -> bool:
    """Whether the weights stay the same when an axis is turned around."""
    return all(problem.stencil.is_mirrored(axis) for axis in range(problem.stencil.ndim))


def balance_of(gpu: Gpu) -> float:
    """Bytes of memory for each multiprocessor in a cycle; 0 if the driver does not say."""
    cycles = gpu.multiprocessors * gpu.clock
    return (gpu.bandwidth or 0.0) / cycles if cycles else 0.0


def find_known(problem: Problem, gpu: Gpu | None) -> Known | None:
    """What was the fastest for such a problem on such a GPU; None if nothing of its kind was
    measured.
    """
    if gpu is None or one_stencil(problem) is None:
        return None

    kind, mirrored, points = kind_of(problem), is_mirrored(problem), problem.grid.n_points
    alike = [known for known in all_known() if known.kind == kind]
    named = [known for known in alike if known.gpu == gpu.name]

    def distance(known: Known) -> tuple[float, bool, float]:
        there = balance_of(gpu) or known.balance
        size = abs(math.log(known.points / points))
        return abs(math.log(known.balance / there)), known.mirrored != mirrored, size

    return min(named or alike, key=distance, default=None)


def pairs_first(
    candidates: Sequence[Candidate], problem: Problem, gpu: Gpu | None
) -> list[Candidate]:
    """Candidates in the order in which they are tried: where pairs of float32 were asked for and
    should be faster than float64, the best guesses of methods that compute in pairs go before the
    other best guesses, and so on.

    GeForce cards take as long for one instruction of float64 as for 64 of float32, and a pair takes
    seven to nine of these for one (docs/decisions/0049).
    """
    if not problem.pairs or gpu is None or (gpu.float64_cost or 0.0) <= _PAIR_COST:
        return list(candidates)
    return sorted(
        candidates, key=lambda it: (it.guess, not isinstance(it.method, ReducedPrecision))
    )


@functools.cache
def all_known() -> tuple[Known, ...]:
    """All measurements."""
    rows = json.loads(Path(__file__).with_name("known.json").read_text(encoding="utf-8"))
    return tuple(Known(**row | {"kind": tuple(row["kind"])}) for row in rows)


_FORMAT = 2
_PART = "tuning"
# What a damaged file leads to, nested without end or with numbers of a thousand digits.
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
    """A choice that was made before.

    Attributes:
        method: name of the method.
        parameters: values chosen for it.
        threads: size of the team, which may be smaller than it could be.
        points_per_second: speed measured then.
        latency: extra time of a block measured then [s].
        date: day and time of the measurement, ISO 8601.
        good_for: longest run that it may be used for [s]; None for any: all methods had their turn.
    """

    method: str
    parameters: Mapping[str, int]
    threads: int
    points_per_second: float
    latency: float
    date: str
    good_for: float | None = None

    @property
    def chosen(self) -> tuple[str, Mapping[str, int]]:
        """(method, parameters)."""
        return self.method, self.parameters


Key = Mapping[str, Any]


def shape_class(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape with every length rounded to a power of the square root of 2.

    What decides between methods and tile sizes is which of row, plane and state fit into which
    cache, and caches differ by factors of 8 and more: lengths within 19 % of each other share a
    choice, and a small change of a configuration does not begin all anew.

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
        problem: what is advanced; of its stencil only where it reads, since compiled code takes
            weights as arguments.
        machine: what it is advanced with.
        threads: CPU threads.
        fixed_threads: whether fewer of them must not be used.
        candidates: the methods between which is chosen, with parameters where those are given.
        gpu: the GPU that they run on; None on CPU threads.
    """
    import llvmlite.binding

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
        **({} if problem.conduction is None else {"conduction": _body(problem.conduction)}),
        **({} if problem.conduction is None else {"faces": _programs(problem)}),
        **({} if problem.equations is None else {"equations": _stages(problem.equations)}),
    }


def _body(conduction: Conduction) -> Mapping[str, Any]:
    """What code is compiled for, and how large tables are."""
    return {
        "n_ids": conduction.medium.n_ids,
        "source": conduction.source and str(conduction.source.program.tree),
        "coefficients": conduction.coefficients is not None,
        **({} if conduction.enthalpy is None else {"pieces": conduction.enthalpy.n_pieces}),
    }


def _stages(equations: Equations) -> str:
    """A digest of what is computed."""
    written = [(*stage.formulas, stage.programs.instructions) for stage in equations.stages]
    return hashlib.sha256(repr([equations.fields, equations.results, written]).encode()).hexdigest()


def _programs(problem: Problem) -> list[list[str]]:
    return [
        [str(face.rule.program.tree) for face in pair if isinstance(face, RuledFace)]
        for pair in problem.boundary.faces
    ]


def recall(key: Key) -> Remembered | None:
    """The choice that was made for this key; None if there is none that can be read."""
    try:
        kept = json.loads(_path(key).read_text(encoding="utf-8"))
        if kept["key"] != key:
            return None
        choice = Remembered(**kept["choice"])

        # Whoever edits a file may write anything into it.
        numbers = [choice.points_per_second, choice.latency, choice.good_for or 0.0]
        counts = (choice.threads, *choice.parameters.values())
        sound = (
            choice.threads >= 1
            and choice.points_per_second > 0
            and all(map(math.isfinite, numbers))
            and all(isinstance(count, int) for count in counts)
        )
    except _UNREADABLE:
        return None
    return choice if sound else None


def remember(key: Key, choice: Remembered, tried: Sequence[Mapping[str, Any]]) -> None:
    """Keep a choice; where nothing can be kept, the next run measures again.

    Args:
        key: what it was made for.
        choice: what was chosen.
        tried: everything that was measured, for people who look into the file.
    """
    text = json.dumps({"key": key, "choice": asdict(choice), "tried": list(tried)}, indent=1)
    with contextlib.suppress(OSError, UnsupportedError):
        atomic_text(_path(key), text + "\n")


def now() -> str:
    """The date and time for a choice made now."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _path(key: Key) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]
    return cache_directory(_PART) / f"{digest}.json"


@functools.cache
def _kernel_sources(package: ModuleType) -> str:
    assert package.__file__ is not None
    folder, digest = Path(package.__file__).parent, hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".cu", ".cuh")):
        digest.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return digest.hexdigest()[:24]
