"""Sends and receives of one channel that name other pairs of devices."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from hlo_lint.analysis.calls import instructions_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.patterns import late

_PAIRS: Final = "_xla_send_recv_source_target_pairs"
_find_pairs = late(r"\{(\d+),(\d+)\}").findall
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


class TransferPairsDiffer(Rule):
    """A send that goes to other devices than the receive of its channel waits for.

    ## Why
    XLA:GPU makes a send and a receive of a collective permute, and each of them has its pairs of
    devices in `_xla_send_recv_source_target_pairs`. A pass that changes those of one, or gives one
    to another loop, leaves devices that wait for data which nobody sends: the program hangs. Looked
    at are channels with one send and one receive in a computation.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"send"})
    mentions = (_PAIRS,)
    examples = (
        Bad.entry(_PROGRAM.format(pairs="{{0,1}}", mark="  // error")),
        Good.entry(_PROGRAM.format(pairs="{{1,2},{0,1}}", mark="")),
    )

    def check(self, module: Module) -> Findings:
        """Each such send."""
        ends: dict[tuple[str, str], list[Instruction]] = defaultdict(list)
        for opcode in ("send", "recv"):
            for end in instructions_of(module, opcode):
                if _PAIRS in end.attributes_text and "channel_id=" in end.attributes_text:
                    channel = end.attribute_text("channel_id") or ""
                    ends[end.computation.name, channel].append(end)
        for (_, channel), found in ends.items():
            if [end.opcode for end in found] != ["send", "recv"]:
                continue
            sent, received = map(_pairs, found)
            if sent != received and channel != "0":
                only = sorted(sent ^ received)[0]
                who = "sends" if only in sent else "waits for"
                way = f"device {only[0]} sends to device {only[1]}"
                if only not in sent:
                    way = f"device {only[1]} waits for device {only[0]}"
                other = "receive" if only in sent else "send"
                yield Finding(
                    found[0],
                    f"{way}, and %{found[1 if who == 'sends' else 0].name}, the {other} of channel "
                    f"{channel}, does not say so",
                )


def _pairs(end: Instruction) -> set[tuple[int, int]]:
    _, _, text = end.attributes_text.partition(_PAIRS + "=")
    text = "".join(text.partition("}}")[0].split()) + "}"
    return {(int(source), int(target)) for source, target in _find_pairs(text.strip('"'))}
