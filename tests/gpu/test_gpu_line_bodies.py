"""gpu.stream for bodies on a line, of any materials, faces and sources: whole steps with faces and
halos against the reference, without a GPU and on one.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.gpu.test_gpu_palette_method import advanced, agree, cut
from tests.support.conduction_cases import (
    Case,
    beam,
    closed,
    graded,
    heating,
    mixed_faces,
    radiating,
    reacting,
    rings,
)
from tests.support.emulator.emulation import COMPILER, NO_COMPILER
from tests.support.enthalpy_cases import FEW, MANY, every_face, melting, uneven
from tetris_sim.apps.heat.materials import MaterialCurves
from tetris_sim.gpu_kernels.common.device import compile_source
from tetris_sim.gpu_kernels.common.layout import pitch_slab
from tetris_sim.gpu_kernels.stream.conducting import CONDUCTING
from tetris_sim.gpu_kernels.stream.kernel_1d import Heats, heats_of
from tetris_sim.gpu_kernels.stream.method import METHOD
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab

emulated = pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)

REGISTERS = 65536  # of a multiprocessor
FEW_BYTES = 80  # spilled outside the loops of columns
NAMES = ("steps_per_block", "columns", "warps", "blocks", "refresh")
WIDE: Parameters = dict(zip(NAMES, (10, 12, 2, 1, 4), strict=True))
SHORT: Parameters = dict(zip(NAMES, (5, 8, 3, 1, 4), strict=True))


def problems(n: int, dtype: Any = np.float64) -> dict[str, Problem]:
    """Every kind of body on a line of so many points."""

    def case(n_ids: int, face: Any, source: Any = None) -> Case:
        return Case("", (n,), n_ids, face, source, dtype)

    return {
        "materials": case(5, mixed_faces).problem(),
        "one, heated": case(1, mixed_faces, heating(1, changes=True)).problem(),
        "heated": case(4, closed, heating(4, changes=False)).problem(),
        "heated by turns": case(4, mixed_faces, heating(4, changes=True)).problem(),
        "beam": case(3, closed, beam()).problem(),
        "reacting": case(5, mixed_faces, reacting(5)).problem(),
        "ring": case(3, rings, heating(3, changes=True)).problem(),
        "radiating face": case(3, lambda *_: radiating(1)).problem(),
        "many": case(200, mixed_faces).problem(),
        "graded": graded((n,), mixed_faces),
        "melting": melting(case(3, every_face, heating(3, changes=True)), FEW),
        "melting, one": melting(case(1, closed), FEW[:1]),
        "varying": melting(case(5, every_face, heating(5, changes=False)), MANY),
        "varying ring": melting(case(4, rings), MANY),
        "uneven melting": uneven(melting(case(3, every_face, heating(3, changes=True)), FEW)),
        "uneven varying": uneven(melting(case(5, every_face), MANY)),
        "surfaces": melting(case(4, every_face), MANY, radiates=True),
        "uneven surfaces": uneven(melting(case(4, closed), FEW, radiates=True)),
    }


def of_type(problem: Problem, dtype: Any) -> Problem:
    """The problem with states of a type."""
    initial = problem.initial
    return dataclasses.replace(
        problem, dtype=np.dtype(dtype), initial=lambda slab: initial(slab).astype(dtype)
    )


KINDS = tuple(problems(50))
# Of the rest nothing else is compiled.
USUAL = {"materials", "one, heated", "heated by turns", "reacting", "ring", "graded", "melting"}
USUAL |= {"melting, one", "varying", "uneven varying", "surfaces"}


@emulated
@pytest.mark.parametrize(
    "name", [it if it in USUAL else pytest.param(it, marks=pytest.mark.full) for it in KINDS]
)
def test_bodies_agree_with_the_reference(name: str) -> None:
    gpu = agree(problems(1001)[name], WIDE)
    assert sum(it == "body_1d" for it in gpu.launches) == 3
    assert gpu.launches.count("body_1d_arrays") == 1


@emulated
@pytest.mark.parametrize("name", ["heated by turns", "graded", "varying"])
def test_bodies_in_float32_agree_with_the_reference(name: str) -> None:
    agree(of_type(problems(700, np.float32)[name], np.float32), SHORT)


@emulated
@pytest.mark.parametrize("name", ["heated by turns", "graded", "melting", "uneven varying"])
def test_bits_do_not_depend_on_where_the_line_is_cut(name: str) -> None:
    problem, steps = problems(1003)[name], 2 * SHORT["steps_per_block"]
    whole, _ = advanced(problem, SHORT, (steps,))
    np.testing.assert_array_equal(cut(problem, SHORT, 531, 0, steps), whole)


@emulated
def test_what_heats_a_line_the_same_at_every_step_is_found_once() -> None:
    steady, turns = (problems(300)[it] for it in ("heated", "heated by turns"))
    assert heats_of(steady.body) == Heats.THE_SAME
    assert heats_of(turns.body) == Heats.A_PROGRAM
    # Two arrays of numbers, and one of heat where anything heats.
    plain = problems(300)["materials"]
    for problem, count in ((plain, 2), (steady, 3), (turns, 3)):
        slab = Slab.whole(problem.grid)
        of_array = 8 * pitch_slab(problem, slab, SHORT["steps_per_block"]).field_pitch
        assert CONDUCTING.memory(problem, slab, SHORT) == count * of_array


def test_a_line_takes_every_body_but_curves_of_too_many_pieces() -> None:
    for name, problem in problems(300).items():
        assert METHOD.refusal(problem) is None, name
    ragged = tuple((float(t), 1 + 0.3 * np.sin(t)) for t in np.linspace(0, 300, 300))
    problem = melting(Case("", (300,), 1, closed), (MaterialCurves(ragged, ((0.0, 1.0),), 1.0),))
    assert "at most 256 pieces" in str(METHOD.refusal(problem))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("materials", np.float64),
        ("heated", np.float32),
        ("beam", np.float64),
        ("melting", np.float64),
        pytest.param("reacting", np.float64, marks=pytest.mark.full),
        pytest.param("reacting", np.float32, marks=pytest.mark.full),
        pytest.param("varying", np.float64, marks=pytest.mark.full),
        pytest.param("uneven surfaces", np.float32, marks=pytest.mark.full),
    ],
)
def test_proposals_compile_and_hardly_spill(name: str, dtype: Any) -> None:
    pytest.importorskip("cupy", reason="CuPy's binding of NVRTC is not installed")
    problem = of_type(problems(5000)[name], dtype)
    for parameters in METHOD.parameters(problem):
        kernel = METHOD.kernel(problem, parameters)
        compiled = compile_source(kernel.source, kernel.defines, "sm_90")
        assert compiled.registers[kernel.entry] * kernel.threads <= REGISTERS
        assert compiled.spilled <= FEW_BYTES


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", KINDS)
def test_every_proposal_agrees_with_the_reference_on_a_gpu(name: str, dtype: Any, gpu: Any) -> None:
    # Faces that grow with the number of points are stable with so small steps only.
    n, part = (1_301, 200) if name.startswith("uneven") else (20_011, 16)
    problem = of_type(problems(n, dtype)[name], dtype)
    problem = dataclasses.replace(problem, dt=problem.dt / part)
    for parameters in METHOD.parameters(problem):
        agree(problem, parameters, gpu)
