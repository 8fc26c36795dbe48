"""The input of shape inference: an instruction's operand shapes, attributes, callees.

An inference reads these and returns a shape. It raises `Impossible` where XLA would infer none,
and `Unknowable` where the text lacks a fact that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar, cast

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.splitting import attribute_span, split_attributes
from hlo_lint.hlo.shape import ArrayShape, OpaqueShape, Shape, TupleShape, shape_or_none
from hlo_lint.text.phrases import counted

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.reading import AttributeValue

T = TypeVar("T")

TOKEN: Final = OpaqueShape("token")
PRED: Final = ArrayShape("pred", ())
U32: Final = ArrayShape("u32", ())
S32: Final = ArrayShape("s32", ())


class Impossible(Exception):
    """XLA would infer no shape; the message is the error."""


class ImpossibleMix(Impossible):
    """XLA would refuse the shape unless `allow_mixed_precision` is set."""


class Unknowable(Exception):
    """The text lacks a fact that the inference needs."""


class Signature(NamedTuple):
    """The types of a computation's parameters and of its root, as text."""

    parameters: tuple[str, ...]
    """In the order of their numbers; "" for an unknown type."""
    root: str


class Inference(NamedTuple):
    """The shape of an opcode as a function of its operands and attributes."""

    infer: Callable[[Operation], Shape] | None = None
    """None if the opcode takes any printed type as its result."""
    check: Callable[[Operation, Shape], None] | None = None
    """XLA's further conditions on the printed shape. It raises if they do not hold."""
    arity: int | None = None
    """The number of operands; None where it may vary."""
    attributes: bool = False
    """True if attributes are read; else they are not part of the cache's key."""
    calls: bool = False
    """True if the signatures of called computations are read."""
    keeps_layout: bool = False
    """True if the result has the layout of the value that it passes on."""
    free_type: bool = False
    """True if the printed element type counts, not the inferred one; `check` may bound it."""

    def demand_arity(self, operation: Operation) -> None:
        """Demand the number of operands."""
        given = len(operation.operands)
        if self.arity not in (None, given):
            arity = counted(self.arity or 0, "operand")
            raise Impossible(f"{operation.opcode} takes {arity}, got {given}")


class Operation(NamedTuple):
    """The operands, attributes and callees of an instruction. Unknown shapes are None."""

    opcode: str
    operands: tuple[Shape | None, ...]
    tail: str
    callees: tuple[Signature | None, ...]
    """The computations it calls, in the order of the text."""
    is_typed: bool = True
    """False if the text leaves the type out, so that XLA's parser infers it."""

    # Operands

    def shape(self, number: int) -> Shape:
        """The shape of an operand."""
        if number >= len(self.operands):
            raise Impossible(f"{self.opcode} needs an operand {number}")
        operand = self.operands[number]
        if operand is None:
            raise Unknowable
        return operand

    def shapes(self) -> tuple[Shape, ...]:
        """The shapes of all operands."""
        return tuple(map(self.shape, range(len(self.operands))))

    def array(self, number: int) -> ArrayShape:
        """The shape of an operand that has to be an array."""
        return self.as_array(self.shape(number), f"operand {number}")

    def as_array(self, shape: Shape, what: str) -> ArrayShape:
        """Demand the shape of an array; for a buffer, raise `Unknowable`."""
        if isinstance(shape, ArrayShape):
            return shape
        if isinstance(shape, TupleShape | OpaqueShape):
            noun = "a tuple" if isinstance(shape, TupleShape) else shape
            raise Impossible(f"{what} of {self.opcode} has to be an array, got {noun}")
        raise Unknowable

    def arrays(self, start: int = 0, stop: int | None = None) -> tuple[ArrayShape, ...]:
        """The shapes of some operands that have to be arrays."""
        stop = len(self.operands) if stop is None else stop
        return tuple([self.array(number) for number in range(start, stop)])

    def token(self, number: int) -> None:
        """Demands a token as operand."""
        if self.shape(number) != TOKEN:
            raise Impossible(f"operand {number} of {self.opcode} has to be a token")

    # Attributes

    def text(self, name: str) -> str | None:
        """An attribute's value as it is spelled; None where it is not there."""
        if f"{name}=" not in self.tail:
            return None
        span = attribute_span(self.tail, name)
        if span is None and "" in split_attributes(self.tail):
            raise Unknowable  # it may be in text that cannot be split
        return None if span is None else self.tail[slice(*span)]

    def attribute(self, name: str) -> AttributeValue | None:
        """An attribute's value; None where it is not there."""
        text = self.text(name)
        if text is None:
            return None
        from hlo_lint.hlo.attributes.reading import read_attribute  # many texts have none

        try:
            return read_attribute(name, text)
        except AttributeSyntaxError:
            raise Unknowable from None

    def integers(self, name: str, absent: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A list of integers; without `absent` the attribute has to be there."""
        if absent is not None and self.attribute(name) is None:
            return absent
        return self.parts(name, int)

    def parts(self, name: str, kind: type[T]) -> tuple[T, ...]:
        """The values of a list, all of one type."""
        value = self.attribute(name)
        if not isinstance(value, tuple) or not all(isinstance(part, kind) for part in value):
            raise Unknowable
        return cast("tuple[T, ...]", value)

    def integer(self, name: str, absent: int | None = None) -> int:
        """An integer; without `absent` the attribute has to be there."""
        value = self.attribute(name)
        if value is None and absent is not None:
            return absent
        if isinstance(value, int):
            return value
        raise Unknowable

    def dimension(self, rank: int, name: str = "dimensions") -> int:
        """The single dimension that an attribute names, of an array of that rank."""
        value = self.attribute(name)
        if isinstance(value, tuple):
            if len(value) != 1:
                raise Impossible(f"{name} of {self.opcode} has to be one number, got {len(value)}")
            (value,) = value
        if not isinstance(value, int):
            raise Unknowable
        if not 0 <= value < rank:
            raise Impossible(f"{name}={value} is not a dimension of an array of rank {rank}")
        return value

    # Called computations

    def callee(self, number: int = 0) -> Signature:
        """The signature of a called computation."""
        signature = self.callees[number] if number < len(self.callees) else None
        if signature is None:
            raise Unknowable
        return signature


def known(text: str) -> Shape:
    """The shape that a text spells; raises `Unknowable` if it is unreadable."""
    shape = shape_or_none(text)
    if shape is None:
        raise Unknowable
    return shape


Table = Mapping[str, Inference]
