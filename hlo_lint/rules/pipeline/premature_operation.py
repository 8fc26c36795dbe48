"""Operations that may only appear after layout-assignment."""

from __future__ import annotations

from hlo_lint.analysis import match as m
from hlo_lint.dumps.pass_dump import NumberedDump, PassDump
from hlo_lint.dumps.phases import BEFORE_LAYOUTS, LAYOUT_ASSIGNMENT
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Bad, Compilation, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity


def _calls_cublaslt(call: Instruction) -> bool:
    return call.custom_call_target.startswith("__cublas$lt")


PREMATURE = {
    "a bitcast": m.bitcast(),
    "a cuBLASLt call": m.custom_call().where("a call of cuBLASLt", _calls_cublaslt),
}

_BEFORE = (
    "module_0001.jit_f.0013.layout_assignment.after_flatten-call-graph.before_layout-assignment"
)
_AFTER = (
    "module_0001.jit_f.0014.layout_assignment.after_layout-assignment.before_sub-byte-size-setter"
)
_TEXT = """
HloModule jit_f

ENTRY %main (p: f32[8]) -> f32[2,4] {
  %p = f32[8]{0} parameter(0)
  ROOT %b = f32[2,4]{1,0} bitcast(%p)
}
"""


class PrematureOperation(Rule):
    """A bitcast or a cuBLASLt call before layout-assignment.

    ## Why
    A bitcast has no meaning without layouts, and GEMM calls pin theirs. layout-assignment fails
    with `Unexpected bitcast operation seen during layout assignment`, and on GPU a CHECK on a
    `__cublas$lt` call aborts the process. Usually, HLO from a later dump was compiled again, or a
    custom pass runs too early. The rule looks at the last dump that is known to be before
    layout-assignment.
    """

    severity = Severity.ERROR
    examples = (
        Bad(
            _TEXT.replace("(%p)\n", "(%p)  // error\n"),
            file=f"{_BEFORE}.txt",
            beside={"module_0001.jit_f.debug_options": 'xla_dump_hlo_pass_re: ".*"'},
        ),
        Good(
            _TEXT,
            file=f"{_AFTER}.txt",
            beside={"module_0001.jit_f.debug_options": 'xla_dump_hlo_pass_re: ".*"'},
        ),
    )

    def check(self, compilation: Compilation) -> Findings:
        """Bitcasts and cuBLASLt calls in the last dump before layout-assignment."""
        before = _early(compilation.pipeline)
        if not before:
            return
        last = before[-1]
        for module in last.file.modules:
            for title, pattern in PREMATURE.items():
                for hit in m.find(pattern, module.nonfusion_computations):
                    yield Finding(
                        hit.instruction,
                        f"{title} before {LAYOUT_ASSIGNMENT}, which rejects it",
                        (_since(before, hit.instruction),),
                        file=compilation.dumps.index(last),
                    )


def _early(pipeline: Pipeline) -> list[PassDump]:
    """The dumps that are certainly before layout-assignment."""
    if pipeline.is_helper:
        return []
    assigned = [
        dump.step if dump.name.after == LAYOUT_ASSIGNMENT else dump.step + 1
        for dump in pipeline.steps
        if LAYOUT_ASSIGNMENT in (dump.name.before, dump.name.after)
    ]
    end = min(assigned, default=0)
    early = []
    for dump in pipeline.dumps:
        name = dump.name
        if name is not None:
            named = name.step is None and name.rest.startswith(BEFORE_LAYOUTS)
            if named or (name.step is not None and name.step < end):
                early.append(dump)
    return early


def _since(dumps: list[PassDump], instruction: Instruction) -> str:
    """A note on the first dump that has an instruction."""
    first = dumps[-1]
    for dump in reversed(dumps):
        computation = dump.module.computation(instruction.computation.name)
        counterpart = computation.instruction(instruction.name) if computation else None
        if counterpart is None or counterpart.opcode != instruction.opcode:
            break
        first = dump
    if not isinstance(first, NumberedDump):
        return "the input has it"
    return f"first seen in step {first.step:04d}, {first.name.label}"
