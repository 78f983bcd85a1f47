"""Fit parameters and initial fields of a configuration to what probes have measured, by least
squares over runs.

Parameters are varied between their ends, by equal factors where both are above 0. A few of them are
found by steps of Gauss and Newton, which need the derivative of every residual: differences of runs
that go side by side, as those of a sweep. A field is as many unknowns as there are points, and the
derivatives of the sum of squares by all of them come from one run forwards and one backwards
(`gradient`); a quasi-Newton method in a box (R. H. Byrd, P. Lu, J. Nocedal, C. Zhu, SIAM J. Sci.
Comput. 16 (1995) 1190) goes down with them. What data leave open is decided by a Tikhonov term, the
integral of |grad u|^2.

The covariance is s^2 (J^T J)^-1 with s^2 the sum of squares over the degrees of freedom (G. A. F.
Seber, C. J. Wild, Nonlinear Regression, 1989, section 2.1): the noise is taken from the residuals.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tetris_sim.api.running import Source, fields_named
from tetris_sim.api.sweeping import sweep
from tetris_sim.apps.pde.wholes import roughness
from tetris_sim.config import Config, load_config, make_config
from tetris_sim.config.overrides import FitRange, Override, read_ranges
from tetris_sim.errors import ConfigError, UnsupportedError
from tetris_sim.model.slab import Slab
from tetris_sim.outputs import tables
from tetris_sim.outputs.make import as_data, read_data
from tetris_sim.outputs.tables import read_table
from tetris_sim.support.files import atomic_text
from tetris_sim.support.wording import listed

log = logging.getLogger("tetris_sim")

RESULT, PICTURE, PAGE = "fit.json", "residuals.png", "fit.html"
_STEP = 0.02  # of a range, for derivatives: far above what steps and tables round
_ENOUGH = 0.02  # of a standard error by which parameters may still move
_MOST_STEPS = 12
_SMALLEST = 1e-7  # of a range: the least step
_SURE = 0.95  # of intervals
_ALIKE = 0.999  # a correlation above which two parameters cannot be told apart
_MOST_GRADIENTS = 200  # of a quasi-Newton method
_TOLD = 10  # of them, after which it is said how far it is
_SOLVED = 1e-9  # of the first sum of squares: nothing is left that data could tell
_LEAST_GAIN = 1e-5  # of the sum of squares, by which a step with fields may still lower it
_MOST_NAMED = 12  # probes of a picture

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FittedParameter:
    """A fitted parameter.

    Attributes:
        key: which it is.
        value: the best one.
        error: its standard error; nan beside unknown fields, which may make up for it.
        low: lower end of its 95 % interval, by Student's t, inside of the range.
        high: upper end.
        told: empty, or why the data cannot tell it.
    """

    key: str
    value: float
    error: float
    low: float
    high: float
    told: str = ""

    def as_plain(self) -> dict[str, Any]:
        """The same for JSON, which has no nan."""
        return asdict(self) | {"error": _finite(self.error)}


@dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    Attributes:
        parameters: with their intervals.
        correlations: between parameters, (n, n).
        residuals: by probe, time [s] and computed minus measured value, (n, 2).
        deviation: standard deviation of the residuals, per degree of freedom; with unknown fields
            the root of their mean square.
        runs: how many were made, of which some also backwards.
        directory: of all runs, the page and the picture.
        derivatives: how they were found, and why so.
        fields: initial fields that were found, by name; of the grid's shape.
    """

    parameters: tuple[FittedParameter, ...]
    correlations: Numbers
    residuals: Mapping[str, Numbers]
    deviation: float
    runs: int
    directory: Path
    derivatives: str
    fields: Mapping[str, Numbers] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, float]:
        """The best value of each key."""
        return {it.key: it.value for it in self.parameters}

    def as_lines(self) -> list[str]:
        """The result for people."""
        width = max((len(it.key) for it in self.parameters), default=0)
        lines = [
            f"{it.key:<{width}}  {it.value:.6g} +- {it.error:.2g}  ({it.low:.6g} to {it.high:.6g})"
            for it in self.parameters
        ]
        pairs = [
            f"{self.parameters[i].key} and {self.parameters[j].key} {self.correlations[i, j]:.2f}"
            for i in range(len(self.parameters))
            for j in range(i)
            if np.isfinite(self.correlations[i, j])
        ]

        lines += [f"correlation of {', '.join(pairs)}"] if pairs else []
        lines += [f"{it.key}: {it.told}" for it in self.parameters if it.told]
        lines += [
            f"{name}  {it.size} points, {it.min():.6g} to {it.max():.6g}, in {name}.npy"
            for name, it in self.fields.items()
        ]
        measured = sum(map(len, self.residuals.values()))
        said = f"{self.runs} runs, {measured} numbers off by {self.deviation:.3g}"
        return [*lines, said, f"Derivatives {self.derivatives}"]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """Keep what each sweep says of its runs to those who asked for all: a fit makes dozens."""
    level = log.level
    if log.getEffectiveLevel() == logging.INFO:
        log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.setLevel(level)


