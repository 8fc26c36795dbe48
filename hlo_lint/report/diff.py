"""A difference as lines or as JSON: `-` is removed, `+` is new, `~` is changed, `>` is moved."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from hlo_lint.analysis.diff.difference import Change, ComputationDifference, Difference
from hlo_lint.analysis.diff.normalize import without_origin
from hlo_lint.engine.diagnose import origin_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.text.edits import first_difference
from hlo_lint.text.phrases import counted, shortened
from hlo_lint.text.source import shown

WIDTH: Final = 140
"""Maximum number of characters shown of an instruction or a value."""
SHOWN: Final = 20
"""Maximum number of lines shown of each computation, without `--all`."""

MarkedLine = tuple[str, str]
"""A line with its mark: `-`, `+`, `~`, `>`, or nothing."""


def difference_lines(difference: Difference, *, limit: int | None = SHOWN) -> Iterator[MarkedLine]:
    """The lines, at most `limit` for each computation, and a summary."""
    for change in difference.header:
        yield "~", f"~ header: {_change(change)}"
    for computation in difference.computations:
        yield "", heading(computation)
        lines = list(_lines(computation, difference))
        kept = lines if limit is None else lines[:limit]
        yield from kept
        if len(kept) < len(lines):
            yield "", f"  … and {len(lines) - len(kept)} more"
    yield "", difference_summary(difference)


def difference_summary(difference: Difference) -> str:
    """A line such as `1 removed, 2 added, 3 changed in 2 computations`."""
    if difference.same:
        return "no structural difference"
    counts = [f"{count} {name}" for name, count in difference.counts.items() if count]
    if difference.header:
        counts.insert(0, f"{len(difference.header)} in the header")
    number = len(difference.computations)
    where = f" in {counted(number, 'computation')}" if number else ""
    return (", ".join(counts) or "different") + where


def heading(computation: ComputationDifference) -> str:
    """A line with the name of the computation, and whether it was added or removed."""
    if computation.before is None or computation.after is None:
        side = "added" if computation.before is None else "removed"
        number = counted(computation.instructions, "instruction")
        return f"computation %{shown(computation.name)}: {side}, {number}"
    title = "entry" if computation.after.is_entry else "computation"
    return f"{title} {_named(computation.name, computation.before.name)}"


def _named(name: str, before: str) -> str:
    """The name, with a former name in the form `%add.2 (was %add)`."""
    return shown(f"%{name}" if name == before else f"%{name} (was %{before})")


def _lines(computation: ComputationDifference, difference: Difference) -> Iterator[MarkedLine]:
    for change in computation.itself:
        yield "~", f"  ~ {_change(change)}"
    for instruction in computation.removed:
        yield "-", f"  - {_instruction(instruction, difference.before)}"
    for instruction in computation.added:
        yield "+", f"  + {_instruction(instruction, difference.after)}"
    for changed in computation.changed:
        changes = "; ".join(map(_change, changed.changes))
        place = _origin(changed.after, difference.after)
        yield "~", f"  ~ {_pair(changed.before, changed.after)}: {changes}{place}"
    for before, after in computation.moved:
        place = _origin(after, difference.after)
        yield ">", f"  > {_pair(before, after)} is scheduled elsewhere{place}"


def _pair(before: Instruction, after: Instruction) -> str:
    return f"{_named(after.name, before.name)} {after.opcode}"


def _instruction(instruction: Instruction, module: Module) -> str:
    return _cut(without_origin(instruction)) + _origin(instruction, module)


def _origin(instruction: Instruction, module: Module) -> str:
    origin = origin_of(instruction, module)
    return f"  [{shown(str(origin))}]" if origin is not None else ""


def _change(change: Change) -> str:
    if change.before is None:
        return f"{change.what} {_cut(str(change.after))} is new"
    if change.after is None:
        return f"{change.what} {_cut(change.before)} is gone"
    before, after = _differing(_flat(change.before), _flat(change.after))
    return f"{change.what} {before} -> {after}"


def _differing(before: str, after: str) -> tuple[str, str]:
    """Both texts, long texts cut to begin shortly before the first difference."""
    if max(len(before), len(after)) <= WIDTH:
        return before, after
    begin = max(0, first_difference(before, after) - WIDTH // 4)
    lead = "…" if begin else ""
    return lead + _cut(before[begin:]), lead + _cut(after[begin:])


def _cut(text: str) -> str:
    return shortened(_flat(text), WIDTH)


def _flat(text: str) -> str:
    return shown(re.sub(r"\s+", " ", text))


def difference_as_dict(difference: Difference) -> dict[str, Any]:
    """The whole difference as JSON values, uncut."""
    return {
        "same": difference.same,
        "counts": difference.counts,
        "header": [asdict(change) for change in difference.header],
        "computations": [
            _computation_dict(computation, difference) for computation in difference.computations
        ],
    }


def _computation_dict(computation: ComputationDifference, difference: Difference) -> dict[str, Any]:
    return {
        "before": computation.before and computation.before.name,
        "after": computation.after and computation.after.name,
        "instructions": computation.instructions,
        "itself": [asdict(change) for change in computation.itself],
        "removed": [_instruction_dict(gone, difference.before) for gone in computation.removed],
        "added": [_instruction_dict(new, difference.after) for new in computation.added],
        "changed": [
            {
                "before": changed.before.name,
                "after": changed.after.name,
                "opcode": changed.after.opcode,
                "changes": [asdict(change) for change in changed.changes],
                "origin": _origin_dict(changed.after, difference.after),
            }
            for changed in computation.changed
        ],
        "moved": [{"before": old.name, "after": new.name} for old, new in computation.moved],
    }


def _instruction_dict(instruction: Instruction, module: Module) -> dict[str, Any]:
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "shape": instruction.type_text,
        "text": instruction.text,
        "origin": _origin_dict(instruction, module),
    }


def _origin_dict(instruction: Instruction, module: Module) -> dict[str, Any] | None:
    origin = origin_of(instruction, module)
    return None if origin is None else asdict(origin)
