"""Compiled code that is kept on disk is made anew when anything that is compiled into it changes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tetris_sim.cpu_kernels.compiled import generate
from tetris_sim.cpu_kernels.tessellate.rows import lifted_source
from tetris_sim.model.stencils.catalogue import named_stencil

ROOMS = Path(generate.__file__).parents[1]
# The first only writes sources out; the second is a kept module of its own, named by its source.
NOT_COMPILED = {"compiled/generate.py", "plain/ghosts.py"}
BOX = named_stencil("box-3d27p").stencil
TEMPLATES = {
    path.relative_to(ROOMS).as_posix(): path.read_text()
    for path in ROOMS.rglob("*.py")
    if generate._BEGIN in path.read_text() and path.name != "generate.py"
}
SOURCES = TEMPLATES | {
    f"rows, unroll {unroll}": lifted_source(BOX, np.dtype("float64"), 4, 2, 0, unroll)
    for unroll in (1, 4)
}


def imported(text: str) -> set[str]:
    """Files of the room that a source imports, but for what stands between the two markers."""
    text = re.sub(f"{re.escape(generate._BEGIN)}.*{re.escape(generate._END)}", "", text, flags=re.S)
    found = set()
    for module, names in re.findall(
        r"^from tetris_sim\.cpu_kernels\.([\w.]+) import (\(.*?\)|.*?$)", text, re.M | re.S
    ):
        path = module.replace(".", "/")
        whole = [path] if (ROOMS / f"{path}.py").exists() else []
        found |= {*whole} or {f"{path}/{name}" for name in re.findall(r"\w+", names)}
    return {f"{path}.py" for path in found}


@pytest.mark.parametrize("name", SOURCES)
def test_all_that_is_compiled_into_a_kernel_tells_when_it_changed(name: str) -> None:
    seen: set[str] = set()
    left = imported(SOURCES[name])
    assert left
    while left:
        seen.add(file := left.pop())
        left |= imported((ROOMS / file).read_text()) - seen
    missing = seen - {*generate._CALLEES} - NOT_COMPILED
    assert not missing
