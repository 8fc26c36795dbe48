"""A module of HLO: shared immutable records below, views on demand above.

The pass dumps of one module repeat nearly all of their lines, so what is stored is shared: a record
(`records.py`) holds the fields of one instruction, a `Computation` is a tuple of records with its
text, and both are the same object in every dump that repeats them. `Module` and `Instruction` are
views. None of them changes: a fix is an edit of the text.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, cast

from hlo_lint.hlo.comments import without_comments
from hlo_lint.hlo.records import (
    NAME,
    OPCODE,
    OPERANDS,
    REFERENCES,
    ROOT,
    TAIL,
    TYPE,
    InstructionRecord,
    name_of,
    opcode_of,
)
from hlo_lint.hlo.shape import Shape, parse_shape, part, shape_or_none
from hlo_lint.text.source import Lines, ParseDiagnostic, ParseError, Span

if TYPE_CHECKING:
    import networkx

    from hlo_lint.hlo.attributes import AttributeValue
    from hlo_lint.hlo.parser.literals import LiteralValue
    from hlo_lint.hlo.parser.stack_frames import StackFrames

_NAME = re.compile(r"%?([\w.\-]+)").match
"""The name after `calls=`, which `str.split` finds several times faster than a pattern."""
_THREAD = re.compile(r'execution_thread="([^"]*)"')
CALLING_ATTRIBUTES: Final = tuple(
    "calls to_apply body condition select scatter comparator called_computations "
    "branch_computations true_computation false_computation async_computation".split()
)
"""Attributes whose value is a computation, or several."""
_CALLED = re.compile(rf"\b(?:{'|'.join(CALLING_ATTRIBUTES)})=(\{{[^{{}}=]*\}}|%?[\w.\-]+)")


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand: an instruction, or one element of its tuple."""

    name: str
    """The name without `%`."""
    index: tuple[int, ...]
    """The element of the tuple: `(1, 0)` for `%x#1#0`, empty for the whole value."""
    instruction: Instruction | None
    """None if the computation does not define the name."""

    @property
    def shape(self) -> Shape | None:
        """The shape of the operand, or None if it is unknown."""
        if self.instruction is None:
            return None
        return part(self.instruction.shape_or_none, self.index)


_numbers: list[int] = []


def _positions(count: int) -> list[int]:
    """range(count) as shared int objects, to save memory."""
    if len(_numbers) < count:
        _numbers.extend(range(len(_numbers), 2 * count))
    return _numbers


class Inline(NamedTuple):
    """A computation that is written into an attribute: `to_apply={ x = … ROOT y = … }`."""

    start: int
    """Its first character, in the text of the computation around it."""
    computation: Computation


def _renamed(former: str, name: str, call: bool = False) -> Any:
    """A property of a former name: it reads the new one, and warns for one release."""

    def read(self: object) -> object:
        message = f"{type(self).__name__}.{former} is {name}{'()' * call}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(self, name)

    return property(read)


