"""Rules that mirror XLA's verifier, which release builds hardly run between passes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import ClassVar, Final

from hlo_lint.analysis.verifier import (
    Checks,
    Violation,
    Violations,
    has_violations,
    mark_good,
    marks_of,
    verify,
)
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Findings, Stage
from hlo_lint.rules.entry import RuleEntry, contents_of
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.source import Span


class VerifierRule:
    """The part of a rule that stands for some checks of XLA's verifier.

    The rule's methods that are marked (`analysis/verifier/checks.py`) are the checks. All rules ask
    for the violations of a module, which are found in one pass.
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

    def check(self, module: Module, stage: Stage) -> Findings:
        """Report everything that XLA's verifier would refuse."""
        violations = violations_of(module, stage)
        for check in self.demands:
            for violation in violations.get(check, ()):
                yield _finding(violation, module)

    @classmethod
    def needs(cls) -> tuple[Iterable[str] | None, Iterable[str] | None]:
        """The opcodes and words of its checks, and those that the class names for the others."""
        marks = list(marks_of(cls))
        stated = getattr(cls, "opcodes", None), getattr(cls, "mentions", None)
        inferred = {**cls.shapes_of, **cls.counts_of}
        is_of_whole = any(mark.is_of_whole for mark in marks)
        is_of_any = not marks and not inferred.keys() >= cls.demands.keys()
        if stated == (None, None) and (is_of_whole or is_of_any):
            return None, None
        opcodes = {opcode for opcodes in inferred.values() for opcode in opcodes.split()}
        words = set(stated[1] or ())
        for mark in marks:
            (words if mark.subject == "attribute" else opcodes).update(mark.words)
        return opcodes.union(stated[0] or ()), words

    def can_skip(self, module: Module, stage: Stage) -> bool:
        """True if there are no violations."""
        violations = violations_of(module, stage)
        return not violations or violations.keys().isdisjoint(self.demands)


def verifier_rules() -> list[VerifierRule]:
    """The rules of this family."""
    return [rule for entry in _entries() if isinstance(rule := entry.load(), VerifierRule)]


@cache
def _entries() -> tuple[RuleEntry, ...]:
    from hlo_lint.rules.registry import rule_entries

    # Only the registry imports every rule, and it stands above this package.
    return tuple(entry for entry in rule_entries() if entry.module.startswith(f"{__name__}."))


_imported: set[str] = set()
"""The names of the rules whose checks have been needed so far."""


def _checks(module: Module) -> Checks:
    """At least the checks that may find something in a module."""
    if len(_imported) < len(_entries()):
        contents = contents_of((module,))
        _imported.update(entry.name for entry in _entries() if entry.applies(contents))
    return _table(frozenset(_imported))


@cache
def _table(names: frozenset[str]) -> Checks:
    rules = [entry.load() for entry in _entries() if entry.name in names]
    verifiers = [rule for rule in rules if isinstance(rule, VerifierRule)]
    return Checks.of(
        verifiers,
        _by_opcode(rule.shapes_of for rule in verifiers),
        _by_opcode(rule.counts_of for rule in verifiers),
    )


def _by_opcode(tables: Iterator[Mapping[str, str]]) -> dict[str, str]:
    return {
        opcode: check
        for table in tables
        for check, opcodes in table.items()
        for opcode in opcodes.split()
    }


def is_verified(module: Module, stage: Stage, numbers: Sequence[int] | None) -> bool:
    """True if no rule of the family finds anything in some computations of a module, by number;
    None stands for what it finds outside of computations."""
    return not has_violations(module, stage, _checks(module), numbers)


def mark_verified(module: Module, stage: Stage) -> None:
    """Take over from other processes that no rule of the family finds anything in a module."""
    mark_good(module, stage)


def violations_of(module: Module, stage: Stage) -> Violations:
    """The violations of a module, by the name of the check."""
    cached = module.analysis_cache.get(VerifierRule)
    # All rules ask for the same module one after another: the last stage is enough.
    if isinstance(cached, tuple) and cached[0] is stage:
        violations: Violations = cached[1]
        return violations
    violations = verify(module, stage, _checks(module))
    module.analysis_cache[VerifierRule] = stage, violations
    return violations


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
