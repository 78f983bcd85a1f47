"""Run the notebooks of docs/notebooks/ and keep what they show: python docs/run_notebooks.py.

Needs `pip install nbclient ipykernel`; the tests run the cells without them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

NOTEBOOKS = Path(__file__).parent / "notebooks"


def run(path: Path) -> None:
    """Run a notebook in an empty folder and write its outputs into it."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata = {}  # when it was run changes nothing
    notebook.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        run(path)
