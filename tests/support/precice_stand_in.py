"""What the Python bindings of preCICE (3.4) offer, for two participants in threads of one process.

The coupling scheme is serial-implicit: in every window the first participant computes, then the
second with what that wrote; what the second wrote goes back to the first, relaxed, until it stays.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]


@dataclass
class Scheme:
    """What a preCICE configuration would say, and what goes on."""

    first: str
    length: float
    windows: int
    back: str  # what the second participant writes
    relaxation: float = 0.5
    tolerance: float = 1e-11
    most_iterations: int = 60
    turn: str = ""
    done: int = 0
    iterations: int = 0
    complete: bool = True
    now: dict[str, Numbers] = field(default_factory=dict)  # at the end of the window
    before: dict[str, Numbers] = field(default_factory=dict)  # at its begin
    vertices: dict[str, Numbers] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def hand_over(self, name: str, to: str) -> None:
        with self.changed:
            self.turn = to
            self.changed.notify_all()
        del name

    def wait_for(self, name: str) -> None:
        with self.changed:
            ended = lambda: self.turn in (name, "nobody")  # noqa: E731
            if not self.changed.wait_for(ended, timeout=60):
                raise TimeoutError(name)

    def judge(self, written: Numbers) -> None:
        """After the second one: does what it wrote agree with what the first computed with?"""
        used = self.now[self.back]
        self.iterations += 1
        self.complete = bool(abs(written - used).max() < self.tolerance * abs(written).max())
        assert self.iterations < self.most_iterations
        if self.complete:
            self.done, self.iterations = self.done + 1, 0
            self.before = dict(self.now)
        else:
            self.now[self.back] = used + self.relaxation * (written - used)


SCHEMES: dict[str, Scheme] = {}


class Participant:
    """One side."""

    def __init__(self, name: str, config: str, rank: int, size: int) -> None:
        assert (rank, size) == (0, 1)
        self._name, self._scheme = name, SCHEMES[config]
        self._written: dict[str, Numbers] = {}
        self._begins = True
        self._running = False

    @property
    def _is_first(self) -> bool:
        return self._name == self._scheme.first

    def get_mesh_dimensions(self, mesh: str) -> int:
        return 2

    def set_mesh_vertices(self, mesh: str, positions: Numbers) -> npt.NDArray[np.int32]:
        self._scheme.vertices[mesh] = positions
        return np.arange(len(positions), dtype=np.int32)

    def requires_initial_data(self) -> bool:
        return True

    def initialize(self) -> None:
        with self._scheme.changed:
            self._scheme.now.update(self._written)
            self._scheme.before.update(self._written)
            if len(self._scheme.now) == 2:
                self._scheme.turn = self._scheme.first
            self._scheme.changed.notify_all()
        self._running = True
        self._scheme.wait_for(self._name)

    def is_coupling_ongoing(self) -> bool:
        return self._scheme.done < self._scheme.windows

    def get_max_time_step_size(self) -> float:
        return self._scheme.length

    def requires_writing_checkpoint(self) -> bool:
        begins, self._begins = self._begins, False
        return begins

    def read_data(self, mesh: str, name: str, ids: Any, at: float) -> Numbers:
        assert at in (0.0, self._scheme.length)
        return (self._scheme.now if at else self._scheme.before)[name].copy()

    def write_data(self, mesh: str, name: str, ids: Any, values: Numbers) -> None:
        assert len(values) == len(ids)
        self._written[name] = np.array(values)

    def advance(self, length: float) -> None:
        scheme = self._scheme
        assert length == scheme.length
        if self._is_first:
            scheme.now.update(self._written)
        else:
            scheme.judge(self._written[scheme.back])
        names = set(PARTICIPANTS[id(scheme)])
        (other,) = names - {self._name}
        scheme.hand_over(self._name, other)
        if self._is_first or self.is_coupling_ongoing():
            scheme.wait_for(self._name)
        self._begins = scheme.complete

    def requires_reading_checkpoint(self) -> bool:
        return not self._scheme.complete

    def is_time_window_complete(self) -> bool:
        return self._scheme.complete

    def finalize(self) -> None:
        assert self._running


PARTICIPANTS: dict[int, tuple[str, str]] = {}
