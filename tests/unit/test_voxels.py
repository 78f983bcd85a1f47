"""Voxel files, slices of scans, drawings and lists of surfaces as regions."""

from __future__ import annotations

import base64
import gzip
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tetris_sim.apps.voxels import open_voxels
from tetris_sim.config import make_config
from tetris_sim.errors import ConfigError, ConfigMistakesError

NUMBERS = np.random.default_rng(3).integers(0, 4, (6, 5, 4), dtype=np.uint8)
WHOLE = ((0, 6), (0, 5), (0, 4))
PART = ((1, 3), (2, 5), (1, 2))


def vti(
    path: Path,
    how: str,
    *,
    packed: bool,
    wide: bool = False,
    kind: str = "CellData",
    more: str = "",
) -> Path:
    """Write image data as VTK does."""
    word, raw, block = "<Q" if wide else "<I", NUMBERS.tobytes(), 32
    if packed:
        pieces = [raw[k : k + block] for k in range(0, len(raw), block)]
        small = [zlib.compress(it) for it in pieces]
        words = [len(small), block, len(raw) % block, *map(len, small)]
        parts = [b"".join(struct.pack(word, it) for it in words), b"".join(small)]
    else:
        parts = [struct.pack(word, len(raw)) + raw]

    letters = "".join(base64.b64encode(it).decode() for it in parts)
    body = {"ascii": " ".join(map(str, NUMBERS.ravel())), "binary": letters}.get(how)
    form = 'format="appended" offset="0"' if body is None else f'format="{how}"'
    array = f'<DataArray type="UInt8" Name="m" {form}>{body or ""}</DataArray>'
    behind = b""
    if body is None:
        data = b"".join(parts) if how == "raw" else letters.encode()
        behind = f'<AppendedData encoding="{how}">_'.encode() + data + b"</AppendedData>"
    top = 'compressor="vtkZLibDataCompressor"' if packed else ""
    top += ' header_type="UInt64"' if wide else ' header_type="UInt32"'
    n = [it - (kind == "PointData") for it in NUMBERS.shape[::-1]]
    extent = f"0 {n[0]} 0 {n[1]} 0 {n[2]}"
    head = (
        f'<VTKFile type="ImageData" byte_order="LittleEndian" {top}>'
        f'<ImageData WholeExtent="{extent}" Origin="0 0 0" Spacing="1 2 3" {more}>'
        f'<Piece Extent="{extent}"><{kind}>{array}</{kind}></Piece></ImageData>'
    )
    path.write_bytes(head.encode() + behind + b"</VTKFile>")
    return path


def look(path: Path | str, name: str | None = None) -> Any:
    found = open_voxels(str(path), name, 3, "labels")
    assert found is not None
    return found


