"""Helpers that know nothing of simulations: the cores of this process, files, HDF5, the cache
folder, signals, the progress clock and phrases for messages; and the decorator of dataclasses.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import reprlib
import time
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any


def usable_cores() -> tuple[int, ...]:
    """Return the numbers of the cores that this process may use; all of the machine where the
    system keeps no affinity masks, as macOS.
    """
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def keep_to(cores: tuple[int, ...]) -> None:
    """Let this process use these cores only, where the system knows how."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def let_others_run() -> None:
    """Give the core of this thread to another one that waits for it."""
    if hasattr(os, "sched_yield"):
        os.sched_yield()
    else:
        time.sleep(0)


def _quickly(cls: type | None = None, *, frozen: bool = False, eq: bool = True) -> Any:
    """The standard library's `dataclass` with the same fields, methods and refusals, made later.

    That one writes the source of six methods and compiles it, 0.8 ms for each of the 350 classes
    that a run of a few steps imports, of which it uses a fifth. Here methods that all classes can
    share are closures, and `__init__` is compiled when it is first looked up.
    """
    if cls is None:
        return functools.partial(_quickly, frozen=frozen, eq=eq)
    if cls.__doc__ is None:  # the standard library describes such a class by its `__init__`
        return dataclasses.dataclass(frozen=frozen, eq=eq)(cls)
    given = dict(cls.__dict__)
    heir = any(map(dataclasses.is_dataclass, cls.__bases__))
    # A frozen class is begun as another, so that nothing is compiled. One that inherits is not:
    # the standard library compares it with what it inherits from.
    made: Any = dataclasses.dataclass(init=False, repr=False, eq=False, frozen=frozen and heir)(cls)
    fields = dataclasses.fields(made)

    own: dict[str, Any] = {"__init__": _Init(made, frozen=frozen), "__repr__": _repr}
    if eq:
        own["__eq__"] = _equality([it.name for it in fields if it.compare])
        if given.get("__hash__") is None:
            hashed = [it.name for it in fields if (it.compare if it.hash is None else it.hash)]
            own["__hash__"] = _hash(hashed) if frozen else None
            # Python writes None beside an `__eq__` of the class; any other `__hash__` is its own.
            given.pop("__hash__", None)
    if frozen and not heir:
        own |= _refusals(made, frozenset(it.name for it in fields))
    for name, method in own.items():
        # What the class says itself stays.
        if name not in given:
            setattr(made, name, method)

    # Asked by the standard library about a class that inherits from this one.
    said = made.__dataclass_params__
    said.init, said.repr, said.eq, said.frozen = True, True, eq, frozen
    return made


class _Factory:
    """What stands for an argument that was not given, of a field with a factory."""

    def __repr__(self) -> str:
        return "<factory>"


_NOT_GIVEN = _Factory()


class _Init:
    """`__init__` of a dataclass, which takes its own place when it is first looked up."""

    def __init__(self, cls: Any, *, frozen: bool) -> None:
        self._cls, self._frozen = cls, frozen

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        cls = self._cls
        init = _initialiser(cls, "__set(self, {0!r}, {1})" if self._frozen else "self.{0} = {1}")
        # The class finds the function from now on; two threads would store equal ones.
        cls.__init__ = init
        return init if instance is None else init.__get__(instance, owner)


def _initialiser(cls: Any, setting: str) -> Any:
    """The function that sets the fields of a class from arguments, as the standard library's does.

    Args:
        cls: the class.
        setting: a statement that sets attribute {0} of `self` to {1}.
    """
    # Values are handed over by names that no field has, so that the source holds names alone.
    missing = dataclasses.MISSING
    names = {"__name__": cls.__module__, "__set": object.__setattr__, "__not_given": _NOT_GIVEN}
    arguments, lines, kinds = ["self"], [], {}
    for it in dataclasses.fields(cls):
        name = value = head = it.name
        if it.default_factory is not missing:
            names[f"__make_{name}"], head = it.default_factory, f"{name}=__not_given"
            value = f"__make_{name}()"
            if it.init:
                value += f" if {name} is __not_given else {name}"
        elif it.default is not missing:
            names[f"__default_{name}"], head = it.default, f"{name}=__default_{name}"
        if it.init:
            arguments.append(head)
            kinds[name] = it.type
        elif it.default_factory is missing:  # the class has its value, or `__post_init__` sets it
            continue
        lines.append(setting.format(name, value))

    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    body = "".join(f"\n    {line}" for line in lines or ["pass"])
    exec(f"def __init__({', '.join(arguments)}):{body}\n", names)  # noqa: S102
    init: Any = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = kinds | {"return": None}
    return init


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{it.name}={getattr(self, it.name)!r}" for it in dataclasses.fields(self) if it.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


_repr.__name__ = _repr.__qualname__ = "__repr__"


def _values(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function of an object: the values of its attributes as a tuple."""
    # Tuples, also of a single value: they take what is identical for equal, as NaN and arrays.
    if not names:
        return lambda it: ()
    values = attrgetter(*names)
    return values if len(names) > 1 else lambda it: (values(it),)


def _equality(names: Sequence[str]) -> Callable[[Any, Any], Any]:
    values = _values(names)

    def __eq__(self: Any, other: Any) -> Any:  # noqa: N807
        return (
            values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented
        )

    return __eq__


def _hash(names: Sequence[str]) -> Callable[[Any], int]:
    values = _values(names)

    def __hash__(self: Any) -> int:  # noqa: N807
        return hash(values(self))

    return __hash__


def _refusals(cls: Any, names: frozenset[str]) -> dict[str, Any]:
    """The methods that keep the fields of a frozen class as they are."""
    # A class below that is no dataclass may have further attributes.

    def __setattr__(self: Any, name: str, value: Any) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            msg = f"cannot assign to field {name!r}"
            raise dataclasses.FrozenInstanceError(msg)
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            msg = f"cannot delete field {name!r}"
            raise dataclasses.FrozenInstanceError(msg)
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _quickly
