"""The general parser: HLO as people write it, character by character.

It knows no lines: comments, line breaks and white space may stand anywhere. What it cannot read it
leaves as text, says so, and goes on at the next line. No text makes it raise or recurse.

A statement may look as far as the next line that begins one. Only where a bracket or string is
still open there (a string of several lines, say) may it look to the end of the text, and once that
was in vain no later statement may: so the time stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from hlo_lint.hlo.attributes.splitting import COUNTS_BRACES, end_of_braces
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Inline
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.parser.fast import MAX_TOGETHER, read_lines
from hlo_lint.hlo.records import InstructionRecord, name_of, opcode_of
from hlo_lint.text.source import ParseError, Span

_white_before_returns = re.compile(
    r"(?:[ \t\r\n\f\v\ufeff]+|//[^\n\r]*|^#(?![(\d])[^\n]*)*", re.M
).match
"""White space and comments, which end at a carriage return, too."""
_white = re.compile(
    r"[ \t\r\n\f\v\ufeff]*+(?:(?://|^#(?![(\d])).*+[ \t\r\n\f\v\ufeff]*+)*+", re.M
).match
"""White space and comments of a text in which each carriage return stands before a line break:
`.` is several times faster than a class of characters."""
_SKIPPED = frozenset(" \t\r\n\f\v\ufeff/#")
"""The characters that white space and comments begin with."""
_blank = re.compile(r"(?:[ \t\f\v]+|/\*[^\n*]*\*/)*").match
_name = re.compile(r"%?([A-Za-z_][\w.\-]*)", re.A).match
_word = re.compile(r"[A-Za-z_][\w\-]*", re.A).match
_string = re.compile(r'"(?:[^"\\]|\\.)*"', re.S).match
_quoted = re.compile(r"'(?:[^'\\\n]|\\.)*'").match
_bracket = re.compile(r"[(){}\[\]\"']|/\*|//").search


def _pairs() -> str:
    """A pattern of brackets in pairs, three deep, and of no strings and comments in them."""
    flat = r"[^(){}\[\]\"'/]*+"
    inside = flat
    for _ in range(3):
        pairs = rf"\({inside}\)|\{{{inside}\}}|\[{inside}\]"
        inside = rf"{flat}(?:(?:{pairs}){flat})*+"
    return pairs


_shallow_brackets = re.compile(_pairs()).match
_part_mark = re.compile(r"[({\[\",/#]").search
"""The beginnings of comments, and of text in which a comma ends no part."""
_atom = re.compile(r"[^\s,(){}\[\]\"'/]+|/(?![/*])").match
_attribute = re.compile(r"([A-Za-z_][\w.\-]*)\s*=", re.A).match
_SIZES = r"\[(?:[^\[\]=]|<=)*\]"
_ARRAY = rf"[a-z][a-z0-9]*[ \t]*{_SIZES}"
_array = re.compile(_ARRAY).match
_element_type = re.compile(r"[a-z][a-z0-9]*(?=\s|/)").match
_sizes = re.compile(_SIZES).match
_in_layout = re.compile(r"[-\d:?}]").match
_operand = re.compile(r"%?([A-Za-z_][\w.\-]*)((?:#\d+)*):?", re.A).match
_another_statement = re.compile(r"(?:ROOT|ENTRY)\b|%?[A-Za-z_][\w.\-]*\s*=(?!=)", re.A).match
_computation_line = re.compile(
    r"(?!HloModule\b)(?:ENTRY[ \t]+)?%?[A-Za-z_][\w.\-]*:?[ \t]*(?:\([^\n]*)?\{[ \t]*\r?$",
    re.M | re.A,
).match
_bare_start = re.compile(rf"\(|{_ARRAY}|[a-z][a-z0-9\-]*\s*\(").match
_inline_start = re.compile(r"(?:ROOT\s+)?%?[A-Za-z_][\w.\-]*:?\s*=(?!=)", re.A).match
_statement_line = re.compile(
    r"^[ \t]*(?:ROOT[ \t]+)?%?[A-Za-z_][\w.\-]*:?[ \t]*=(?!=)|^[ \t]*\}|^(?:ENTRY|HloModule)\b"
    r"|^%?[A-Za-z_][\w.\-]*:?[ \t]*(?:\([^\n]*)?\{[ \t]*\r?$",
    re.M | re.A,
).search

_line_comment = re.compile(r"(?:^|,)[ \t]*(//)", re.M).search

_Match = Callable[[str, int, int], re.Match[str] | None]

_CLOSES = {"(": ")", "{": "}", "[": "]"}
_CALLS = frozenset(CALLING_ATTRIBUTES)
DEEP = 8
"""Levels of brackets below which the end of each is noted: each level is looked at again."""
FEW = 1 << 10
"""Characters of statements that are read one by one before lines are read together again."""
_MAX_DEPTH = 64
"""Maximum depth of instructions and computations written into each other: Python's stack is short,
and what people write stays below five."""


class Unreadable(Exception):
    """A place where the text is not HLO; the statement around it stays text."""

    def __init__(self, message: str, at: int, *, ran_out: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.ran_out = ran_out
        """True if the text ended before a bracket, string or comment did."""


class _Place(NamedTuple):
    """The place of one statement, or of several lines that hold one each."""

    start: int
    end: int
    lines: int = 0
    """The number of lines; 0 for a statement that was read by itself."""


class _Body:
    """The statements of one computation that were read so far."""

    __slots__ = ("inline", "nested", "parse_errors", "places", "rows")

    def __init__(self) -> None:
        self.rows: list[InstructionRecord] = []
        self.places: list[_Place] = []
        self.parse_errors: list[ParseError] = []
        self.nested: set[int] = set()
        """Rows that stand in the operands of another."""
        self.inline: list[tuple[int, int, Computation]] = []
        """Computations written into an attribute: the row's number, and where each begins."""

    def add(
        self,
        row: InstructionRecord,
        begin: int,
        end: int,
        inline: Sequence[tuple[int, Computation]],
    ) -> None:
        self.inline += [(len(self.rows), at, computation) for at, computation in inline]
        self.rows.append(row)
        self.places.append(_Place(begin, end))

    def forget(self, number: int, places: int) -> None:
        """Drop what stands in the operands of a statement that could not be read to its end."""
        del self.rows[number:], self.places[places:]
        self.nested = {row for row in self.nested if row < number}
        self.inline = [call for call in self.inline if call[0] < number]

    def computation(
        self,
        text: str,
        part: tuple[int, int],
        name: str,
        is_entry: bool,
        signature: str,
        tail: str,
    ) -> Computation:
        """The computation that is this part of the text."""
        if self.nested:
            self._name_rows()
        start = part[0]
        return Computation(
            text,
            name,
            is_entry,
            signature,
            tuple(self.rows),
            tail,
            partial(_spans, tuple(self.places), start),
            tuple(
                ParseError(message, begin - start, end - start)
                for message, begin, end in self.parse_errors
            ),
            frozenset(self.nested),
            self._inline(start),
            part,
        )

    def _inline(self, start: int) -> dict[int, tuple[Inline, ...]]:
        by_row: dict[int, list[Inline]] = {}
        for row, at, computation in self.inline:
            by_row.setdefault(row, []).append(Inline(at - start, computation))
        return {row: tuple(calls) for row, calls in by_row.items()}

    def _name_rows(self) -> None:
        """Give what the text leaves nameless the name that XLA has for it."""
        names = {name_of(row) for row in self.rows if name_of(row)[:1] != _NAMELESS}
        numbers: dict[str, int] = {}
        given = {
            name_of(row): _anonymous_name(opcode_of(row), names, numbers)
            for row in self.rows
            if name_of(row)[:1] == _NAMELESS
        }

        def named(reference: str) -> str:
            return given.get(reference, reference)

        self.rows = [
            (root, named(name), shape, opcode, operands, tail, tuple(map(named, reads)))
            for root, name, shape, opcode, operands, tail, reads in self.rows
        ]


