"""stencil2row written to global memory, then CUDA cores: the first rung of the breakdown of
`gpu.dual_tessellation`.

No method: nothing but the benchmark uses it (`explicit_stencil2row.cu`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common.layout import Box3
from tetris_sim.model.grid import on_three
from tetris_sim.model.stencil import Stencil

SOURCE = str(Path(__file__).with_suffix(".cu"))
THREADS = 256
_MOST_ELEMENTS = 1 << 32


@dataclass(frozen=True)
class ExplicitStencil2Row:
    """How to compile and launch both kernels.

    Attributes:
        depth: steps that are composed.
        radii: of the composed stencil, on three axes.
        weights: of the box around it.
    """

    depth: int
    radii: tuple[int, int, int]
    weights: npt.NDArray[np.float64] = field(repr=False)

    @property
    def defines(self) -> dict[str, str | int]:
        """Parameters of the source."""
        return {
            "TS_REAL": "double",
            **{f"TS_RADIUS_{name}": r for name, r in zip("ZYX", self.radii, strict=True)},
        }

    def elements(self, box: Box3) -> int:
        """Of each of the two matrices.

        >>> stencil = Stencil(((-1,), (0,), (1,)), (0.2, 0.5, 0.3))
        >>> explicit_stencil2row(stencil, 3).elements(((0, 1), (0, 1), (16, 80)))
        56

        Raises:
            ValueError: more than the kernels can count.
        """
        planes, rows = (
            high - low + 2 * r for (low, high), r in zip(box[:2], self.radii, strict=False)
        )
        n = planes * self._groups(box) * rows * self._width
        if max(n, self.results(box)) >= _MOST_ELEMENTS:
            msg = f"a matrix of {n} elements is more than these kernels count"
            raise ValueError(msg)
        return n

    def results(self, box: Box3) -> int:
        """Threads of the second kernel."""
        planes, rows = (high - low for low, high in box[:2])
        return planes * rows * self._groups(box) * (self._width + 1)

    @property
    def _width(self) -> int:
        return 2 * self.radii[2] + 1

    def _groups(self, box: Box3) -> int:
        low, high = box[2]
        return -(-(high - low) // (self._width + 1))


def explicit_stencil2row(stencil: Stencil, steps: int) -> ExplicitStencil2Row:
    """Both kernels for a stencil; float64.

    Args:
        stencil: of one step.
        steps: that are composed into one stencil.
    """
    composed = stencil.power(steps)
    return ExplicitStencil2Row(steps, on_three(composed.radii, 0), composed.dense().reshape(-1))
