"""Launches do not run far ahead of the GPU."""

from __future__ import annotations

from typing import Any

import pytest
from cases import boundary_of, make_problem, stencil_of
from emulation import COMPILER, NO_COMPILER
from host_gpu import HostGpu

from tetris_sim.gpu_kernels import METHODS, stepper
from tetris_sim.slab import Slab


@pytest.mark.skipif(COMPILER is None, reason=NO_COMPILER)
def test_few_passes_are_launched_before_the_gpu_has_come_to_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepper, "_GRAPH_POINTS", 0)  # no records of launches
    gpu, story = HostGpu(), []

    class Event:
        def __init__(self) -> None:
            self.launches = len(gpu.launches)
            story.append(("recorded", self.launches))

        def synchronize(self) -> None:
            story.append(("reached", self.launches))

    monkeypatch.setattr(gpu.stream, "record", Event)
    problem, _ = make_problem(stencil_of("heat-2d"), boundary_of("rings", 2), shape=(21, 33))
    plain: Any = next(method for method in METHODS if method.name == "gpu.plain")
    found = plain.prepare(problem, Slab.whole(problem.grid), {}, gpu)
    found.load(problem.initial)
    found.advance(4 * stepper._PASSES_AHEAD)
    found.close()
    first, second, third, last = [launches for word, launches in story if word == "recorded"]
    wanted = [("recorded", first), ("recorded", second), ("reached", first), ("recorded", third), ("reached", second)]
    assert story == [*wanted, ("recorded", last), ("reached", third)]
    assert last == len(gpu.launches)
