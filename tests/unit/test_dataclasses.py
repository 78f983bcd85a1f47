"""The product's dataclasses are what the standard library makes of the same classes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from tetris_sim.model.slab import Slab
from tetris_sim.support import _quickly


def classes(decorator: Any) -> dict[str, Any]:
    """Classes of many kinds, by name."""

    @decorator(frozen=True)
    class Plain:
        """Fields of all kinds."""

        x: int
        y: list[int] = field(default_factory=list)
        z: str = field(default="q", repr=False, compare=False)
        shared: ClassVar[int] = 3

        def __post_init__(self) -> None:
            object.__setattr__(self, "doubled", self.x * 2)

    @decorator(frozen=True)
    class Heir(Plain):
        """One more."""

        w: float = 2.0

    @decorator
    class Open:
        """What may be changed."""

        a: int
        b: float = field(default=1.0, init=False)
        c: list[int] = field(default_factory=list, init=False)

    @decorator(frozen=True, eq=False)
    class Empty:
        """No fields."""

    @decorator(frozen=True)
    class OwnHash:
        """A hash of its own."""

        a: int

        def __hash__(self) -> int:
            return 7

    @decorator(frozen=True)
    class OwnEquality:
        """Equality of its own."""

        a: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, OwnEquality)

    @decorator(frozen=True)
    class Undescribed:
        a: int

    kinds = (Plain, Heir, Open, Empty, OwnHash, OwnEquality, Undescribed)
    return {kind.__name__: kind for kind in kinds}


OURS, THEIRS = classes(_quickly), classes(dataclasses.dataclass)


def outcome(attempt: Callable[[], Any]) -> Any:
    try:
        return attempt()
    except (TypeError, AttributeError) as error:  # FrozenInstanceError is one
        return type(error), str(error)


def begun(kinds: dict[str, Any]) -> list[Any]:
    plain = kinds["Plain"]
    heir = kinds["Heir"](1, [2], "r", 3.0)
    one = plain(1)

    class Below(plain):  # type: ignore[misc,valid-type]
        pass

    below = Below(1)
    below.other = 5
    wrong_heir = type("Wrong", (plain,), {"__annotations__": {"v": "int"}, "v": 1, "__doc__": "-"})
    late: Any = type("Late", (plain,), {"__doc__": "-"})
    attempts: list[Callable[[], Any]] = [
        lambda: repr(one),
        lambda: repr(heir),
        lambda: (one == plain(1), one == plain(2), one == plain(1, z="k"), heir == one),
        lambda: (one.doubled, heir.doubled, below.other, repr(below)),
        lambda: hash(kinds["OwnHash"](1)),
        lambda: (kinds["OwnEquality"](1) == kinds["OwnEquality"](2), kinds["OwnEquality"](1) == 3),
        lambda: hash(kinds["OwnEquality"](1)) == hash(kinds["OwnEquality"](1)),
        lambda: kinds["Empty"]() == kinds["Empty"](),
        lambda: (repr(kinds["Open"](3)), kinds["Open"](3) == kinds["Open"](3)),
        lambda: hash(kinds["Open"](3)),
        lambda: hash(heir),
        lambda: repr(dataclasses.replace(heir, x=9)),
        lambda: (dataclasses.asdict(heir), dataclasses.astuple(heir), repr(copy.deepcopy(heir))),
        lambda: setattr(one, "x", 1),
        lambda: setattr(one, "new", 1),
        lambda: delattr(one, "x"),
        lambda: setattr(heir, "w", 1),
        lambda: setattr(below, "x", 1),
        plain,
        lambda: plain(1, 2, 3, 4),
        lambda: plain(q=1),
        lambda: repr(dataclasses.dataclass(frozen=True)(late)(1)),
        lambda: dataclasses.dataclass(wrong_heir),
    ]
    return [outcome(attempt) for attempt in attempts]


def test_dataclasses_do_what_those_of_the_standard_library_do() -> None:
    assert begun(OURS) == begun(THEIRS)


@pytest.mark.parametrize("name", OURS)
def test_dataclasses_look_like_those_of_the_standard_library(name: str) -> None:
    ours, theirs = OURS[name], THEIRS[name]
    assert inspect.signature(ours) == inspect.signature(theirs) or str(
        inspect.signature(ours)
    ) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert repr(ours.__dataclass_params__) == repr(theirs.__dataclass_params__)
    assert repr(dataclasses.fields(ours)) == repr(dataclasses.fields(theirs))
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)
    assert ours.__init__.__qualname__ == theirs.__init__.__qualname__
    assert ours.__init__.__annotations__ == theirs.__init__.__annotations__


def test_a_class_compiles_its_constructor_when_it_is_first_called() -> None:
    kind = classes(_quickly)["Plain"]
    assert not inspect.isfunction(vars(kind)["__init__"])
    assert kind(2).doubled == 4
    assert inspect.isfunction(vars(kind)["__init__"])


def test_a_dataclass_travels_between_processes() -> None:
    slab = Slab.box(((0, 3), (1, 4)))
    assert pickle.loads(pickle.dumps(slab)) == slab
