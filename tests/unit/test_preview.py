"""Previews: materials, faces with their conditions, sources, beams and probes before a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tetris_sim as ts
from tetris_sim.__main__ import main
from tetris_sim.errors import ConfigError, ExitCode, UnsupportedError
from tetris_sim.outputs import preview
from tetris_sim.outputs.scene import Scene

BODY: dict[str, Any] = {
    "title": "chip",
    "grid": {"shape": [20, 10], "size": ["20 mm", "10 mm"]},
    "model": {
        "type": "heat",
        "regions": [
            {"material": "copper"},
            {"material": "steel", "box": {"y": [0, "5 mm"]}, "name": "low"},
            {"void": True, "box": {"x": ["18 mm", "20 mm"], "y": ["5 mm", "10 mm"]}},
        ],
        "sources": [
            {"power": "3 W", "box": {"x": ["4 mm", "8 mm"], "y": ["2 mm", "4 mm"]}},
            {
                "type": "beam",
                "power": "1 W",
                "d4sigma": "2 mm",
                "face": "y+",
                "path": {"x": "2e-3 + 1.2*t"},
            },
        ],
    },
    "initial": {"type": "constant", "value": 20},
    "boundaries": {
        "x": {"type": "robin", "h": 50, "ambient": 20},
        "y-": [
            {"type": "dirichlet", "value": 30, "where": "x < 5e-3"},
            {"type": "neumann"},
        ],
        "y+": {"type": "neumann"},
    },
    "time": {"t_end": "10 ms"},
    "output": {"probes": [{"name": "mid", "at": ["10 mm", "5 mm"], "every": "5 ms"}]},
}


def texts(drawing: Any) -> list[str]:
    (legend,) = drawing.figure.legends
    return [" ".join(it.get_text().split()) for it in legend.get_texts()]


def lines_of(axes: Any, colour: str) -> list[tuple[list[float], list[float]]]:
    from matplotlib.colors import to_hex

    return [
        (np.asarray(it.get_xdata()).tolist(), np.asarray(it.get_ydata()).tolist())
        for it in axes.lines
        if to_hex(it.get_color()) == colour
    ]


def test_the_legend_says_all_that_the_configuration_says() -> None:
    said = texts(ts.preview(BODY))
    assert "x-, x+: robin, h 50 W/(m² K), ambient 20 °C" in said
    assert "y- (part): dirichlet, value 30 °C" in said
    assert "y- (part): insulated" in said
    # a face under a beam is not just insulated
    assert "y+: insulated; beam of source 1" in said
    assert {"copper", "steel", "void"} <= set(said)
    assert any(it.startswith("source 0: ") and "power 3 W" in it for it in said)
    assert any(it.startswith("source 1: beam, power 1 W") for it in said)
    assert "1 mid: x 10 mm, y 5 mm" in said


def test_materials_sources_faces_paths_and_probes_lie_where_they_are() -> None:
    drawing = ts.preview(BODY)
    (axes, *_) = drawing.axes
    colours = drawing.artists[0].cmap(drawing.artists[0].norm(drawing.artists[0].get_array()))
    painted = {tuple(it) for it in colours[:5].reshape(-1, 4)}
    assert len(painted) == 1  # the lower half is one material
    assert tuple(colours[9, 0]) != tuple(colours[0, 0])
    assert tuple(colours[9, 19]) == (1.0, 1.0, 1.0, 1.0)  # the void

    # the source: cells 4..7 by 2..3, of all 200
    (mesh,) = [it for it in axes.collections if type(it).__name__ == "QuadMesh"]
    heated = ~np.ma.getmaskarray(mesh.get_array()).reshape(10, 20)
    assert heated.sum() == 8
    assert heated[2:4, 4:8].all()

    # the part of the lower face that is held ends at 5 mm
    colour_of = preview._face_colours(Scene(*built(BODY)).faces)
    held = next(it for text, it in colour_of.items() if text.startswith("dirichlet"))
    ((x, y),) = lines_of(axes, held)
    assert np.allclose(x, [0, 5])
    assert np.allclose(y, [0, 0])

    # the path of the beam goes from 2 mm to 2 mm + 1.2 m/s * 10 ms on the upper face
    ((x, y),) = lines_of(axes, preview._HEAT[1])
    assert x[0] == pytest.approx(2)
    assert x[-1] == pytest.approx(14, rel=1e-3)
    assert set(y) == {10.0}
    probe = [it for it in axes.lines if it.get_marker() == "D"]
    assert [(it.get_xdata()[0], it.get_ydata()[0]) for it in probe] == [(10.0, 5.0)]


def built(data: dict[str, Any]) -> tuple[Any, Any]:
    config = ts.make_config(data)
    return config, config.build()


def test_three_cuts_show_the_beam_from_the_front_and_from_its_edge() -> None:
    data = {
        **BODY,
        "grid": {"shape": [12, 10, 8], "size": ["12 mm", "10 mm", "8 mm"]},
        "boundaries": {"*": {"type": "neumann"}},
        "model": {
            "type": "heat",
            "material": "steel",
            "sources": [{**BODY["model"]["sources"][1], "face": "z+", "path": {"y": "3 mm"}}],
        },
        "output": {"probes": [{"at": ["1 mm", "1 mm", "1 mm"], "every": "5 ms"}]},
    }
    drawing = ts.preview(data)
    assert len(drawing.axes) == 3
    front = drawing.axes[0]  # normal to z
    (circle,) = [it for it in front.patches if type(it).__name__ == "Circle"]
    assert circle.center == pytest.approx((6, 3))
    assert circle.radius == pytest.approx(1)
    for edge in drawing.axes[1:]:
        arrows = [it for it in edge.texts if it.get_text() == "" and it.arrow_patch is not None]
        assert [it.xy[1] for it in arrows] == [8.0]
    # a probe in none of the middle planes is hollow
    markers = [it for axes in drawing.axes for it in axes.lines if it.get_marker() == "D"]
    assert {it.get_markerfacecolor() for it in markers} == {"none"}
    with pytest.raises(ConfigError, match="outside"):
        ts.preview(data, cuts={"z": 1.0})
    assert len(ts.preview(data, cuts={"z": 0.001}).axes) == 1


@pytest.mark.parametrize(
    "name", ["rod_1d", "plate_2d", "cylinder", "gray_scott", "stencil_2d", "body_3d"]
)
def test_every_kind_of_template_is_drawn_without_overlaps(name: str, tmp_path: Path) -> None:
    path, picture = tmp_path / f"{name}.yaml", tmp_path / "it.png"
    assert main(["init", name, "-o", str(path)]) == ExitCode.OK
    assert main(["preview", str(path), "-o", str(picture)]) == ExitCode.OK
    from matplotlib.image import imread

    assert imread(picture).std() > 0.05  # more than paper

    # nothing of the legend is cut off or lies over a panel
    drawing = ts.preview(path)
    drawing.png(80)
    (legend,) = drawing.figure.legends
    box, whole = legend.get_window_extent(), drawing.figure.bbox
    assert box.x1 <= whole.x1 + 1
    assert box.y0 >= whole.y0 - 1
    for axes in drawing.axes:
        assert not axes.get_window_extent().overlaps(box)


def test_the_command_cuts_refuses_and_speaks_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "body_3d", "-o", "body.yaml"]) == ExitCode.OK
    capsys.readouterr()
    assert main(["preview", "body.yaml", "--slice", "z=2 mm", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"picture": "body_preview.png"}
    assert main(["preview", "body.yaml"]) == ExitCode.CONFIG
    assert "--overwrite" in capsys.readouterr().err
    assert main(["preview", "body.yaml", "--slice", "w=2 mm", "--overwrite"]) == ExitCode.CONFIG
    assert "AXIS=POSITION" in capsys.readouterr().err


def test_the_interactive_view_shows_materials_or_says_how_to_install_it() -> None:
    flat = ts.make_config(BODY)
    with pytest.raises(UnsupportedError, match="x, y and z"):
        ts.preview(flat, interactive=True)
    data = {
        **BODY,
        "grid": {"shape": [6, 6, 6], "size": ["20 mm", "10 mm", "6 mm"]},
        "boundaries": {"*": {"type": "neumann"}},
        "output": {"probes": [{"name": "mid", "at": ["9 mm", "5 mm", "3 mm"], "every": "5 ms"}]},
    }
    try:
        import pyvista  # noqa: F401
    except ImportError:
        with pytest.raises(UnsupportedError, match="pip install pyvista"):
            ts.preview(data, interactive=True)
        return
    plotter = ts.preview(data, interactive=True)
    # outline, two solids, the path of the beam, the label of the probe
    assert len(plotter.actors) >= 5
    plotter.close()


def test_materials_are_listed_with_their_sources_and_the_page_has_the_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from tetris_sim.apps.heat.materials import MATERIALS

    assert main(["materials", "--json"]) == ExitCode.OK
    rows = {it["name"]: it for it in json.loads(capsys.readouterr().out)}
    assert rows.keys() == MATERIALS.keys()
    # diffusivity of aluminium by Incropera and DeWitt: 97.1e-6 m^2/s
    assert rows["aluminium"]["diffusivity"] == pytest.approx(97.1e-6, rel=1e-3)

    assert main(["materials", "--markdown"]) == ExitCode.OK
    table = capsys.readouterr().out.strip()
    page = Path(__file__).resolve().parents[2] / "docs/guide/materials.md"
    assert table in page.read_text(encoding="utf-8")
    assert main(["materials", "aluminum"]) == ExitCode.CONFIG
    assert "did you mean 'aluminium'" in capsys.readouterr().err
