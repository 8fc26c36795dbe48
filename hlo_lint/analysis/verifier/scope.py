"""What a check of the verifier sees: one computation, what it calls, and what binds there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlo_lint.analysis.layout_mismatches import name_in
from hlo_lint.hlo.attributes import AttributeSyntaxError, read_attribute, split_attributes
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.records import opcode_of, operands_of, type_of
from hlo_lint.hlo.shape import Shape, part
from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes import AttributeValue

RowChecks: TypeAlias = "Mapping[RowCheck, tuple[str, ...]]"
"""Checks of every opcode, and words of which an instruction has one where they may say more."""


class Demands(NamedTuple):
    """Which checks bind: the options of `xla/service/hlo_verifier.h`, and what the header says."""

    layouts: bool = True
    """`layout_sensitive`: layout-assignment has run."""
    mixed_precision: bool = True
    """`allow_mixed_precision`: floats of different precision may meet."""
    scan: bool = True
    """Whether a scan need not be associative: layout-sensitive runs want it to be."""
    packed: bool = True
    """Whether layouts say how narrow elements are packed: sub-byte-size-setter has run."""
    ordered_broadcasts: bool = False
    """`verify_broadcast_dimensions_order`: what XLA:GPU wants behind layout-assignment."""
    named_once: bool = False
    """Whether names are told apart over the whole module, as XLA prints them."""


class Header(NamedTuple):
    """What a module's header says that checks of instructions depend on."""

    replicas: int
    partitions: int
    is_scheduled: bool


class Violation(NamedTuple):
    """One demand of XLA's verifier that a module does not meet."""

    row: str
    """The row in `docs/verifier.md`: `S-46`."""
    at: Instruction | Span
    """An instruction, or a stretch of the module's text in characters."""
    message: str
    operand: int | None = None
    """The operand the caret stands under; None for the whole instruction."""
    notes: tuple[str, ...] = ()


Check: TypeAlias = "Callable[[Scope, Instruction], Iterator[Violation]]"
"""Looks at one instruction, what it reads and what it calls."""
RowCheck: TypeAlias = "Callable[[Scope, int], Iterator[Violation]]"
"""Looks at one instruction of any opcode, by its position."""
Checks: TypeAlias = Mapping[str, tuple[Check, ...]]
"""By opcode."""


class Scope:
    """One computation, what it calls, and what binds there."""

    __slots__ = ("callees", "computation", "demands", "header", "opcodes", "strictness")

    def __init__(
        self,
        computation: Computation,
        callees: Mapping[str, Computation],
        demands: Demands,
        header: Header,
    ) -> None:
        self.computation = computation
        self.callees = callees
        """The computations of the module, by name; of a doubled name the first."""
        self.demands = demands
        self.strictness = demands.layouts + 2 * demands.mixed_precision + 4 * demands.packed
        """The demands that bear on shapes, as a number."""
        self.header = header
        self.opcodes = computation.opcodes
        """The opcodes of its instructions."""

    def called(self, instruction: Instruction) -> tuple[Computation | None, ...]:
        """The computations that an instruction calls, in order; None for what is not there."""
        return tuple(self.callees.get(name) for name in instruction.called_computations)


def text_of(instruction: Instruction, name: str) -> str | None:
    """An attribute as it is spelled; None where it is not there."""
    tail = instruction.attributes_text
    if f"{name}=" not in tail:
        return None
    span = split_attributes(tail).get(name)
    return None if span is None else tail[span[0] : span[1]]


def value_of(instruction: Instruction, name: str) -> AttributeValue | None:
    """An attribute's value; None where it is not there, or cannot be read."""
    text = text_of(instruction, name)
    return None if text is None else value_or_none(name, text)


def value_or_none(name: str, text: str) -> AttributeValue | None:
    """The value of a text; None where it cannot be read."""
    try:
        return read_attribute(name, text)
    except AttributeSyntaxError:
        return None


_of_meaning = re.compile(
    r"the mesh has no axis |axis .* has no such part|\d+ devices for \d+ places"
    r"|a transposition names"
).match


def contradiction(name: str, text: str) -> str:
    """Why devices that are spelled as they should be cannot be; empty where nothing is wrong."""
    try:
        read_attribute(name, text)
    except AttributeSyntaxError as error:
        return error.message if _of_meaning(error.message) else ""
    return ""


def callee_name(instruction: Instruction, attribute: str) -> str | None:
    """The one computation that an attribute names; None where it names none, or several."""
    value = value_of(instruction, attribute)
    if isinstance(value, tuple) and len(value) == 1:
        (value,) = value
    return value if isinstance(value, str) and "=" not in value else None


def integer_of(instruction: Instruction, name: str) -> int | None:
    """An attribute that is one integer; None where it is none."""
    value = value_of(instruction, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def parameter_number(parameter: Instruction) -> int | None:
    """Which parameter it is; None where the text does not say."""
    text = parameter.operands_text.strip()
    if "/" in text:
        text = _comment.sub("", text).strip()
    return int(text) if text.isdecimal() and len(text) < 10 else None


def parameter_types(computation: Computation) -> tuple[str, ...]:
    """The types of its parameters as they are spelled, by number; "" for one that is not there."""
    known = computation.memo.get("parameter types")
    if known is None:
        rows = computation.rows
        taken = {operands_of(row): type_of(row) for row in rows if opcode_of(row) == "parameter"}
        known = computation.memo["parameter types"] = tuple(
            [taken.get(str(number), "") for number in range(len(taken))]
        )
    return known  # type: ignore[return-value]  # nobody else writes under this key


def operand_shape(instruction: Instruction, number: int) -> Shape | None:
    """The shape of an operand; None where there is none, or it cannot be known."""
    references = instruction.operand_names
    if number >= len(references):
        return None
    name, _, index = references[number].partition("#")
    operand = instruction.computation.instruction(name)
    shape = None if operand is None else operand.shape_or_none
    return part(shape, tuple(map(int, index.split("#")))) if index else shape


def producer(instruction: Instruction, number: int = 0) -> Instruction | None:
    """What makes an operand; None where there is none."""
    references = instruction.operand_names
    if number >= len(references):
        return None
    return instruction.computation.instruction(name_in(references[number]))


def header_span(module: Module) -> Span:
    """Where the header stands, in characters of the module's text."""
    start = max(module.text.find(module.header), 0) if module.header else 0
    return Span(start, start + len(module.header.split(",", 1)[0]))


_comment = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
_COMMUNICATION = frozenset(
    "all-gather all-gather-start all-reduce all-reduce-start all-to-all collective-broadcast "
    "collective-permute collective-permute-start ragged-all-to-all reduce-scatter send send-done "
    "recv recv-done".split()
)


def all_communicating(module: Module) -> tuple[Instruction, ...]:
    """The same of all computations of a module."""
    known = module.memo.get("communicating")
    if known is None:
        known = module.memo["communicating"] = tuple(
            each for computation in module.computations for each in communicating(computation)
        )
    return known  # type: ignore[return-value]  # nobody else writes under this key


def communicating(computation: Computation) -> tuple[Instruction, ...]:
    """The instructions that exchange data with other devices or the host, in the text's order."""
    known = computation.memo.get("communicating")
    if known is None and _COMMUNICATION.isdisjoint(computation.opcodes):
        known = computation.memo["communicating"] = ()
    elif known is None:
        known = computation.memo["communicating"] = tuple(
            computation.at(number)
            for number, row in enumerate(computation.rows)
            if opcode_of(row) in _COMMUNICATION
        )
    return known  # type: ignore[return-value]  # nobody else writes under this key
