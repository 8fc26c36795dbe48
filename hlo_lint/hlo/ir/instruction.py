"""A view of an instruction: its fields, operands, users, attributes, read on demand."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hlo_lint.hlo.comments import without_comments
from hlo_lint.hlo.records import (
    NAME,
    OPCODE,
    OPERANDS,
    REFERENCES,
    ROOT,
    TAIL,
    TYPE,
    attributes_before_metadata,
)
from hlo_lint.hlo.shape import Shape, parse_shape, part, shape_or_none
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import in_a_line, short_repr
from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.reading import AttributeValue
    from hlo_lint.hlo.ir.computation import Computation
    from hlo_lint.hlo.parser.literals import LiteralValue

CALLING_ATTRIBUTES: Final = tuple(
    "calls to_apply body condition select scatter comparator called_computations "
    "branch_computations true_computation false_computation async_computation".split()
)
"""Attributes whose value is a computation, or several."""
_CALLED = late(rf"\b(?:{'|'.join(CALLING_ATTRIBUTES)})\s*=\s*(\{{[^{{}}=]*\}}|%?[\w.\-]+)")


class Operand(NamedTuple):
    """An operand: an instruction, or an element of its tuple."""

    name: str
    """The name without `%`."""
    shape_index: tuple[int, ...]
    """The element of the tuple: `(1, 0)` for `%x#1#0`, empty for the whole value."""
    instruction: Instruction | None
    """None if the computation does not define the name."""

    def __repr__(self) -> str:
        return short_repr(self)

    @property
    def shape(self) -> Shape | None:
        """The shape of the operand, or None if it is unknown."""
        if self.instruction is None:
            return None
        return part(self.instruction.shape_or_none, self.shape_index)


class Instruction:
    """A view of a record. It equals only itself; `Computation.at` creates each view once."""

    __slots__ = ("computation", "number", "row")

    def __init__(self, computation: Computation, number: int) -> None:
        self.computation = computation
        self.number = number
        """Its position in the computation."""
        self.row = computation.rows[number]

    def __repr__(self) -> str:
        return in_a_line(f"<Instruction {self.name}: {self.type_text} {self.opcode}>")

    @property
    def name(self) -> str:
        """The name without `%`."""
        return self.row[NAME]

    @property
    def opcode(self) -> str:
        """The opcode as spelled: `get-tuple-element`."""
        return self.row[OPCODE]

    @property
    def is_root(self) -> bool:
        """True if the text marks it as ROOT."""
        return bool(self.row[ROOT])

    @property
    def type_text(self) -> str:
        """The shape as spelled; empty if it is left out."""
        return self.row[TYPE]

    @property
    def operands_text(self) -> str:
        """The text between the parentheses: operands, a literal, or the number of a parameter."""
        return self.row[OPERANDS]

    @property
    def parameter_number(self) -> int | None:
        """The number of a parameter; None if it is missing, and for other opcodes."""
        if self.opcode != "parameter":
            return None
        text = without_comments(self.row[OPERANDS]).strip()
        return int(text) if text.isdecimal() and len(text) < 10 else None

    @property
    def attributes_text(self) -> str:
        """The text after the closing parenthesis, with its first comma."""
        return self.row[TAIL]

    @property
    def operand_names(self) -> tuple[str, ...]:
        """The names of the operands, in order; `call#1` for an element of a tuple."""
        return self.row[REFERENCES]

    @property
    def shape(self) -> Shape:
        """The shape.

        Raises:
            ShapeSyntaxError: the text is not a shape.
        """
        return parse_shape(self.row[TYPE])

    @property
    def shape_or_none(self) -> Shape | None:
        """The shape, or None if the text is not a shape."""
        return shape_or_none(self.row[TYPE])

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Its operands, in order."""
        return tuple(map(self._operand, self.row[REFERENCES]))

    def operand(self, number: int) -> Operand | None:
        """An operand, or None; created without the others, since a tuple may have thousands."""
        references = self.row[REFERENCES]
        return self._operand(references[number]) if 0 <= number < len(references) else None

    def operand_shape(self, number: int) -> Shape | None:
        """The shape of an operand; None if the operand is missing or its shape unknown."""
        operand = self.operand(number)
        return None if operand is None else operand.shape

    def _operand(self, reference: str) -> Operand:
        if "#" not in reference:
            return Operand(reference, (), self.computation.instruction(reference))
        name, *index = reference.split("#")
        return Operand(name, tuple(map(int, index)), self.computation.instruction(name))

    @property
    def users(self) -> tuple[Instruction, ...]:
        """The instructions that read it, each once, in the order of the text."""
        return tuple(map(self.computation.at, self.computation.users_of(self.number)))

    @property
    def span(self) -> Span:
        """Its place, in characters of the computation's text."""
        return self.computation.span(self.number)

    @property
    def text(self) -> str:
        """The text of the instruction in the file."""
        return self.computation.excerpt(self.span)

    @property
    def is_nested(self) -> bool:
        """True if it is nested in the operands of another: `add(multiply(x, y), z)`."""
        return self.number in self.computation.nested

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes as text, by name, in order."""
        from hlo_lint.hlo.attributes.splitting import split_attributes

        tail = self.row[TAIL]
        return {name: tail[start:end] for name, (start, end) in split_attributes(tail).items()}

    def attribute(self, name: str) -> Any:
        """The value of an attribute: integers, names, text …; None if it is absent.

        Its type follows from the name: `hlo_lint.hlo.attributes.AttributeValue` lists the types.

        Raises:
            AttributeSyntaxError: the value cannot be read.
        """
        text = self.attribute_text(name)
        if text is None:
            return None
        from hlo_lint.hlo.attributes.reading import read_attribute

        return read_attribute(name, text)

    def attribute_text(self, name: str) -> str | None:
        """An attribute as it is spelled; None if it is absent."""
        tail = self.row[TAIL]
        if f"{name}=" not in tail:  # most often: no need to import the splitter
            return None
        from hlo_lint.hlo.attributes.splitting import attribute_span

        span = attribute_span(tail, name)
        return None if span is None else tail[span[0] : span[1]]

    def attribute_or_none(self, name: str) -> AttributeValue | None:
        """The value of an attribute; None if it is absent or unreadable."""
        text = self.attribute_text(name)
        if text is None:
            return None
        from hlo_lint.hlo.attributes.reading import value_or_none

        return value_or_none(name, text)

    def backend_config(self) -> Mapping[str, object]:
        """The fields of a `backend_config` in JSON; empty for any other."""
        config = self.attribute_or_none("backend_config")
        return config if isinstance(config, Mapping) else {}

    def frontend_attributes(self) -> Mapping[str, object]:
        """The frontend attributes by name; empty if they are absent or unreadable."""
        value = self.attribute_or_none("frontend_attributes")
        return value if isinstance(value, Mapping) else {}

    def integer_attribute(self, name: str) -> int | None:
        """An attribute that is a single integer, else None."""
        value = self.attribute_or_none(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def integers_attribute(self, name: str) -> tuple[int, ...] | None:
        """An attribute that is a list of integers, else None."""
        value = self.attribute_or_none(name)
        if not isinstance(value, tuple):
            return None
        numbers = tuple(number for number in value if isinstance(number, int))
        return numbers if len(numbers) == len(value) else None

    @property
    def tuple_index(self) -> int | None:
        """The index of a get-tuple-element; None if it is missing or negative."""
        index = self.integer_attribute("index")
        return None if index is None or index < 0 else index

    def dimensions_attribute(self, name: str, rank: int) -> tuple[int, ...] | None:
        """The dimensions of an array of a rank that an attribute names.

        Reads `dimensions={1,0}` and `iota_dimension=1`; None if any number is not a dimension.
        """
        value = self.attribute_or_none(name)
        numbers = value if isinstance(value, tuple) else (value,)
        dimensions = tuple(n for n in numbers if isinstance(n, int) and 0 <= n < rank)
        return dimensions if len(dimensions) == len(numbers) else None

    @property
    def custom_call_target(self) -> str:
        """The target of a custom call, or ""."""
        before, first, rest = self.row[TAIL].partition(', custom_call_target="')
        name, quote, _ = rest.partition('"')
        if first and quote and not before and "\\" not in name:  # where XLA prints it
            return name
        return (self.attribute_text("custom_call_target") or "").strip('"')

    def producer(self, number: int = 0) -> Instruction | None:
        """The instruction that computes an operand, or None."""
        references = self.operand_names
        if not 0 <= number < len(references):
            return None
        return self.computation.instruction(references[number].partition("#")[0])

    @property
    def producers(self) -> tuple[Instruction, ...]:
        """The instructions that compute its operands, in order; undefined operands are left out."""
        names = [reference.partition("#")[0] for reference in self.row[REFERENCES]]
        return tuple(filter(None, map(self.computation.instruction, names)))

    @property
    def literal(self) -> LiteralValue:
        """The value of a constant as numpy; None for other opcodes, and for a token.

        Raises:
            LiteralError: the text is not a value of the shape.
            ShapeSyntaxError: the type is not a shape.
            ImportError: numpy, or ml_dtypes for a type that needs it, is not installed.
        """
        if self.opcode != "constant":
            return None
        from hlo_lint.hlo.parser.literals import read_literal

        return read_literal(self.shape, self.row[OPERANDS])

    @property
    def called_computations(self) -> tuple[str, ...]:
        """Names of the computations it calls, in order."""
        inline = [call.computation for call in self.computation.inline.get(self.number, ())]
        if not inline:
            return called_names(attributes_before_metadata(self.row[TAIL]))
        names: list[str] = []
        for name, value in self.attributes.items():
            if name not in CALLING_ATTRIBUTES:
                continue
            if value.startswith("{") and "=" in value:
                here = [body for body in inline if body.text in value]
                names += [body.name for body in here]
                inline = inline[len(here) :]
            else:
                names += called_names(f"{name}={value}")
        return tuple(names)


@lru_cache(maxsize=1 << 13)
def called_names(attributes: str) -> tuple[str, ...]:
    r"""Names of the computations that attributes call, in order; inline ones are left out.

    >>> called_names(", condition=%c, body=\n  %b")
    ('c', 'b')
    """
    names: list[str] = []
    for match in _CALLED.finditer(attributes):
        names += [name.strip(" %\n") for name in match[1].strip("{}").split(",")]
    return tuple(names)
