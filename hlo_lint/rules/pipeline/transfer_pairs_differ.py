"""Sends and receives of a channel whose device pairs differ."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.device_groups import TRANSFER_PAIRS, transfer_pairs
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_PROGRAM: Final = """
p = f32[8]{{0}} parameter(0)
t = token[] after-all()
r = (f32[8]{{0}}, u32[], token[]) recv(t), channel_id=1, \
frontend_attributes={{_xla_send_recv_source_target_pairs={{{{0,1}},{{1,2}}}}}}
s = (f32[8]{{0}}, u32[], token[]) send(p, t), channel_id=1, \
frontend_attributes={{_xla_send_recv_source_target_pairs={pairs}}}, control-predecessors={{r}}{mark}
e = token[] send-done(s), channel_id=1
d = (f32[8]{{0}}, token[]) recv-done(r), channel_id=1
ROOT o = f32[8]{{0}} get-tuple-element(d), index=0
"""
_ALONE: Final = """
p = f32[8]{0} parameter(0)
t = token[] after-all()
r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1, \
frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,2}}}  // error
d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
ROOT o = f32[8]{0} get-tuple-element(d), index=0
"""


class TransferPairsDiffer(Rule):
    """A send and a receive of the same channel with different device pairs.

    ## Why
    XLA:GPU splits a collective permute into a send and a receive, each with its device pairs in
    `_xla_send_recv_source_target_pairs`. If a pass changes the pairs of only one, moves one to a
    different loop, or removes one, devices wait for data that no device sends: the program hangs.
    The rule checks channels with a single send and receive in a computation, and pairs that a pass
    removed from only one side of the module.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"recv", "send"})
    mentions = (TRANSFER_PAIRS,)
    examples = (
        Bad.entry(_PROGRAM.format(pairs="{{0,1}}", mark="  // error")),
        Bad.entry(
            _ALONE,
            file="module_0001.m.0002.simplification.after_dce.before_pipeline-end.txt",
            beside={
                "module_0001.m.0001.simplification.after_pipeline-start.before_dce.txt": (
                    "HloModule m\n\nENTRY e {"
                    + _PROGRAM.format(pairs="{{0,1},{1,2}}", mark="")
                    + "}\n"
                )
            },
        ),
        Good.entry(_PROGRAM.format(pairs="{{1,2},{0,1}}", mark="")),
    )

    def check(self, module: Module) -> Findings:
        """Sends whose pairs differ from those of the channel's receive."""
        ends: dict[tuple[str, str], list[Instruction]] = defaultdict(list)
        for opcode in ("send", "recv"):
            for end in instructions_of(module, opcode):
                if TRANSFER_PAIRS in end.attributes_text and "channel_id=" in end.attributes_text:
                    channel = end.attribute_text("channel_id") or ""
                    ends[end.computation.name, channel].append(end)
        for (_, channel), found in ends.items():
            if [end.opcode for end in found] != ["send", "recv"]:
                continue
            sent, received = map(set, map(transfer_pairs, found))
            if sent != received and channel != "0":
                only = min(sent ^ received)
                counterpart = found[1 if only in sent else 0]
                yield Finding(
                    found[0],
                    f"{_way(only, only in sent)}, but %{counterpart.name}, the "
                    f"{_other(only in sent)} of channel {channel}, lacks this pair",
                )

    def check_removed(self, change: PassPair) -> Findings:
        """The first device pair that a pass removed from only one side."""
        if not any("recv" in computation.opcodes for computation in change.before.computations):
            return
        before, after = (
            [_ends(module, opcode) for opcode in ("send", "recv")]
            for module in (change.before, change.after)
        )
        sent, received = (set(ends) for ends in after)
        if set(before[0]) == set(before[1]) and sent != received:
            only = min(sent ^ received)
            yield Finding(
                after[0 if only in sent else 1][only],
                f"{_way(only, only in sent)}, but after {change.pass_name} no "
                f"{_other(only in sent)} of the module has this pair",
            )


def _way(pair: tuple[int, int], is_sent: bool) -> str:
    if is_sent:
        return f"device {pair[0]} sends to device {pair[1]}"
    return f"device {pair[1]} waits for device {pair[0]}"


def _other(is_sent: bool) -> str:
    return "receive" if is_sent else "send"


def _ends(module: Module, opcode: str) -> dict[tuple[int, int], Instruction]:
    """The sends or the receives of a module, by device pair."""
    ends = instructions_of(module, opcode)
    return {pair: end for end in ends for pair in transfer_pairs(end)}
