"""Perturbed arithmetic: how far rounding may take a step that is computed in another way.

Steps by rules, tables, curves or formulas may amplify rounding errors by any factor: a radiating
face is solved in kelvin, a logarithm near 1 cancels, a knot of a curve or a condition decides
between two branches. With a perturbed state, every operation of the reference is off by a little
more than a correct one may be, and so the spread of its results shows what rounding can do (J.
Vignes, Math. Comput. Simul. 35 (1993) 233; D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002,
1997).
"""

from __future__ import annotations

from typing import Any

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


class Perturbed(np.ndarray[Any, np.dtype[Any]]):
    """Numbers with which every operation is off by some roundings; so are its results.

    Attributes:
        noise: makes the relative errors.
    """

    noise: Noise

    def __array_finalize__(self, source: Any) -> None:
        """Inherit the noise of what this is a view or a copy of."""
        self.noise = getattr(source, "noise", None)  # type: ignore[assignment]

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        """Compute and perturb."""
        noise = next(it.noise for it in (*inputs, *(out or ())) if isinstance(it, Perturbed))
        plain = [it.view(np.ndarray) if isinstance(it, Perturbed) else it for it in inputs]

        # Numbers of tables are rounded by each device, which counts where they cancel in sums.
        if ufunc.__name__ in ("add", "subtract"):
            plain = [
                new if isinstance(it, Perturbed) else noise(new)
                for it, new in zip(inputs, plain, strict=True)
            ]
        found = np.asarray(getattr(ufunc, method)(*plain, **options))
        if ufunc.__name__ not in _EXACT:
            found = noise(found, _roundings(ufunc.__name__))

        if out is not None:
            out[0].view(np.ndarray)[...] = found
            found = out[0]
        return noise.carried(found)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Call a function of arrays, whose results stay perturbed."""
        found = super().__array_function__(func, types, args, kwargs)
        return self.noise.carried(found) if isinstance(found, np.ndarray) else found


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

    def __call__(self, values: Any, roundings: int = 1) -> Any:
        """Perturb numbers, but not whole ones: they are the same in any precision."""
        values = np.asarray(values)
        if values.dtype.kind != "f":
            return values
        signs: Any = (
            _BIASED[self._run]
            if self._run < len(_BIASED)
            else 2 * self._rng.integers(0, 2, values.shape, np.int8) - 1
        )
        with np.errstate(all="ignore"):
            found = values * (1 + roundings * self._eps * signs)
        return np.where(values == np.rint(values), values, found).astype(values.dtype)

    def carried(self, values: Any) -> Any:
        """Return numbers as perturbed ones with this noise; what is no number stays plain."""
        if values.dtype.kind != "f":
            return values.view(np.ndarray)
        found = values.view(Perturbed)
        found.noise = self
        return found


def perturbed_like(
    state: Any, values: npt.NDArray[Any], *, rounded: bool = True
) -> npt.NDArray[Any]:
    """Return numbers that enter a step from outside: as they are, or perturbed if the state is.

    Args:
        state: of the step.
        values: the numbers.
        rounded: whether devices may round them differently.
    """
    if not isinstance(state, Perturbed):
        return values
    found: npt.NDArray[Any] = state.noise.carried(
        state.noise(values) if rounded else np.asarray(values)
    )
    return found
