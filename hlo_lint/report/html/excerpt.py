"""HLO before and after a pass, side by side: the lines around one instruction, and what became of
each of them."""

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
from hlo_lint.text.source import Lines

MAX_LINE_LENGTH = 320
"""Characters of a line that are shown; what follows is counted."""
NEAR = 60
"""Characters that are shown of the beginning, and before the difference, of two lines that begin to
differ late."""
MAX_REMOVED = 12
"""Maximum removed instructions that are shown."""
AROUND = 3
"""Lines before and after a place in a text, where it is not an instruction's."""

_ELEMENT: Final = "get-tuple-element"
_words = re.compile(r"[\w.\-]+|\s+|.", re.S)

Parts = list[tuple[int, str]]
"""A line in parts; a part that differs from the other side's has 1, else 0."""


class Line(TypedDict):
    """One line of one side."""

    number: int
    """Counted from 1."""
    text: Parts


class Row(TypedDict):
    """A line of each side, or of one of them."""

    kind: str
    """`same`, `changed`, `added`, `removed`; `gap` where lines in between are left out."""
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
        """For each instruction of a computation of the second module the one it was before."""
        pairing = self._known.get(name)
        if pairing is None:
            pairing = self._known[name] = {}
            one, other = self._bodies(name)
            if one is not None and other is not None:
                pairing.update(_paired(one, other))
        return pairing

    def _bodies(self, name: str) -> tuple[Body | None, Body | None]:
        """The computation of that name and the one it was: of the same name, else both entries."""
        other = self.after.bodies.get(name)
        one = self.before.bodies.get(name)
        entry = self.before.module.entry
        if one is None and other is not None and other.computation.is_entry and entry is not None:
            one = self.before.bodies.get(entry.name)
        return one, other


def _paired(one: Body, other: Body) -> Iterable[tuple[Instruction, Instruction]]:
    ours, theirs = one.computation, other.computation
    for number, match in enumerate(align(one, other)):
        if match != NOTHING:
            yield theirs.at(match), ours.at(number)
    # Elements of tuples are read through, so that nothing pairs them: their names do.
    for element in theirs.with_opcode(_ELEMENT):
        same = ours.instruction(element.name)
        if same is not None and same.opcode == _ELEMENT:
            yield element, same


def side_by_side(
    around: Neighbourhood, partners: dict[Instruction, Instruction], before: Module, after: Module
) -> list[Row]:
    """The lines of a neighbourhood beside what they were, with what the pass took away there."""
    shown = around.all
    survivors_of = {
        partners[instruction]: instruction for instruction in shown if instruction in partners
    }
    rows: list[tuple[Instruction | None, Instruction | None]] = [
        (partners.get(instruction), instruction) for instruction in shown
    ]
    survivors = set(partners.values())
    for gone in _removed(survivors_of, survivors):
        place = max(
            (
                at
                for at, (one, _) in enumerate(rows)
                if one is not None and one.number < gone.number
            ),
            default=-1,
        )
        rows.insert(place + 1, (gone, None))
    return list(with_gaps([row_of(one, other, around.at, before, after) for one, other in rows]))


def _removed(paired: Iterable[Instruction], survivors: set[Instruction]) -> list[Instruction]:
    """Removed neighbours of these instructions; nearest first, then in order."""
    removed: dict[Instruction, None] = {}
    ring = list(paired)
    while ring and len(removed) < MAX_REMOVED:
        beside: dict[Instruction, None] = {}
        for instruction in ring:
            read = [operand.instruction for operand in instruction.operands]
            for other in (*read, *instruction.users[:MAX_REMOVED]):
                if other is not None and other not in survivors and other not in removed:
                    beside[other] = None
        removed.update(beside)
        ring = list(beside)
    return sorted(list(removed)[:MAX_REMOVED], key=lambda instruction: instruction.number)


def one_sided(around: Neighbourhood, module: Module) -> list[Row]:
    """The lines of a neighbourhood, where nothing is known of what they were."""
    rows = []
    for instruction in around.all:
        row = row_of(None, instruction, around.at, module, module)
        row["kind"] = "same"
        rows.append(row)
    return list(with_gaps(rows))


def lines_around(lines: Lines, first: int, last: int) -> list[Row]:
    """The lines of a text from `AROUND` before the first to `AROUND` after the last."""
    count = lines.text.count("\n") + (not lines.text.endswith("\n"))
    rows = []
    for number in range(max(1, first - AROUND), min(count, last + AROUND, first + 20) + 1):
        line = Line(number=number, text=[(0, _cut(lines.line(number)))])
        rows.append(Row(kind="same", at=first <= number <= last, before=None, after=line))
    return rows


def row_of(
    one: Instruction | None,
    other: Instruction | None,
    at: Instruction | None,
    before: Module,
    after: Module,
) -> Row:
    """An instruction of each side, or of one; `at` is that of the finding."""
    texts = [instruction_text(side) if side else None for side in (one, other)]
    kind = "changed"
    if texts[0] is None or texts[1] is None:
        kind = "added" if texts[0] is None else "removed"
        parts: list[Parts] = [[(0, _cut(text or ""))] for text in texts]
    elif texts[0] == texts[1]:
        kind = "same"
        parts = [[(0, _cut(texts[0]))]] * 2
    else:
        parts = list(_differing(*_windows(texts[0], texts[1])))
    return Row(
        kind=kind,
        at=at is not None and other is at,
        before=None if one is None else Line(number=_line(one, before), text=parts[0]),
        after=None if other is None else Line(number=_line(other, after), text=parts[1]),
    )


def instruction_text(instruction: Instruction) -> str:
    """The instruction as it stands in the file, without its metadata."""
    return " ".join(without_origin(instruction).split())


def _line(instruction: Instruction, module: Module) -> int:
    return module.file.lines.position(module.span(instruction).start).line


def _cut(text: str) -> str:
    left = len(text) - MAX_LINE_LENGTH
    return text if left <= 0 else f"{text[:MAX_LINE_LENGTH]}… ({left} more)"


def _windows(before: str, after: str) -> tuple[str, str]:
    """Both lines cut, so that where they begin to differ is shown."""
    same = next(
        (at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other), 0
    )
    if same < MAX_LINE_LENGTH - NEAR:
        return _cut(before), _cut(after)
    one, other = (f"{text[:NEAR]}… {text[same - NEAR :]}" for text in (before, after))
    return _cut(one), _cut(other)


def _differing(before: str, after: str) -> tuple[Parts, Parts]:
    """Two lines with the words in which they differ marked."""
    ours, theirs = _words.findall(before), _words.findall(after)
    sides: tuple[Parts, Parts] = [], []
    for tag, low, high, start, end in SequenceMatcher(None, ours, theirs, False).get_opcodes():
        for side, words in zip(sides, (ours[low:high], theirs[start:end]), strict=True):
            if words:
                side.append((int(tag != "equal"), "".join(words)))
    return sides


def with_gaps(rows: Sequence[Row]) -> Iterable[Row]:
    """The rows, with a mark wherever the second side leaves lines out."""
    last = 0
    for row in rows:
        if row["after"] is not None:
            if last and row["after"]["number"] > last + 1:
                yield Row(kind="gap", at=False, before=None, after=None)
            last = row["after"]["number"]
        yield row
