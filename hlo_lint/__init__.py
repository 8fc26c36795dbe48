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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hlo_lint.api import FixResult, Report, emit, fix, lint, parse, parse_all
    from hlo_lint.capture.jit import Capture, FindingsError, capture_jit, check_jit, compile_for
    from hlo_lint.dumps.directory import Dump, open_dump
    from hlo_lint.errors import (
        CaptureError,
        DumpError,
        HloLintError,
        HloSyntaxError,
        RuleError,
        UsageError,
    )
    from hlo_lint.findings import Diagnostic, Edit, Finding, Fix, Safety, Severity
    from hlo_lint.ir import Computation, Instruction, Module
    from hlo_lint.rule import Form, Rule

__version__ = "0.1.0"

_HOMES = {
    "hlo_lint.api": ("FixResult", "Report", "emit", "fix", "lint", "parse", "parse_all"),
    "hlo_lint.capture.jit": (
        "Capture",
        "FindingsError",
        "capture_jit",
        "check_jit",
        "compile_for",
    ),
    "hlo_lint.dumps.directory": ("Dump", "open_dump"),
    "hlo_lint.errors": (
        "CaptureError",
        "DumpError",
        "HloLintError",
        "HloSyntaxError",
        "RuleError",
        "UsageError",
    ),
    "hlo_lint.findings": ("Diagnostic", "Edit", "Finding", "Fix", "Safety", "Severity"),
    "hlo_lint.ir": ("Computation", "Instruction", "Module"),
    "hlo_lint.rule": ("Form", "Rule"),
}
"""Where the public names live. They are imported when asked for: pytest imports this package for
its plugin in every run, and most of these runs want nothing of it."""

__all__ = [
    "Capture",
    "CaptureError",
    "Computation",
    "Diagnostic",
    "Dump",
    "DumpError",
    "Edit",
    "Finding",
    "FindingsError",
    "Fix",
    "FixResult",
    "Form",
    "HloLintError",
    "HloSyntaxError",
    "Instruction",
    "Module",
    "Report",
    "Rule",
    "RuleError",
    "Safety",
    "Severity",
    "UsageError",
    "capture_jit",
    "check_jit",
    "compile_for",
    "emit",
    "fix",
    "lint",
    "open_dump",
    "parse",
    "parse_all",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return globals().setdefault(name, getattr(import_module(home), name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
