"""Regions with special emitters, checked against the emitters' constraints."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from hlo_lint.analysis.callees import EmittedRegion
from hlo_lint.analysis.calls import callees_of, instructions_of
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import TupleShape

_READS = frozenset({"bitcast", "constant", "get-tuple-element", "parameter", "tuple"})
_MOVES = frozenset({"dynamic-slice", "dynamic-update-slice"})
_STARTED = "fusion-start"


def misused(region: EmittedRegion, module: Module) -> Iterator[tuple[Instruction, str]]:
    """The instructions whose region violates its emitter's constraints, with the reason."""
    for runner in instructions_of(module, region.opcode):
        words = region.spells
        if not words or any(word in runner.attributes_text for word in words):
            held = _held(region, runner, module)
            if held is not None:
                reason = f"holds the {held.opcode} %{held.name}: {region.why}"
                yield runner, f"{region.name} {reason}"


def _held(region: EmittedRegion, runner: Instruction, module: Module) -> Instruction | None:
    called = filter(None, map(module.computation, runner.called_computations))
    for computation in reached(called, partial(callees_of, module)):
        opcodes = {opcode.removesuffix("-start") for opcode in computation.opcodes}
        moves = region.moves and _STARTED in computation.opcodes
        if opcodes.isdisjoint((*region.holds_no, *region.tuples)) and not moves:
            continue
        for inside in computation.instructions:
            opcode = inside.opcode.removesuffix("-start")
            if opcode in region.holds_no:
                return inside
            if opcode in region.tuples and isinstance(inside.shape_or_none, TupleShape):
                return inside
            if inside.opcode == _STARTED and region.moves and _only_moves(inside, module):
                return inside
    return None


def _only_moves(fusion: Instruction, module: Module) -> bool:
    """True for a fusion of a dynamic-slice or a dynamic-update-slice, which is a copy of bytes."""
    body = module.callee(fusion)
    return body is not None and len(body.opcodes & _MOVES) == 1 and body.opcodes <= _READS | _MOVES
