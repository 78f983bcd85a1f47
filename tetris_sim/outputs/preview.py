"""Preview of a configuration: materials, conditions, sources, beams and probes before a run.

The picture is laid out like those of fields (`figure_layout.py`) with a legend beside the panels:
words around a thin box would overlap, and a legend says each thing once.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tetris_sim.config import Config
from tetris_sim.errors import UnsupportedError
from tetris_sim.model.method import Box
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.outputs.drawing import STYLE, Built, Drawing, build_figure
from tetris_sim.outputs.figure_layout import (
    FigureLayout,
    LengthUnit,
    Panel,
    field_limits,
    lay_out,
)
from tetris_sim.outputs.materials import BodyMaterials, described
from tetris_sim.outputs.raster import outlines
from tetris_sim.outputs.sampling import CrossSection, Plane, Values, default_cuts, sample
from tetris_sim.outputs.scene import (
    N_TIMES,
    FacePart,
    Scene,
    face_spans,
    face_text,
    pairs_in_words,
)
from tetris_sim.support.wording import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 400  # per axis of a map of materials
_MOST_CELLS = 96  # per axis of the interactive view
_LEGEND, _LINE = 4.1, 46  # width of the legend [inches], letters in a line of it
_ROW, _FOOT = 0.185, 0.5  # height of a line of the legend, what is left below it [inches]
_VOID, _FLUID = "#ffffff", "#cfe6f7"
# Distinct for the colour-blind (Okabe and Ito 2008), without the reds, which are of heat.
_FACES = ("#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3fbf", "#8c6d31", "#3f3f3f")
_HEAT = ("#d7191c", "#c2410c", "#a50f5b", "#7a0403")


def draw_preview(
    config: Config, problem: Problem | None, *, cuts: Sequence[CrossSection] = ()
) -> Drawing:
    """Draw what a configuration describes, before it runs.

    A body of several materials is shown by its materials, any other problem by its initial state.

    Args:
        config: the configuration.
        problem: what it builds; None where its input files are gone.
        cuts: planes of a 3D grid; the three middle ones if not given.
    """
    scene = Scene(config, problem)
    chosen = tuple(cuts) or default_cuts(scene.grid)
    ground, is_map = _ground(scene, chosen)
    sheet = _layout(scene, ground, bar=not is_map)
    return Drawing(lambda: _build(scene, chosen, sheet, is_map=is_map))


def _ground(scene: Scene, cuts: Sequence[CrossSection]) -> tuple[tuple[Plane, ...], bool]:
    """The planes below everything else, and whether their values are numbers of materials."""
    body, problem, grid = scene.materials, scene.problem, scene.grid

    # Not turned: faces, sources and probes are named by the coordinates of the grid.
    if body is not None and grid.ndim > 1:
        planes = sample(
            lambda box: body.numbers[body.ids(box)].astype(float),
            grid,
            cuts,
            most=_POINTS,
            turned=False,
        )
        return tuple(replace(it, materials=it.values.astype(np.int64)) for it in planes), True
    if problem is None:
        return sample(lambda box: np.full(_shape(box), np.nan), grid, cuts, turned=False), True

    def initial(box: Box) -> Values:
        # Of a body that melts the state is heat content, and people think in temperatures.
        state = problem.initial(Slab.box(box))
        shown: Values = (state if problem.view is None else problem.view.look(box, state))[0]
        return shown

    return sample(initial, grid, cuts, most=_POINTS, turned=False), False


def _shape(box: Box) -> tuple[int, ...]:
    return tuple(high - low for low, high in box)


def _layout(scene: Scene, planes: Sequence[Plane], *, bar: bool) -> FigureLayout:
    variable = None if scene.problem is None else scene.problem.variables[0]
    if scene.problem is not None and scene.problem.view is not None:
        variable = scene.problem.view.variables[0]
    unit = {"degC": " [°C]", "1": ""}.get(variable.unit, f" [{variable.unit}]") if variable else ""
    # One scale for all panels, as in the pictures of fields.
    panels = [
        Panel(
            plane,
            f"initial {variable.long_name}{unit}" if variable else "",
            field_limits(planes),
            bar=bar,
            title=_title(plane, planes),
        )
        for plane in planes
    ]

    # Two of three planes stand in the first row, so that the legend finds room beside them.
    rows = [panels[:2], panels[2:]] if len(panels) > 2 else [panels]
    return lay_out(rows, heading=scene.config.title or "Preview")


def _title(plane: Plane, planes: Sequence[Plane]) -> str:
    from tetris_sim.outputs.figure_layout import length_unit

    unit = length_unit([high - low for it in planes for low, high in it.bounds])
    return unit.place(plane.place)


@dataclass
class _Legend:
    """Entries of the legend, in groups."""

    groups: dict[str, list[tuple[Any, str]]] = field(default_factory=dict)

    def add(self, group: str, handle: Any, text: str) -> None:
        entries = self.groups.setdefault(group, [])
        if all(text != it for _, it in entries):
            entries.append((handle, text))

    @property
    def rows(self) -> int:
        """Lines of text that it takes."""
        texts = [text for entries in self.groups.values() for _, text in entries]
        return sum(len(textwrap.wrap(it, _LINE)) or 1 for it in texts) + 2 * len(self.groups)

    def draw(self, figure: Any, left: float, top: float) -> None:
        """Draw it below a corner, given in shares of the figure."""
        from matplotlib.patches import Rectangle

        # matplotlib knows no groups: a handle that is not seen stands before the name of each.
        handles: list[Any] = []
        texts: list[str] = []
        titles: list[int] = []
        for group, entries in self.groups.items():
            titles.append(len(texts))
            handles.append(Rectangle((0, 0), 0, 0, alpha=0.0))
            texts.append(group)
            for handle, text in entries:
                handles.append(handle)
                texts.append("\n".join(textwrap.wrap(text, _LINE)))
        drawn = figure.legend(
            handles,
            texts,
            loc="upper left",
            bbox_to_anchor=(left, top),
            frameon=False,
            fontsize=8.5,
            handlelength=1.8,
            borderaxespad=0.0,
        )
        for number in titles:
            drawn.get_texts()[number].set_fontweight("bold")


def _build(
    scene: Scene, cuts: Sequence[CrossSection], sheet: FigureLayout, *, is_map: bool
) -> Built:
    from matplotlib import rc_context

    with rc_context(STYLE):
        # Room for the legend on the right, and below it if it is longer than the panels.
        legend, width = _Legend(), sheet.width
        colours = _face_colours(scene.faces)
        _list_faces(scene, colours, legend)
        wide = replace(sheet, width=width + _LEGEND)
        built = build_figure(wide)
        for axes, artist, panel, cut in zip(
            built.axes, built.artists, sheet.panels, cuts, strict=True
        ):
            if is_map or panel.plane.values.ndim == 1:
                _paint_materials(scene, axes, artist, panel.plane, sheet.unit, legend)
            _paint_sources(scene, axes, panel.plane, cut, sheet.unit, legend)
            _paint_faces(scene, axes, panel.plane, cut, sheet.unit, colours)
            _paint_beams(scene, axes, panel.plane, sheet.unit, legend)
            _paint_probes(scene, axes, panel.plane, cut, sheet.unit, legend)

        # The figure grows downwards: rectangles are shares of it, so they are set anew.
        needed = legend.rows * _ROW + _FOOT + 0.4
        if (more := needed - wide.height) > 0:
            _grow(built.figure, wide, more)
        height = max(needed, wide.height)
        legend.draw(built.figure, (width + 0.1) / wide.width, 1 - 0.45 / height)
    return built


def _grow(figure: Any, sheet: FigureLayout, more: float) -> None:
    """Make a figure higher by some inches, and keep everything where it is below its top."""
    height = sheet.height + more
    # Positions are shares of the figure, measured from below.
    for axes in figure.axes:
        box = axes.get_position()
        axes.set_position(
            (
                box.x0,
                (box.y0 * sheet.height + more) / height,
                box.width,
                box.height * sheet.height / height,
            )
        )

    for text in figure.texts:
        x, y = text.get_position()
        text.set_position((x, (y * sheet.height + more) / height))

    figure.set_size_inches(sheet.width, height)


# Faces: one colour per condition, so that faces that are alike look alike.


def _face_colours(faces: Mapping[str, Sequence[FacePart]]) -> dict[str, str]:
    texts = dict.fromkeys(part.text for parts in faces.values() for part in parts)
    return dict(zip(texts, itertools.cycle(_FACES), strict=False))


def _list_faces(scene: Scene, colours: Mapping[str, str], legend: _Legend) -> None:
    from matplotlib.lines import Line2D

    for text, colour in colours.items():
        names = [
            name + (" (part)" if len(parts) > 1 else "")
            for name, parts in scene.faces.items()
            if any(part.text == text for part in parts)
        ]
        handle = Line2D([], [], color=colour, linewidth=5, solid_capstyle="butt")
        legend.add("faces", handle, f"{', '.join(names)}: {text}")

    # Fields of equations may have conditions of their own.
    fields = scene.config.resolved()["model"].get("fields") or {}
    for name, section in fields.items():
        own = section.get("boundaries") if isinstance(section, dict) else None
        for face, it in (own or {}).items():
            parts = it if isinstance(it, list) else [it]
            text = listed([face_text(part, scene.units) for part in parts], "and")
            legend.add("faces", Line2D([], [], alpha=0.0), f"{name} at {face}: {text}")


def _paint_faces(
    scene: Scene,
    axes: Axes,
    plane: Plane,
    cut: CrossSection,
    unit: LengthUnit,
    colours: Mapping[str, str],
) -> None:
    # Half of such a line lies outside of the panel, so it must not be clipped.
    style: Any = {"linewidth": 5, "solid_capstyle": "butt", "clip_on": False, "zorder": 6}
    bounds = [(low / unit.metres, high / unit.metres) for low, high in plane.bounds]
    if len(plane.axes) == 1:
        for end, place in zip("-+", bounds[0], strict=True):
            part = scene.faces[plane.axes[0] + end][0]
            axes.axvline(place, color=colours[part.text], **style)
        return

    # Four edges of a plane: both ends of its rows, both ends of its columns.
    for k, sign in itertools.product((0, 1), (0, 1)):
        name, along = plane.axes[k] + "-+"[sign], 1 - k
        for part, low, high in face_spans(scene, name, plane.axes[along], cut):
            ends = [low / unit.metres, high / unit.metres]
            beside = [bounds[k][sign]] * 2
            x, y = (ends, beside) if along == 1 else (beside, ends)
            axes.plot(x, y, color=colours[part.text], scalex=False, scaley=False, **style)


# The body: materials, sources, beams, probes.


def _material_colours(body: BodyMaterials) -> list[str]:
    """A colour per material, of a map that the colour-blind can read; fluids pale, voids white."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    solids = [it for it in body.materials if not it.held]
    shades = iter(colormaps["cividis"](np.linspace(0.15, 0.95, max(2, len(solids)))))
    return [
        to_hex(next(shades)) if not it.held else _VOID if it.name == "void" else _FLUID
        for it in body.materials
    ]


