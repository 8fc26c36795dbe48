"""Collective permutes that leave devices without the data they had."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from hlo_lint.analysis.pass_pairs import changed_computations
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Good, PassPair, Rule
from hlo_lint.rules.findings import Finding

_PERMUTES: Final = frozenset({"collective-permute", "collective-permute-start"})
_FOR_ALL: Final = frozenset(
    "all-gather all-gather-start all-reduce all-reduce-start all-to-all collective-broadcast "
    "ragged-all-to-all reduce-scatter".split()
)
"""Opcodes that give data to every device that runs them."""
_CHOOSES: Final = frozenset({"select", "conditional", "send"})
"""Opcodes that show that devices are told apart, or that pairs are handed to something else."""
_pair = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")
_counts = re.compile(r"\b(?:num_partitions|replica_count)=(\d+)")
_BEFORE = "module_0001.m.0001.collectives.after_pipeline-start.before_simplifier.txt"
_AFTER = "module_0001.m.0002.collectives.after_simplifier.before_pipeline-end.txt"
_PROGRAM = """
HloModule m, num_partitions=4

ENTRY e {{
  p = f32[8] parameter(0)
  ROOT c = f32[8] collective-permute(p), channel_id=1, source_target_pairs={{{pairs}}}{mark}
}}
"""
_RING = _PROGRAM.format(pairs="{0,1},{1,0},{2,2},{3,3}", mark="")


class PermuteLosesTarget(Rule):
    """A pass after which a collective permute no longer reaches a device.

    ## Why
    A device that is not the target of any pair of a collective-permute gets zeros. A pass that puts
    a permute in the place of an all-gather and a slice, or that takes pairs away from one (a pair
    `{p,p}` moves nothing, but keeps what device `p` has), must keep each target. XLA checks that
    pairs are sound, not that they are complete.

    Permutes that share the work of one are counted together. Where the pass adds a select or a
    send, devices are told apart elsewhere, and nothing is reported.

    Reports: openxla/xla#45218 (AllGatherDynamicSlicePermutedOffsetSimplifier).
    """

    examples = (
        Bad(
            _PROGRAM.format(pairs="{0,1},{1,0}", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _RING},
        ),
        Good(
            _PROGRAM.format(pairs="{0,1},{1,0},{3,3},{2,2}", mark=""),
            file=_AFTER,
            beside={_BEFORE: _RING},
        ),
    )

    def check(self, change: PassPair) -> Findings:
        """One finding for each computation, at its first permute that is new."""
        for before, after in changed_computations(change.before, change.after):
            if _PERMUTES.isdisjoint(after.opcodes):
                continue
            gone, new = _collectives_only_in(before, after), _collectives_only_in(after, before)
            permutes = [each for each in new if each.opcode in _PERMUTES]
            if not gone or len(permutes) < len(new) or not permutes or _chooses(before, after):
                continue
            lost = sorted(_reached(gone, change.before) - _reached(permutes, change.after))
            if lost:
                yield Finding(
                    permutes[0],
                    f"after {change.pass_name} no pair has the target {_listed(lost)}",
                    notes=(
                        f"before it, %{gone[0].name} ({gone[0].opcode}) gave data to each of them",
                        "a device that is not a target gets zeros",
                    ),
                )


def _collectives_only_in(one: Computation, other: Computation) -> list[Instruction]:
    """The collectives of one computation that the other does not have as they are."""
    there = {_identity(each) for each in other.instructions if _is_collective(each)}
    return [
        each for each in one.instructions if _is_collective(each) and _identity(each) not in there
    ]


def _is_collective(instruction: Instruction) -> bool:
    return instruction.opcode in _PERMUTES or instruction.opcode in _FOR_ALL


def _identity(instruction: Instruction) -> tuple[str, str, str]:
    pairs = instruction.attributes.get("source_target_pairs", "")
    return instruction.name, instruction.opcode.removesuffix("-start"), pairs


def _chooses(before: Computation, after: Computation) -> bool:
    return any(
        each.opcode in _CHOOSES and each.name not in before.index for each in after.instructions
    )


def _reached(collectives: Iterable[Instruction], module: Module) -> set[int]:
    """The devices that get data; of other collectives than permutes, all that there are."""
    reached: set[int] = set()
    for each in collectives:
        if each.opcode in _PERMUTES:
            pairs = _pair.findall(each.attributes.get("source_target_pairs", ""))
            reached.update(int(target) for _, target in pairs)
        else:
            counts = [int(count) for count in _counts.findall(module.header)]
            reached.update(range(max(counts, default=0)))
    return reached


def _listed(devices: list[int]) -> str:
    shown = ", ".join(map(str, devices[:8]))
    return shown + (f" and {len(devices) - 8} more" if len(devices) > 8 else "")
