"""Compiled code that is kept on disk is made anew when anything that is compiled into it changes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tetris_sim
from tetris_sim.cpu_kernels.compiled import generate
from tetris_sim.cpu_kernels.tessellate.rows import lifted_source
from tetris_sim.model.stencils.catalogue import named_stencil

ROOT = Path(tetris_sim.__file__).parent
ROOMS = Path(generate.__file__).parents[1]
BOX = named_stencil("box-3d27p").stencil
SOURCES = {
    path.relative_to(ROOMS).as_posix(): path.read_text()
    for path in ROOMS.rglob("*.py")
    if "# [" in path.read_text() and path.name != "generate.py"
} | {
    f"rows, unroll {unroll}": lifted_source(BOX, np.dtype("float64"), 4, 2, 0, unroll)
    for unroll in (1, 4)
}
# What a kernel's source is written by decides its text, and the text is digested as well; these
# have no say in what compiled code does.
NO_SAY = ("errors", "support/", "config/")


def imported(text: str) -> set[Path]:
    """Files of the package that a source imports."""
    found = set()
    for module, names in re.findall(
        r"^from tetris_sim\.([\w.]+) import (\(.*?\)|.*?$)", text, re.M | re.S
    ):
        path = ROOT / module.replace(".", "/")
        if path.with_suffix(".py").exists():
            found.add(path.with_suffix(".py"))
        else:
            found |= {path / f"{name}.py" for name in re.findall(r"\w+", names)}
    return {path.resolve() for path in found if path.exists()}


@pytest.mark.parametrize("name", SOURCES)
def test_all_that_is_compiled_into_a_kernel_tells_when_it_changed(name: str) -> None:
    digested = {path.resolve() for path in generate.digested_sources()}
    left = imported(SOURCES[name])
    assert left
    seen: set[Path] = set()
    while left:
        seen.add(path := left.pop())
        if path in digested:
            left |= imported(path.read_text()) - seen
    missing = {path.relative_to(ROOT.resolve()).as_posix() for path in seen - digested}
    assert not {name for name in missing if not name.startswith(NO_SAY)}


@pytest.mark.parametrize("name", ["stencil.py", "grid.py"])
def test_the_order_of_a_chain_and_the_axes_tell_when_they_changed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `chain_order` and `on_three` decide what unrolled rows do, whose text does not show it.
    sources = generate.digested_sources()
    (changed,) = (path for path in sources if path.parent.name == "model" and path.name == name)
    before = generate.sources_digest.__wrapped__()
    (tmp_path / name).write_text(changed.read_text() + "# another order\n")
    others = [path if path != changed else tmp_path / name for path in sources]
    monkeypatch.setattr(generate, "digested_sources", lambda: others)
    assert generate.sources_digest.__wrapped__() != before
