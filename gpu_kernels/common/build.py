"""Compile the CUDA sources of gpu_kernels with NVRTC and cache the machine code on disk.

No GPU is needed: the tests compile every variant for every architecture. The digest under which
machine code is cached covers the source, all headers, the macros, the architecture and the
compiler's version.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tetris_sim.errors import UnsupportedError
from tetris_sim.support.cache import cache_directory
from tetris_sim.support.files import atomic_bytes

_ROOMS = Path(__file__).parents[1]
# Without contraction to fused multiply-adds, so that sources alone decide how results are rounded.
_OPTIONS = ("-std=c++17", "--ptxas-options=-v", "-default-device", "-fmad=false")
_HAS_CACHE = (12, 9)  # NVRTC with a cache of its own, which drops the log of register use
_USED = re.compile(
    r"Compiling entry function '(?P<name>\w+)'.*?Used (?P<registers>\d+) registers", re.DOTALL
)
_ERROR = re.compile(
    r"\b(catastrophic |fatal )?error\b( *#\S+)?:|^ptxas (error|fatal)", re.IGNORECASE
)
_SPILLED = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")

log = logging.getLogger("tetris_sim")


@dataclass(frozen=True)
class Compiled:
    """Machine code of one source file.

    Attributes:
        cubin: the code.
        log: output of the compiler.
    """

    cubin: bytes
    log: str

    @property
    def registers(self) -> dict[str, int]:
        """Registers per thread of each entry point."""
        return {used["name"]: int(used["registers"]) for used in _USED.finditer(self.log)}

    @property
    def spilled(self) -> int:
        """Bytes of registers that all functions together spill to local memory."""
        return sum(int(stores) + int(loads) for stores, loads in _SPILLED.findall(self.log))


def compile_source(name: str, defines: Mapping[str, str | int], architecture: str) -> Compiled:
    """The machine code of one source file, from the cache if it was compiled before.

    Args:
        name: name of a file in any package of gpu_kernels, or an absolute path.
        defines: its macros, without -D.
        architecture: for example "sm_90".

    Raises:
        UnsupportedError: there is no compiler, or compilation fails.
    """
    options = [
        *_OPTIONS,
        f"-arch={architecture}",
        *(f"-D{key}={value}" for key, value in sorted(defines.items())),
    ]
    digest = hashlib.sha256(
        "\n".join([name, _digest(name), compiler_version(), *options]).encode()
    ).hexdigest()[:24]

    code = cache_directory("cuda") / f"{Path(name).stem}_{digest}.cubin"
    log = code.with_suffix(".log")
    try:
        return Compiled(code.read_bytes(), log.read_text(encoding="utf-8"))
    except OSError:
        compiled = _compile(name, options)

    # The code last: its presence means that the log is complete, whichever process wrote it.
    atomic_bytes(log, compiled.log.encode())
    atomic_bytes(code, compiled.cubin)
    return compiled


def find_source(name: str) -> Path:
    """The path of a kernel file. File names are unique over all packages of gpu_kernels; an
    absolute path is returned as it is.
    """
    return Path(name) if Path(name).is_absolute() else next(_ROOMS.glob(f"*/{name}"))


def headers() -> list[Path]:
    """The headers of all packages, sorted by name; any source may include any of them."""
    return sorted(_ROOMS.glob("*/*.cuh"), key=lambda path: path.name)


@functools.cache
def _digest(name: str) -> str:
    # A digest of a source and all headers, since any of them may be included.
    digest = hashlib.sha256()
    for path in (find_source(name), *headers()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def compiler_version() -> str:
    """Version of NVRTC, for example "13.0".

    Raises:
        UnsupportedError: CuPy or NVRTC is missing.
    """
    return ".".join(map(str, _nvrtc().getVersion()))


def first_error(said: str) -> str:
    r"""Return the first error in what a compiler says, perhaps after pages of warnings; empty if
    there is none.

    >>> first_error("a.cu(1): warning: loop is not reachable\na.cu(2): error: no `;`\n")
    'a.cu(2): error: no `;`'
    """
    return next((line.strip() for line in said.splitlines() if _ERROR.search(line)), "")


def _nvrtc() -> Any:
    try:
        from cupy_backends.cuda.libs import nvrtc
    except ImportError as error:
        msg = (
            "the GPU methods need CuPy: pip install 'tetris-sim[gpu13]' (CUDA 12: gpu12). It "
            f"says: {error}"
        )
        raise UnsupportedError(msg) from error
    return nvrtc


def _compile(name: str, options: list[str]) -> Compiled:
    nvrtc = _nvrtc()
    source = f'#line 1 "{name}"\n{find_source(name).read_text(encoding="utf-8")}'
    program = nvrtc.createProgram(
        source,
        name,
        [path.read_bytes() for path in headers()],
        [path.name.encode() for path in headers()],
    )

    # NVRTC's own cache returns an empty log, which would lose the register counts.
    without_cache = ["-no-cache"] if nvrtc.getVersion() >= _HAS_CACHE else []
    try:
        nvrtc.compileProgram(program, [*options, *without_cache])
        # CuPy's binding takes the last byte for the end of a string and drops it; disassemblers
        # miss it.
        return Compiled(nvrtc.getCUBIN(program) + b"\0", nvrtc.getProgramLog(program))
    except nvrtc.NVRTCError as error:
        said = nvrtc.getProgramLog(program).strip()
        log.debug("%s does not compile with %s:\n%s", name, " ".join(options), said)
        msg = f"{name} does not compile: {first_error(said) or error}"
        raise UnsupportedError(msg) from error
    finally:
        nvrtc.destroyProgram(program)
