"""Pictures of a run: its first state, its last state, and what changed."""

from __future__ import annotations

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
from tetris_sim.outputs.compositions import draw_change, draw_overview, draw_state
from tetris_sim.outputs.field_file import record_name
from tetris_sim.outputs.labels import Caption, moment
from tetris_sim.outputs.materials import Body
from tetris_sim.outputs.output import Snapshot
from tetris_sim.outputs.sampling import Plane, Reader, default_cuts, sample
from tetris_sim.outputs.series import open_fields
from tetris_sim.support.files import make_directory, remove_parts

INITIAL, FINAL, DIFFERENCE, OVERVIEW = "initial.png", "final.png", "difference.png", "overview.png"

_AT_A_TIME = 3  # pictures: those of one variable
log = logging.getLogger("tetris_sim")


@dataclass(frozen=True)
class Sampled:
    """A state thinned out for pictures.

    Attributes:
        planes: per variable.
        label: when it is.
    """

    planes: tuple[tuple[Plane, ...], ...]
    label: str


@dataclass(frozen=True)
class Subject:
    """One variable of the pictures.

    Attributes:
        index: of the variable.
        suffix: of its files' names.
        caption: what its pictures say.
    """

    index: int
    suffix: str
    caption: Caption

    def path(self, directory: Path, name: str) -> Path:
        """Where a picture of it goes."""
        return directory / f"{Path(name).stem}{self.suffix}.png"


class PicturesOutput:
    """Writes initial.png at the first step; final.png, difference.png, overview.png at the last.

    With several variables, the pictures of the second one and later ones have its name in theirs.

    Args:
        problem: what is simulated.
        directory: the results directory.
        heading: above every picture; the variable's name if empty.
        initial: the state at time 0; it is asked again at the end of a run that was resumed. None
            if it is not known: the state at time 0 then comes from the fields on the disk.
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
        """Draw the first state, or the last one and what has changed."""
        state = self._sample(
            [_reader(snapshot.box, k) for k in range(self._problem.n_fields)], snapshot.step
        )

        if snapshot.step == 0:
            self._before = state
            for subject in self._subjects():
                self._draw_state(subject, state, INITIAL)

        if snapshot.step > 0 or self._problem.steps == 0:
            before = self._before or self._first_state()
            draws: list[Callable[[], None]] = []
            for subject in self._subjects():
                draws.append(functools.partial(self._draw_state, subject, state, FINAL))
                if before is not None:
                    draws.append(functools.partial(self._draw_change, subject, before, state))
                    draws.append(functools.partial(self._draw_overview, subject, before, state))
            _side_by_side(draws)

    def flush(self) -> None:
        """Nothing waits: every picture was flushed when it was written."""

    def close(self) -> None:
        """Forget the first state."""
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

    def _sample(self, readers: Sequence[Reader], step: int) -> Sampled:
        problem = self._problem
        cuts = default_cuts(problem.grid)
        # Step 0 lies before `problem.start` if dt has changed since.
        time = problem.time(step) if step else 0.0
        label = moment(step, time, timeless=math.isinf(problem.dt_limit))
        planes = (sample(read, problem.grid, cuts) for read in readers)
        return Sampled(tuple(self._with_materials(it) for it in planes), label)

    def _with_materials(self, planes: tuple[Plane, ...]) -> tuple[Plane, ...]:
        if not self._materials:
            return planes
        return tuple(
            replace(plane, materials=numbers.values.astype(np.int64))
            for plane, numbers in zip(planes, self._materials, strict=True)
        )

    @functools.cached_property
    def _materials(self) -> tuple[Plane, ...]:
        """Numbers of materials on the planes that are drawn; nothing of a body that has one."""
        if self._problem.conduction is None:
            return ()
        body, grid = Body(self._problem), self._problem.grid
        planes = sample(
            lambda box: body.numbers[body.ids(box)].astype(float), grid, default_cuts(grid)
        )
        return planes if len(body.materials) > 1 else ()

    def _first_state(self) -> Sampled | None:
        """The state at time 0 of a run that was resumed; None, with a warning, if it is lost."""
        n_fields = self._problem.n_fields
        try:
            if self._initial is not None:
                return self._sample(
                    [_reader(_box_reader(self._initial), k) for k in range(n_fields)], 0
                )

            with open_fields(self._directory / record_name(0)) as series:
                return self._sample(
                    [functools.partial(series.read, 0, k) for k in range(n_fields)], 0
                )
        except TetrisError as error:
            log.warning(
                "%s and %s are not drawn, as the first state is not known: %s",
                DIFFERENCE,
                OVERVIEW,
                error,
            )
            return None


def _side_by_side(draws: Sequence[Callable[[], None]]) -> None:
    """Make pictures at the same time: of large ones, colours and compression take others' cores."""
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        begun = [pool.submit(contextvars.copy_context().run, draw) for draw in draws]
    for each in begun:
        each.result()


def _reader(read: Callable[[Box], Field], variable: int) -> Reader:
    return lambda box: read(box)[variable]


def _box_reader(initial: InitialField) -> Callable[[Box], Field]:
    def read(box: Box) -> Field:
        start, stop = zip(*box, strict=True)
        return initial(Slab(start=start, stop=stop, halo=((0, 0),) * len(box)))

    return read
