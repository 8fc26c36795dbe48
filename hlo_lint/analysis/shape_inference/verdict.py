"""What can be said of one instruction from its text alone: a pure function, remembered by text."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from hlo_lint.analysis.shape_inference import (
    arrangement,
    asynchronous,
    collectives,
    contraction,
    control,
    elementwise,
    indexing,
    linear_algebra,
    randomness,
    reduction,
    windows,
)
from hlo_lint.analysis.shape_inference.operation import (
    Impossible,
    Operation,
    Rule,
    Signature,
    Table,
    Unknowable,
    shape_or_none,
)
from hlo_lint.analysis.shape_inference.types import compatible, without_layout
from hlo_lint.shape import ArrayShape, BufferShape, Shape, TupleShape

RULES: Final[Table] = {
    opcode: rule
    for family in (
        elementwise,
        arrangement,
        indexing,
        contraction,
        reduction,
        windows,
        linear_algebra,
        randomness,
        control,
        asynchronous,
        collectives,
    )
    for opcode, rule in family.RULES.items()
}
"""How the shape of each opcode follows; what is not here is not known."""
JUDGED: Final = frozenset(
    opcode for opcode, rule in RULES.items() if (rule.infer or rule.check) and not rule.calls
)
"""Opcodes whose printed shape can be wrong, whatever they call."""
JUDGED_CALLING: Final = frozenset(opcode for opcode, rule in RULES.items() if rule.calls)
"""Opcodes whose shape depends on what they call."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """XLA would infer no shape."""

    message: str
    """What is wrong, by operand or attribute."""


class Open(Enum):
    """Why no shape follows, although nothing is wrong."""

    FREE = "free"
    """The opcode leaves its shape to the printed type."""
    UNKNOWN = "unknown"
    """The text does not say what would have to be known, or the opcode is not known."""


Inferred = Shape | Refusal | Open


class Verdict(NamedTuple):
    """What is known of an instruction's shape."""

    inferred: Inferred
    complaints: tuple[str, ...]
    """Why the printed shape cannot be, each a message; empty where it can."""


@lru_cache(maxsize=1 << 15)
def judge(
    opcode: str,
    printed: str,
    operands: tuple[str, ...],
    tail: str,
    callees: tuple[Signature | None, ...],
) -> Verdict:
    """What follows from the types as text: the printed one, and those of the operands.

    An operand may be an element of a tuple: its text is the tuple's type, then `#` and a number.
    Empty texts stand for types that are left out or cannot be known.
    """
    rule = RULES.get(opcode)
    if rule is None:
        return Verdict(Open.UNKNOWN, ())
    shape = shape_or_none(printed) if printed else None
    operation = Operation(opcode, shape, tuple(map(_operand, operands)), tail, callees)
    inferred = _infer(rule, operation)
    if isinstance(inferred, Refusal):
        return Verdict(inferred, (inferred.message,))
    if shape is None:
        return Verdict(inferred, ())
    if rule.free_type and isinstance(inferred, ArrayShape) and isinstance(shape, ArrayShape):
        inferred = replace(inferred, dtype=shape.dtype)
    return Verdict(inferred, tuple(_complaints(rule, operation, inferred, shape)))


def _operand(text: str) -> Shape | None:
    spelled, *index = text.split("#") if "#" in text else (text,)
    if "#" in text and not all(number.isdecimal() for number in index):
        return shape_or_none(text)  # a layout's index types are spelled with # as well
    shape = shape_or_none(spelled) if spelled else None
    for number in map(int, index):
        if not isinstance(shape, TupleShape) or number >= len(shape.elements):
            return None
        shape = shape.elements[number]
    return shape


def _infer(rule: Rule, operation: Operation) -> Inferred:
    if rule.arity is not None and len(operation.operands) != rule.arity:
        return Refusal(
            f"{operation.opcode} takes {rule.arity} operands, and has {len(operation.operands)}"
        )
    if rule.infer is None:
        return Open.FREE
    try:
        return rule.infer(operation)
    except Impossible as refusal:
        return Refusal(str(refusal))
    except Unknowable:
        return Open.UNKNOWN


def _complaints(rule: Rule, operation: Operation, inferred: Inferred, printed: Shape) -> list[str]:
    found = []
    if not isinstance(inferred, Refusal | Open):
        if not compatible(inferred, printed, any_precision=not rule.keeps_layout):
            expected = without_layout(inferred)
            found.append(f"XLA infers {expected}, and not {without_layout(printed)}")
        elif rule.keeps_layout and not _lies_alike(inferred, printed):
            found.append(f"XLA infers {inferred}, and not the layout of {printed}")
    if rule.check is not None and not found:
        try:
            rule.check(operation, printed)
        except Impossible as refusal:
            found.append(str(refusal))
        except Unknowable:
            pass
    return found


def _lies_alike(left: Shape, right: Shape) -> bool:
    match left, right:
        case ArrayShape(), ArrayShape():
            return None in (left.layout, right.layout) or (
                left.minor_to_major == right.minor_to_major
            )
        case TupleShape(), TupleShape():
            return all(map(_lies_alike, left.elements, right.elements))
        case BufferShape(), BufferShape():
            return _lies_alike(left.element, right.element)
        case _:
            return True


_find_place = re.compile(
    r', metadata=\{(?:[^{}"]++|"(?:[^"\\]++|\\.)*+")*+\}(?:, backend_config=.*+)?\Z', re.S
).search


def facts(tail: str) -> str:
    """The attributes that may bear on a shape: metadata and what follows it left out."""
    at = tail.find(", metadata={")
    if at < 0:
        return tail
    place = _find_place(tail, at)
    return tail[:at] if place is not None and place.start() == at else tail
