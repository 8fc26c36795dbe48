"""Cuts a module down to the neighbourhood of one instruction, as the first step for a large one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from hlo_lint.analysis.walks import reached
from hlo_lint.engine.reduce.draft import Draft, DraftComputation, DraftInstruction, called_from
from hlo_lint.engine.reduce.transformations.base import Anchor, ReductionTarget, Transformation

_DEPTHS = ((0, 0), (1, 0), (1, 1), (2, 1), (4, 1), (8, 2), (16, 4))
"""Steps to follow from the instruction, to operands and to users."""


class KeepSlice(Transformation):
    """The computation of the instruction alone, as entry: what is further away is a parameter."""

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
    """The instructions with some of them parameters; all parameters are numbered anew."""
    changed, number = [], 0
    for row in rows:
        if row.opcode == "parameter" or row.name in chosen:
            row = DraftInstruction(row.name, row.type_text, "parameter", str(number))
            number += 1
        changed.append(row)
    return changed


def _entry_alone(draft: Draft, body: DraftComputation, kept: set[str], below: set[str]) -> Draft:
    """The kept instructions as the only computation that nothing calls.

    Those whose operands are not kept become parameters; what nobody reads is what it returns.
    """
    complete = {name for name in kept if kept.issuperset(body.row(name).reads)}
    gone = body.index.keys() - kept
    rows = _parameters_for(
        [row.without_predecessors(gone) for row in body.rows if row.name in kept],
        kept - complete,
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
    others = [replace(other, is_entry=False) for other in draft.bodies if other is not body]
    bodies = [other for other in others if other.name in needed]
    header = {
        name: value
        for name, value in draft.header.items()
        if name in ("is_scheduled", "num_partitions", "replica_count")
    }
    return Draft(draft.name, header, (*bodies, entry), draft.comments, keeps_entry_layout=False)


class DropComputations(Transformation):
    """Computations that nothing calls."""

    name = "drop computations"

    def targets(self, draft: Draft, anchor: Anchor | None) -> Sequence[ReductionTarget]:
        called = {name for body in draft.bodies for name in body.called()}
        return [
            (body.name,) for body in draft.bodies if not body.is_entry and body.name not in called
        ]

    def apply(self, draft: Draft, chosen: Sequence[ReductionTarget]) -> Draft | None:
        return draft.with_bodies({name: None for (name,) in chosen})


class PromoteComputation(Transformation):
    """A computation that is called as the entry of the module, alone."""

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
    """An instruction of the entry computation as its root: what comes after it goes."""

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
