"""Kernels of gpu_kernels as C++ for the host, whole launches of them: what they compute can be
tested without a GPU.

cuda_on_host.h says how threads, shared memory, copies and tensor cores are imitated. Here sources
are made ready for it: inline PTX becomes calls, declarations of shared memory become places there.
PTX that is not known is an error. Libraries are kept in the cache folder, which the workers of a
test session share: a kernel is compiled once.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import itertools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tetris_sim.gpu_kernels.common import device
from tetris_sim.support.files import atomic_text, cache_directory

COMPILER = shutil.which("g++") or shutil.which("c++")
NO_COMPILER = "there is no C++ compiler"

_HERE = Path(__file__).parent
# Contracted by no one, as on the GPU (device.py); `native` for multiply-adds that are instructions.
_OPTIONS = (
    "-std=c++17",
    "-march=native",
    "-w",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fPIC",
    "-fvisibility=hidden",
)

# Reads the symbols of the C++ library in a tenth of the time of others, which is a quarter of all.
_LINKER = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()

# Inline PTX, and the call that imitates it; {0} is the first operand.
_PTX = (
    (r"", ""),  # keeps the compiler from looking through a value
    (
        r"cp\.async\.c[ag]\.shared\.global \[%0\], \[%1\], (?P<n>\d+);",
        "on_host::copy_async({0}, {1}, {n}, {n})",
    ),
    (
        r"cp\.async\.cg\.shared\.global \[%0\], \[%1\], (?P<n>\d+), %2;",
        "on_host::copy_async({0}, {1}, {n}, {2})",
    ),
    (
        r"{ \.reg \.pred p; setp\.ne\.b32 p, %2, 0; "
        r"@p cp\.async\.cg\.shared\.global \[%0 \+ %3\], \[%1 \+ %3\], (?P<n>\d+); }",
        "if ({2}) on_host::copy_async({0} + {3}, {1} + {3}, {n}, {n})",
    ),
    (r"rcp\.approx\.ftz\.f(?:32|64) %0, %1;", "{0} = on_host::approximate_inverse({1})"),
    (r"cp\.async\.commit_group;", "on_host::commit_group()"),
    (r"cp\.async\.wait_group %0;", "on_host::wait_group({0})"),
    (r"cp\.async\.wait_all;", "on_host::wait_all()"),
    (r"prefetch\.global\.L2 \[%0\];", ""),
    (r"fence\.proxy\.async\.shared::cta;", ""),
    (r"mbarrier\.init\.shared::cta\.b64 \[%0\], (?P<n>\d+);", "on_host::init_arrival({0}, {n})"),
    (
        r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64 _, \[%0\], %1;",
        "on_host::arrive_expecting({0}, {1})",
    ),
    (
        r"{ \.reg \.pred done; again: mbarrier\.try_wait\.parity\.shared::cta\.b64 done, \[%0\], %1; "
        r"@!done bra again; }",
        "on_host::wait_arrival({0}, {1})",
    ),
    (
        r"{ \.reg \.pred done; mbarrier\.try_wait\.parity\.shared::cta\.b64 done, \[%1\], %2; "
        r"selp\.s32 %0, 1, 0, done; }",
        "(on_host::wait_arrival({1}, {2}), {0} = 1)",
    ),
    (
        r"cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes \[%0\], \[%1\], %2, \[%3\];",
        "on_host::bulk_in({0}, {1}, {2}, {3})",
    ),
    (
        r"cp\.async\.bulk\.global\.shared::cta\.bulk_group \[%0\], \[%1\], %2;",
        "on_host::bulk_out({0}, {1}, {2})",
    ),
    (r"cp\.async\.bulk\.commit_group;", ""),
    (r"cp\.async\.bulk\.wait_group\.read 0;", "on_host::bulk_wait_read()"),
    (
        r"cvt\.rn\.f16x2\.f32 %0, %1, %2;",
        "{0} = on_host::to_half({1}) << 16 | on_host::to_half({2})",
    ),
    (
        r"ldmatrix\.sync\.aligned\.m8n8\.x4\.trans\.shared\.b16 {%0, %1, %2, %3}, \[%4\];",
        "on_host::load_transposed({{&{0}, &{1}, &{2}, &{3}}}, {4})",
    ),
    (
        r"cvt\.rn\.bf16x2\.f32 %0, %1, %2;",
        "{0} = on_host::to_bf16({1}) << 16 | on_host::to_bf16({2})",
    ),
    (r"cvt\.rna\.tf32\.f32 %0, %1;", "{0} = on_host::to_tf32({1})"),
    (r"cvt\.rn\.f16\.f32 %0, %1;", "{0} = on_host::to_half({1})"),
    (r"cvt\.rn\.f16\.f64 %0, %1;", "{0} = on_host::to_half({1})"),
    (r"cvt\.f32\.f16 %0, %1;", "{0} = on_host::from_half({1})"),
    (r"ld\.acquire\.gpu\.global\.u32 %0, \[%1\];", "{0} = on_host::read_flag({1})"),
    (r"st\.release\.gpu\.global\.u32 \[%0\], %1;", "on_host::raise_flag({0}, {1})"),
    (r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16 %0, %1;", "{0} = on_host::transpose({1})"),
)
_PRODUCT = re.compile(
    r"mma\.sync\.aligned\.m(?P<m>8|16)n8k(?P<k>\d+)\.row\.col\.f64\.f64\.f64\.f64 .*"
)

# With a sparse A: {d} {a} {b} {c} metadata, selector.
_SPARSE_PRODUCT = re.compile(
    r"mma\.sp::ordered_metadata\.sync\.aligned\.m16n8k(?P<k>16|32)\.row\.col\.f32\."
    r"(?P<kind>f16|bf16|tf32)\.(?P=kind)\.f32 .*, %16, %17;"
)

# Dense products of shorter formats: {d} {a} {b} {c}.
_NARROW_PRODUCT = re.compile(
    r"mma\.sync\.aligned\.m16n8k(?P<k>8|16)\.row\.col\."
    r"(?P<sums>f16|f32)\.(?P<kind>f16|bf16|tf32)\.(?P=kind)\.(?P=sums) .*"
)

_DYNAMIC = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];")
_STATIC = re.compile(r"(?<!extern )__shared__ ([\w ]+?) (\w+)((?:\[\w+\])*);")
_ENTRY = re.compile(r'extern "C" __global__ void\s+(?:__launch_bounds__\([^()]*\)\s+)?(\w+)\(')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')


class EmulationError(AssertionError):
    """A kernel did what it must not do."""


class _Launch(ctypes.Structure):
    """`on_host::Launch` of cuda_on_host.h."""

    _fields_ = (
        ("grid", ctypes.c_int * 3),
        ("block", ctypes.c_int * 3),
        ("shared_bytes", ctypes.c_int),
        ("descending", ctypes.c_int),
        ("together", ctypes.c_int),
        ("src", ctypes.c_void_p),
        ("dst", ctypes.c_void_p),
        ("plane", ctypes.c_longlong),
        ("row", ctypes.c_longlong),
        ("item", ctypes.c_longlong),
        ("low", ctypes.c_int * 3),
        ("high", ctypes.c_int * 3),
        ("n_others", ctypes.c_int),
        ("others", ctypes.c_void_p * 8),
        ("other_bytes", ctypes.c_longlong * 8),
    )


def at(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    """An array as an argument that is a pointer."""
    return ctypes.c_void_p(array.ctypes.data)


class Emulated:
    """A kernel file as a library."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def launch(
        self,
        entry: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        arguments: Sequence[Any],
        shared_bytes: int = 0,
        *,
        copied: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]] | None = None,
        others: Sequence[npt.NDArray[Any]] = (),
        descending: bool = False,
        together: bool = False,
    ) -> None:
        """Run all threads.

        Args:
            entry: name of the kernel.
            grid: blocks along x, y, z.
            block: threads along x, y, z.
            arguments: pointers (`at`), numbers of ctypes, and arrays, whose bytes are handed over
                by value.
            shared_bytes: dynamic shared memory.
            copied: (src, dst, memory) that asynchronous copies may touch: src and dst from the
                first owned point on.
            others: arrays that such copies may read, too.
            descending: whether the last thread comes first.
            together: whether all blocks run at a time, as of a cooperative launch.

        Raises:
            EmulationError: what a thread did.
        """
        how = _Launch(
            (ctypes.c_int * 3)(*grid),
            (ctypes.c_int * 3)(*block),
            shared_bytes,
            int(descending),
            int(together),
        )
        if copied is not None:
            src, dst, memory = copied
            how.src, how.dst, how.item = src.ctypes.data, dst.ctypes.data, src.itemsize
            how.plane, how.row = int(memory["plane"][0]), int(memory["row"][0])
            how.low, how.high = (
                (ctypes.c_int * 3)(*map(int, memory[end][0])) for end in ("low", "high")
            )
        how.n_others = len(others)
        for number, array in enumerate(others):
            how.others[number], how.other_bytes[number] = array.ctypes.data, array.nbytes
        values = (ctypes.c_void_p * len(arguments))(*map(_address, arguments))
        run = self._library[f"run_{entry}"]
        run.restype = ctypes.c_char_p
        wrong = run(values, ctypes.byref(how))
        if wrong is not None:
            raise EmulationError(wrong.decode())


