"""Step inputs of equations on a GPU: coefficients, coordinates and time-dependent parameters
(`equations.cuh`), and the stages printed as CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.body import (
    PASSES,
    RuleNumbers,
    padded_coordinates,
    print_statements,
)
from tetris_sim.gpu_kernels.common.device import GpuDevice
from tetris_sim.gpu_kernels.common.layout import STORED, PitchedField, margins_of, to_device
from tetris_sim.model.conduction import Parameter, Rule
from tetris_sim.model.equations import Equations, Stage, as_tap
from tetris_sim.model.formula import Constant
from tetris_sim.model.grid import LAST, on_three
from tetris_sim.model.problem import Problem
from tetris_sim.model.program import Program
from tetris_sim.model.slab import Ranges, Slab, batches

_BATCH_POINTS = 1 << 24  # points whose coefficients are evaluated together


def equations_of(problem: Problem) -> Equations:
    """The equations of a problem, which must have some."""
    return problem.system


def given_bytes(problem: Problem, layout: PitchedField) -> int:
    """GPU memory that equations take besides the state [bytes]: work arrays and coefficients."""
    if problem.equations is None:
        return 0
    n_arrays = problem.equations.n_work + len(problem.equations.coefficients or {})
    return n_arrays * layout.field_pitch * layout.dtype.itemsize


def given_defines(problem: Problem) -> dict[str, str | int]:
    """Macros of equations.cuh."""
    equations = equations_of(problem)
    return {
        "TS_REAL": STORED[problem.dtype.name],
        "TS_NAMES": len(names_of(equations)),
        "TS_CONSTANTS": max(1, len(_parted(equations)[0])),
        "TS_COEFFICIENTS": max(1, len(equations.coefficients or {})),
        "TS_STAGES": print_stages(problem),
    }


def names_of(equations: Equations) -> list[str]:
    """Fields and the results of stages, in the order of their numbers in kernels."""
    return [*equations.fields, *(name for stage in equations.stages for name in stage.formulas)]


def first_readers(equations: Equations) -> list[tuple[str, int]]:
    """The names with ghosts, each with the first stage that reads it beyond its own point."""
    found: dict[str, int] = {}
    for number, stage in enumerate(equations.stages):
        for name in stage.taps:
            if name in equations.ghosts and any(stage.radii(name)):
                found.setdefault(name, number)
    return list(found.items())


def joined_stages(equations: Equations) -> list[range]:
    """Groups of consecutive stages that one launch computes, point by point."""
    groups: list[range] = []
    for number in range(len(equations.stages)):
        if groups and _joins(equations, groups[-1], number):
            groups[-1] = range(groups[-1].start, number + 1)
        else:
            groups.append(range(number, number + 1))
    return groups


def _joins(equations: Equations, group: range, number: int) -> bool:
    # Whether a stage can join a group: it covers the same points, reads the group's results only at
    # its own point, and writes no array that the group reads at other points.
    stage, before = equations.stages[number], [equations.stages[k] for k in group]
    given = {name for it in before for name in it.formulas}
    read = {name for it in before for name in it.taps if any(it.radii(name))}
    held = {equations.work[name] for name in read if name in equations.work}
    return (
        # Between parts numbers of the whole grid are made.
        not any(number == begin for begin, _ in equations.parts)
        and equations.margins[number] == equations.margins[group.start]
        and not any(any(stage.radii(name)) for name in given & {*stage.taps})
        and not any(equations.work.get(name, -1) in held for name in stage.formulas)
    )


def constants_of(problem: Problem) -> npt.NDArray[Any]:
    """`struct Constants`: the parameters that never change."""
    constant, _ = _parted(equations_of(problem))
    numbers = [it.rows(problem.time, 0, 1)[0, 0] for it in constant]
    return np.array(numbers or [0.0], problem.dtype)


def print_stages(problem: Problem) -> str:
    """The specializations of `struct Stage`, each of which computes one stage at a point."""
    equations = equations_of(problem)
    stages = (_print_stage(problem, stage) for stage in equations.stages)
    return " ".join(
        f"template <> struct Stage<{number}> {{ template <class At> static __device__ "
        f"__forceinline__ void compute(const At& at) {{ {text} }} }};"
        for number, text in enumerate(stages)
    )


def _print_stage(problem: Problem, stage: Stage) -> str:
    equations = equations_of(problem)
    # The tap functions of equations.cuh, called with a name's number and an offset on three axes.
    names, given = names_of(equations), list(equations.coefficients or {})
    inputs = _numbers_of_steps(problem)
    # Taps read an array at an offset: a coefficient, or a field or result.
    for text in stage.programs.inputs:
        if (found := as_tap(text)) is not None:
            name, offset = found
            number, reader = (
                (given.index(name), "coefficient") if name in given else (names.index(name), "tap")
            )
            inputs[text] = f"at.{reader}({', '.join(map(str, (number, *on_three(offset, 0))))})"

    lines = print_statements(stage.programs, inputs)
    for name, register in zip(stage.formulas, stage.programs.results, strict=True):
        lines.append(f"at.put({names.index(name)}, r{register});")
    return " ".join(lines)


def _numbers_of_steps(problem: Problem) -> dict[str, str]:
    """CUDA expressions of parameters and coordinates, by name."""
    constant, changing = _parted(equations_of(problem))
    found = {it.name: f"at.constant({k})" for k, it in enumerate(constant)}
    found |= {it.name: f"at.changing({k})" for k, it in enumerate(changing)}
    for name, three in zip(problem.grid.axis_names, LAST[problem.grid.ndim], strict=True):
        found[name] = f"at.coordinate({three})"
    return found


class DeviceStepInputs:
    """The arrays of one slab that equations read, and their parameters for coming steps.

    Attributes:
        numbers: values of the parameters that change with time.
        work: arrays of names that live within a step only.
        coefficients: coefficient arrays by name.
    """

    def __init__(
        self, problem: Problem, slab: Slab, layout: PitchedField, device: GpuDevice, depth: int
    ) -> None:
        """Allocate the arrays and fill them.

        Args:
            problem: problem with equations.
            slab: part of the problem.
            layout: layout of the state.
            device: the GPU.
            depth: steps of the longest pass, as in `pitch_slab`.
        """
        self._problem, self._layout, self._device, self._depth = problem, layout, device, depth
        equations = equations_of(problem)
        _, changing = _parted(equations)
        self._window = depth * PASSES
        # A rule that no face follows: it only carries the numbers.
        rule = Rule(Program(Constant(0.0)), tuple(changing))
        self.numbers = RuleNumbers([rule], problem, device, self._window)

        n = layout.field_pitch
        with device.use() as cupy:
            self.work = [cupy.zeros(n, layout.dtype) for _ in range(equations.n_work)]
            self.coefficients = {
                name: cupy.zeros(n, layout.dtype) for name in equations.coefficients or {}
            }
        self.place(slab)

    def place(self, slab: Slab) -> None:
        """Fill in the data of a slab that has the shape of the first one."""
        problem, self._slab = self._problem, slab
        self._margins = margins_of(problem, slab, self._depth)
        around = tuple(
            (-low, n + high)
            for n, (low, high) in zip(
                slab.shape, margins_of(problem, slab, self._depth), strict=True
            )
        )
        layout = replace(self._layout, n_fields=1)
        for name, flat in self.coefficients.items():
            for ranges in batches(around, _BATCH_POINTS):
                values = problem.padded_coefficient(name, slab.globally(ranges))
                with self._device.use() as cupy:
                    layout.view(flat, ranges)[...] = cupy.asarray(values.astype(flat.dtype))

        parts: list[npt.NDArray[np.float64]] = []
        begins = [0, 0, 0]
        for axis, (low, high) in enumerate(around):
            three = LAST[problem.grid.ndim][axis]
            span = (slab.start[axis] + low, slab.start[axis] + high)
            # Padded to every allocated point of the axis.
            first, last = self._layout.within[three]
            begins[three] = sum(map(len, parts)) - first
            along = padded_coordinates(problem, axis, span)
            parts.append(np.pad(along, (low - first, last - high), "edge"))
        self._along = to_device(self._device, np.concatenate(parts).astype(layout.dtype))
        self._argument = self._pack(begins)

    def give(self, name: str, of_box: Callable[[Ranges], npt.NDArray[Any]]) -> None:
        """Set a coefficient, a function of boxes of the grid, for everything that is enqueued from
        now on.
        """
        layout, margins = replace(self._layout, n_fields=1), self._margins
        around = tuple((-a, n + b) for n, (a, b) in zip(self._slab.shape, margins, strict=True))
        flat = self.coefficients[name]
        for ranges in batches(around, _BATCH_POINTS):
            box = self._slab.globally(ranges)
            values = self._problem.around(of_box, box).astype(flat.dtype)
            with self._device.use() as cupy:
                layout.view(flat, ranges)[...] = cupy.asarray(values)

    def hold(self, time: float, length: float, found: Mapping[str, float]) -> None:
        """Set the parameters to those of a substep that begins at `time` and has `length` [s], with
        the reductions that are known.
        """
        equations = equations_of(self._problem)
        assert equations.substeps is not None
        changing = [it.changes for it in equations.parameters]
        self.numbers.hold(equations.substeps.numbers(time, length, found)[changing])

    def argument(self) -> npt.NDArray[np.void]:
        """`struct Given`."""
        return self._argument

    def _pack(self, begins: list[int]) -> npt.NDArray[np.void]:
        n, address = max(1, len(self.coefficients)), self._device.address
        kind = np.dtype(
            [
                *[("along", np.uint64, 3), ("coefficients", np.uint64, n), ("table", np.uint64)],
                *[("field", np.int64), ("window", np.int32)],
            ],
            align=True,
        )

        given = np.zeros(1, kind)
        # Axes share one array; `begins` has where each axis' point 0 lies in it.
        first = address(self._along)
        # Pointers to the coordinate of the first owned point, which kernels index with negative
        # numbers too.
        given["along"] = [first + begin * self._layout.dtype.itemsize for begin in begins]
        for number, flat in enumerate(self.coefficients.values()):
            given["coefficients"][0, number] = address(flat[self._layout.origin :])
        given["table"], given["window"] = address(self.numbers.there), self._window
        given["field"] = self._layout.field_pitch
        return given


def _parted(equations: Equations) -> tuple[list[Parameter], list[Parameter]]:
    """Parameters that never change, and those that do."""
    return (
        [it for it in equations.parameters if not it.changes],
        [it for it in equations.parameters if it.changes],
    )
