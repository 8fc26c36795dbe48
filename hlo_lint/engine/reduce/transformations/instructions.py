"""Drop dead instructions; replace others by an operand, a constant or their callee."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.rewrite import fresh_name
from hlo_lint.analysis.walks import operands_first, reached
from hlo_lint.engine.reduce.draft import (
    Draft,
    DraftComputation,
    DraftInstruction,
    called_from,
    renamed,
)
from hlo_lint.engine.reduce.transformations.base import (
    Anchor,
    InstructionReplacement,
    InstructionTransformation,
    ReductionTarget,
    Transformation,
)
from hlo_lint.engine.reduce.transformations.parameters import zero_constant
from hlo_lint.hlo.shape import ArrayShape, shape_or_none


class DropUnread(InstructionTransformation):
    """Drop unread instructions, even those with a side effect."""

    name = "drop unread instructions"

    def is_target(self, body: DraftComputation, row: DraftInstruction) -> bool:
        is_unread = not body.users[row.name] and row.name != body.root
        return is_unread and (body.is_entry or row.opcode != "parameter")

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        gone = set(chosen)
        bodies = {
            body.name: body.changed(row for row in body.rows if (body.name, row.name) not in gone)
            for body in draft.bodies
            if any(computation == body.name for computation, _ in gone)
        }
        return draft.with_bodies(bodies)


class _Forward(InstructionTransformation):
    """Replace an instruction by another value in all its readers."""

    @abstractmethod
    def source(self, body: DraftComputation, row: DraftInstruction) -> str | None:
        """The reference to read instead; None for an instruction that is not a target."""

    def is_target(self, body: DraftComputation, row: DraftInstruction) -> bool:
        return self.source(body, row) is not None

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        bodies: dict[str, DraftComputation | None] = {}
        for body in draft.bodies:
            names = [name for computation, name in chosen if computation == body.name]
            sources = {name: self.source(body, body.row(name)) for name in names}
            instead = {name: source for name, source in sources.items() if source}
            if instead:
                bodies[body.name] = _redirected(body, instead)
        return draft.with_bodies(bodies) if bodies else None


class ForwardOperand(_Forward):
    """Replace an instruction by an operand with the same shape."""

    name = "read operands instead"

    def source(self, body: DraftComputation, row: DraftInstruction) -> str | None:
        for reference in row.references:
            number = body.index.get(reference)
            if number is not None and _is_alike(body.rows[number].type_text, row.type_text):
                return reference
        return None


class ForwardElement(_Forward):
    """Replace an element of a tuple by the operand of that tuple."""

    name = "read elements instead"

    def source(self, body: DraftComputation, row: DraftInstruction) -> str | None:
        producer = body.index.get(row.references[0]) if row.references else None
        if producer is None or row.element is None or body.rows[producer].opcode != "tuple":
            return None
        return dict(enumerate(body.rows[producer].references)).get(row.element)


def _redirected(body: DraftComputation, instead: dict[str, str]) -> DraftComputation:
    """A computation whose readers of some instructions read `instead` of them."""

    def final(reference: str) -> str:
        name, hash_sign, element = reference.partition("#")
        seen = {name}
        while name in instead and instead[name] not in seen:  # a broken graph may have a cycle
            name = instead[name]
            seen.add(name)
        return f"{name}{hash_sign}{element}"

    rows = []
    for row in body.rows:
        is_changed = not instead.keys().isdisjoint(row.reads)
        rows.append(row.with_operands(map(final, row.references)) if is_changed else row)
    return body.changed(rows, final(body.root))


def _is_alike(left: str, right: str) -> bool:
    """True if two shapes are equal except for the layout."""
    if left == right:
        return True
    first, second = shape_or_none(left), shape_or_none(right)
    if not isinstance(first, ArrayShape) or not isinstance(second, ArrayShape):
        return False
    return first.with_layout(None) == second.with_layout(None)


class ZeroOut(InstructionReplacement):
    """Turn instructions of called computations, which cannot become parameters, into constants."""

    name = "turn instructions into constants"
    sweeps = False  # the instructions that it no longer reads may be the problem

    def is_target(self, body: DraftComputation, row: DraftInstruction) -> bool:
        is_made = not body.is_entry and row.opcode not in ("parameter", "constant")
        return is_made and zero_constant("", row.type_text) is not None

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        return [place for place in super().targets(draft, anchor) if place != anchor]

    def changed(self, row: DraftInstruction) -> DraftInstruction:
        return zero_constant(row.name, row.type_text) or row


MAX_MERGED = 64
"""The most instructions of an entry computation that are merged: there are too many pairs."""


class MergeValues(Transformation):
    """Replace a value of the entry computation by another value with the same shape."""

    name = "merge values"
    alternatives = True

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        entry = draft.entry
        if len(entry.rows) > MAX_MERGED:
            return ()
        below = _readers(entry)
        by_shape = by_key((row.type_text, row.name) for row in entry.rows)
        return [
            (name, replacement)
            for names in by_shape.values()
            for name in names
            for replacement in names
            # To read a value that depends on this one would be a cycle.
            if name not in (replacement, entry.root, anchor and anchor[1])
            and replacement not in below[name]
        ]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        entry = draft.entry
        ((name, replacement),) = chosen
        return draft.with_bodies({entry.name: _sorted(_redirected(entry, {name: replacement}))})


def _readers(body: DraftComputation) -> dict[str, set[str]]:
    """The instructions that depend on each instruction."""
    below: dict[str, set[str]] = {name: set() for name in body.index}
    for row in reversed(body.rows):
        for name in body.awaited(row.name):
            below[name] |= {row.name} | below[row.name]
    return below


def _sorted(body: DraftComputation) -> DraftComputation:
    """The computation with each instruction after its operands, else in the order of the text."""
    return body.changed(map(body.row, operands_first(body.index, body.awaited)))


_INLINED = {"call": "to_apply", "fusion": "calls", "while": "body"}
"""Opcodes whose callee may replace them, and the attribute that names it."""


class InlineCallee(InstructionTransformation):
    """Inline calls, fusions, and a single iteration of a loop."""

    name = "inline computations"

    def is_target(self, body: DraftComputation, row: DraftInstruction) -> bool:
        return row.opcode in _INLINED

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        taken = draft.names()
        bodies: dict[str, DraftComputation | None] = {}
        for computation, name in chosen:
            body = bodies.get(computation) or draft.body(computation)
            if body is None or name not in body.index:
                continue
            row = body.row(name)
            attribute = row.attributes.get(_INLINED.get(row.opcode, ""), "")
            callee = draft.body(attribute.lstrip("%"))
            if callee is not None and computation not in set(
                reached([callee.name], lambda name: called_from(draft, name))
            ):
                bodies[computation] = inlined(body, row, callee, taken)
        return draft.with_bodies(bodies) if bodies else None


def inlined(
    body: DraftComputation, call: DraftInstruction, callee: DraftComputation, taken: set[str]
) -> DraftComputation:
    """A computation with the instructions of a callee in place of its call."""
    names = {}
    for row in callee.rows:
        number = row.parameter_number if row.opcode == "parameter" else -1
        if 0 <= number < len(call.references):
            names[row.name] = call.references[number]
        else:
            names[row.name] = fresh_name(row.name, taken)
            taken.add(names[row.name])
    rows: list[DraftInstruction] = []
    for row in body.rows:
        if row is not call:
            rows.append(row)
            continue
        for inner in callee.rows:
            if inner.opcode == "parameter":
                continue
            # Its control predecessors have other names here, and may be parameters.
            copied = inner.without_predecessors(inner.predecessors)
            if copied.references:
                copied = copied.with_operands(renamed(read, names) for read in copied.references)
            rows.append(copied._replace(name=names[inner.name]))
    return _redirected(body.changed(rows), {call.name: names[callee.root]})
