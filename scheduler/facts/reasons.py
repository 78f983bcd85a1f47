"""Reason: why something was decided, kept together with what it is about, so that who decides it
anew can leave out what was said about it before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Topic = Literal["device", "method", "shares", "left out", "block", "streaming", "checkpoints"]


class Reason(NamedTuple):
    """Why something was decided as it was.

    Attributes:
        topic: what was decided.
        sentence: why, for people.
    """

    topic: Topic
    sentence: str


def about(topic: Topic, sentences: Iterable[str]) -> tuple[Reason, ...]:
    """Sentences about one thing."""
    return tuple(Reason(topic, sentence) for sentence in sentences)


def sentences_of(reasons: Iterable[Reason]) -> tuple[str, ...]:
    """The sentences, each once."""
    return tuple(dict.fromkeys(reason.sentence for reason in reasons))
