"""The general parser: HLO as people write it, character by character.

It knows no lines: comments, line breaks and white space may stand anywhere. What it cannot read it
leaves as text, says so, and goes on at the next line. No text makes it raise or recurse.

A statement may look as far as the next line that begins one. Only where a bracket or string is
still open there (a string of several lines, say) may it look to the end of the text, and once that
was in vain no later statement may: so the time stays linear.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hlo_lint.hlo.attributes.splitting import COUNTS_BRACES, end_of_braces
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.parser.body import NAMELESS, ParsedBody, StatementPlace
from hlo_lint.hlo.parser.fast import MAX_TOGETHER, read_lines
from hlo_lint.hlo.parser.pieces import ARRAY, TextPieces, Unreadable
from hlo_lint.hlo.records import name_of, opcode_of
from hlo_lint.text.source import ParseError

_name = re.compile(r"%?([A-Za-z_][\w.\-]*)", re.A).match
_word = re.compile(r"[A-Za-z_][\w\-]*", re.A).match
_attribute = re.compile(r"([A-Za-z_][\w.\-]*)\s*=", re.A).match
_operand = re.compile(r"%?([A-Za-z_][\w.\-]*)((?:#\d+)*):?", re.A).match
_computation_line = re.compile(
    r"(?!HloModule\b)(?:ENTRY[ \t]+)?%?[A-Za-z_][\w.\-]*:?[ \t]*(?:\([^\n]*)?\{[ \t]*\r?$",
    re.M | re.A,
).match
_bare_start = re.compile(rf"\(|{ARRAY}|[a-z][a-z0-9\-]*\s*\(").match
_inline_start = re.compile(r"(?:ROOT\s+)?%?[A-Za-z_][\w.\-]*:?\s*=(?!=)", re.A).match
_statement_line = re.compile(
    r"^[ \t]*(?:ROOT[ \t]+)?%?[A-Za-z_][\w.\-]*:?[ \t]*=(?!=)|^[ \t]*\}|^(?:ENTRY|HloModule)\b"
    r"|^%?[A-Za-z_][\w.\-]*:?[ \t]*(?:\([^\n]*)?\{[ \t]*\r?$",
    re.M | re.A,
).search
_line_comment = re.compile(r"(?:^|,)[ \t]*(//)", re.M).search
_CALLS = frozenset(CALLING_ATTRIBUTES)
FEW = 1 << 10
"""Characters of statements that are read one by one before lines are read together again."""
_MAX_DEPTH = 64
"""Maximum depth of instructions and computations written into each other: Python's stack is short,
and what people write stays below five."""
SINGLE = "_"
"""XLA's name for the module and the computation around a single instruction."""


class Scanner(TextPieces):
    """Reads the computations of one text; `parse_errors` collects what it could not read."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._lines_from = 0 if len(text) > MAX_TOGETHER else len(text) + 1
        """From where on statements may be lines of a dump."""
        self._together = MAX_TOGETHER
        """Number of characters of lines that are read together next."""
        self.may_look_on = True
        """True if a statement may look beyond the next line that begins one."""
        self.next_statement = -1
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

    def _body(self, at: int, name: str, depth: int = 0) -> tuple[ParsedBody, int]:
        body = ParsedBody()
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

    def _lines(self, at: int, body: ParsedBody) -> int:
        """Read the instructions from `at` on that are a line each, and give the place after them.

        Where lines are not all as a printer writes them, fewer are read together: a single odd one
        costs those next to it.
        """
        while at >= self._lines_from:
            rows, end = read_lines(self.text, at, self._together)
            if rows:
                body.rows += rows
                body.places.append(StatementPlace(at, end, len(rows)))
                at = self.skip(end)
                self._together = min(8 * self._together, MAX_TOGETHER)
            elif self._together > FEW:
                self._together //= 8
            else:
                self._lines_from = at + FEW
        return at

    def _statement(self, at: int, body: ParsedBody, depth: int) -> int:
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

    def _instruction(self, start: int, body: ParsedBody, depth: int) -> int:
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
        self, at: int, name: str, root: str, start: int, body: ParsedBody, depth: int
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

    def _references(self, at: int, end: int, body: ParsedBody, depth: int) -> tuple[str, ...]:
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

    def _parameter(self, name: str, begin: int, end: int, body: ParsedBody) -> str:
        """The parameter that XLA makes of an operand which nothing defines; the name may be ""."""
        if not name or all(name_of(row) != name for row in body.rows):
            number = sum(opcode_of(row) == "parameter" for row in body.rows)
            name = name or f"{SINGLE}{number}"
            body.nested.add(len(body.rows))
            row = ("", name, self.text[begin:end], "parameter", str(number), "", ())
            body.add(row, begin, end, ())
        return name

    def _nested(self, begin: int, shape_end: int, stop: int, body: ParsedBody, depth: int) -> str:
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
        name = f"{NAMELESS}{len(body.rows)}"
        body.nested.add(len(body.rows))
        type_text, operands = text[begin:shape_end], text[at + 1 : close - 1]
        body.add(("", name, type_text, opcode[0], operands, "", references), begin, close, ())
        return name

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

    # Going on after what could not be read

    def _begins_computation(self, at: int) -> bool:
        """True if a computation begins here, at the first column, although one is open."""
        first_column = at == 0 or self.text[at - 1] == "\n"
        return first_column and _computation_line(self.text, at) is not None

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
