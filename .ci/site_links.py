"""A hook of mkdocs: what pages link to outside of docs/ comes along, below `repository/`.

So the same links work in a checkout and on the site.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PLACE = "repository"
_OUTSIDE = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")


def moved(link: str, page: str) -> str:
    """Where a link of a page leads to on the site; the same if that is inside of docs/.

    >>> moved("../../examples/rod.yaml", "guide/bodies.md")
    '../repository/examples/rod.yaml'
    >>> moved("../papers.md", "guide/bodies.md")
    '../papers.md'
    """
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    if not target.startswith("../"):
        return link
    return posixpath.relpath(f"{PLACE}/{target[3:]}", posixpath.dirname(page) or ".")


def on_files(files: Any, config: Any) -> Any:
    """Add the files that pages link to."""
    from mkdocs.structure.files import File

    wanted = set()
    for file in list(files.documentation_pages()):
        if file.src_uri.endswith(".md"):
            for link, _ in _OUTSIDE.findall(Path(file.abs_src_path).read_text(encoding="utf-8")):
                at = posixpath.normpath(posixpath.join(posixpath.dirname(file.src_uri), link))
                if at.startswith("../") and (ROOT / at[3:]).is_file():
                    wanted.add(at[3:])
    for name in sorted(wanted):
        path = os.fspath(ROOT / name)
        files.append(File.generated(config, f"{PLACE}/{name}", abs_src_path=path))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to them; keep pages for developers out of the search, which users ask."""
    if page.file.src_uri.startswith(("decisions/", "benchmarks/", "repository/")):
        page.meta["search"] = {"exclude": True}

    def led(match: re.Match[str]) -> str:
        return f"]({moved(match[1], page.file.src_uri)}{match[2] or ''})"

    return _OUTSIDE.sub(led, markdown)
