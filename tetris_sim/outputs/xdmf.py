"""How does ParaView find its way into our HDF5 files? By XML that says which dataset holds what.

Points are cell centres, so values are cell data on n + 1 nodes and the box has its true size. The
mesh is a 3DCoRectMesh (where an axis is graded, a 3DRectMesh) for any number of axes, one cell
thick along the missing ones: readers turn a 2DCoRectMesh into another plane, and see no cell in a
mesh without thickness (VTK 9.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from tetris_sim.model.grid import Grid
from tetris_sim.outputs.parts import in_space

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Source:
    """A dataset.

    Attributes:
        file: path of the HDF5 file, relative to the XDMF file.
        dataset: path inside it.
        shape: of the dataset; its last axes are those of the grid, the earlier ones have length 1.
    """

    file: str
    dataset: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Frame:
    """One time.

    Attributes:
        time: simulated time [s].
        sources: per variable.
    """

    time: float
    sources: Mapping[str, Source]


def xdmf_text(grid: Grid, dtype: np.dtype[Any], frames: Sequence[Frame]) -> str:
    """The XDMF 2 document of a temporal collection."""
    root = ElementTree.Element("Xdmf", Version="2.0")
    domain = ElementTree.SubElement(root, "Domain")
    collection = ElementTree.SubElement(
        domain, "Grid", Name="fields", GridType="Collection", CollectionType="Temporal"
    )

    for frame in frames:
        element = ElementTree.SubElement(collection, "Grid", Name="field", GridType="Uniform")
        ElementTree.SubElement(element, "Time", Value=repr(frame.time))
        _add_mesh(element, grid)
        for name, source in frame.sources.items():
            attribute = ElementTree.SubElement(
                element, "Attribute", Name=name, AttributeType="Scalar", Center="Cell"
            )
            _add_source(attribute, source, grid, dtype)

    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _add_mesh(element: ElementTree.Element, grid: Grid) -> None:
    nodes = in_space(grid, [n + 1 for n in grid.shape], 2)
    kind = "3DRectMesh" if grid.is_graded else "3DCoRectMesh"
    ElementTree.SubElement(element, "Topology", TopologyType=kind, Dimensions=_words(nodes))

    thickness = min(grid.spacing)  # along axes that the grid lacks
    if grid.is_graded:
        cut = [(name, _around(place, thickness)) for name, place in grid.cut]
        ends = in_space(
            grid,
            [grid.ends(axis) for axis in range(grid.ndim)],
            _around(thickness / 2, thickness),
            cut,
        )
        _add_numbers(element, "VXVYVZ", ends[::-1])
        return

    spacing = in_space(grid, grid.spacing, thickness)
    middle = in_space(grid, grid.origin, thickness / 2, grid.cut)
    corner = [p - h / 2 for p, h in zip(middle, spacing, strict=True)]
    _add_numbers(element, "ORIGIN_DXDYDZ", (corner, spacing))


def _around(place: float, thickness: float) -> Numbers:
    return np.array([place - thickness / 2, place + thickness / 2])


def _add_numbers(
    element: ElementTree.Element, kind: str, lists: Iterable[Sequence[float] | Numbers]
) -> None:
    geometry = ElementTree.SubElement(element, "Geometry", GeometryType=kind)
    for values in lists:
        item = ElementTree.SubElement(
            geometry,
            "DataItem",
            Dimensions=str(len(values)),
            NumberType="Float",
            Precision="8",
            Format="XML",
        )
        item.text = " ".join(repr(float(value)) for value in values)


def _add_source(
    attribute: ElementTree.Element, source: Source, grid: Grid, dtype: np.dtype[Any]
) -> None:
    cells = in_space(grid, grid.shape, 1)
    precision = str(dtype.itemsize)
    leading = len(source.shape) - grid.ndim
    start = (0,) * len(source.shape)
    count = (1,) * leading + grid.shape

    slab = ElementTree.SubElement(
        attribute,
        "DataItem",
        ItemType="HyperSlab",
        Dimensions=_words(cells),
        NumberType="Float",
        Precision=precision,
    )
    selection = ElementTree.SubElement(
        slab, "DataItem", Dimensions=f"3 {len(source.shape)}", NumberType="Int", Format="XML"
    )
    selection.text = "  ".join(_words(numbers) for numbers in (start, (1,) * len(start), count))

    item = ElementTree.SubElement(
        slab,
        "DataItem",
        Dimensions=_words(source.shape),
        NumberType="Float",
        Precision=precision,
        Format="HDF",
    )
    item.text = f"{source.file}:/{source.dataset.lstrip('/')}"


def _words(numbers: Sequence[int]) -> str:
    return " ".join(map(str, numbers))
