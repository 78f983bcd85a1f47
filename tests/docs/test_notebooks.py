"""The notebooks run, cell by cell, and show what is kept in them; pictures and pages are made too."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def cells(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]


def numbers(text: str) -> list[float]:
    return [
        float(it) for it in re.findall(r"(?<![a-z])[-+]?[0-9]+\.?[0-9]*(?:e[-+]?[0-9]+)?", text)
    ]


def run_cell(source: str, names: dict[str, Any], where: str) -> Any:
    """The value of the last expression of a cell, as a notebook has it."""
    tree = ast.parse(source, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), where, "eval"), names)  # noqa: S307


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_kept_in_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells(path)):
        value = run_cell("".join(cell["source"]), names, f"{path.name}, cell {number}")
        kept = [it["data"] for it in cell["outputs"] if it["output_type"] == "execute_result"]
        assert (value is not None) == bool(kept), f"cell {number}"
        if not kept:
            continue
        shown = {kind for kind in ("html", "png") if hasattr(value, f"_repr_{kind}_")}
        assert shown == {
            kind for kind in ("html", "png") if any(it.endswith(kind) for it in kept[0])
        }
        for kind in shown:
            assert len(getattr(value, f"_repr_{kind}_")()) > 300
        text = "".join(kept[0]["text/plain"])
        if not shown:
            np.testing.assert_allclose(numbers(repr(value)), numbers(text), rtol=1e-6)
    assert not list(tmp_path.iterdir())


def test_notebooks_are_there_small_and_show_pictures() -> None:
    assert {path.stem for path in NOTEBOOKS} == {"first_steps", "wall", "own_equation"}
    for path in NOTEBOOKS:
        assert path.stat().st_size < 300_000
        outputs = [it for cell in cells(path) for it in cell["outputs"]]
        assert any("image/png" in it.get("data", {}) for it in outputs)
        assert not [it for it in outputs if it["output_type"] in ("error", "stream")]
