"""Symbols in a text: names where they are defined or used."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from hlo_lint.hlo.ir import Computation, HloFile, Instruction, Module, called_names
from hlo_lint.hlo.parser.tokens import Role, Token, head_tokens, instruction_tokens
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of
from hlo_lint.text.source import Span


class ComputationPlace(NamedTuple):
    """A computation and its place in a file."""

    module: Module
    computation: Computation
    begin: int
    """The start of its text, in characters of the file."""

    @property
    def end(self) -> int:
        """The end of its text, in characters of the file."""
        return self.begin + len(self.computation.text)

    def instruction(self, number: int) -> Instruction:
        """A view of an instruction that is not shared with the thread that runs checks."""
        return Instruction(self.computation, number)


class Symbol(NamedTuple):
    """A name in the text, and its meaning."""

    place: ComputationPlace
    number: int | None
    """The position of the instruction in the place; None for the computation itself."""
    element: tuple[int, ...]
    """The element of a tuple, if the text reads an element: `(1,)` for `%t#1`."""
    span: Span
    """The name without `%` and `#1`, in characters of the file."""
    defines: bool

    @property
    def name(self) -> str:
        """The name without `%`."""
        if self.number is None:
            return self.place.computation.name
        return name_of(self.place.computation.rows[self.number])


class Statement(NamedTuple):
    """An instruction, a head, or an unreadable line, with its tokens."""

    place: ComputationPlace
    number: int | None
    """The position of the instruction; None for a head or an unread line."""
    begin: int
    """Its start, in characters of the file."""
    tokens: tuple[Token, ...]

    def token_at(self, offset: int) -> Token | None:
        """The token that contains a character of the file, or ends before it."""
        position = offset - self.begin
        touched = [token for token in self.tokens if token.start <= position <= token.end]
        return touched[-1] if touched else None


class SymbolTable:
    """The symbols of a file, and the statements that name them."""

    def __init__(self, file: HloFile) -> None:
        self.file = file
        self.source = file.text

    @cached_property
    def places(self) -> Sequence[ComputationPlace]:
        """Every computation in the order of the text, each followed by its inline computations."""
        parts = [
            ComputationPlace(module, computation, module.start + module.offset(number))
            for module in self.file.modules
            for number, computation in enumerate(module.computations)
        ]
        return sorted(parts, key=lambda place: (place.begin, -place.end))

    def statement_at(self, offset: int) -> Statement | None:
        """The statement at a character of the file, as its tokens."""
        count = bisect_right(self.places, offset, key=lambda place: place.begin)
        # The innermost computation that contains the character.
        holding = (place for place in reversed(self.places[:count]) if offset <= place.end)
        if (place := next(holding, None)) is None:
            return None
        number = self.number_at(place, offset)
        if number is not None:
            return self.statement(place, number)
        head = self.head(place)
        if head.token_at(offset) is not None:
            return head
        line = self.line_at(offset)
        begin, end = max(line.start, place.begin), line.end
        return Statement(place, None, begin, tuple(instruction_tokens(self.source[begin:end])))

    def line_at(self, offset: int) -> Span:
        """The line that contains a character of the file."""
        source = self.source
        end = source.find("\n", offset)
        return Span(source.rfind("\n", 0, offset) + 1, end if end >= 0 else len(source))

    def statement(self, place: ComputationPlace, number: int) -> Statement:
        """An instruction as a statement."""
        computation = place.computation
        start, end = self.span(place, number)
        row = computation.rows[number]
        text = self.source[start:end]
        named = number not in computation.nested and name_of(row) in text.partition("=")[0]
        return Statement(place, number, start, tuple(instruction_tokens(text, row, named=named)))

    def span(self, place: ComputationPlace, number: int) -> Span:
        """The span of an instruction, in characters of the file."""
        start, end = place.computation.span(number)
        return Span(place.begin + start, place.begin + end)

    def number_at(self, place: ComputationPlace, offset: int) -> int | None:
        """The innermost instruction of a computation that contains a character of the file."""
        computation, position = place.computation, offset - place.begin
        if computation.nested:
            spans = computation.spans
            holding = [n for n, span in enumerate(spans) if span.start <= position <= span.end]
            return min(holding, key=lambda n: spans[n].end - spans[n].start, default=None)
        rows = range(len(computation.rows))
        number = bisect_right(rows, position, key=lambda n: computation.span(n).start) - 1
        return number if number >= 0 and position <= computation.span(number).end else None

    def head(self, place: ComputationPlace) -> Statement:
        """The head of a computation as a statement."""
        last = len(place.computation.rows) - 1
        end = place.end
        if last >= 0:  # the first row may be nested in the operands of the last
            end = min(self.span(place, 0).start, self.span(place, last).start)
        tokens = tuple(head_tokens(self.source[place.begin : end]))
        return Statement(place, None, place.begin, tokens)

    def symbol_at(self, offset: int) -> Symbol | None:
        """The symbol at a character of the file."""
        statement = self.statement_at(offset)
        token = statement.token_at(offset) if statement else None
        if statement is None or token is None:
            return None
        return self.resolve(statement, token)

    def resolve(self, statement: Statement, token: Token) -> Symbol | None:
        """Resolve a token to its symbol; None if it is not a name or is undefined."""
        place = statement.place
        span = Span(statement.begin + token.name_start, statement.begin + token.name_end)
        match token.role:
            case Role.NAME if statement.number is not None:
                return Symbol(place, statement.number, (), span, True)
            case Role.NAME if token.name == place.computation.name:
                is_head = statement.begin == place.begin
                return Symbol(place, None, (), span, True) if is_head else None
            case Role.OPERAND | Role.PREDECESSOR | Role.PARAMETER:
                number = place.computation.index.get(token.name)
                return None if number is None else Symbol(place, number, token.element, span, False)
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
        return {
            (id(place.module), place.computation.name): place for place in reversed(self.places)
        }

    def definition(self, symbol: Symbol) -> Symbol | None:
        """The definition of a symbol."""
        occurrences = self.occurrences(symbol)
        return next((occurrence for occurrence in occurrences if occurrence.defines), None)

    def occurrences(self, symbol: Symbol) -> Iterator[Symbol]:
        """Every occurrence of a symbol, the definition first."""
        place, number = symbol.place, symbol.number
        definition = self.head(place) if number is None else self.statement(place, number)
        yield from self._named(definition, place, number, defines=True)
        seen: set[int] = set()
        for statement in self.callers(place) if number is None else self._readers(place, number):
            for occurrence in self._named(statement, place, number):
                # A nested instruction is part of another's text.
                if occurrence.span.start not in seen:
                    seen.add(occurrence.span.start)
                    yield occurrence

    def callers(self, place: ComputationPlace) -> Iterator[Statement]:
        """The instructions that call a computation by its name, in the order of the text."""
        name = place.computation.name
        for caller in self.places:
            if caller.module is not place.module:
                continue
            for number, row in enumerate(caller.computation.rows):
                attributes = attributes_of(row)
                if name in attributes and name in called_names(attributes):
                    yield self.statement(caller, number)

    def _readers(self, place: ComputationPlace, number: int) -> Iterator[Statement]:
        computation = place.computation
        name = name_of(computation.rows[number])
        if opcode_of(computation.rows[number]) == "parameter":
            yield self.head(place)
        readers = set(computation.users.get(name, ()))
        if computation.mentions("control-predecessors"):
            readers |= {
                position
                for position, row in enumerate(computation.rows)
                if name in attributes_of(row) and "control-predecessors" in attributes_of(row)
            }
        for reader in sorted(readers):
            yield self.statement(place, reader)

    def _named(
        self,
        statement: Statement,
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

    def called_by(self, place: ComputationPlace, number: int) -> tuple[ComputationPlace, ...]:
        """The defined computations that an instruction calls by name."""
        names = called_names(attributes_of(place.computation.rows[number]))
        callees = (self.computation(place.module, name) for name in names)
        return tuple(callee for callee in callees if callee is not None)