def _paint_materials(
    scene: Scene, axes: Axes, artist: Any, plane: Plane, unit: LengthUnit, legend: _Legend
) -> None:
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    body = scene.materials
    if body is None:
        return
    colours, names = _material_colours(body), described(body.materials)
    if plane.values.ndim == 2:
        artist.set_cmap(ListedColormap(colours))
        artist.set_clim(-0.5, len(colours) - 0.5)
    else:  # the line of the initial state stays on top
        numbers = body.numbers[body.ids(((0, scene.grid.shape[0]),))]
        ends = scene.grid.ends(0) / unit.metres
        turns = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for low, high in itertools.pairwise(turns):
            axes.axvspan(ends[low], ends[high], color=colours[numbers[low]], alpha=0.45, lw=0)
    for name, colour in zip(names, colours, strict=True):
        legend.add("materials", Patch(facecolor=colour, edgecolor="0.4", linewidth=0.6), name)


def _paint_sources(
    scene: Scene, axes: Axes, plane: Plane, cut: CrossSection, unit: LengthUnit, legend: _Legend
) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import ListedColormap, to_rgba
    from matplotlib.patches import Patch

    if scene.problem is None or not hasattr(scene.config.model, "heated"):
        return
    said = scene.config.resolved()["model"]["sources"]
    for number, heated in scene.config.model.heated(scene.config).items():
        colour = _HEAT[number % len(_HEAT)]
        text = f"source {number}: {', '.join(pairs_in_words(said[number], scene.units))}"
        if said[number].get("over_time", 1.0) != 1.0:
            text += ", over time"
        handle = Patch(facecolor=to_rgba(colour, 0.3), edgecolor=colour, hatch="////")
        legend.add("sources", handle, text)

        (mask,) = sample(
            lambda box, it=heated: it(box).astype(float),  # type: ignore[misc]
            scene.grid,
            (cut,),
            most=_POINTS,
            turned=False,
        )
        # Cells as they are sampled: their edges, not their centres, are where heat ends.
        edges = [it / unit.metres for it in mask.edges]
        inside = mask.values > 0
        if inside.ndim == 1:
            for k in np.flatnonzero(inside):
                axes.axvspan(edges[0][k], edges[0][k + 1], color=colour, alpha=0.3, lw=0)
            continue
        axes.pcolormesh(
            edges[1],
            edges[0],
            np.ma.masked_equal(inside, False),
            cmap=ListedColormap([colour]),
            alpha=0.35,
            linewidth=0,
            rasterized=True,
            zorder=3,
        )
        # A frame of cells that are not heated closes the outline at faces.
        framed = np.pad(inside.astype(np.int64), 1)
        ends = [np.concatenate([it[:1], it, it[-1:]]) for it in edges]
        lines = outlines(framed, (ends[0], ends[1]))
        axes.add_collection(LineCollection(list(lines), colors=colour, linewidths=1.4, zorder=4))


