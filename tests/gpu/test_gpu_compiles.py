"""Without a GPU: kernels compile for both architectures, nothing spills, tensor methods use the
FP64 tensor cores.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.gpu_limits import SOURCE as LIMITS
from benchmarks.gpu_peers import NAIVE
from tests.support.cases import CUSTOM, boundary_of, make_problem, stencil_of
from tests.support.conduction_cases import CASES, RADIATION, Case, graded, mixed_faces, radiating
from tests.support.enthalpy_cases import cooled_body, radiating_cases, uneven
from tetris_sim.gpu_kernels import METHODS
from tetris_sim.gpu_kernels.boundary.ghosts import frame_defines, ghosts_defines, line_frame_defines
from tetris_sim.gpu_kernels.common.body import body_defines
from tetris_sim.gpu_kernels.common.device import Compiled, compile_source
from tetris_sim.gpu_kernels.common.layout import term_defines
from tetris_sim.gpu_kernels.fused.method import FusedMethod
from tetris_sim.model.problem import PRECISIONS, Problem
from tetris_sim.model.stencils.catalogue import STENCIL_NAMES
from tetris_sim.scheduler.tuning.choice import label_of

pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")

ARCHITECTURES = ("sm_80", "sm_90")
REGISTERS = 65536  # of a multiprocessor
# spilled outside the inner loop, in a proposal that is the fastest for some stencil nevertheless
FEW_BYTES = 80
TENSOR = ("gpu.trapezoid", "gpu.dual_tessellation")
SPARSE = "gpu.sparse"
FUSED = tuple(method for method in METHODS if isinstance(method, FusedMethod))
USUAL = ("heat-1d", "heat-2d", "box-2d9p", "box-2d49p", "heat-3d", "box-3d27p")
ALONE = ("heat-2d", "box-3d27p")  # that are compiled for Ampere too, one proposal each


def shared_limit(architecture: str) -> int:
    return {"sm_80": 163 << 10, "sm_90": 227 << 10}[architecture]


def variants() -> list[Any]:
    """Every proposal for the usual stencils on Hopper; the best guess for a few on Ampere. The rest
    with --run-full.
    """
    found = []
    for method in FUSED:
        for name in (*STENCIL_NAMES, *CUSTOM):
            for dtype in PRECISIONS:
                for architecture in ARCHITECTURES:
                    usual = name in (USUAL if architecture == "sm_90" else ALONE)
                    usual &= architecture == "sm_90" or dtype != "float32"
                    marks = () if usual else (pytest.mark.full,)
                    label = f"{method.name}-{name}-{dtype}-{architecture}"
                    found.append(
                        pytest.param(method, name, dtype, architecture, marks=marks, id=label)
                    )
    return found


@pytest.mark.parametrize(("method", "name", "dtype", "architecture"), variants())
def test_a_fused_kernel_compiles_and_spills_nothing(
    method: FusedMethod, name: str, dtype: str, architecture: str
) -> None:
    stencil = stencil_of(name)
    problem, _ = make_problem(stencil, boundary_of("walls", stencil.ndim), dtype=dtype)
    if method.refusal(problem) is not None:
        return
    proposals = method.parameters(problem)
    proposals = proposals if architecture == "sm_90" and dtype != "float32" else proposals[:1]
    spilled, built = [], []
    for parameters in proposals:
        kernel = method.families[stencil.ndim].kernel(problem.stencil, np.dtype(dtype), parameters)
        if kernel.shared_bytes > shared_limit(architecture):
            continue
        compiled = compile_source(kernel.source, kernel.defines, architecture)
        print(label_of(method.name, parameters), architecture, compiled.registers, compiled.spilled)  # noqa: T201
        assert compiled.registers[kernel.entry] * kernel.threads <= REGISTERS
        spilled.append(compiled.spilled)
        built.append(compiled)
    if not spilled:
        assert architecture == "sm_80"
        return
    assert min(spilled) == 0 or len(proposals) == 1
    assert max(spilled) <= FEW_BYTES
    assert method.name != SPARSE or any("HMMA.SP" in disassembled(it) for it in built)
    # In 3D the best guess of one of them leaves everything to the other cores.
    assert (
        method.name not in TENSOR
        or any("DMMA" in disassembled(it) for it in built)
        or (stencil.ndim == 3 and len(proposals) == 1)
    )


@pytest.mark.parametrize(
    ("dtype", "architecture"),
    [
        *((dtype, "sm_90") for dtype in ("float64", "float32", "float16")),
        ("float64", "sm_80"),
        *(pytest.param(dtype, "sm_80", marks=pytest.mark.full) for dtype in ("float32", "float16")),
    ],
)
@pytest.mark.parametrize("name", ["heat-1d", "box-2d49p", "heat-3d", "lopsided"])
def test_sweeps_and_frames_compile(name: str, dtype: str, architecture: str) -> None:
    stencil = stencil_of(name)
    problem, _ = make_problem(stencil, boundary_of("walls", stencil.ndim), dtype=dtype)
    terms = term_defines(problem)
    assert compile_source("plain.cu", terms, architecture).spilled == 0
    assert compile_source("ghosts.cu", ghosts_defines(problem, 4), architecture).spilled == 0
    # Registers saved around the one call, which is rarely made.
    assert (
        compile_source("frame.cu", frame_defines(problem, 4), architecture).spilled <= 2 * FEW_BYTES
    )
    assert compile_source(NAIVE, terms, architecture).spilled == 0
    if dtype == "float16":  # computed in float32, of which the limits are
        return
    limits = compile_source(LIMITS, {"TS_REAL": terms["TS_REAL"], "TS_TURNS": 100}, architecture)
    assert limits.spilled == 0
    assert ("DMMA" in disassembled(limits)) == (architecture == "sm_90")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("case", "dtype"),
    [
        (CASES[2], "float64"),
        (CASES[5], "float32"),
        (CASES[7], "float16"),
        (RADIATION[2], "float64"),
    ],
    ids=lambda it: it if isinstance(it, str) else it.name,
)
def test_sweeps_and_frames_of_bodies_compile(case: Case, dtype: str, architecture: str) -> None:
    problem = dataclasses.replace(case, dtype=np.dtype(dtype)).problem()
    for name in ("conduction.cu", "ruled_ghosts.cu"):
        assert compile_source(name, body_defines(problem), architecture).spilled == 0
    frame = compile_source("frame_conduction.cu", frame_defines(problem, 4), architecture)
    # As of the other frames.
    assert frame.spilled <= 2 * FEW_BYTES


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "depth"), [("float64", 128), ("float32", 144)])
def test_the_frame_of_a_line_of_one_material_stays_in_registers(
    dtype: str, depth: int, architecture: str
) -> None:
    problem = Case("", (900,), 1, lambda *_: radiating(1), None, np.dtype(dtype)).problem()
    defines = line_frame_defines(problem, depth)
    assert defines is not None
    assert compile_source("frame_line.cu", defines, architecture).spilled <= 2 * FEW_BYTES


@pytest.mark.parametrize(
    "problem",
    [
        graded((12, 15), mixed_faces),
        cooled_body((6, 7, 8)),
        uneven(cooled_body((6, 7, 8))),
    ],
    ids=["graded", "cooled", "uneven"],
)
def test_sweeps_of_coefficients_and_heat_contents_compile(problem: Problem) -> None:
    defines = body_defines(problem)
    for name in ("conduction.cu", "ruled_ghosts.cu"):
        assert compile_source(name, defines, "sm_90").spilled == 0
    frame = compile_source("frame_conduction.cu", frame_defines(problem, 4), "sm_90")
    assert frame.spilled <= 2 * FEW_BYTES


@pytest.mark.parametrize("name", ["radiating block", "uneven radiating plate"])
def test_sweeps_of_surfaces_that_radiate_compile(name: str) -> None:
    defines = body_defines(radiating_cases()[name])
    assert compile_source("conduction.cu", defines, "sm_90").spilled == 0


def disassembled(compiled: Compiled) -> str:
    """The instructions; skips where there is no disassembler."""
    program = disassembler()
    if program is None:
        pytest.skip("nvdisasm is not installed")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.cubin)
        file.flush()
        return subprocess.run(
            [program, "-c", file.name], capture_output=True, text=True, check=True
        ).stdout


def disassembler() -> str | None:
    for folder in sys.path:
        for path in Path(folder).glob("nvidia/*/bin/nvdisasm"):
            return str(path)
    return shutil.which("nvdisasm")
