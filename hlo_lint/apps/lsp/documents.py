"""One version of an open text, read once: what stands where, and where else it is named."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from hlo_lint.apps.lsp.texts import Text
from hlo_lint.hlo.ir import Computation, HloFile, Instruction, Module, called_names
from hlo_lint.hlo.parser.module import Memo, parse_file
from hlo_lint.hlo.parser.tokens import Role, Token, head_tokens, instruction_tokens
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of, references_of, root_mark_of
from hlo_lint.text.source import Span

_directive = re.compile(r"(?://|/\*)\s*hlo-lint:\s*\S+\s+(.*?)(?:\s--\s|\s--$|\*/|$)", re.M)
_rule_name = re.compile(r"[a-z][a-z\d]*(?:-[a-z\d]+)*")
MAX_INDEXED = 20_000
"""Above this many instructions, find users by text search instead of building the full user map."""
_NAMING = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


class ComputationPlace(NamedTuple):
    """A computation where it stands."""

    module: Module
    computation: Computation
    begin: int
    """The start of its text, in characters of the file."""

    @property
    def end(self) -> int:
        """The end of its text, in characters of the file."""
        return self.begin + len(self.computation.text)

    def instruction(self, number: int) -> Instruction:
        """A view of an instruction that the thread which checks does not share."""
        return Instruction(self.computation, number)


class Symbol(NamedTuple):
    """A name in the text, and what it stands for."""

    place: ComputationPlace
    number: int | None
    """The position of the instruction in the place; None for the computation itself."""
    element: tuple[int, ...]
    """The element of a tuple, where the text reads one: `(1,)` for `%t#1`."""
    span: Span
    """The name as it stands there, `%` and `#1` left out, in characters of the file."""
    defines: bool
    """True if this is the definition."""

    @property
    def name(self) -> str:
        """The name without `%`."""
        if self.number is None:
            return self.place.computation.name
        return name_of(self.place.computation.rows[self.number])


class DocumentStatement(NamedTuple):
    """An instruction, a head, or a line that could not be read, with its tokens."""

    place: ComputationPlace
    number: int | None
    """The position of the instruction; None for a head or an unread line."""
    begin: int
    """Its start, in characters of the file."""
    tokens: tuple[Token, ...]

    def token_at(self, offset: int) -> Token | None:
        """The token that holds a character of the file, or ends before it."""
        at = offset - self.begin
        touched = [token for token in self.tokens if token.start <= at <= token.end]
        return touched[-1] if touched else None


class Document:
    """A text of one version, and the modules in it."""

    def __init__(self, text: Text, memo: Memo) -> None:
        """Reads the text; `memo` knows the version before, whose lines are not read again."""
        self.text = text
        is_file = text.uri.startswith("file:") and "\0" not in text.path
        self.file_path = Path(text.path) if is_file else None
        """The file that it is saved to; None for a text without a file, as any with a NUL is."""
        self.path = self.file_path or Path(text.uri.replace("\0", "%00"))
        self.file: HloFile = parse_file(text.source, self.path, memo)
        _forget_older(memo, self.file)

    @cached_property
    def places(self) -> Sequence[ComputationPlace]:
        """Every computation, in the order of the text, followed by those written into it."""
        parts = [
            ComputationPlace(module, computation, module.start + module.offset(number))
            for module in self.file.modules
            for number, computation in enumerate(module.computations)
        ]
        return sorted(parts, key=lambda place: (place.begin, -place.end))

    @cached_property
    def _inline(self) -> frozenset[int]:
        """Positions in `places` of computations that are written into another one."""
        starts = set()
        end = -1
        for at, place in enumerate(self.places):
            if place.begin < end:
                starts.add(at)
            end = max(end, place.end)
        return frozenset(starts)

    @cached_property
    def extents(self) -> Sequence[tuple[Module, Span]]:
        """Each module, and where its text stands."""
        modules = self.file.modules
        ends = [*(module.start for module in modules[1:]), len(self.text.source)]
        return [
            (module, Span(module.start, end)) for module, end in zip(modules, ends, strict=True)
        ]

    def place_at(self, offset: int) -> ComputationPlace | None:
        """The innermost computation that holds a character of the file."""
        at = bisect_right(self.places, offset, key=lambda place: place.begin)
        while at:  # those after it that end before the offset are written into another one
            at -= 1
            place = self.places[at]
            if offset <= place.end:
                return place
            if at not in self._inline:
                return None
        return None

    def statement_at(self, offset: int) -> DocumentStatement | None:
        """The statement at a character of the file, as its tokens."""
        place = self.place_at(offset)
        if place is None:
            return None
        number = self.number_at(place, offset)
        if number is not None:
            return self.statement(place, number)
        head = self.head(place)
        if head.token_at(offset) is not None:
            return head
        begin, end = self._line(offset)
        begin = max(begin, place.begin)
        tokens = instruction_tokens(self.text.source[begin:end])
        return DocumentStatement(place, None, begin, tuple(tokens))

    def _line(self, offset: int) -> Span:
        """The line that holds a character of the file."""
        source = self.text.source
        end = source.find("\n", offset)
        return Span(source.rfind("\n", 0, offset) + 1, end if end >= 0 else len(source))

    def statement(self, place: ComputationPlace, number: int) -> DocumentStatement:
        """An instruction in its tokens."""
        computation = place.computation
        start, end = self.span(place, number)
        row = computation.rows[number]
        text = self.text.source[start:end]
        named = number not in computation.nested and name_of(row) in text.partition("=")[0]
        tokens = instruction_tokens(text, row, named=named)
        return DocumentStatement(place, number, start, tuple(tokens))

    def span(self, place: ComputationPlace, number: int) -> Span:
        """The span of an instruction, in characters of the file."""
        if self._is_by_lines(place):
            line = self.text.line_of(place.begin) + 1 + number
            return Span(self.text.starts[line] + 2, self.text.starts[line + 1] - 1)
        start, end = place.computation.spans[number]
        return Span(place.begin + start, place.begin + end)

    def number_at(self, place: ComputationPlace, offset: int) -> int | None:
        """The innermost instruction of a computation that holds a character of the file."""
        computation = place.computation
        if self._is_by_lines(place):
            number = self.text.line_of(offset) - self.text.line_of(place.begin) - 1
            is_there = 0 <= number < len(computation.rows)
            return number if is_there and offset >= self.span(place, number).start else None
        spans, at = computation.spans, offset - place.begin
        if computation.nested:
            holding = [n for n, span in enumerate(spans) if span.start <= at <= span.end]
            return min(holding, key=lambda n: spans[n].end - spans[n].start, default=None)
        index = bisect_right(spans, at, key=lambda span: span.start) - 1
        return index if index >= 0 and at <= spans[index].end else None

    def _is_by_lines(self, place: ComputationPlace) -> bool:
        """True if instructions are lines, so that the span of one is found without those of all."""
        return not (place.computation.has_spans or self._has_returns)

    @cached_property
    def _has_returns(self) -> bool:
        """True if lines end at carriage returns, too."""
        return "\r" in self.text.source

    def readers(self, place: ComputationPlace, name: str) -> Sequence[int]:
        """Positions of the instructions that read a name, each once, in the order of the text."""
        computation = place.computation
        if len(computation.rows) < MAX_INDEXED:
            return computation.users.get(name, ())
        numbers: list[int] = []
        source, at = self.text.source, place.begin
        while (at := source.find(name, at, place.end)) >= 0:
            start, at = at, at + len(name)
            if source[start - 1] in _NAMING or source[at : at + 1] in _NAMING:
                continue
            number = self.number_at(place, start)
            if number is None or numbers[-1:] == [number]:
                continue
            references = references_of(computation.rows[number])
            if any(reference.partition("#")[0] == name for reference in references):
                numbers.append(number)
        return numbers

    def head(self, place: ComputationPlace) -> DocumentStatement:
        """The head of a computation in its tokens."""
        last = len(place.computation.rows) - 1
        end = place.end
        if last >= 0:  # the first row may be written into the operands of the last
            end = min(self.span(place, 0).start, self.span(place, last).start)
        tokens = tuple(head_tokens(self.text.source[place.begin : end]))
        return DocumentStatement(place, None, place.begin, tokens)

    def symbol_at(self, offset: int) -> Symbol | None:
        """The symbol at a character of the file."""
        statement = self.statement_at(offset)
        token = statement.token_at(offset) if statement else None
        if statement is None or token is None:
            return None
        return self.resolve(statement, token)

    def resolve(self, statement: DocumentStatement, token: Token) -> Symbol | None:
        """Resolve a token to its symbol; None if it is not a name or is undefined."""
        place = statement.place
        span = Span(statement.begin + token.name_start, statement.begin + token.name_end)
        match token.role:
            case Role.NAME if statement.number is not None:
                return Symbol(place, statement.number, (), span, True)
            case Role.NAME if token.name == place.computation.name:
                is_head = statement.begin == place.begin
                return Symbol(place, None, (), span, True) if is_head else None
            case Role.OPERAND | Role.PREDECESSOR:
                number = place.computation.index.get(token.name)
                return None if number is None else Symbol(place, number, token.element, span, False)
            case Role.PARAMETER:
                number = place.computation.index.get(token.name)
                return None if number is None else Symbol(place, number, (), span, False)
            case Role.CALLED:
                called = self.computation(place.module, token.name)
                return None if called is None else Symbol(called, None, (), span, False)
            case _:
                return None

    def computation(self, module: Module, name: str) -> ComputationPlace | None:
        """The computation of that name in a module."""
        return self._by_name.get((id(module), name))

    @cached_property
    def _by_name(self) -> dict[tuple[int, str], ComputationPlace]:
        """Of a doubled name the first."""
        return {
            (id(place.module), place.computation.name): place for place in reversed(self.places)
        }

    def definition(self, symbol: Symbol) -> Symbol | None:
        """The place that gives a name."""
        return next((occurrence for occurrence in self.occurrences(symbol, uses=False)), None)

    def occurrences(self, symbol: Symbol, *, uses: bool = True) -> Iterator[Symbol]:
        """Every place that names what a symbol stands for, the one that gives the name first."""
        if symbol.number is None:
            yield from self._occurrences_of_computation(symbol.place, uses)
        else:
            yield from self._occurrences_of_instruction(symbol.place, symbol.number, uses)

    def _occurrences_of_computation(self, place: ComputationPlace, uses: bool) -> Iterator[Symbol]:
        head = self.head(place)
        yield from self._named(head, place, None, defines=True)
        if not uses:
            return
        for statement in self.callers(place):
            yield from self._named(statement, place, None)

    def callers(self, place: ComputationPlace) -> Iterator[DocumentStatement]:
        """The instructions that call a computation by its name, in the order of the text."""
        name, module = place.computation.name, place.module
        seen: set[int] = set()
        source = self.text.source
        at, end = next(span for owner, span in self.extents if owner is module)
        while (at := source.find(name, at, end)) >= 0:
            start, at = at, at + len(name)
            before = source[start - 1 - (source[start - 1] == "%")]
            if before not in "={, \t\n" or source[at : at + 1] in (*_NAMING, "("):
                continue
            caller = self.place_at(start)
            if caller is None:
                continue
            number = self.number_at(caller, start)
            if number is None or name not in called_names(
                attributes_of(caller.computation.rows[number])
            ):
                continue
            statement = self.statement(caller, number)
            if statement.begin not in seen:
                seen.add(statement.begin)
                yield statement

    def _occurrences_of_instruction(
        self, place: ComputationPlace, number: int, uses: bool
    ) -> Iterator[Symbol]:
        computation = place.computation
        name = name_of(computation.rows[number])
        yield from self._named(self.statement(place, number), place, number, defines=True)
        if not uses:
            return
        if opcode_of(computation.rows[number]) == "parameter":
            yield from self._named(self.head(place), place, number)
        readers = set(self.readers(place, name))
        if computation.mentions("control-predecessors"):
            readers |= {
                at
                for at, row in enumerate(computation.rows)
                if name in attributes_of(row) and "control-predecessors" in attributes_of(row)
            }
        seen: set[int] = set()
        for reader in sorted(readers):
            for occurrence in self._named(self.statement(place, reader), place, number):
                # A nested reader stands in another one's text.
                if occurrence.span.start not in seen:
                    seen.add(occurrence.span.start)
                    yield occurrence

    def _named(
        self,
        statement: DocumentStatement,
        place: ComputationPlace,
        number: int | None,
        *,
        defines: bool = False,
    ) -> Iterator[Symbol]:
        """The symbols that a statement names; only its own if `defines`."""
        for token in statement.tokens:
            symbol = self.resolve(statement, token)
            if symbol is None or symbol.defines is not defines:
                continue
            if symbol.place.begin == place.begin and symbol.number == number:
                yield symbol

    def statements(self, span: Span) -> Iterator[DocumentStatement]:
        """The heads and the instructions in a stretch of the file, each with its own tokens.

        What is written into another instruction has no tokens of its own there.
        """
        for place in self.places:
            if place.end < span.start or place.begin > span.end:
                continue
            written = chain.from_iterable(place.computation.inline.values())
            inline = [
                (
                    place.begin + declared.start,
                    place.begin + declared.start + len(declared.computation.text),
                )
                for declared in written
            ]
            yield self.head(place)
            first = self._first(place, span.start)
            for number in range(first, len(place.computation.rows)):
                if number in place.computation.nested:
                    continue
                if self.span(place, number).start > span.end:
                    break
                statement = self.statement(place, number)
                tokens = [
                    token
                    for token in statement.tokens
                    if not any(at <= statement.begin + token.start < end for at, end in inline)
                ]
                yield statement._replace(tokens=tuple(tokens))

    def _first(self, place: ComputationPlace, offset: int) -> int:
        """The first instruction of a computation that ends after a character of the file."""
        if place.computation.nested or offset <= place.begin:
            return 0
        number = self.number_at(place, offset)
        if number is not None:
            return number
        rows = range(len(place.computation.rows))
        return bisect_right(rows, offset, key=lambda number: self.span(place, number).end)

    def rule_at(self, offset: int) -> tuple[str, Span] | None:
        """The name in a comment for hlo-lint at a character, which may be that of a rule."""
        directive = _directive.search(self.text.source, *self._line(offset))
        if directive is None:
            return None
        for name in _rule_name.finditer(self.text.source, directive.start(1), directive.end(1)):
            if name.start() <= offset <= name.end():
                return name[0], Span(*name.span())
        return None

    def called_by(self, place: ComputationPlace, number: int) -> tuple[ComputationPlace, ...]:
        """The computations that an instruction calls by name and that are there."""
        names = called_names(attributes_of(place.computation.rows[number]))
        callees = (self.computation(place.module, name) for name in names)
        return tuple(callee for callee in callees if callee is not None)


def _forget_older(memo: Memo, file: HloFile) -> None:
    """Lets go what only the versions before had: a memo is made for a directory, and keeps all."""
    memo.files.clear()
    computations = {computation for module in file.modules for computation in module.computations}
    memo.latest = {
        word: computation
        for word, computation in memo.latest.items()
        if computation in computations
    }
    if len(memo.rows) > 2 * sum(len(computation.rows) for computation in computations) + 1000:
        memo.rows.clear()


def root_of(computation: Computation) -> int | None:
    """The position of the root: the one marked so, else the last; None where nothing is there."""
    rows = computation.rows
    marked = (at for at in range(len(rows) - 1, -1, -1) if root_mark_of(rows[at]))
    return next(marked, len(rows) - 1 if rows else None)
