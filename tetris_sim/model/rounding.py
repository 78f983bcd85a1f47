"""Observed arithmetic: the operations of the reference, perturbed to see what rounding can do, or
watched for the first of them that gives no number.

Steps by rules, tables, curves or formulas may amplify rounding errors by any factor: a radiating
face is solved in kelvin, a logarithm near 1 cancels, a knot of a curve or a condition decides
between two branches. With noise, every operation of the reference is off by a little
more than a correct one may be, and so the spread of its results shows what rounding can do (J.
Vignes, Math. Comput. Simul. 35 (1993) 233; D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002,
1997).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

_EXACT = frozenset(
    {"negative", "positive", "absolute", "minimum", "maximum", "sign", "floor", "ceil"}
    | {"heaviside", "floor_divide"}
)
_ARITHMETIC = frozenset({"add", "subtract", "multiply", "divide", "sqrt", "remainder"})
# Roundings of one call: libraries of devices are off by up to 8 units in the last place, powers in
# single precision and those written out as products by more.
_CALL, _POWER = 8, 32
# Runs 0 and 1 err upwards and downwards everywhere, as tables do that are rounded once for all
# steps; the others at random.
_BIASED = (1, -1)


class Observer(Protocol):
    """Something that is shown the operations of a step."""

    def table(self, values: Any) -> Any:
        """Return numbers that enter from outside and that devices round, as a step takes them."""

    def exact(self, values: Any) -> Any:
        """Return numbers that enter from outside and are the same everywhere."""

    def result(self, name: str, inputs: Sequence[Any], found: Any) -> Any:
        """Return a result as what follows is to take it."""


class Observed(np.ndarray[Any, np.dtype[Any]]):
    """Numbers whose operations, and those with their results, are shown to an observer.

    Attributes:
        observer: whom they are shown to.
    """

    observer: Observer

    def __array_finalize__(self, source: Any) -> None:
        """Inherit the observer of what this is a view or a copy of."""
        self.observer = getattr(source, "observer", None)  # type: ignore[assignment]

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        """Compute, and show what was computed."""
        them = (it for it in (*inputs, *(out or ())) if isinstance(it, Observed))
        observer, name = next(them).observer, ufunc.__name__
        plain = [it.view(np.ndarray) if isinstance(it, Observed) else it for it in inputs]

        # Numbers of tables are rounded by each device, which counts where they cancel in sums.
        if name in ("add", "subtract"):
            plain = [
                new if isinstance(it, Observed) else observer.table(new)
                for it, new in zip(inputs, plain, strict=True)
            ]
        found = np.asarray(getattr(ufunc, method)(*plain, **options))
        found = observer.result(name, plain, found)
        if out is not None:
            out[0].view(np.ndarray)[...] = found
            found = out[0]
        return observed(found, observer)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of arrays, whose results stay observed."""
        found = super().__array_function__(func, types, args, kwargs)
        return observed(found, self.observer) if isinstance(found, np.ndarray) else found


def observed(values: Any, observer: Observer) -> Any:
    """Return numbers whose operations are shown to an observer; what is no number stays plain."""
    if values.dtype.kind != "f":
        return values.view(np.ndarray)
    found = values.view(Observed)
    found.observer = observer
    return found


def entering(state: Any, values: npt.NDArray[Any], *, rounded: bool = True) -> npt.NDArray[Any]:
    """Return numbers that enter a step from outside: as they are, or observed if the state is.

    Args:
        state: of the step.
        values: the numbers.
        rounded: whether devices may round them differently.
    """
    if not isinstance(state, Observed):
        return values
    observer = state.observer
    found: npt.NDArray[Any] = observed(
        observer.table(values) if rounded else observer.exact(np.asarray(values)), observer
    )
    return found


def _roundings(name: str) -> int:
    if name in _ARITHMETIC:
        return 1
    return _POWER if name == "power" else _CALL


class Noise:
    """Relative errors of one size.

    Args:
        run: 0 errs upwards, 1 downwards, others at random, each in its own way.
        eps: an error by one rounding.
    """

    def __init__(self, run: int, eps: float) -> None:
        self._run, self._eps = run, eps
        self._rng = np.random.default_rng(run)

    def table(self, values: Any) -> Any:
        """Perturb by one rounding."""
        return self._perturbed(values, 1)

    def exact(self, values: Any) -> Any:
        """Leave numbers as they are."""
        return values

    def result(self, name: str, inputs: Sequence[Any], found: Any) -> Any:
        """Perturb by the roundings of an operation."""
        return found if name in _EXACT else self._perturbed(found, _roundings(name))

    def _perturbed(self, values: Any, roundings: int) -> Any:
        values = np.asarray(values)
        if values.dtype.kind != "f":
            return values
        error = roundings * self._eps
        factor: Any
        if self._run < len(_BIASED):
            factor = 1 + error * _BIASED[self._run]
        else:
            # 1 + error or 1 - error, both exact where `eps` is that of the numbers.
            bits = np.frombuffer(self._rng.bytes(-(-values.size // 8)), np.uint8)
            up = np.unpackbits(bits, count=values.size).reshape(values.shape)
            factor = np.multiply(up, 2 * error, dtype=np.result_type(values, np.float32))
            factor += 1 - error

        # Whole numbers are the same in any precision. Who asks for noise ignores what overflows.
        found = values.copy()
        noisy = values != np.rint(values)
        np.multiply(values, factor, out=found, where=noisy, casting="same_kind")
        return found


# Signs of operations in sentences; of others the name is written, with `of`.
_SIGNS = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "power": "**"}
_GIVEN = "given"  # no operation
_NAMES = {"arcsin": "asin", "arccos": "acos", "arctan": "atan", "arctan2": "atan2"}


class Failures:
    """The operations of a step that made something that is no number out of numbers."""

    def __init__(self) -> None:
        self._found: list[tuple[str, list[Any], npt.NDArray[np.bool_]]] = []

    def table(self, values: Any) -> Any:
        """Remember numbers of formulas of place and time that are none."""
        given = np.asarray(values)
        if given.dtype.kind == "f" and not (finite := np.isfinite(given)).all():
            self._found.append((_GIVEN, [given], ~finite))
        return values

    exact = table

    def result(self, name: str, inputs: Sequence[Any], found: Any) -> Any:
        """Remember where the operation failed."""
        if found.dtype.kind == "f" and not (finite := np.isfinite(found)).all():
            given = [np.asarray(it) for it in inputs]
            failed = ~finite
            for it in given:
                failed = failed & np.isfinite(it)
            if failed.any():
                self._found.append((name, given, failed))
        return found

    def first(self, bad: npt.NDArray[np.bool_]) -> tuple[str, tuple[int, ...]] | None:
        """Return the first operation that failed at one of some points, as words, and the point.

        Args:
            bad: the points whose result is no number, (n0, ...).
        """
        for name, given, failed in self._found:
            # Results may have fewer points, as those of coordinates along one axis.
            sizes = zip(failed.shape[::-1], bad.shape[::-1], strict=False)
            if failed.ndim > bad.ndim or not all(a in (1, b) for a, b in sizes):
                continue
            both = np.broadcast_to(failed, bad.shape) & bad
            if not both.any():
                continue

            point = tuple(int(i) for i in np.argwhere(both)[0])
            values = [f"{float(np.broadcast_to(it, bad.shape)[point]):.6g}" for it in given]
            if name == _GIVEN:
                return f"{values[0]} as the value of a part without fields", point
            if name in _SIGNS:
                return f"{values[0]} {_SIGNS[name]} {values[1]}", point
            return f"{_NAMES.get(name, name)} of {' and '.join(values)}", point
        return None
