"""Cut a large module down to the neighbourhood of an instruction, as the first step."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from hlo_lint.analysis.walks import reached
from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction, called_from
from hlo_lint.engine.reduce.transformations.base import Anchor, ReductionTarget, Transformation

_DEPTHS = ((0, 0), (1, 0), (1, 1), (2, 1), (4, 1), (8, 2), (16, 4))
"""Steps to follow from the instruction, to operands and to users."""


class KeepSlice(Transformation):
    """Keep the neighbourhood of the instruction as entry; distant operands become parameters."""

    name = "keep a slice"
    alternatives = True

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        if anchor is None:
            return ()
        return [(*anchor, *depths) for depths in _DEPTHS]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        ((computation, name, up, down),) = chosen
        body = draft.body(computation)
        if body is None or name not in body.index:
            return None
        below = _users(body, name, down)
        kept = _operands(body, {name, *below}, up)
        if len(kept) == len(body.rows) and body.is_entry:
            return None
        return _entry_alone(draft, body, kept, below or {name})


def _operands(body: DraftComputation, names: set[str], depth: int) -> set[str]:
    kept, layer = set(names), set(names)
    for _ in range(depth + 1):
        layer = {read for name in layer for read in body.row(name).reads} - kept
        layer &= body.index.keys()
        kept |= layer
    return kept


def _users(body: DraftComputation, name: str, depth: int) -> set[str]:
    """The users of an instruction, and their users, to a given depth."""
    below: set[str] = set()
    layer = {name}
    for _ in range(depth):
        layer = {row.name for row in body.rows if not layer.isdisjoint(row.reads)}
        below |= layer
    return below


def _parameters_for(
    rows: Iterable[DraftInstruction], chosen: Collection[str]
) -> list[DraftInstruction]:
    """The instructions with `chosen` turned into parameters, and all parameters renumbered."""
    changed, number = [], 0
    for row in rows:
        if row.opcode == "parameter" or row.name in chosen:
            row = DraftInstruction(row.name, row.type_text, "parameter", str(number))
            number += 1
        changed.append(row)
    return changed


def _entry_alone(draft: Draft, body: DraftComputation, kept: set[str], below: set[str]) -> Draft:
    """The kept instructions as the entry, with the computations that they call.

    Instructions whose operands are not kept become parameters; unread instructions are returned.
    """
    complete = {name for name in kept if kept.issuperset(body.row(name).reads)}
    gone = body.index.keys() - kept
    rows = _parameters_for(
        [row.without_predecessors(gone) for row in body.rows if row.name in kept], kept - complete
    )
    read = {name for row in rows for name in (*row.reads, *row.predecessors)}
    ends = [row.name for row in rows if row.name not in read]
    wanted = [name for name in ends if name in below] or ends or sorted(below)  # or a cycle
    root = wanted[0]
    if len(ends) > 1:
        shapes = ", ".join(row.type_text for row in rows if row.name in ends)
        root = "results"
        rows.append(DraftInstruction.of(root, f"({shapes})", "tuple", ends))
    entry = DraftComputation(body.name, tuple(rows), root, True)
    needed = set(reached(entry.called(), lambda name: called_from(draft, name)))
    bodies = [
        replace(callee, is_entry=False)
        for callee in draft.bodies
        if callee is not body and callee.name in needed
    ]
    header = {
        name: value
        for name, value in draft.header.items()
        if name in ("is_scheduled", "num_partitions", "replica_count")
    }
    return Draft(draft.name, header, (*bodies, entry), draft.comments)


class DropComputations(Transformation):
    """Drop computations that are not called."""

    name = "drop computations"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        called = {name for body in draft.bodies for name in body.called()}
        return [
            (body.name,) for body in draft.bodies if not body.is_entry and body.name not in called
        ]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        return draft.with_bodies({name: None for (name,) in chosen})


class PromoteComputation(Transformation):
    """Make a called computation the entry of the module."""

    name = "promote a computation"
    alternatives = True

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        return [
            (body.name,)
            for body in draft.bodies
            if not body.is_entry and any(row.type_text.find("[]") < 0 for row in body.rows)
        ]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        ((computation,),) = chosen
        body = draft.body(computation)
        assert body is not None
        return _entry_alone(draft, body, set(body.index), {body.root})


class MoveRoot(Transformation):
    """Make an instruction of the entry computation its root, which drops later instructions."""

    name = "move the root"
    alternatives = True

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        entry = draft.entry
        names = [row.name for row in entry.rows if row.opcode not in ("parameter", "constant")]
        operands = entry.row(entry.root).reads
        targets, stride = [], len(names) // 2
        while stride > 4:
            targets += names[stride - 1 :: stride]
            stride //= 2
        targets += [name for name in operands if name in entry.index]
        targets += [name for name in names if not entry.users[name]]
        return [(name,) for name in dict.fromkeys(targets) if name != entry.root]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        ((name,),) = chosen
        entry = draft.entry
        return draft.with_bodies({entry.name: replace(entry, root=name)})
