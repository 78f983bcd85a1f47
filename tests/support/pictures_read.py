"""Pictures as numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

Pixels = npt.NDArray[np.float64]


def decode(path: Path) -> Pixels:
    """Red, green and blue between 0 and 1, (rows, columns, 3), from the top."""
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"), dtype=np.float64) / 255
