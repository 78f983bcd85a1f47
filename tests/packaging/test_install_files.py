"""The conda recipe, the Dockerfiles and the site say what pyproject.toml and docs/ say."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tetris_sim.version import __version__

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))[
    "project"
]
CONDA_NAMES = {"matplotlib": "matplotlib-base", "xxhash": "python-xxhash"}


def read(name: str) -> Any:
    return YAML(typ="safe").load(ROOT / name)


def test_the_recipe_asks_for_what_the_project_asks_for() -> None:
    recipe = read(".ci/recipe.yaml")
    assert recipe["context"]["version"] == __version__
    assert PROJECT["requires-python"] == f">={recipe['context']['python_min']}"
    assert PROJECT["license"] == recipe["about"]["license"]

    wanted = set()
    for requirement in PROJECT["dependencies"]:
        name, bound = requirement.split(">=")
        wanted.add(f"{CONDA_NAMES.get(name, name)} >={bound}")
    run = {it for it in recipe["requirements"]["run"] if not it.startswith(("python >", "__linux"))}
    assert run == wanted
    (entry,) = recipe["build"]["python"]["entry_points"]
    assert dict([entry.split(" = ")]) == PROJECT["scripts"]


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.cuda"])
def test_a_dockerfile_installs_extras_that_there_are(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    (extras,) = re.findall(r"\.whl\)\[([\w,]+)\]", text)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    assert ("gpu13" in extras) == name.endswith("cuda")
    assert 'ENTRYPOINT ["tetris-sim"]' in text


def test_every_page_of_the_guide_is_in_the_site() -> None:
    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        parts = entry.values() if isinstance(entry, dict) else entry
        return [page for part in parts for page in pages(part)]

    shown = pages(read("mkdocs.yml")["nav"])
    assert all((ROOT / "docs" / page).exists() for page in shown)
    for folder, kind in (("guide", "md"), ("notebooks", "ipynb")):
        there = {f"{folder}/{path.name}" for path in (ROOT / "docs" / folder).glob(f"*.{kind}")}
        assert there == {page for page in shown if page.startswith(folder)}


def test_links_out_of_the_docs_lead_to_copies_on_the_site() -> None:
    moved = runpy.run_path(str(ROOT / ".ci" / "site_links.py"))["moved"]
    assert moved("../../examples/a.yaml", "guide/bodies.md") == "../repository/examples/a.yaml"
    assert moved("../ARCHITECTURE.md", "README.md") == "repository/ARCHITECTURE.md"
    assert moved("../papers.md", "guide/bodies.md") == "../papers.md"