@pytest.mark.parametrize("how", ["ascii", "binary", "raw", "base64"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("wide", [False, True])
def test_image_data_of_vtk_is_read_however_it_is_kept(
    tmp_path: Path, how: str, packed: bool, wide: bool
) -> None:
    found = look(vti(tmp_path / "a.vti", how, packed=packed, wide=wide))
    assert (found.read(WHOLE) == NUMBERS).all()
    assert (found.read(PART) == NUMBERS[1:3, 2:5, 1:2]).all()
    assert (found.first, found.spacing) == ((1.5, 1.0, 0.5), (3.0, 2.0, 1.0))


def test_image_data_of_other_machines_are_read(tmp_path: Path) -> None:
    path = vti(tmp_path / "a.vti", "raw", packed=False)
    content = path.read_bytes().replace(b"LittleEndian", b"BigEndian")
    path.write_bytes(content.replace(struct.pack("<I", 120), struct.pack(">I", 120)))
    assert (look(path).read(WHOLE) == NUMBERS).all()


def test_numbers_of_points_are_voxels_around_them(tmp_path: Path) -> None:
    found = look(vti(tmp_path / "a.vti", "raw", packed=False, kind="PointData"))
    assert found.first == (0.0, 0.0, 0.0)
    assert (found.read(WHOLE) == NUMBERS).all()


def nrrd(path: Path, encoding: str, *lines: str, data: str | None = None) -> Path:
    raw = gzip.compress(NUMBERS.tobytes()) if encoding == "gzip" else NUMBERS.tobytes()
    head = ["NRRD0004", "# a comment", "type: uint8", "dimension: 3", "sizes: 4 5 6"]
    head += [f"encoding: {encoding}", *lines]
    if data is not None:
        (path.parent / data).write_bytes(raw)
        path.write_text("\n".join([*head, f"data file: {data}"]) + "\n")
    else:
        path.write_bytes(("\n".join(head) + "\n\n").encode() + raw)
    return path


@pytest.mark.parametrize("encoding", ["raw", "gzip"])
@pytest.mark.parametrize("data", [None, "a.raw"])
def test_nrrd_is_read_with_its_data_in_it_or_beside_it(
    tmp_path: Path, encoding: str, data: str | None
) -> None:
    path = nrrd(tmp_path / "a.nhdr", encoding, "spacings: 1 2 3", data=data)
    found = look(path)
    assert (found.read(WHOLE) == NUMBERS).all()
    assert (found.read(PART) == NUMBERS[1:3, 2:5, 1:2]).all()
    assert (found.first, found.spacing, found.unit) == ((1.5, 1.0, 0.5), (3.0, 2.0, 1.0), None)


def test_nrrd_says_places_and_units(tmp_path: Path) -> None:
    space = "space directions: (.1,0,0) (0,.2,0) (0,0,.3)"
    lines = (space, "space origin: (5,0,0)", 'space units: "mm" "mm" "mm"')
    found = look(nrrd(tmp_path / "a.nrrd", "raw", *lines))
    assert found.first == (0.0, 0.0, 5.0)
    assert found.spacing == (0.3, 0.2, 0.1)
    assert found.unit == pytest.approx(1e-3)


def slices(folder: Path, numbers: np.ndarray[Any, Any], suffix: str = "png") -> Path:
    from PIL import Image

    folder.mkdir()
    for k, it in enumerate(numbers):
        Image.fromarray(it[::-1]).save(folder / f"slice_{k + 8}.{suffix}")  # 8, 9, 10, ...
    return folder


@pytest.mark.parametrize("suffix", ["png", "tif"])
def test_slices_are_read_in_the_order_of_their_numbers(tmp_path: Path, suffix: str) -> None:
    folder = slices(tmp_path / "scan", NUMBERS * 60, suffix)
    for path in (folder, folder / f"slice_*.{suffix}"):
        assert (look(path).read(WHOLE) == NUMBERS * 60).all()
        assert (look(path).read(PART) == 60 * NUMBERS[1:3, 2:5, 1:2]).all()


def test_pages_of_a_picture_are_slices_with_all_their_bits(tmp_path: Path) -> None:
    from PIL import Image

    pages = [Image.fromarray(it[::-1].astype(np.uint16) * 9000) for it in NUMBERS]
    pages[0].save(tmp_path / "a.tif", save_all=True, append_images=pages[1:])
    found = look(tmp_path / "a.tif")
    assert found.dtype == np.uint16
    assert (found.read(WHOLE) == NUMBERS.astype(int) * 9000).all()


def body(
    *regions: dict[str, Any], shape: Sequence[int] = (4, 5, 6), size: Sequence[float] = (4, 10, 18)
) -> Any:
    return make_config(
        {
            "grid": {"shape": [*shape], "size": [*size]},
            "model": {"type": "heat", "regions": [{"material": "silicon"}, *regions]},
            "initial": {"type": "constant", "value": 20},
            "boundaries": {"*": {"type": "insulated"}},
            "time": {"steps": 1},
            "compute": {"devices": "cpu", "tuning_budget": 0},
        }
    )


def names_of(config: Any) -> np.ndarray[Any, Any]:
    medium = config.build().conduction.medium
    whole = tuple((0, n) for n in config.grid.shape[::-1])
    return np.asarray(np.array(medium.names)[medium.ids(whole)])


MATERIALS = {"0": "silicon", "1:2": "copper", "3": "aluminium"}
TOLD = np.array(["silicon", "copper", "copper", "aluminium"])


def test_numbers_and_ranges_have_materials(tmp_path: Path) -> None:
    path = vti(tmp_path / "a.vti", "raw", packed=True)
    config = body({"labels": str(path), "materials": MATERIALS})
    assert (names_of(config) == TOLD[NUMBERS]).all()
    assert config.resolved()["model"]["regions"][1]["materials"] == MATERIALS


def test_cells_take_the_voxel_that_they_lie_in(tmp_path: Path) -> None:
    path = nrrd(tmp_path / "a.nrrd", "raw", "spacings: 1 2 3", 'space units: "mm" "mm" "mm"')
    fine = body(
        {"labels": str(path), "materials": MATERIALS}, shape=(8, 5, 18), size=(4e-3, 1e-2, 18e-3)
    )
    expected = NUMBERS.repeat(3, axis=0).repeat(2, axis=2)
    assert (names_of(fine) == TOLD[expected]).all()
    # A part of it, moved to where the grid begins.
    part = body(
        {"labels": str(path), "materials": MATERIALS, "offset": [-1e-3, -4e-3, 0]},
        shape=(2, 3, 6),
        size=(2e-3, 6e-3, 18e-3),
    )
    assert (names_of(part) == TOLD[NUMBERS[:, 2:, 1:3]]).all()


@pytest.mark.parametrize(
    ("size", "more", "words"),
    [
        ((4e-3, 1e-2, 18e-3), {}, "it has a voxel for each cell along .*give scale"),
        ((8, 10, 18), {}, "a voxel for each cell along x"),
        ((4, 10, 18), {"offset": [1, 0, 0]}, "voxels reach from 1 m to 5 m along x.*offset"),
        ((4, 10, 18), {"dataset": "n"}, "holds m; say with dataset"),
        ((4, 10, 18), {"materials": {"0:2": "copper"}}, "3 is in the file.*has no material"),
        ((4, 10, 18), {"materials": {"0:2": "copper", "2": "silicon"}}, "which overlap"),
        ((4, 10, 18), {"materials": {"low": "copper"}}, "'low' in materials is neither"),
        ((4, 10, 18), {"layer": "TOP"}, "no drawing"),
    ],
)
def test_what_does_not_fit_is_told(
    tmp_path: Path, size: Sequence[float], more: dict[str, Any], words: str
) -> None:
    path = vti(tmp_path / "a.vti", "raw", packed=False)
    region = {"labels": str(path), "materials": {"0:3": "copper"}, **more}
    with pytest.raises(ConfigMistakesError, match=words):
        body(region, size=size)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "cannot be read as voxels"),
        (b"<VTKFile type='PolyData'></VTKFile>", "PolyData"),
        (b"<VTKFile><", "cannot be read as voxels"),
    ],
)
def test_damaged_image_data_are_told(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.vti").write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        look(tmp_path / "a.vti")


def test_voxels_that_are_cut_off_are_told(tmp_path: Path) -> None:
    path = nrrd(tmp_path / "a.nrrd", "raw")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ConfigError, match="cut off"):
        look(path)
    turned = vti(tmp_path / "b.vti", "raw", packed=False, more='Direction="0 1 0 1 0 0 0 0 1"')
    with pytest.raises(ConfigError, match="turned"):
        look(turned)


