"""Pictures of tables: columns over time, those of one unit in one panel."""

from __future__ import annotations

from collections.abc import Sequence

from tetris_sim.outputs.drawing import STYLE, Built, Drawing, write_numbers
from tetris_sim.outputs.table import LEADING

_WIDTH, _HEIGHT = 8.0, 2.8  # inches of a panel
_MARKED = 40  # rows up to which each has a dot


def draw_table(
    columns: Sequence[str], rows: Sequence[Sequence[float]], names: Sequence[str], *, title: str
) -> Drawing:
    """Some columns of a table over simulated time.

    Args:
        columns: of the rows; step and time first.
        rows: of the table, at least one.
        names: which columns.
        title: above everything.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    units: dict[str, list[str]] = {}
    for name in names:
        units.setdefault(name.rpartition(" [")[2].rstrip("]"), []).append(name)
    along = [row[columns.index(LEADING[1])] for row in rows]

    with rc_context(STYLE):
        figure = Figure((_WIDTH, _HEIGHT * len(units) + 0.3), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(units), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (unit, shown) in zip(panels, units.items(), strict=True):
            for name in shown:
                values = [row[columns.index(name)] for row in rows]
                marker = "." if len(rows) <= _MARKED else ""
                axes.plot(along, values, label=name.rpartition(" [")[0] or name, marker=marker)
            write_numbers(axes)
            axes.set_ylabel(unit.replace("degC", "°C"))
            axes.grid(color="0.92", linewidth=0.8)
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
            axes.spines[["top", "right"]].set_visible(False)
        panels[-1].set_xlabel(LEADING[1])
        heading = figure.suptitle(title, fontweight="bold", x=0.01, ha="left")
    built = Built(figure, tuple(panels), (), heading)
    return Drawing(lambda: built)
