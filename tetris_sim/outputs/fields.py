"""The whole field over time: an HDF5 file per output time, an index, and XDMF for ParaView."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from tetris_sim.errors import CheckpointError
from tetris_sim.model.grid import Grid
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, Problem
from tetris_sim.outputs.field_file import (
    GEOMETRY,
    PASSING,
    PASSING_PATTERN,
    Compression,
    Provenance,
    Record,
    Unfinished,
    begin_record,
    record_name,
    recorded_steps,
    write_geometry,
    write_index,
    write_record,
)
from tetris_sim.outputs.materials import CellMap
from tetris_sim.outputs.output import OutputTimes, Snapshot, StepSchedule
from tetris_sim.outputs.regions import WHOLE, OutputRegion, in_space, whole
from tetris_sim.outputs.series import Series, open_fields
from tetris_sim.support.files import (
    atomic_text,
    disk_errors,
    make_directory,
    remove_file,
    remove_parts,
    sync_directory,
)

# XDMF: an XML file by which ParaView finds the datasets in the HDF5 files.
#
# Points are cell centres, so values are cell data on n + 1 nodes and the box has its true size. The
# mesh is a 3DCoRectMesh (a 3DRectMesh where an axis is graded) for any number of axes, one cell
# thick along the missing ones: readers turn a 2DCoRectMesh into another plane, and see no cell in a
# mesh without thickness (VTK 9.7).

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Source:
    """A dataset.

    Attributes:
        file: path of the HDF5 file, relative to the XDMF file.
        dataset: path inside the file.
        shape: shape of the dataset; its last axes are those of the grid, earlier ones have length
            1.
        dtype: type of its numbers; that of the fields if not given.
    """

    file: str
    dataset: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None = None


@dataclass(frozen=True)
class TimeFrame:
    """One time of the series.

    Attributes:
        time: simulated time [s].
        sources: the dataset of each variable.
    """

    time: float
    sources: Mapping[str, Source]


def xdmf_text(grid: Grid, dtype: np.dtype[Any], frames: Sequence[TimeFrame]) -> str:
    """The XDMF 2 document of a temporal collection."""
    root = ElementTree.Element("Xdmf", Version="2.0")
    domain = ElementTree.SubElement(root, "Domain")
    collection = ElementTree.SubElement(
        domain, "Grid", Name="fields", GridType="Collection", CollectionType="Temporal"
    )

    for frame in frames:
        element = ElementTree.SubElement(collection, "Grid", Name="field", GridType="Uniform")
        ElementTree.SubElement(element, "Time", Value=repr(frame.time))
        _add_mesh(element, grid)
        for name, source in frame.sources.items():
            attribute = ElementTree.SubElement(
                element, "Attribute", Name=name, AttributeType="Scalar", Center="Cell"
            )
            _add_source(attribute, source, grid, source.dtype or dtype)

    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _add_mesh(element: ElementTree.Element, grid: Grid) -> None:
    nodes = in_space(grid, [n + 1 for n in grid.shape], 2)
    kind = "3DRectMesh" if grid.is_graded else "3DCoRectMesh"
    ElementTree.SubElement(element, "Topology", TopologyType=kind, Dimensions=_words(nodes))

    thickness = min(grid.spacing)  # along axes that the grid lacks
    if grid.is_graded:
        # Explicit nodes per axis; XDMF wants x first.
        cut = [(name, _around(place, thickness)) for name, place in grid.cut]
        ends = in_space(
            grid,
            [grid.ends(axis) for axis in range(grid.ndim)],
            _around(thickness / 2, thickness),
            cut,
        )
        _add_numbers(element, "VXVYVZ", ends[::-1])
        return

    # Origin and spacing in the order z, y, x, as XDMF has them for CoRectMesh.
    spacing = in_space(grid, grid.spacing, thickness)
    middle = in_space(grid, grid.origin, thickness / 2, grid.cut)
    corner = [p - h / 2 for p, h in zip(middle, spacing, strict=True)]
    _add_numbers(element, "ORIGIN_DXDYDZ", (corner, spacing))


def _around(place: float, thickness: float) -> Numbers:
    return np.array([place - thickness / 2, place + thickness / 2])


def _add_numbers(
    element: ElementTree.Element, kind: str, lists: Iterable[Sequence[float] | Numbers]
) -> None:
    geometry = ElementTree.SubElement(element, "Geometry", GeometryType=kind)
    for values in lists:
        item = ElementTree.SubElement(
            geometry,
            "DataItem",
            Dimensions=str(len(values)),
            NumberType="Float",
            Precision="8",
            Format="XML",
        )
        item.text = " ".join(repr(float(value)) for value in values)


def _add_source(
    attribute: ElementTree.Element, source: Source, grid: Grid, dtype: np.dtype[Any]
) -> None:
    # A hyperslab (start, stride, count) selects the grid's axes from a dataset with more of them.
    cells = in_space(grid, grid.shape, 1)
    precision = str(dtype.itemsize)
    kind = {"f": "Float", "i": "Int", "u": "UChar"}[dtype.kind]
    leading = len(source.shape) - grid.ndim
    start = (0,) * len(source.shape)
    count = (1,) * leading + grid.shape

    slab = ElementTree.SubElement(
        attribute,
        "DataItem",
        ItemType="HyperSlab",
        Dimensions=_words(cells),
        NumberType=kind,
        Precision=precision,
    )
    selection = ElementTree.SubElement(
        slab, "DataItem", Dimensions=f"3 {len(source.shape)}", NumberType="Int", Format="XML"
    )
    selection.text = "  ".join(_words(numbers) for numbers in (start, (1,) * len(start), count))

    item = ElementTree.SubElement(
        slab,
        "DataItem",
        Dimensions=_words(source.shape),
        NumberType=kind,
        Precision=precision,
        Format="HDF",
    )
    item.text = f"{source.file}:/{source.dataset.lstrip('/')}"


def _words(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))


# The index, which grows with every record, is rewritten when this many times as long has passed as
# it took the last time: 5 % of a run at most, however many records there are.
_PAUSE = 20


class FieldsOutput:
    """Writer of fields; see `docs/file-format.md`.

    Args:
        problem: the problem.
        directory: the results directory.
        schedule: when to write; None if only at `moments`.
        provenance: metadata about the run.
        compression: compression of the values.
        part: part of the field; all of it if not given.
        moments: output times that are hit exactly. At a step at which the schedule is due as well,
            the output time takes the place of the record.
    """

    def __init__(
        self,
        problem: Problem,
        directory: Path,
        schedule: StepSchedule | None,
        *,
        provenance: Provenance,
        compression: Compression = "none",
        part: OutputRegion | None = None,
        moments: OutputTimes | None = None,
    ) -> None:
        self._problem = problem
        self._directory = directory
        self._schedule = schedule
        self._provenance = provenance
        self._compression: Compression = compression
        self._part = part or whole(problem)
        self.reads_all = part is None or part.folder == WHOLE
        self._moments = moments or OutputTimes((), problem.dt, problem.steps)

        # The state before an output time, from its step to the next.
        self._before = directory / self._part.folder / "before.h5"
        self._times: dict[int, float] = {}  # of each record, by its step
        self._begun: list[Unfinished] = []
        self._maps: tuple[CellMap, ...] | None = None  # None until they are written
        self._phase: int | None = None  # whose maps were written apart
        self._index_is_old = False
        self._index_due = 0.0  # on the clock of perf_counter [s]

    def next_step(self, step: int) -> int | None:
        """The next step of the schedule, of an output time, or before one."""
        scheduled = None if self._schedule is None else self._schedule.next_step(step)
        wanted = (scheduled, self._moments.next_step(step))
        return min((due for due in wanted if due is not None), default=None)

    def start(self, step: int) -> bool:
        """Remove the files of later steps, and what a killed run left unfinished.

        Returns:
            Whether the state that the run begins with is needed: an output time lies in its first
            step.

        Raises:
            CheckpointError: the files that stay belong to another grid.
        """
        folder = self._directory / self._part.folder
        make_directory(folder)
        remove_parts(folder)
        remove_parts(self._directory, f"{folder.name}.")
        remove_file(self._before)
        remove_file(folder / GEOMETRY)  # it may be of another body
        for later in folder.glob(PASSING_PATTERN):
            if step == 0 or later.name > PASSING.format(step):
                remove_file(later)
        self._maps = self._phase = None

        recorded = recorded_steps(self._directory, folder.name)
        # A run that starts at step 0 writes it again, so nothing of an earlier run can stay.
        kept = [earlier for earlier in recorded if 0 < step >= earlier]
        with disk_errors(folder):
            for late in recorded[len(kept) :]:
                remove_file(self._record_path(late))
            sync_directory(folder)

        # The index is rebuilt for the files that stay.
        self._times = {}
        if kept:
            self._refuse_other_grid(self._record_path(kept[-1]))
            self._times = self._read_times(kept)
            self._write_index()
        else:
            self._index_is_old, self._index_due = False, 0.0
            remove_file(self._index_path(".h5"))
            remove_file(self._index_path(".xdmf"))
        return step in self._moments.before

    def write(self, snapshot: Snapshot) -> None:
        """Write the file of the snapshot's step, or of the output time that is known at it."""
        step = snapshot.step
        record = Record(step, snapshot.time, functools.partial(self._part.read, snapshot))
        time, share = self._moments.due.get(step, (None, 1.0))
        # Interpolate with the state of the step before, which was put aside in a file.
        if time is not None and share < 1:
            with open_fields(self._before, ours=True) as series:
                self._keep(Record(step, time, between(series, record.read, share)))
        elif time is not None:
            self._keep(replace(record, time=time))
        elif self._is_scheduled(step):
            self._keep(record)

        # Put this state aside if an output time lies within the next step.
        if step in self._moments.before:
            self._write_record(self._before, record)
        else:
            remove_file(self._before)

    def divides(self, step: int) -> bool:
        """Whether the ranks may write a step's record slab by slab, each its own points."""
        whole_and_plain = self._part.folder == WHOLE and self._compression == "none"
        # Between two steps values are interpolated, so ranks cannot write them from their state.
        near_moment = step in self._moments.due or step in self._moments.before
        return whole_and_plain and not near_moment and self._is_scheduled(step)

    def begin(self, step: int, time: float) -> Unfinished:
        """Make the file of a step for which `divides` holds, without values; `finish` must follow.

        Raises:
            UnsupportedError: the disk is full or refuses the file.
        """
        record = Record(step, time, _not_read)
        path = self._record_path(step)
        begun = begin_record(path, record, self._problem, self._part, self._provenance)
        self._begun.append(begun)
        return begun

    def finish(self, begun: Unfinished) -> None:
        """Rename such a file to its final name, once all of its values are on the disk."""
        begun.put_in_place()
        self._begun.remove(begun)
        remove_file(self._before)
        self._note(begun.step, begun.time)

    def give_up(self, begun: Unfinished) -> None:
        """Remove such a file."""
        begun.drop()
        self._begun.remove(begun)

    def flush(self) -> None:
        """Bring the index up to date if that is due; a run that goes on finds records without it,
        and they were flushed when they were written.
        """
        if self._index_is_old and time.perf_counter() >= self._index_due:
            self._write_index()

    def close(self) -> None:
        """Bring the index up to date, and remove unfinished files."""
        for begun in [*self._begun]:
            self.give_up(begun)
        if self._index_is_old:
            self._write_index()

    def _is_scheduled(self, step: int) -> bool:
        """Whether a record is due at a step, other than the state put aside for interpolation."""
        if self._schedule is None:
            return False
        return step == 0 or step not in self._moments.before or self._schedule.is_due(step)

    def _keep(self, record: Record) -> None:
        self._write_record(self._record_path(record.step), record)
        self._note(record.step, record.time)

    def _note(self, step: int, when: float) -> None:
        later = step not in self._times and self._times and step < next(reversed(self._times))
        self._times[step] = when
        self._follow(step)
        if later:
            self._times = dict(sorted(self._times.items()))
        self._index_is_old = True
        self.flush()

    def _follow(self, step: int) -> None:
        """Where cells come and go, write the maps of the phase of a record."""
        if self._problem.phases is None:
            return
        problem = self._problem.at(step).seen
        if problem.phase != self._phase:
            self._problem, self._phase, self._maps = problem, problem.phase, None
            write_geometry(self._directory, problem, self._part, PASSING.format(step))

    def _write_record(self, path: Path, record: Record) -> None:
        write_record(
            path,
            record,
            self._problem,
            self._part,
            provenance=self._provenance,
            compression=self._compression,
        )

    def _write_index(self) -> None:
        problem, part, begin = self._problem, self._part, time.perf_counter()
        if self._maps is None:
            self._maps = write_geometry(self._directory, problem, part)
        write_index(self._directory, problem, self._times, self._provenance, part, self._maps)

        shape = (1, *part.grid.shape)
        maps = {
            it.name: Source(f"{part.folder}/{GEOMETRY}", it.name, part.grid.shape, it.dtype)
            for it in self._maps
        }
        frames = [
            TimeFrame(
                when,
                {
                    v.name: Source(record_name(step, part.folder), v.name, shape)
                    for v in problem.variables
                }
                | maps,
            )
            for step, when in self._times.items()
        ]

        # Both indices are replaced atomically, so a reader never sees half of one.
        atomic_text(self._index_path(".xdmf"), xdmf_text(part.grid, problem.arithmetic, frames))
        end = time.perf_counter()
        self._index_is_old, self._index_due = False, end + _PAUSE * (end - begin)

    def _record_path(self, step: int) -> Path:
        return self._directory / record_name(step, self._part.folder)

    def _index_path(self, suffix: str) -> Path:
        return self._directory / f"{self._part.folder}{suffix}"

    def _read_times(self, steps: Sequence[int]) -> dict[int, float]:
        """Times of the records of some steps [s], from the index or from the files of the steps."""
        # The index may be missing or older than the files.
        known: dict[int, float] = {}
        with contextlib.suppress(CheckpointError), open_fields(self._index_path(".h5")) as series:
            known = dict(zip(series.steps, series.times, strict=True))

        times = {}
        for step in steps:
            if step in known:
                times[step] = known[step]
                continue
            with open_fields(self._record_path(step)) as series:
                times[step] = series.times[0]
        return times

    def _refuse_other_grid(self, path: Path) -> None:
        problem = self._problem
        names = [variable.name for variable in problem.variables]
        with open_fields(path) as series:
            grid, dtype = series.grid, series.dtype
            there = [variable.name for variable in series.variables]
        # Everything that makes old and new records one series must agree.
        if (grid, dtype, there) != (self._part.grid, problem.arithmetic, names):
            msg = (
                f"{path} holds {', '.join(there)} on {grid.shape} points as {dtype}, but "
                f"this run has {', '.join(names)} on {self._part.grid.shape} points as "
                f"{problem.arithmetic}, on the same box; choose another output.directory, or start "
                "anew with --overwrite"
            )
            raise CheckpointError(msg)


def _not_read(box: Box) -> Field:
    msg = f"the values of {box} are written by those that own them"
    raise AssertionError(msg)


def between(series: Series, later: Callable[[Box], Field], share: float) -> Callable[[Box], Field]:
    """A state between two steps, as a function of a box.

    Args:
        series: the series with the earlier state as its only record.
        later: the later state.
        share: weight of the later state.
    """

    def read(box: Box) -> Field:
        earlier = np.stack([series.read(0, k, box) for k in range(len(series.variables))])
        return (1 - share) * earlier.astype(np.float64) + share * later(box).astype(np.float64)

    return read
