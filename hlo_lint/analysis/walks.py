"""Walks over graphs of operands, users or callees. Each visits a node once, so it ends."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from hlo_lint.analysis.grouping import by_key
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Computation, cached_analysis
from hlo_lint.hlo.records import attributes_of

T = TypeVar("T", bound=Hashable)


def reached(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Nodes and all their successors, each once, depth first.

    >>> list(reached("a", {"a": "bc", "b": "ad", "c": "", "d": ""}.__getitem__))
    ['a', 'c', 'b', 'd']
    """
    waiting = list(dict.fromkeys(starts))
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        yield node
        for after in following(node):
            if after not in seen:
                seen.add(after)
                waiting.append(after)


def chain(start: T | None, following: Callable[[T], T | None]) -> Iterator[T]:
    """A node, its successor, and so on, up to None or a repeated node.

    >>> list(chain("a", {"a": "b", "b": "c", "c": "a"}.get))
    ['a', 'b', 'c']
    """
    seen: set[T] = set()
    while start is not None and start not in seen:
        yield start
        seen.add(start)
        start = following(start)


def operands_first(values: Iterable[T], operands: Callable[[T], Iterable[T]]) -> list[T]:
    """Values and all that they depend on, each once and after its operands.

    On a cycle, the value that is reached first comes after the others.

    >>> operands_first("a", {"a": "bc", "b": "c", "c": ""}.__getitem__)
    ['c', 'b', 'a']
    """
    order: list[T] = []
    begun: set[T] = set()
    stack: list[tuple[T, Iterator[T]]] = []
    for value in values:
        if value in begun:
            continue
        begun.add(value)
        stack.append((value, iter(operands(value))))
        while stack:
            user, waiting = stack[-1]
            for operand in waiting:
                if operand not in begun:
                    begun.add(operand)
                    stack.append((operand, iter(operands(operand))))
                    break
            else:
                stack.pop()
                order.append(user)
    return order


def without_readers(
    nodes: Iterable[T],
    readers: Callable[[T], int],
    reads: Callable[[T], Iterable[T]],
    has_to_stay: Callable[[T], bool],
) -> set[T]:
    """The nodes without readers, and the nodes that only these read.

    `readers` gives the number of times that a node is read, `reads` each node as often as it is
    read.

    >>> reads = {"a": "bc", "b": "c", "c": "d", "d": ""}
    >>> sorted(without_readers("a", {"a": 0, "b": 1, "c": 2, "d": 1}.get, reads.get, "d".__eq__))
    ['a', 'b', 'c']
    """
    gone: set[T] = set()
    left: dict[T, int] = {}
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node in gone or left.get(node, 0) or (node not in left and readers(node)):
            continue
        if has_to_stay(node):
            continue
        gone.add(node)
        for source in reads(node):
            left[source] = (left[source] if source in left else readers(source)) - 1
            if not left[source]:
                waiting.append(source)
    return gone


@cached_analysis
def control_successors(computation: Computation) -> Mapping[str, Sequence[int]]:
    """The positions of the control successors of each instruction, by its name."""
    return by_key(
        (name, number)
        for number, row in enumerate(computation.rows)
        for name in control_predecessors(attributes_of(row))
    )
