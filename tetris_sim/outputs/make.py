"""The outputs of a run, built from the section `output` of its configuration; and what probes were
measured to say, with probes as numbers of the state.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.config.sections.quantities import TEMPERATURE, TIME, Every
from tetris_sim.config.sections.schema import (
    POINTS_AROUND,
    FieldsSection,
    MeasureSection,
    OutputSection,
    OverSection,
    ProbeSection,
    Request,
)
from tetris_sim.config.sections.varying import read_file
from tetris_sim.errors import ConfigError
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Ranges
from tetris_sim.outputs.field_file import make_provenance
from tetris_sim.outputs.fields import FieldsOutput
from tetris_sim.outputs.meter import Meter
from tetris_sim.outputs.output import Output, OutputTimes, Snapshot, StateSnapshot, StepSchedule
from tetris_sim.outputs.pictures import PicturesOutput
from tetris_sim.outputs.regions import OutputRegion, make_part, neighbours_of, read_along, whole
from tetris_sim.outputs.tables import (
    Measured,
    ProbeOutput,
    Selection,
    StatisticsOutput,
    blocks_within,
)
from tetris_sim.support.hdf5 import refuse_missing

Numbers = npt.NDArray[np.float64]

_UNIT = re.compile(r"\s*\[[^\]]*\]\s*$")


def make_outputs(
    request: Request,
    problem: Problem,
    directory: Path,
    *,
    initial: InitialField | None = None,
    run_id: str = "",
    implicit: bool = False,
    meter: Meter | None = None,
) -> tuple[Output, ...]:
    """The outputs of a run; nothing is written before their `start`.

    Args:
        request: the configuration.
        problem: the problem built from it.
        directory: the results directory.
        initial: the state at time 0, if `problem.initial` is that of a checkpoint; the pictures
            compare with it.
        run_id: identifier of this run, which goes into the files.
        implicit: whether steps are implicit, so that heat flows at their ends as well as at their
            beginnings.
        meter: what counts heat for the statistics.

    Raises:
        ConfigError: a probe lies outside the box, a part holds no point, or a time is not reached.
        UnsupportedError: the compression needs what is not installed.
    """

    # One time base for all schedules, so that a run that is continued finds the same steps.
    def schedule(every: Every) -> StepSchedule:
        return StepSchedule(every, problem.dt, problem.steps, problem.start)

    section = request.output
    outputs: list[Output] = []
    for fields, part in _parts(section, problem):
        # Fail now rather than at the first output time.
        refuse_missing(fields.compression)
        outputs.append(
            FieldsOutput(
                problem,
                directory,
                None if fields.every is None else schedule(fields.every),
                provenance=make_provenance(request, run_id),
                compression=fields.compression,
                part=part,
                moments=OutputTimes(fields.at, problem.dt, problem.steps, problem.start),
            )
        )

    for name, probe in name_probes(section.probes).items():
        position = probe_position(problem.grid, name, probe)
        outputs.append(
            ProbeOutput(
                *(problem, directory, name),
                position=position,
                schedule=schedule(probe.every),
                points=POINTS_AROUND[probe.interpolation],
            )
        )

    if section.statistics is not None:
        when = schedule(section.statistics.every)
        parts = section.statistics.parts(getattr(request, "model", None))
        over = [select(request, problem, *it) for it in parts.items()]
        outputs.append(
            StatisticsOutput(
                *(problem, directory, when),
                implicit=implicit,
                meter=meter,
                over=over,
                measured=_measured(request),
            )
        )
    if section.pictures:
        outputs.append(PicturesOutput(problem, directory, heading=request.title, initial=initial))
    return tuple(outputs)


def _measured(
    request: Any,
) -> tuple[Sequence[str], Measured]:
    """The columns of formulas, and their values at a state."""
    # An optional hook: only equations have formulas.
    given = hasattr(request.model, "measured")
    formulas: Mapping[str, MeasureSection] = request.model.measured(request) if given else {}
    columns = [f"{name} [{it.unit}]" for name, it in formulas.items()]
    if not formulas:
        return columns, lambda _: ()
    measures = request.model.measures(request)

    # Operators reach beyond any block, so the state is taken whole.
    def values(snapshot: Snapshot) -> Sequence[float]:
        found: Sequence[float] = measures.values(snapshot.field(), snapshot.time)
        return found

    return columns, values


def select(request: Any, problem: Problem, name: str, part: OverSection) -> Selection:
    """The points of a part that has statistics of its own.

    Args:
        request: the configuration.
        problem: the problem built from it.
        name: of the part.
        part: what belongs to it.

    Raises:
        ConfigError: nothing does.
    """
    grid = problem.grid
    box = tuple(
        grid.within(axis, *part.box[axis_name]) if axis_name in part.box else (0, grid.shape[axis])
        for axis, axis_name in enumerate(grid.axis_names)
    )
    marks: Callable[[Problem, Box], npt.NDArray[np.bool_]] | None = None
    if part.region is not None and problem.phases is not None:
        marks = partial(_of_region, part.region)
    elif part.region is not None:
        seen = request.model.seen(part.region, request)
        marks = lambda _, box: seen(box)  # noqa: E731
    elif part.source is not None:
        if problem.phases is not None:
            told = "cells of a source change where regions come and go; give a region"
            msg = f"output.statistics.over.{name}: {told}"
            raise ConfigError(msg)
        numbers = {it.name: n for n, it in enumerate(request.model.sources)}
        heated = request.model.heated(request)[numbers[part.source]]
        marks = lambda _, box: heated(box)  # noqa: E731
    # A uniform body is all of its one material.
    elif not part.box and problem.conduction:
        marks = partial(_of_filling, part.material or part.fluid)
    if problem.phases is not None:  # nothing of it may be there yet
        fluids = [it.name for it in request.model.regions if it.fluid is not None]
        held = part.fluid is not None or (part.region is not None and part.region in fluids)
        return Selection(problem, name, box, marks, held=held)

    # A region may be one of a fluid.
    for held in (False, True) if part.region is not None else (part.fluid is not None,):
        found = Selection(problem, name, box, marks, held=held)
        if any(found.inside(it).any() for it in blocks_within(problem, box)):
            return found
    msg = f"output.statistics.over.{name} holds no point of the grid but fluids and voids"
    raise ConfigError(msg)


def _of_filling(name: str | None, problem: Problem, box: Box) -> npt.NDArray[np.bool_]:
    medium = problem.body.medium
    return np.array([it == name for it in medium.names], np.bool_)[medium.ids(box)]


def _of_region(name: str, problem: Problem, box: Box) -> npt.NDArray[np.bool_]:
    shown = problem.body.medium.regions
    assert shown is not None
    return np.asarray(shown.read(box) == shown.names.index(name))


def _parts(
    section: OutputSection, problem: Problem
) -> Iterator[tuple[FieldsSection, OutputRegion]]:
    """The sections that write the field, each with the part of the field that it writes."""
    if section.fields is not None:
        yield section.fields, whole(problem)
    for part in section.parts:
        yield part, make_part(problem, part.name, box=part.box, slices=part.slice)


def name_probes(probes: tuple[ProbeSection, ...]) -> dict[str, ProbeSection]:
    """Probes by name; those without one are called probe_1, probe_2, ..., past names in use."""
    taken = {probe.name for probe in probes}
    named: dict[str, ProbeSection] = {}
    number = 0
    # Count past generated names that a user has given to another probe.
    for probe in probes:
        name = probe.name
        while name is None:
            number += 1
            name = None if f"probe_{number}" in taken else f"probe_{number}"
        named[name] = probe
    return named


def probe_position(grid: Grid, name: str, probe: ProbeSection) -> tuple[float, ...]:
    """Position of a probe along the axes of the grid, in array order [m].

    Raises:
        ConfigError: it lies outside the box, or has another number of components than the grid has
            axes.
    """
    if len(probe.at) != grid.ndim:
        msg = (
            f"output.probes: {name} has {len(probe.at)} components, but the grid has {grid.ndim} "
            "axes; list x, y, z"
        )
        raise ConfigError(msg)

    # Sections list x, y, z; arrays have z first.
    position = probe.at[::-1]
    for axis, place in enumerate(position):
        low, high = grid.bounds(axis)
        slack = 1e-9 * grid.size[axis]  # a probe on a face may be off by a rounding
        if not low - slack <= place <= high + slack:
            msg = (
                f"output.probes: {name} is at {grid.axis_names[axis]} = {place:g} m, outside the "
                f"box, which is from {low:g} m to {high:g} m"
            )
            raise ConfigError(msg)

    return position


# Measured values of probes.


def read_data(path: str | Path) -> dict[str, Numbers]:
    """Measured values by probe: time [s] and temperature [degC], (n, 2).

    Args:
        path: a CSV file of a column `time` and one per probe, with units in brackets.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            header = [_UNIT.sub("", name).strip() for name in next(csv.reader(file), [])]
        # The table's own reader takes one column at a time, with units.
        names = [name for name in header if name not in ("time", "step")]
        kinds = TIME, TEMPERATURE
        data = {name: read_file(Path(path), kinds, ("time", name), None) for name in names}
    except (OSError, UnicodeDecodeError, ValueError) as error:
        msg = f"--data {path}: {error}"
        raise ConfigError(msg) from error
    if not data:
        msg = f"--data {path}: a column time and one with the name of each probe are wanted"
        raise ConfigError(msg)
    return data


