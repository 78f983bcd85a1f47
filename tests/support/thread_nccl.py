"""NCCL between ranks that are threads: what it promises of groups, with memory of the host.

Messages between two ranks arrive in order, and a group ends when all that it receives is there;
sizes are checked, which NCCL does not do.
"""

from __future__ import annotations

import ctypes
import queue
import threading
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

_PATIENCE = 30.0  # seconds without a message after which a test has hung


class ThreadNccl:
    """What `cupy.cuda.nccl` gives, see `import_nccl`.

    Attributes:
        groups: how many groups of messages ended.
        opened: sizes of the communicators that were opened.
    """

    def __init__(self) -> None:
        self.groups, self.opened = 0, list[int]()
        self._ways: dict[tuple[Any, int, int], queue.Queue[bytes]] = defaultdict(queue.Queue)
        self._own = threading.local()
        self._lock = threading.Lock()

    def get_unique_id(self) -> tuple[int, ...]:
        return tuple(b"the only one")

    def NcclCommunicator(self, size: int, identity: Any, rank: int) -> Any:
        self.opened.append(size)

        def send(address: int, n_bytes: int, kind: int, to: int, stream: int) -> None:
            assert kind == 0
            assert 0 <= to < size
            self._own.sent.append(((identity, rank, to), ctypes.string_at(address, n_bytes)))

        def receive(address: int, n_bytes: int, kind: int, source: int, stream: int) -> None:
            assert kind == 0
            self._own.asked.append(((identity, source, rank), address, n_bytes))

        return SimpleNamespace(send=send, recv=receive)

    def groupStart(self) -> None:
        self._own.sent, self._own.asked = [], []

    def groupEnd(self) -> None:
        for key, message in self._own.sent:
            with self._lock:
                way = self._ways[key]
            way.put(message)
        for key, address, n_bytes in self._own.asked:
            with self._lock:
                way = self._ways[key]
            message = way.get(timeout=_PATIENCE)
            assert len(message) == n_bytes
            ctypes.memmove(address, message, n_bytes)
        with self._lock:
            self.groups += 1
