"""Fit parameters of a configuration to what probes have measured, by least squares over runs.

Parameters are varied between their ends, by equal factors where both are above 0. The runs of one
derivative go side by side, as those of a sweep; SciPy's trust-region method chooses the steps. The
covariance is s^2 (J^T J)^-1 with s^2 the sum of squares over the degrees of freedom (G. A. F.
Seber, C. J. Wild, Nonlinear Regression, 1989, section 2.1): the noise is taken from the residuals.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.api.sweeping import sweep
from tetris_sim.config import Config
from tetris_sim.config.overrides import Override
from tetris_sim.config.sections.schema import Request
from tetris_sim.errors import ConfigError, UnsupportedError
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
_ALIKE = 0.999  # a correlation above which two parameters are told as one
_NUMBER = re.compile(r"\s*([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)\s*(.*?)\s*")

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FitRange:
    """A key that is varied, and between which ends.

    Attributes:
        key: as after --set.
        low: end of the range, in `unit`.
        high: the other end.
        unit: as written; empty for SI numbers.
    """

    key: str
    low: float
    high: float
    unit: str = ""

    def at(self, share: float) -> float:
        """The value at a share of the way, by equal factors where both ends are above 0."""
        if self.low > 0:
            return float(self.low * (self.high / self.low) ** share)
        return float(self.low + (self.high - self.low) * share)

    def written(self, share: float) -> Any:
        """The same as a configuration takes it."""
        value = float(f"{self.at(share):.12g}")
        return f"{value!r} {self.unit}" if self.unit else value


@dataclass(frozen=True)
class FittedParameter:
    """A fitted parameter.

    Attributes:
        key: which it is.
        value: the best one.
        error: its standard error.
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


@dataclass(frozen=True)
class FitResult:
    """The result of a fit.

    Attributes:
        parameters: with their intervals.
        correlations: between parameters, (n, n).
        residuals: by probe, time [s] and computed minus measured value, (n, 2).
        deviation: standard deviation of the residuals, per degree of freedom.
        runs: how many were made.
        directory: of all runs, the page and the picture.
    """

    parameters: tuple[FittedParameter, ...]
    correlations: Numbers
    residuals: Mapping[str, Numbers]
    deviation: float
    runs: int
    directory: Path

    @property
    def values(self) -> dict[str, float]:
        """The best value of each key."""
        return {it.key: it.value for it in self.parameters}

    def as_lines(self) -> list[str]:
        """The result for people."""
        width = max(len(it.key) for it in self.parameters)
        lines = [
            f"{it.key:<{width}}  {it.value:.6g} +- {it.error:.2g}  ({it.low:.6g} to {it.high:.6g})"
            for it in self.parameters
        ]
        pairs = [
            f"{self.parameters[i].key} and {self.parameters[j].key} {self.correlations[i, j]:.2f}"
            for i in range(len(self.parameters))
            for j in range(i)
        ]
        lines += [f"correlation of {', '.join(pairs)}"] if pairs else []
        lines += [f"{it.key}: {it.told}" for it in self.parameters if it.told]
        measured = sum(map(len, self.residuals.values()))
        return [*lines, f"{self.runs} runs, {measured} numbers off by {self.deviation:.3g}"]