def _address(argument: Any) -> int:
    if isinstance(argument, np.ndarray):
        return int(argument.ctypes.data)
    return ctypes.addressof(argument)


def emulate(
    name: str | Path, defines: Mapping[str, str | int], architecture: int = 900
) -> Emulated:
    """A kernel file of gpu_kernels, or one elsewhere.

    Args:
        name: of the file.
        defines: its parameters, without -D.
        architecture: __CUDA_ARCH__, 800 or 900.
    """
    return _compile(
        device.find_source(str(name)),
        tuple(sorted({**defines, "__CUDA_ARCH__": architecture}.items())),
    )


@functools.lru_cache(maxsize=24)
def _compile(path: Path, defines: tuple[tuple[str, str | int], ...]) -> Emulated:
    source = _complete(path.read_text(encoding="utf-8"))
    options = ["-O1", "-shared", *(f"-D{key}={value}" for key, value in defines)]
    digest = hashlib.sha256("\0".join([source, *options]).encode()).hexdigest()[:24]
    library = _folder() / f"{path.stem}_{digest}.so"
    if not library.exists():
        text = library.with_name(f"{digest}.cpp")
        atomic_text(text, source)
        # GCC takes the header as it was compiled with the same options; others read it again.
        command = ["-Iprecompiled", *options, str(text), "cuda_on_host.o", *_LINKER]
        _run_compiler(command, library, _folder())
    return Emulated(ctypes.CDLL(str(library)))