def test_a_picture_covers_the_box_of_its_region(tmp_path: Path) -> None:
    from PIL import Image

    mask = np.array([[0, 255], [255, 255]], np.uint8)
    Image.fromarray(mask[::-1]).save(tmp_path / "a.png")
    box = {"x": [0, 2], "y": [2, 10], "z": [3, 9]}
    config = body({"labels": str(tmp_path / "a.png"), "material": "copper", "box": box})
    found = names_of(config) == "copper"
    assert found.sum() == 2 * (2 * 4 - 2)  # of two layers, without a quarter
    assert not found[:, 1:3, 0].any()
    assert found[1:3, 3:, 0].all()


def test_a_drawing_has_its_true_area(tmp_path: Path) -> None:
    ezdxf = pytest.importorskip("ezdxf")
    drawing = ezdxf.new()
    drawing.header["$INSUNITS"] = 4  # mm
    space = drawing.modelspace()
    outline = [(1, 1), (9, 1), (9, 5), (1, 5)]
    space.add_lwpolyline(outline, close=True, dxfattribs={"layer": "top"})
    space.add_circle((5, 3), 1, dxfattribs={"layer": "top"})
    space.add_line((0, 0), (1, 1), dxfattribs={"layer": "open"})
    drawing.saveas(tmp_path / "a.dxf")
    region = {"labels": str(tmp_path / "a.dxf"), "material": "copper"}
    plane: dict[str, Any] = {"shape": (40, 32), "size": (1e-2, 8e-3)}
    config = body({**region, "layer": "top"}, **plane)
    (said,) = [it for it in config.model.notes(config) if it.startswith("copper: volume")]
    assert float(said.split()[2]) == pytest.approx((32 - np.pi) * 1e-6, rel=2e-4)
    for layer, words in ((None, "give layer, one of open and top"), ("open", "a LINE of layer")):
        with pytest.raises(ConfigMistakesError, match=words):
            body({**region, "layer": layer}, **plane)


def test_a_list_of_surfaces_is_a_region_for_each(tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    for name, at in (("left", 1.0), ("right", 3.0)):
        box = trimesh.creation.box(extents=[1.0, 4.0, 4.0])
        box.apply_translation([at, 5.0, 9.0])
        box.export(tmp_path / f"{name}.stl")
    files = [str(tmp_path / f"{it}.stl") for it in ("left", "right")]
    config = body({"labels": files, "materials": {"left": "copper", "right": "aluminium"}})
    assert [it.name for it in config.model.regions] == [None, "left", "right"]
    assert [it.material for it in config.model.regions] == ["silicon", "copper", "aluminium"]
    with pytest.raises(ConfigMistakesError, match="the files are left and right"):
        body({"labels": files, "materials": {"left": "copper"}})


def test_a_solid_needs_what_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trimesh")
    (tmp_path / "part.step").write_text("ISO-10303-21;")
    monkeypatch.setitem(__import__("sys").modules, "cascadio", None)
    with pytest.raises(ConfigMistakesError, match=r"cascadio.*tetris-sim\[step\]"):
        body({"labels": str(tmp_path / "part.step"), "material": "copper"})
