"""Places in the text of an instruction: of its parts, of its tokens with their roles.

`InstructionSpans` uses the parser's record of the text; `instruction_tokens` and `head_tokens` use
only the text, so that a line that is being typed has tokens, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from hlo_lint.hlo.attributes.splitting import split_attributes
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.records import InstructionRecord, opcode_of, operands_of, references_of
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span

_COMMENT = r"//[^\n\r]*+|/\*.*?(?:\*/|\Z)"
_token = late(
    rf"(?P<comment>{_COMMENT})"
    r'|(?P<string>"(?:[^"\\]|\\.)*(?:"|\Z))'
    r"|(?P<word>(?:%[\w.\-]+|[A-Za-z_][\w.\-]*)(?:\#[0-9]+)*)"
    r"|(?P<number>[0-9][\w.\-]*)"
    r"|(?P<open>[({\[])|(?P<close>[)}\]])|(?P<equals>=)|(?P<comma>,)",
    re.S | re.A,
)
_BLANK = rf"(?:\s|{_COMMENT})"
_opens = late(rf"{_BLANK}*+\(", re.S).match
_assigns = late(rf"{_BLANK}*+=", re.S).match
_names = late(r"\s+[%\w]").match
_declares = late(r"\s*:").match
_match_name = late(rf"(?:ROOT{_BLANK}++)?(%?[\w.\-]+):?{_BLANK}*+=(?!=)", re.A | re.S).match
_is_reference = late(r"%?[A-Za-z_][\w.\-]*(?:#\d+)*", re.A).fullmatch

# ---- the parts of an instruction


class OperandSpan(NamedTuple):
    """The span of an operand that is a name, in characters of the surrounding text."""

    shape_start: int
    """The start of its shape; `start` if none is printed."""
    start: int
    """The start of its name, `%` included."""
    end: int


class InstructionSpans:
    """The spans of the parts of an instruction, in characters of its text."""

    def __init__(self, text: str, record: InstructionRecord) -> None:
        _, _, shape, opcode, operands, attributes, _ = record
        self.text = text
        self.record = record
        self.tail = len(text) - len(attributes)
        """The start of the attributes."""
        self.close = text.rfind(")", 0, self.tail)
        """The parenthesis after the operands."""
        self.operands = Span(self.close - len(operands), self.close)
        """The text between the parentheses."""
        start = text.rfind(opcode, 0, self.operands.start)
        self.opcode = Span(start, start + len(opcode))
        start = text.rfind(shape, 0, start) if shape else start
        self.shape = Span(start, start + len(shape))
        """Empty if the shape is left out."""

    @cached_property
    def name(self) -> Span | None:
        """The name with its `%`; None for an instruction nested in the operands of another."""
        name = _match_name(self.text, 0, self.shape.start)
        return Span(*name.span(1)) if name else None

    def word(self, word: str) -> Span | None:
        """The span of an opcode, of a word of the shape or of the first such in the attributes."""
        if word == opcode_of(self.record):
            return self.opcode
        find = re.compile(rf"(?<![\w.\-]){re.escape(word)}(?![\w.\-])").search
        match = find(self.text, *self.shape) or find(self.text, self.tail)
        return Span(*match.span()) if match else None

    def operand_span(self, number: int) -> OperandSpan | None:
        """The span of an operand; None if it is nested, or the text does not fit the operands."""
        spans, begin = self._spans_in_operands, self.operands.start
        span = spans[number] if number < len(spans) else None
        return span and OperandSpan(begin + span.shape_start, begin + span.start, begin + span.end)

    @cached_property
    def _spans_in_operands(self) -> tuple[OperandSpan | None, ...]:
        references = references_of(self.record)
        spans = operand_spans(operands_of(self.record)) if references else ()
        return spans if len(spans) == len(references) else ()

    @cached_property
    def attributes(self) -> dict[str, Span]:
        """The spans of the values of attributes by name; see `split_attributes`."""
        begin = self.tail
        return {
            name: Span(begin + start, begin + end)
            for name, (start, end) in split_attributes(self.text[begin:]).items()
        }


def operand_spans(operands: str) -> tuple[OperandSpan | None, ...]:
    """The spans of the operands in a list; None for a nested instruction.

    >>> operand_spans("f32[2]{0} %a, b#1")
    (OperandSpan(shape_start=0, start=10, end=12), OperandSpan(shape_start=14, start=14, end=17))
    """
    spans: list[OperandSpan | None] = []
    for tokens in filter(None, _parts(operands)):  # XLA skips empty operands
        start, end = tokens[-1]
        is_name = _is_reference(operands, start, end)
        spans.append(OperandSpan(tokens[0][0], start, end) if is_name else None)
    return tuple(spans)


def split_at_commas(text: str) -> list[Span]:
    """The spans of the parts between top-level commas, without the comments around them.

    >>> [text_span for text_span in split_at_commas("{replicated}, {mesh['x'=2], [{'x'}]}")]
    [Span(start=0, end=12), Span(start=14, end=36)]
    """
    return [Span(part[0][0], part[-1][1]) for part in _parts(text) if part]


def tuple_elements(type_text: str) -> tuple[str, ...] | None:
    """The shapes of a tuple's elements as spelled; None if it is not a tuple.

    >>> tuple_elements("(f32[2]{0}, /*index=1*/(s32[], pred[]))")
    ('f32[2]{0}', '(s32[], pred[])')
    """
    if not (type_text.startswith("(") and type_text.endswith(")")):
        return None
    inner = type_text[1:-1]
    return tuple(inner[start:end] for start, end in split_at_commas(inner))


def top_level_commas(text: str) -> int:
    """The number of commas outside of brackets.

    >>> top_level_commas("%a, f32[2,3]{1,0} %b,")
    2
    """
    return max(0, len(_parts(text)) - 1)


def _parts(text: str) -> list[list[tuple[int, int]]]:
    """The tokens between top-level commas, without comments; a pair of brackets is a token."""
    parts: list[list[tuple[int, int]]] = [[]]
    depth = start = 0
    for token in _token.finditer(text):
        match token.lastgroup:
            case "open":
                if not depth:
                    start = token.start()
                depth += 1
            case "close":
                depth -= 1
                if not depth:
                    parts[-1].append((start, token.end()))
            case "comma" if not depth:
                parts.append([])
            case "word" | "number" | "string" | "equals" if not depth:
                parts[-1].append(token.span())
    return parts if parts != [[]] else []


# ---- tokens with what they stand for


class Role(Enum):
    """The role of a token in its instruction."""

    KEYWORD = "keyword"
    NAME = "name"
    """The name that an instruction or a head defines."""
    TYPE = "type"
    OPCODE = "opcode"
    OPERAND = "operand"
    """A word among the operands: mostly a name."""
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


class Token(NamedTuple):
    """A word, string or comment of a text, with its position."""

    role: Role
    text: str
    start: int
    end: int
    attribute: str = ""
    """The attribute whose value contains it."""

    @property
    def name(self) -> str:
        """The name without `%` and without the number of an element."""
        return self.text.removeprefix("%").partition("#")[0]

    @property
    def element(self) -> tuple[int, ...]:
        """The element of a tuple that it reads: `(1,)` for `%t#1`."""
        return tuple(map(int, self.text.split("#")[1:]))

    @property
    def name_start(self) -> int:
        """The start of the name, after `%`."""
        return self.start + self.text.startswith("%")

    @property
    def name_end(self) -> int:
        """The end of the name, before `#`."""
        return self.name_start + len(self.name)


_ROLES = dict.fromkeys(CALLING_ATTRIBUTES, Role.CALLED)
_ROLES["control-predecessors"] = Role.PREDECESSOR


def instruction_tokens(
    text: str, record: InstructionRecord | None = None, *, named: bool = True
) -> Iterator[Token]:
    """The tokens of an instruction; a nested instruction is not `named`.

    >>> text = "ROOT %r = f32[2] reduce(%x#1, c), to_apply=%add"
    >>> [(token.role.value, token.name) for token in instruction_tokens(text)][2:]
    [('type', 'f32'), ('opcode', 'reduce'), ('operand', 'x'), ('operand', 'c'), \
('attribute', 'to_apply'), ('called', 'add')]
    """
    stage = Role.NAME if named else Role.TYPE
    depth, offset, attribute = 0, 0, ""
    while match := _token.search(text, offset):
        offset, group = match.end(), match.lastgroup
        word = match[0]
        role: Role | None = None
        match group:
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
                is_root = word == "ROOT" and not _assigns(text, offset)
                role = Role.KEYWORD if is_root else Role.NAME
            case "word" if stage is Role.TYPE:
                is_opcode = not depth and _opens(text, offset) is not None
                if is_opcode and (record is None or opcode_of(record) == word):
                    role, stage = Role.OPCODE, Role.OPERAND
                    if record is not None and word in LITERAL_OPERANDS and operands_of(record):
                        # A literal may be as long as a file, and has no names.
                        yield Token(role, word, match.start(), offset)
                        offset = text.find(operands_of(record), offset) + len(operands_of(record))
                        depth, role = 1, None
                else:
                    role = Role.TYPE
            case "word" if stage is Role.ATTRIBUTE and not depth:
                role, attribute = Role.ATTRIBUTE, word
                if _assigns(text, offset):
                    stage = Role.VALUE
            case "word" if stage is Role.VALUE:
                role = _ROLES.get(attribute, Role.VALUE)
            case "word":
                role = stage
        if role is not None:
            within = attribute if stage is Role.VALUE else ""
            yield Token(role, word, match.start(), offset, within)


def head_tokens(text: str) -> Iterator[Token]:
    """The tokens of a computation's head, up to its opening brace.

    >>> [token.text for token in head_tokens("%add (x: f32[], y: f32[]) -> f32[] {")]
    ['%add', 'x', 'f32', 'y', 'f32', 'f32']
    """
    named = False
    depth = 0
    for match in _token.finditer(text):
        word, role = match[0], None
        match match.lastgroup:
            case "comment":
                role = Role.COMMENT
            case "open":
                if word == "{" and not depth:
                    return
                depth += 1
            case "close":
                depth -= 1
            case "word" if not named:
                is_entry = word == "ENTRY" and _names(text, match.end()) is not None
                named, role = not is_entry, Role.KEYWORD if is_entry else Role.NAME
            case "word":
                is_parameter = depth == 1 and _declares(text, match.end())
                role = Role.PARAMETER if is_parameter else Role.TYPE
        if role is not None:
            yield Token(role, word, *match.span())


# An unclosed string or comment extends to the end: each character is read once.
_brackets = late(
    r'"(?:[^"\\\n]++|\\.)*+"?|//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+|[({\[]|[)}\]]', re.S
).findall


def nests_deeper(text: str, levels: int) -> bool:
    """True if brackets of a text nest deeper than `levels`.

    >>> nests_deeper("{ { ( /* [ */ ) } }", 2), nests_deeper("{ [ ] ( ) }", 2)
    (True, False)
    """
    depth = 0
    for token in _brackets(text):
        if token in "({[":
            depth += 1
            if depth > levels:
                return True
        elif token in ")}]":
            depth = max(0, depth - 1)
    return False
