"""A module as records that transformations change, printed for each test.

Operands are written as bare names, and signatures are left out: both would repeat the instructions.
So a change to an instruction changes a single record.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from hlo_lint.analysis.calls import inline_computations
from hlo_lint.analysis.shape_inference import ShapeInference
from hlo_lint.analysis.walks import without_readers
from hlo_lint.hlo.attributes.splitting import (
    control_predecessors,
    joined_attributes,
    split_attributes,
)
from hlo_lint.hlo.ir import Computation, Module, called_names
from hlo_lint.hlo.opcodes import LITERAL_OPERANDS
from hlo_lint.hlo.records import name_in

_predecessors = re.compile(r", control-predecessors=\{[^}]*\}")


class DraftInstruction(NamedTuple):
    """An instruction of a draft, as text."""

    name: str
    type_text: str
    """Empty where the text leaves it out and it cannot be inferred."""
    opcode: str
    operands_text: str
    """Operands, a literal, or the number of a parameter."""
    attributes_text: str = ""
    """With the comma before the first."""
    references: tuple[str, ...] = ()
    """The operands: a name, or `name#1` for an element of a tuple."""

    @classmethod
    def of(
        cls, name: str, type_text: str, opcode: str, references: Iterable[str], attributes: str = ""
    ) -> DraftInstruction:
        """An instruction with these operands."""
        instruction = cls(name, type_text, opcode, "", attributes)
        return instruction.with_operands(references)

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes as text, by name, in order."""
        text = self.attributes_text
        return {name: text[start:end] for name, (start, end) in split_attributes(text).items()}

    @property
    def callees(self) -> Sequence[str]:
        """The names of the computations that it calls."""
        return called_names(self.attributes_text) if "=" in self.attributes_text else ()

    @property
    def predecessors(self) -> tuple[str, ...]:
        """The names of its control predecessors."""
        return control_predecessors(self.attributes_text)

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the instructions that it reads."""
        return tuple(map(name_in, self.references))

    @property
    def element(self) -> int | None:
        """The index of a get-tuple-element; None for any other opcode."""
        number = self.attributes.get("index", "") if self.opcode == "get-tuple-element" else ""
        return int(number) if number.isdecimal() else None

    @property
    def parameter_number(self) -> int:
        """The number of a parameter."""
        digits = re.search(r"\d+", self.operands_text)
        return int(digits[0]) if digits else 0

    def with_operands(self, references: Iterable[str]) -> DraftInstruction:
        """The instruction with these operands instead."""
        references = tuple(references)
        text = ", ".join(f"%{reference}" for reference in references)
        return self._replace(operands_text=text, references=references)

    def without(self, names: Collection[str]) -> DraftInstruction:
        """The instruction without the attributes of these names."""
        if not any(f"{name}=" in self.attributes_text for name in names):
            return self
        left = {name: text for name, text in self.attributes.items() if name not in names}
        return self._replace(attributes_text=joined_attributes(left))

    def without_predecessors(self, gone: Collection[str]) -> DraftInstruction:
        """The instruction without the control predecessors in `gone`."""
        names = self.predecessors
        if not gone or not any(name in gone for name in names):
            return self
        left = ", ".join(f"%{name}" for name in names if name not in gone)
        kept = f", control-predecessors={{{left}}}" if left else ""
        return self._replace(attributes_text=_predecessors.sub(kept, self.attributes_text))


def renamed(reference: str, names: Mapping[str, str]) -> str:
    """A reference such as `name#1`, with its instruction renamed."""
    name, hash_sign, element = reference.partition("#")
    return f"{names.get(name, name)}{hash_sign}{element}"


@dataclass(frozen=True)
class DraftComputation:
    """A computation of a draft."""

    name: str
    rows: tuple[DraftInstruction, ...]
    root: str
    """The name of the root."""
    is_entry: bool = False
    tail: str = ""
    """The text after the closing brace."""

    @cached_property
    def index(self) -> dict[str, int]:
        """Positions by name."""
        return {row.name: number for number, row in enumerate(self.rows)}

    @cached_property
    def users(self) -> Counter[str]:
        """Number of operands and control dependencies that read each name."""
        count: Counter[str] = Counter()
        for row in self.rows:
            count.update((*row.reads, *row.predecessors))
        return count

    def awaited(self, name: str) -> list[str]:
        """The instructions that must run before one: its operands and control predecessors."""
        row = self.row(name)
        return [read for read in (*row.reads, *row.predecessors) if read in self.index]

    def row(self, name: str) -> DraftInstruction:
        """The instruction with a name."""
        return self.rows[self.index[name]]

    @property
    def parameters(self) -> list[DraftInstruction]:
        """The parameters in the order of their numbers."""
        rows = [row for row in self.rows if row.opcode == "parameter"]
        return sorted(rows, key=lambda row: row.parameter_number)

    def called(self) -> set[str]:
        """The computations that it calls."""
        return {name for row in self.rows for name in row.callees}

    def changed(
        self, rows: Iterable[DraftInstruction], root: str | None = None
    ) -> DraftComputation:
        """The computation with these instructions instead."""
        return replace(self, rows=tuple(rows), root=root or self.root)

    def with_row(self, changed: DraftInstruction) -> DraftComputation:
        """The computation with a changed instruction, which replaces its namesake."""
        return self.changed(changed if row.name == changed.name else row for row in self.rows)


@dataclass(frozen=True)
class Draft:
    """A module that is being reduced."""

    name: str
    header: Mapping[str, str]
    """The header's attributes."""
    bodies: tuple[DraftComputation, ...]
    comments: str = ""
    """Lines before the header, which give the stage."""
    tables: str = ""
    """The tables of stack frames."""

    @classmethod
    def of(cls, module: Module, comments: str = "") -> Draft:
        """The draft of a module; shapes that the text leaves out are inferred."""
        inference = ShapeInference(module.computations)
        inline = inline_computations(module)
        bodies = tuple(
            _body(computation, inference, computation is module.entry)
            for computation in module.computations
            if computation.rows and computation not in inline
        )
        tables = "\n\n".join(module.tables)
        return cls(module.name, dict(module.attributes), bodies, comments, tables)

    @property
    def entry(self) -> DraftComputation:
        """The entry computation."""
        return next((body for body in self.bodies if body.is_entry), self.bodies[-1])

    @property
    def interface(self) -> tuple[tuple[str, ...], str]:
        """The shapes of the entry computation's parameters and result."""
        entry = self.entry
        shapes = tuple(row.type_text for row in entry.parameters)
        return shapes, entry.row(entry.root).type_text

    @property
    def size(self) -> int:
        """The number of instructions."""
        return sum(len(body.rows) for body in self.bodies)

    def body(self, name: str) -> DraftComputation | None:
        """The computation with a name."""
        return next((body for body in self.bodies if body.name == name), None)

    def places(self) -> Iterator[tuple[DraftComputation, DraftInstruction]]:
        """Every instruction with its computation, in the order of the text."""
        for body in self.bodies:
            for row in body.rows:
                yield body, row

    def with_bodies(self, changed: Mapping[str, DraftComputation | None]) -> Draft:
        """The draft with some computations replaced by name; None drops a computation."""
        bodies = (changed.get(body.name, body) for body in self.bodies)
        return replace(self, bodies=tuple(body for body in bodies if body is not None))

    def with_rows(
        self, change: Callable[[DraftComputation, DraftInstruction], DraftInstruction]
    ) -> Draft:
        """The draft with each instruction changed."""
        bodies = (body.changed(change(body, row) for row in body.rows) for body in self.bodies)
        return replace(self, bodies=tuple(bodies))

    def names(self) -> set[str]:
        """The names of instructions and computations."""
        names = {name for body in self.bodies for name in body.index}
        return names | {body.name for body in self.bodies}

    @cached_property
    def text(self) -> str:
        """The module as HLO."""
        return "".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self.comments
        yield f"HloModule {self.name}{joined_attributes(self.header)}\n"
        if self.tables:
            yield f"\n{self.tables}\n"
        for body in self.bodies:
            yield f"\n{'ENTRY ' if body.is_entry else ''}%{body.name} {{\n"
            for row in body.rows:
                root = "ROOT " if row.name == body.root else ""
                shape = f"{row.type_text} " if row.type_text else ""
                yield f"  {root}%{row.name} = {shape}{row.opcode}({row.operands_text})"
                yield f"{row.attributes_text}\n"
            yield f"}}{body.tail}\n"


