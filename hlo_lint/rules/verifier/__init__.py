"""Rules that mirror XLA's verifier, which release builds hardly run between passes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from hlo_lint.analysis.verifier import Violation, Violations, marks_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.source import Span


class VerifierRule(Rule):
    """A rule that stands for some checks of XLA's verifier.

    Its methods that are marked (`analysis/verifier/checks.py`) are checks. The engine runs those of
    all rules in one pass (`engine/verifier.py`), and each rule claims the violations of its own.
    """

    checked_between_passes: ClassVar[bool] = True
    demands: ClassVar[Mapping[str, tuple[str, str]]]
    """By the name of each check: its place in `hlo_verifier.cc`, empty if XLA has no such check,
    and what it demands."""
    rows: ClassVar[Mapping[str, Bad]]
    """A text that violates each check, and that no other rule reports; none for a check that only
    an option of the stage turns on."""
    shapes_of: ClassVar[Mapping[str, str]] = {}
    """The opcodes whose inferred shape is a check of this rule, by the name of the check."""
    counts_of: ClassVar[Mapping[str, str]] = {}
    """The opcodes whose number of operands is a check of this rule, by the name of the check."""

    def check(self, violations: Violations) -> Findings:
        """Claim the violations of this rule's checks."""
        for check in self.demands:
            for violation in violations.by_check.get(check, ()):
                yield _finding(violation, violations.module)

    @classmethod
    def needs(cls) -> tuple[Iterable[str] | None, Iterable[str] | None]:
        """The opcodes and words of its checks, and those that the class names for the others."""
        marks = list(marks_of(cls))
        inferred = {**cls.shapes_of, **cls.counts_of}
        is_of_whole = any(mark.is_of_whole for mark in marks)
        is_of_any = not marks and not inferred.keys() >= cls.demands.keys()
        if cls.opcodes is None and cls.mentions is None and (is_of_whole or is_of_any):
            return None, None
        opcodes = {opcode for opcodes in inferred.values() for opcode in opcodes.split()}
        words = set(cls.mentions or ())
        for mark in marks:
            (words if mark.subject == "attribute" else opcodes).update(mark.words)
        return opcodes.union(cls.opcodes or ()), words


def _finding(violation: Violation, module: Module) -> Finding:
    """The violation, in characters of the file."""
    at = violation.at
    if not isinstance(at, Instruction):
        at = Span(at.start + module.start, at.end + module.start)
    severity = Severity.WARNING if violation.is_warning else None
    return Finding(
        at, violation.message, violation.notes, violation.operand, severity, key=violation.check
    )


ELSEWHERE: Final[Mapping[str, tuple[str, str, str]]] = {
    "done-without-start": (
        "VerifyAsynchronousInstructionPairs",
        "a done follows a start",
        "start-without-done",
    ),
    "start-with-two-dones": (
        "VerifyAsynchronousInstructionPairs",
        "a start has one done",
        "start-without-done",
    ),
    "start-without-done": (
        "VerifyAsynchronousInstructionPairs",
        "a start has a done",
        "start-without-done",
    ),
    "orphan-update": (
        "VerifyAsynchronousInstructionPairs",
        "an update belongs to a chain",
        "start-without-done",
    ),
    "reshape-is-bitcast": (
        "InstructionVerifier::HandleReshape",
        "a reshape outside of fusions moves no byte",
        "reshape-moves-data",
    ),
    "layout-changed": (
        "InstructionVerifier::Postprocess",
        "instructions that may not change a layout do not",
        "layout-changed",
    ),
    "slice-memory-space": (
        "InstructionVerifier::Postprocess",
        "slices do not lead from one memory to another",
        "host-memory-leak",
    ),
    "host-memory": (
        "InstructionVerifier::Postprocess",
        "nothing is in host memory before it may be",
        "host-memory-leak",
    ),
    "constraint-ignored": (
        "",
        "operands have the layouts of `operand_layout_constraints`",
        "constraint-ignored",
    ),
    "collective-layout": (
        "",
        "layouts that collectives, sorts, reductions and dots give",
        "collective-not-outermost",
    ),
    "layout-across-ranks": ("", "layouts across ranks and in tuples", "layout-changed"),
    "normal-form": ("", "the form that layout-normalization leaves", "normal-form-lost"),
    "narrow-elements": ("", "narrow elements are packed", "subbyte-size-missing"),
}
"""Checks of rules in other families: the place in `hlo_verifier.cc`, the demand, and the rule."""

LEFT_OUT: Final[Mapping[str, tuple[str, str, str]]] = {
    "sparse-convolution": (
        "ShapeVerifier::HandleConvolution",
        "convolution: operands of sparsity",
        "no supported release prints a sparse convolution, so that its inference is unknown here",
    ),
    "async-thread": (
        "CheckAsyncOpComputationThreadName",
        "asynchronous operations run on the thread of their computation",
        "XLA's parser puts the computation on the thread of its start",
    ),
    "fused-reshape": (
        "",
        "reshapes in fusions move no byte",
        "a rule about layouts, see the family `layout`",
    ),
    "bitcast-meaning": (
        "",
        "the meaning of a bitcast",
        "a bitcast of equal bytes is what it says, and XLA makes such ones in any order",
    ),
    "channel-shared": (
        "",
        "channels that several kinds of collectives share",
        "jax itself gives every collective of a `shard_map` channel 1",
    ),
    "buffer-overlap": (
        "",
        "buffers that overlap",
        "needs a buffer assignment, see the family `memory`",
    ),
}
"""Checks that no rule has: the place in `hlo_verifier.cc`, the demand, and why."""