class _Runs:
    """Runs of a configuration, side by side, and what their probes say at the measured times."""

    def __init__(
        self,
        config: Source,
        data: Mapping[str, Numbers],
        ranges: Sequence[FitRange],
        place: Path,
        given: Mapping[str, Any],
    ) -> None:
        self._config, self._data, self._ranges = config, data, ranges
        self._place, self._given = place, given
        self._known: dict[bytes, Numbers] = {}
        self.count = self._batches = 0

    def at(self, shares: Sequence[Numbers]) -> list[Numbers]:
        """Computed minus measured values of each set of shares; those not known are computed."""
        new = [it for it in shares if it.tobytes() not in self._known]
        if new:
            # A folder for each batch: the same fit, begun again, finds its runs there.
            self._batches += 1
            values = {
                parameter.key: [parameter.written(float(it[k])) for it in new]
                for k, parameter in enumerate(self._ranges)
            }
            directory = self._place / "runs" / f"{self._batches:03}"
            with _quietly():
                made = sweep(self._config, values, zipped=True, directory=directory, **self._given)

            # Without one of its runs a derivative would be of something else.
            self.count += len(new)
            if made.failed:
                row = made.failed[0]
                msg = f"run {row['run']} in {made.directory} failed: {row['error']}"
                raise UnsupportedError(msg)
            for number, it in enumerate(new, 1):
                self._known[it.tobytes()] = self._off(directory / "runs" / f"{number:04}")
            least = min(float(np.sqrt(np.mean(off**2))) for off in self._known.values())
            log.info("%d runs, %.4g off at best (root of the mean square)", self.count, least)
        return [self._known[it.tobytes()] for it in shares]

    def _off(self, directory: Path) -> Numbers:
        found = []
        for name, rows in self._data.items():
            path = directory / tables.FOLDER / f"{name}.csv"
            if not path.exists():
                msg = f"--data: {name!r} is no probe; name one so in output.probes"
                raise ConfigError(msg)

            computed = np.array(read_table(path)[1], np.float64)
            times, first, last = rows[:, 0], computed[0, 1], computed[-1, 1]
            if times.min() < first - 1e-9 * last or times.max() > last * (1 + 1e-9):
                ends = f"{times.max():g} s, and the run ends at {last:g} s"
                msg = f"--data: {name} was measured from {times.min():g} s until {ends}"
                raise ConfigError(msg)
            # Records are close, and between them a line is as good as the data.
            found.append(np.interp(times, computed[:, 1], computed[:, 2]) - rows[:, 1])
        return np.concatenate(found)


