"""What Numba compiles of a loop of equations: each function once, whatever it is called with."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

from numba.core import event

import tetris_sim.cpu_kernels.equations

FOLDER = Path(tetris_sim.cpu_kernels.equations.__file__).parent


class Compiled(event.Listener):  # type: ignore[misc]
    """Counts compilations by the name of what is compiled."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()

    def on_start(self, event: Any) -> None:
        self.names[event.data["dispatcher"].py_func.__qualname__] += 1

    def on_end(self, event: Any) -> None:
        """Nothing to do."""


def test_each_function_of_the_longest_loop_is_compiled_once(tmp_path: Path) -> None:
    path = tmp_path / "strips_again.py"
    path.write_text((FOLDER / "strips.py").read_text().replace("cache=True", "cache=False"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    listener = Compiled()
    with event.install_listener("numba:compile", listener):
        spec.loader.exec_module(module)

    own = {name for name, it in vars(module).items() if hasattr(it, "py_func")}
    assert {name for name in own if listener.names[name] > 1} == set()
    assert listener.names["advance"] == 1
    assert listener.names["_copy"] == 1
    # Ghosts are filled by a function that is called by its address.
    assert listener.names["fill"] == 0
