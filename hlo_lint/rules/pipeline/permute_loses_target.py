"""Collective permutes that no longer send data to a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hlo_lint.analysis.device_groups import TRANSFER_PAIRS, transfer_pairs
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import HAS_GROUPS
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, WrongValues
from hlo_lint.text.patterns import late
from hlo_lint.text.phrases import listed
from hlo_lint.text.source import whole_number

_PERMUTES: Final = frozenset({"collective-permute", "collective-permute-start", "recv"})
_CHOOSES: Final = frozenset({"select", "conditional"})
"""Opcodes that may treat devices differently."""
MAX_DEVICES: Final = 1 << 16
"""The largest number of devices that is considered."""
_pair = late(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")
_counts = late(r"\b(?:num_partitions|replica_count)=(\d+)")
_BEFORE = "module_0001.m.0001.collectives.after_pipeline-start.before_simplifier.txt"
_AFTER = "module_0001.m.0002.collectives.after_simplifier.before_pipeline-end.txt"
_PROGRAM = """
HloModule m, num_partitions=4

ENTRY e {{
  p = f32[8] parameter(0)
  ROOT c = f32[8] collective-permute(p), channel_id=1, source_target_pairs={{{pairs}}}{mark}
}}
"""
_RECEIVED = """
HloModule m, num_partitions=4

ENTRY e {{
  t = token[] after-all()
  r = (f32[8], u32[], token[]) recv(t), channel_id=1,{mark}
      frontend_attributes={{_xla_send_recv_source_target_pairs={{{pairs}}}}}
  s = (f32[8], u32[], token[]) send(f32[8] p, t), channel_id=1,
      frontend_attributes={{_xla_send_recv_source_target_pairs={{{pairs}}}}}
  d = (f32[8], token[]) recv-done(r), channel_id=1
  e = token[] send-done(s), channel_id=1
  ROOT c = f32[8] get-tuple-element(d), index=0
}}
"""
_RING = _PROGRAM.format(pairs="{0,1},{1,0},{2,2},{3,3}", mark="")


class PermuteLosesTarget(Rule):
    """A pass that removes a device from the targets of a collective permute.

    ## Why
    A device that is not a target of a collective-permute gets zeros. A pass that replaces an
    all-gather and a slice by a permute, or that removes pairs from a permute, must keep each
    target. (A pair `{p,p}` moves no data, but preserves the data of device `p`.) XLA checks that
    pairs are valid, not that they are complete.

    The rule counts all new permutes, and receives with pairs, together. If the pass adds a select,
    a conditional or a send without pairs, devices may be treated differently elsewhere, and nothing
    is reported.
    """

    evidence = (
        WrongValues(),
        PublicReport("openxla/xla#45218 (AllGatherDynamicSlicePermutedOffsetSimplifier)"),
    )
    examples = (
        Bad(
            _PROGRAM.format(pairs="{0,1},{1,0}", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _RING},
        ),
        Bad(
            _RECEIVED.format(pairs="{0,1},{1,0},{2,2}", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _RING},
        ),
        Good(
            _RECEIVED.format(pairs="{0,1},{1,0},{2,2},{3,3}", mark=""),
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
        """A finding for each computation that lost targets, at its first new permute."""
        for computation in change.changed:
            before, after = computation.before, computation.after
            if _PERMUTES.isdisjoint(after.opcodes):
                continue
            removed = _collectives(before, computation.removed)
            added = _collectives(after, computation.added)
            gone = [removed[key] for key in removed if key not in added]
            new = [added[key] for key in added if key not in removed]
            permutes = [instruction for instruction in new if instruction.opcode in _PERMUTES]
            if not gone or len(permutes) < len(new) or not permutes or _chooses(computation):
                continue
            lost = sorted(_reached(gone, change.before) - _reached(permutes, change.after))
            if lost:
                yield Finding(
                    permutes[0],
                    f"{change.pass_name} left no pair with the target {listed(lost)}",
                    notes=(
                        f"before the pass, %{gone[0].name} ({gone[0].opcode}) sent data there",
                        "a device that is not a target gets zeros",
                    ),
                )


def _collectives(
    computation: Computation, numbers: Iterable[int]
) -> dict[tuple[str, str, tuple[tuple[int, int], ...]], Instruction]:
    """The collectives at these positions, by name, opcode and pairs."""
    collectives = {}
    for number in numbers:
        opcode = opcode_of(computation.rows[number])
        if opcode in _PERMUTES or opcode in HAS_GROUPS:
            instruction = computation.at(number)
            pairs = _pairs_of(instruction)
            if opcode == "recv" and not pairs:
                continue
            key = instruction.name, opcode.removesuffix("-start"), pairs
            collectives[key] = instruction
    return collectives


def _pairs_of(collective: Instruction) -> tuple[tuple[int, int], ...]:
    """The (source, target) pairs of a collective."""
    pairs = collective.attributes.get("source_target_pairs")
    if pairs is None:
        return transfer_pairs(collective)
    ends = (map(whole_number, pair) for pair in _pair.findall(pairs))
    return tuple((source or 0, target or 0) for source, target in ends)


def _chooses(computation: ChangedComputation) -> bool:
    for number in computation.added:
        row = computation.after.rows[number]
        if name_of(row) in computation.before.index:
            continue
        if opcode_of(row) in _CHOOSES:
            return True
        if opcode_of(row) == "send" and TRANSFER_PAIRS not in attributes_of(row):
            return True
    return False


def _reached(collectives: Iterable[Instruction], module: Module) -> set[int]:
    """The devices that get data: targets of permutes, all devices for other collectives."""
    reached: set[int] = set()
    for collective in collectives:
        if collective.opcode in _PERMUTES:
            reached.update(target for _, target in _pairs_of(collective))
        else:
            counts = [whole_number(count) or 0 for count in _counts.findall(module.header)]
            reached.update(range(min(max(counts, default=0), MAX_DEVICES)))
    return reached