def fit(
    config: Source,
    data: str | Path | Mapping[str, Any],
    vary: Mapping[str, Any],
    *,
    smooth: float = 0.0,
    derivatives: Literal["auto", "differences", "adjoints"] = "auto",
    directory: str | Path | None = None,
    processes: int | None = None,
    overrides: Sequence[str | Override] = (),
    overwrite: bool = False,
) -> FitResult:
    """Find the parameters with which a configuration computes what probes have measured.

    Args:
        config: a file, or what a file would hold.
        data: a CSV file of `time` and a column per probe of `output.probes`, or by probe the times
            [s] and temperatures [degC], (n, 2). The probes of the run are linear between their
            records, which should be as close as those of the data.
        vary: by key the range of its value, {"materials.tim.conductivity": "1:10"}; by the name of
            a field ("temperature" of heat) that of its initial values, one unknown for each point,
            which begin as the configuration says.
        smooth: weight of the integral of |grad u|^2 of unknown fields beside the sum of squares.
        derivatives: "differences" of runs side by side, or "adjoints", a run forwards and back for
            all of them; if "auto", the latter where a field is unknown.
        directory: where everything goes; fits/<name of the file> if not given.
        processes: how many runs at a time; as of `sweep` if not given.
        overrides: changes that hold for all runs.
        overwrite: whether runs of another fit that are there may be replaced.

    Raises:
        ConfigError: a key, a range or the data is wrong, or the data do not suffice.
        UnsupportedError: a run failed, or its steps have no adjoints that are needed.
    """
    ranges = read_ranges(vary)
    known = {f"model.{name}": name for name in fields_named(config) or ["temperature"]}
    fields = {known[it.key]: it for it in ranges if it.key in known}
    ranges = [it for it in ranges if it.key not in known]
    measured = read_data(data) if isinstance(data, str | Path) else as_data(data)
    place = Path(directory) if directory is not None else _default(config)
    count = sum(map(len, measured.values()))
    if count <= len(ranges):
        # The noise is estimated from what is left over.
        msg = f"{count} numbers cannot tell {len(ranges)} parameters; give more than that"
        raise ConfigError(msg)

    given = {"processes": processes, "overrides": overrides, "overwrite": overwrite}
    runs = _Runs(config, measured, ranges, place, given)
    adjoints = derivatives == "adjoints" or (bool(fields) and derivatives == "auto")
    if not adjoints:
        if fields:
            msg = f"differences would take a run for each point of {listed([*fields], 'and')}"
            raise ConfigError(msg)
        shares, off, slopes = _descend(runs, len(ranges))
        how = "by differences of runs: numbers are few, and every residual has derivatives"
        found: dict[str, Numbers] = {}
    else:
        if (place / RESULT).exists() and not overwrite:
            msg = f"{place / RESULT} is there already; give another directory, or overwrite it"
            raise ConfigError(msg)
        goal = _Misfit(_checked(config, overrides), measured, ranges, fields, smooth)
        shares, off = goal.descend()
        found, runs.count = goal.fields_at(shares), runs.count + goal.count
        how = f"by adjoints, {goal.count} runs forwards and back for {len(shares)} unknowns"
        slopes = np.empty((count, 0))
        if not fields:
            (off,) = runs.at([shares])
            slopes = _derivatives(runs, shares, off)
            how += "; errors by differences"

    deviation = float(np.sqrt(off @ off / (count if fields else count - len(ranges))))
    fitted, correlations = _estimated(ranges, shares, slopes, deviation, count - len(ranges))
    ends = np.cumsum([len(rows) for rows in measured.values()])[:-1]
    residuals = {
        name: np.stack([rows[:, 0], part], axis=1)
        for (name, rows), part in zip(measured.items(), np.split(off, ends), strict=True)
    }
    result = FitResult(fitted, correlations, residuals, deviation, runs.count, place, how, found)
    _write(result)
    return result


def _estimated(
    ranges: Sequence[FitRange], shares: Numbers, slopes: Numbers, deviation: float, freedom: int
) -> tuple[tuple[FittedParameter, ...], Numbers]:
    """The parameters with their errors and correlations; without slopes these are not known."""
    from scipy import stats

    n, told = len(ranges), "its error is not known beside fields"
    if slopes.shape[1] < n:
        return tuple(
            FittedParameter(it.key, it.at(float(shares[k])), math.nan, it.low, it.high, told)
            for k, it in enumerate(ranges)
        ), np.full((n, n), math.nan)
    # A pseudo-inverse would make what the data do not tell look certain.
    covariance = deviation**2 * np.linalg.inv(slopes.T @ slopes + 1e-300 * np.eye(n))
    errors = np.sqrt(np.abs(np.diag(covariance)))
    correlations = covariance / np.outer(errors, errors)
    quantile = float(stats.t.ppf((1 + _SURE) / 2, freedom))
    return tuple(
        _fitted(number, ranges, shares, errors, correlations, quantile) for number in range(n)
    ), correlations


