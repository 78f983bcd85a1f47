"""Pictures of a run: its first state, its last state, and the change; pictures of tables."""

from __future__ import annotations

import base64
import contextvars
import functools
import logging
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tetris_sim.errors import TetrisError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Field, InitialField, Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.drawing import STYLE, Built, Drawing, draw, write_numbers
from tetris_sim.outputs.field_file import record_name
from tetris_sim.outputs.figure_layout import (
    CHANGE_COLOURS,
    Caption,
    Limits,
    Panel,
    change_limits,
    field_limits,
    lay_out,
    length_unit,
    moment,
)
from tetris_sim.outputs.materials import cell_maps, sample_materials, show_body
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.sampling import Plane, Reader, Values, default_cuts, sample
from tetris_sim.outputs.series import open_fields
from tetris_sim.outputs.tables import LEADING
from tetris_sim.support.files import make_directory, remove_parts

# The panels of a picture of one state, of a change, and of a whole run.


def draw_state(
    planes: Sequence[Plane], caption: Caption, *, moment: str, limits: Limits | None = None
) -> Drawing:
    """Draw one state: a graph, a map, or maps of the middle planes side by side.

    Args:
        planes: the values to show.
        caption: caption of the picture.
        moment: time of the state, as text.
        limits: limits of the scale; those of the values if not given.
    """
    scale = field_limits(planes) if limits is None else limits
    panels = [
        Panel(plane, caption.quantity, scale, title=place)
        for plane, place in zip(planes, _places(planes), strict=True)
    ]
    return draw(lay_out([_one_bar(panels)], heading=caption.heading, moment=moment))


def draw_change(
    before: Sequence[Plane], after: Sequence[Plane], caption: Caption, *, moment: str
) -> Drawing:
    """Draw the change between two states on a scale around zero: increase red, decrease blue."""
    planes = difference(before, after)
    # A graph shows its own range; only colours need a scale around zero.
    scale = field_limits(planes) if planes[0].values.ndim == 1 else change_limits(planes)
    panels = [
        Panel(plane, caption.change, scale, CHANGE_COLOURS, place)
        for plane, place in zip(planes, _places(planes), strict=True)
    ]
    return draw(lay_out([_one_bar(panels)], heading=caption.heading, moment=moment))


def draw_overview(
    before: Sequence[Plane], after: Sequence[Plane], caption: Caption, *, moments: tuple[str, str]
) -> Drawing:
    """Draw before, after and difference side by side, a row per plane; the first two share a scale.

    Args:
        before: the first state.
        after: the last state.
        caption: caption of the picture.
        moments: times of the two states, as text.
    """
    planes = difference(before, after)
    scale = field_limits([*before, *after])

    # A graph shows both states in one panel, and the difference below it.
    if before[0].values.ndim == 1:
        graph = Panel(
            after[0], caption.quantity, scale, name=moments[1], before=(before[0], moments[0])
        )
        below = Panel(planes[0], caption.change, field_limits(planes), CHANGE_COLOURS)
        return draw(lay_out([[graph], [below]], heading=caption.heading))

    change_scale = change_limits(planes)
    rows = []
    for first, last, differing, place in zip(before, after, planes, _places(planes), strict=True):
        titles = [_joined(word, place) for word in (*moments, "difference")]
        # One colour bar serves both states, so only the second of them has it.
        rows.append(
            [
                Panel(first, caption.quantity, scale, title=titles[0], bar=False),
                Panel(last, caption.quantity, scale, title=titles[1]),
                Panel(differing, caption.change, change_scale, CHANGE_COLOURS, titles[2]),
            ]
        )

    return draw(lay_out(rows, heading=caption.heading))


def difference(before: Sequence[Plane], after: Sequence[Plane]) -> list[Plane]:
    """After minus before, plane by plane."""
    return [
        replace(last, values=last.values - first.values)
        for first, last in zip(before, after, strict=True)
    ]


def _one_bar(panels: Sequence[Panel]) -> list[Panel]:
    """The panels with a single colour bar: they share a scale, and the last one shows it."""
    return [replace(panel, bar=i == len(panels) - 1) for i, panel in enumerate(panels)]


def _places(planes: Sequence[Plane]) -> list[str]:
    """Position at which each plane cuts the box, in the unit of the axes; empty without a cut."""
    unit = length_unit([high - low for plane in planes for low, high in plane.bounds])
    return [unit.place(plane.place) for plane in planes]


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


# A small picture of a state inside an HTML page.

_DPI = 60


