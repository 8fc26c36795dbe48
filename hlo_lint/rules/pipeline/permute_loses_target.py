"""Collective permutes that no longer send data to a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hlo_lint.analysis.device_groups import TRANSFER_PAIRS, count_of, transfer_pairs
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.hlo.attributes.devices import MAX_DEVICES
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import HAS_GROUPS
from hlo_lint.hlo.records import attributes_of, name_of, opcode_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, WrongValues
from hlo_lint.text.phrases import listed

_PERMUTES: Final = frozenset({"collective-permute", "collective-permute-start", "recv"})
_CHOOSES: Final = frozenset({"select", "conditional"})
"""Opcodes that may treat devices differently."""


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
        Bad.step("""
            HloModule m, num_partitions=4

            ENTRY e {
            - ROOT c = f32[8] collective-permute(f32[8] p), channel_id=1,
            -     source_target_pairs={{0,1},{1,0},{2,2},{3,3}}
            + ROOT c = f32[8] collective-permute(f32[8] p), channel_id=1,  // error
            +     source_target_pairs={{0,1},{1,0}}
            }
        """),
        Bad.step("""
            HloModule m, num_partitions=4

            ENTRY e {
            - ROOT c = f32[8] collective-permute(f32[8] p), channel_id=1,
            -     source_target_pairs={{0,1},{1,0},{2,2},{3,3}}
            + t = token[] after-all()
            + r = (f32[8], u32[], token[]) recv(t), channel_id=1,  // error
            +     frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0},{2,2}}}
            + s = (f32[8], u32[], token[]) send(f32[8] p, t), channel_id=1,
            +     frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0},{2,2}}}
            + d = (f32[8], token[]) recv-done(r), channel_id=1
            + e = token[] send-done(s), channel_id=1
            + ROOT c = f32[8] get-tuple-element(d), index=0
            }
        """),
        Good.step("""
            HloModule m, num_partitions=4

            ENTRY e {
            - ROOT c = f32[8] collective-permute(f32[8] p), channel_id=1,
            -     source_target_pairs={{0,1},{1,0},{2,2},{3,3}}
            + ROOT c = f32[8] collective-permute(f32[8] p), channel_id=1,
            +     source_target_pairs={{0,1},{1,0},{3,3},{2,2}}
            }
        """),
    )

    def check(self, pair: PassPair) -> Findings:
        """A finding for each computation that lost targets, at its first new permute."""
        for body in pair.changed:
            if _PERMUTES.isdisjoint(body.after.opcodes):
                continue
            removed = _collectives(body.before, body.removed)
            added = _collectives(body.after, body.added)
            gone = [removed[key] for key in removed if key not in added]
            new = [added[key] for key in added if key not in removed]
            are_permutes = bool(new) and all(permute.opcode in _PERMUTES for permute in new)
            if not gone or not are_permutes or _chooses(body):
                continue
            lost = sorted(_reached(gone, pair.before) - _reached(new, pair.after))
            if lost:
                yield Finding(
                    new[0],
                    f"{pair.pass_name} left no pair with the target {listed(lost)}",
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
            collective = computation.at(number)
            pairs = transfer_pairs(collective)
            if pairs or opcode != "recv":
                collectives[collective.name, opcode.removesuffix("-start"), pairs] = collective
    return collectives


def _chooses(body: ChangedComputation) -> bool:
    new = [
        row
        for row in map(body.after.rows.__getitem__, body.added)
        if name_of(row) not in body.before.index
    ]
    return any(
        opcode_of(row) in _CHOOSES
        or (opcode_of(row) == "send" and TRANSFER_PAIRS not in attributes_of(row))
        for row in new
    )


def _reached(collectives: Iterable[Instruction], module: Module) -> set[int]:
    """The devices that get data: targets of permutes, all devices for other collectives."""
    reached: set[int] = set()
    most = max(count_of(module, "num_partitions"), count_of(module, "replica_count"))
    for collective in collectives:
        if collective.opcode in _PERMUTES:
            reached.update(target for _, target in transfer_pairs(collective))
        else:
            reached.update(range(min(most, MAX_DEVICES)))
    return reached