def _complete(source: str) -> str:
    """A kernel file with all that makes it a library."""
    launches = "".join(f"RUN_ON_HOST({entry})\n" for entry in _ENTRY.findall(source))
    return f"#include <cuda_on_host.h>\n{translate(source)}\n{launches}"


def _run_compiler(arguments: Sequence[str], made: Path, folder: Path) -> None:
    """Make a file in a folder, where it appears when it is whole: others may want the same."""
    assert COMPILER is not None, NO_COMPILER
    with tempfile.TemporaryDirectory(dir=made.parent) as unfinished:
        part = Path(unfinished) / made.name
        command = [COMPILER, *_OPTIONS, *arguments, "-I.", "-o", str(part)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        if done.returncode:
            raise EmulationError(done.stderr)
        part.replace(made)


@functools.cache
def _folder() -> Path:
    """Where libraries are, and what all of them are made of: the headers of gpu_kernels,
    translated, and what is the same for every kernel, compiled.
    """
    assert COMPILER is not None, NO_COMPILER
    texts = {path.name: path.read_text(encoding="utf-8") for path in _HERE.glob("cuda_on_host.*")}
    for path in device.headers():
        texts[path.name] = translate(path.read_text(encoding="utf-8"))
    # The same options mean other instructions to another compiler or on another CPU.
    target = [COMPILER, *_OPTIONS, "-###", "-E", "-x", "c++", "/dev/null"]
    about = subprocess.run(target, capture_output=True, text=True, check=True).stderr
    digest = hashlib.sha256("\0".join([about, *texts, *texts.values()]).encode()).hexdigest()[:24]

    folder = cache_directory("emulation") / digest
    if not (folder / "cuda_on_host.o").exists():
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            atomic_text(folder / name, text)
        (folder / "precompiled").mkdir(exist_ok=True)
        header = ["-O1", "-x", "c++-header", "cuda_on_host.h"]
        _run_compiler(header, folder / "precompiled" / "cuda_on_host.h.gch", folder)
        _run_compiler(["-O2", "-c", "cuda_on_host.cpp"], folder / "cuda_on_host.o", folder)
    return folder


def translate(source: str) -> str:
    """CUDA C++ without inline PTX and declarations of shared memory."""
    source = _DYNAMIC.sub(r"\1* const \2 = reinterpret_cast<\1*>(on_host::dynamic_shared);", source)
    source = _STATIC.sub(
        r"static on_host::Variable<\1\3> place_of_\2; auto& \2 = place_of_\2.get();", source
    )
    done, parts = 0, []
    for found in re.finditer(r"\basm(?: volatile)?\s*\(", source):
        end = _closing(source, found.end())
        parts += [source[done : found.start()], _call(source[found.end() : end])]
        done = end + 1
    return "".join([*parts, source[done:]])


def _call(statement: str) -> str:
    """What imitates the inline PTX between the parentheses of `asm`."""
    template, *sections = _split(statement, ":")
    instruction = " ".join("".join(_STRING.findall(template)).replace("\\n", " ").split())
    operands = [
        _operand(each) for section in sections[:2] for each in _split(section, ",") if each.strip()
    ]
    product = _PRODUCT.fullmatch(instruction)
    if product is not None:
        return _multiply(int(product["m"]), int(product["k"]), operands)
    sparse = _SPARSE_PRODUCT.fullmatch(instruction)
    if sparse is not None:
        return _multiply_sparse(sparse, operands)
    narrow = _NARROW_PRODUCT.fullmatch(instruction)
    if narrow is not None:
        return _multiply_narrow(narrow, operands)
    for pattern, call in _PTX:
        found = re.fullmatch(pattern, instruction)
        if found is not None:
            return call.format(*operands, **found.groupdict())
    msg = f"no imitation of this PTX is known: {instruction}"
    raise EmulationError(msg)


def _multiply(m: int, k: int, operands: list[str]) -> str:
    n_c, n_a = m // 4, m * k // 32
    c = ", ".join(f"&{operand}" for operand in operands[:n_c])
    a, b = (", ".join(part) for part in (operands[n_c : n_c + n_a], operands[n_c + n_a :]))
    return f"on_host::multiply<{m}, {k}>({{{c}}}, {{{a}}}, {{{b}}})"


def _multiply_sparse(product: re.Match[str], operands: list[str]) -> str:
    d, a, b, c = (", ".join(operands[first : first + 4]) for first in (0, 4, 8, 12))
    d = ", ".join(f"&{operand}" for operand in operands[:4])
    metadata, selector = operands[16:]
    call = f"on_host::multiply_sparse<on_host::Kind::{product['kind']}, {product['k']}>"
    return f"{call}({{{d}}}, {{{a}}}, {{{b}}}, {{{c}}}, {metadata}, {selector})"


def _multiply_narrow(product: re.Match[str], operands: list[str]) -> str:
    k, kind, sums = int(product["k"]), product["kind"], product["sums"]
    n_d, n_a = 4 if sums == "f32" else 2, k // 2 if kind == "tf32" else k // 4
    ends = [0, n_d, n_d + n_a, n_d + n_a + n_a // 2, len(operands)]
    d, a, b, c = (operands[low:high] for low, high in itertools.pairwise(ends))
    parts = (", ".join(part) for part in ([f"&{each}" for each in d], a, b, c))
    return (
        f"on_host::multiply_{sums}<on_host::Kind::{kind}, {k}>("
        + ", ".join(f"{{{part}}}" for part in parts)
        + ")"
    )


def _operand(text: str) -> str:
    """The expression of `"r"(expression)`."""
    return text[text.index("(") :].strip()


def _closing(text: str, start: int) -> int:
    """Where the parenthesis closes that opened before `start`."""
    return next(place for place, depth in _depths(text, start) if depth < 0)


def _split(text: str, separator: str) -> list[str]:
    """The parts of a text between separators that lie in no parentheses and strings."""
    cuts = [place for place, depth in _depths(text, 0) if depth == 0 and text[place] == separator]
    return [text[low + 1 : high] for low, high in zip([-1, *cuts], [*cuts, len(text)], strict=True)]


def _depths(text: str, start: int) -> Iterator[tuple[int, int]]:
    """(place, open parentheses and brackets) of each character outside of strings."""
    depth, place = 0, start
    while place < len(text):
        string = _STRING.match(text, place)
        if string is not None:
            place = string.end()
            continue
        depth += (text[place] in "([{") - (text[place] in ")]}")
        yield place, depth
        place += 1