def small_picture(snapshot: Snapshot) -> str:
    """The first field of a state, as an element of a page."""
    problem = snapshot.problem
    variable = problem.variables[0]

    def read(box: Box) -> Values:
        return np.asarray(snapshot.box(box)[0])

    grid, cuts = problem.grid, default_cuts(problem.grid)
    materials = sample_materials(cell_maps(problem), grid, cuts)
    planes = show_body(sample(read, grid, cuts), materials)
    when = moment(snapshot.step, snapshot.time, timeless=math.isinf(problem.dt_limit))
    caption = Caption(variable.long_name, variable.unit, variable.long_name)
    return as_image(draw_state(planes, caption, moment=when))


def as_image(drawing: Drawing) -> str:
    """A figure as an element of a page."""
    # As a data URL, so that the page needs no file besides itself.
    text = base64.b64encode(drawing.png(_DPI)).decode()
    return f'<img alt="the state" src="data:image/png;base64,{text}"/>'


# Pictures of tables: columns over time, those of one unit in one panel.

_WIDTH, _HEIGHT = 8.0, 2.8  # inches of a panel
_MARKED = 40  # rows up to which each has a dot


def draw_table(
    columns: Sequence[str], rows: Sequence[Sequence[float]], names: Sequence[str], *, title: str
) -> Drawing:
    """Draw some columns of a table over simulated time.

    Args:
        columns: names of all columns; step and time first.
        rows: the rows of the table, at least one.
        names: the columns to draw.
        title: heading of the picture.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    # "temperature max [degC]": columns with the same unit share a panel.
    units: dict[str, list[str]] = {}
    for name in names:
        units.setdefault(name.rpartition(" [")[2].rstrip("]"), []).append(name)
    along = [row[columns.index(LEADING[1])] for row in rows]

    with rc_context(STYLE):
        figure = Figure((_WIDTH, _HEIGHT * len(units) + 0.3), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(units), 1, sharex=True, squeeze=False)[:, 0]
        # One panel per unit, all over the same time axis.
        for axes, (unit, shown) in zip(panels, units.items(), strict=True):
            for name in shown:
                values = [row[columns.index(name)] for row in rows]
                marker = "." if len(rows) <= _MARKED else ""
                axes.plot(along, values, label=name.rpartition(" [")[0] or name, marker=marker)
            write_numbers(axes)
            axes.set_ylabel(unit.replace("degC", "°C"))
            axes.grid(color="0.92", linewidth=0.8)
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
            axes.spines[["top", "right"]].set_visible(False)
        panels[-1].set_xlabel(LEADING[1])
        heading = figure.suptitle(title, fontweight="bold", x=0.01, ha="left")
    # No layout to rasterize: graphs are always drawn by matplotlib.
    built = Built(figure, tuple(panels), (), heading)
    return Drawing(lambda: built)


INITIAL, FINAL, DIFFERENCE, OVERVIEW = "initial.png", "final.png", "difference.png", "overview.png"

_AT_A_TIME = 3  # pictures drawn at the same time: those of one variable
log = logging.getLogger("tetris_sim")


@dataclass(frozen=True)
class Sampled:
    """Samples of a state for pictures.

    Attributes:
        planes: the planes of each variable.
        label: time of the state, as text.
    """

    planes: tuple[tuple[Plane, ...], ...]
    label: str


@dataclass(frozen=True)
class Subject:
    """One variable of the pictures.

    Attributes:
        index: number of the variable.
        suffix: suffix of its files' names.
        caption: caption of its pictures.
    """

    index: int
    suffix: str
    caption: Caption

    def path(self, directory: Path, name: str) -> Path:
        """File of one of its pictures."""
        return directory / f"{Path(name).stem}{self.suffix}.png"


class PicturesOutput:
    """Writer of initial.png at the first step; final, difference and overview.png at the last.

    With several variables, the file names of the second and later ones contain the variable's name.

    Args:
        problem: the problem.
        directory: the results directory.
        heading: heading of every picture; the variable's name if empty.
        initial: the state at time 0, which is read again at the end of a run that was resumed; if
            None, the state at time 0 comes from the fields on the disk.
    """

    def __init__(
        self, problem: Problem, directory: Path, *, heading: str, initial: InitialField | None
    ) -> None:
        self._problem = problem
        self._directory = directory
        self._heading = heading
        self._initial = initial
        self._before: Sampled | None = None

    reads_all = True

    def next_step(self, step: int) -> int | None:
        """The last step."""
        return self._problem.steps if step < self._problem.steps else None

    def start(self, step: int) -> None:
        """Remove what a killed run left unfinished."""
        make_directory(self._directory)
        for name in (INITIAL, FINAL, DIFFERENCE, OVERVIEW):
            remove_parts(self._directory, Path(name).stem)

    def write(self, snapshot: Snapshot) -> None:
        """Draw the first state; or the last one and the change."""
        readers = [_reader(snapshot.box, k) for k in range(self._problem.n_fields)]
        state = self._sample(readers, snapshot.step, snapshot.problem)

        if snapshot.step == 0:
            # Kept until the end for the difference; these are samples, not the whole state.
            self._before = state
            for subject in self._subjects():
                self._draw_state(subject, state, INITIAL)

        # A run of no steps has only one state, which is both the first and the last.
        if snapshot.step > 0 or self._problem.steps == 0:
            before = self._before or self._first_state()
            # Collect the pictures first, then draw them in parallel.
            draws: list[Callable[[], None]] = []
            for subject in self._subjects():
                draws.append(functools.partial(self._draw_state, subject, state, FINAL))
                if before is not None:
                    draws.append(functools.partial(self._draw_change, subject, before, state))
                    draws.append(functools.partial(self._draw_overview, subject, before, state))
            _side_by_side(draws)

    def flush(self) -> None:
        """Do nothing: every picture is flushed when it is written."""

    def close(self) -> None:
        """Release the first state."""
        self._before = None

    def _subjects(self) -> list[Subject]:
        return [
            Subject(
                index=k,
                suffix=f"_{variable.name}" if k else "",
                caption=Caption(
                    variable.long_name, variable.unit, self._heading or variable.long_name
                ),
            )
            for k, variable in enumerate(self._problem.variables)
        ]

    def _draw_state(self, subject: Subject, state: Sampled, name: str) -> None:
        drawing = draw_state(state.planes[subject.index], subject.caption, moment=state.label)
        drawing.save(subject.path(self._directory, name))

    def _draw_change(self, subject: Subject, before: Sampled, after: Sampled) -> None:
        states = before.planes[subject.index], after.planes[subject.index]
        between = f"{before.label} to {after.label}"
        drawing = draw_change(*states, subject.caption, moment=between)
        drawing.save(subject.path(self._directory, DIFFERENCE))

    def _draw_overview(self, subject: Subject, before: Sampled, after: Sampled) -> None:
        states = before.planes[subject.index], after.planes[subject.index]
        drawing = draw_overview(*states, subject.caption, moments=(before.label, after.label))
        drawing.save(subject.path(self._directory, OVERVIEW))

    def _sample(self, readers: Sequence[Reader], step: int, problem: Problem) -> Sampled:
        cuts = default_cuts(problem.grid)
        # Step 0 lies before `problem.start` if dt has changed since.
        time = problem.time(step) if step else 0.0
        label = moment(step, time, timeless=math.isinf(problem.dt_limit))
        if not step and problem.start == (1, 0.0):
            label = "first guess"  # of a steady state
        planes = (sample(read, problem.grid, cuts) for read in readers)
        # Materials on the planes that are drawn; none for a single one.
        materials = sample_materials(cell_maps(problem), problem.grid, cuts)
        return Sampled(tuple(show_body(it, materials) for it in planes), label)

    def _first_state(self) -> Sampled | None:
        """The state at time 0 of a run that was resumed; None, with a warning, if it is lost."""
        n_fields, first = self._problem.n_fields, self._problem
        if first.phases is not None:
            first = first.phases.make(0)
        try:
            # Preferably from the configuration; a file of step 0 exists only if fields were
            # written.
            if self._initial is not None:
                readers: list[Reader] = [
                    _reader(_box_reader(self._initial), k) for k in range(n_fields)
                ]
                return self._sample(readers, 0, first)

            with open_fields(self._directory / record_name(0)) as series:
                readers = [functools.partial(series.read, 0, k) for k in range(n_fields)]
                return self._sample(readers, 0, first)
        except TetrisError as error:
            log.warning(
                "%s and %s are not drawn, as the first state is not known: %s",
                DIFFERENCE,
                OVERVIEW,
                error,
            )
            return None


def _side_by_side(draws: Sequence[Callable[[], None]]) -> None:
    """Draw pictures in parallel: for large ones, colours and compression run on several cores."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        # Each thread works in a copy of the context, and errors surface in this one.
        begun = [pool.submit(contextvars.copy_context().run, draw) for draw in draws]
    for each in begun:
        each.result()


def _reader(read: Callable[[Box], Field], variable: int) -> Reader:
    return lambda box: read(box)[variable]


def _box_reader(initial: InitialField) -> Callable[[Box], Field]:
    # The whole box as a slab without halo: what `Problem.initial` is defined on.
    def read(box: Box) -> Field:
        start, stop = zip(*box, strict=True)
        return initial(Slab(start=start, stop=stop, halo=((0, 0),) * len(box)))

    return read
