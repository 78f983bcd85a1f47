"""Layered: n steps at once of a body whose layers lie across one axis.

Along the other axes the eigenvectors are those of constant coefficients. For each product of them,
with eigenvalues l, the step across the layers is a symmetric problem of as many points: with
v = sqrt(rho c) T,

    v' = v + S^-1/2 (D + sum of dt K l) S^-1/2 v + S^1/2 f,        S = rho c,

D being the differences across the layers. Its eigenvalues are computed from its eigenvectors as
sums of squares of differences, so that those near 0 keep their digits.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tetris_sim.spectral.axis import Arrays, Expansion, chunks
from tetris_sim.spectral.forms import Layered
from tetris_sim.spectral.jump import after, expand_forcing

_BATCH_NUMBERS = 1 << 18  # of the matrices that are decomposed together


class LayeredJump:
    """Jumps of a state of layers.

    Args:
        operator: a step.
        arrays: the library that it is done with.
    """

    def __init__(self, operator: Layered, arrays: Arrays) -> None:
        self._operator, self._arrays, self._place = operator, arrays, operator.place
        self._whole = [Expansion(axis, place, arrays) for place, axis in enumerate(operator.axes)]
        self._lateral = [it for it in self._whole if it.place != self._place]
        self._forcing = expand_forcing(operator.forcing, self._whole, arrays, skip=self._place)
        self._root = arrays.xp.asarray(np.sqrt(operator.capacity))

    def advance(self, u: Any, steps: int) -> Any:
        """The state (n0, ...) after some steps, at least one; `u` is used up."""
        xp, place, n = self._arrays.xp, self._place, self._operator.axes[self._place].n
        for expansion in self._lateral:
            u = expansion.expand(u)
        columns = xp.ascontiguousarray(xp.moveaxis(u, place, -1)).reshape(-1, n)
        forcing = None
        if self._forcing is not None:
            forcing = xp.moveaxis(self._forcing.part(slice(None)), place, -1).reshape(-1, n)

        def work(part: slice) -> None:
            given = None if forcing is None else forcing[part]
            columns[part] = self._across(self._loads[part], columns[part], steps, given)

        self._arrays.each(list(chunks(len(columns), n * n, _BATCH_NUMBERS)), work)
        lateral = [it.axis.n for it in self._lateral]
        u = xp.ascontiguousarray(xp.moveaxis(columns.reshape(*lateral, n), -1, place))
        for expansion in self._lateral:
            u = expansion.sum(u)
        return u

    @functools.cached_property
    def _loads(self) -> Any:
        """What the other axes take from every layer, (lateral modes, n): -dt K l."""
        operator, loads = self._operator, np.zeros((1, len(self._operator.capacity)))
        for it in self._lateral:
            own = -2 * it.axis.less_one()[:, None] * operator.along[it.place]
            loads = (loads[:, None] + own).reshape(-1, loads.shape[1])
        return self._arrays.xp.asarray(loads)

    def _across(self, loads: Any, u: Any, steps: int, forcing: Any) -> Any:
        """Columns across the layers after some steps, (batch, n)."""
        xp, root = self._arrays.xp, self._root
        rates, vectors = self._modes(loads)
        power, total = after(xp, rates, steps, sums=forcing is not None)
        grown = power * self._expand(vectors, u * root)
        if forcing is not None:
            grown = grown + total * self._expand(vectors, forcing * root)
        return (vectors @ grown[..., None])[..., 0] / root

    def _expand(self, vectors: Any, u: Any) -> Any:
        return (vectors.swapaxes(1, 2) @ u[..., None])[..., 0]

    def _modes(self, loads: Any) -> tuple[Any, Any]:
        """(g - 1, eigenvectors as columns) of a batch, (batch, n) and (batch, n, n)."""
        xp, operator, root = self._arrays.xp, self._operator, self._root
        n, between = len(operator.capacity), operator.between
        lost = np.zeros(n)  # through both faces
        across = np.diag(between[1:-1], 1) + np.diag(between[1:-1], -1)
        if operator.ends is None:
            across[0, -1] += between[0]
            across[-1, 0] += between[0]
        else:
            lost[0] += between[0] * (1 - operator.ends[0])
            lost[-1] += between[-1] * (1 - operator.ends[1])
        out = xp.asarray(lost) + loads
        matrix = xp.asarray(across) - (xp.asarray(across.sum(axis=1)) + out)[:, :, None] * xp.eye(n)
        vectors = xp.linalg.eigh(matrix / (root[:, None] * root))[1]

        whole = vectors / root[:, None]
        rates = -(out[:, :, None] * whole**2).sum(axis=1)
        steps = xp.diff(whole, axis=1)
        rates -= (xp.asarray(between[1:-1])[:, None] * steps**2).sum(axis=1)
        if operator.ends is None:
            rates -= between[0] * (whole[:, 0] - whole[:, -1]) ** 2
        return rates, vectors
