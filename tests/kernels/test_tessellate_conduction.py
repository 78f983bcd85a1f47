"""cpu.tessellate conducts heat with the bits of the chain, which are those of cpu.plain
(`test_conduct.py`, `test_enthalpy.py`), whatever rows together, tiles, threads, blocks, halos and
first step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import exact
from tests.support.body_samples import revolved
from tests.support.cases import run
from tests.support.conduction_cases import (
    CASES,
    Case,
    beam,
    by_formula,
    closed,
    graded,
    heating,
    mixed_faces,
    reacting,
    rings,
)
from tests.support.enthalpy_cases import FEW, MANY, every_face, melting, uneven
from tetris_sim.cpu_kernels.common.caches import Caches
from tetris_sim.cpu_kernels.common.stepper import ThreadTeam
from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.cpu_kernels.tessellate import operands
from tetris_sim.cpu_kernels.tessellate.formulas import BEYOND, filling_source, ghost_source
from tetris_sim.cpu_kernels.tessellate.lifted import lift_slab
from tetris_sim.cpu_kernels.tessellate.method import TessellateMethod, candidates
from tetris_sim.cpu_kernels.tessellate.operands import shapes_of_faces
from tetris_sim.cpu_kernels.tessellate.records import kind_of, make_body, record_bytes
from tetris_sim.model.boundary import SIDES
from tetris_sim.model.conduction import MIRROR, TEMPERATURE, Parameter, Rule, RuledFace, padded
from tetris_sim.model.formula import compile_expression
from tetris_sim.model.method import Parameters
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab

METHOD = TessellateMethod()
NARROW = {"tile_x": 8, "tile_y": 9, "tile_z": 5, "width": 32, "jam": 2, "steps_per_block": 3}
WHOLE = {"tile_x": 0, "tile_y": 0, "tile_z": 0, "width": 32, "jam": 2, "steps_per_block": 4}
BLOCKS = (1, 7, 4)


def by_place(n_ids: int, text: str) -> Rule:
    """Power by a formula of the place and a number by material, and of time if it names `c`."""
    names = ["q", "x", *(["c"] if "c" in text else [])]
    wave = Parameter("c", lambda t: np.cos(2 * t)[:, None])
    parameters = (Parameter("q", np.linspace(-1, 2, n_ids)), *([wave] if "c" in text else []))
    return Rule(Program(compile_expression(text, names).tree), parameters)


def radiating_rings(axis: int, side: int, n_ids: int) -> RuledFace | None:
    """A formula with numbers by material at the faces of the last axis, rings along the others."""
    rate = Parameter("rate", np.linspace(0.005, 0.02, n_ids))
    text = f"{MIRROR} + rate*(1.5**4 - (abs({MIRROR}) + 0.1)**4)"
    return by_formula(text, rate) if axis == 1 else None


def mixed_programs(axis: int, side: int, n_ids: int) -> RuledFace | None:
    """Numbers on some faces, formulas on others, two of which differ in a constant only."""
    if axis == 0 and side == 1:
        return by_formula(f"{MIRROR}*0.5 + 0.01*x")
    if axis == 1:
        return by_formula(f"{MIRROR}*{0.25 + 0.5 * side} + 0.01*x")
    return mixed_faces(axis, side, n_ids)


def scattered() -> Problem:
    """Another material at every point."""
    problem = Case("", (70, 80), 8, closed).problem()
    assert problem.conduction is not None
    ids = np.random.default_rng(3).integers(0, 8, problem.grid.shape, np.uint8)
    medium = replace(problem.conduction.medium, ids=lambda box: ids[cut(box)])
    return replace(problem, conduction=replace(problem.conduction, medium=medium))


def warming(n_ids: int) -> Rule:
    """Power by a formula of the temperature, with numbers by material."""
    text = f"q*(1 - {TEMPERATURE}*{TEMPERATURE})"
    tree = compile_expression(text, ["q", TEMPERATURE]).tree
    return Rule(Program(tree), (Parameter("q", np.linspace(-1, 2, n_ids)),))


WAVES, STANDS = "q/(1 + (x - 4*c)*(x - 4*c))", "q/(1 + (x - 3)*(x - 3))"
# Rows of several blocks of vectors, some with one record, some with many.
WIDE = Case("wide", (17, 203), 3, mixed_faces, heating(3, changes=True))
SHORT = Case("short rows", (9, 3), 2, mixed_faces, heating(2, changes=True), np.float32)
MELTING = Case("melting", (14, 203), 3, every_face, by_place(3, WAVES))
PROBLEMS = {case.name: case.problem() for case in (*CASES, WIDE, SHORT)} | {
    "formulas": Case("", (14, 45), 3, mixed_programs, by_place(3, STANDS)).problem(),
    "scattered": scattered(),
    "graded": graded((12, 15), mixed_faces),
    "graded, ring": graded((11, 9), rings),
    "cylinder": revolved("r z", (9, 14)),
    "disc": revolved("r theta", (13, 8)),
    "melting": melting(MELTING, FEW),
    "melting, rod": melting(replace(MELTING, shape=(137,), dtype=np.float32), FEW),
    "melting, block": melting(Case("", (7, 9, 37), 4, radiating_rings), MANY),
    "melting, cut": melting(MELTING, FEW, cut=True),
    "uneven": uneven(melting(MELTING, FEW)),
    "uneven, rod": uneven(melting(replace(MELTING, shape=(137,), dtype=np.float32), MANY)),
    "reacting": Case("", (14, 45), 3, mixed_faces, reacting(3)).problem(),
    "reacting, block": Case("", (7, 9, 37), 3, closed, reacting(3), np.float32).problem(),
    "melting, warming": melting(replace(MELTING, source=warming(3)), FEW),
    "uneven, warming": uneven(melting(replace(MELTING, shape=(137,), source=warming(3)), MANY)),
    "radiating": melting(
        Case("", (14, 83), 4, every_face, by_place(4, WAVES)), MANY, radiates=True
    ),
    "radiating, block": melting(Case("", (7, 9, 37), 4, radiating_rings), FEW, radiates=True),
    "uneven, radiating": uneven(
        melting(Case("", (14, 83), 4, every_face, heating(4, changes=True)), FEW, radiates=True)
    ),
    "uneven, block": uneven(melting(Case("", (7, 9, 37), 4, radiating_rings), FEW)),
}
RARE = ("disc", "uneven, block", "melting, warming", "uneven, radiating", "radiating, block")
# One loop for float32 and vectors of one lane, which short rows have anyway, is less to compile.
WIDTH = {"melting, rod": 4, "uneven, rod": 4}
# Rows together; few, where more would only compile more.
JAM = {"wide": 4, "block": 2, "melting": 2}


def body_of(problem: Problem, lanes: int) -> Any:
    slab = Slab.whole(problem.grid)
    return make_body(problem, slab, lift_slab(problem, slab, lanes))


def cut(box: Ranges) -> tuple[slice, ...]:
    return tuple(slice(*span) for span in box)


def part_of(state: Field) -> InitialField:
    return lambda slab: state[(slice(None), *cut(slab.spans))]


def the_whole(problem: Problem) -> Field:
    return problem.initial(Slab.whole(problem.grid))


@pytest.mark.parametrize(
    "name",
    [
        *("wide", "block", "short rows", "graded", "graded, ring", "cylinder"),
        *("formulas", "melting, rod", "melting", "melting, block"),
        *("uneven", "uneven, rod", "reacting", "reacting, block"),
        *("uneven, warming", "radiating"),
        # Compiled for nothing else here, and like others but for one thing that another one has.
        *(pytest.param(it, marks=pytest.mark.full) for it in RARE),
    ],
)
def test_a_body_gets_the_bits_of_the_chain_for_any_tiles_threads_and_blocks(
    name: str, teams: dict[int, ThreadTeam]
) -> None:
    problem, jam = PROBLEMS[name], JAM.get(name, 1)
    expected = exact.advance(the_whole(problem), problem, sum(BLOCKS))
    assert METHOD.refusal(problem) is None
    for threads, tile in ((1, NARROW), (3, WHOLE)):
        above = jam if name == "block" and threads == 1 else 1
        chosen = {**tile, "jam": jam, "planes": above, "width": WIDTH.get(name, 32)}
        found = run(METHOD, problem, chosen, teams[threads], BLOCKS)
        assert found.tobytes() == expected.tobytes(), tile


@pytest.mark.parametrize("name", ["block", "melting, block"])
def test_rows_one_above_the_other_are_tried_first_where_no_rings_are(name: str) -> None:
    planes = [choice.get("planes", 1) for choice in METHOD.parameters(PROBLEMS[name])]
    assert (planes[0] > 1, max(planes) > 1) == ((name == "block"),) * 2


def test_functions_of_the_library_have_the_bits_of_plain(teams: dict[int, ThreadTeam]) -> None:
    problem = Case("beam", (61,), 3, closed, beam()).problem()
    expected = run(CpuPlainMethod(), problem, {}, teams[2])
    found = run(METHOD, problem, NARROW, teams[2])
    assert found.tobytes() == expected.tobytes()


def test_kernels_are_compiled_for_the_shape_of_formulas_alone() -> None:
    """Other constants and tables are other numbers, not another source."""
    first, second = (
        Case("", (14, 45), 3, mixed_programs, by_place(3, text)).problem()
        for text in (STANDS, STANDS.replace("3", "5"))
    )
    sources = set()
    for problem in (first, second):
        shapes = shapes_of_faces(problem)
        assert len(shapes) == 1
        assert problem.conduction is not None
        assert problem.conduction.source is not None
        sources.add(ghost_source(problem, shapes, 4, curved=False))
        sources.add(filling_source(problem, problem.conduction.source.program, 4))
    assert len(sources) == 2


@pytest.mark.parametrize(
    ("name", "shape", "halo"),
    [
        ("melting, rod", (61,), ((6, 7),)),
        ("wide", (41, 33), ((7, 6), (0, 6))),
        ("wide", (31, 40), ((0, 0), (6, 6))),
        ("formulas", (31, 40), ((7, 6), (0, 6))),
        ("melting", (31, 40), ((7, 6), (0, 6))),
        ("block", (13, 31, 25), ((0, 0), (6, 7), (6, 0))),
        ("melting, block", (27, 23, 37), ((6, 6), (0, 6), (6, 6))),
    ],
)
def test_a_slab_with_halos_gives_the_bits_of_the_whole(
    name: str,
    shape: tuple[int, ...],
    halo: tuple[tuple[int, int], ...],
    teams: dict[int, ThreadTeam],
) -> None:
    problem, first, steps = PROBLEMS[name].on_shape(shape), 3, 6
    state = np.random.default_rng(1).uniform(-1, 1, (1, *shape)).astype(problem.dtype)
    expected = exact.advance(state, problem, steps, first)
    start = tuple(9 if low else 0 for low, _ in halo)
    stop = tuple(n - 11 if high else n for n, (_, high) in zip(shape, halo, strict=True))
    slab = Slab(start, stop, halo)
    chosen = {**NARROW, "jam": JAM.get(name, 1), "width": WIDTH.get(name, 32)}
    stepper = METHOD.prepare(problem, slab, chosen, teams[2])
    stepper.load(part_of(state), first)
    periodic = [problem.boundary.periodic(axis) for axis in range(len(shape))]
    for axis, widths in enumerate(halo):
        for side, width in zip(SIDES, widths, strict=True):
            if width:
                box = slab.globally(slab.halo_ranges(axis, SIDES.index(side)))
                values = padded(lambda it: state[0][cut(it)], box, shape, periodic)
                stepper.set_halo(axis, side, values[np.newaxis])
    stepper.advance(steps)
    found = stepper.interior()
    stepper.close()
    assert found.tobytes() == part_of(expected)(slab).tobytes()


@pytest.mark.parametrize("name", ["wide", "melting"])
def test_numbers_are_those_of_the_step_at_which_a_state_is(
    name: str, teams: dict[int, ThreadTeam], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = PROBLEMS[name]

    def advanced(state: Field, step: int, steps: int, tile: Parameters) -> Field:
        whole = METHOD.prepare(problem, Slab.whole(problem.grid), tile, teams[2])
        whole.load(part_of(state), step)
        whole.advance(steps)
        return np.asarray(whole.interior())

    begin = the_whole(problem)
    through = advanced(begin, 0, 9, NARROW)
    assert advanced(advanced(begin, 0, 4, NARROW), 4, 5, WHOLE).tobytes() == through.tobytes()
    assert advanced(begin, 3, 9, NARROW).tobytes() != through.tobytes()
    monkeypatch.setattr(operands, "_MOST_NUMBERS", 1)  # a block for every step
    assert advanced(begin, 0, 9, NARROW).tobytes() == through.tobytes()


def test_equal_records_are_kept_once_and_runs_of_one_are_tagged() -> None:
    one = body_of(Case("one", (20, 160), 1, closed).problem(), 4)
    assert len(np.unique(one.numbers)) == 1
    assert (one.tags[1:-1] == one.numbers[0]).all()
    several = body_of(PROBLEMS["wide"], 4)
    assert 1 < len(np.unique(several.numbers)) < several.numbers.size / 4
    assert {True, False} == set((several.tags[1:-1] >= 0).ravel().tolist())
    different = body_of(PROBLEMS["graded"], 4)
    assert (different.tags == -1).all()


@pytest.mark.parametrize("name", ["wide", "graded", "block"])
def test_memory_is_that_of_two_copies_and_at_most_a_record_for_every_vector(name: str) -> None:
    problem = PROBLEMS[name]
    slab = Slab.whole(problem.grid)
    layout, body = lift_slab(problem, slab, 4), body_of(problem, 4)
    claimed = METHOD.memory(problem, slab, {"width": 32})
    assert claimed == 2 * layout.n_bytes + record_bytes(problem, layout)
    kind, n_records = kind_of(problem), int(body.numbers.max()) + 1
    used = n_records * layout.lanes * (8 * kind.slots + 4 * kind.heated)
    assert n_records * kind.slots * layout.lanes <= body.records.size
    assert body.numbers.nbytes + body.tags.nbytes + used <= record_bytes(problem, layout)


@pytest.mark.parametrize("name", ["rod", "wide", "block", "graded", "scattered"])
def test_candidates_keep_few_rows_together_and_coefficients_in_the_cache(name: str) -> None:
    problem, caches = PROBLEMS[name].on_shape((4000,) * PROBLEMS[name].grid.ndim), Caches()
    found = candidates(problem, caches, 2)
    assert found[0]["jam"] == (1 if name == "rod" else 2)
    if name in ("graded", "scattered"):
        points = found[0]["tile_y"] * found[0]["tile_x"]
        assert 8 * points * (2 + kind_of(problem).slots) <= caches.l2


def test_vectors_beside_other_materials_are_known_and_no_run_has_any() -> None:
    body = body_of(PROBLEMS["melting"], 4)
    assert set(np.unique(body.several)) == {0, 1}
    tagged = body.tags[body.tags >= 0]
    assert tagged.size > 0
    assert not body.several[tagged].any()
    assert (body.tags[[0, -1]] == BEYOND).all()


def test_it_refuses_half_precision() -> None:
    half = replace(PROBLEMS["wide"], dtype=np.dtype(np.float16))
    assert "float16" in str(METHOD.refusal(half))
