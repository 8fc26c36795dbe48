"""Finds what one XLA pass broke for another, in dumped HLO, and fixes it.

import hlo_lint

report = hlo_lint.lint("xla_dump/")          # every module, every rule
print(report)                                # as the command line prints
for finding in report.findings:
    print(finding.path, finding.line, finding.rule, finding.introduced_by)

fixed = hlo_lint.fix(text, before="layout_normalization")
module = hlo_lint.parse(fixed.text)          # a graph; hlo_lint.emit(module) == fixed.text

hlo_lint.check_jit(function, x, y)           # raises where a pass of this compile broke something
"""

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as Python to start
__version__ = "0.1.0"

if TYPE_CHECKING:
    from typing import Any

    from hlo_lint.analysis import match
    from hlo_lint.analysis.pass_pairs import PassPair
    from hlo_lint.analysis.rewrite import NewInstruction, Rewrite
    from hlo_lint.apps import testing
    from hlo_lint.apps.api import emit, lint, parse, parse_all, prove
    from hlo_lint.apps.fixes import FixResult, fix
    from hlo_lint.apps.jax import xla_hook as live
    from hlo_lint.apps.jax.capture.jit import (
        Capture,
        FindingsError,
        capture_jit,
        check_jit,
        compile_for,
    )
    from hlo_lint.apps.settings.load import load_settings
    from hlo_lint.apps.settings.settings import Settings
    from hlo_lint.apps.validation import ValidationResult, validate
    from hlo_lint.dumps.artefacts import read_artefact
    from hlo_lint.dumps.directory import Dump, open_dump
    from hlo_lint.engine.findings import Diagnostic, SuppressedFinding
    from hlo_lint.engine.fixes import apply_fixes
    from hlo_lint.engine.proof.prove import Proof
    from hlo_lint.engine.suppressions.allowances import Allowance
    from hlo_lint.hlo.ir import Computation, Instruction, Module
    from hlo_lint.report.report import Report
    from hlo_lint.rules.base import (
        AutotuningRuns,
        Bad,
        BeforeAutotuner,
        Compilation,
        DumpFolder,
        FinalModule,
        Findings,
        Good,
        Rule,
        Stage,
    )
    from hlo_lint.rules.findings import Finding, Severity
    from hlo_lint.rules.options import Option
    from hlo_lint.text.edits import Edit, Fix, Safety
    from hlo_lint.text.errors import (
        CaptureError,
        ConfigError,
        DumpError,
        HloLintError,
        HloSyntaxError,
        RewriteError,
        RuleError,
        UsageError,
    )
    from hlo_lint.text.source import Span

_HOMES = {
    "hlo_lint.analysis.pass_pairs": "PassPair",
    "hlo_lint.analysis.rewrite": "NewInstruction Rewrite",
    "hlo_lint.apps.api": "emit lint parse parse_all prove",
    "hlo_lint.apps.fixes": "FixResult fix",
    "hlo_lint.apps.jax.capture.jit": "Capture FindingsError capture_jit check_jit compile_for",
    "hlo_lint.apps.settings.load": "load_settings",
    "hlo_lint.apps.settings.settings": "Settings",
    "hlo_lint.apps.validation": "ValidationResult validate",
    "hlo_lint.dumps.artefacts": "read_artefact",
    "hlo_lint.dumps.directory": "Dump open_dump",
    "hlo_lint.engine.findings": "SuppressedFinding Diagnostic",
    "hlo_lint.engine.fixes": "apply_fixes",
    "hlo_lint.engine.proof.prove": "Proof",
    "hlo_lint.engine.suppressions.allowances": "Allowance",
    "hlo_lint.hlo.ir": "Computation Instruction Module",
    "hlo_lint.report.report": "Report",
    "hlo_lint.rules.base": (
        "AutotuningRuns Bad BeforeAutotuner Compilation DumpFolder FinalModule Findings "
        "Good Rule Stage"
    ),
    "hlo_lint.rules.findings": "Finding Severity",
    "hlo_lint.rules.options": "Option",
    "hlo_lint.text.edits": "Edit Fix Safety",
    "hlo_lint.text.errors": (
        "CaptureError ConfigError DumpError HloLintError HloSyntaxError RewriteError RuleError "
        "UsageError"
    ),
    "hlo_lint.text.source": "Span",
}
"""The modules of the public names. They are imported on demand: pytest imports this package for its
plugin in every run, and most of these runs do not use it."""

_MODULES = {
    "live": "hlo_lint.apps.jax.xla_hook",
    "match": "hlo_lint.analysis.match",
    "testing": "hlo_lint.apps.testing",
}
"""Public modules, which are deeper in the package."""

__all__ = [
    "Allowance",
    "AutotuningRuns",
    "Bad",
    "BeforeAutotuner",
    "Capture",
    "CaptureError",
    "Compilation",
    "Computation",
    "ConfigError",
    "Diagnostic",
    "Dump",
    "DumpError",
    "DumpFolder",
    "Edit",
    "FinalModule",
    "Finding",
    "Findings",
    "FindingsError",
    "Fix",
    "FixResult",
    "Good",
    "HloLintError",
    "HloSyntaxError",
    "Instruction",
    "Module",
    "NewInstruction",
    "Option",
    "PassPair",
    "Proof",
    "Report",
    "Rewrite",
    "RewriteError",
    "Rule",
    "RuleError",
    "Safety",
    "Settings",
    "Severity",
    "Span",
    "Stage",
    "SuppressedFinding",
    "UsageError",
    "ValidationResult",
    "apply_fixes",
    "capture_jit",
    "check_jit",
    "compile_for",
    "emit",
    "fix",
    "lint",
    "live",
    "load_settings",
    "match",
    "open_dump",
    "parse",
    "parse_all",
    "prove",
    "read_artefact",
    "testing",
    "validate",
]


def _public(name: str) -> "Any":
    from importlib import import_module

    for home, names in _HOMES.items():
        if name in names.split():
            return globals().setdefault(name, getattr(import_module(home), name))
    if name in _MODULES:
        return import_module(_MODULES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Type checkers read the imports above; told of a `__getattr__`, they would accept any name.
if not TYPE_CHECKING:
    __getattr__ = _public


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