class Computation:
    """The instructions of one computation, shared by every module that repeats its text."""

    __slots__ = (
        "__weakref__",
        "_by_opcode",
        "_fusion_computations",
        "_index",
        "_opcodes",
        "_part",
        "_spans",
        "_text",
        "_users",
        "_views",
        "analysis_cache",
        "inline",
        "is_entry",
        "name",
        "nested",
        "parse_errors",
        "rows",
        "signature",
        "tail",
    )

    def __init__(
        self,
        text: str,
        name: str,
        is_entry: bool,
        signature: str,
        rows: tuple[InstructionRecord, ...],
        tail: str = "",
        spans: tuple[Span, ...] | None = None,
        parse_errors: tuple[ParseError, ...] = (),
        nested: frozenset[int] = frozenset(),
        inline: Mapping[int, tuple[Inline, ...]] | None = None,
        part: tuple[int, int] | None = None,
    ) -> None:
        """`part` is its place in `text` if that is the text of a whole file."""
        self._text = text
        self._part = part
        self.name = name
        self.is_entry = is_entry
        self.signature = signature
        """`(a: f32[8]) -> f32[8]`, or empty if the text prints none."""
        self.rows = rows
        self.tail = tail
        """The text after the closing brace: `, execution_thread="parallel"`."""
        self.parse_errors = parse_errors
        """Stretches that could not be read, in characters of `text`."""
        self.nested = nested
        """Positions of instructions that are written into the operands of another one."""
        self.inline = inline or {}
        """Computations that are written into the attributes of an instruction, by its position."""
        self._spans = spans
        self._index: dict[str, int] | None = None
        self._users: dict[str, list[int]] | None = None
        self._opcodes: frozenset[str] | None = None
        self._by_opcode: dict[str, tuple[Instruction, ...]] = {}
        self._fusion_computations: frozenset[str] | None = None
        self._views: dict[int, Instruction] = {}
        self.analysis_cache: dict[object, object] = {}
        """Results of analyses, each under a key of its own; see `cached_analysis`."""

    def __repr__(self) -> str:
        return f"<Computation {self.name}: {len(self.rows)} instructions>"

    @property
    def text(self) -> str:
        """From the first character of the head to the closing brace and what belongs to it."""
        if self._part is not None:
            begin, end = self._part
            self._text, self._part = self._text[begin:end], None
        return self._text

    @property
    def spans(self) -> tuple[Span, ...]:
        """The place of each instruction, in characters of `text`."""
        if self._spans is None:  # the dump's shape: a head, then one instruction a line
            lines = self.text.split("\n")
            starts = accumulate((len(line) + 1 for line in lines), initial=0)
            self._spans = tuple(
                Span(start + 2, start + len(line))
                for start, line in zip(starts, lines, strict=False)
            )[1 : len(self.rows) + 1]
        return self._spans

    @property
    def has_spans(self) -> bool:
        """True if `spans` are known; else each instruction has a line of its own."""
        return self._spans is not None

    @property
    def index(self) -> Mapping[str, int]:
        """Position by name; of a repeated name the first."""
        if self._index is None:
            names = list(map(name_of, self.rows))
            self._index = dict(zip(names, _positions(len(names)), strict=False))
            if len(self._index) < len(names):
                self._index = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))
        return self._index

    @property
    def users(self) -> Mapping[str, list[int]]:
        """Positions of the instructions that read a name, each once, in the order of the text."""
        if self._users is None:
            users: dict[str, list[int]] = {}
            known = users.get
            for at, row in zip(_positions(len(self.rows)), self.rows, strict=False):
                for name in row[REFERENCES]:
                    readers = known(name)
                    if readers is None:
                        users[name] = [at]
                    elif readers[-1] != at:
                        readers.append(at)
            begin, end = self._part or (0, len(self._text))
            has_elements = self._text.find("#", begin, end) >= 0
            elements = [name for name in users if "#" in name] if has_elements else ()
            for element in elements:
                name = element.partition("#")[0]
                users[name] = sorted({*users.get(name, ()), *users.pop(element)})
            self._users = users
        return self._users

    @property
    def thread(self) -> str:
        """The execution thread: `main` unless the text says otherwise."""
        named = _THREAD.search(self.tail) if self.tail else None
        return named[1] if named else "main"

    @property
    def instructions(self) -> tuple[Instruction, ...]:
        """A view of each instruction, in the order of the text."""
        return tuple(map(self.at, range(len(self.rows))))

    @property
    def root(self) -> Instruction | None:
        """The instruction marked ROOT, else the last one; None in an empty computation."""
        for number in range(len(self.rows) - 1, -1, -1):
            if self.rows[number][ROOT]:
                return self.at(number)
        return self.at(len(self.rows) - 1) if self.rows else None

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
        """The instruction with a name, `%` or not; None if there is none."""
        number = self.index.get(name.removeprefix("%"))
        return None if number is None else self.at(number)

    @property
    def opcodes(self) -> frozenset[str]:
        """The opcodes it holds."""
        if self._opcodes is None:
            self._opcodes = frozenset(map(opcode_of, self.rows))
        return self._opcodes

    def with_opcode(self, opcode: str) -> tuple[Instruction, ...]:
        """The instructions of one opcode, in the order of the text."""
        if opcode not in self.opcodes:
            return ()
        found = self._by_opcode.get(opcode)
        if found is None:
            found = self._by_opcode[opcode] = tuple(
                [self.at(number) for number, row in enumerate(self.rows) if row[OPCODE] == opcode]
            )
        return found

    @property
    def fusion_computations(self) -> frozenset[str]:
        """Names of the computations that are bodies of its fusions."""
        if self._fusion_computations is None:
            tails: list[str] = []
            if "fusion" in self.opcodes:
                tails = [row[TAIL] for row in self.rows if row[OPCODE] == "fusion"]
            named = map(_NAME, "\n".join(tails).split("calls=")[1:])
            self._fusion_computations = frozenset(
                [found[1] for found in named if found is not None]
            )
        return self._fusion_computations

    fused = _renamed("fused", "fusion_computations")

    def to_networkx(self) -> networkx.DiGraph[str]:
        """A graph of names, an edge from each operand to its reader; `opcode` and `shape` on nodes.

        Raises:
            ImportError: networkx is not installed.
        """
        import networkx

        graph: networkx.DiGraph[str] = networkx.DiGraph(name=self.name)
        for row in self.rows:
            graph.add_node(row[NAME], opcode=row[OPCODE], shape=row[TYPE], root=bool(row[ROOT]))
        for row in self.rows:
            for place, reference in enumerate(row[REFERENCES]):
                name = reference.partition("#")[0]
                if name in self.index:
                    graph.add_edge(name, row[NAME], operand=place)
        return graph


