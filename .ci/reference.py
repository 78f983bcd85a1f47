"""Build the API reference from the docstrings: python .ci/reference.py docs/api.

pdoc documents what it finds in a module's namespace. The public names of `tetris_sim` and of its
`config` are loaded on first use, so they are loaded here first; and as the package has an
`__all__`, its modules are named one by one (pdoc finds those below).
"""

from __future__ import annotations

import pkgutil
import sys
import warnings
from pathlib import Path

import pdoc

import tetris_sim
import tetris_sim.config


def main(folder: Path) -> int:
    """Write the reference into `folder`; a warning of pdoc's is an error."""
    for package in (tetris_sim, tetris_sim.config):
        for name in package.__all__:
            setattr(package, name, getattr(package, name))
    found = pkgutil.iter_modules(tetris_sim.__path__, "tetris_sim.")
    modules = [
        "tetris_sim",
        *(module.name for module in found if not module.name.endswith("__main__")),
    ]
    pdoc.render.configure(docformat="google", footer_text=f"tetris_sim {tetris_sim.__version__}")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        pdoc.pdoc(*modules, output_directory=folder)
    pages = sum(1 for _ in folder.rglob("*.html"))
    print(f"{pages} pages: {folder / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
