"""Who may read what is still running, and what an asynchronous computation may hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Final

from hlo_lint.analysis.layout_mismatches import name_in
from hlo_lint.analysis.verifier.calls import order_apart, passed_as_they_lie
from hlo_lint.analysis.verifier.scope import (
    Checks,
    RowChecks,
    Scope,
    Violation,
    operand_shape,
    producer,
    text_of,
)
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.records import opcode_of, references_of
from hlo_lint.hlo.shape import part

_DONE_OF: Final = {
    "all-reduce-start": "all-reduce-done",
    "all-gather-start": "all-gather-done",
    "collective-permute-start": "collective-permute-done",
    "copy-start": "copy-done",
    "send": "send-done",
    "recv": "recv-done",
}
_START_OF: Final = {done: start for start, done in _DONE_OF.items()}
_OF_TWO: Final = frozenset({*_DONE_OF, *_START_OF})
_HANDS_ON: Final = frozenset(
    "tuple get-tuple-element opt-barrier copy parameter while call conditional".split()
)
"""What may stand between a start and its done."""
_SHARDING: Final = frozenset(('"Sharding"', '"SPMDFullToShardShape"', '"SPMDShardToFullShape"'))


def _hands_on(instruction: Instruction) -> bool:
    if instruction.opcode in _HANDS_ON:
        return True
    return (
        instruction.opcode == "custom-call"
        and text_of(instruction, "custom_call_target") in _SHARDING
    )


def _consumers(scope: Scope) -> Iterable[Violation]:
    """A start of an opcode of its own is read by its done, or by what hands it on."""
    return () if _OF_TWO.isdisjoint(scope.opcodes) else _taken_by_others(scope)


def _taken_by_others(scope: Scope) -> Iterator[Violation]:
    for start_opcode, done in _DONE_OF.items():
        for start in scope.computation.with_opcode(start_opcode):
            for user in start.users:
                if user.opcode != done and not _hands_on(user):
                    message = f"{user.opcode} reads this {start_opcode}, which only {done} may"
                    yield Violation("M-20", start, message, notes=(f"read by %{user.name}",))
    for done, start_opcode in _START_OF.items():
        for instruction in scope.computation.with_opcode(done):
            yield from _taken(instruction, start_opcode)


def _taken(done: Instruction, start: str) -> Iterator[Violation]:
    made = producer(done)
    if made is not None and made.opcode != start and not _hands_on(made):
        message = f"{done.opcode} takes %{made.name}, which is {made.opcode} and no {start}"
        yield Violation("M-21", done, message, operand=0)


def _is_asynchronous(opcode: str, part: str) -> bool:
    """Whether an opcode is generic, or names what an async computation wraps."""
    return opcode.endswith(part) and opcode not in _DONE_OF and opcode not in _START_OF


def _flows(scope: Scope) -> Iterable[Violation]:
    if not _are_in_pairs(scope.opcodes):
        return ()
    return chain(_chains(scope.computation), _readers(scope.computation))


@lru_cache(maxsize=1 << 12)
def _are_in_pairs(opcodes: frozenset[str]) -> bool:
    return any(opcode.endswith(("-start", "-update", "-done")) for opcode in opcodes)


def _chains(computation: Computation) -> Iterator[Violation]:
    """From a start one chain of updates leads to a done, of one computation."""
    chains: dict[str, Instruction] = {}
    for number, row in enumerate(computation.rows):
        opcode = opcode_of(row)
        if not opcode.endswith(("-update", "-done")) or opcode in _START_OF:
            continue
        after = computation.at(number)
        if not references_of(row) and opcode.endswith("-update"):
            yield Violation("M-23", after, f"{opcode} has no operand")
        made = producer(after)
        if made is None:
            continue
        if _is_asynchronous(made.opcode, "-update") or _is_asynchronous(made.opcode, "-start"):
            yield from _same_computation(after, made)
            first = chains.setdefault(made.name, after)
            if first is not after and "-update" in (first.opcode + after.opcode):
                message = f"%{first.name} and %{after.name} both go on with %{made.name}"
                yield Violation("M-24", after, message, operand=0)


def _readers(computation: Computation) -> Iterator[Violation]:
    """The value of an async-start or -update is operand 0 of what goes on with it."""
    for number, row in enumerate(computation.rows):
        if not opcode_of(row).endswith(("-start", "-update")) or opcode_of(row) in _DONE_OF:
            continue
        begun = computation.at(number)
        for user in begun.users:
            places = [
                place
                for place, name in enumerate(user.operand_names)
                if name_in(name) == begun.name
            ]
            on = user.opcode.endswith(("-update", "-done")) and places == [0]
            if not on and not _hands_on(user):
                message = f"{user.opcode} reads this {begun.opcode} as operand {places[-1]}"
                yield Violation("M-22", begun, message, notes=(f"read by %{user.name}",))


def _same_computation(after: Instruction, before: Instruction) -> Iterator[Violation]:
    """A chain that names its computation names one."""
    ours, theirs = after.called_computations, before.called_computations
    if ours and theirs and ours != theirs:
        row = "S-96" if after.opcode.endswith("-done") else "S-95c"
        message = f"{after.opcode} calls %{ours[0]}, and what it goes on with calls %{theirs[0]}"
        yield Violation(row, after, message)


def _threads(scope: Scope, start: Instruction) -> Iterator[Violation]:
    (callee, *_) = scope.called(start) or (None,)
    if callee is None:
        return
    thread = (text_of(start, "async_execution_thread") or '"main"').strip('"')
    if thread != callee.thread:
        message = f"{start.opcode} runs on thread {thread}, and %{callee.name} on {callee.thread}"
        yield Violation("S-90", start, message)


def _wrapped(scope: Scope, start: Instruction) -> Iterator[Violation]:
    """Beside its parameters an asynchronous computation holds the one instruction it wraps."""
    (callee, *_) = scope.called(start) or (None,)
    if callee is None or callee.thread != "main" or "_collectives_group" in start.attributes_text:
        return
    if any(
        opcode_of(row) != "parameter" and number != _root(callee)
        for number, row in enumerate(callee.rows)
    ) and not _is_barrier(callee):
        others = sum(opcode_of(row) != "parameter" for row in callee.rows) - 1
        message = f"%{callee.name} holds {others} instructions beside its parameters and its root"
        yield Violation("M-40", start, message)


def _root(computation: Computation) -> int:
    return -1 if computation.root is None else computation.root.number


def _as_it_lies(scope: Scope, done: Instruction) -> Iterator[Violation]:
    """What a done gives lies as the start has made it."""
    begun, result = operand_shape(done, 0), done.shape_or_none
    if scope.demands.layouts and (apart := order_apart(result, part(begun, (1,)))):
        yield Violation("S-98", done, f"the result and what the start makes lie apart: {apart}")


def _is_barrier(computation: Computation) -> bool:
    silent = ("parameter", "tuple", "get-tuple-element", "opt-barrier", "bitcast")
    return all(opcode_of(row) in silent for row in computation.rows)


CHECKS: Checks = {
    "async-start": (_threads, _wrapped, passed_as_they_lie),
    "async-update": (_threads,),
    "async-done": (_threads, _as_it_lies),
}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = (_consumers, _flows)
OF_MODULES = ()