def _checked(config: Source, overrides: Sequence[str | Override]) -> Config:
    """The configuration without outputs of its own."""
    nowhere = Override("", ("output", "directory"), None)
    if isinstance(config, str | Path):
        return load_config(Path(config), overrides=[*overrides, nowhere])
    plain = config.resolved() if isinstance(config, Config) else config
    return make_config(plain, overrides=[*overrides, nowhere])


@dataclass(frozen=True)
class _Unknown:
    """A number, or a field at all points: `offset + factor * v` in a configuration for the values v
    of a range, at some of the shares.
    """

    name: str
    range: FitRange
    offset: float
    factor: float
    part: slice
    shape: tuple[int, ...]

    def at(self, shares: Numbers) -> Numbers:
        """The values of the configuration, of the shape; shares are those of all unknowns."""
        return self.offset + self.factor * self.range.all_at(shares[self.part].reshape(self.shape))

    def slopes(self, shares: Numbers) -> Numbers:
        """Their derivatives by the shares, (n,)."""
        return self.factor * self.range.slopes(shares[self.part])


class _Misfit:
    """The sum of squares with a Tikhonov term, and its derivatives by shares of all ranges.

    Args:
        config: what is run.
        data: measured values by probe.
        numbers: ranges of numbers.
        fields: ranges of initial fields by name.
        smooth: weight of the Tikhonov term.

    Attributes:
        count: runs so far.
        begin: shares to begin with, (n,).

    Raises:
        ConfigError: the data leave fields open, and nothing else decides.
    """

    def __init__(
        self,
        config: Config,
        data: Mapping[str, Numbers],
        numbers: Sequence[FitRange],
        fields: Mapping[str, FitRange],
        smooth: float,
    ) -> None:
        self._config, self._data, self._smooth = config, data, smooth
        self._problem, self._unknowns, self.count = config.build(), list[_Unknown](), 0
        shape, names = self._problem.grid.shape, [it.name for it in self._problem.variables]
        state = self._problem.initial(Slab.whole(self._problem.grid))

        # Numbers begin in the middle of their ranges, fields as the configuration says.
        parts, end = [np.full(len(numbers), 0.5)], len(numbers)
        for k, it in enumerate(numbers):
            self._unknowns.append(_Unknown(it.key, it, *_units(config, it), slice(k, k + 1), ()))
        for name, it in fields.items():
            part = slice(end, end := end + self._problem.grid.n_points)
            own = _Unknown(name, it, *_units(config, it, name), part, shape)
            self._unknowns.append(own)
            begun = (np.asarray(state[names.index(name)], np.float64) - own.offset) / own.factor
            parts.append(it.shares(begun).ravel())
        self.begin = np.concatenate(parts)
        if fields and sum(map(len, data.values())) < end and not smooth > 0:
            msg = (
                f"the data cannot tell {end} unknowns: give `smooth`, the weight of the integral "
                "of |grad u|^2, which decides what they leave open"
            )
            raise ConfigError(msg)

    def __call__(self, shares: Numbers) -> tuple[float, Numbers, Numbers]:
        """The number, its derivatives, (n,), and the residuals, by one run forwards and back."""
        from tetris_sim.api.gradients import gradient

        values = {it.name: it.at(shares) for it in self._unknowns}
        fields = {name: it for name, it in values.items() if it.ndim}
        heat = self._config.model.type == "heat"
        found = gradient(
            self._config,
            wrt=[*values],
            data=self._data,
            initial=(fields.get("temperature") if heat else fields or None),
            changes={name: float(it) for name, it in values.items() if not it.ndim},
        )
        self.count += 1
        total, slopes = found.value, dict(found.by)
        for name, it in fields.items():
            rough, by = roughness(self._problem, it)
            total += self._smooth * rough
            slopes[name] = slopes[name] + self._smooth * by
        parts = [np.ravel(slopes[it.name]) * it.slopes(shares) for it in self._unknowns]
        off = np.concatenate([found.residuals[name] for name in self._data])
        return total, np.concatenate(parts), off

    def descend(self) -> tuple[Numbers, Numbers]:
        """Go down: the shares and the residuals there."""
        from scipy.optimize import minimize

        first, *_, off = self(self.begin)
        best = [(first, self.begin, off)]

        def part(shares: Numbers) -> tuple[float, Numbers]:
            total, slopes, off = self(shares)
            if total < best[0][0]:
                best[0] = total, shares.copy(), off
            if self.count % _TOLD == 0:
                log.info("%d runs, %.4g off", self.count, np.sqrt(np.mean(best[0][2] ** 2)))
            return total / (_SOLVED * first), slopes / (_SOLVED * first)

        # A gain counts relative to the sum of squares, or to 1 where that is less.
        gain = _LEAST_GAIN if len(self._unknowns[-1].shape) else _ENOUGH**2 / len(off)
        options = {"maxiter": _MOST_GRADIENTS, "ftol": gain, "gtol": 1e-6, "maxcor": 20}
        ends = [(0.0, 1.0)] * len(self.begin)
        given: dict[str, Any] = {"jac": True, "bounds": ends, "options": options}
        if first > 0 and minimize(part, self.begin, method="L-BFGS-B", **given).status == 1:
            log.warning("The fit was ended after %d runs; see its residuals.", self.count)
        return best[0][1], best[0][2]

    def fields_at(self, shares: Numbers) -> dict[str, Numbers]:
        """The initial fields, by name."""
        return {it.name: it.at(shares) for it in self._unknowns if it.shape}


