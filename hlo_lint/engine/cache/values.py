"""Convert dataclasses, named tuples and enums to JSON values and back, by their type hints.

JSON is used instead of pickle because a cache written by somebody else must not run code.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

FromJson = Callable[[Any], Any]


def to_json(value: Any) -> Any:
    """A value as JSON; the fields of a record become a list."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case Enum():
            return value.value
        case Path():
            return str(value)
        case tuple() | list():
            return [to_json(item) for item in value]
        case frozenset() | set():
            return sorted(to_json(item) for item in value)
        case Mapping():
            return {key: to_json(item) for key, item in value.items()}
        case _:
            return [to_json(getattr(value, name)) for name in value.__match_args__]


def from_json(as_type: Any, value: Any) -> Any:
    """The value of a type from the JSON value that `to_json` made.

    Raises:
        ValueError, TypeError, KeyError: the JSON value does not fit the type.
    """
    return _reader(as_type)(value)


@cache
def _reader(as_type: Any) -> FromJson:
    if as_type in (str, int, float, bool, type(None), Any):
        return lambda value: value
    origin, arguments = get_origin(as_type), get_args(as_type)
    if origin in (Union, types.UnionType):
        (wanted,) = (argument for argument in arguments if argument is not type(None))
        return lambda value: None if value is None else from_json(wanted, value)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return lambda value: tuple(
            from_json(argument, item) for argument, item in zip(arguments, value, strict=True)
        )
    # Readers of items are made on demand: most parts are empty, and reading the type hints of all
    # records takes as long as reading a hundred parts.
    if origin in (tuple, list, frozenset, set):
        return lambda value: origin(map(_reader(arguments[0]), value)) if value else origin()
    if origin is not None and issubclass(origin, Mapping):
        return lambda value: {key: from_json(arguments[1], item) for key, item in value.items()}
    if issubclass(as_type, Enum | Path):
        return lambda value: as_type(value)
    return _record(as_type)


def _record(as_type: Any) -> FromJson:
    # Late imports: a run without findings needs neither, and records name them only as types.
    from hlo_lint.engine.findings import Diagnostic
    from hlo_lint.engine.suppressions.comments import CheckedFile

    hints = get_type_hints(as_type, localns={"Diagnostic": Diagnostic, "CheckedFile": CheckedFile})
    names = as_type.__match_args__
    readers = [_reader(hints[name]) for name in names]

    def read(value: Any) -> Any:
        return as_type(*(read(item) for read, item in zip(readers, value, strict=True)))

    return read
