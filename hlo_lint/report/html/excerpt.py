"""The lines around an instruction before and after a pass, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Final, TypedDict

from hlo_lint.analysis.diff.align import NOTHING, align
from hlo_lint.analysis.diff.normalize import without_origin
from hlo_lint.analysis.diff.structural_hash import Body, Structure, Structures
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.report.html.neighbourhood import Neighbourhood
from hlo_lint.text.edits import first_difference
from hlo_lint.text.source import Lines

MAX_LINE_LENGTH = 320
"""Maximum characters of a line; the others are counted."""
NEAR = 60
"""Characters shown of the beginning of two lines that differ late, and before their difference."""
MAX_REMOVED = 12
"""Maximum removed instructions shown."""
AROUND = 3
"""Lines shown before and after a finding that is not at an instruction."""

_ELEMENT: Final = "get-tuple-element"
_words = re.compile(r"[\w.\-]+|\s+|.", re.S)

Parts = list[tuple[int, str]]
"""Parts of a line, each with 1 if it differs from the other side, else 0."""


class Line(TypedDict):
    """A line of a file."""

    number: int
    """Counted from 1."""
    text: Parts


class Row(TypedDict):
    """A line before and after; None on the side that lacks it."""

    kind: str
    """`same`, `changed`, `added`, `removed`, or `gap` for lines left out."""
    at: bool
    """True for the line of the finding."""
    before: Line | None
    after: Line | None


class Partners:
    """The pairs of instructions in two modules, computation by computation."""

    def __init__(self, before: Module, after: Module) -> None:
        structures = Structures()
        self.before: Structure = structures.of(before)
        self.after: Structure = structures.of(after)
        self._known: dict[str, dict[Instruction, Instruction]] = {}

    def of(self, name: str) -> dict[Instruction, Instruction]:
        """Maps instructions of a computation of the second module to those of the first."""
        pairing = self._known.get(name)
        if pairing is None:
            pairing = self._known[name] = {}
            after = self.after.bodies.get(name)
            before = self.before.bodies.get(name)
            entry = self.before.module.entry
            # The SPMD partitioner renames the entry: %main becomes %main_spmd.
            if before is None and entry and after and after.computation.is_entry:
                before = self.before.bodies.get(entry.name)
            if before is not None and after is not None:
                pairing.update(_paired(before, after))
        return pairing


def _paired(before: Body, after: Body) -> Iterable[tuple[Instruction, Instruction]]:
    ours, theirs = before.computation, after.computation
    for number, match in enumerate(align(before, after)):
        if match != NOTHING:
            yield theirs.at(match), ours.at(number)
    # Structures see through elements of tuples, so that these are paired by name.
    for element in theirs.with_opcode(_ELEMENT):
        same = ours.instruction(element.name)
        if same is not None and same.opcode == _ELEMENT:
            yield element, same


def side_by_side(
    around: Neighbourhood, partners: dict[Instruction, Instruction], before: Module, after: Module
) -> list[Row]:
    """The lines of a neighbourhood before and after a pass, with removed neighbours."""
    shown = around.all
    rows: list[tuple[Instruction | None, Instruction | None]] = [
        (partners.get(instruction), instruction) for instruction in shown
    ]
    kept = [partners[instruction] for instruction in shown if instruction in partners]
    for removed in _removed(kept, set(partners.values())):
        above = [row for row in rows if row[0] is not None and row[0].number < removed.number]
        rows.insert(rows.index(above[-1]) + 1 if above else 0, (removed, None))
    return list(with_gaps([row_of(*row, around.at, before, after) for row in rows]))


def _removed(paired: Iterable[Instruction], survivors: set[Instruction]) -> list[Instruction]:
    """Removed neighbours of these instructions; nearest first, then in order."""
    removed: dict[Instruction, None] = {}
    ring = list(paired)
    while ring and len(removed) < MAX_REMOVED:
        beside: dict[Instruction, None] = {}
        for instruction in ring:
            read = [operand.instruction for operand in instruction.operands]
            for near in (*read, *instruction.users[:MAX_REMOVED]):
                if near is not None and near not in survivors and near not in removed:
                    beside[near] = None
        removed.update(beside)
        ring = list(beside)
    return sorted(list(removed)[:MAX_REMOVED], key=lambda instruction: instruction.number)


def one_sided(around: Neighbourhood, module: Module) -> list[Row]:
    """The lines of a neighbourhood whose state before the pass is unknown."""
    rows = [row_of(None, instruction, around.at, module, module) for instruction in around.all]
    return list(with_gaps([{**row, "kind": "same"} for row in rows]))


def lines_around(lines: Lines, first: int, last: int) -> list[Row]:
    """Lines of a text, with `AROUND` lines before the first and after the last."""
    count = lines.text.count("\n") + (not lines.text.endswith("\n"))
    rows = []
    for number in range(max(1, first - AROUND), min(count, last + AROUND, first + 20) + 1):
        line = Line(number=number, text=[(0, _cut(lines.line(number)))])
        rows.append(Row(kind="same", at=first <= number <= last, before=None, after=line))
    return rows


def row_of(
    old: Instruction | None,
    new: Instruction | None,
    marked: Instruction | None,
    before: Module,
    after: Module,
) -> Row:
    """An instruction before and after a pass; `marked` is the instruction of the finding."""
    texts = [instruction_text(side) if side else "" for side in (old, new)]
    parts: Sequence[Parts] = [[(0, _cut(text))] for text in texts]
    kind = "added" if old is None else "removed" if new is None else "same"
    if kind == "same" and texts[0] != texts[1]:
        kind, parts = "changed", _differing(*_windows(*texts))
    return Row(
        kind=kind,
        at=marked is not None and new is marked,
        before=None if old is None else Line(number=_line(old, before), text=parts[0]),
        after=None if new is None else Line(number=_line(new, after), text=parts[1]),
    )


def instruction_text(instruction: Instruction) -> str:
    """The text of an instruction, without its metadata."""
    return " ".join(without_origin(instruction).split())


def _line(instruction: Instruction, module: Module) -> int:
    return module.file.lines.position(module.span(instruction).start).line


def _cut(text: str) -> str:
    left = len(text) - MAX_LINE_LENGTH
    return text if left <= 0 else f"{text[:MAX_LINE_LENGTH]}… ({left} more)"


def _windows(before: str, after: str) -> tuple[str, str]:
    """Both lines, cut around their first difference."""
    same = first_difference(before, after)
    if same < MAX_LINE_LENGTH - NEAR:
        return _cut(before), _cut(after)
    ours, theirs = (f"{text[:NEAR]}… {text[same - NEAR :]}" for text in (before, after))
    return _cut(ours), _cut(theirs)


def _differing(before: str, after: str) -> tuple[Parts, Parts]:
    """Two lines with their different words marked."""
    ours, theirs = _words.findall(before), _words.findall(after)
    sides: tuple[Parts, Parts] = [], []
    for tag, low, high, start, end in SequenceMatcher(None, ours, theirs, False).get_opcodes():
        for side, words in zip(sides, (ours[low:high], theirs[start:end]), strict=True):
            if words:
                side.append((int(tag != "equal"), "".join(words)))
    return sides


def with_gaps(rows: Sequence[Row]) -> Iterable[Row]:
    """The rows, with a `gap` where lines of the second side are left out."""
    last = 0
    for row in rows:
        if row["after"] is not None:
            if last and row["after"]["number"] > last + 1:
                yield Row(kind="gap", at=False, before=None, after=None)
            last = row["after"]["number"]
        yield row
