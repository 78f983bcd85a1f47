"""What the hardware counters say of single launches: conflicts, traffic, which pipe is busy, what
warps wait for.

Nsight Compute (`ncu`) runs this module as a program that launches each kernel once, on the interior
of the usual grid. ConvStencil's Table 5 has two of these columns, uncoalesced global accesses (UGA)
and bank conflicts per request (BC/R): the shares of sectors, and the numbers of passes through
shared memory per request, beyond what the same accesses would take if they lay best. Clocks are
left as they are.

A single launch says nothing of power, so each kernel is also launched again and again while
`nvidia-smi` reads clock and power: many kernels meet the power limit, and the GPU lowers its clock.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import logging
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_alone import Alone, Arena, fastest, fused_alone
from benchmarks.gpu_limits import measure_gpu_limits
from tetris_sim.bench.gpu import SHAPES, measured_gpu, weight_kinds
from tetris_sim.bench.timing import TimedWork, WeightKind, random_problem
from tetris_sim.errors import UnsupportedError
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.stencils.catalogue import named_stencil

STENCILS = (
    "heat-1d",
    "heat-2d",
    "star-2d9p",
    "box-2d9p",
    "box-2d25p",
    "box-2d49p",
    "heat-3d",
    "box-3d27p",
)
"""Those that are looked at if none are named."""

METRICS = {
    "nanoseconds": "gpu__time_duration.sum",
    "clock": "sm__cycles_elapsed.avg.per_second",
    "registers": "launch__registers_per_thread",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "issue_active": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "fp64_pipe": "sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active",
    "fp64_tensor_pipe": "sm__pipe_tensor_op_dmma_cycles_active.avg.pct_of_peak_sustained_active",
    "half_tensor_pipe": "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "l1": "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l2": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "dram_bytes": "dram__bytes.sum",
    "shared_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "shared_load_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "shared_load_requests": "smsp__inst_executed_op_shared_ld.sum",
    "shared_store_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "shared_store_requests": "smsp__inst_executed_op_shared_st.sum",
    "global_sectors": "memory_l2_theoretical_sectors_global",
    "global_sectors_ideal": "memory_l2_theoretical_sectors_global_ideal",
    "instructions": "smsp__inst_executed.sum",
}
"""Our name of each counter and Nsight Compute's."""

STALLS = (
    "barrier",
    "dispatch_stall",
    "lg_throttle",
    "long_scoreboard",
    "math_pipe_throttle",
    "mio_throttle",
    "not_selected",
    "short_scoreboard",
    "wait",
)
"""What warps may wait for; the counters say how many warps do, on average, whenever an instruction
is issued.
"""

_STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
_OPTIONS = (
    "--clock-control=none",
    "--profile-from-start=off",
    "--csv",
    "--page=raw",
    "--print-units=base",
)
_WARM, _BEAT = (
    0.5,
    0.05,
)  # seconds: of launches before clock and power are read, and of one timing meanwhile
# where threads move less of the data, bulk copies do, and their sectors are not counted
_UNSEEN = 0.01
_LOG = logging.getLogger(__name__)


def bench_gpu_counters(
    names: Sequence[str] = STENCILS,
    *,
    shape: tuple[int, ...] | None = None,
    dtypes: Sequence[str] = ("float64",),
    rounds: int = 7,
    seconds: float = 0.4,
) -> dict[str, Any]:
    """Counters of one launch of every fused kernel, each with the parameters that are fastest for
    it alone.

    Args:
        names: stencils of the catalogue, with the weights of `weight_kinds`.
        shape: interior points, array order; the usual grid of each dimension if not given.
        dtypes: float64, float32 or both.
        rounds: timings of each limit.
        seconds: length of one of them; parameters are chosen by timings of a quarter of it.

    Raises:
        UnsupportedError: there is no GPU, or Nsight Compute is missing or fails.
    """
    profiler = find_profiler()
    with measured_gpu(rounds=rounds, seconds=seconds, measure=measure_gpu_limits) as (
        result,
        device,
    ):
        cases = []
        for name, dtype in itertools.product(names, dtypes):
            grid = shape or SHAPES[named_stencil(name).stencil.ndim]
            for weights in weight_kinds(name):
                cases += _choose(
                    random_problem(name, grid, dtype, weights), name, weights, device, seconds / 4
                )
        counted = count(cases, profiler)
    return {**result.as_json(), "profiler": _version(profiler), "gpu_counters": counted}


