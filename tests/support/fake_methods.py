"""Methods that behave badly on purpose: slow, wrong, refusing, failing. All compute with
`cpu.plain` underneath.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from tetris_sim.cpu_kernels.plain.method import CpuPlainMethod
from tetris_sim.model.method import KnownGpu, Parameters, Stepper
from tetris_sim.model.problem import Problem
from tetris_sim.model.slab import Slab
from tetris_sim.scheduler.tuning.measure import steps_per_block

_PLAIN = CpuPlainMethod()


@dataclass(eq=False)
class FakeMethod:
    """`cpu.plain` under another name, with faults.

    Attributes:
        name: what it is called.
        proposals: its parameters; `delay_us` is a pause per call of `advance`, in proportion to the
            steps.
        why_not: why it refuses.
        opening_s: pause in `prepare`, as if it compiled.
        error: relative error of the weights.
        fault: "one block" forgets the steps beyond the first block, "whole blocks" those after the
            last whole one.
        failure: raised by `prepare` where `fails_with` is a part of the parameters.
        fails_with: see `failure`; nothing means always.
        most_bytes: state beyond which there is no memory.
        needs: bytes that `memory` says, if not those of `cpu.plain`.
        opened: (parameters, shape of the grid) of every call of `prepare`.
        most_open: most steppers that were open at one time.
    """

    name: str
    proposals: tuple[dict[str, int], ...] = ({},)
    why_not: str | None = None
    opening_s: float = 0.0
    error: float = 0.0
    fault: Literal["", "one block", "whole blocks"] = ""
    failure: Exception | None = None
    fails_with: tuple[str, int] | None = None
    most_bytes: int | None = None
    needs: int | None = None
    opened: list[tuple[dict[str, int], tuple[int, ...]]] = field(default_factory=list)
    most_open: int = 0
    now_open: int = 0
    device: Literal["cpu"] = "cpu"
    exact: bool = False

    def refusal(self, problem: Problem) -> str | None:
        return self.why_not

    def parameters(self, problem: Problem) -> tuple[Parameters, ...]:
        return self.proposals

    def fixed_at_compile(self, parameter: str) -> bool:
        return parameter not in ("steps_per_block", "tile_x")

    def explain(
        self, problem: Problem, parameters: Parameters, rate: float, gpu: KnownGpu | None
    ) -> str | None:
        return None

    def memory(self, problem: Problem, slab: Slab, parameters: Parameters) -> int:
        return _PLAIN.memory(problem, slab, {}) if self.needs is None else self.needs

    def prepare(self, problem: Problem, slab: Slab, parameters: Parameters, device: Any) -> Any:
        self.opened.append((dict(parameters), problem.grid.shape))
        if self.most_bytes is not None and problem.state_bytes > self.most_bytes:
            msg = "no memory is left"
            raise MemoryError(msg)
        if self.failure is not None and (
            self.fails_with is None or self.fails_with in parameters.items()
        ):
            raise self.failure
        time.sleep(self.opening_s)
        weights = tuple(weight * (1 + self.error) for weight in problem.stencil.weights)
        stencil = dataclasses.replace(problem.stencil, weights=weights)
        stepper = _PLAIN.prepare(dataclasses.replace(problem, stencil=stencil), slab, {}, device)
        self.now_open += 1
        self.most_open = max(self.most_open, self.now_open)
        return FaultyStepper(
            self, stepper, steps_per_block(parameters), parameters.get("delay_us", 0)
        )

    @property
    def n_trials(self) -> int:
        """How often it was prepared with each of its proposals, the most of them."""
        given = [tuple(parameters.items()) for parameters, _ in self.opened]
        return max((given.count(each) for each in given), default=0)


class FaultyStepper:
    """A stepper that takes its time, or makes fewer steps than it was asked for."""

    def __init__(self, method: FakeMethod, inner: Stepper, block: int, delay_us: int) -> None:
        self._method, self._inner, self._block, self._delay = method, inner, block, delay_us * 1e-6
        self.slab = inner.slab

    def advance(self, steps: int) -> None:
        time.sleep(self._delay * steps)
        if self._method.fault == "one block":
            steps = min(steps, self._block)
        elif self._method.fault == "whole blocks":
            steps = max(1, steps // self._block * self._block)
        self._inner.advance(steps)

    def close(self) -> None:
        self._method.now_open -= 1
        self._inner.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