def _paint_beams(scene: Scene, axes: Axes, plane: Plane, unit: LengthUnit, legend: _Legend) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle

    said = scene.config.resolved()["model"].get("sources") or ()
    for number, beam in scene.beams:
        colour = _HEAT[number % len(_HEAT)]
        # The centre during the whole run, so that a path that leaves the face is seen.
        path = {name: it / unit.metres for name, it in scene.path(number, beam).items()}
        handle = Line2D([], [], color=colour, linewidth=1.8, linestyle="--", marker="o")
        legend.add(
            "sources",
            handle,
            f"source {number}: beam, {', '.join(pairs_in_words(said[number], scene.units))}",
        )

        style: Any = {"color": colour, "linewidth": 1.8, "linestyle": "--", "zorder": 7}
        name, sign = beam.face[:-1], beam.face[-1]
        if name not in plane.axes:  # the face is seen from the front
            y, x = (path[it] for it in plane.axes)
            axes.plot(x, y, scalex=False, scaley=False, **style)
            radius = beam.d4sigma / 2 / unit.metres
            axes.add_patch(Circle((x[0], y[0]), radius, fill=False, color=colour, zorder=7))
            axes.plot(x[-1:], y[-1:], marker="o", color=colour, scalex=False, scaley=False)
            continue

        # The face is seen from its edge: the range of the path, and where the beam begins.
        k = plane.axes.index(name)
        low, high = (it / unit.metres for it in plane.bounds[k])
        at, outwards = (low, -1) if sign == "-" else (high, 1)
        along = path[plane.axes[1 - k]] if len(plane.axes) == 2 else np.zeros(1)
        across = np.full(along.shape, at)
        if len(plane.axes) == 2:
            x, y = (along, across) if k == 0 else (across, along)
            axes.plot(x, y, clip_on=False, scalex=False, scaley=False, **style)
            tip = (x[0], y[0])
        else:
            tip = (at, sum(axes.get_ylim()) / 2)
        shift = (0, 18 * outwards) if len(plane.axes) == 2 and k == 0 else (18 * outwards, 0)
        axes.annotate(
            "",
            xy=tip,
            xytext=shift,
            textcoords="offset points",
            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.8},
            zorder=8,
        )