def find_profiler() -> str:
    """The path of `ncu`.

    Raises:
        UnsupportedError: there is none.
    """
    found = shutil.which("ncu") or shutil.which("ncu", path="/usr/local/cuda/bin")
    if found is None:
        msg = (
            "counters are read by Nsight Compute: install it (it comes with the CUDA toolkit) and "
            "put ncu on the PATH"
        )
        raise UnsupportedError(msg)
    return found


def count(cases: Sequence[Mapping[str, Any]], profiler: str) -> list[dict[str, Any]]:
    """Each case with its counters, derived numbers included.

    Args:
        cases: {"stencil", "method", "shape", "parameters", ...} each.
        profiler: path of `ncu`.

    Raises:
        UnsupportedError: it failed, with what it said.
    """
    metrics = ",".join([*METRICS.values(), *map(_STALL.format, STALLS)])
    with tempfile.TemporaryDirectory(prefix="tetris_sim_counters_") as folder:
        path = Path(folder) / "cases.json"
        path.write_text(json.dumps(list(cases)))
        command = [
            profiler,
            *_OPTIONS,
            "--metrics",
            metrics,
            sys.executable,
            "-m",
            __name__,
            str(path),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=_environment()
        )
    launches = read_counters(done.stdout)
    if done.returncode or len(launches) != len(cases):
        lines = [
            line
            for line in (done.stdout + done.stderr).splitlines()
            if line and not line.startswith('"')
        ]
        said = "\n".join(lines)[-2000:]
        msg = (
            f"ncu counted {len(launches)} of {len(cases)} launches (exit status "
            f"{done.returncode}). It says: {said}"
        )
        raise UnsupportedError(msg)
    return [
        {**case, **derive(found, case["updates"])}
        for case, found in zip(cases, launches, strict=True)
    ]


def read_counters(text: str) -> list[dict[str, float | None]]:
    """What `ncu --csv --page raw` printed: our names to values, a dictionary per launch; None for
    what it lacks.
    """
    lines = text.splitlines()
    begin = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    wanted = {**METRICS, **{stall: _STALL.format(stall) for stall in STALLS}}
    rows = csv.DictReader(io.StringIO("\n".join(lines[begin:])))
    # the line below the header has the units
    launches = (row for row in rows if (row["ID"] or "").isdigit())
    return [{name: _number(row.get(metric)) for name, metric in wanted.items()} for row in launches]


def derive(counters: Mapping[str, float | None], updates: float) -> dict[str, Any]:
    """The counters and what follows from them.

    `rate` is in point updates per second, of this launch; `bank_conflicts_per_request` is over the
    loads and stores of shared memory by warps; `uncoalesced` is the share of sectors of global
    memory beyond the fewest that could hold the same bytes, None where bulk copies do the work;
    `stall` is what most warps wait for.
    """
    loads, stores = (counters[f"shared_{kind}_requests"] or 0.0 for kind in ("load", "store"))
    conflicts = [counters[f"shared_{kind}_conflicts"] for kind in ("load", "store")]
    requests = loads + stores
    sectors, ideal = counters["global_sectors"], counters["global_sectors_ideal"]
    if sectors is not None and 32 * sectors < _UNSEEN * (counters["dram_bytes"] or 0.0):
        sectors = None
    waiting = {stall: counters[stall] for stall in STALLS if counters[stall] is not None}
    return {
        "counters": dict(counters),
        "rate": 1e9 * updates / counters["nanoseconds"] if counters["nanoseconds"] else None,
        "bank_conflicts_per_request": sum(n or 0.0 for n in conflicts) / requests
        if requests
        else None,
        "uncoalesced": 1 - ideal / sectors if sectors and ideal is not None else None,
        "stall": max(waiting, key=lambda stall: waiting[stall] or 0.0) if waiting else None,
    }


