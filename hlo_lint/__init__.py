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

from hlo_lint.text.version import __version__ as __version__

if TYPE_CHECKING:
    from hlo_lint.analysis.rewrite import Rewrite
    from hlo_lint.apps.jax.capture.jit import (
        Capture,
        FindingsError,
        capture_jit,
        check_jit,
        compile_for,
    )
    from hlo_lint.dumps.directory import Dump, open_dump
    from hlo_lint.engine.api import FixResult, Report, emit, fix, lint, parse, parse_all
    from hlo_lint.engine.settings.load import load_settings
    from hlo_lint.engine.settings.settings import Settings
    from hlo_lint.engine.suppressions.allowances import Allowance
    from hlo_lint.hlo.ir import Computation, Instruction, Module
    from hlo_lint.rules.base import (
        AutotuningRuns,
        Bad,
        BeforeAutotuner,
        Compilation,
        DumpFolder,
        FinalModule,
        Findings,
        Form,
        Good,
        Rule,
        Stage,
    )
    from hlo_lint.rules.findings import Allowed, Diagnostic, Edit, Finding, Fix, Safety, Severity
    from hlo_lint.rules.options import Option
    from hlo_lint.text.errors import (
        CaptureError,
        ConfigError,
        DumpError,
        HloLintError,
        HloSyntaxError,
        RuleError,
        UsageError,
    )
    from hlo_lint.text.source import Span

_HOMES = {
    "hlo_lint.engine.suppressions.allowances": ("Allowance",),
    "hlo_lint.engine.api": (
        "FixResult",
        "Report",
        "emit",
        "fix",
        "lint",
        "parse",
        "parse_all",
    ),
    "hlo_lint.apps.jax.capture.jit": (
        "Capture",
        "FindingsError",
        "capture_jit",
        "check_jit",
        "compile_for",
    ),
    "hlo_lint.engine.settings.load": ("load_settings",),
    "hlo_lint.engine.settings.settings": ("Settings",),
    "hlo_lint.dumps.directory": (
        "Dump",
        "open_dump",
    ),
    "hlo_lint.text.errors": (
        "CaptureError",
        "ConfigError",
        "DumpError",
        "HloLintError",
        "HloSyntaxError",
        "RuleError",
        "UsageError",
    ),
    "hlo_lint.rules.findings": (
        "Allowed",
        "Diagnostic",
        "Edit",
        "Finding",
        "Fix",
        "Safety",
        "Severity",
    ),
    "hlo_lint.hlo.ir": (
        "Computation",
        "Instruction",
        "Module",
    ),
    "hlo_lint.analysis.rewrite": ("Rewrite",),
    "hlo_lint.rules.base": (
        "AutotuningRuns",
        "Bad",
        "BeforeAutotuner",
        "Compilation",
        "DumpFolder",
        "FinalModule",
        "Findings",
        "Form",
        "Good",
        "Rule",
        "Stage",
    ),
    "hlo_lint.rules.options": ("Option",),
    "hlo_lint.text.source": ("Span",),
}
"""Where the public names live. They are imported when asked for: pytest imports this package for
its plugin in every run, and most of these runs want nothing of it."""

__all__ = [
    "Allowance",
    "Allowed",
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
    "Form",
    "Good",
    "HloLintError",
    "HloSyntaxError",
    "Instruction",
    "Module",
    "Option",
    "Report",
    "Rewrite",
    "Rule",
    "RuleError",
    "Safety",
    "Settings",
    "Severity",
    "Span",
    "Stage",
    "UsageError",
    "capture_jit",
    "check_jit",
    "compile_for",
    "emit",
    "fix",
    "lint",
    "load_settings",
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
