"""What XLA's verifier refuses: release builds hardly ask it between passes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from hlo_lint.analysis.verifier import Demands, verify
from hlo_lint.findings import Finding
from hlo_lint.ir import Instruction, Module
from hlo_lint.rule import Findings, Stage
from hlo_lint.source import Span


def refused(rows: Collection[str], module: Module, stage: Stage) -> Findings:
    """What the verifier says of a module for some rows of its list, at that stage of a run."""
    demands = Demands(
        stage.layouts and (stage.backend is not None or _is_compiled(module)),
        stage.mixed_precision,
        stage.scan,
        packed=stage.backend is None or stage.normalized is True or stage.final,
        ordered_broadcasts=stage.backend == "gpu" and stage.normalized is True,
        named_once=stage.backend is not None,
    )
    verdict = verify(module, demands)
    if verdict:
        for row in rows:
            for finding in verdict.get(row, ()):
                yield _placed(finding, module)


def _is_compiled(module: Module) -> bool:
    """Whether a text shows passes that run when layouts are assigned: it may be any program's."""
    return module.is_scheduled or any(
        computation.with_opcode(opcode)
        for computation in module.computations
        for opcode in ("fusion", "bitcast", "copy-start", "async-start")
    )


def _placed(finding: Finding, module: Module) -> Finding:
    """The same finding, in characters of the file."""
    at = finding.at
    if isinstance(at, Instruction) or not module.start:
        return finding
    return replace(finding, at=Span(at.start + module.start, at.end + module.start))
