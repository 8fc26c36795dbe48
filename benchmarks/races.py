"""Planted overlaps that two rules have to find: values moved onto memory in use.

`tests/rules/test_races.py` compares the rules with the oracle. A mutant is a buffer assignment with
one value moved: onto what an operation in flight reads or writes, where the value is written or
read between start and done (asynchronous-buffer-reused), or onto the memory of a custom call's
operand or result (custom-call-overlaps-operand). Which values these are is read from the values
file, where XLA says who uses what, not by the code under test.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import hlo_lint
from hlo_lint.dumps.artefacts.buffer_assignment import (
    AllocationSlice,
    AssignedValue,
    BufferAssignment,
    read_buffer_assignment,
)
from hlo_lint.dumps.artefacts.buffer_values import BufferValues, HloValue, read_buffer_values
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.rules.base import FinalModule, Findings
from hlo_lint.rules.registry import find_rule

ALIGNMENT = 256
RACE, OVERLAP = "asynchronous-buffer-reused", "custom-call-overlaps-operand"


@dataclass(frozen=True)
class Mutant:
    """One value moved."""

    rule: str
    moved: AssignedValue
    onto: AssignedValue
    offset: int

    def __str__(self) -> str:
        moved, onto = self.moved, self.onto
        shift = self.offset - onto.offset
        return (
            f"<{moved.id} {moved.instruction}{moved.index}> onto "
            f"<{onto.id} {onto.instruction}{onto.index}>, {shift} bytes after its begin"
        )

    def text(self, original: str) -> str:
        """The buffer assignment with the value's line moved."""
        start, end = original.rfind("\n", 0, self.moved.span.start) + 1, self.moved.span.end + 1
        line = re.sub(r"offset=\d+", f"offset={self.offset}", original[start:end], count=1)
        without = original[:start] + original[end:]
        allocation = re.compile(rf"^allocation {self.onto.slice.allocation}: .*\n", re.M)
        found = allocation.search(without)
        assert found is not None
        return without[: found.end()] + line + without[found.end() :]


@dataclass(frozen=True)
class Case:
    """One final module with its memory."""

    name: str
    module: Module
    assignment: str
    values: BufferValues

    def findings(self, rule: str, assignment: str) -> list[str]:
        """The messages of a rule, given a buffer assignment."""
        buffers = read_buffer_assignment(assignment).with_values(self.values)
        check = find_rule(rule).check  # type: ignore[attr-defined]
        found: Findings = check(FinalModule(self.module, True), buffers)
        return [finding.message for finding in found]

    @property
    def buffers(self) -> BufferAssignment:
        """As XLA left it."""
        return read_buffer_assignment(self.assignment).with_values(self.values)


def cases(folder: Path) -> Iterator[Case]:
    """The final modules of a dump directory that have a buffer assignment and a values file."""
    for path in sorted(folder.glob("*after_optimizations.txt")):
        stem = path.name.removesuffix(".txt")
        assignment = folder / f"{stem}-buffer-assignment.txt"
        values = folder / f"{stem}-buffer-assignment-values.txt"
        if assignment.exists() and values.exists():
            yield Case(
                f"{folder.name}/{stem.split('.')[1]}",
                hlo_lint.parse(path.read_bytes(), path),
                assignment.read_text(),
                read_buffer_values(values.read_text()),
            )


def _pairs(computation: Computation) -> Iterator[tuple[Instruction, Instruction]]:
    for done in computation.instructions:
        if done.opcode.endswith("-done"):
            start = done.operands[0].instruction
            if start is not None:
                yield start, done


@dataclass(frozen=True)
class Span:
    """XLA's account of one operation: the values in flight, and what happens meanwhile."""

    flying: tuple[tuple[AssignedValue, bool], ...]
    """The value that the done uses, and True if it is a result."""
    written: frozenset[int]
    """The values that are written in between, by number."""
    read: frozenset[int]
    """Those that are read in between."""
    across: frozenset[int]
    """Those that are there before the start and read after the done."""

    def clashes(
        self, value: int, place: AllocationSlice, memory: dict[int, AllocationSlice]
    ) -> str:
        """The error of a value at a place; empty if there is none."""
        for onto, is_result in self.flying:
            if onto.id == value or not place.overlaps(memory[onto.id]):
                continue
            if value in self.written:
                return "written in flight"
            if is_result and value in self.read:
                return "read in flight"
            if is_result and value in self.across:
                return "needed after"
        for onto, is_result in self.flying:
            if onto.id != value:
                continue
            for other in self.written | (self.read | self.across if is_result else frozenset()):
                if other != value and place.overlaps(memory[other]):
                    return "put under another"
        return ""


def _inside(module: Module, start: Instruction, done: Instruction) -> dict[str, str]:
    """Opcodes of what runs in between, by name; what loops and calls run is included."""
    return _running(module, [done.computation.at(n) for n in range(start.number + 1, done.number)])


def _running(module: Module, todo: list[Instruction]) -> dict[str, str]:
    found: dict[str, str] = {}
    while todo:
        at = todo.pop()
        found[at.name] = at.opcode
        if at.opcode in ("while", "call", "conditional", "async-start"):
            for name in at.called_computations:
                callee = module.computation(name)
                todo += callee.instructions if callee is not None else ()
    return found


_QUIET = ("bitcast", "tuple", "get-tuple-element", "while", "call", "conditional", "async-done")
_NO_WRITE = (*_QUIET, "parameter", "constant")


