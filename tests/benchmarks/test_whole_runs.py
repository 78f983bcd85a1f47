"""What pages say of whole runs, of faces and of two GPUs is what was measured."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def page(*parts: str) -> str:
    return " ".join(DOCS.joinpath(*parts).read_text(encoding="utf-8").split())


def data(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "benchmarks" / name).read_text(encoding="utf-8"))
    return found


def test_whole_runs_beside_their_disk() -> None:
    text, found = page("benchmarks", "whole-runs.md"), data("whole-runs.json")
    for row in found["whole run"]["runs"].values():
        phases = [row[f"{it} s"] for it in ("compute", "initial", "plan", "check")]
        cells = [f"{phases[0]:.1f}", f"{phases[1]:.2f}", *(f"{it:.1f}" for it in phases[2:])]
        wanted = f"| {row['process s']:.1f} | {' | '.join(cells)} | {row['times the longer']:.2f} |"
        assert wanted in text
    disk = [it / 1e9 for it in found["whole run"]["disk bytes per second"]]
    assert "make {:.2f}, {:.2f} and {:.2f} GB/s".format(*disk) in text

    case = found["case study"]
    assert f"{case['wall s']:.1f} s, of which {case['phases']['compute']:.1f} s" in text
    over = case["wall s"] / case["phases"]["compute"] - 1
    assert f"{over:.1%}".replace("%", " % over computing") in text

    loading = found["loading"]
    assert f"{loading['random'][0]:.2f} s with compiling" in text

    for row in found["beside computing"]["runs"].values():
        files = row["output s"] + row["checkpoint s"]
        cells = [f"{row[f'{it} s']:.1f}" for it in ("process", "compute", "plan")]
        cells += [
            f"{row['initial s']:.2f}",
            f"{files:.1f}",
            f"{row['over']:.1%}".replace("%", " %"),
        ]
        assert f"| {' | '.join(cells)} |" in text

    speeds = found["reading"]["bytes per second"]
    for way, words in (("load", "to the GPU"), ("plain", "plainly")):
        said = "{:.2f}, {:.2f} and {:.2f} GB/s".format(*(it / 1e9 for it in speeds[way]))
        assert f"{said} {words}" in text
    ratio = statistics.median(speeds["load"]) / statistics.median(speeds["plain"])
    assert f"{ratio:.2f} times as fast in the median" in text

    for row in found["ranks"]["rows"]:
        plain = "{:.2f} and {:.2f}".format(*row["plain GB/s"])
        assert f"| {row['ranks']} | {row['kind']} | {row['GB/s']:.2f} | {plain} |" in text


def test_faces_with_deep_ghosts() -> None:
    text = page("decisions", "0046-faces-that-nearly-mirror.md")
    rows = [row for row in data("faces.json")["rows"] if row["weights"] != "random"]
    for row in rows:
        kinds = ("periodic", "convection", "convection framed", "contradict")
        cells = " | ".join(str(row["faces"][kind]) for kind in kinds)
        assert f"| {row['stencil']}, {row['weights']} | {cells} |" in text
    assert len(rows) == 5


@pytest.mark.parametrize(
    "stencil", ["box-2d9p", "star-2d9p", "box-3d27p", "box-2d25p", "box-2d49p"]
)
def test_frames_with_ghosts_between_steps(stencil: str) -> None:
    text = page("decisions", "0011-frames-along-the-faces.md")
    rows = [
        row["faces"]
        for row in data("faces.json")["rows"]
        if (row["stencil"], row["weights"]) == (stencil, "random")
    ]
    shares = [f"{100 * faces['convection'] / faces['periodic']:.1f}" for faces in rows]
    now = shares[-1]
    before = rf"( %)? \({shares[0]}" if len(shares) > 1 else ""
    assert re.search(rf"{stencil} (has )?{now}{before}", text), (now, shares)


def test_two_gpus_and_ranks() -> None:
    text = page("decisions", "0047-nccl-between-ranks.md")
    runs = data("two-gpus.json")["rows"]
    grids = {"heat-2d, 32768 x 32768": 32768, "heat-3d, 1024 x 1024 x 1024": 1024}
    grids |= {"heat-3d, 1024 x 1024 x 2048": 2048}
    for name, planes in grids.items():
        of_grid = [it for it in runs if it["machine"] == 1 and it["shape"][0] == planes]
        ways = {(it["ranks"], it["halos"], it["asked beside"]): it for it in of_grid}
        chosen = [ways[2, "host", False], ways[2, "nccl", False], ways[2, "nccl", True]]
        chosen.append(ways[1, "links", None])
        cells = [f"{it['median'] / 1e9:.0f} ({it['block']}" for it in chosen]
        cells = (
            [cells[0] + " steps)", *(cell + ")" for cell in cells[1:])]
            if planes == 32768
            else [cell + ")" for cell in cells]
        )
        assert f"| {name} | {' | '.join(cells)} |" in text


def test_faces_that_change() -> None:
    text, found = page("decisions", "0053-faces-that-change.md"), data("faces.json")
    rows = [row["faces"] for row in found["all"]["rows"] if row["weights"] == "equal"]
    periodic = [row["periodic"][0] for row in rows]
    assert f"| periodic | {' | '.join(map(str, periodic))} |" in text
    assert len(rows) == 3
    for kind in [kind for kind in rows[0] if kind != "periodic"]:
        cells = [
            f"{row[kind][0]} ({row[kind][0] / base:.3f})"
            for row, base in zip(rows, periodic, strict=True)
        ]
        assert f"| {kind} | {' | '.join(cells)} |" in text
    before = [round(row["faces"]["changing"][0]) for row in found["bodies before"]]
    assert "faces that change made {}, {} and {}".format(*before) in text


@pytest.mark.parametrize(
    ("stencil", "weights", "kinds", "words"),
    [
        ("star-1d5p", "random", None, "0.986 to 0.994 of periodic (star-1d5p)"),
        ("star-2d9p", "random", None, "0.963 to 0.968 (star-2d9p)"),
        ("box-2d9p", "random", None, "0.957 to 0.962, 0.968 to 0.969"),
        ("box-2d25p", "random", None, "0.957 to 0.962, 0.968 to 0.969"),
        ("box-2d49p", "random", None, "0.979 to 0.980"),
        ("box-3d27p", "random", None, "0.945 to 0.948"),
        ("box-2d25p", "symmetric", ("convection", "fixed"), "0.935 to 0.936 and 0.951"),
        ("box-2d49p", "symmetric", ("convection", "fixed"), "0.935 to 0.936 and 0.951"),
    ],
)
def test_shares_of_the_periodic_rate(
    stencil: str, weights: str, kinds: tuple[str, ...] | None, words: str
) -> None:
    text = page("decisions", "0053-faces-that-change.md").replace("\n  ", " ")
    assert words in text
    faces = next(
        row["faces"]
        for row in data("faces.json")["all"]["rows"]
        if (row["stencil"], row["weights"]) == (stencil, weights)
    )
    base = faces["periodic"][0]
    shares = [faces[k][0] / base for k in kinds or [k for k in faces if k != "periodic"]]
    found = {f"{it:.3f}" for it in (min(shares), max(shares))}
    assert all(it in words for it in found), found
