"""The general parser: HLO as people write it, character by character.

Comments, line breaks and white space may be anywhere. Unreadable text becomes a parse error, and
parsing continues at the next line. It never raises, and its recursion is bounded.

A statement is searched up to the next line that begins a statement. Only if a bracket or string is
still open there (a string of several lines, for example) the search goes to the end of the text,
and after such a search fails no later statement may repeat it: so the time stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, count
from typing import NamedTuple

from hlo_lint.hlo.attributes.splitting import COUNTS_BRACES, end_of_braces
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Inline
from hlo_lint.hlo.ir.computation import Irregularities
from hlo_lint.hlo.ir.computation_text import ComputationText
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.parser.fast import MAX_TOGETHER, Placed, read_lines
from hlo_lint.hlo.parser.pieces import ARRAY, TextPieces, Unreadable
from hlo_lint.hlo.records import InstructionRecord, name_of, opcode_of
from hlo_lint.text.source import ParseError, Span

NAMELESS = "\0"
"""The prefix of a placeholder name, until all names of the computation are known."""


class StatementPlace(NamedTuple):
    """The place of a statement, or of several lines with a statement each."""

    start: int
    end: int
    lines: int = 0
    """The number of lines; 0 for a statement that was read by itself."""


class ParsedBody:
    """The statements of a computation that were read so far."""

    __slots__ = ("inline", "nested", "parse_errors", "places", "rows")

    def __init__(self) -> None:
        self.rows: list[InstructionRecord] = []
        self.places: list[StatementPlace] = []
        self.parse_errors: list[ParseError] = []
        self.nested: set[int] = set()
        """Rows that are nested in the operands of another."""
        self.inline: dict[int, Sequence[Placed]] = {}
        """Inline computations in the attributes of each row."""

    def add(self, row: InstructionRecord, begin: int, end: int, inline: Sequence[Placed]) -> None:
        """Add a statement with its inline computations."""
        if inline:
            self.inline[len(self.rows)] = inline
        self.rows.append(row)
        self.places.append(StatementPlace(begin, end))

    def forget(self, number: int, places: int) -> None:
        """Drop the rows of a statement that was not read to its end."""
        del self.rows[number:], self.places[places:]
        self.nested = {row for row in self.nested if row < number}
        self.inline = {row: calls for row, calls in self.inline.items() if row < number}

    def computation(
        self, text: str, part: tuple[int, int], name: str, is_entry: bool, signature: str, tail: str
    ) -> Computation:
        """The computation in this part of the text."""
        if self.nested:
            self._name_rows()
        start = part[0]
        rows = tuple(self.rows)
        irregular = Irregularities(
            partial(_spans, tuple(self.places), start),
            tuple(
                ParseError(message, begin - start, end - start)
                for message, begin, end in self.parse_errors
            ),
            frozenset(self.nested),
            {
                row: tuple(Inline(begin - start, computation) for begin, computation in calls)
                for row, calls in self.inline.items()
            },
        )
        held = ComputationText(text, rows, part)
        return Computation(held, name, is_entry, signature, rows, tail, irregular)

    def _name_rows(self) -> None:
        """Give nameless instructions XLA's names: `negate.anon`, `negate.anon.1`."""
        taken = {name_of(row) for row in self.rows}
        free: dict[str, Iterator[str]] = {}
        given: dict[str, str] = {}
        for row in self.rows:
            if name_of(row)[:1] == NAMELESS:
                base = f"{opcode_of(row)}.anon"
                given[name_of(row)] = next(free.setdefault(base, free_names(base, taken)))

        def named(reference: str) -> str:
            return given.get(reference, reference)

        self.rows = [
            (root, named(name), shape, opcode, operands, tail, tuple(map(named, reads)))
            for root, name, shape, opcode, operands, tail, reads in self.rows
        ]


def free_names(base: str, taken: Container[str]) -> Iterator[str]:
    """The names `base`, `base.1`, `base.2` and so on that are not taken."""
    names = chain([base], (f"{base}.{number}" for number in count(1)))
    return (name for name in names if name not in taken)


