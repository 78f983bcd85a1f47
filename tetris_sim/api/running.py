"""Running: a configuration in one call, or as a simulation that is driven step by step."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.api.arrays import checked_field
from tetris_sim.api.result import Folder, Result, States, join_states
from tetris_sim.apps.domain import steps_left
from tetris_sim.config import Config, load_config, make_config
from tetris_sim.config.overrides import Override
from tetris_sim.config.yaml import read_yaml
from tetris_sim.errors import ConfigError, ExitCode
from tetris_sim.model.problem import Problem
from tetris_sim.outputs import results
from tetris_sim.simulation.driving import onward
from tetris_sim.simulation.launch import underway
from tetris_sim.simulation.loop import Simulation
from tetris_sim.simulation.preparation import Adapt
from tetris_sim.simulation.resuming import Resume
from tetris_sim.support.files import atomic_file
from tetris_sim.support.stopping import Stopping, StopReason
from tetris_sim.support.wording import describe

Source = str | Path | Mapping[str, Any] | Config
Arrays = npt.ArrayLike | Mapping[str, npt.ArrayLike]


def run(
    config: Source,
    directory: str | Path | None = None,
    *,
    initial: Arrays | None = None,
    changes: Mapping[str, Any] | None = None,
    progress: bool = True,
    overwrite: bool = False,
    resume: Resume | str = "never",
) -> Result:
    """Run a configuration to its end; what `tetris-sim run` does, in one call.

    >>> rod = {
    ...     "grid": {"shape": [50], "size": ["1 m"]},
    ...     "model": {"type": "heat", "material": "copper"},
    ...     "initial": {"type": "expression", "expression": "100*sin(pi*x/Lx)"},
    ...     "boundaries": {"x": {"type": "dirichlet", "value": "0 degC"}},
    ...     "time": {"t_end": "10 min"},
    ... }
    >>> result = run(rod, progress=False)
    >>> result.field().shape, round(float(result.field().max()), 1)
    ((50,), 50.1)

    Args:
        config: a path of a YAML file, its content as Python data, or a `Config`.
        directory: where results go, also if the configuration names a place. If neither does, they
            are kept as long as the result, without pictures and checkpoints that are not asked for.
        initial: the state to begin with instead of the configuration's, an array of the grid's
            shape (z, y, x), or arrays by field; it is written down as initial.npy beside the
            results.
        changes: other values by key, {"time.t_end": "2 s"}, like --set.
        progress: whether to draw a bar.
        overwrite: whether results of an earlier run may be replaced.
        resume: "auto" continues from the newest good checkpoint of the directory if there is one, a
            path from that one.

    Raises:
        TetrisError: of any kind; all that is wrong with the configuration at once.
    """
    asked = ask_for(
        config, directory, initial, changes, results_stay=overwrite or resume != "never"
    )
    stopping = Stopping(aborts=False)
    with (
        stopping.listening(),
        underway(
            asked.config,
            resume=Path(resume) if resume not in ("never", "auto") else resume,
            overwrite=overwrite,
            bar=progress and _shows_bars(),
            stopping=stopping,
        ) as done,
    ):
        done.reason = done.simulation.run()
        # Without fields on the disk the result keeps the last state in memory.
        last = _last(done.simulation) if asked.config.output.fields is None else None

    assert done.report is not None
    return Result(asked.config, done.report, asked.folder, last)


def run_in_memory(
    config: Mapping[str, Any],
    initial: Mapping[str, npt.ArrayLike],
    *,
    every: str | float | None = None,
    call: Callable[[Simulation], object] | None = None,
) -> Result:
    """Run a configuration that writes nothing, with a call now and then.

    Args:
        config: as data.
        initial: arrays by field.
        every: how often to make the call.
        call: made with the simulation; without it the result has the states at the start, every so
            often and at the end.

    Raises:
        TetrisError: see `run`.
    """
    asked = ask_for(config, None, initial, None, results_stay=False)
    stopping, kept = Stopping(aborts=False), list[States]()

    # The last step is always due, so without this the end would be there twice.
    def keep(simulation: Simulation) -> None:
        if not kept or kept[-1].steps != (simulation.step,):
            kept.append(_last(simulation))

    records = every is not None and call is None
    with stopping.listening(), underway(asked.config, stopping=stopping) as done:
        if records:
            keep(done.simulation)
        done.reason = done.simulation.run(every=every, call=keep if records else call)
        if done.reason is None and done.simulation.step < done.simulation.problem.steps:
            done.reason = StopReason(ExitCode.OK, "the call ended it")
        keep(done.simulation)

    assert done.report is not None
    return Result(asked.config, done.report, asked.folder, join_states(kept))


def preview(
    config: Source,
    *,
    changes: Mapping[str, Any] | None = None,
    cuts: Mapping[str, float] | None = None,
    interactive: bool = False,
) -> Any:
    """Draw what a configuration describes before it runs: materials or the initial state, faces
    with their conditions, sources, paths of beams, probes.

    >>> rod = {
    ...     "grid": {"shape": [50], "size": ["1 m"]},
    ...     "model": {"type": "heat", "material": "copper"},
    ...     "initial": {"type": "constant", "value": 20},
    ...     "boundaries": {"x": {"type": "dirichlet", "value": "0 degC"}},
    ...     "time": {"t_end": "10 min"},
    ... }
    >>> picture = preview(rod)
    >>> picture.png(50)[1:4]
    b'PNG'

    Args:
        config: a path of a YAML file, its content as Python data, or a `Config`.
        changes: other values by key, {"time.t_end": "2 s"}, like --set.
        cuts: of a 3D body, where to cut it, by axis [m]; through the middle if not given.
        interactive: whether to return a PyVista plotter of a 3D body, which can be turned.

    Returns:
        A drawing that notebooks show and `save(path)` writes as PNG, its `figure` of matplotlib; or
        the plotter, whose `show()` opens it.

    Raises:
        TetrisError: of any kind; all that is wrong with the configuration at once.
    """
    from tetris_sim.outputs.preview import draw_preview, view_3d
    from tetris_sim.outputs.sampling import cuts_at

    checked = _load(config, _overrides(changes), Path(tempfile.gettempdir()))  # nothing is written
    problem = checked.build()
    if interactive:
        return view_3d(checked, problem)
    return draw_preview(checked, problem, cuts=cuts_at(problem.grid, cuts.items()) if cuts else ())


@contextlib.contextmanager
def simulate(
    config: Source,
    directory: str | Path | None = None,
    *,
    initial: Arrays | None = None,
    changes: Mapping[str, Any] | None = None,
    progress: bool = False,
    overwrite: bool = False,
) -> Iterator[Simulation]:
    """Open a configuration as a simulation that is driven inside the block.

    >>> from tetris_sim.api.running import simulate
    >>> plate = {
    ...     "grid": {"shape": [32, 32], "size": ["10 mm", "10 mm"]},
    ...     "model": {"type": "heat", "material": "copper"},
    ...     "initial": {"type": "constant", "value": 100},
    ...     "boundaries": {"*": {"type": "dirichlet", "value": 0}},
    ...     "time": {"t_end": "20 ms"},
    ... }
    >>> seen = []
    >>> with simulate(plate) as sim:
    ...     sim.run(until="10 ms", every="5 ms", call=lambda sim: seen.append(sim.step))
    ...     sim.set_field(np.full((32, 32), 50.0))
    ...     sim.run()
    >>> len(seen), bool(sim.step == sim.problem.steps)
    (2, True)

    Its outputs and checkpoints are written as it goes on with `run`, and `Simulation.advance` goes
    on without them. Arguments and errors as for `run`.
    """
    asked = ask_for(config, directory, initial, changes, results_stay=overwrite)
    with _opened(asked, progress=progress, overwrite=overwrite) as simulation:
        yield simulation


@dataclass(frozen=True)
class Asked:
    """A configuration that is to be run, and where its results go."""

    config: Config
    folder: Folder


@contextlib.contextmanager
def _opened(
    asked: Asked,
    *,
    progress: bool = False,
    overwrite: bool = False,
    adapt: Adapt | None = None,
    before: Simulation | None = None,
    saves: bool = False,
) -> Iterator[Simulation]:
    """Open what is asked for, with what has been decided in the simulation `before`, if it goes on
    from one; with `saves`, a checkpoint of its first state is made at once, which nothing in its
    configuration says.
    """
    stopping = Stopping(aborts=False)
    with underway(
        asked.config,
        overwrite=overwrite,
        bar=progress and _shows_bars(),
        adapt=adapt,
        vary=_Vary(asked.config),
        stopping=stopping,
    ) as found:
        found.simulation.heard = stopping

        if before is not None:
            found.simulation.control.follow(before.control, before.time)
        if saves:
            found.simulation.leave()
        yield found.simulation


@dataclass(frozen=True)
class _Vary:
    """Opens a simulation like one of a configuration."""

    config: Config

    def __call__(
        self, simulation: Simulation, changes: Mapping[str, Any], directory: str | Path | None
    ) -> AbstractContextManager[Simulation]:
        return _vary(self.config, simulation, changes, directory)


def _vary(
    config: Config,
    simulation: Simulation,
    changes: Mapping[str, Any],
    directory: str | Path | None,
) -> AbstractContextManager[Simulation]:
    """See `Simulation.with_boundary`, whose faces are the change of "boundaries", and
    `Simulation.with_changes`.
    """
    data = config.resolved()
    changes = dict(changes)
    if "boundaries" in changes:
        given = changes.pop("boundaries")
        if not isinstance(given, Mapping):
            msg = (
                f"boundaries is {describe(given)}; sections by face are wanted, for example "
                "{'x-': {'type': 'dirichlet', 'value': '0 degC'}}"
            )
            raise ConfigError(msg)
        kept = {
            name: face
            for name, face in data["boundaries"].items()
            if "*" not in given and name.rstrip("+-") not in given
        }
        data["boundaries"] = {**kept, **given}

    # A time of the end stays what it is, for the clock goes on; steps are counted anew.
    if data["time"].get("steps") is not None:
        data["time"]["steps"] = simulation.problem.steps - simulation.step
    # A simulation that varies another one must not write over its results.
    data["output"].pop("directory", None)
    asked = ask_for(data, directory, None, changes, results_stay=False)
    return _opened(
        asked,
        adapt=partial(_from_here, asked.config, simulation),
        before=simulation,
        saves=directory is not None,
    )


def _from_here(config: Config, simulation: Simulation, problem: Problem) -> Problem:
    """The problem of a configuration from the state and time of a simulation on.

    Raises:
        ConfigError: see `onward`, or the run would have ended before this time.
    """
    steps = problem.steps
    if config.time.t_end is not None:
        dt, steps = steps_left(config.time.t_end, simulation.time, problem.dt)
        if dt != problem.dt:
            problem = config.build(dt=dt)

    if steps < 0:
        msg = (
            f"time.t_end is {config.time.t_end:g} s, and the simulation is at "
            f"{simulation.time:g} s already: give a later time"
        )
        raise ConfigError(msg)
    return onward(simulation, dataclasses.replace(problem, steps=steps))


def ask_for(
    config: Source,
    directory: str | Path | None,
    initial: Arrays | None,
    changes: Mapping[str, Any] | None,
    *,
    results_stay: bool,
) -> Asked:
    """Check a configuration with what else is said of it, and find out where its results go."""
    overrides = _overrides(changes)
    if directory is not None:
        overrides.append(Override("directory=", ("output", "directory"), os.fspath(directory)))
    # Made in any case: `initial` needs a file even where results have a place of their own.
    temporary = Path(tempfile.mkdtemp(prefix="tetris_sim_"))
    folder = Folder(temporary, temporary=True)
    initial = _by_field(initial, config)
    found = _load(config, [*overrides, *_written(initial, temporary)], temporary)
    place = results.directory_of(found)
    if place == temporary:
        return Asked(found, folder)

    if initial is not None:
        # Checked: now where it stays.
        if not results_stay:
            results.refuse_to_overwrite(place)
        place.mkdir(parents=True, exist_ok=True)
        found = _load(config, [*overrides, *_written(initial, place)], temporary)
    return Asked(found, Folder(place))


def _overrides(changes: Mapping[str, Any] | None) -> list[Override]:
    return [
        Override(f"changes[{key!r}]", tuple(key.split(".")), value)
        for key, value in (changes or {}).items()
    ]


def _load(config: Source, overrides: list[Override], temporary: Path) -> Config:
    if isinstance(config, str | Path):
        return load_config(Path(config), overrides=overrides)
    if not isinstance(config, Mapping | Config):
        msg = (
            f"config is {describe(config)}; a path, a mapping such as the file would hold, or a "
            "Config is wanted"
        )
        raise ConfigError(msg)

    defaults = [
        Override("", ("output", "directory"), str(temporary)),
    ]
    data = config.resolved() if isinstance(config, Config) else config
    section = data.get("output") or {}
    asks = isinstance(section, Mapping) and section.get("directory") is not None
    if not asks and not any(it.path == ("output", "directory") for it in overrides):
        defaults += [
            Override("", ("output", "pictures"), False),
            Override("", ("checkpoint", "at_end"), False),
        ]
    return make_config(data, overrides=overrides, defaults=defaults)


def fields_named(config: Source) -> list[str]:
    """The names of the fields of a model of equations; none of one that cannot be read."""
    data: Any = config
    if isinstance(config, Config):
        data = config.resolved()
    elif isinstance(config, str | Path):
        # A file that cannot be read is reported where it is checked.
        with contextlib.suppress(OSError, UnicodeDecodeError):
            root, _ = read_yaml(Path(config).read_text(encoding="utf-8"), str(config))
            data = {} if root is None else root.plain()

    model = data.get("model") if isinstance(data, Mapping) else None
    fields = model.get("fields") if isinstance(model, Mapping) else None
    return [*fields] if isinstance(fields, Mapping) else []


def _by_field(initial: Arrays | None, config: Source) -> Arrays | None:
    """An array of a model of equations by the name of its only field; else what is given."""
    if initial is None or isinstance(initial, Mapping):
        return initial
    fields = fields_named(config)
    if not fields:
        return initial
    if len(fields) > 1:
        names = ", ".join(f'"{name}": array' for name in fields)
        msg = f"initial is one array, and the model has {len(fields)} fields; give {{{names}}}"
        raise ConfigError(msg)
    return {fields[0]: initial}


def _written(initial: Arrays | None, directory: Path) -> list[Override]:
    """The arrays as files in a directory, and what the configuration says of them."""
    if initial is None:
        return []
    named = isinstance(initial, Mapping)
    overrides = []
    for name, values in initial.items() if isinstance(initial, Mapping) else [("", initial)]:
        # A velocity is given as "u.initial_velocity".
        of, _, key = name.partition(".")
        parts = {key or "initial": values}
        if named and np.iscomplexobj(values):
            array = np.asarray(values)
            parts = {key or "initial": array.real, f"{key or 'initial'}_imag": array.imag}

        for part, numbers in parts.items():
            state = checked_field(numbers, np.float64)
            path = directory / (f"{part}_{of}.npy" if named else "initial.npy")
            with atomic_file(path) as temporary, temporary.open("wb") as file:
                np.save(file, state)
            keys = ("model", "fields", of, part) if named else ("initial",)
            section = {"type": "file", "path": str(path.absolute())}
            overrides.append(Override("initial=", keys, section))
    return overrides


def _shows_bars() -> bool:
    """Whether a bar can be drawn: on a terminal, or in a notebook."""
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def _last(simulation: Simulation) -> States:
    state = simulation.snapshot().seen()
    return States(simulation.problem.seen, (state.step,), (state.time,), (state.field(),))
