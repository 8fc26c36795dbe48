"""The order of execution: operands first, and what waits for what on several devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    communicating,
    value_of,
    value_or_none,
)
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.records import attributes_of, name_of, references_of

_PAIRS: Final = "_xla_send_recv_source_target_pairs"
_predecessors = re.compile(r"control-predecessors=\{([^}]*)\}").search


def _in_order(scope: Scope) -> Iterator[Violation]:
    """In the order of the text, what is read stands above; XLA's own parser wants that, too."""
    computation = scope.computation
    waits = scope.header.is_scheduled and "control-predecessors=" in computation.text
    seen: set[str] = set()
    knows = seen.issuperset
    for number, row in enumerate(computation.rows):
        if not knows(references_of(row)):
            yield from _not_above(computation, number, seen)
        if waits:
            found = _predecessors(attributes_of(row))
            for name in found[1].replace("%", "").split(",") if found else ():
                if name.strip() in computation.index and name.strip() not in seen:
                    message = f"%{name.strip()} has to run before this, and stands below it"
                    yield Violation("M-60c", computation.at(number), message)
        seen.add(name_of(row))


def _not_above(computation: Computation, number: int, seen: set[str]) -> Iterator[Violation]:
    references = references_of(computation.rows[number])
    for place, reference in enumerate(references):
        name = reference.partition("#")[0]
        if name in computation.index:
            if name not in seen:
                message = f"%{name} stands below what reads it"
                yield Violation("M-60", computation.at(number), message, operand=place)
        elif name:
            message = f"%{name} is not in this computation"
            yield Violation("M-12", computation.at(number), message, operand=place)


def _pairs_of(instruction: Instruction) -> tuple[tuple[int, int], ...]:
    if _PAIRS not in instruction.attributes_text:
        return ()
    attributes = value_of(instruction, "frontend_attributes")
    text = attributes.get(_PAIRS) if isinstance(attributes, dict) else None
    value = value_or_none("source_target_pairs", text.strip('"')) if isinstance(text, str) else None
    if not isinstance(value, tuple):
        return ()
    return tuple((each[0], each[1]) for each in value if isinstance(each, tuple) and len(each) == 2)


def _deadlocks(scope: Scope) -> Iterable[Violation]:
    """While a send waits for its recv, no other collective may begin (M-30 to M-33)."""
    return _waiting(scope) if scope.header.is_scheduled and communicating(scope.computation) else ()


def _waiting(scope: Scope) -> Iterator[Violation]:
    pending: Instruction | None = None
    for each in communicating(scope.computation):
        if each.opcode not in ("send", "recv"):
            if pending is not None and not each.opcode.endswith("-done"):
                message = (
                    f"{each.opcode} begins while {pending.opcode} %{pending.name} has no match"
                )
                row = "3.5-8" if _unseen(each) else "M-32"
                yield Violation(row, each, message)
            continue
        pairs = _pairs_of(each)
        if not pairs:
            pending = None
            if "is_host_transfer=true" not in each.attributes_text:
                return  # nothing says who talks to whom
            continue
        if _has_cycle(pairs) or len({a for a, _ in pairs}) < len(pairs):
            message = f"the pairs of {each.opcode} lead back to where they begin, or meet twice"
            yield Violation("M-30", each, message)
        if pending is None:
            pending = each
        elif pending.opcode == each.opcode:
            wanted = "recv" if each.opcode == "send" else "send"
            yield Violation(
                "M-31", each, f"{wanted} has to follow {pending.opcode} %{pending.name}"
            )
            pending = each
        else:
            pending = None
    if pending is not None:
        yield Violation(
            "M-33", pending, f"nothing matches this {pending.opcode}: its devices wait for ever"
        )


def _unseen(collective: Instruction) -> bool:
    """What XLA's own search passes over: it takes what calls a computation for a call."""
    return collective.opcode.startswith(("all-reduce", "reduce-scatter")) or (
        collective.opcode.endswith("-start")
    )


def _has_cycle(pairs: tuple[tuple[int, int], ...]) -> bool:
    after = dict(pairs)
    for begin in after:
        at = after[begin]
        for _ in pairs:
            if at == begin:
                return True
            if at not in after:
                break
            at = after[at]
    return False


CHECKS: Checks = {}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = (_in_order, _deadlocks)
OF_MODULES = ()
