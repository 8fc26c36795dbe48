"""The stored form of an instruction: a plain tuple of texts, with an accessor for each field.

A module of a million instructions keeps a million records, and the pass dumps of a compilation
share them. The regular expression itself creates a plain tuple; a named tuple would take three
times as long. The accessors are `itemgetter`s, which `map` runs without a Python frame.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from operator import itemgetter
from typing import Final

InstructionRecord = tuple[str, str, str, str, str, str, tuple[str, ...]]
"""An instruction as text: root, name, type, opcode, operands, attributes, operand names.

The root is `ROOT ` or "". Names have no `%`. An operand name may end with `#1` for an element of a
tuple (from jax 0.11 on, a get-tuple-element is printed as `%call#1`). An instruction that is nested
in the operands of another is a record before it, with XLA's name for it: `negate.anon`. A missing
type is "".
"""
ROOT: Final = 0
NAME: Final = 1
TYPE: Final = 2
OPCODE: Final = 3
OPERANDS: Final = 4
TAIL: Final = 5
REFERENCES: Final = 6

_TextOf = Callable[[InstructionRecord], str]

root_mark_of: Final[_TextOf] = itemgetter(ROOT)
"""`ROOT ` if the text marks the instruction as root, else ""."""
name_of: Final[_TextOf] = itemgetter(NAME)
type_of: Final[_TextOf] = itemgetter(TYPE)
opcode_of: Final[_TextOf] = itemgetter(OPCODE)
operands_of: Final[_TextOf] = itemgetter(OPERANDS)
"""The text between the parentheses: operands, a literal, or the number of a parameter."""
attributes_of: Final[_TextOf] = itemgetter(TAIL)
"""The text after the closing parenthesis, with its first comma."""
references_of: Final[Callable[[InstructionRecord], tuple[str, ...]]] = itemgetter(REFERENCES)


def name_in(reference: str) -> str:
    """The name of the instruction that a reference reads, or reads an element of."""
    return reference.partition("#")[0]


METADATA: Final = ", metadata={"
"""The beginning of metadata, after which XLA only prints a backend_config."""


def attributes_before_metadata(attributes: str) -> str:
    """The attributes before metadata; all of them if more than a backend_config follows it."""
    head, _, after = attributes.partition(METADATA)
    _, _, follows = after.partition("}")
    if not follows or (follows.startswith(", backend_config=") and follows.count("=") == 1):
        return head
    return attributes


class SharedLines:
    """The distinct lines of dumps, with their records: dumps share most lines."""

    __slots__ = ("_by_record", "rows")

    def __init__(self) -> None:
        self.rows: dict[str, InstructionRecord] = {}
        """The record of each line; the parser enters the lines that it reads."""
        self._by_record: dict[int, str] = {}

    def of(self, records: Iterable[InstructionRecord]) -> list[str]:
        """The lines that records were read from.

        Raises:
            KeyError: for a record that is not from a line of `rows`.
        """
        by_record = self._by_record
        if len(by_record) < len(self.rows):  # made on demand: most texts are never needed
            new = islice(reversed(self.rows.items()), len(self.rows) - len(by_record))
            by_record.update([(id(record), line) for line, record in new])
        return list(map(by_record.__getitem__, map(id, records)))