def _anonymous_name(opcode: str, names: set[str], numbers: dict[str, int]) -> str:
    """XLA's name for what the text leaves nameless: `negate.anon`, `negate.anon.1`; it is noted.

    Args:
        names: all that the computation has so far.
        numbers: the last one for each name that had to be told from another.
    """
    base = name = f"{opcode}.anon"
    while name in names:
        numbers[base] = numbers.get(base, 0) + 1
        name = f"{base}.{numbers[base]}"
    names.add(name)
    return name


def _spans(places: tuple[_Place, ...], start: int, text: str) -> tuple[Span, ...]:
    """The spans of the instructions at some places, in the text that begins at `start`."""
    spans: list[Span] = []
    for begin, end, lines in places:
        if not lines:
            spans.append(Span(begin - start, end - start))
            continue
        at = begin - start
        for line in text[at : end - start].split("\n"):
            if statement := line.strip():
                first = at + line.index(statement)
                spans.append(Span(first, first + len(statement)))
            at += len(line) + 1
    return tuple(spans)


_NAMELESS = "\0"
"""Begins what stands for a name until all names of the computation are known."""
SINGLE = "_"
"""XLA's name for the module and the computation around a single instruction."""


class Scanner:
    """Reads the computations of one text; `parse_errors` collects what it could not read."""

    def __init__(self, text: str) -> None:
        self.text = text
        has_lines = "\r" not in text or text.count("\r") == text.count("\r\n")
        self._white = _white if has_lines else _white_before_returns
        self._lines_from = 0 if len(text) > MAX_TOGETHER else len(text) + 1
        """From where on statements may be lines of a dump."""
        self._together = MAX_TOGETHER
        """Number of characters of lines that are read together next."""
        self.end = len(text)
        """End of the text that the current statement may use."""
        self.may_look_on = True
        """True if a statement may look beyond the next line that begins one."""
        self.next_statement = -1
        self._ends: dict[int, int] = {}
        """The ends of brackets that stand deep in others, by their starts."""
        self._last_comment_end: int | None = None
        self.is_bare = False
        """True if statements are read that no computation is around."""
        self.parse_errors: list[ParseError] = []

    # Statements

    def computations(
        self, start: int, enough: int | None = None
    ) -> tuple[list[tuple[int, Computation]], int]:
        """The computations from `start` on, with where each begins, and the place after.

        Args:
            start: a place between computations.
            enough: one that begins after this place is not read; all are if it is None.
        """
        computations: list[tuple[int, Computation]] = []
        at = self.skip(start)
        enough = len(self.text) if enough is None else min(enough, len(self.text))
        while at < enough:
            try:
                end, computation = self._computation(at)
            except Unreadable as unreadable:
                at = self._pass_over(at, unreadable, self.parse_errors)
                continue
            computations.append((at, computation))
            at = self.skip(end)
        return computations, at

    def header(self, start: int) -> tuple[str, int]:
        """The name in `HloModule name, attribute=…` and where that ends, as far as it is read."""
        at = self.skip(start) + len("HloModule")
        self._bound(start)
        name = ""
        try:
            named = self._expect(_name, self.skip(at), "a module needs a name")
            name = named[1]
            at = named.end()
            at += self.text.startswith(":", at)
            try:
                return name, self.attributes(at)
            except Unreadable as unreadable:
                if not unreadable.ran_out:
                    raise
                self.end = len(self.text)  # a table of recovery holds whole modules, in a string
                return name, self.attributes(at)
        except Unreadable as unreadable:
            return name, self._pass_over(start, unreadable, self.parse_errors)

    def _computation(self, start: int) -> tuple[int, Computation]:
        text = self.text
        name, is_entry, signature, at = self._head(start)
        body, at = self._body(at, name)
        tail_start = at
        self._bound(at)
        try:
            at = self.attributes(at)
        except Unreadable:
            at = tail_start
        tail = text[tail_start:at].strip()
        return at, body.computation(text, (start, at), name, is_entry, signature, tail)

    def _head(self, start: int) -> tuple[str, bool, str, int]:
        """Name, whether it is the entry, signature, and where the statements begin."""
        self._bound(start)
        text = self.text
        named = self._expect(_name, start, "expected a computation")
        is_entry = named[0] == "ENTRY"
        at = named.end()
        if is_entry:
            at = self.skip(at)
            if at >= self.end:
                self._bound(at)  # its name stands on a line of its own
            named = self._expect(_name, at, "a computation needs a name")
            at = named.end()
        at += text.startswith(":", at)
        signature = ""
        at = self.skip(at)
        if text.startswith("(", at):
            begin = at
            at = self.skip(self._balanced(at))
            if not text.startswith("->", at):
                raise Unreadable("expected `->` and the shape of the result", at)
            at = self._shape(self.skip(at + 2))
            signature = text[begin:at]
            at = self.skip(at)
        if not text.startswith("{", at):
            raise Unreadable("expected a computation: a name, a signature and `{`", at)
        return named[1], is_entry, signature, self.skip(at + 1)

    def statements(self, start: int) -> tuple[int, Computation] | None:
        """Statements with no computation around them, to the end of the text; None at others.

        XLA reads one such statement, and makes parameters of operands that nothing defines.
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
        if len(body.rows) - len(body.nested) > 1:  # parameters, too, are written into operands
            message = "these instructions have no computation around them: `ENTRY main {` and `}`"
            body.parse_errors.append(ParseError(message, begin, begin))
        return end, body.computation(self.text, (begin, end), SINGLE, False, "", "")

    def _body(self, at: int, name: str, depth: int = 0) -> tuple[_Body, int]:
        body = _Body()
        text = self.text
        while True:
            if not self.is_bare:
                at = self._lines(at, body)
            if text.startswith("}", at) and not self.is_bare:
                return body, at + 1
            if at >= len(text) or self._begins_computation(at):
                at = self._back(at)
                if not self.is_bare:
                    message = f"the braces of %{name} never close"
                    body.parse_errors.append(ParseError(message, at, at))
                return body, at
            read = len(body.rows), len(body.places)
            try:
                end = self._statement(at, body, depth)
            except Unreadable as unreadable:
                body.forget(*read)
                at = self._pass_over(at, unreadable, body.parse_errors)
                continue
            at = self.skip(end)

    def _lines(self, at: int, body: _Body) -> int:
        """Read the instructions from `at` on that are a line each, and give the place after them.

        Where lines are not all as a printer writes them, fewer are read together: a single odd one
        costs those next to it.
        """
        while at >= self._lines_from:
            rows, end = read_lines(self.text, at, self._together)
            if rows:
                body.rows += rows
                body.places.append(_Place(at, end, len(rows)))
                at = self.skip(end)
                self._together = min(8 * self._together, MAX_TOGETHER)
            elif self._together > FEW:
                self._together //= 8
            else:
                self._lines_from = at + FEW
        return at

    def _statement(self, at: int, body: _Body, depth: int) -> int:
        self._bound(at)
        read = len(body.rows), len(body.places)
        try:
            return self._instruction(at, body, depth)
        except Unreadable as unreadable:
            if not unreadable.ran_out or not self.may_look_on:
                raise
            first = unreadable
        self.end = len(self.text)
        body.forget(*read)
        try:
            return self._instruction(at, body, depth)
        except Unreadable:
            self.may_look_on = False
            raise first from None

    def _instruction(self, start: int, body: _Body, depth: int) -> int:
        text = self.text
        if self.is_bare and not depth and not body.rows and not _inline_start(text, start):
            return self._right_side(start, SINGLE, "", start, body, depth)
        named = self._expect(_name, start, "expected an instruction")
        at = named.end()
        root = "ROOT " if named[0] == "ROOT" else ""
        if root:
            at = self.skip(at)
            if at >= self.end:
                self._bound(at)  # its name stands on a line of its own
            named = self._expect(_name, at, "ROOT needs an instruction")
            at = named.end()
        at = self.skip(at + text.startswith(":", at))
        if not text.startswith("=", at):
            raise Unreadable("expected `=` after the name of an instruction", at)
        return self._right_side(self.skip(at + 1), named[1], root, start, body, depth)

    def _right_side(
        self, at: int, name: str, root: str, start: int, body: _Body, depth: int
    ) -> int:
        text = self.text
        end = self._shape_end(at)
        type_text = text[at:end]
        at = self.skip(end)
        opcode = self._expect(_word, at, "expected an opcode")
        at = self.skip(opcode.end())
        if not text.startswith("(", at):
            raise Unreadable("expected `(` after the opcode", at)
        close = self._balanced(at)
        operands = text[at + 1 : close - 1]
        references: tuple[str, ...] = ()
        if opcode[0] not in LITERAL_OPERANDS:
            references = self._references(at + 1, close - 1, body, depth)
        end, inline = self.attributes_and_computations(close, depth)
        tail = text[close:end].lstrip()
        row = (root, name, type_text, opcode[0], operands, tail, references)
        body.add(row, start, end, inline)
        return end

    def _references(self, at: int, end: int, body: _Body, depth: int) -> tuple[str, ...]:
        names = []
        text = self.text
        for begin, stop in self._parts(at, end):
            begin = self.skip(begin)
            if begin >= stop:
                continue  # XLA's parser drops what has no name, and goes on at the comma
            shape_end = self._shape_end(begin)
            named_at = self.skip(shape_end)
            operand = _operand(text, named_at, stop)
            if operand is None:
                if self.is_bare and shape_end > begin and named_at >= stop:
                    names.append(self._parameter("", begin, shape_end, body))
                    continue
                if shape_end > begin and named_at >= stop:
                    continue
                raise Unreadable("expected the name of an operand", named_at)
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

    def _parameter(self, name: str, begin: int, end: int, body: _Body) -> str:
        """The parameter that XLA makes of an operand which nothing defines; the name may be ""."""
        if not name or all(name_of(row) != name for row in body.rows):
            number = sum(opcode_of(row) == "parameter" for row in body.rows)
            name = name or f"{SINGLE}{number}"
            body.nested.add(len(body.rows))
            row = ("", name, self.text[begin:end], "parameter", str(number), "", ())
            body.add(row, begin, end, ())
        return name

    def _nested(self, begin: int, shape_end: int, stop: int, body: _Body, depth: int) -> str:
        """Read an operand that is an instruction of its own, without attributes; gives its name."""
        text = self.text
        if depth > _MAX_DEPTH:
            raise Unreadable(f"instructions stand in each other deeper than {_MAX_DEPTH}", begin)
        opcode = self._expect(_word, self.skip(shape_end), "expected an opcode")
        at = self.skip(opcode.end())
        if not text.startswith("(", at):
            raise Unreadable("expected `(` after the opcode", at)
        close = self._balanced(at)
        if self.skip(close) < stop:
            raise Unreadable("expected `,` or `)` after an operand", close)
        references: tuple[str, ...] = ()
        if opcode[0] not in LITERAL_OPERANDS:
            references = self._references(at + 1, close - 1, body, depth)
        name = f"{_NAMELESS}{len(body.rows)}"
        body.nested.add(len(body.rows))
        type_text, operands = text[begin:shape_end], text[at + 1 : close - 1]
        body.add(("", name, type_text, opcode[0], operands, "", references), begin, close, ())
        return name

    def _parts(self, start: int, end: int) -> list[tuple[int, int]]:
        """Positions of the parts between top-level commas."""
        parts = []
        at = begin = start
        while mark := _part_mark(self.text, at, end):
            at = mark.start()
            character = mark[0]
            if character in _CLOSES:
                at = self._balanced(at)
            elif character == '"':
                at = self._quoted(at)
            elif character == ",":
                parts.append((begin, at))
                at = begin = at + 1
            else:
                at = max(self.skip(at), at + 1)
        if parts or self.skip(begin) < end:
            parts.append((begin, end))
        return parts

    def attributes(self, at: int) -> int:
        """The end of `, name=value, name=value`.

        Raises:
            Unreadable: where it is something else.
        """
        return self.attributes_and_computations(at, _MAX_DEPTH)[0]

    def attributes_and_computations(
        self, at: int, depth: int = 0
    ) -> tuple[int, Sequence[tuple[int, Computation]]]:
        """The end of `, name=value`, and the computations written there with where they begin.

        Raises:
            Unreadable: where it is something else.
        """
        inline: list[tuple[int, Computation]] = []
        while True:
            comma = self.skip(at)
            if not self.text.startswith(",", comma):
                return at, inline
            begin = self.skip(comma + 1)
            attribute = _attribute(self.text, begin)
            if attribute is None:
                raise Unreadable("expected an attribute: a name and `=`", begin)
            begin = self.skip(attribute.end())
            at = -1
            if attribute[1] in COUNTS_BRACES and self.text.startswith("{", begin):
                at = end_of_braces(self.text, begin, self.end)
            if at < 0:
                at = self._value(begin)
            if attribute[1] in _CALLS and self.text.startswith("{", begin) and depth < _MAX_DEPTH:
                inline += self._inline(begin, at, depth + 1)

    def _inline(self, begin: int, end: int, depth: int) -> list[tuple[int, Computation]]:
        """The computations of `{ x = … ROOT y = … }`, or of several such in braces."""
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

    def _value(self, at: int) -> int:
        begin = at
        text = self.text
        while at < self.end:
            character = text[at]
            if character in _CLOSES:
                at = self._balanced(at)
            elif character in "\"'":
                at = self._quoted(at)
            else:
                atom = _atom(text, at, self.end)
                if atom is None:
                    break
                at = atom.end()
            # A value may hold spaces (`mesh['x'=2] {'x'}`) but goes on to no other line.
            after = _end(_blank(text, at))
            ends = text[after : after + 1] in ("", ",", "\n", "\r", "}", ")")
            if ends or text.startswith("//", after) or _another_statement(text, after):
                break
            at = after
        if at == begin:
            raise Unreadable("an attribute needs a value", at)
        return at

    # Pieces

    def _shape(self, at: int) -> int:
        end = self._shape_end(at)
        if end == at:
            raise Unreadable("expected a shape", at)
        return end

    def _shape_end(self, at: int) -> int:
        """The end of the shape at `at`, or `at` where there is none."""
        text = self.text
        if text.startswith("(", at):
            return self._balanced(at)
        if text.startswith("b(", at):
            return self._balanced(at + 1)
        array = _array(text, at, self.end) or self._apart(at)
        if array is None:
            return at
        end = array.end()
        brace = self.skip(end)
        if text.startswith("{", brace) and _in_layout(text, self.skip(brace + 1), self.end):
            return self._balanced(brace)
        return end

    def _apart(self, at: int) -> re.Match[str] | None:
        """The sizes of an array that white space or comments part from its element type."""
        element_type = _element_type(self.text, at, self.end)
        return element_type and _sizes(self.text, self.skip(element_type.end()), self.end)

    def _balanced(self, start: int) -> int:
        """The end of the bracket that opens at `start`."""
        text = self.text
        end = self._ends.get(start)
        if end is not None and end <= self.end:
            return end
        if shallow := _shallow_brackets(text, start, self.end):
            return shallow.end()
        open_brackets: list[str] = []
        starts: list[int] = []
        at = start
        while True:
            bracket = _bracket(text, at, self.end)
            if bracket is None:
                raise Unreadable(f"`{text[start]}` is never closed", start, ran_out=True)
            at = bracket.start()
            mark = bracket[0]
            if mark in _CLOSES:
                open_brackets.append(_CLOSES[mark])
                starts.append(at)
                at += 1
            elif mark in ")}]":
                if open_brackets.pop() != mark:
                    raise Unreadable(f"`{mark}` closes nothing that is open", at)
                at += 1
                opened = starts.pop()
                if len(starts) > DEEP:
                    self._ends[opened] = at
                if not open_brackets:
                    return at
            elif mark in "\"'":
                at = self._quoted(at)
            else:
                after = self.skip(at)
                if after == at:
                    raise Unreadable("the comment never ends", at, ran_out=True)
                at = after

    def _quoted(self, at: int) -> int:
        if self.text[at] == "'":  # mesh['x'=2]; elsewhere an apostrophe is only a character
            quoted = _quoted(self.text, at, self.end)
            return quoted.end() if quoted else at + 1
        quoted = _string(self.text, at, self.end)
        if quoted is None:
            raise Unreadable("the string never ends", at, ran_out=True)
        return quoted.end()

    def skip(self, at: int) -> int:
        """The end of the white space and comments at `at`."""
        text = self.text
        if text[at : at + 1] not in _SKIPPED:  # most often: no need for a pattern
            return at
        while True:
            white = self._white(text, at)
            assert white is not None  # the pattern matches the empty text
            at = white.end()
            if not text.startswith("/*", at) or at + 2 > self._comments_end():
                return at
            at = text.index("*/", at + 2) + 2

    def _comments_end(self) -> int:
        """The last `*/`; -1 if there is none."""
        if self._last_comment_end is None:
            self._last_comment_end = self.text.rfind("*/")
        return self._last_comment_end

    def _expect(self, match: _Match, at: int, message: str) -> re.Match[str]:
        token = match(self.text, at, self.end)
        if token is None:
            raise Unreadable(message, at)
        return token

    # Going on after what could not be read

    def _begins_computation(self, at: int) -> bool:
        """True if a computation begins here, at the first column, although one is open."""
        first_column = at == 0 or self.text[at - 1] == "\n"
        return first_column and _computation_line(self.text, at) is not None

    def _back(self, at: int) -> int:
        """Start of the white space before `at`."""
        while at and self.text[at - 1].isspace():
            at -= 1
        return at

    def _bound(self, at: int) -> None:
        """Let the statement at `at` look as far as the next line that begins one."""
        line_end = self.text.find("\n", at)
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
            if self._follows_comma(following.start()):
                line_end = following.end()
        self.end = self.next_statement

    def _follows_comma(self, at: int) -> bool:
        """True if a comma stands before `at`; blanks and `//` comments may be between."""
        end = self._back(at)
        while comment := _line_comment(self.text, self.text.rfind("\n", 0, end) + 1, end):
            end = self._back(comment.start(1))
        return self.text[end - 1 : end] == ","

    def _pass_over(self, at: int, unreadable: Unreadable, parse_errors: list[ParseError]) -> int:
        """Note the unreadable line at `at` and go to the next one."""
        text = self.text
        line_end = text.find("\n", at)
        line_end = len(text) if line_end < 0 else line_end
        stop = max(at, self._back(line_end))
        before = parse_errors[-1] if parse_errors else None
        if before is not None and before.end <= at and not text[before.end : at].strip():
            parse_errors[-1] = ParseError(before.message, before.start, stop)
        else:
            parse_errors.append(
                ParseError(unreadable.message, min(max(unreadable.at, at), stop), stop)
            )
        return self.skip(line_end)


def _end(match: re.Match[str] | None) -> int:
    assert match is not None  # the patterns match the empty text
    return match.end()