def read_ranges(vary: Mapping[str, Any]) -> list[FitRange]:
    """The parameters of a fit.

    >>> read_ranges({"materials.tim.conductivity": "1:10", "time.dt": "1 ms:2 ms"})[0].key
    'model.materials.tim.conductivity'

    Args:
        vary: by key the ends of its range, (low, high) or "low:high", with units or without.

    Raises:
        ConfigError: a range is none.
    """
    found = []
    for key, given in vary.items():
        ends = given.split(":") if isinstance(given, str) else list(given)
        parts = [_NUMBER.fullmatch(str(end)) for end in ends]
        numbers = [(float(it[1]), it[2]) for it in parts if it is not None]

        # The first end is the lower one, so that a slip of the pen is no other range.
        if len(ends) != 2 or len(numbers) != 2 or not numbers[0][0] < numbers[1][0]:
            msg = f"--vary {key}={given}: LOW:HIGH is wanted, two numbers, the lower one first"
            raise ConfigError(msg)
        (low, unit), (high, other) = numbers
        if unit and unit != other:
            msg = f"--vary {key}={given}: both ends want the same unit"
            raise ConfigError(msg)
        # `materials.tim.conductivity` is short for that of the model.
        whole = key if key.split(".")[0] in Request.model_fields else f"model.{key}"
        found.append(FitRange(key if key.startswith("model.") else whole, low, high, other))
    if not found:
        msg = "--vary: a key and its range are wanted, such as boundaries.z+.h=5:50"
        raise ConfigError(msg)
    return found


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
        config: Config | Mapping[str, Any] | str | Path,
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
    config: Config | Mapping[str, Any] | str | Path,
    data: str | Path | Mapping[str, Any],
    vary: Mapping[str, Any],
    *,
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
        vary: by key the range of its value, {"materials.tim.conductivity": "1:10"}.
        directory: where everything goes; fits/<name of the file> if not given.
        processes: how many runs at a time; as of `sweep` if not given.
        overrides: changes that hold for all runs.
        overwrite: whether runs of another fit that are there may be replaced.

    Raises:
        ConfigError: a key, a range or the data is wrong.
        UnsupportedError: a run failed.
    """
    from scipy import stats

    ranges = read_ranges(vary)
    measured = read_data(data) if isinstance(data, str | Path) else as_data(data)
    count = sum(map(len, measured.values()))
    if count <= len(ranges):
        # The noise is estimated from what is left over.
        msg = f"{count} numbers cannot tell {len(ranges)} parameters; give more than that"
        raise ConfigError(msg)
    place = Path(directory) if directory is not None else _default(config)
    given = {"processes": processes, "overrides": overrides, "overwrite": overwrite}
    runs = _Runs(config, measured, ranges, place, given)

    # Everything is in shares of the ranges: they have one scale, whatever the units are.
    shares, off, slopes = _descend(runs, len(ranges))
    freedom = count - len(ranges)
    deviation = float(np.sqrt(off @ off / freedom))
    # A pseudo-inverse would make what the data do not tell look certain.
    covariance = deviation**2 * np.linalg.inv(slopes.T @ slopes + 1e-300 * np.eye(len(ranges)))
    errors = np.sqrt(np.abs(np.diag(covariance)))
    correlations = covariance / np.outer(errors, errors)
    quantile = float(stats.t.ppf((1 + _SURE) / 2, freedom))
    fitted = [
        _fitted(number, ranges, shares, errors, correlations, quantile)
        for number in range(len(ranges))
    ]

    ends = np.cumsum([len(rows) for rows in measured.values()])[:-1]
    residuals = {
        name: np.stack([rows[:, 0], part], axis=1)
        for (name, rows), part in zip(measured.items(), np.split(off, ends), strict=True)
    }
    result = FitResult(tuple(fitted), correlations, residuals, deviation, runs.count, place)
    _write(result)
    return result


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
    slope = (own.at(min(share + 1e-6, 1.0)) - own.at(max(share - 1e-6, 0.0))) / (
        min(share + 1e-6, 1.0) - max(share - 1e-6, 0.0)
    )
    value = own.at(share)
    return FittedParameter(
        own.key, value, slope * error, own.at(low), own.at(high), "; ".join(told)
    )


def _default(config: Config | Mapping[str, Any] | str | Path) -> Path:
    return Path("fits") / (Path(config).stem if isinstance(config, str | Path) else "fit")


def _write(result: FitResult) -> None:
    """The numbers, the picture of the residuals, and a page with both."""
    from html import escape

    import matplotlib.figure

    # Plain numbers for programs, a page for people.
    said = {
        "parameters": [asdict(it) for it in result.parameters],
        "correlations": result.correlations.tolist(),
        "deviation": result.deviation,
        "runs": result.runs,
        "residuals": {name: rows.tolist() for name, rows in result.residuals.items()},
    }
    atomic_text(result.directory / RESULT, json.dumps(said, indent=1) + "\n")
    # Residuals that have a shape say that the model lacks something.
    figure = matplotlib.figure.Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    for name, rows in result.residuals.items():
        axes.plot(rows[:, 0], rows[:, 1], ".", label=name)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(xlabel="time [s]", ylabel="computed - measured [K]")
    axes.legend()
    figure.savefig(result.directory / PICTURE, dpi=120)

    lines = "\n".join(map(escape, result.as_lines()))
    atomic_text(
        result.directory / PAGE,
        f'<!DOCTYPE html>\n<html lang="en"><meta charset="utf-8"><title>Fit</title>\n'
        f'<h1>Fit</h1>\n<pre>{lines}</pre>\n<img src="{PICTURE}" alt="residuals over time">\n'
        "</html>\n",
    )
