"""What documents leave behind is cleared away."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _figures_of_a_document_are_closed() -> Iterator[None]:
    # xarray's `.plot()` draws through pyplot, which keeps a figure until somebody closes it: a
    # notebook does so after each cell.
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
