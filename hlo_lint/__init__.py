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
from hlo_lint.dumps.directory import Dump, open_dump
from hlo_lint.errors import DumpError, HloLintError, HloSyntaxError, RuleError, UsageError
from hlo_lint.findings import Allowed, Diagnostic, Edit, Finding, Fix, Safety, Severity
from hlo_lint.ir import Computation, Instruction, Module
from hlo_lint.rule import Form, Rule

__version__ = "0.1.0"

__all__ = [
    "Allowance",
    "Allowed",
    "Computation",
    "Diagnostic",
    "Dump",
    "DumpError",
    "Edit",
    "Finding",
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
    "emit",
    "fix",
    "lint",
    "open_dump",
    "parse",
    "parse_all",
]
