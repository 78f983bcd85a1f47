"""Predictions as tables and a picture, for docs/scaling.md: made again whenever the results beside
the page change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from benchmarks.panels import LONG_ENTRY, MARKED, finish, panels
from benchmarks.scaling import Prediction, on_grid, predict_best, predict_planned
from benchmarks.scaling_inputs import (
    GPUS_EACH,
    HOP,
    NETWORK,
    NVLINK,
    STENCILS,
    Inputs,
    measured_exchange,
    predict_measured,
    small_problem,
)
from tetris_sim.bench.tables import TextTable, billions, grid, percent
from tetris_sim.outputs.drawing import CHANGE_LINE_COLOUR, LINE_COLOUR
from tetris_sim.scheduler.plan.offer import describe_parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GPUS = tuple(1 << k for k in range(3, 13))
_LISTED = (8, 16, 64, 256, 1024, 4096)

LONG, CUBE = "weak, along one axis", "weak, along all axes"
STRONG, SMALL = "strong, what 8 GPUs hold", "strong, what fills 1 GPU"
STUDIES = (LONG, CUBE, STRONG, SMALL)
_STRONG = {STRONG: 1 << 36, SMALL: 1 << 30}  # points: 1.1 TB and 17 GB of state
TODAY, DIRECT, BESIDE = "as planned", "direct messages", "and beside the inside"
_COLOURS = {TODAY: CHANGE_LINE_COLOUR, DIRECT: "#7b93c4", BESIDE: LINE_COLOUR}
Row = Mapping[str, Prediction | None]
Predictions = Mapping[tuple[str, str], Mapping[int, Row]]


def shape_of(study: str, stencil: str, gpus: int) -> tuple[int, ...]:
    """The grid of some GPUs, a power of two.

    >>> shape_of(CUBE, "heat-3d", 16), shape_of(LONG, "heat-2d", 8), shape_of(STRONG, "heat-3d", 64)
    ((4096, 2048, 2048), (262144, 32768), (4096, 4096, 4096))
    """
    each, ndim = STENCILS[stencil], int(stencil.split("-")[1][0])
    doublings = gpus.bit_length() - 1
    if study == LONG:
        return (each * gpus, *(each,) * (ndim - 1))
    if study in _STRONG:
        return (round(_STRONG[study] ** (1 / ndim)),) * ndim
    return tuple(each << (doublings + ndim - 1 - axis) // ndim for axis in range(ndim))


def predict_all(inputs: Inputs) -> Predictions:
    """By study and stencil, for each number of GPUs: the program as it is, and with each of two
    improvements.
    """
    return {
        (study, stencil): _predict(inputs, study, stencil)
        for study in STUDIES
        for stencil in STENCILS
    }


def scaling_tables(inputs: Inputs, found: Predictions) -> dict[str, TextTable]:
    """Every table of the page, by the name that it has there."""
    return {
        "inputs": inputs_table(inputs),
        "check": check_table(inputs),
        **{study: study_table(found, study) for study in STUDIES},
        "limits": limits_table(found),
        "checkpoints": checkpoints_table(inputs),
    }


def inputs_table(inputs: Inputs) -> TextTable:
    """Rates, latencies and bandwidths, measured and assumed."""
    rows = []
    for stencil in STENCILS:
        rates = inputs.rates[stencil]
        shown = ", ".join(
            f"{points / 1e6:.3g}: {billions(rates[points])}" for points in sorted(rates)
        )
        rows.append([f"{stencil}: GStencil/s of a GPU by million points", shown, "measured"])
        rows.append(
            [
                f"{stencil}: steps per launch",
                str(inputs.depths[stencil]),
                "measured to be the fastest",
            ]
        )
    where = f"measured: exchange of {inputs.calibrated_by.where}, less the bytes"
    rows += [
        ["a message between ranks, without its bytes", f"{1e6 * inputs.software:.0f} us", where],
        [
            "GPU memory to host and back at the same time",
            f"{inputs.staging / 1e9:.1f} GB/s each way",
            "measured",
        ],
        [
            "GPU to GPU in a computer",
            f"{NVLINK / 1e9:.0f} GB/s",
            "NVIDIA: 900 GB/s both ways together",
        ],
        ["GPUs of a computer", str(GPUS_EACH), "assumed: DGX H200"],
        [
            "computer to computer, for each GPU",
            f"{NETWORK / 1e9:.0f} GB/s",
            "assumed: 400 Gbit/s port for each GPU",
        ],
        ["a short message between computers", f"{HOP * 1e6:.0f} us", "assumed"],
    ]
    return TextTable("What goes in", ("quantity", "value", "origin"), rows, 3)


def check_table(inputs: Inputs) -> TextTable:
    """The model beside what was measured on several GPUs."""
    rows = []
    for m in inputs.pairs:
        found = predict_measured(m, inputs)
        if found is None:
            continue
        step = m.points / m.rate
        by_ranks = m.case.ranks > 1
        cells = [
            m.where,
            str(m.row.time_block),
            billions(m.rate),
            billions(found.points_per_second),
        ]
        cells.append(f"{found.points_per_second / m.rate - 1:+.1%}")
        cells.append(percent(measured_exchange(m) / m.row.time_block / step) if by_ranks else "")
        rows.append([*cells, percent(found.exchanging)])
    header = (
        "what",
        "steps per block",
        "measured",
        "predicted",
        "off by",
        "exchange, measured",
        "exchange, predicted",
    )
    return TextTable("GStencil/s as predicted, beside what was measured", header, rows, 1)


def study_table(found: Predictions, study: str) -> TextTable:
    """What the program would do, and what improvements would make of it."""
    words = ("stencil", "GPUs", "grid", "pieces")
    numbers = (
        "steps per block",
        "GStencil/s",
        "efficiency",
        "done twice",
        "exchange",
        DIRECT,
        BESIDE,
    )
    rows = []
    for stencil in STENCILS:
        for gpus in _LISTED:
            row = found[study, stencil][gpus]
            today = row[TODAY]
            cells = [stencil, str(gpus), grid(shape_of(study, stencil, gpus))]
            if today is None:
                cells += ["smaller than any that was measured", *[""] * 5]
            else:
                cells += [
                    describe_parts(today.parts),
                    str(today.time_block),
                    billions(today.points_per_second),
                ]
                cells += [
                    percent(today.efficiency),
                    percent(today.twice),
                    percent(today.exchanging),
                ]
            others = [row[name] for name in (DIRECT, BESIDE)]
            rows.append([*cells, *(_efficient(each) for each in others)])
    return TextTable(
        f"Prediction, {study}: the program as it is, then efficiencies with",
        (*words, *numbers),
        rows,
        4,
    )


def limits_table(found: Predictions) -> TextTable:
    """From how many GPUs on something gives way."""
    header = (
        "study",
        "stencil",
        "pieces along several axes",
        *(f"{n} below 90 %, 50 %" for n in _COLOURS),
    )
    rows = []
    for (study, stencil), by_gpus in found.items():
        cells = [
            study,
            stencil,
            _first(by_gpus, TODAY, lambda each: sum(n > 1 for n in each.parts) > 1),
        ]
        for name in _COLOURS:
            good, half = (
                _first(by_gpus, name, functools.partial(_is_below, least)) for least in (0.9, 0.5)
            )
            cells.append(f"{good}, {half}")
        rows.append(cells)
    return TextTable("Fewest GPUs, of 8 to 4096, from which on", header, rows, 2)


def checkpoints_table(inputs: Inputs) -> TextTable:
    """How long a checkpoint takes at least, by the way that its bytes go."""
    rows = []
    for gpus in _LISTED:
        n_bytes = 8 * gpus * STENCILS["heat-2d"] ** 2
        alone, own = n_bytes / NETWORK, n_bytes / gpus / inputs.staging
        rows.append([str(gpus), f"{n_bytes / 1e12:.3g}", _duration(alone), _duration(own)])
    header = (
        "GPUs",
        "TB of one field",
        "through the port of rank 0",
        "from every GPU to its host (checkpoint.per_rank)",
    )
    return TextTable(
        "Shortest time of a checkpoint, file systems left out, with 2^30 points on each GPU",
        header,
        rows,
        1,
    )


def draw_scaling(found: Predictions) -> Figure:
    """Efficiency against GPUs, a panel for each stencil and study."""
    keys = sorted(found, key=lambda key: key[1])
    titles = [f"{stencil}, {study}" for study, stencil in keys]
    figure, places = panels(titles, columns=len(STUDIES), entry=LONG_ENTRY, entries=len(_COLOURS))
    for axes, key in zip(places, keys, strict=True):
        for name, colour in _COLOURS.items():
            pairs = [(gpus, row[name]) for gpus, row in found[key].items()]
            known = [(gpus, 100 * each.efficiency) for gpus, each in pairs if each is not None]
            if known:
                axes.plot(*zip(*known, strict=True), color=colour, label=name, **MARKED)
        axes.set_xscale("log", base=2)
        axes.set_xticks(_LISTED, [str(gpus) for gpus in _LISTED])
        axes.set_xlabel("GPUs")
        axes.set_ylim(0, 105)  # a grid larger than 2^30 points can be a little faster on each GPU
    finish(figure, places, ylabel="efficiency [%]", columns=len(STUDIES), entry=LONG_ENTRY)
    return figure


def _predict(inputs: Inputs, study: str, stencil: str) -> dict[int, Row]:
    problem = small_problem(stencil)
    today, direct = inputs.today(stencil), inputs.direct(stencil)
    found: dict[int, Row] = {}
    for gpus in GPUS:
        large = on_grid(problem, shape_of(study, stencil, gpus))
        found[gpus] = {
            TODAY: predict_planned(large, gpus, today),
            DIRECT: predict_best(large, gpus, direct),
            BESIDE: predict_best(large, gpus, inputs.direct(stencil, beside=True)),
        }
    return found


def _first(found: Mapping[int, Row], name: str, is_so: Callable[[Prediction], bool]) -> str:
    counts = [
        gpus for gpus, row in found.items() if (each := row[name]) is not None and is_so(each)
    ]
    return str(min(counts)) if counts else "never"


def _is_below(least: float, each: Prediction) -> bool:
    return each.efficiency < least


def _efficient(each: Prediction | None) -> str:
    return "" if each is None else percent(each.efficiency)


def _duration(seconds: float) -> str:
    """For example "0.17 s", "12 min"."""
    return (
        f"{seconds:.2g} s"
        if seconds < 99.5
        else f"{seconds / 60:.2g} min"
        if seconds < 5940
        else f"{seconds / 3600:.2g} h"
    )
