"""Sends and receives that are valid in iterations that a loop does not have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.loops import loops
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.patterns import late
from hlo_lint.text.source import whole_number

_PROGRAM = """
HloModule m, num_partitions=2

body {
  b = (f32[8], s32[]) parameter(0)
  x = f32[8] get-tuple-element(b), index=0
  i = s32[] get-tuple-element(b), index=1
  p = f32[8] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}, \
frontend_attributes={_xla_send_recv_validation="{{0,2},{1,LAST}}"}MARK
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT t = (f32[8], s32[]) tuple(p, next)
}

condition {
  c = (f32[8], s32[]) parameter(0)
  j = s32[] get-tuple-element(c), index=1
  limit = s32[] constant(4)
  ROOT goes-on = pred[] compare(j, limit), direction=LT
}

ENTRY e {
  y = f32[8] parameter(0)
  zero = s32[] constant(0)
  first = (f32[8], s32[]) tuple(y, zero)
  ROOT w = (f32[8], s32[]) while(first), condition=condition, body=body
}
"""
_ATTRIBUTE: Final = "_xla_send_recv_validation"
_range = late(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


class ValidationBeyondTripCount(Rule):
    """A transfer of a pipelined loop that is valid in iterations which the loop does not have.

    ## Why
    `_xla_send_recv_validation` gives, for each source and target, the first and the last iteration
    in which the transfer counts; in the others its result is undefined. A pass that unrolls or
    peels the loop has to count the iterations anew. Where it copies the ranges, the transfers count
    in the wrong iterations, and the pipeline computes wrong numbers. It shows where a range ends
    after the last iteration of the loop.

    Reports: openxla/xla#13278 (loop-double-buffer-transformer).
    """

    severity = Severity.WARNING
    opcodes = frozenset({"while"})
    examples = (
        Bad(_PROGRAM.replace("LAST", "4").replace("MARK", "  // error")),
        Good(_PROGRAM.replace("LAST", "3").replace("MARK", "")),
    )

    def check(self, module: Module) -> Findings:
        """Each transfer with such a range."""
        for loop in loops(module):
            transfers = list(_transfers(loop.body))
            trips = loop.trip_count if transfers else None
            for transfer, ranges in transfers:
                last = max((end for _, end in ranges), default=0)
                if trips is not None and last >= trips:
                    yield Finding(
                        transfer,
                        f"{_ATTRIBUTE} counts up to iteration {last}, and the last iteration of "
                        f"%{loop.instruction.name} is {trips - 1}",
                        notes=(f"the loop runs {trips} times, counted from iteration 0",),
                    )


def _transfers(body: Computation) -> Iterator[tuple[Instruction, list[tuple[int, int]]]]:
    """The transfers of a body that have ranges, with these."""
    for opcode in ("collective-permute", "collective-permute-start", "send", "recv"):
        for instruction in body.with_opcode(opcode):
            if _ATTRIBUTE in instruction.attributes_text:
                value = instruction.attributes["frontend_attributes"].partition(_ATTRIBUTE)[2]
                text = value.partition("}}")[0] + "}}"  # no other attribute's braces
                yield (
                    instruction,
                    [
                        (first, last)
                        for pair in _range.findall(text)
                        for first, last in [map(whole_number, pair)]
                        if first is not None and last is not None
                    ],
                )
