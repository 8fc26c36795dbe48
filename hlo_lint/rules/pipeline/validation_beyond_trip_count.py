"""Transfers whose valid iterations exceed the loop's trip count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.device_groups import pairs_in, transfer_pairs
from hlo_lint.analysis.loops import loops
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import DOUBLE_BUFFER, WrittenByXla

_PROGRAM = """
HloModule m, num_partitions=2

body {
  x = f32[8] get-tuple-element((f32[8], s32[]) b), index=0
  i = s32[] get-tuple-element(b), index=1
  p = f32[8] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}, \
frontend_attributes={_xla_send_recv_validation="{{0,2},{1,LAST}}"}  // error
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (f32[8], s32[]) tuple(p, next)
}

condition {
  j = s32[] get-tuple-element((f32[8], s32[]) c), index=1
  limit = s32[] constant(4)
  ROOT goes-on = pred[] compare(j, limit), direction=LT
}

zero = s32[] constant(0)
first = (f32[8], s32[]) tuple(f32[8] y, zero)
ROOT w = (f32[8], s32[]) while(first), condition=condition, body=body
"""
_OPCODES: Final = ("collective-permute", "collective-permute-start", "send", "recv")
_ATTRIBUTE: Final = "_xla_send_recv_validation"


class ValidationBeyondTripCount(Rule):
    """A transfer of a pipelined loop whose valid iterations exceed the loop's trip count.

    ## Why
    `_xla_send_recv_validation` gives the first and the last iteration in which the transfer of each
    source-target pair is valid; in other iterations its result is undefined. A pass that unrolls or
    peels the loop must adjust the ranges. If it copies them, transfers are valid in the wrong
    iterations, and the pipeline computes wrong numbers. It shows if a range ends after the last
    iteration of the loop.

    Ranges and pairs are in the same order. The rule attribute-lost finds pairs that a pass gave a
    different range.
    """

    severity = Severity.WARNING
    mentions = ("source_target_pairs",)
    evidence = (WrittenByXla("causes/transfers_in_a_loop.hlo", DOUBLE_BUFFER),)
    reports = "openxla/xla#13278"
    examples = (
        Bad.entry(_PROGRAM.replace("LAST", "4")),
        Bad.entry("""
            x = f32[8] collective-permute(f32[8] p), source_target_pairs={{0,1},{1,0}},  // error
                frontend_attributes={_xla_send_recv_validation="{{1,3}}"}
        """),
        Good.entry(_PROGRAM.replace("LAST", "3")),
    )

    def check(self, module: Module) -> Findings:
        """Ranges that exceed the trip count, and transfers with a wrong number of ranges."""
        for loop in loops(module):
            transfers = list(_transfers(loop.body))
            trips = loop.trip_count if transfers else None
            for transfer, ranges in transfers:
                last = max((end for _, end in ranges), default=0)
                if trips is not None and last >= trips:
                    yield Finding(
                        transfer,
                        f"{_ATTRIBUTE} ends at iteration {last}, but the last iteration of "
                        f"%{loop.instruction.name} is {trips - 1}",
                        notes=(f"the loop runs {trips} times, counted from 0",),
                    )
        for computation in module.computations:
            for transfer, ranges in _transfers(computation):
                if ranges and (pairs := transfer_pairs(transfer)) and len(pairs) != len(ranges):
                    message = f"{_ATTRIBUTE} has {len(ranges)} ranges for {len(pairs)} pairs"
                    yield Finding(transfer, message, key="count")


def _transfers(body: Computation) -> Iterator[tuple[Instruction, Sequence[tuple[int, int]]]]:
    """The transfers of a body that have ranges, with their ranges."""
    for instruction in with_opcodes(body, _OPCODES):
        if _ATTRIBUTE in instruction.attributes_text:
            yield instruction, pairs_in(instruction.frontend_attributes().get(_ATTRIBUTE))