def _body(computation: Computation, inference: ShapeInference, is_entry: bool) -> DraftComputation:
    rows: list[DraftInstruction] = []
    for instruction in computation.instructions:
        _, name, shape, opcode, operands, tail, references = instruction.row
        shape = shape or str(inference.shape(instruction) or "")
        row = DraftInstruction(name, shape, opcode, operands, tail)
        rows.append(row if opcode in LITERAL_OPERANDS else row.with_operands(references))
    root = computation.root
    assert root is not None
    return DraftComputation(computation.name, tuple(rows), root.name, is_entry, computation.tail)


def called_from(draft: Draft, name: str) -> Iterable[str]:
    """The names of the computations that a computation calls."""
    body = draft.body(name)
    return () if body is None else body.called()


def swept(after: Draft, before: Draft, *, wholly: bool = True) -> Draft:
    """The draft without the instructions, parameters and computations that a change left unused.

    Unused parts from before the change stay: they may be the problem. If not `wholly`, unused
    instructions stay, too.
    """
    changed: dict[str, DraftComputation | None] = {}
    called: set[str] = set()
    former_calls = {name for body in before.bodies for name in body.called()}
    for body in after.bodies:
        former = before.body(body.name)
        changed[body.name] = body = _without_unused(body, former) if wholly else body
        called |= body.called()
    while dead := [
        name
        for name, body in changed.items()
        if body and not body.is_entry and name not in called and name in former_calls
    ]:
        changed.update(dict.fromkeys(dead))
        called = {name for body in changed.values() if body for name in body.called()}
    return _renumbered(after.with_bodies(changed), before)


