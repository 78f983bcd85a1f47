"""What Numba compiles of a loop: each function once, whatever it is called with, and one for Python."""

from __future__ import annotations

import gc
import importlib.util
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from numba.core import event, types
from numba.core.errors import TypingError

from tetris_sim import cpu_kernels
from tetris_sim.cpu_kernels.compiled.intrinsics import cfunc, njit

FOLDER = Path(cpu_kernels.__file__).parent


class Compiled(event.Listener):  # type: ignore[misc]
    """Counts compilations by the name of what is compiled, and notes what Python can call of it."""

    def __init__(self) -> None:
        self.names: Counter[str] = Counter()
        self.called: set[str] = set()
        self.collected = False

    def on_start(self, event: Any) -> None:
        made = event.data["dispatcher"]
        self.names[made.py_func.__qualname__] += 1
        if not made.targetoptions.get("no_cpython_wrapper"):
            self.called.add(made.py_func.__qualname__)
        self.collected |= gc.isenabled()

    def on_end(self, event: Any) -> None:
        """Nothing to do."""


@pytest.mark.parametrize("name", ["equations/strips.py", "plain/medium_sweep.py"])
def test_each_function_of_a_loop_is_compiled_once_and_none_counts_references(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / f"{Path(name).stem}_again.py"
    path.write_text((FOLDER / name).read_text().replace("cache=True", "cache=False"))
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
    assert listener.called == {"advance"}
    assert not any("NRT_incref" in it for it in module.advance.inspect_llvm().values())
    # Ghosts are filled by a function that is called by its address.
    assert listener.names["fill"] == 0


def test_nothing_is_collected_while_numba_compiles_and_again_afterwards() -> None:
    def stray(x: Any) -> Any:
        return x.no_such_thing

    listener = Compiled()
    with event.install_listener("numba:compile", listener):
        njit(types.intp(types.intp))(lambda x: x + 1)
        assert gc.isenabled()
        with pytest.raises(TypingError):
            njit(types.intp(types.intp))(stray)
    assert len(listener.names) == 2
    assert not listener.collected
    assert gc.isenabled()

    with pytest.raises(TypingError):
        cfunc(types.intp(types.intp), cache=False)(stray)
    assert gc.isenabled()
    gc.disable()
    try:
        cfunc(types.intp(types.intp), cache=False)(lambda x: x + 1)
        assert not gc.isenabled()
    finally:
        gc.enable()
