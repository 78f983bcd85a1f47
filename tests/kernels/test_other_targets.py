"""The inner loops of `cpu.stream` on processors that are not here: with AVX2 only, and with NEON.

Kernels are written out for a width of vectors, so what LLVM makes of them for another processor can
be counted without it: every sum is fused multiply-adds of whole vectors.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from llvmlite import binding

from tetris_sim.catalogue import named_stencil
from tetris_sim.cpu_kernels.stream.kernels import KernelShape, best_shape, kernel_source

# Bytes of a vector, triple, processor, what a fused multiply-add and such a vector look like.
TARGETS = {
    "avx2": (32, "x86_64-unknown-linux-gnu", "haswell", r"vfmadd\d+p([ds])\b", r"%ymm\d+"),
    "neon": (16, "aarch64-unknown-linux-gnu", "neoverse-n1", r"fmla\b", r"\bv\d+\.(2d|4s)"),
}


def made(source: str, folder: Path, name: str) -> ModuleType:
    """The module of a source, compiled anew: code from Numba's cache has lost what it was made of."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def assembly(code: str, triple: str, processor: str) -> list[str]:
    """Instructions for another processor."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(triple).create_target_machine(cpu=processor, opt=3)
    module = binding.parse_assembly(code)
    module.triple, module.data_layout = triple, str(machine.target_data)
    return [line.strip() for line in machine.emit_assembly(module).splitlines() if line[:1] == "\t"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["heat-2d", "heat-3d", "box-2d9p"])
def test_sums_are_fused_multiply_adds_of_whole_vectors(
    name: str, dtype: str, target: str, tmp_path: Path
) -> None:
    width, triple, processor, fused, vector = TARGETS[target]
    offsets = named_stencil(name).stencil.offsets
    shape: KernelShape = best_shape(offsets, (2, 1), width)
    source = kernel_source(offsets, dtype, width // np.dtype(dtype).itemsize, shape)
    module = made(source, tmp_path, f"{name}_{dtype}_{target}".replace("-", "_"))

    lines = assembly(module.kernel.inspect_llvm(), triple, processor)
    adds = [line for line in lines if re.match(fused, line)]
    vectors = shape.jam[0] * shape.jam[1] * shape.unroll
    assert len(adds) >= (len(offsets) - 1) * vectors  # a product comes before the sums
    assert all(re.search(vector, line) for line in adds)

    # Nothing that calls a function for each sum, nothing wider, and registers enough for the sums.
    calls = [line for line in lines if re.match(r"(callq|bl|blr)\b", line)]
    assert not any(re.search(r"fmaf?\b", line) for line in calls), calls
    counts = Counter("zmm" if "zmm" in line else "" for line in lines)
    assert counts["zmm"] == 0
    spilled = [line for line in lines if re.search(r"\(%rsp\)|\[sp", line)]
    assert len(spilled) < len(adds)