class Instruction:
    """A view of one record. It equals only itself; `Computation.at` makes each one once."""

    __slots__ = ("computation", "number")

    def __init__(self, computation: Computation, number: int) -> None:
        self.computation = computation
        self.number = number
        """Its position in the computation."""

    def __repr__(self) -> str:
        return f"<Instruction {self.name}: {self.type_text} {self.opcode}>"

    @property
    def row(self) -> InstructionRecord:
        """The record that it is a view of."""
        return self.computation.rows[self.number]

    @property
    def name(self) -> str:
        """The name without `%`."""
        return self.row[NAME]

    @property
    def opcode(self) -> str:
        """The opcode as spelled: `get-tuple-element`."""
        return self.row[OPCODE]

    @property
    def is_root(self) -> bool:
        """True if the text says ROOT."""
        return bool(self.row[ROOT])

    @property
    def type_text(self) -> str:
        """The shape as spelled; empty if it is left out."""
        return self.row[TYPE]

    @property
    def operands_text(self) -> str:
        """The text between the parentheses: operands, a literal, or the number of a parameter."""
        return self.row[OPERANDS]

    @property
    def parameter_number(self) -> int | None:
        """The number of a parameter; None if the text gives none, and for other opcodes."""
        if self.opcode != "parameter":
            return None
        text = without_comments(self.row[OPERANDS]).strip()
        return int(text) if text.isdecimal() and len(text) < 10 else None

    @property
    def attributes_text(self) -> str:
        """The text after the closing parenthesis, with its first comma."""
        return self.row[TAIL]

    @property
    def operand_names(self) -> tuple[str, ...]:
        """The names of the operands, in order; `call#1` for an element of a tuple."""
        return self.row[REFERENCES]

    @property
    def shape(self) -> Shape:
        """The shape.

        Raises:
            ShapeSyntaxError: the text is not a shape.
        """
        return parse_shape(self.row[TYPE])

    @property
    def shape_or_none(self) -> Shape | None:
        """The shape, or None if the text is not one."""
        return shape_or_none(self.row[TYPE])

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Its operands, in order."""
        return tuple(self._operand(reference) for reference in self.row[REFERENCES])

    def _operand(self, reference: str) -> Operand:
        name, *index = reference.split("#")
        return Operand(name, tuple(map(int, index)), self.computation.instruction(name))

    @property
    def users(self) -> tuple[Instruction, ...]:
        """The instructions that read it, each once, in the order of the text."""
        return tuple(
            self.computation.at(number) for number in self.computation.users.get(self.name, ())
        )

    @property
    def span(self) -> Span:
        """Its place, in characters of the computation's text."""
        return self.computation.spans[self.number]

    @property
    def text(self) -> str:
        """The instruction as it stands in the file."""
        start, end = self.span
        return self.computation.text[start:end]

    @property
    def is_nested(self) -> bool:
        """True if it is written into the operands of another: `add(multiply(x, y), z)`."""
        return self.number in self.computation.nested

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes as text, by name, in order."""
        from hlo_lint.hlo.attributes import split_attributes

        tail = self.row[TAIL]
        return {name: tail[start:end] for name, (start, end) in split_attributes(tail).items()}

    def attribute(self, name: str) -> AttributeValue | None:
        """One attribute's value: integers, names, text …; None if it is absent.

        Raises:
            AttributeSyntaxError: the value cannot be read.
        """
        from hlo_lint.hlo.attributes import read_attribute

        text = self.attributes.get(name) if f"{name}=" in self.row[TAIL] else None
        return None if text is None else read_attribute(name, text)

    @property
    def literal(self) -> LiteralValue:
        """The value of a constant as numpy; None for other opcodes, and for a token.

        Raises:
            LiteralError: the text is not a value of the shape.
            ShapeSyntaxError: the type is not a shape.
            ImportError: numpy, or ml_dtypes for a type that needs it, is not installed.
        """
        if self.opcode != "constant":
            return None
        from hlo_lint.hlo.parser.literals import read_literal

        return read_literal(self.shape, self.row[OPERANDS])

    @property
    def called_computations(self) -> tuple[str, ...]:
        """Names of the computations it calls, in order."""
        inline = [each.computation for each in self.computation.inline.get(self.number, ())]
        if not inline:
            return called_names(self.row[TAIL])
        names: list[str] = []
        for name, value in self.attributes.items():
            if name not in CALLING_ATTRIBUTES:
                continue
            if value.startswith("{") and "=" in value:
                here = [each for each in inline if each.text in value]
                names += [each.name for each in here]
                inline = inline[len(here) :]
            else:
                names += called_names(f"{name}={value}")
        return tuple(names)

    called = _renamed("called", "called_computations")


@lru_cache(maxsize=1 << 13)
def called_names(attributes: str) -> tuple[str, ...]:
    """Names of the computations that attributes call, in order; inline ones are left out.

    >>> called_names(", condition=%c, body=%b")
    ('c', 'b')
    """
    names: list[str] = []
    for found in _CALLED.finditer(attributes):
        names += [name.strip(" %\n") for name in found[1].strip("{}").split(",")]
    return tuple(names)


class Module:
    """One HLO module of a file: its text in pieces, and the computations in them."""

    __slots__ = (
        "_nonfusion_computations",
        "_offsets",
        "analysis_cache",
        "computations",
        "file",
        "header",
        "name",
        "parse_errors",
        "pieces",
        "places",
        "start",
        "tables",
        "within",
    )

    def __init__(
        self,
        name: str,
        header: str,
        tables: tuple[str, ...],
        pieces: tuple[str, ...],
        computations: tuple[Computation, ...],
        places: tuple[int, ...],
        parse_errors: tuple[ParseError, ...] = (),
        within: Mapping[int, int] | None = None,
        offsets: tuple[int, ...] | None = None,
    ) -> None:
        """`offsets` are the first characters of the computations, if they are known."""
        self.name = name
        self.header = header
        """`HloModule name, attribute=…` as spelled; empty if the text leaves it out."""
        self.tables = tables
        """The texts of FileNames, FunctionNames, FileLocations and StackFrames, where printed."""
        self.pieces = pieces
        """The whole text: joined, they give back every character."""
        self.computations = computations
        self.places = places
        """The number of the piece that holds each computation."""
        self.within = within or {}
        """Offsets in their piece of computations that are written into an attribute."""
        self.parse_errors = parse_errors
        """Stretches outside computations that could not be read, in characters of the text."""
        self.file = HloFile((self,), None)
        self.start = 0
        """The first character of its text, in the file."""
        self._offsets = offsets
        self._nonfusion_computations: list[Computation] = []
        self.analysis_cache: dict[object, object] = {}
        """Results of analyses, each under a key of its own; files of equal text share it."""

    def share_for_file(self) -> Module:
        """The same module, for another file of the same text."""
        other = Module.__new__(Module)
        for slot in Module.__slots__:
            setattr(other, slot, getattr(self, slot))
        return other

    def __repr__(self) -> str:
        return f"<Module {self.name}: {len(self.computations)} computations>"

    @property
    def path(self) -> Path | None:
        """The file it was read from."""
        return self.file.path

    @property
    def text(self) -> str:
        """Its text, every character of it."""
        return "".join(self.pieces)

    @property
    def entry(self) -> Computation | None:
        """The computation marked ENTRY, else the last one; None in an empty module."""
        for computation in self.computations:
            if computation.is_entry:
                return computation
        return self.computations[-1] if self.computations else None

    @property
    def attributes(self) -> dict[str, str]:
        """The header's attributes as text, by name, in order."""
        from hlo_lint.hlo.attributes import split_attributes

        comma = self.header.find(",")
        if comma < 0:
            return {}
        tail = self.header[comma:]
        return {name: tail[start:end] for name, (start, end) in split_attributes(tail).items()}

    def attribute(self, name: str) -> AttributeValue | None:
        """One of the header's attributes as a value; None if it is absent.

        Raises:
            AttributeSyntaxError: the value cannot be read.
        """
        from hlo_lint.hlo.attributes import read_attribute

        text = self.attributes.get(name)
        return None if text is None else read_attribute(name, text)

    @property
    def is_scheduled(self) -> bool:
        """True if the order of the text is the order of execution."""
        return "is_scheduled=true" in self.header

    @property
    def stack_frames(self) -> StackFrames:
        """The places in Python that instructions come from, by `stack_frame_id`."""
        from hlo_lint.hlo.parser.stack_frames import read_stack_frames

        return read_stack_frames(self.tables)

    @property
    def problems(self) -> tuple[ParseDiagnostic, ...]:
        """Stretches that could not be read, in the order of the file."""
        errors = list(self.parse_errors)
        for number, computation in enumerate(self.computations):
            if computation.parse_errors:
                begin = self.offset(number)
                errors += [
                    ParseError(message, begin + start, begin + end)
                    for message, start, end in computation.parse_errors
                ]
        if not errors:
            return ()
        errors.sort(key=lambda error: error.start)
        return tuple(self.file.lines.diagnostic(error, self.start) for error in errors)

    def computation(self, name: str) -> Computation | None:
        """The computation with a name, `%` or not; None if there is none."""
        name = name.removeprefix("%")
        for computation in self.computations:
            if computation.name == name:
                return computation
        return None

    def offset(self, number: int) -> int:
        """The first character of a computation, in this module's text."""
        if self._offsets is None:
            starts = tuple(accumulate(map(len, self.pieces), initial=0))
            self._offsets = tuple(
                starts[place] + self.within.get(at, 0) for at, place in enumerate(self.places)
            )
        return self._offsets[number]

    def span(self, instruction: Instruction) -> Span:
        """The place of an instruction, in characters of the file."""
        begin = self.start + self.offset(self.computations.index(instruction.computation))
        start, end = instruction.span
        return Span(begin + start, begin + end)

    def names(self) -> set[str]:
        """All names, without `%`: those of instructions and of computations are one space."""
        names = {row[NAME] for computation in self.computations for row in computation.rows}
        names.update(computation.name for computation in self.computations)
        return names

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction, in the order of the text."""
        for computation in self.computations:
            yield from computation.instructions

    @property
    def fusion_computations(self) -> frozenset[str]:
        """Names of the computations that are bodies of fusions."""
        return frozenset().union(
            *[computation.fusion_computations for computation in self.computations]
        )

    @property
    def nonfusion_computations(self) -> Sequence[Computation]:
        """The computations outside fusions, of the main thread (`MakeNonfusionComputations`)."""
        if not self._nonfusion_computations:  # the list is that of every file of this text
            fusions = self.fusion_computations
            self._nonfusion_computations += [
                computation
                for computation in self.computations
                if computation.name not in fusions
                and (not computation.tail or computation.thread == "main")
            ]
        return self._nonfusion_computations

    fused = _renamed("fused", "fusion_computations")
    unfused = _renamed("unfused", "nonfusion_computations")
    walk = _renamed("walk", "instructions", call=True)

    def to_networkx(self) -> networkx.DiGraph[str]:
        """A graph of `computation/instruction` names: data edges, and `calls` edges to roots.

        Raises:
            ImportError: networkx is not installed.
        """
        import networkx

        graph: networkx.DiGraph[str] = networkx.DiGraph(name=self.name)
        for computation in self.computations:
            inner = computation.to_networkx()
            graph.update(
                networkx.relabel_nodes(inner, {n: f"{computation.name}/{n}" for n in inner})
            )
        for computation in self.computations:
            for instruction in computation.instructions:
                for name in instruction.called_computations:
                    callee = self.computation(name)
                    if callee is not None and callee.root is not None:
                        graph.add_edge(
                            f"{name}/{callee.root.name}",
                            f"{computation.name}/{instruction.name}",
                            calls=True,
                        )
        graph.graph["name"] = self.name  # `update` took that of a computation
        return graph


_NodeT = TypeVar("_NodeT", Module, Computation)
_ResultT = TypeVar("_ResultT")
_ABSENT: Final = object()


def cached_analysis(analyze: Callable[[_NodeT], _ResultT]) -> Callable[[_NodeT], _ResultT]:
    """Decorate a function of a module or computation: it runs once, however many files share it."""

    @wraps(analyze)
    def cached(node: _NodeT) -> _ResultT:
        result = node.analysis_cache.get(analyze, _ABSENT)
        if result is _ABSENT:
            result = node.analysis_cache[analyze] = analyze(node)
        return cast("_ResultT", result)

    return cached


class HloFile:
    """A file of HLO: one module, or several one after the other."""

    __slots__ = ("_lines", "modules", "path")

    def __init__(self, modules: tuple[Module, ...], path: Path | None) -> None:
        self.modules = modules
        self.path = path
        self._lines: Lines | None = None

    @classmethod
    def of_text(cls, text: str, path: Path | None, module: str = "") -> HloFile:
        """A file that is not HLO, to report places in it: its text is one piece, unread."""
        file = cls((Module(module, "", (), (text,), (), ()),), path)
        file.modules[0].file = file
        return file

    @property
    def text(self) -> str:
        """The whole file, every character of it."""
        return self.lines.text if self._lines else "".join(module.text for module in self.modules)

    @property
    def lines(self) -> Lines:
        """The whole file by its lines, cached."""
        if self._lines is None:
            self._lines = Lines(self.text)
        return self._lines
