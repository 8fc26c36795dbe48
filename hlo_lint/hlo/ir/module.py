"""A module in its file: computations with the text around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hlo_lint.hlo.ir.analysis_cache import cached_analysis
from hlo_lint.hlo.ir.computation import Computation
from hlo_lint.hlo.ir.instruction import Instruction
from hlo_lint.hlo.records import NAME
from hlo_lint.text.errors import nearest
from hlo_lint.text.phrases import counted, in_a_line
from hlo_lint.text.source import Lines, ParseDiagnostic, ParseError, Span

if TYPE_CHECKING:
    import networkx

    from hlo_lint.hlo.parser.stack_frames import StackFrames


@dataclass(eq=False, repr=False, slots=True)
class Module:
    """An HLO module of a file: its text in pieces, and its computations."""

    name: str
    header: str
    """`HloModule name, attribute=…` as spelled; empty if the text leaves it out."""
    tables: tuple[str, ...]
    """The texts of FileNames, FunctionNames, FileLocations and StackFrames, if printed."""
    pieces: tuple[str | Computation, ...]
    """The whole text, every character: computations, and the text between them."""
    computations: tuple[Computation, ...]
    _offsets: tuple[int, ...]
    parse_errors: tuple[ParseError, ...] = ()
    """Unreadable stretches outside computations, in characters of the text."""
    entry: Computation | None = field(init=False)
    """The computation marked ENTRY, else the last; None in an empty module."""
    file: HloFile = field(init=False)
    start: int = field(default=0, init=False)
    """The first character of its text, in the file."""
    analysis_cache: dict[object, object] = field(default_factory=dict, init=False)
    """Results of analyses, each under its own key; files of equal text share it."""

    def __post_init__(self) -> None:
        last = self.computations[-1] if self.computations else None
        self.entry = next((body for body in self.computations if body.is_entry), last)
        self.file = HloFile((self,), None)

    def share_for_file(self) -> Module:
        """A view of the module for another file of the same text."""
        shared = Module.__new__(Module)
        for slot in Module.__slots__:
            setattr(shared, slot, getattr(self, slot))
        return shared

    def __repr__(self) -> str:
        rows = counted(sum(map(len, self.computations)), "instruction")
        return in_a_line(f"<Module {self.name}: {rows} in {counted(len(self), 'computation')}>")

    def __len__(self) -> int:
        return len(self.computations)

    def __bool__(self) -> bool:
        return True  # also a module without computations is a module

    def __iter__(self) -> Iterator[Computation]:
        return iter(self.computations)

    def __contains__(self, name: object) -> bool:
        if isinstance(name, str):
            return self.computation(name) is not None
        return name in self.computations

    def __getitem__(self, name: str) -> Computation:
        """The computation with a name, `%` or not.

        Raises:
            KeyError: if it is missing; the message names the nearest.
        """
        computation = self.computation(name)
        if computation is None:
            names = [computation.name for computation in self.computations]
            name = name.removeprefix("%")
            hint = nearest(name, names, f"it has {counted(len(self), 'computation')}")
            raise KeyError(f"%{name} is not in {self.name}: {hint}")
        return computation

    @property
    def path(self) -> Path | None:
        """The file it was read from."""
        return self.file.path

    @property
    def text(self) -> str:
        """Its text, every character of it."""
        return "".join([piece if isinstance(piece, str) else piece.text for piece in self.pieces])

    @property
    def size(self) -> int:
        """The number of its characters."""
        return sum(len(piece) if isinstance(piece, str) else piece.size for piece in self.pieces)

    def mentions(self, word: str) -> bool:
        """True if the text contains a word; the pieces are not joined for it."""
        return any(
            word in piece if isinstance(piece, str) else piece.mentions(word)
            for piece in self.pieces
        )

    @property
    def entry_computation(self) -> Computation:
        """The entry of a module that is not empty.

        Raises:
            LookupError: the module is empty.
        """
        entry = self.entry
        if entry is None:
            raise LookupError(f"{self!r} has no entry computation")
        return entry

    @property
    def attributes(self) -> dict[str, str]:
        """The header's attributes as text, by name, in order."""
        return dict(self._attributes())  # cached: a header may have thousands of parameters

    @cached_analysis
    def _attributes(self) -> dict[str, str]:
        from hlo_lint.hlo.attributes.splitting import split_attributes

        tail = "".join(self.header.partition(",")[1:])
        return {name: tail[start:end] for name, (start, end) in split_attributes(tail).items()}

    def attribute(self, name: str) -> Any:
        """The value of a header attribute; None if it is absent.

        Its type follows from the name: `hlo_lint.hlo.attributes.AttributeValue` lists the types.

        Raises:
            AttributeSyntaxError: the value cannot be read.
        """
        from hlo_lint.hlo.attributes.reading import read_attribute

        text = self.attributes.get(name)
        return None if text is None else read_attribute(name, text)

    def attribute_or_none(self, name: str) -> Any:
        """The value of a header attribute; None if it is absent or unreadable."""
        from hlo_lint.hlo.attributes.reading import value_or_none

        text = self.attributes.get(name)
        return None if text is None else value_or_none(name, text)

    @property
    def is_scheduled(self) -> bool:
        """True if the order of the text is the order of execution."""
        return "is_scheduled=true" in self.header

    @property
    def has_tiles(self) -> bool:
        """True if parameters or results of the entry have tiles, as on XLA:TPU."""
        return ":T(" in self.header

    @property
    def stack_frames(self) -> StackFrames:
        """The Python stacks of instructions, by `stack_frame_id`."""
        from hlo_lint.hlo.parser.stack_frames import read_stack_frames

        return read_stack_frames(self.tables)

    @property
    def problems(self) -> tuple[ParseDiagnostic, ...]:
        """Unreadable stretches, in the order of the file."""
        errors = list(self.parse_errors)
        for begin, computation in zip(self._offsets, self.computations, strict=True):
            errors += [
                ParseError(message, begin + start, begin + end)
                for message, start, end in computation.parse_errors
            ]
        errors.sort(key=lambda error: error.start)
        return tuple(self.file.lines.diagnostic(error, self.start) for error in errors)

    def computation(self, name: str) -> Computation | None:
        """The computation with a name, `%` or not, or None."""
        number = self._positions().get(name.removeprefix("%"))
        return None if number is None else self.computations[number]

    def callee(self, caller: Instruction) -> Computation | None:
        """The first computation that an instruction calls, or None."""
        return next(map(self.computation, caller.called_computations), None)

    @cached_analysis
    def _positions(self) -> dict[str | Computation, int]:
        """The position of each computation, also by name; the first if a name repeats."""
        numbers: dict[str | Computation, int] = {}
        for number, computation in enumerate(self.computations):
            numbers.setdefault(computation.name, number)
            numbers.setdefault(computation, number)
        return numbers

    def offset(self, number: int) -> int:
        """The first character of a computation, in this module's text."""
        return self._offsets[number]

    def computation_start(self, computation: Computation) -> int:
        """The first character of a computation, in characters of the file."""
        return self.start + self.offset(self._positions()[computation])

    def span(self, instruction: Instruction) -> Span:
        """The place of an instruction, in characters of the file."""
        begin = self.computation_start(instruction.computation)
        start, end = instruction.span
        return Span(begin + start, begin + end)

    def names(self) -> set[str]:
        """All names, without `%`: instructions and computations share a namespace."""
        names = {row[NAME] for computation in self.computations for row in computation.rows}
        names.update(computation.name for computation in self.computations)
        return names

    def instructions(self) -> Iterator[Instruction]:
        """Every instruction, in the order of the text."""
        for computation in self.computations:
            yield from computation.instructions

    @property
    @cached_analysis
    def fusion_computations(self) -> frozenset[str]:
        """Names of the computations that are bodies of fusions."""
        parts = [computation.fusion_computations for computation in self.computations]
        return frozenset().union(*parts)

    @property
    @cached_analysis
    def nonfusion_computations(self) -> Sequence[Computation]:
        """The computations outside fusions, of the main thread (`MakeNonfusionComputations`)."""
        fusions = self.fusion_computations
        return [
            computation
            for computation in self.computations
            if computation.name not in fusions
            and (not computation.tail or computation.thread == "main")
        ]

    def to_networkx(self) -> networkx.DiGraph[str]:
        """A graph of `computation/instruction` names: data edges, and `calls` edges to roots.

        Raises:
            ImportError: networkx is not installed.
        """
        from hlo_lint.hlo.ir.graph_export import module_digraph

        return module_digraph(self)


class HloFile:
    """A file of HLO, with a module or several in sequence."""

    __slots__ = ("_lines", "modules", "path")

    def __init__(self, modules: tuple[Module, ...], path: Path | None) -> None:
        self.modules = modules
        self.path = path
        self._lines: Lines | None = None

    def __repr__(self) -> str:
        return in_a_line(f"<HloFile {self.path or ''}: {counted(len(self.modules), 'module')}>")

    @classmethod
    def of_text(cls, text: str, path: Path | None, module: str = "") -> HloFile:
        """A file that is not HLO, to report places in it: its text is a single unparsed piece."""
        file = cls((Module(module, "", (), (text,), (), ()),), path)
        file.modules[0].file = file
        return file

    @property
    def text(self) -> str:
        """The whole file, every character of it."""
        return self.lines.text if self._lines else "".join(module.text for module in self.modules)

    def module_at(self, offset: int) -> Module:
        """The module that contains a character of the file."""
        before = (module for module in self.modules if module.start <= offset)
        return max(before, key=lambda module: module.start)

    @property
    def lines(self) -> Lines:
        """The whole file by its lines, cached."""
        if self._lines is None:
            self._lines = Lines(self.text)
        return self._lines
