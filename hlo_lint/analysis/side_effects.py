"""Instructions with side effects, by how often they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.sequential_calls import Calls, sequential_calls
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
_MAX_CHAINS: Final = 64
_find_target = late(r'custom_call_target="([^"]*)"').search
_SIDE_EFFECT: Final = "custom_call_has_side_effect=true"


class EffectRun(NamedTuple):
    """A place in the program where an instruction with an effect runs."""

    instruction: Instruction
    around: tuple[Instruction, ...]
    """The callers around it, from the nearest to the entry."""

    @property
    def loops(self) -> tuple[Instruction, ...]:
        """The loops around it."""
        return tuple(caller for caller in self.around if caller.opcode == "while")

    @property
    def case(self) -> Instruction | None:
        """The nearest conditional around it."""
        return next((caller for caller in self.around if caller.opcode == "conditional"), None)


@cached_analysis
def runs_of(module: Module) -> Mapping[str, Sequence[EffectRun]]:
    """The places where each effect runs, a place for each chain of callers.

    An effect with more than 64 chains, or in a recursion, is left out.
    """
    calls = sequential_calls(module)
    runs: dict[str, list[EffectRun]] = {}
    unknown = set[str]()
    for computation in calls.computations:
        for instruction in with_opcodes(computation, REPEATED):
            if effect := effect_of(instruction.row):
                chains = _chains(computation, calls, module)
                if chains is None:
                    unknown.add(effect)
                places = runs.setdefault(effect, [])
                places += [EffectRun(instruction, chain) for chain in chains or ()]
    return {effect: places for effect, places in runs.items() if effect not in unknown}


def _chains(
    computation: Computation, calls: Calls, module: Module
) -> Sequence[tuple[Instruction, ...]] | None:
    chains: list[tuple[Instruction, ...]] = []
    waiting: list[tuple[Computation, tuple[Instruction, ...]]] = [(computation, ())]
    while waiting:
        holder, around = waiting.pop()
        if holder is module.entry:
            chains.append(around)
        waiting += [(caller.computation, (*around, caller)) for caller in calls.callers(holder)]
        if len(chains) + len(waiting) > _MAX_CHAINS or len(around) > _MAX_CHAINS:
            return None
    return chains


def effect_of(record: InstructionRecord) -> str:
    """The opcode, or the target of a custom call, that has an effect; else empty."""
    opcode = opcode_of(record)
    if opcode != "rng" and not has_effect(record):
        return ""
    if opcode != "custom-call":
        return opcode
    target = _find_target(attributes_of(record))
    name = target[1] if target else ""
    return "" if name in MARKERS or name.startswith(SHARDY) else name


def has_effect(record: InstructionRecord) -> bool:
    """True if an instruction has an effect besides its result."""
    opcode = opcode_of(record)
    if opcode == "custom-call":
        return _SIDE_EFFECT in attributes_of(record)
    if opcode == "send":  # only to the host: passes add and remove transfers between devices
        return "is_host_transfer=true" in attributes_of(record)
    return opcode in EFFECTS
