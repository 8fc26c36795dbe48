"""Channels: who sends, and who receives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from hlo_lint.analysis.verifier.scope import (
    Checks,
    Demands,
    RowChecks,
    Scope,
    Violation,
    all_communicating,
    integer_of,
    text_of,
)
from hlo_lint.hlo.ir import Computation, Instruction, Module

_TRANSFERS: Final = frozenset({"send", "recv"})


def _pair(scope: Scope) -> Iterable[Violation]:
    """A send or recv and its done have one channel, and both or neither talk to the host."""
    return () if _TRANSFERS.isdisjoint(scope.opcodes) else _pairs(scope)


def _pairs(scope: Scope) -> Iterator[Violation]:
    for opcode in ("send", "recv"):
        for start in scope.computation.with_opcode(opcode):
            channel = integer_of(start, "channel_id")
            if channel is None:
                continue
            users = start.users
            if len(users) != 1 and not start.is_root:
                message = f"one instruction takes this {opcode}, and not {len(users)}"
                yield Violation("M-43", start, message)
            for done in users:
                if done.opcode == f"{opcode}-done":
                    yield from _agree(start, done, channel)


def _agree(start: Instruction, done: Instruction, channel: int) -> Iterator[Violation]:
    theirs = integer_of(done, "channel_id")
    if theirs is not None and theirs != channel:
        message = f"{done.opcode} names channel {theirs}, and its {start.opcode} channel {channel}"
        yield Violation("M-43", done, message, operand=0)
    hosts = [text_of(each, "is_host_transfer") == "true" for each in (start, done)]
    if hosts[0] != hosts[1]:
        message = f"one of {start.opcode} and {done.opcode} has is_host_transfer=true, not both"
        yield Violation("M-43", done, message, operand=0)


def _of_module(
    module: Module, demands: Demands, by_name: Mapping[str, Computation]
) -> Iterator[Violation]:
    """Transfers to the host that share a channel are the same."""
    hosts: dict[tuple[str, int], Instruction] = {}
    for each in all_communicating(module):
        if (
            each.opcode not in ("send", "recv")
            or "is_host_transfer=true" not in each.attributes_text
        ):
            continue
        channel = integer_of(each, "channel_id")
        if channel is None:
            continue
        same = hosts.setdefault((each.opcode, channel), each)
        if _face(same) != _face(each):
            message = f"this {each.opcode} to the host shares channel {channel} with "
            yield Violation("M-44", each, f"{message}%{same.name}, and is another")


def _face(instruction: Instruction) -> tuple[object, ...]:
    attributes = instruction.attributes
    attributes.pop("metadata", None)
    attributes.pop("control-predecessors", None)
    return instruction.opcode, instruction.type_text, tuple(attributes.items())


CHECKS: Checks = {}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = (_pair,)
OF_MODULES = (_of_module,)