def launch_cases(cases: Sequence[Mapping[str, Any]]) -> None:
    """Launch the kernel of each case once where the profiler sees it, and once before where it does
    not.
    """
    device = GpuDevice(0)
    for case in cases:
        problem = random_problem(
            case["stencil"], tuple(case["shape"]), case["dtype"], case["weights"]
        )
        arena = Arena(problem, device)
        (alone,) = _kernels(problem, case["method"], case["parameters"])
        launch = alone.open(arena)
        arena.launch(launch)
        device.stream.synchronize()
        device.cupy.cuda.profiler.start()
        arena.launch(launch)
        device.stream.synchronize()
        device.cupy.cuda.profiler.stop()
        arena.close()
    device.close()


def _choose(
    problem: Problem, name: str, weights: WeightKind, device: GpuDevice, seconds: float
) -> list[dict[str, Any]]:
    """A case for every method that has kernels for it: the fastest."""
    arena = Arena(problem, device)
    found = []
    for method in METHODS:
        try:
            alone, work = fastest(arena, list(_kernels(problem, method.name)), seconds=seconds)
        except UnsupportedError as refusal:
            _LOG.info("%s not for %s: %s", method.name, name, refusal)
            continue
        case: dict[str, Any] = {
            "stencil": name,
            "weights": weights,
            "method": method.name,
            "shape": list(problem.grid.shape),
        }
        case |= {
            "dtype": problem.dtype.name,
            "parameters": dict(alone.parameters),
            "updates": work.units,
        }
        found.append({**case, "sustained": sustain(work, device)})
    arena.close()
    return found


def sustain(work: TimedWork, device: GpuDevice) -> dict[str, float | None]:
    """Rate of many launches [point updates/s], and clock [Hz] and power [W] while they run; None
    without nvidia-smi.
    """
    launches = max(1, round(_BEAT / _elapsed(work, 1)))
    beats = math.ceil(_WARM / _BEAT)
    _elapsed(work, launches * beats)
    reader = _start_reading(device)
    rates: list[float] = []
    while len(rates) < beats or (reader is not None and reader.poll() is None):
        rates.append(work.units * launches / _elapsed(work, launches))
    said = reader.communicate()[0] if reader is not None else ""
    clock, power = ([*map(_number, said.split(",")), None, None])[:2]
    return {
        "rate": statistics.median(rates),
        "clock": None if clock is None else 1e6 * clock,
        "power": power,
    }


def _start_reading(device: GpuDevice) -> subprocess.Popen[str] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    bus = device.cupy.cuda.Device(device.number).pci_bus_id
    query = ["--query-gpu=clocks.sm,power.draw.instant", "--format=csv,noheader,nounits"]
    return subprocess.Popen([program, "-i", bus, *query], stdout=subprocess.PIPE, text=True)


def _elapsed(work: TimedWork, launches: int) -> float:
    begin = time.perf_counter()
    work.run(launches)
    return max(time.perf_counter() - begin, 1e-9)


def _kernels(problem: Problem, name: str, parameters: Parameters | None = None) -> Iterator[Alone]:
    """The kernels of a method, with its proposals or with certain parameters; none if it has none
    or refuses.
    """
    (method,) = (each for each in METHODS if each.name == name)
    if not isinstance(method, FusedMethod) or method.refusal(problem) is not None:
        return
    family = method.families[problem.grid.ndim]
    for choice in method.parameters(problem) if parameters is None else (parameters,):
        yield fused_alone(family.kernel(problem.stencil, problem.dtype, choice), choice)


def _environment() -> dict[str, str]:
    """Where the program finds this package and the one that it measures, wherever it is started."""
    roots = [str(Path(__file__).resolve().parents[1])]
    path = os.pathsep.join(filter(None, [*roots, os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}


def _number(text: str | None) -> float | None:
    try:
        value = float((text or "").replace(",", ""))
    except ValueError:
        return None
    return None if value != value else value


def _version(profiler: str) -> str:
    said = subprocess.run(
        [profiler, "--version"], capture_output=True, text=True, check=False
    ).stdout.split()
    return next(
        (word for word, before in zip(said[1:], said, strict=False) if before == "Version"),
        "unknown",
    )


if __name__ == "__main__":
    launch_cases(json.loads(Path(sys.argv[1]).read_text()))
