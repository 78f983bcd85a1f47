"""Caches: how many bytes of each cache a core has to itself, as the operating system tells it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Caches:
    """Bytes of data cache per core.

    Attributes:
        l1: first level.
        l2: second level.
        l3: last level, divided by the cores that share it.
    """

    l1: int = 32 << 10
    l2: int = 1 << 20
    l3: int = 2 << 20


def read_caches(folder: Path = _FOLDER) -> Caches:
    """The caches of the first core; what the system does not tell is what every core of the last decade has.

    Args:
        folder: where Linux describes the caches of a core.
    """
    usual = Caches()
    found = {1: usual.l1, 2: usual.l2, 3: usual.l3}
    for index in sorted(folder.glob("index*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            size = _bytes((index / "size").read_text().strip())
            sharing = _count((index / "shared_cpu_list").read_text().strip())
        except (OSError, ValueError):
            continue
        if level in found and size > 0:
            found[level] = max(1, size // sharing)
    return Caches(l1=found[1], l2=found[2], l3=found[3])


def _bytes(text: str) -> int:
    """A size as Linux writes it.

    >>> _bytes("48K")
    49152
    """
    return int(text[:-1]) * _UNITS[text[-1]] if text[-1:] in _UNITS else int(text)


def _count(ranges: str) -> int:
    """How many processors a list of ranges names.

    >>> _count("0-3,8")
    5
    """
    total = 0
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        total += int(high or low) - int(low) + 1
    return total
