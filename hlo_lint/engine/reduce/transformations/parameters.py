"""Transformations of what a computation takes or gives: parameters, results, loop state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from hlo_lint.engine.reduce.draft import (
    Draft,
    DraftComputation,
    DraftInstruction,
    parameters_in_order,
)
from hlo_lint.engine.reduce.transformations.base import Anchor, ReductionTarget, Transformation
from hlo_lint.hlo.dtypes import zero_literal
from hlo_lint.hlo.parser.tokens import tuple_elements


class CutOperands(Transformation):
    """Turn instructions of the entry computation into parameters, which drops their operands."""

    name = "turn operands into parameters"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        entry = draft.entry
        kept = {entry.root, anchor[1] if anchor else ""}
        return [
            (row.name,) for row in entry.rows if row.opcode != "parameter" and row.name not in kept
        ]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        entry = draft.entry
        cut = [entry.row(name) for (name,) in sorted(chosen)]
        if not all(row.type_text for row in cut):
            return None
        for number, row in enumerate(cut, len(entry.parameters)):
            entry = entry.with_row(
                DraftInstruction(row.name, row.type_text, "parameter", str(number))
            )
        return draft.with_bodies({entry.name: entry})


class DropOutputs(Transformation):
    """Drop elements of the tuple that the entry computation returns."""

    name = "drop outputs"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        root = draft.entry.row(draft.entry.root)
        if root.opcode != "tuple":
            return ()
        return [(number,) for number in range(len(root.references))]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        entry = draft.entry
        root = entry.row(entry.root)
        gone = {number for (number,) in chosen}
        kept = [name for number, name in enumerate(root.references) if number not in gone]
        if not kept:
            return None
        if len(kept) == 1 and "#" not in kept[0]:
            return draft.with_bodies({entry.name: entry.changed(entry.rows, kept[0])})
        shape = _tuple_without(root.type_text, gone)
        changed = root._replace(type_text=shape).with_operands(kept)
        return draft.with_bodies({entry.name: entry.with_row(changed)})


class DropCalleeParameters(Transformation):
    """Drop unread parameters of computations called by fusions and calls."""

    name = "drop unread parameters"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        callers = _callers(draft)
        return [
            (body.name, row.name)
            for body in draft.bodies
            if not body.is_entry and callers.get(body.name) in ("fusion", "call")
            for row in body.parameters
            if not body.users[row.name] and row.name != body.root
        ]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        for computation in {computation for computation, _ in chosen}:
            body = draft.body(computation)
            assert body is not None
            gone = {name for owner, name in chosen if owner == computation}
            numbers = {body.row(name).parameter_number for name in gone}
            rows = parameters_in_order(row for row in body.rows if row.name not in gone)
            draft = draft.with_bodies({body.name: body.changed(rows)})
            draft = draft.with_rows(partial(_without_operands, computation, numbers))
        return draft


def _without_operands(
    callee: str, numbers: set[int], _: DraftComputation, row: DraftInstruction
) -> DraftInstruction:
    """A caller of a computation without some operands, or any other instruction unchanged."""
    if callee not in row.callees:
        return row
    return row.with_operands(
        name for number, name in enumerate(row.references) if number not in numbers
    )


def _callers(draft: Draft) -> dict[str, str]:
    """The opcode that calls each computation; empty where callers differ."""
    callers: dict[str, str] = {}
    for _, row in draft.places():
        for name in row.callees:
            same = callers.setdefault(name, row.opcode) == row.opcode
            callers[name] = row.opcode if same else ""
    return callers


class DropLoopState(Transformation):
    """Drop elements of the tuple that a loop carries."""

    name = "drop loop state"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        return [
            (body.name, row.name, number)
            for body, row in draft.places()
            if row.opcode == "while"
            for number in range(len(tuple_elements(row.type_text) or ()))
        ]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        changed = None
        for computation, name in dict.fromkeys(target[:2] for target in chosen):
            gone = {target[2] for target in chosen if target[:2] == (computation, name)}
            smaller = _without_state(changed or draft, computation, name, gone)
            changed = smaller or changed
        return changed


def _without_state(draft: Draft, computation: str, name: str, gone: set[int]) -> Draft | None:
    """The draft with some elements dropped from a loop's state; None if other instructions use it.

    Reads of a dropped element become constants of zeros, in the loop and after it.
    """
    caller = draft.body(computation)
    if caller is None or name not in caller.index:
        return None
    loop = caller.row(name)
    names = [loop.attributes.get(key, "").lstrip("%") for key in ("condition", "body")]
    inner = [draft.body(callee) for callee in names]
    elements = tuple_elements(loop.type_text) or ()
    if None in inner or len(gone) >= len(elements):
        return None
    shape = _tuple_without(loop.type_text, gone)
    changed: dict[str, DraftComputation | None] = {}
    places = {loop.reads[0], name}
    start = _narrowed(caller, places, shape, gone, {name})
    if start is None:
        return None
    changed[computation] = start
    for body in inner:
        assert body is not None
        ends = {row.name for row in body.parameters}
        is_body = body.name == names[1]
        narrowed = _narrowed(body, ends | ({body.root} if is_body else set()), shape, gone, ends)
        if narrowed is None:
            return None
        changed[body.name] = narrowed
    return draft.with_bodies(changed)


def _narrowed(
    body: DraftComputation, places: set[str], shape: str, gone: set[int], carriers: set[str]
) -> DraftComputation | None:
    """A computation whose tuples at `places` lack some elements; None if that is impossible."""
    rows = []
    for row in body.rows:
        changed: DraftInstruction | None = row
        if row.name in places:
            changed = row._replace(type_text=shape)
            if row.opcode == "tuple":
                kept = [
                    name for position, name in enumerate(row.references) if position not in gone
                ]
                changed = changed.with_operands(kept)
            elif row.opcode not in ("parameter", "while"):
                return None
        elif not carriers.isdisjoint(row.reads):
            number = row.element
            if number is None:
                return None
            if number in gone:
                changed = zero_constant(row.name, row.type_text)
            else:
                index = number - sum(removed < number for removed in gone)
                changed = row._replace(attributes_text=f", index={index}")
        if changed is None:
            return None
        rows.append(changed)
    return body.changed(rows)


def zero_constant(name: str, shape: str) -> DraftInstruction | None:
    """A constant of zeros; None for shapes other than arrays."""
    if shape.startswith(("(", "token", "opaque")) or "[" not in shape:
        return None
    dtype = shape.partition("[")[0]
    literal = zero_literal(dtype)
    if not shape.partition("[")[2].startswith("]"):
        literal = "{...}"
    return DraftInstruction(name, shape, "constant", literal)


def _tuple_without(shape: str, gone: set[int]) -> str:
    elements = tuple_elements(shape) or ()
    return f"({', '.join(part for n, part in enumerate(elements) if n not in gone)})"
