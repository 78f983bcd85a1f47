"""What LLVM makes of kernels for processors that are not here.

Kernels are written out for a width of vectors, so what becomes of them on another processor can be
counted without it.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from llvmlite import binding

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@dataclass(frozen=True)
class Target:
    """A processor.

    Attributes:
        width: bytes of a vector.
        triple: of LLVM.
        processor: of LLVM.
        fused: what a fused multiply-add looks like.
        vector: what a whole vector looks like.
    """

    width: int
    triple: str
    processor: str
    fused: str
    vector: str


_FUSED = r"vfn?m(add|sub)\d+p([ds])\b"
TARGETS = {
    "avx2": Target(32, X86, "haswell", _FUSED, r"%ymm\d+"),
    "avx512": Target(64, X86, "skylake-avx512", _FUSED, r"%zmm\d+"),
    "neon": Target(16, ARM, "neoverse-n1", r"fml[as]\b", r"\bv\d+\.(2d|4s)"),
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


def assembly(function: Any, target: Target) -> list[str]:
    """Lines of a compiled function for another processor: labels and instructions."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    found = binding.Target.from_triple(target.triple)
    machine = found.create_target_machine(cpu=target.processor, opt=3)
    module = binding.parse_assembly(function.inspect_llvm())
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    text: str = machine.emit_assembly(module)
    return text.splitlines()


def instructions(lines: list[str]) -> list[str]:
    """Without labels and what is for the assembler."""
    return [line.strip() for line in lines if re.match(r"\t[a-z]", line)]


def inner_loops(lines: list[str], target: Target) -> list[list[str]]:
    """The instructions of loops that contain no other loop, of those with sums of vectors."""
    labels = {line.split(":")[0]: k for k, line in enumerate(lines) if line.startswith(".L")}
    spans = []
    for end, line in enumerate(lines):
        jump = re.match(r"\t(?:j|b\.|cbn?z|tbn?z)\S*\s.*?(\.L\w+)", line)
        if jump and labels.get(jump[1], end) < end:
            spans.append((labels[jump[1]], end))
    inner = [
        (first, last)
        for first, last in spans
        if not any(first <= a and b <= last and (a, b) != (first, last) for a, b in spans)
    ]
    loops = [instructions(lines[first : last + 1]) for first, last in inner]
    return [loop for loop in loops if sums(loop, target)]


def sums(loop: list[str], target: Target) -> list[str]:
    """Fused multiply-adds."""
    return [line for line in loop if re.match(target.fused, line)]


def counted(loop: list[str], target: Target) -> Counter[str]:
    """How many sums, products and differences a loop has, how many of them are of whole vectors,
    and how often it calls something or reads or writes what did not fit the registers.
    """
    found: Counter[str] = Counter()
    for line in loop:
        arithmetic = re.match(r"v?f?(mul|sub|add)(p[ds])?\b|vf|fml[as]", line)
        # Sums of addresses have no vectors in them, and those of ours always do.
        if arithmetic and re.search(r"mm\d|\bv\d|\bd\d", line):
            kind = "sum" if re.match(target.fused, line) else arithmetic[1]
            found[str(kind)] += 1
            found["whole"] += bool(re.search(target.vector, line))
            found["arithmetic"] += 1
        found["call"] += bool(re.match(r"(callq|bl|blr)\b", line))
        found["spill"] += bool(re.search(r"\(%rsp\)|\[sp", line))
    return found