def _spans(places: tuple[StatementPlace, ...], start: int, text: str) -> tuple[Span, ...]:
    spans: list[Span] = []
    for begin, end, lines in places:
        if not lines:
            spans.append(Span(begin - start, end - start))
            continue
        offset = begin - start
        for line in text[offset : end - start].split("\n"):
            if statement := line.strip():
                first = offset + line.index(statement)
                spans.append(Span(first, first + len(statement)))
            offset += len(line) + 1
    return tuple(spans)


_NAME = r"%?[A-Za-z_][\w.\-]*"
_OPENS_COMPUTATION = rf"{_NAME}:?[ \t]*(?:\([^\n]*)?\{{[ \t]*\r?$"
_name = re.compile(r"%?([A-Za-z_][\w.\-]*)", re.A).match
_word = re.compile(r"[A-Za-z_][\w\-]*", re.A).match
_attribute = re.compile(r"([A-Za-z_][\w.\-]*)\s*=", re.A).match
_operand = re.compile(r"%?([A-Za-z_][\w.\-]*)((?:#\d+)*):?", re.A).match
_computation_line = re.compile(
    rf"(?!HloModule\b)(?:ENTRY[ \t]+)?{_OPENS_COMPUTATION}", re.M | re.A
).match
_bare_start = re.compile(rf"\(|{ARRAY}|[a-z][a-z0-9\-]*\s*\(").match
_inline_start = re.compile(rf"(?:ROOT\s+)?{_NAME}:?\s*=(?!=)", re.A).match
_statement_line = re.compile(
    rf"^[ \t]*(?:ROOT[ \t]+)?{_NAME}:?[ \t]*=(?!=)|^[ \t]*\}}|^(?:ENTRY|HloModule)\b"
    rf"|^{_OPENS_COMPUTATION}",
    re.M | re.A,
).search
_line_comment = re.compile(r"(?:^|,)[ \t]*(//)", re.M).search
_CALLS = frozenset(CALLING_ATTRIBUTES)
FEW = 1 << 10
"""The number of characters that are read by statement before lines are read together again."""
_MAX_DEPTH = 64
"""Maximum nesting of instructions and computations: Python's stack is short, and real texts stay
below five."""
SINGLE = "_"
"""XLA's name for the module and the computation around a single instruction."""