def _without_unused(body: DraftComputation, former: DraftComputation | None) -> DraftComputation:
    if former is None or (body.rows is former.rows and body.root == former.root):
        return body
    kept = {name for name in former.index if not former.users[name]} - {former.root} | {body.root}

    def has_to_stay(name: str) -> bool:
        is_fixed = not body.is_entry and body.row(name).opcode == "parameter"
        return name in kept or is_fixed

    unread = [name for name in body.index if not body.users[name]]
    gone = without_readers(unread, body.users.__getitem__, body.awaited, has_to_stay)
    if not gone:
        return body
    return body.changed(row for row in body.rows if row.name not in gone)


_BY_PARAMETER = frozenset(
    "buffer_donor entry_computation_layout input_output_alias parameter_replication".split()
)
"""Attributes of the header about the parameters and the result of the entry computation."""


def _renumbered(after: Draft, before: Draft) -> Draft:
    """Number the entry computation's parameters from 0, and drop header attributes about them."""
    entry = after.entry
    numbers = [row.parameter_number for row in entry.parameters]
    is_numbered = numbers == list(range(len(numbers)))
    if not is_numbered:
        rows = parameters_in_order(entry.rows)
        after = after.with_bodies({entry.name: entry.changed(rows)})
    if is_numbered and after.interface == before.interface:
        return after
    # Layouts, aliases and donations are by number, and may no longer fit. XLA's parser takes the
    # layouts of the parameters and of the root.
    header = {
        name: value
        for name, value in after.header.items()
        if name not in _BY_PARAMETER and not name.startswith("allow_spmd_sharding_propagation")
    }
    return replace(after, header=header)


def parameters_in_order(rows: Iterable[DraftInstruction]) -> list[DraftInstruction]:
    """The instructions with their parameters numbered from 0, in the order of their numbers."""
    rows = list(rows)
    old = sorted(row.parameter_number for row in rows if row.opcode == "parameter")
    return [
        row._replace(operands_text=str(old.index(row.parameter_number)))
        if row.opcode == "parameter"
        else row
        for row in rows
    ]
