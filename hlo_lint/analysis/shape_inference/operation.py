"""One instruction as shape inference sees it: shapes, attributes, signatures, and no graph.

An inference reads what it needs and returns a shape. It stops with `Impossible` where XLA
would infer none, and with `Unknowable` where the text does not say what it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.splitting import split_attributes
from hlo_lint.hlo.shape import ArrayShape, OpaqueShape, Shape, TupleShape, shape_or_none

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.reading import AttributeValue

TOKEN: Final = OpaqueShape("token")
PRED: Final = ArrayShape("pred", ())
U32: Final = ArrayShape("u32", ())
S32: Final = ArrayShape("s32", ())


class Impossible(Exception):
    """XLA would infer no shape: the message says what is wrong."""


class ImpossibleMix(Impossible):
    """XLA would refuse the shape unless `allow_mixed_precision` is set."""


class Unknowable(Exception):
    """The text does not say what would have to be known."""


class Signature(NamedTuple):
    """A computation from outside: the types of its parameters and of its root, as text."""

    parameters: tuple[str, ...]
    """In the order of their numbers; empty text where a type cannot be known."""
    root: str


class Inference(NamedTuple):
    """The shape of one opcode as a function of its operands and attributes."""

    infer: Callable[[Operation], Shape] | None = None
    """None where the printed type says what the opcode makes."""
    check: Callable[[Operation, Shape], None] | None = None
    """XLA's demands on the printed shape beyond being the inferred one: may raise."""
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


class Operation:
    """Operands, attributes and callees of one instruction. Unknown shapes are None."""

    __slots__ = ("_spans", "callees", "is_typed", "opcode", "operands", "tail")

    def __init__(
        self,
        opcode: str,
        operands: tuple[Shape | None, ...],
        tail: str = "",
        callees: tuple[Signature | None, ...] = (),
        *,
        is_typed: bool = True,
    ) -> None:
        self.opcode = opcode
        self.operands = operands
        self.tail = tail
        """The attributes as text."""
        self.callees = callees
        """The computations it calls, in the order of the text."""
        self.is_typed = is_typed
        """False if the text leaves the type out, so that XLA's parser infers it."""
        self._spans: dict[str, tuple[int, int]] | None = None

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
        shape = self.shape(number)
        if isinstance(shape, ArrayShape):
            return shape
        return self.as_array(shape, f"operand {number}")

    def as_array(self, shape: Shape, what: str) -> ArrayShape:
        """A shape that has to be an array's; buffers are not looked into."""
        if isinstance(shape, ArrayShape):
            return shape
        if isinstance(shape, TupleShape | OpaqueShape):
            noun = "a tuple" if isinstance(shape, TupleShape) else shape
            raise Impossible(f"{what} of {self.opcode} has to be an array, and is {noun}")
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
        if self._spans is None:
            self._spans = split_attributes(self.tail)
        span = self._spans.get(name)
        if span is None:
            if "" in self._spans:
                raise Unknowable  # it may be in text that cannot be split
            return None
        return self.tail[span[0] : span[1]]

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
        value = self.attribute(name)
        if value is None and absent is not None:
            return absent
        if not isinstance(value, tuple):
            raise Unknowable
        numbers = tuple([number for number in value if isinstance(number, int)])
        if len(numbers) != len(value):
            raise Unknowable
        return numbers

    def integer(self, name: str, absent: int | None = None) -> int:
        """An integer; without `absent` the attribute has to be there."""
        value = self.attribute(name)
        if value is None and absent is not None:
            return absent
        if isinstance(value, int):
            return value
        raise Unknowable

    def dimension(self, rank: int, name: str = "dimensions") -> int:
        """The one number of an attribute, which has to be a dimension of an array of that rank."""
        value = self.attribute(name)
        if isinstance(value, tuple):
            if len(value) != 1:
                raise Impossible(f"{name} of {self.opcode} is one number, and not {len(value)}")
            (value,) = value
        if not isinstance(value, int):
            raise Unknowable
        if not 0 <= value < rank:
            raise Impossible(f"{name}={value} is not a dimension of an array of rank {rank}")
        return value

    # Called computations

    def callee(self, number: int = 0) -> Signature:
        """A computation that it calls."""
        if number >= len(self.callees):
            raise Unknowable
        signature = self.callees[number]
        if signature is None:
            raise Unknowable
        return signature


def known(text: str) -> Shape:
    """The shape that a text spells, where somebody needs it."""
    shape = shape_or_none(text)
    if shape is None:
        raise Unknowable
    return shape


Table = Mapping[str, Inference]
