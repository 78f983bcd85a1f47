"""What faces cost on a GPU: whole steps of the usual grids with each kind of face, beside periodic
ones.

    python benchmarks/faces.py heat-2d star-2d9p --rounds 5 --json faces.json
    python benchmarks/faces.py heat-3d --kinds periodic,changing,radiation

Stencils that are heat between equal cells are also timed as a body of one material whose faces
change with time, or radiate; along each axis both faces do. A method is the one that was the
fastest where it was measured (scheduler/tuning/known.json), or the first that takes the problem. A
line has the median of all rounds, the slowest and the fastest in GStencil/s, and what that is of
the periodic rate.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]

from tetris_sim.apps.heat.rules import Surface, flowing, held, join  # noqa: E402
from tetris_sim.apps.time_functions import TimeFunction  # noqa: E402
from tetris_sim.bench.candidates import open_method  # noqa: E402
from tetris_sim.bench.gpu import SHAPES, random_made_there, weight_kinds  # noqa: E402
from tetris_sim.bench.timing import WeightKind, interleave, provenance, random_problem  # noqa: E402
from tetris_sim.gpu_kernels import METHODS  # noqa: E402
from tetris_sim.gpu_kernels.common.device import GpuDevice  # noqa: E402
from tetris_sim.model.boundary import Boundary, Dirichlet, Face, Fixed, Neumann, Periodic, Robin  # noqa: E402
from tetris_sim.model.conduction import Conduction, Medium, Rule  # noqa: E402
from tetris_sim.model.formula import compile_expression  # noqa: E402
from tetris_sim.model.method import Method, Parameters  # noqa: E402
from tetris_sim.model.problem import Problem  # noqa: E402
from tetris_sim.model.stencil import star_mean  # noqa: E402
from tetris_sim.model.stencils.catalogue import named_stencil  # noqa: E402
from tetris_sim.scheduler.machine.machine import (  # noqa: E402
    Gpu,
    find_machine,
)
from tetris_sim.scheduler.tuning.tuned import find_known  # noqa: E402

Faces = tuple[tuple[Face, Face], ...]
COOLED = Robin(h=1.0, ambient=0.5)
_FIRST = ("gpu.trapezoid", "gpu.stream", "gpu.plain")


def everywhere(face: Face, ndim: int) -> Faces:
    """The same face on all sides."""
    return ((face, face),) * ndim


def contradicting(ndim: int) -> Faces:
    """Along each axis 1 on one face and 0 on the other."""
    return ((Dirichlet(1.0), Dirichlet(0.0)),) * ndim


NUMBERS: dict[str, Callable[[int], Faces]] = {
    "periodic": lambda ndim: everywhere(Periodic(), ndim),
    "insulated": lambda ndim: everywhere(Neumann(), ndim),
    "convection": lambda ndim: everywhere(COOLED, ndim),
    "contradict": contradicting,
    "given": lambda ndim: everywhere(Dirichlet(0.5), ndim),
    "fixed": lambda ndim: everywhere(Fixed(0.5), ndim),
}


def _rules(kind: str) -> Rule:
    """What holds on the faces of a body whose cells are 1 wide and conduct 1."""
    surface = Surface(1.0, np.ones(1), {})
    wave = TimeFunction(compile_expression("0.5 + 0.4*sin(t/2000)", {"t"}).tree)
    number = TimeFunction(compile_expression("20", ()).tree)
    switched = TimeFunction(compile_expression("0.2 if t % 2000 < 1000 else 0.8", {"t"}).tree)
    if kind == "changing":
        return held(wave, surface)
    if kind == "changing convection":
        return flowing(surface, h=TimeFunction(compile_expression("0.7", ()).tree), ambient=wave)
    if kind == "switched":
        return held(switched, surface)
    return flowing(surface, ambient=number, emissivity=0.9)


RULES = ("changing", "changing convection", "switched", "radiation")


def body_of(problem: Problem, kind: str) -> Problem:
    """The same steps as those of a body of one material, with rules at all faces."""
    ndim = problem.grid.ndim
    beside = problem.stencil.weights[problem.stencil.offsets.index((0,) * (ndim - 1) + (1,))]
    medium = Medium(
        lambda box: np.zeros([high - low for low, high in box], np.uint8),
        np.full((ndim, 1, 1), beside),
        np.ones(1),
        ("body",),
    )
    return dataclasses.replace(
        problem,
        stencil=star_mean(ndim),
        boundary=Boundary(
            tuple(
                (join([_rules(kind)], None, axis, 1), join([_rules(kind)], None, axis, 1))
                for axis in range(ndim)
            )
        ),
        conduction=Conduction(medium),
    )


def with_faces(name: str, weights: WeightKind, kind: str) -> Problem:
    """A stencil on the usual grid with a kind of face."""
    ndim = named_stencil(name).stencil.ndim
    problem = random_made_there(random_problem(name, SHAPES[ndim], "float64", weights))
    if kind in RULES:
        return body_of(problem, kind)
    return dataclasses.replace(problem, boundary=Boundary(NUMBERS[kind](ndim)))


def chosen(problem: Problem, gpu: Gpu) -> tuple[Method, Parameters]:
    """The method, with parameters."""
    methods = {method.name: method for method in METHODS}
    known = find_known(problem, gpu)
    if known is not None and methods[known.method].refusal(problem) is None:
        return methods[known.method], known.parameters
    method = next(
        methods[name]
        for name in (*_FIRST[problem.grid.ndim > 1 :],)
        if methods[name].refusal(problem) is None
    )
    return method, method.parameters(problem)[0]


def time_kinds(
    name: str, weights: WeightKind, kinds: Sequence[str], rounds: int, seconds: float
) -> dict[str, Any]:
    """A row of the result: (median, slowest, fastest) by kind of face [GStencil/s]."""
    machine, rates, methods, times = find_machine(), {}, {}, {}
    for kind in kinds:
        if kind in RULES and not name.startswith("heat"):
            continue
        begin = time.perf_counter()
        device = GpuDevice(0)
        problem = with_faces(name, weights, kind)
        method, parameters = chosen(problem, machine.gpus[0])
        candidate = open_method(problem, method, parameters, device)
        timing = interleave({kind: candidate.work}, rounds=rounds, seconds=seconds)[kind]
        candidate.close()
        device.close()
        methods[kind] = f"{method.name} {parameters.get('steps_per_block', 1)}"
        times[kind] = time.perf_counter() - begin
        rates[kind] = [round(it / 1e9, 1) for it in (timing.median, timing.low, timing.high)]
        share = f"{rates[kind][0] / rates['periodic'][0]:.3f}" if "periodic" in rates else ""
        print(name, weights, kind, methods[kind], *rates[kind], share, flush=True)
        print(f"  {times[kind]:.1f} s in all", file=sys.stderr, flush=True)
    return {"stencil": name, "weights": weights, "methods": methods, "faces": rates}


def main(arguments: Sequence[str]) -> int:
    """Measure."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stencils", nargs="+", metavar="STENCIL", help="a name, or NAME:WEIGHTS")
    parser.add_argument("--kinds", default=",".join((*NUMBERS, *RULES)), help="with commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.1, help="of one timing")
    parser.add_argument("--json", type=Path, help="where the rows are written")
    args = parser.parse_args(arguments)

    rows = []
    for named in args.stencils:
        name, _, weights = named.partition(":")
        rows += [
            time_kinds(name, kind, args.kinds.split(","), args.rounds, args.seconds)
            for kind in ([weights] if weights else weight_kinds(name))
        ]
    if args.json is not None:
        machine = find_machine()
        about = {"device": machine.gpus[0].name, "dtype": "float64", "rounds": args.rounds}
        about |= provenance()
        args.json.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
