"""Instructions with side effects, and how often they run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.loops import loops
from hlo_lint.analysis.sequential_calls import Calls, sequential_calls
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import EXTERNAL
from hlo_lint.hlo.records import InstructionRecord, attributes_of, opcode_of
from hlo_lint.text.patterns import late

MARKERS: Final = {
    "MoveToHost": "host-offloader",
    "MoveToDevice": "host-offloader",
    "annotate_device_placement": "convert-memory-placement-to-internal-annotations",
    "Sharding": "the partitioner",
    "SPMDFullToShardShape": "the partitioner",
    "SPMDShardToFullShape": "the partitioner",
    "LayoutConstraint": "layout-assignment",
}
"""The targets of custom calls that mark a value for a pass, with the pass that removes them."""
SHARDY: Final = "xla.sdy."
"""The prefix of custom-call targets for Shardy's operations."""
EFFECTS: Final = (EXTERNAL - {"recv"}) | {"rng-get-and-update-state"}
"""Opcodes of instructions that may have an effect."""
REPEATED: Final = EFFECTS | {"rng"}
"""Opcodes with effects, and those whose result differs each time they run."""
_find_target = late(r'custom_call_target="([^"]*)"').search
_SIDE_EFFECT: Final = "custom_call_has_side_effect=true"


class EffectRun(NamedTuple):
    """An instruction with an effect."""

    instruction: Instruction
    loops: int
    """The number of loops around it that do not run exactly once."""
    depth: int
    """The number of loops around it."""
    case: Instruction | None
    """The nearest conditional around it."""


@cached_analysis
def runs_of(module: Module) -> Mapping[str, Sequence[EffectRun]]:
    """The instructions with effects, by effect, in computations with a single chain of callers."""
    if not any(map(effect_of, _rows_of(module))):
        return {}
    calls = sequential_calls(module)
    once = {loop.instruction for loop in loops(module) if loop.trip_count == 1}
    runs: dict[str, list[EffectRun]] = {}
    for computation in calls.computations:
        effects = [
            effect for effect in with_opcodes(computation, REPEATED) if effect_of(effect.row)
        ]
        around = (
            list(reached([computation], lambda holder: _callers_of(holder, calls)))
            if effects
            else []
        )
        callers = [caller for holder in around for caller in calls.callers(holder)]
        if around and (len(callers) != len(around) - 1 or around[-1] is not module.entry):
            continue  # called from several places, or not at all
        around_it = [caller for caller in callers if caller.opcode == "while"]
        count = sum(loop not in once for loop in around_it)
        case = next((caller for caller in callers if caller.opcode == "conditional"), None)
        for effect in effects:
            runs.setdefault(effect_of(effect.row), []).append(
                EffectRun(effect, count, len(around_it), case)
            )
    return runs


def _rows_of(module: Module) -> Iterator[InstructionRecord]:
    """The instructions that may have an effect."""
    for computation in module.computations:
        for instruction in with_opcodes(computation, REPEATED):
            yield instruction.row


def _callers_of(computation: Computation, calls: Calls) -> list[Computation]:
    return [caller.computation for caller in calls.callers(computation)]


def effect_of(record: InstructionRecord) -> str:
    """The opcode, or the target of a custom call, that has an effect; else empty."""
    opcode = opcode_of(record)
    if opcode == "custom-call" and has_effect(record):
        target = _find_target(attributes_of(record))
        name = target[1] if target else ""
        return "" if name in MARKERS or name.startswith(SHARDY) else name
    is_effect = opcode in REPEATED and (opcode == "rng" or has_effect(record))
    return opcode if is_effect and opcode != "custom-call" else ""


def has_effect(record: InstructionRecord) -> bool:
    """True if an instruction has an effect besides its result."""
    opcode = opcode_of(record)
    if opcode == "custom-call":
        return _SIDE_EFFECT in attributes_of(record)
    if opcode == "send":  # only to the host: passes add and remove transfers between devices
        return "is_host_transfer=true" in attributes_of(record)
    return opcode in EFFECTS
