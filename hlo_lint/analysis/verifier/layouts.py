"""What a bitcast and a copy may do with memory, and broadcasts in order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    operand_shape,
    producer,
    value_of,
)
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape

_HOST = 5


def _space(array: ArrayShape) -> int:
    return array.layout.memory_space if array.layout is not None else 0


def _bitcast(scope: Scope, bitcast: Instruction) -> Iterator[Violation]:
    """A bitcast stays in host memory, or outside of it, unless it reads a constant."""
    before, after = operand_shape(bitcast, 0), bitcast.shape_or_none
    if (
        scope.demands.layouts
        and isinstance(before, ArrayShape)
        and isinstance(after, ArrayShape)
        and (_space(before) == _HOST) != (_space(after) == _HOST)
        and not _is_constant(bitcast)
    ):
        message = f"this bitcast leads from memory space {_space(before)} to {_space(after)}"
        yield Violation("S-72", bitcast, message, operand=0)


def _is_constant(bitcast: Instruction) -> bool:
    made = producer(bitcast)
    if made is not None and made.opcode == "copy":
        made = producer(made)
    return made is not None and made.opcode == "constant"


def _copy(scope: Scope, copy: Instruction) -> Iterator[Violation]:
    """Out of host memory a copy may not transpose on the way."""
    before, after = operand_shape(copy, 0), copy.shape_or_none
    if (
        scope.demands.layouts
        and isinstance(before, ArrayShape)
        and isinstance(after, ArrayShape)
        and _space(before) == _HOST != _space(after)
        and before.minor_to_major != after.minor_to_major
    ):
        message = f"this copy out of host memory transposes: {before} and {after}"
        yield Violation("S-01c", copy, message)


_printed = re.compile(r", dimensions=\{([\d,]*)\}").match


@lru_cache(maxsize=1 << 10)
def _ascend(numbers: str) -> bool:
    """Whether each number of a list is above the one before."""
    return all(a < b for a, b in pairwise(map(int, filter(None, numbers.split(",")))))


def _broadcast(scope: Scope, broadcast: Instruction) -> Iterator[Violation]:
    printed = _printed(broadcast.attributes_text)
    if printed is not None and _ascend(printed[1]):
        return
    dimensions = value_of(broadcast, "dimensions")
    if not isinstance(dimensions, tuple) or not all(isinstance(n, int) for n in dimensions):
        return
    if len(set(dimensions)) < len(dimensions):
        yield Violation(
            "3.5-7", broadcast, f"two dimensions go to the same one: {list(dimensions)}"
        )
    elif scope.demands.ordered_broadcasts and list(dimensions) != sorted(dimensions):
        yield Violation(
            "I-07",
            broadcast,
            f"the dimensions of this broadcast are not in order: {list(dimensions)}",
        )


CHECKS: Checks = {"bitcast": (_bitcast,), "copy": (_copy,), "broadcast": (_broadcast,)}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = ()
OF_MODULES = ()
