"""Regions with special emitters, checked against the emitters' constraints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from hlo_lint.analysis.callees import EmittedRegion
from hlo_lint.analysis.calls import callees_of, instructions_of
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
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
    for computation in _run_by(runner, module):
        moves = region.moves and _STARTED in computation.opcodes
        if computation.opcodes.isdisjoint(region.refused | region.refused_tuples) and not moves:
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


def _run_by(runner: Instruction, module: Module) -> Sequence[Computation]:
    """The computations that an instruction runs, and their callees."""
    names, known = runner.called_computations, _known_runs(module)
    if names not in known:
        called = filter(None, map(module.computation, names))
        known[names] = list(reached(called, partial(callees_of, module)))
    return known[names]


@cached_analysis
def _known_runs(module: Module) -> dict[tuple[str, ...], Sequence[Computation]]:
    """The computations that instructions of a module run, by the names of their callees."""
    return {}


def _only_moves(fusion: Instruction, module: Module) -> bool:
    """True for a fusion of a dynamic-slice or a dynamic-update-slice, which is a copy of bytes."""
    body = module.callee(fusion)
    return body is not None and len(body.opcodes & _MOVES) == 1 and body.opcodes <= _READS | _MOVES
