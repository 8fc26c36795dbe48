"""A computation: its records, which dumps share, with facts derived from them on demand."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lint.hlo.ir.analysis_cache import cached_analysis
from hlo_lint.hlo.ir.computation_text import ComputationText
from hlo_lint.hlo.ir.cycles import Rows, without_cycles
from hlo_lint.hlo.ir.instruction import Instruction
from hlo_lint.hlo.records import NAME, OPCODE, REFERENCES, ROOT, TAIL, TYPE, name_of, opcode_of
from hlo_lint.text.errors import nearest
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import counted, in_a_line
from hlo_lint.text.source import ParseError, Span

if TYPE_CHECKING:
    import networkx

_NAME = re.compile(r"%?([\w.\-]+)").match
"""The name after `calls=`, which `str.split` finds several times faster than a pattern."""
_THREAD = late(r'execution_thread="([^"]*)"')

_numbers: list[int] = []


def shared_range(count: int) -> list[int]:
    """The numbers from 0 to at least `count - 1`: shared int objects, to save memory."""
    if len(_numbers) < count:
        _numbers.extend(range(len(_numbers), count))
    return _numbers


_MIN_INDEXED: Final = 16
"""The least number of instructions of a computation with an index of opcodes."""
_MIN_SEARCHED: Final = 256
"""The least number of instructions of a computation in which users are searched for."""
_MAX_SEARCHES: Final = 8
"""The number of searches for users in a computation before the table of all is made."""


class Inline(NamedTuple):
    """A computation inside an attribute: `to_apply={ x = … ROOT y = … }`."""

    start: int
    """Its first character, in the text of the enclosing computation."""
    computation: Computation


class Irregularities(NamedTuple):
    """Facts of a text that is not spelled as XLA prints it, an instruction per line."""

    spans_in: Callable[[str], tuple[Span, ...]]
    """Finds the places of the instructions in the text."""
    parse_errors: tuple[ParseError, ...]
    nested: frozenset[int]
    inline: Mapping[int, tuple[Inline, ...]]


_NO_INLINE: Final[Mapping[int, tuple[Inline, ...]]] = {}


class Computation:
    """The instructions of a computation, shared by every module that repeats its text."""

    __slots__ = tuple(
        "__weakref__ _by_opcode _index _irregular _opcodes _positions _some_users _spans _text "
        "_users _views analysis_cache cyclic inline is_entry is_irregular name nested parse_errors "
        "rows signature tail".split()
    )

    def __init__(
        self,
        text: ComputationText,
        name: str,
        is_entry: bool,
        signature: str,
        rows: Rows,
        tail: str = "",
        irregular: Irregularities | None = None,
    ) -> None:
        """Create it from the parsed parts; `irregular` is None if each instruction is a line."""
        self._text = text
        self.name = name
        self.is_entry = is_entry
        self.signature = signature
        """`(a: f32[8]) -> f32[8]`, or empty if the text prints none."""
        self.rows, self.cyclic = without_cycles(rows)
        """Its records without cycles, and the positions of the records from which a reference that
        closes a cycle was removed."""
        self.tail = tail
        """The text after the closing brace: `, execution_thread="parallel"`."""
        self._irregular = irregular
        self.is_irregular = irregular is not None
        """True unless each instruction is a line, as XLA prints it."""
        self.parse_errors: tuple[ParseError, ...] = ()
        """Unreadable stretches, in characters of `text`."""
        self.nested: frozenset[int] = frozenset()
        """Positions of instructions that are nested in the operands of another."""
        self.inline: Mapping[int, tuple[Inline, ...]] = _NO_INLINE
        """Computations inside the attributes of an instruction, by its position."""
        self._spans: tuple[Span, ...] | None = None
        if irregular is not None:
            _, self.parse_errors, self.nested, self.inline = irregular
        self._index: dict[str, int] | None = None
        self._users: Mapping[str, Sequence[int]] | None = None
        self._some_users: dict[str, Sequence[int]] = {}
        self._opcodes: frozenset[str] | None = None
        self._by_opcode: dict[str, tuple[Instruction, ...]] = {}
        self._positions: dict[str, list[int]] = {}
        self._views: dict[int, Instruction] = {}
        self.analysis_cache: dict[object, object] = {}
        """Results of analyses, each under its own key; see `cached_analysis`."""

    def copy(self) -> Computation:
        """A distinct computation with equal contents: a module may repeat a text."""
        copied = Computation(
            ComputationText(self.text, self.rows),
            *(self.name, self.is_entry, self.signature, self.rows, self.tail, self._irregular),
        )
        # The copy was made of records that have no cycles any more.
        copied.cyclic = self.cyclic
        return copied

    def __repr__(self) -> str:
        return in_a_line(f"<Computation {self.name}: {counted(len(self), 'instruction')}>")

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True  # also a computation without instructions is a computation

    def __iter__(self) -> Iterator[Instruction]:
        return map(self.at, range(len(self.rows)))

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            return name.removeprefix("%") in self.index
        return isinstance(name, Instruction) and name.computation is self

    def __getitem__(self, name: str) -> Instruction:
        """The instruction with a name, `%` or not; `at` takes a position.

        Raises:
            KeyError: if it is missing; the message names the nearest.
        """
        instruction = self.instruction(name)
        if instruction is None:
            name = name.removeprefix("%")
            hint = nearest(name, self.index, f"it has {counted(len(self), 'instruction')}")
            raise KeyError(f"%{name} is not in {self.name}: {hint}")
        return instruction

    @property
    def text(self) -> str:
        """The text from the head to the closing brace and the attributes after it."""
        return self._text.read()

    @property
    def size(self) -> int:
        """The number of characters of its text."""
        return self._text.size

    def let_text_go(self) -> None:
        """Release the text if the shared lines of the directory can restore it."""
        self._text.release()

    def has_text_of(self, other: Computation) -> bool:
        """True if both texts are equal."""
        return self._text.is_as(other._text)

    @property
    def spans(self) -> tuple[Span, ...]:
        """The place of each instruction, in characters of `text`."""
        if self._spans is None:
            if self._irregular is None:
                self._spans = tuple(map(self._text.instruction_span, range(len(self.rows))))
            else:
                self._spans = self._irregular.spans_in(self.text)
        return self._spans

    def span(self, number: int) -> Span:
        """The place of the instruction at a position, in characters of `text`."""
        return self.spans[number] if self.is_irregular else self._text.instruction_span(number)

    def excerpt(self, span: Span) -> str:
        """The characters of a span of `text`, without a copy of `text`."""
        return self._text.excerpt(span)

    def mentions(self, word: str) -> bool:
        """True if the text contains a word; the text is not copied for it."""
        return self._text.mentions(word)

    @property
    def index(self) -> Mapping[str, int]:
        """Position by name; the first if a name repeats."""
        if self._index is None:
            rows = self.rows
            if len(rows) <= 256:  # Python itself shares numbers up to 256
                self._index = {row[NAME]: number for number, row in enumerate(rows)}
            else:
                self._index = dict(zip(map(name_of, rows), shared_range(len(rows)), strict=False))
            if len(self._index) < len(rows):
                self._index = {row[NAME]: number for number, row in reversed([*enumerate(rows)])}
        return self._index

    @property
    def users(self) -> Mapping[str, Sequence[int]]:
        """Positions of the instructions that read a name, each once, in the order of the text."""
        if self._users is None:
            users: dict[str, tuple[int, ...] | list[int]] = {}
            users_of = users.get
            for number, row in zip(shared_range(len(self.rows)), self.rows, strict=False):
                alone = (number,)  # most names have one reader, and most rows read several
                for name in row[REFERENCES]:
                    readers = users_of(name)
                    if readers is None:
                        users[name] = alone
                    elif readers[-1] != number:
                        if isinstance(readers, list):
                            readers.append(number)
                        else:
                            users[name] = [*readers, number]
            for element in [name for name in users if "#" in name]:
                name = element.partition("#")[0]
                users[name] = sorted({*users.get(name, ()), *users.pop(element)})
            self._users = users
            self._some_users.clear()
        return self._users

    def users_of(self, number: int) -> Sequence[int]:
        """Positions of the instructions that read the one at a position, as in `users`."""
        name, type_text = self.rows[number][NAME], self.rows[number][TYPE]
        # The table takes as long as twenty searches, and most rules ask for a few names. Elements
        # of tuples are left to it.
        is_array = type_text and not type_text.startswith("(")
        if self._users is None and len(self.rows) > _MIN_SEARCHED and is_array:
            readers = self._some_users.get(name)
            if readers is None and len(self._some_users) < _MAX_SEARCHES:
                rows = enumerate(self.rows)
                readers = [reader for reader, row in rows if name in row[REFERENCES]]
                self._some_users[name] = readers
            if readers is not None:
                return readers
        return self.users.get(name, ())

    @property
    def thread(self) -> str:
        """The execution thread: `main` unless the text names another."""
        named = _THREAD.search(self.tail) if self.tail else None
        return named[1] if named else "main"

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """A view of each instruction, in the order of the text."""
        return tuple(map(self.at, range(len(self.rows))))

    @property
    def root_number(self) -> int | None:
        """The position of the instruction marked ROOT, else of the last; None without any."""
        for number in range(len(self.rows) - 1, -1, -1):
            if self.rows[number][ROOT]:
                return number
        return len(self.rows) - 1 if self.rows else None

    @property
    def root(self) -> Instruction | None:
        """The instruction marked ROOT, else the last; None in an empty computation."""
        number = self.root_number
        return None if number is None else self.at(number)

    @property
    def root_instruction(self) -> Instruction:
        """The root of a computation that is not empty.

        Raises:
            LookupError: the computation is empty.
        """
        root = self.root
        if root is None:
            raise LookupError(f"{self!r} has no root instruction")
        return root

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        """The parameters in the order of their numbers."""
        parameters = self.with_opcode("parameter")
        return tuple(sorted(parameters, key=lambda parameter: parameter.parameter_number or 0))

    def at(self, number: int) -> Instruction:
        """The instruction at a position: the same view each time."""
        view = self._views.get(number)
        if view is None:
            view = self._views[number] = Instruction(self, number)
        return view

    def instruction(self, name: str) -> Instruction | None:
        """The instruction with a name, `%` or not, or None."""
        number = self.index.get(name.removeprefix("%"))
        return None if number is None else self.at(number)

    @property
    def opcodes(self) -> frozenset[str]:
        """The opcodes of its instructions."""
        if self._opcodes is None:
            self._opcodes = frozenset(map(opcode_of, self.rows))
        return self._opcodes

    def with_opcode(self, opcode: str) -> tuple[Instruction, ...]:
        """The instructions of an opcode, in the order of the text."""
        if opcode not in self.opcodes:
            return ()
        instructions = self._by_opcode.get(opcode)
        if instructions is None:
            instructions = tuple(map(self.at, self.positions(opcode)))
            self._by_opcode[opcode] = instructions
        return instructions

    def positions(self, opcode: str) -> Sequence[int]:
        """The positions of the instructions of an opcode, in the order of the text."""
        if opcode not in self.opcodes:
            return ()
        if len(self.rows) < _MIN_INDEXED:
            return [number for number, row in enumerate(self.rows) if row[OPCODE] == opcode]
        if not self._positions:
            positions: defaultdict[str, list[int]] = defaultdict(list)
            opcodes = map(opcode_of, self.rows)
            for number, held in zip(shared_range(len(self.rows)), opcodes, strict=False):
                positions[held].append(number)
            self._positions = positions
        return self._positions[opcode]

    @property
    @cached_analysis
    def fusion_computations(self) -> frozenset[str]:
        """Names of the computations that are bodies of its fusions."""
        if "fusion" not in self.opcodes:
            return frozenset()
        tails = [row[TAIL] for row in self.rows if row[OPCODE] == "fusion"]
        named = map(_NAME, "\n".join(tails).split("calls=")[1:])
        names = [match[1] for match in named if match is not None]
        for number, bodies in self.inline.items():
            if self.rows[number][OPCODE] == "fusion":
                names += [body.computation.name for body in bodies]
        return frozenset(names)

    def to_networkx(self) -> networkx.DiGraph[str]:
        """A graph of names, an edge from each operand to its reader; `opcode` and `shape` on nodes.

        Raises:
            ImportError: networkx is not installed.
        """
        from hlo_lint.hlo.ir.graph_export import computation_graph

        return computation_graph(self)
