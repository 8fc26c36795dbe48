"""Lists of values by a key."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


def by_key(pairs: Iterable[tuple[KeyT, ValueT]]) -> dict[KeyT, list[ValueT]]:
    """The values of each key, both in the order of the pairs.

    >>> by_key([("add", 0), ("dot", 1), ("add", 2)])
    {'add': [0, 2], 'dot': [1]}
    """
    groups: dict[KeyT, list[ValueT]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups
