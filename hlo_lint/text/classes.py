"""Dataclasses that are made in a fifth of the time: a check of a small dump imports seventy.

The standard library compiles up to ten functions for each class; here that is `__init__` alone.
Fields, `replace` and what the methods do are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, slots=False, kw_only=False, **asked):
        """As `dataclasses.dataclass`, of which it takes eq, frozen, kw_only, order, repr, slots."""
        if cls is None:
            return lambda cls: dataclass(cls, slots=slots, kw_only=kw_only, **asked)
        bare = {"init": False, "repr": False, "eq": False}
        made = dataclasses.dataclass(cls, slots=slots, kw_only=kw_only, **bare)
        return _completed(made, **asked)


def _completed(
    made: type, *, eq: bool = True, frozen: bool = False, order: bool = False, repr: bool = True
) -> type:
    """A class with fields, and with the methods that were asked for and it does not define."""
    fields = dataclasses.fields(made)
    methods: dict[str, Any] = {"__init__": _init(made, fields)}
    if repr:
        methods["__repr__"] = _repr([field.name for field in fields if field.repr])
    compared = _values([field.name for field in fields if field.compare])
    if eq:
        methods["__eq__"] = _eq(compared)
        hashed = [one.name for one in fields if (one.compare if one.hash is None else one.hash)]
        methods["__hash__"] = _hash(_values(hashed)) if frozen else None
    if order:
        comparisons = {"__lt__": lt, "__le__": le, "__gt__": gt, "__ge__": ge}
        methods.update({name: _order(compared, call) for name, call in comparisons.items()})
    if frozen:
        methods |= {"__setattr__": _refuse, "__delattr__": _refuse, "__setstate__": _set_state}
    for name, method in methods.items():
        if made.__dict__.get(name) is None:
            setattr(made, name, method)
    return made


def _init(made: type, fields: tuple[dataclasses.Field[Any], ...]) -> Any:
    """`__init__`, which is called often enough to be compiled."""
    missing = dataclasses.MISSING
    scope: dict[str, Any] = {"_set": object.__setattr__, "_missing": missing}
    parameters: dict[bool, list[str]] = {False: ["self"], True: ["*"]}
    lines = []
    for field in fields:
        name = value = field.name
        default = ""
        if field.default_factory is not missing:
            scope[f"_new_{name}"] = field.default_factory
            default, value = "=_missing", f"_new_{name}() if {name} is _missing else {name}"
        elif field.default is not missing:
            scope[f"_default_{name}"] = field.default
            default = f"=_default_{name}"
        parameters[bool(field.kw_only)].append(name + default)
        lines.append(f" _set(self, {name!r}, {value})")
    if hasattr(made, "__post_init__"):
        lines.append(" self.__post_init__()")
    named = parameters[True] if len(parameters[True]) > 1 else []
    head = f"def __init__({', '.join([*parameters[False], *named])}):"
    exec("\n".join([head, *(lines or [" pass"])]), scope)
    scope["__init__"].__qualname__ = f"{made.__qualname__}.__init__"
    return scope["__init__"]


def _values(names: list[str]) -> Callable[[object], object]:
    """A function of an object that gives the values of its fields."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda made: tuple(getattr(made, name) for name in names)


def _eq(values: Callable[[object], object]) -> Any:
    def __eq__(self: object, other: object) -> bool:
        return values(self) == values(other) if type(self) is type(other) else NotImplemented

    return __eq__


def _hash(values: Callable[[object], object]) -> Any:
    return lambda self: hash(values(self))


def _order(values: Callable[[object], object], compare: Callable[[Any, Any], bool]) -> Any:
    def ordered(self: object, other: object) -> bool:
        return compare(values(self), values(other)) if type(self) is type(other) else NotImplemented

    return ordered


def _repr(names: list[str]) -> Any:
    @recursive_repr()
    def __repr__(self: object) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def _refuse(self: object, name: str, value: object = None) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot set or delete the field {name!r}")


def _set_state(self: object, state: Any) -> None:
    """Unpickle: what `object` does by assignments."""
    for values in state if isinstance(state, tuple) else (state,):
        for name, value in (values or {}).items():
            object.__setattr__(self, name, value)