def spans(case: Case, buffers: BufferAssignment) -> Iterator[Span]:
    """Every operation of a module."""
    for computation in case.module.computations:
        for start, done in _pairs(computation):
            inside = _inside(case.module, start, done)
            rows = computation.instructions
            before = {at.name for at in rows[: start.number]}
            after = _running(case.module, list(rows[done.number + 1 :]))
            root = computation.root
            written, read, across = set(), set(), set()
            for value in _data(case.values, buffers):
                readers = {use.instruction for use in value.uses}
                if inside.get(value.defined_at.instruction, "tuple") not in _NO_WRITE:
                    written.add(value.id)
                if any(inside.get(name, "tuple") not in _QUIET for name in readers):
                    read.add(value.id)
                needed = any(after.get(name, "tuple") not in _QUIET for name in readers)
                there = {position.instruction for position in value.positions}
                needed |= root is not None and root.name in there
                if needed and there & before:
                    across.add(value.id)
            flying = tuple(_flying(case.values, buffers, start, done))
            yield Span(flying, frozenset(written), frozenset(read), frozenset(across))


def _data(values: BufferValues, buffers: BufferAssignment) -> Iterator[HloValue]:
    """Values with data: no tables of pointers, no contexts, nothing of a kernel's own."""
    for value in values.values:
        moved = buffers.values.get(value.id)
        if (
            moved is not None
            and not moved.shape.startswith("(")
            and "thread-local" not in buffers.by_index[moved.slice.allocation].flags
            and not (value.defined_at.index[:1] == (2,) and "-start" in moved.instruction)
        ):
            yield value


def _flying(
    values: BufferValues, buffers: BufferAssignment, start: Instruction, done: Instruction
) -> Iterator[tuple[AssignedValue, bool]]:
    """The values that the done is said to use: the arrays of its operand; True for results."""
    result = 0 if start.opcode in ("copy-start", "recv") else 1
    for value in _data(values, buffers):
        for use in value.uses:
            if use.instruction == done.name and use.index and use.index[0] in (0, 1):
                yield buffers.values[value.id], use.index[0] == result


def race_mutants(case: Case) -> Iterator[Mutant]:
    """Any value with data, moved onto anything that is in flight."""
    buffers = case.buffers
    for span in spans(case, buffers):
        for value in _data(case.values, buffers):
            for onto, _ in span.flying:
                if onto.id != value.id:
                    yield Mutant(RACE, buffers.values[value.id], onto, onto.offset)


def overlap_mutants(case: Case) -> Iterator[Mutant]:
    """Results of custom calls moved onto operands, and the other way round."""
    buffers = case.buffers
    for given, taken in _calls(case, buffers):
        for result in given:
            for operand in taken:
                yield Mutant(OVERLAP, result, operand, operand.offset)
                yield Mutant(OVERLAP, operand, result, result.offset)


def _calls(
    case: Case, buffers: BufferAssignment
) -> Iterator[tuple[list[AssignedValue], list[AssignedValue]]]:
    """Results and operands of each custom call that declares nothing."""
    data = {value.id: value for value in _data(case.values, buffers)}
    for computation in case.module.nonfusion_computations:
        for call in computation.with_opcode("custom-call"):
            if "output_to_operand_aliasing" not in call.attributes:
                given = [v for v in data.values() if v.defined_at.instruction == call.name]
                taken = [
                    v for v in data.values() if any(u.instruction == call.name for u in v.uses)
                ]
                yield [buffers.values[v.id] for v in given], [buffers.values[v.id] for v in taken]


class Oracle:
    """The effect of a mutant on the program, by XLA's values and uses."""

    def __init__(self, case: Case) -> None:
        self._buffers = case.buffers
        self._spans = tuple(spans(case, self._buffers))
        self._calls = tuple(_calls(case, self._buffers))

    def _place(self, mutant: Mutant) -> AllocationSlice:
        return AllocationSlice(mutant.onto.slice.allocation, mutant.offset, mutant.moved.size)

    def verdict(self, mutant: Mutant) -> str:
        """The error; empty if there is none that its rule is about."""
        memory = {value.id: value.slice for value in self._buffers.values.values()}
        moved, place = mutant.moved.id, self._place(mutant)
        memory[moved] = place
        if mutant.rule == RACE:
            found = (span.clashes(moved, place, memory) for span in self._spans)
            return next(filter(None, found), "")
        for given, taken in self._calls:
            for result in given:
                for operand in taken:
                    hit = memory[result.id].overlaps(memory[operand.id])
                    if moved in (result.id, operand.id) and hit:
                        return "result on operand"
        return ""


def shifted(mutant: Mutant, chance: random.Random) -> Mutant:
    """The same, overlapping by a part only in half of the cases."""
    steps = (mutant.onto.size - 1) // ALIGNMENT
    if not steps or chance.random() < 0.5:
        return mutant
    offset = mutant.onto.offset + ALIGNMENT * chance.randint(1, steps)
    return replace(mutant, offset=offset)


def chosen(case: Case, wanted: int, seed: int) -> list[Mutant]:
    """As many mutants of each rule as are wanted, from a seed; fewer where there are not as many.

    Twice as many values are drawn that are in use while the operation is in flight as there are
    others: of those that are not, most do no harm.
    """
    chance = random.Random(f"{seed} {case.name}")
    oracle = Oracle(case)
    races = list(race_mutants(case))
    chance.shuffle(races)
    harmful = [mutant for mutant in races if oracle.verdict(mutant)]
    harmless = [mutant for mutant in races if not oracle.verdict(mutant)]
    overlaps = list(overlap_mutants(case))
    chance.shuffle(overlaps)
    drawn = harmful[: 2 * wanted // 3] + harmless[: wanted // 3] + overlaps[:wanted]
    return [shifted(mutant, chance) for mutant in drawn]
