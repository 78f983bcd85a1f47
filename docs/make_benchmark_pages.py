"""Write the tables and pictures of docs/benchmarks/ from the JSON files there: `python
docs/make_benchmark_pages.py`.

A page has a JSON file of its own name, and so have its pictures. A file holds one result of a
benchmark, or several below `runs`. In a page, what stands between

- `<!-- tables: FILE.json -->`, or `FILE.json#RUN`, and `<!-- end of tables -->` is made from that
  file;
- `<!-- goals -->` and `<!-- end of goals -->` is what all results of `bench devices` on the page
  say about what was wanted;
- `<!-- summary: NAME -->` and `<!-- end of summary -->` is a table of `benchmark_summaries.py`.

Predictions in docs/scaling.md are made from the same files. Files are written anew with eight
digits of each number. Tests compare the pages with what this would write, so that no figure can be
changed by hand.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from benchmark_summaries import SUMMARIES  # noqa: E402
from small_files import compact, save_picture  # noqa: E402

from benchmarks.device_goals import goals_table  # noqa: E402
from benchmarks.pictures import draw_all  # noqa: E402
from benchmarks.scaling_inputs import read_inputs  # noqa: E402
from benchmarks.scaling_tables import draw_scaling, predict_all, scaling_tables  # noqa: E402
from benchmarks.study_tables import as_markdown  # noqa: E402
from tetris_sim.bench.result import read_result  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "benchmarks"
SCALING = Path(__file__).parent / "scaling.md"
SPARSTENCIL = Path(__file__).parents[1] / "benchmarks" / "sparstencil_page.py"


def _between(first: str, last: str) -> re.Pattern[str]:
    """What stands between two lines of comment."""
    return re.compile(rf"^<!-- {first} -->$.*?^<!-- {last} -->$", re.MULTILINE | re.DOTALL)


_TABLES = _between(r"tables: (?P<file>[^ #]+)(?:#(?P<run>[^ ]+))?", "end of tables")
_GOALS = _between("goals", "end of goals")
_SUMMARY = _between("summary: (?P<name>[^>]+)", "end of summary")
_SCALING = _between("scaling: (?P<name>[^>]+)", "end of scaling")


def read_runs(path: Path) -> dict[str | None, dict[str, Any]]:
    """The results of a file by the names of its runs; one without a name if there are no runs."""
    content = json.loads(path.read_text(encoding="utf-8"))
    runs: dict[str | None, dict[str, Any]] = content.get("runs", {None: content})
    return runs


def sources(page: str) -> list[tuple[str, str | None]]:
    """The JSON files that a page has tables of, and which run."""
    return [(match["file"], match["run"]) for match in _TABLES.finditer(page)]


def filled(page: str, folder: Path = FOLDER) -> str:
    """A page with its tables made anew."""

    def tables(match: re.Match[str]) -> str:
        text = as_markdown(read_runs(folder / match["file"])[match["run"]])
        return _framed(match, text.rstrip("\n"), "tables")

    def summary(match: re.Match[str]) -> str:
        table = SUMMARIES[match["name"]](lambda name: read_runs(folder / name))
        return _framed(match, table.as_markdown(), "summary")

    page = _SUMMARY.sub(summary, _TABLES.sub(tables, page))
    results = [read_runs(folder / file)[run] for file, run in sources(page)]
    goals = goals_table(read_result(result) for result in results if "devices" in result)
    return _GOALS.sub(lambda match: _framed(match, goals.as_markdown(), "goals"), page)


def _framed(match: re.Match[str], text: str, what: str) -> str:
    """A text between the comments that were around the old one."""
    return f"{match[0].splitlines()[0]}\n\n{text}\n\n<!-- end of {what} -->"


def write_pictures(page: str, folder: Path = FOLDER) -> list[Path]:
    """Draw the pictures that a page shows, beside it; their paths."""
    written = []
    for name in dict.fromkeys(file for file, _ in sources(page)):
        for kind, figure in draw_all(joined(list(read_runs(folder / name).values()))).items():
            path = folder / f"{Path(name).stem}-{kind}.svg"
            if f"({path.name})" in page:
                save_picture(figure, path)
                written.append(path)
    return written


def joined(results: list[dict[str, Any]]) -> dict[str, Any]:
    """One result with the lists of all, to be drawn in one picture; of devices, only those of the
    first: sets of one run are compared with each other.
    """
    lists = {
        key: [entry for result in results for entry in result[key]]
        for key, value in results[0].items()
        if isinstance(value, list) and key != "devices"
    }
    return {**results[0], **lists}


def write_sparstencil(folder: Path = FOLDER) -> None:
    """The page of SparStencil's figures has a maker of its own."""
    maker = runpy.run_path(str(SPARSTENCIL))
    path, formats = folder / "sparstencil.json", folder / "sparstencil-formats.json"
    (result,), (others,) = (read_runs(each).values() for each in (path, formats))
    text = maker["page"](result, path.stem, others, formats.stem)
    path.with_suffix(".md").write_text(text, encoding="utf-8")

    measured = [row for row in result["catalogue"] if "median" in row]
    catalogue, layouts = maker["draw_catalogue"](measured), maker["draw_layouts"](result["model"])
    save_picture(catalogue, folder / f"{path.stem}-catalogue.svg")
    save_picture(layouts, folder / f"{path.stem}-layouts.svg")


def scaling_page(page: str, folder: Path = FOLDER) -> tuple[str, Figure]:
    """docs/scaling.md with the predictions that the files of benchmarks/ give, and its picture."""
    swept, devices = (read_runs(folder / name) for name in ("gpu-sweep.json", "devices.json"))
    inputs = read_inputs([*swept.values(), *(devices[run] for run in sorted(devices, key=str))])
    predictions = predict_all(inputs)
    tables = scaling_tables(inputs, predictions)

    def table(match: re.Match[str]) -> str:
        return _framed(match, tables[match["name"]].as_markdown(), "scaling")

    return _SCALING.sub(table, page), draw_scaling(predictions)


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.json")):
        path.write_text(compact(json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")

    write_sparstencil()
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text), encoding="utf-8")
        write_pictures(text)

    text, figure = scaling_page(SCALING.read_text(encoding="utf-8"))
    SCALING.write_text(text, encoding="utf-8")
    save_picture(figure, SCALING.with_name("images") / "scaling.svg")
