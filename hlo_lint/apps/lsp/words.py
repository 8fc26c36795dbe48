"""What each word of a statement is: a name, an operand, the name of a computation that is called.

It goes by the text alone, so that a line that is being typed has words, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from hlo_lint.hlo.ir import CALLING_ATTRIBUTES
from hlo_lint.hlo.parser.fast import WITHOUT_OPERANDS
from hlo_lint.hlo.records import InstructionRecord, opcode_of, operands_of


class Role(Enum):
    """What a word is in its statement."""

    KEYWORD = "keyword"
    NAME = "name"
    """The name that a statement or a head gives."""
    TYPE = "type"
    OPCODE = "opcode"
    OPERAND = "operand"
    """What stands in the operands: a name that is read, mostly."""
    ATTRIBUTE = "attribute"
    CALLED = "called"
    """A computation in an attribute that calls it."""
    PREDECESSOR = "predecessor"
    """An instruction in `control-predecessors`."""
    VALUE = "value"
    """Any other word of an attribute's value."""
    PARAMETER = "parameter"
    """The name of a parameter in the signature of a computation."""
    STRING = "string"
    COMMENT = "comment"


class Word(NamedTuple):
    """A word of a text, in characters of it."""

    role: Role
    text: str
    start: int
    end: int
    attribute: str = ""
    """The attribute whose value it stands in."""

    @property
    def name(self) -> str:
        """Without `%` and without the number of an element."""
        return self.text.removeprefix("%").partition("#")[0]

    @property
    def element(self) -> tuple[int, ...]:
        """The element of a tuple that it reads: `(1,)` for `%t#1`."""
        return tuple(map(int, self.text.split("#")[1:]))

    @property
    def name_start(self) -> int:
        """Where the name begins, behind `%`."""
        return self.start + self.text.startswith("%")

    @property
    def name_end(self) -> int:
        """Where the name ends, before `#`."""
        return self.name_start + len(self.name)


_token = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))"
    r'|(?P<string>"(?:[^"\\]|\\.)*(?:"|\Z))'
    r"|(?P<word>(?:%[\w.\-]+|[A-Za-z_][\w.\-]*)(?:\#[0-9]+)*)"
    r"|(?P<number>[0-9][\w.\-]*)"
    r"|(?P<open>[({\[])|(?P<close>[)}\]])|(?P<equals>=)|(?P<comma>,)",
    re.S | re.A,
)
_GAP = r"(?:\s|/\*.*?\*/|//[^\n]*\n)*"
_opens = re.compile(rf"{_GAP}\(", re.S).match
_assigns = re.compile(rf"{_GAP}=", re.S).match
_names = re.compile(r"\s+[%\w]").match
_declares = re.compile(r"\s*:").match
_ROLES = {
    **dict.fromkeys(CALLING_ATTRIBUTES, Role.CALLED),
    "control-predecessors": Role.PREDECESSOR,
}


def statement_words(
    text: str, row: InstructionRecord | None = None, *, named: bool = True
) -> Iterator[Word]:
    """The words of an instruction; it is not `named` where it is written into another's operands.

    >>> text = "ROOT %r = f32[2] reduce(%x#1, c), to_apply=%add"
    >>> [(word.role.value, word.name) for word in statement_words(text)][2:]
    [('type', 'f32'), ('opcode', 'reduce'), ('operand', 'x'), ('operand', 'c'), \
('attribute', 'to_apply'), ('called', 'add')]
    """
    stage = Role.NAME if named else Role.TYPE
    depth, at, attribute = 0, 0, ""
    while found := _token.search(text, at):
        at, kind = found.end(), found.lastgroup
        word = found[0]
        role: Role | None = None
        match kind:
            case "comment":
                role = Role.COMMENT
            case "string":
                role = Role.STRING
            case "open":
                depth += 1
            case "close":
                depth -= 1
                if not depth and stage is Role.OPERAND:
                    stage = Role.ATTRIBUTE
            case "equals" if stage is Role.NAME:
                stage = Role.TYPE
            case "comma" if not depth and stage is Role.VALUE:
                stage = Role.ATTRIBUTE
            case "word" if stage is Role.NAME:
                is_root = word == "ROOT" and not _assigns(text, at)
                role = Role.KEYWORD if is_root else Role.NAME
            case "word" if stage is Role.TYPE:
                is_opcode = not depth and _opens(text, at) is not None
                if is_opcode and (row is None or opcode_of(row) == word):
                    role, stage = Role.OPCODE, Role.OPERAND
                    if row is not None and word in WITHOUT_OPERANDS and operands_of(row):
                        # A literal may be as long as a file: no word of it means anything.
                        yield Word(role, word, found.start(), at)
                        at = text.find(operands_of(row), at) + len(operands_of(row))
                        depth, role = 1, None
                else:
                    role = Role.TYPE
            case "word" if stage is Role.ATTRIBUTE and not depth:
                role, attribute = Role.ATTRIBUTE, word
                if _assigns(text, at):
                    stage = Role.VALUE
            case "word" if stage is Role.VALUE:
                role = _ROLES.get(attribute, Role.VALUE)
            case "word":
                role = stage
        if role is not None:
            within = attribute if stage is Role.VALUE else ""
            yield Word(role, word, found.start(), at, within)


def head_words(text: str) -> Iterator[Word]:
    """The words of a computation's head, up to its opening brace.

    >>> [word.text for word in head_words("%add (x: f32[], y: f32[]) -> f32[] {")]
    ['%add', 'x', 'f32', 'y', 'f32', 'f32']
    """
    named = False
    depth = 0
    for found in _token.finditer(text):
        word = found[0]
        match found.lastgroup:
            case "comment":
                yield Word(Role.COMMENT, word, found.start(), found.end())
            case "open":
                if word == "{" and not depth:
                    return
                depth += 1
            case "close":
                depth -= 1
            case "word" if not named:
                is_entry = word == "ENTRY" and _names(text, found.end()) is not None
                named = not is_entry
                yield Word(
                    Role.KEYWORD if is_entry else Role.NAME, word, found.start(), found.end()
                )
            case "word":
                is_parameter = depth == 1 and _declares(text, found.end())
                role = Role.PARAMETER if is_parameter else Role.TYPE
                yield Word(role, word, found.start(), found.end())