class Scanner(TextPieces):
    """Reads the computations of a text; `parse_errors` collects unreadable parts."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._lines_from = 0 if len(text) > MAX_TOGETHER else len(text) + 1
        """The offset from which statements may be lines of a dump."""
        self._together = MAX_TOGETHER
        """The number of characters of lines to read together next."""
        self.may_look_on = True
        """True if a statement may extend beyond the next line that begins a statement."""
        self.next_statement = -1
        """The offset of the next line that begins a statement; -1 until it has been looked for."""
        self.is_bare = False
        """True while statements outside of computations are read."""
        self.parse_errors: list[ParseError] = []

    # Statements

    def computations(self, start: int, enough: int) -> tuple[list[Placed], int]:
        """The computations from `start` on, and the end.

        Args:
            start: an offset between computations.
            enough: computations that begin after this offset are not read.
        """
        computations: list[Placed] = []
        offset = self.skip(start)
        while offset < enough:
            try:
                end, computation = self._computation(offset)
            except Unreadable as unreadable:
                offset = self._pass_over(offset, unreadable, self.parse_errors)
                continue
            computations.append((offset, computation))
            offset = self.skip(end)
        return computations, offset

    def header(self, start: int) -> tuple[str, int]:
        """The name in `HloModule name, attribute=…`, and the end of the readable part."""
        offset = self.skip(start) + len("HloModule")
        self._bound(start)
        name = ""
        try:
            named = self._expect(_name, self.skip(offset), "a module needs a name")
            name = named[1]
            offset = named.end()
            offset += self.text.startswith(":", offset)
            try:
                return name, self.attributes(offset)
            except Unreadable as unreadable:
                if not unreadable.ran_out:
                    raise
                self.end = len(self.text)  # a recovery table has whole modules in a string
                return name, self.attributes(offset)
        except Unreadable as unreadable:
            return name, self._pass_over(start, unreadable, self.parse_errors)

    def _computation(self, start: int) -> tuple[int, Computation]:
        text = self.text
        name, is_entry, signature, offset = self._head(start)
        body, offset = self._body(offset, name)
        tail_start = offset
        self._bound(offset)
        with suppress(Unreadable):
            offset = self.attributes(offset)
        tail = text[tail_start:offset].strip()
        return offset, body.computation(text, (start, offset), name, is_entry, signature, tail)

    def _head(self, start: int) -> tuple[str, bool, str, int]:
        """Name, whether it is the entry, signature, and the beginning of the statements."""
        self._bound(start)
        text = self.text
        name, is_entry, offset = self._named(
            start, "ENTRY", "expected a computation", "a computation needs a name"
        )
        signature = ""
        offset = self.skip(offset)
        if text.startswith("(", offset):
            begin = offset
            offset = self.skip(self._balanced(offset))
            if not text.startswith("->", offset):
                raise Unreadable("expected `->` and the shape of the result", offset)
            result = self.skip(offset + 2)
            offset = self._shape_end(result)
            if offset == result:
                raise Unreadable("expected a shape", offset)
            signature = text[begin:offset]
            offset = self.skip(offset)
        if not text.startswith("{", offset):
            raise Unreadable("expected a computation: a name, a signature and `{`", offset)
        return name, is_entry, signature, self.skip(offset + 1)

    def _named(
        self, start: int, keyword: str, expected: str, nameless: str
    ) -> tuple[str, bool, int]:
        """A name, whether a keyword precedes it, and the end of the name and its colon."""
        named = self._expect(_name, start, expected)
        has_keyword = named[0] == keyword
        if has_keyword:
            offset = self.skip(named.end())
            if offset >= self.end:
                self._bound(offset)  # its name is on the next line
            named = self._expect(_name, offset, nameless)
        return named[1], has_keyword, named.end() + self.text.startswith(":", named.end())

    def statements(self, start: int) -> tuple[int, Computation] | None:
        """Statements outside of computations, to the end of the text; None for other text.

        XLA reads a single such statement, and makes parameters of undefined operands.
        """
        begin = self.skip(start)
        if not (_inline_start(self.text, begin) or _bare_start(self.text, begin)):
            return None
        self.is_bare = True
        body, end = self._body(begin, "")
        self.is_bare = False
        end = self._back(end)
        if not body.rows:
            return None
        if len(body.rows) - len(body.nested) > 1:  # the implicit parameters are nested, too
            message = "these instructions have no computation around them: `ENTRY main {` and `}`"
            body.parse_errors.append(ParseError(message, begin, begin))
        return end, body.computation(self.text, (begin, end), SINGLE, False, "", "")

    def _body(self, offset: int, name: str, depth: int = 0) -> tuple[ParsedBody, int]:
        body = ParsedBody()
        text = self.text
        while True:
            if not self.is_bare:
                offset = self._lines(offset, body)
            if text.startswith("}", offset) and not self.is_bare:
                return body, offset + 1
            at_first_column = offset == 0 or text[offset - 1] == "\n"
            # Another computation may begin, although this one is open.
            if offset >= len(text) or (at_first_column and _computation_line(text, offset)):
                offset = self._back(offset)
                if not self.is_bare:
                    message = f"the braces of %{name} never close"
                    body.parse_errors.append(ParseError(message, offset, offset))
                return body, offset
            read = len(body.rows), len(body.places)
            try:
                end = self._statement(offset, body, depth)
            except Unreadable as unreadable:
                body.forget(*read)
                offset = self._pass_over(offset, unreadable, body.parse_errors)
                continue
            offset = self.skip(end)

    def _lines(self, offset: int, body: ParsedBody) -> int:
        """Read the instructions from `offset` on that are a line each, and return the end.

        If not all lines are spelled as XLA prints them, fewer are read together: an odd line only
        slows down its neighbours.
        """
        while offset >= self._lines_from:
            rows, end = read_lines(self.text, offset, self._together)
            if rows:
                body.rows += rows
                body.places.append(StatementPlace(offset, end, len(rows)))
                offset = self.skip(end)
                self._together = min(8 * self._together, MAX_TOGETHER)
            elif self._together > FEW:
                self._together //= 8
            else:
                self._lines_from = offset + FEW
        return offset

    def _statement(self, offset: int, body: ParsedBody, depth: int) -> int:
        """Read an instruction; if its text ends in brackets or a string, look beyond the line."""
        self._bound(offset)
        read = len(body.rows), len(body.places)
        try:
            return self._instruction(offset, body, depth)
        except Unreadable as unreadable:
            if not unreadable.ran_out or not self.may_look_on:
                raise
            first = unreadable
        self.end = len(self.text)
        body.forget(*read)
        try:
            return self._instruction(offset, body, depth)
        except Unreadable:
            self.may_look_on = False
            raise first from None

    def _instruction(self, start: int, body: ParsedBody, depth: int) -> int:
        text = self.text
        if self.is_bare and not depth and not body.rows and not _inline_start(text, start):
            return self._right_side(start, SINGLE, "", start, body, depth)
        name, is_root, offset = self._named(
            start, "ROOT", "expected an instruction", "ROOT needs an instruction"
        )
        offset = self.skip(offset)
        if not text.startswith("=", offset):
            raise Unreadable("expected `=` after the name of an instruction", offset)
        root = "ROOT " if is_root else ""
        return self._right_side(self.skip(offset + 1), name, root, start, body, depth)

    def _right_side(
        self, offset: int, name: str, root: str, start: int, body: ParsedBody, depth: int
    ) -> int:
        """Read `shape opcode(operands), attributes` of an instruction, and return the end."""
        type_text = self.text[offset : self._shape_end(offset)]
        after_type = offset + len(type_text)
        opcode, operands, references, close = self._operation(after_type, body, depth)
        end, inline = self.attributes_and_computations(close, depth)
        tail = self.text[close:end].lstrip()
        body.add((root, name, type_text, opcode, operands, tail, references), start, end, inline)
        return end

    def _operation(
        self, offset: int, body: ParsedBody, depth: int
    ) -> tuple[str, str, tuple[str, ...], int]:
        """Opcode, text and names of the operands, and the end of `opcode(operands)`."""
        opcode = self._expect(_word, self.skip(offset), "expected an opcode")
        offset = self.skip(opcode.end())
        if not self.text.startswith("(", offset):
            raise Unreadable("expected `(` after the opcode", offset)
        close = self._balanced(offset)
        references: tuple[str, ...] = ()
        if opcode[0] not in LITERAL_OPERANDS:
            references = self._references(offset + 1, close - 1, body, depth)
        return opcode[0], self.text[offset + 1 : close - 1], references, close

    def _references(self, offset: int, end: int, body: ParsedBody, depth: int) -> tuple[str, ...]:
        names = []
        text = self.text
        for begin, stop in self._parts(offset, end):
            begin = self.skip(begin)
            if begin >= stop:
                continue  # XLA's parser drops a nameless operand, and continues at the comma
            shape_end = self._shape_end(begin)
            named_at = self.skip(shape_end)
            operand = _operand(text, named_at, stop)
            if operand is None:
                if shape_end == begin or named_at < stop:
                    raise Unreadable("expected the name of an operand", named_at)
                if self.is_bare:
                    names.append(self._parameter("", begin, shape_end, body))
                continue
            after = self.skip(operand.end())
            if after >= stop:
                names.append(operand[1] + operand[2])
                if self.is_bare and shape_end > begin:
                    self._parameter(operand[1], begin, shape_end, body)
            elif text.startswith("(", after):
                names.append(self._nested(begin, shape_end, stop, body, depth + 1))
            else:
                raise Unreadable("expected `,` or `)` after an operand", after)
        return tuple(names)

    def _parameter(self, name: str, begin: int, end: int, body: ParsedBody) -> str:
        """The parameter that XLA makes of an undefined operand; the name may be ""."""
        if not name or all(name_of(row) != name for row in body.rows):
            number = sum(opcode_of(row) == "parameter" for row in body.rows)
            name = name or f"{SINGLE}{number}"
            body.nested.add(len(body.rows))
            row = ("", name, self.text[begin:end], "parameter", str(number), "", ())
            body.add(row, begin, end, ())
        return name

    def _nested(self, begin: int, shape_end: int, stop: int, body: ParsedBody, depth: int) -> str:
        """Read an operand that is a nested instruction, without attributes; return its name."""
        if depth > _MAX_DEPTH:
            raise Unreadable(f"instructions nest deeper than {_MAX_DEPTH}", begin)
        opcode, operands, references, close = self._operation(shape_end, body, depth)
        if self.skip(close) < stop:
            raise Unreadable("expected `,` or `)` after an operand", close)
        name = f"{NAMELESS}{len(body.rows)}"
        body.nested.add(len(body.rows))
        type_text = self.text[begin:shape_end]
        body.add(("", name, type_text, opcode, operands, "", references), begin, close, ())
        return name

    def attributes(self, offset: int) -> int:
        """The end of `, name=value, name=value`; inline computations in them are not read.

        Raises:
            Unreadable: for other text.
        """
        return self.attributes_and_computations(offset, _MAX_DEPTH)[0]

    def attributes_and_computations(
        self, offset: int, depth: int = 0
    ) -> tuple[int, Sequence[Placed]]:
        """The end of `, name=value`, and the inline computations.

        Raises:
            Unreadable: for other text.
        """
        inline: list[Placed] = []
        while True:
            comma = self.skip(offset)
            if not self.text.startswith(",", comma):
                return offset, inline
            begin = self.skip(comma + 1)
            attribute = _attribute(self.text, begin)
            if attribute is None:
                raise Unreadable("expected an attribute: a name and `=`", begin)
            begin = self.skip(attribute.end())
            offset = -1
            if attribute[1] in COUNTS_BRACES and self.text.startswith("{", begin):
                offset = end_of_braces(self.text, begin, self.end)
            if offset < 0:
                offset = self._value(begin)
            if attribute[1] in _CALLS and self.text.startswith("{", begin) and depth < _MAX_DEPTH:
                inline += self._inline(begin, offset, depth + 1)

    def _inline(self, begin: int, end: int, depth: int) -> list[Placed]:
        """The computations of `{ x = … ROOT y = … }`, or of several of these in braces."""
        text = self.text
        inside = self.skip(begin + 1)
        if text.startswith("{", inside):
            parts = [(self.skip(start), stop) for start, stop in self._parts(begin + 1, end - 1)]
            return [
                call
                for start, stop in parts
                if text.startswith("{", start)
                for call in self._inline(start, stop, depth)
            ]
        if not _inline_start(text, inside):
            return []
        bound, bare = self.end, self.is_bare
        self.is_bare = False
        body, close = self._body(inside, "_", depth)
        self.end, self.is_bare = bound, bare
        return [(begin, body.computation(text, (begin, close), "_", False, "", ""))]

    # Recovery after unreadable text

    def _bound(self, offset: int) -> None:
        """Bound the statement at `offset` by the next line that begins a statement."""
        line_end = self.text.find("\n", offset)
        if line_end < 0:
            self.end = len(self.text)
            return
        while self.next_statement <= line_end:
            following = _statement_line(self.text, line_end + 1)
            if following is None:
                self.next_statement = len(self.text)
                break
            self.next_statement = following.start()
            # `metadata={…}` on a line of its own, after a comma, is not a statement.
            end = self._back(following.start())
            while comment := _line_comment(self.text, self.text.rfind("\n", 0, end) + 1, end):
                end = self._back(comment.start(1))
            if self.text[end - 1 : end] == ",":
                line_end = following.end()
        self.end = self.next_statement

    def _pass_over(
        self, offset: int, unreadable: Unreadable, parse_errors: list[ParseError]
    ) -> int:
        """Record a line as unreadable, together with unreadable lines right above it.

        Returns the offset of the text after it.
        """
        text = self.text
        line_end = text.find("\n", offset)
        line_end = len(text) if line_end < 0 else line_end
        stop = max(offset, self._back(line_end))
        before = parse_errors[-1] if parse_errors else None
        if before is not None and before.end <= offset and not text[before.end : offset].strip():
            parse_errors[-1] = ParseError(before.message, before.start, stop)
        else:
            begin = min(max(unreadable.at, offset), stop)
            parse_errors.append(ParseError(unreadable.message, begin, stop))
        return self.skip(line_end)