def _paint_probes(
    scene: Scene, axes: Axes, plane: Plane, cut: CrossSection, unit: LengthUnit, legend: _Legend
) -> None:
    from matplotlib.lines import Line2D

    # Numbers stand in the picture, names in the legend: names may be long and probes close.
    for number, (name, at) in enumerate(scene.probes, 1):
        inside = cut.axis is None or (
            scene.grid.cell_at(cut.axis, at[scene.grid.axis_names[cut.axis]]) == cut.index
        )
        x = at[plane.axes[-1]] / unit.metres
        y = at[plane.axes[0]] / unit.metres if len(plane.axes) == 2 else sum(axes.get_ylim()) / 2
        style: Any = {
            "marker": "D",
            "markersize": 6,
            "markeredgecolor": "black",
            "markerfacecolor": "white" if inside else "none",
            "linestyle": "none",
        }
        axes.plot([x], [y], scalex=False, scaley=False, clip_on=False, zorder=9, **style)
        axes.annotate(
            str(number),
            (x, y),
            xytext=(5, 4),
            textcoords="offset points",
            fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.8},
            zorder=9,
        )
        places = ", ".join(f"{axis} {unit.text(it)}" for axis, it in at.items())
        legend.add(
            "probes",
            Line2D([], [], **style | {"markerfacecolor": "white"}),
            f"{number} {name}: {places}",
        )
    if scene.probes and cut.axis is not None:
        legend.add(
            "probes",
            Line2D([], [], marker="D", markerfacecolor="none", color="black", linestyle="none"),
            "hollow: beside the plane",
        )