def _units(config: Config, it: FitRange, field_name: str = "") -> tuple[float, float]:
    """Offset and factor from the numbers of a range to those of the configuration."""
    if not it.unit:
        return 0.0, 1.0
    # As its ends are read, which takes units for what they are there.
    path: tuple[str, ...] = tuple(it.key.split("."))
    if field_name:
        heat = config.model.type == "heat"
        path = (*(() if heat else ("model", "fields", field_name)), "initial")

    ends = []
    for share in (0.0, 1.0):
        value = it.written(share)
        given = {"type": "constant", "value": value} if field_name else value
        own = make_config(config.resolved(), overrides=[Override("--vary", path, given)])
        data: Any = own.resolved()
        for key in (*path, "value") if field_name else path:
            data = data[int(key) if isinstance(data, list) else key]
        ends.append(float(data))
    factor = (ends[1] - ends[0]) / (it.high - it.low)
    return ends[0] - factor * it.low, factor


def _descend(runs: _Runs, n: int) -> tuple[Numbers, Numbers, Numbers]:
    """Go down from the middle of all ranges: the shares, what is off there, and the derivatives."""
    from scipy.optimize import lsq_linear

    # Steps of Gauss and Newton in a box; runs are dear, so each one that was made is kept.
    shares, radius = np.full(n, 0.5), 0.5
    (off,) = runs.at([shares])
    for _ in range(_MOST_STEPS):
        slopes = _derivatives(runs, shares, off)
        freedom = max(len(off) - n, 1)
        while True:
            low, high = np.maximum(-shares, -radius), np.minimum(1 - shares, radius)
            step = lsq_linear(slopes, -off, (low, np.maximum(high, low + 1e-12))).x
            # Enough, if another step would move less than noise does.
            moved = float(np.sum((slopes @ step) ** 2)) * freedom
            still = float(np.abs(step).max()) < _SMALLEST
            if moved <= (_ENOUGH**2) * float(off @ off) or still:
                return shares, off, slopes
            (after,) = runs.at([np.clip(shares + step, 0.0, 1.0)])
            # A line promises as much; where the curve keeps little of it, go less far.
            promised = float(off @ off - np.sum((off + slopes @ step) ** 2))
            kept = float(off @ off - after @ after)
            if kept > 0.1 * promised:
                break
            radius = float(np.abs(step).max()) / 4
        shares, off = np.clip(shares + step, 0.0, 1.0), after
        radius = min(0.5, 2 * radius) if kept > 0.5 * promised else radius
    log.warning("The fit was ended after %d steps; see its residuals.", _MOST_STEPS)
    return shares, off, _derivatives(runs, shares, off)


