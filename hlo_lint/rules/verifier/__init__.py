"""What XLA's verifier refuses: release builds hardly ask it between passes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from hlo_lint.analysis.verifier import Demands, Verdict, Violation, verify
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Stage
from hlo_lint.rules.findings import Finding
from hlo_lint.text.source import Span


class Verified:
    """The check of a rule that stands for some rows of the verifier's list.

    All of them ask one judgement, which is made once for a module and what binds it.
    """

    rows: ClassVar[Mapping[str, Bad]]
    """A text for each row, which it alone refuses."""

    def check(self, module: Module, stage: Stage) -> Findings:
        """What XLA's verifier would refuse, each place of it."""
        verdict = _verdict(module, stage)
        for row in self.rows:
            for each in verdict.get(row, ()):
                yield _finding(each, module)

    def is_silent(self, module: Module, stage: Stage) -> bool:
        """Whether nothing is refused there."""
        verdict = _verdict(module, stage)
        return not verdict or verdict.keys().isdisjoint(self.rows)


def _verdict(module: Module, stage: Stage) -> Verdict:
    known = module.memo.get(Verified)
    if not isinstance(known, _Judged) or known.stage is not stage:
        demands = Demands(
            stage.layouts and (stage.backend is not None or _is_compiled(module)),
            stage.mixed_precision,
            stage.scan,
            packed=stage.backend is None or stage.normalized is True or stage.final,
            ordered_broadcasts=stage.backend == "gpu" and stage.normalized is True,
            named_once=stage.backend is not None,
        )
        known = module.memo[Verified] = _Judged(stage, verify(module, demands))
    return known.verdict


class _Judged(NamedTuple):
    """The last judgement of a module: all rules ask for the same one after another."""

    stage: Stage
    verdict: Verdict


def _is_compiled(module: Module) -> bool:
    """Whether a text shows passes that run when layouts are assigned: it may be any program's."""
    return module.is_scheduled or any(
        computation.with_opcode(opcode)
        for computation in module.computations
        for opcode in ("fusion", "bitcast", "copy-start", "async-start")
    )


def _finding(violation: Violation, module: Module) -> Finding:
    """The violation, in characters of the file."""
    at = violation.at
    if not isinstance(at, Instruction):
        at = Span(at.start + module.start, at.end + module.start)
    return Finding(at, violation.message, violation.notes, violation.operand)