# The interactive view.


def view_3d(config: Config, problem: Problem) -> Any:
    """Make a PyVista plotter of a 3D body that can be turned; `show()` opens it.

    Args:
        config: the configuration.
        problem: what it builds.

    Raises:
        UnsupportedError: PyVista is not installed, or the grid has fewer than three axes.
    """
    if problem.grid.ndim < 3 or problem.grid.system.is_curved:
        msg = "the interactive view is for grids of x, y and z; a picture shows the others whole"
        raise UnsupportedError(msg)
    try:
        import pyvista
    except ImportError as error:
        msg = "the interactive view needs PyVista, which is not installed: pip install pyvista"
        raise UnsupportedError(msg) from error

    # Every stride-th cell along each axis: a view needs no more than a screen shows.
    scene, grid = Scene(config, problem), problem.grid
    strides = [-(-n // _MOST_CELLS) for n in grid.shape]
    kept = [np.arange(0, n, stride) for n, stride in zip(grid.shape, strides, strict=True)]
    ends = [
        np.append(grid.ends(axis)[index], grid.ends(axis)[-1]) for axis, index in enumerate(kept)
    ]
    # VTK counts x first, so axes are turned and the cells lie in memory as they are.
    mesh = pyvista.RectilinearGrid(*ends[::-1])
    plotter = pyvista.Plotter()
    plotter.add_mesh(mesh.outline(), color="black")

    body = scene.materials
    if body is not None:
        numbers = np.concatenate(
            [
                body.numbers[body.ids(((k, k + 1), (0, grid.shape[1]), (0, grid.shape[2])))][
                    :, kept[1]
                ][:, :, kept[2]]
                for k in kept[0].tolist()
            ]
        )
        mesh.cell_data["material"] = numbers.ravel()
        colours = _material_colours(body)
        for number, (it, name) in enumerate(
            zip(body.materials, described(body.materials), strict=True)
        ):
            part = mesh.threshold((number, number), scalars="material")
            if part.n_cells and not it.held:
                plotter.add_mesh(part, color=colours[number], label=name, opacity=0.55)

    for number, beam in scene.beams:
        path, (axis, sign) = scene.path(number, beam), (beam.face[:-1], beam.face[-1])
        at = grid.bounds(grid.axis_names.index(axis))[sign == "+"]
        columns = [path.get(name, np.full(N_TIMES, at)) for name in "xyz"]
        line = pyvista.MultipleLines(np.stack(columns, axis=1))
        plotter.add_mesh(line, color=_HEAT[number % len(_HEAT)], line_width=5)
    for name, place in scene.probes:
        plotter.add_point_labels(
            np.array([[place[axis] for axis in "xyz"]]), [name], point_color="black"
        )
    if body is not None:
        plotter.add_legend()
    plotter.show_axes()
    return plotter
