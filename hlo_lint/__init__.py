"""Finds what one XLA pass broke for another, in dumped HLO, and fixes it.

import hlo_lint

report = hlo_lint.lint("xla_dump/")          # every module, every rule
print(report)                                # as the command line prints
for finding in report.findings:
    print(finding.path, finding.line, finding.rule, finding.introduced_by)

fixed = hlo_lint.fix(text, before="layout_normalization")
module = hlo_lint.parse(fixed.text)          # a graph; hlo_lint.emit(module) == fixed.text
"""

from hlo_lint.allow.allowances import Allowance
from hlo_lint.api import FixResult, Report, emit, fix, lint, parse, parse_all
from hlo_lint.configuration.load import load as load_settings
from hlo_lint.configuration.settings import Settings
from hlo_lint.dumps.directory import Dump, open_dump
from hlo_lint.errors import (
    ConfigError,
    DumpError,
    HloLintError,
    HloSyntaxError,
    RuleError,
    UsageError,
)
from hlo_lint.findings import Allowed, Diagnostic, Edit, Finding, Fix, Safety, Severity
from hlo_lint.ir import Computation, Instruction, Module
from hlo_lint.rewrite import Rewrite
from hlo_lint.rule import (
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
from hlo_lint.rule_options import Option
from hlo_lint.source import Span
from hlo_lint.version import __version__ as __version__

__all__ = [
    "Allowance",
    "Allowed",
    "AutotuningRuns",
    "Bad",
    "BeforeAutotuner",
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
    "emit",
    "fix",
    "lint",
    "load_settings",
    "open_dump",
    "parse",
    "parse_all",
]
