"""Parameters: instructions become one; results, parameters and loop state that nobody reads go."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial

from hlo_lint.engine.reduce.draft import (
    Draft,
    DraftComputation,
    attributes,
    parameter_number,
    record,
    with_operands,
)
from hlo_lint.engine.reduce.transformations.base import Anchor, Target, Transformation
from hlo_lint.hlo.ir import called_names
from hlo_lint.hlo.parser.tokens import tuple_elements
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_in,
    name_of,
    opcode_of,
    references_of,
    type_of,
)


def parameters_for(
    rows: Iterable[InstructionRecord], chosen: Collection[str]
) -> list[InstructionRecord]:
    """The instructions with some of them parameters; all parameters are numbered anew."""
    changed, number = [], 0
    for row in rows:
        if opcode_of(row) == "parameter" or name_of(row) in chosen:
            row = record(name_of(row), type_of(row), "parameter", str(number))
            number += 1
        changed.append(row)
    return changed


class CutOperands(Transformation):
    """Instructions of the entry computation as parameters of it: what they read goes."""

    name = "turn operands into parameters"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[Target]:
        entry = draft.entry
        kept = {entry.root, anchor[1] if anchor else ""}
        return [
            (name_of(row),)
            for row in entry.rows
            if opcode_of(row) != "parameter" and name_of(row) not in kept
        ]

    def apply(self, draft: Draft, chosen: Sequence[Target]) -> Draft | None:
        entry = draft.entry
        names = {name for (name,) in chosen} & entry.index.keys()
        names -= {name_of(row) for row in entry.parameters}
        if not names or any(not type_of(entry.row(name)) for name in names):
            return None
        first = len(entry.parameters)
        numbers = {name: first + number for number, name in enumerate(sorted(names))}
        rows = [
            record(name_of(row), type_of(row), "parameter", str(numbers[name_of(row)]))
            if name_of(row) in names
            else row
            for row in entry.rows
        ]
        return draft.with_bodies({entry.name: entry.changed(rows)})


class DropOutputs(Transformation):
    """Elements of the tuple that the entry computation returns."""

    name = "drop outputs"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[Target]:
        root = draft.entry.row(draft.entry.root)
        if opcode_of(root) != "tuple":
            return ()
        return [(str(number),) for number in range(len(references_of(root)))]

    def apply(self, draft: Draft, chosen: Sequence[Target]) -> Draft | None:
        entry = draft.entry
        root = entry.row(entry.root)
        gone = {int(number) for (number,) in chosen}
        operands = references_of(root)
        kept = [name for number, name in enumerate(operands) if number not in gone]
        if opcode_of(root) != "tuple" or not kept or len(kept) == len(operands):
            return None
        if len(kept) == 1 and "#" not in kept[0]:
            return draft.with_bodies({entry.name: entry.changed(entry.rows, kept[0])})
        shape = _tuple_without(type_of(root), gone)
        changed = record(entry.root, shape, "tuple", kept, attributes_of(root))
        return draft.with_bodies({entry.name: _with(entry, changed)})


class DropCalleeParameters(Transformation):
    """Parameters of fusions, calls and conditionals that their computation does not read."""

    name = "drop unread parameters"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[Target]:
        callers = _callers(draft)
        return [
            (body.name, name_of(row))
            for body in draft.bodies
            if not body.is_entry and callers.get(body.name) in ("fusion", "call")
            for row in body.parameters
            if not body.users[name_of(row)] and name_of(row) != body.root
        ]

    def apply(self, draft: Draft, chosen: Sequence[Target]) -> Draft | None:
        for computation in {computation for computation, _ in chosen}:
            body = draft.body(computation)
            if body is None:
                continue
            gone = {name for other, name in chosen if other == computation} & body.index.keys()
            numbers = {parameter_number(body.row(name)) for name in gone}
            rows = parameters_in_order(row for row in body.rows if name_of(row) not in gone)
            draft = draft.with_bodies({body.name: body.changed(rows)})
            draft = draft.with_rows(partial(_without_operands, computation, numbers))
        return draft


def _without_operands(
    callee: str, numbers: set[int], _: DraftComputation, row: InstructionRecord
) -> InstructionRecord:
    """A caller of a computation without some operands; other instructions as they are."""
    if "=" not in attributes_of(row) or callee not in called_names(attributes_of(row)):
        return row
    kept = [name for number, name in enumerate(references_of(row)) if number not in numbers]
    return with_operands(row, kept)


def parameters_in_order(rows: Iterable[InstructionRecord]) -> list[InstructionRecord]:
    """The instructions with their parameters numbered from 0, in the order of their numbers."""
    rows = list(rows)
    old = sorted(parameter_number(row) for row in rows if opcode_of(row) == "parameter")
    return [
        (*row[:4], str(old.index(parameter_number(row))), *row[5:])
        if opcode_of(row) == "parameter"
        else row
        for row in rows
    ]


def _callers(draft: Draft) -> dict[str, str]:
    """The opcode that calls each computation; empty text where several differ."""
    callers: dict[str, str] = {}
    for _, row in draft.places():
        if "=" not in attributes_of(row):
            continue
        for name in called_names(attributes_of(row)):
            same = callers.setdefault(name, opcode_of(row)) == opcode_of(row)
            callers[name] = opcode_of(row) if same else ""
    return callers


class DropLoopState(Transformation):
    """Elements of the tuple that a loop carries."""

    name = "drop loop state"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[Target]:
        return [
            (body.name, name_of(row), str(number))
            for body, row in draft.places()
            if opcode_of(row) == "while"
            for number in range(len(tuple_elements(type_of(row)) or ()))
        ]

    def apply(self, draft: Draft, chosen: Sequence[Target]) -> Draft | None:
        changed = None
        for place in dict.fromkeys(target[:2] for target in chosen):
            gone = {int(target[2]) for target in chosen if target[:2] == place}
            smaller = _without_state(changed or draft, place[0], place[1], gone)
            changed = smaller or changed
        return changed


def _without_state(draft: Draft, computation: str, name: str, gone: set[int]) -> Draft | None:
    """The draft with a loop that does not carry some elements; None where more than it reads them.

    Who reads an element that goes reads, in the loop, a constant, and after it, a value of zeros.
    """
    caller = draft.body(computation)
    if caller is None or name not in caller.index:
        return None
    loop = caller.row(name)
    values = attributes(attributes_of(loop))
    names = [values.get(key, "").lstrip("%") for key in ("condition", "body")]
    inner = [draft.body(callee) for callee in names]
    elements = tuple_elements(type_of(loop)) or ()
    if None in inner or len(gone) >= len(elements):
        return None
    shape = _tuple_without(type_of(loop), gone)
    changed: dict[str, DraftComputation | None] = {}
    places = {name_in(references_of(loop)[0]), name}
    start = _narrowed(caller, places, shape, gone, {name})
    if start is None:
        return None
    changed[computation] = start
    for body in inner:
        assert body is not None
        ends = {name_of(row) for row in body.parameters}
        is_body = body.name == names[1]
        made = _narrowed(body, ends | ({body.root} if is_body else set()), shape, gone, ends)
        if made is None:
            return None
        changed[body.name] = made
    return draft.with_bodies(changed)


def _narrowed(
    body: DraftComputation, places: set[str], shape: str, gone: set[int], carriers: set[str]
) -> DraftComputation | None:
    """A computation in which some values have a narrower tuple."""
    rows = []
    for row in body.rows:
        name, opcode, references = name_of(row), opcode_of(row), references_of(row)
        if name in places:
            if opcode == "tuple":
                kept = [name for number, name in enumerate(references) if number not in gone]
                row = record(name, shape, opcode, kept, attributes_of(row))
            elif opcode in ("parameter", "while"):
                row = (*row[:2], shape, *row[3:])
            else:
                return None
        elif any(name_in(reference) in carriers for reference in references):
            number = attributes(attributes_of(row)).get("index", "")
            if opcode != "get-tuple-element" or not number.isdecimal():
                return None
            if int(number) in gone:
                zero = constant_of(name, type_of(row))
                if zero is None:
                    return None
                row = zero
            else:
                index = int(number) - sum(removed < int(number) for removed in gone)
                row = record(name, type_of(row), opcode, references, f", index={index}")
        rows.append(row)
    return body.changed(rows)


def constant_of(name: str, shape: str) -> InstructionRecord | None:
    """A constant of zeros; None for what is not an array."""
    if shape.startswith(("(", "token", "opaque")) or "[" not in shape:
        return None
    dtype = shape.partition("[")[0]
    literal = {"pred": "false", "c64": "(0, 0)", "c128": "(0, 0)"}.get(dtype, "0")
    if not shape.partition("[")[2].startswith("]"):
        literal = "{...}"
    return record(name, shape, "constant", literal)


def _tuple_without(shape: str, gone: set[int]) -> str:
    elements = tuple_elements(shape) or ()
    return f"({', '.join(part for n, part in enumerate(elements) if n not in gone)})"


def _with(body: DraftComputation, changed: InstructionRecord) -> DraftComputation:
    return body.changed(changed if name_of(row) == name_of(changed) else row for row in body.rows)