def _derivatives(runs: _Runs, shares: Numbers, off: Numbers) -> Numbers:
    """Differences of runs side by side, into the range."""
    # At the upper end of a range a difference goes back into it.
    steps = np.where(shares + _STEP <= 1, _STEP, -_STEP)
    points = [shares + step * (np.arange(len(shares)) == k) for k, step in enumerate(steps)]
    found = runs.at(points)
    return np.stack([(it - off) / h for it, h in zip(found, steps, strict=True)], axis=1)


def _fitted(
    number: int,
    ranges: Sequence[FitRange],
    shares: Numbers,
    errors: Numbers,
    correlations: Numbers,
    quantile: float,
) -> FittedParameter:
    """One parameter, with its interval and a sentence if the data do not tell it."""
    own, share, error = ranges[number], float(shares[number]), float(errors[number])
    # Beyond its range nothing is known of a parameter.
    low, high = max(share - quantile * error, 0.0), min(share + quantile * error, 1.0)
    told = []
    if not quantile * error < 0.5:
        told.append("the data cannot tell it: its interval is as wide as its range")
    # Two parameters of which only a product or a sum counts have errors that go together.
    twins = [
        ranges[k].key
        for k in range(len(ranges))
        if k != number and abs(correlations[number, k]) > _ALIKE
    ]
    if twins:
        told.append(f"the data cannot tell it apart from {listed(twins, 'and')}")
    if share in (0.0, 1.0):
        told.append("it is at an end of its range: widen it")

    # The error as that of the value itself, by the slope of its scale.
    spread, said = float(own.slopes(np.array(share))) * error, "; ".join(told)
    return FittedParameter(own.key, own.at(share), spread, own.at(low), own.at(high), said)


def _default(config: Source) -> Path:
    return Path("fits") / (Path(config).stem if isinstance(config, str | Path) else "fit")


def _finite(x: float) -> float | None:
    return x if math.isfinite(x) else None


def _write(result: FitResult) -> None:
    """The numbers, the pictures of residuals and of fields, and a page with all."""
    from html import escape

    import matplotlib.figure

    result.directory.mkdir(parents=True, exist_ok=True)
    # Plain numbers for programs, a page for people.
    said = {
        "parameters": [it.as_plain() for it in result.parameters],
        "correlations": [[_finite(x) for x in row] for row in result.correlations.tolist()],
        "deviation": result.deviation,
        "runs": result.runs,
        "derivatives": result.derivatives,
        "fields": {name: f"{name}.npy" for name in result.fields},
        "residuals": {name: rows.tolist() for name, rows in result.residuals.items()},
    }
    atomic_text(result.directory / RESULT, json.dumps(said, indent=1) + "\n")
    # Residuals that have a shape say that the model lacks something.
    figure = matplotlib.figure.Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, rows in result.residuals.items():
        axes.plot(rows[:, 0], rows[:, 1], ".", label=name)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(xlabel="time [s]", ylabel="computed - measured")
    if len(result.residuals) <= _MOST_NAMED:
        axes.legend()
    figure.savefig(result.directory / PICTURE, dpi=120)

    pictures = [f'<img src="{PICTURE}" alt="residuals over time">']
    for name, values in result.fields.items():
        np.save(result.directory / f"{name}.npy", values)
        figure = matplotlib.figure.Figure(figsize=(7, 3.5), layout="constrained")
        axes = figure.subplots()
        plane = values[len(values) // 2] if values.ndim == 3 else values  # of a body the middle
        if plane.ndim == 1:
            axes.plot(plane)
        else:
            figure.colorbar(axes.imshow(plane, origin="lower", interpolation="nearest"))
        axes.set_title(name)
        figure.savefig(result.directory / f"{name}.png", dpi=120)
        pictures.append(f'<img src="{name}.png" alt="initial {name}">')
    lines, images = "\n".join(map(escape, result.as_lines())), "\n".join(pictures)
    atomic_text(
        result.directory / PAGE,
        '<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>Fit</title>\n'
        f"<h1>Fit</h1>\n<pre>{lines}</pre>\n{images}\n</html>\n",
    )
