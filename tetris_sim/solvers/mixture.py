"""Anderson's acceleration of what is solved again and again with coefficients of the last answer.

Of the last guesses and answers, the combination with the smallest change is taken (D. G. Anderson,
J. ACM 12 (1965) 547; H. F. Walker, P. Ni, SIAM J. Numer. Anal. 49 (2011) 1715).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tetris_sim.model.conduction import Numbers

_REMEMBERED = 5


@dataclass
class Mixture:
    """The last guesses with their answers."""

    _guesses: list[Numbers] = field(default_factory=list)
    _answers: list[Numbers] = field(default_factory=list)

    def better(self, guess: Numbers, answer: Numbers) -> Numbers:
        """The next guess."""
        self._guesses.append(guess)
        self._answers.append(answer)
        del self._guesses[: -_REMEMBERED - 1], self._answers[: -_REMEMBERED - 1]
        if len(self._guesses) == 1:
            return answer
        pairs = zip(self._guesses, self._answers, strict=True)
        changes = [(there - here).reshape(-1) for here, there in pairs]
        steps = np.stack([it - changes[-1] for it in changes[:-1]], axis=1)
        weights = np.linalg.lstsq(steps, -changes[-1], rcond=1e-10)[0]
        pulls = (w * (it - answer) for w, it in zip(weights, self._answers[:-1], strict=True))
        return np.asarray(answer + sum(pulls))