def as_data(data: Mapping[str, Any]) -> dict[str, Numbers]:
    """Measured values by probe, as of `read_data`, from arrays.

    Raises:
        ConfigError: they are none.
    """
    found = {name: np.asarray(rows, np.float64) for name, rows in data.items()}
    for name, rows in found.items():
        if rows.ndim != 2 or rows.shape[1] != 2 or not np.isfinite(rows).all():
            msg = (
                f"data of {name} are of shape {rows.shape}; finite (n, 2) is wanted: times, values"
            )
            raise ConfigError(msg)
    return found


# Probes as numbers of the state: what they read, and by which values.

_AROUND = 2  # points on each side that a linear probe may read


class ProbeReading:
    """The reading of a probe in states of a problem.

    Args:
        problem: what is advanced.
        name: of the probe.
        section: where it is.
        number: of the field that counts.

    Raises:
        ConfigError: it lies outside.
    """

    def __init__(self, problem: Problem, name: str, section: ProbeSection, number: int) -> None:
        self._problem, self._number = problem, number
        self._points = POINTS_AROUND[section.interpolation]
        self._position = probe_position(problem.grid, name, section)
        self._axes = [
            neighbours_of(problem, axis, place, points=self._points)
            for axis, place in enumerate(self._position)
        ]

    def at(self, state: Field, step: int) -> float:
        """The value of a state, (n_fields, n0, ...), at a step."""

        def read(box: Ranges) -> Field:
            return state[(slice(None), *(slice(*span) for span in box))]

        # By the reader of `output.probes`, so that both give the same number.
        snapshot = StateSnapshot(self._problem, step, read)
        return float(read_along(snapshot, self._axes)[self._number])

    def weights(self) -> dict[tuple[int, ...], float]:
        """Its derivatives by the values around it, by their indices."""
        # A probe is a sum with weights that faces and materials decide: what one value alone gives.
        state = np.zeros(self._problem.state_shape)
        nothing, found = self.at(state, 0), {}
        for index in itertools.product([self._number], *self._around()):
            state[index] = 1.0
            weight = self.at(state, 0) - nothing
            state[index] = 0.0
            if weight:
                found[index] = weight
        return found

    def _around(self) -> Iterator[list[int]]:
        """Yield the indices along each axis of the points that may be read."""
        grid, away = self._problem.grid, _AROUND * self._points // 2
        for axis, place in enumerate(self._position):
            n, ring = grid.shape[axis], self._problem.boundary.periodic(axis)
            middle = int(np.argmin(np.abs(grid.coordinates(axis, 0, n) - place)))
            near = range(middle - away, middle + away + 1)
            yield sorted({k % n if ring else min(max(k, 0), n - 1) for k in near})


def places_of(problem: Problem, name: str, times: Numbers) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Between which steps times lie: the steps before them, and how far they are to the next.

    Raises:
        ConfigError: the run does not reach them.
    """
    # Times are products of dt, so one that should be a step may be off by a rounding.
    first, begun = problem.start
    at = first + (times - begun) / problem.dt
    whole = np.rint(at)
    at = np.where(np.abs(at - whole) < 1e-9 * np.maximum(1.0, np.abs(at)), whole, at)
    if at.min() < first or at.max() > problem.steps:
        end = problem.time(problem.steps)
        msg = (
            f"data: {name} was measured from {times.min():g} s until {times.max():g} s, and the "
            f"run ends at {end:g} s"
        )
        raise ConfigError(msg)
    steps = np.floor(at).astype(np.int64)
    return steps, at - steps
