"""Write the tables and pictures of docs/benchmarks/ from the JSON files there: `python
docs/make_benchmark_pages.py`.

In a page, what stands between `<!-- tables: FILE.json -->` and `<!-- end of tables -->` is made
from that file; so are the pictures that the page shows and whose names begin like the file's.
Between `<!-- goals -->` and `<!-- end of goals -->` stands what all results of `bench devices` on
the page say about what was wanted. Predictions in docs/scaling.md are made from the same files.
Tests compare the pages with what this would write, so that no figure can be changed by hand.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from benchmarks.device_goals import goals_table  # noqa: E402
from benchmarks.pictures import draw_all, save  # noqa: E402
from benchmarks.scaling_inputs import read_inputs  # noqa: E402
from benchmarks.scaling_tables import draw_scaling, predict_all, scaling_tables  # noqa: E402
from benchmarks.study_tables import as_markdown  # noqa: E402

from tetris_sim.bench.result import read_result  # noqa: E402

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "benchmarks"
SCALING = Path(__file__).parent / "scaling.md"

_TABLES = re.compile(
    r"^<!-- tables: (?P<file>[^ ]+) -->\n.*?^<!-- end of tables -->$",
    re.MULTILINE | re.DOTALL,
)
_GOALS = re.compile(r"^<!-- goals -->$.*?^<!-- end of goals -->$", re.MULTILINE | re.DOTALL)
_SCALING = re.compile(
    r"^<!-- scaling: (?P<name>[^>]+) -->$.*?^<!-- end of scaling -->$", re.MULTILINE | re.DOTALL
)


def filled(page: str, folder: Path = FOLDER) -> str:
    """A page with its tables made anew."""

    def tables(found: re.Match[str]) -> str:
        result = json.loads((folder / found["file"]).read_text(encoding="utf-8"))
        return f"<!-- tables: {found['file']} -->\n\n{as_markdown(result)}\n<!-- end of tables -->"

    page = _TABLES.sub(tables, page)
    results = [json.loads((folder / name).read_text(encoding="utf-8")) for name in sources(page)]
    goals = goals_table(map(read_result, results)).as_markdown()
    return _GOALS.sub(lambda _: f"<!-- goals -->\n\n{goals}\n\n<!-- end of goals -->", page)


def sources(page: str) -> list[str]:
    """The JSON files that a page has tables of."""
    return [found["file"] for found in _TABLES.finditer(page)]


def write_pictures(page: str, folder: Path = FOLDER) -> list[Path]:
    """Draw the pictures that a page shows, beside it; their paths."""
    written = []
    for name in sources(page):
        result = json.loads((folder / name).read_text(encoding="utf-8"))
        for kind, figure in draw_all(result).items():
            path = folder / f"{Path(name).stem}-{kind}.svg"
            if f"({path.name})" in page:
                save(figure, path)
                written.append(path)
    return written


def scaling_page(page: str, folder: Path = FOLDER) -> tuple[str, Figure]:
    """docs/scaling.md with the predictions that the files of benchmarks/ give, and its picture."""
    names = [*sorted(folder.glob("gpu-sweep-*.json")), *sorted(folder.glob("devices-*.json"))]
    inputs = read_inputs([json.loads(path.read_text(encoding="utf-8")) for path in names])
    predictions = predict_all(inputs)
    tables = scaling_tables(inputs, predictions)

    def table(found: re.Match[str]) -> str:
        made = tables[found["name"]].as_markdown()
        return f"<!-- scaling: {found['name']} -->\n\n{made}\n\n<!-- end of scaling -->"

    return _SCALING.sub(table, page), draw_scaling(predictions)


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text), encoding="utf-8")
        write_pictures(text)
    SCALING.write_text(
        (made := scaling_page(SCALING.read_text(encoding="utf-8")))[0], encoding="utf-8"
    )
    save(made[1], SCALING.with_name("images") / "scaling.svg")
