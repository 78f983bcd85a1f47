"""Write the tables and pictures of docs/benchmarks/ from the JSON files there: `python docs/make_benchmark_pages.py`.

In a page, what stands between `<!-- tables: FILE.json -->` and `<!-- end of tables -->` is made from that file; so are
the pictures that the page shows and whose names begin like the file's. Between `<!-- goals -->` and
`<!-- end of goals -->` stands what all results of `bench devices` on the page say about what was wanted. A test
compares the pages with what this would write, so that no figure can be changed by hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tetris_sim.bench.device_goals import goals_table
from tetris_sim.bench.plots import draw_all, save
from tetris_sim.bench.tables import as_markdown, table_as_markdown

FOLDER = Path(__file__).parent / "benchmarks"

_TABLES = re.compile(
    r"^<!-- tables: (?P<file>[^ ]+) -->\n.*?^<!-- end of tables -->$",
    re.MULTILINE | re.DOTALL,
)
_GOALS = re.compile(r"^<!-- goals -->$.*?^<!-- end of goals -->$", re.MULTILINE | re.DOTALL)


def filled(page: str, folder: Path = FOLDER) -> str:
    """A page with its tables made anew."""

    def tables(found: re.Match[str]) -> str:
        result = json.loads((folder / found["file"]).read_text(encoding="utf-8"))
        return f"<!-- tables: {found['file']} -->\n\n{as_markdown(result)}\n<!-- end of tables -->"

    page = _TABLES.sub(tables, page)
    found = [json.loads((folder / name).read_text(encoding="utf-8")) for name in sources(page)]
    goals = table_as_markdown(goals_table([result for result in found if "devices" in result]))
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


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text), encoding="utf-8")
        write_pictures(text)
