"""The instructions of a module by kind, so that checks run once for each kind.

A module of a language model has hundreds of computations of three instructions, and thousands of
instructions that differ only in their names and their metadata. A rule that ignores names looks at
kinds first, and at instructions only where a kind concerns it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from hlo_lint.analysis.calls import calls_of, holders
from hlo_lint.analysis.grouping import by_key
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.kinds import OPCODE, RowKind, kind_at, reading_of, types_of
from hlo_lint.hlo.records import attributes_before_metadata
from hlo_lint.text.patterns import late

_VerdictT = TypeVar("_VerdictT")

RowPlace: TypeAlias = tuple[Computation, int]
"""An instruction by its position in a computation."""

Template: TypeAlias = tuple[tuple[object, ...], ...]
"""A small computation without the names of its instructions, and without metadata."""

_MAX_TEMPLATE: Final = 32
"""The number of instructions up to which computations are compared: long computations are rarely
equal, and comparing them costs a part of the cost of reading."""


@cached_analysis
def template_of(computation: Computation) -> Template | None:
    """Equal for equivalent computations: a module has a reducer for each reduction.

    None for a long computation, for callers, and for text with more than instructions.
    """
    rows = computation.rows
    if len(rows) > _MAX_TEMPLATE or computation.is_entry or computation.tail:
        return None
    if computation.parse_errors or computation.inline or computation.nested:
        return None
    if calls_of(computation):
        return None
    numbers = _Numbers()
    lines: list[tuple[object, ...]] = []
    number_of, add = numbers.__getitem__, lines.append
    for root, name, type_text, opcode, operands, attributes, references in rows:
        head = attributes_before_metadata(attributes) if attributes else ""
        if head and "control-predecessors" in head:
            return None
        if references:
            try:
                add((root, type_text, opcode, head, *map(number_of, references)))
            except KeyError:  # an operand that is not defined above
                return None
        else:
            add((root, type_text, opcode, head, operands))
        numbers[name] = len(numbers)
    return tuple(lines) if len(numbers) == len(rows) else None


class _Numbers(dict[str, int]):
    """The positions of the instructions above, by name; for an element, with its index."""

    def __missing__(self, reference: str) -> tuple[int, str]:
        name, _, element = reference.partition("#")
        if not element:
            raise KeyError(name)
        return self[name], element


@cached_analysis
def kinds_of(module: Module) -> Mapping[str, Sequence[RowKind]]:
    """The different kinds of instructions of each opcode in a module."""
    readings = map(reading_of, module.computations)
    kinds = dict.fromkeys(chain.from_iterable([reading.kinds for reading in readings]))
    return by_key((kind[OPCODE], kind) for kind in kinds)


def without_channel(attributes: str) -> str:
    """The attributes with channel 1 for any other, which is unique to each collective."""
    return _sub_channel("channel_id=1", attributes) if "channel_id=" in attributes else attributes


_sub_channel = late(r"\bchannel_id=[1-9]\d{0,17}\b").sub


def instructions_where(
    module: Module, opcode: str, concerns: Callable[[RowKind], bool]
) -> Iterator[Instruction]:
    """The instructions of an opcode whose kind concerns a rule, often very few."""
    kinds = set(filter(concerns, kinds_of(module).get(opcode, ())))
    if not kinds:
        return
    for computation in holders(module).get(opcode, ()):
        yield from instructions_in(computation, opcode, kinds.__contains__)


def instructions_in(
    computation: Computation, opcode: str, concerns: Callable[[RowKind], bool]
) -> Iterator[Instruction]:
    """The instructions of an opcode in a computation whose kind concerns a rule."""
    for number in computation.positions(opcode):
        if concerns(kind_at(computation, number)):
            yield computation.at(number)


def judged(
    module: Module, opcode: str, judge: Callable[[Instruction], _VerdictT | None]
) -> Iterator[tuple[Instruction, _VerdictT]]:
    """The instructions of an opcode with their verdicts; `judge` is called once for each kind.

    It may look only at the type, the attributes and the types of operands. None means that the rule
    has no finding.
    """
    verdicts: dict[RowKind, _VerdictT | None] = {}
    for computation in holders(module).get(opcode, ()):
        _, kinds, kind_of = reading_of(computation)
        for number in computation.positions(opcode):
            kind = kinds[kind_of[number]]
            if kind not in verdicts:
                verdicts[kind] = judge(computation.at(number))
            verdict = verdicts[kind]
            if verdict is not None:
                yield computation.at(number), verdict


@cached_analysis
def types_in(module: Module) -> frozenset[str]:
    """The distinct types of all instructions of a module, as spelled."""
    return frozenset().union(*map(types_of, module.computations))
