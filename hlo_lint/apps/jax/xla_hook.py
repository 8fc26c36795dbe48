"""The hook in a running compile: the program that it fixes is the program that runs.

    from hlo_lint import live

    with live.install("fix"):
        jax.jit(f)(x)

XLA hands every module over at its stage PRE_SCHEDULER. XLA:CPU does so after fusion, right before
scheduling. XLA:GPU of jax 0.11.2 does so before layout assignment, GEMM rewriting and fusion: a fix
acts before those passes, and their results are not checked. Rules that need layouts, fusions, a
schedule, a buffer assignment or the pass pipeline do not apply there, so a compile without findings
proves little; lint a dump for those rules. Needs jax 0.10.2 or later (0.11 for compiling ahead of
time). Programs that come from a compilation cache are not compiled, so they are not checked.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint.apps.api import lint
from hlo_lint.apps.fixes import FixResult, fix
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.targets import final_dump
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.report import Report
from hlo_lint.rules.base import Rule
from hlo_lint.rules.findings import Severity
from hlo_lint.rules.registry import select_rules
from hlo_lint.text.errors import HloLintError, UsageError
from hlo_lint.xla.bindings import long_text
from hlo_lint.xla.pjrt import module_of_text

if TYPE_CHECKING:  # loaded with the first proof
    from hlo_lint.engine.proof.gate import Verdict

_numbers = count()


class Action(StrEnum):
    """The reaction to a module with findings."""

    WARN = "warn"
    """Errors and warnings become a `LiveWarning`."""
    RAISE = "raise"
    """Errors stop the compilation: jax raises, with the `LiveError` in its text."""
    FIX = "fix"
    """XLA goes on with the fixed module; a finding without a fix becomes a `LiveWarning`."""


class LiveWarning(UserWarning):
    """Findings in a module while it was compiled."""


class LiveError(HloLintError):
    """An error was found in a module while it was compiled."""


@dataclass
class Live(AbstractContextManager["Live"]):
    """Checks that are installed until `remove`, or until the end of a `with`."""

    action: Action
    select: Sequence[str | type[Rule]] | None = None
    ignore: Sequence[str] | None = None
    platforms: Sequence[str] | None = None
    verify: bool = False
    """True to apply, with `Action.FIX`, only fixes that are proven."""
    settings: Settings | None = None
    """Further settings of the checks: severities, options of rules, allowances."""
    reports: list[tuple[str, Report]] = field(default_factory=list)
    """The report on each module, under the module's name, in the order of compilation; with
    `Action.FIX`, on the module before its fixes."""
    mended: list[FixResult] = field(default_factory=list)
    """The fixes of the modules that were changed."""
    name: str = field(default_factory=lambda: f"hlo_lint_{next(_numbers)}")
    """The name of the pass in XLA's list."""

    def __call__(self, proto: bytes) -> bytes | None:
        """Check a serialized HloModuleProto; returns the fixed module, or None without a fix.

        Raises:
            LiveError: for an error, with `Action.RAISE`.
        """
        text = long_text(proto)
        file = parse_file(text)
        name = file.modules[0].name
        # A module with fusions comes from XLA:CPU, after its last pass. The stage of any other is
        # inferred from its text: XLA:GPU hands it over before layouts are assigned.
        fused = any("fusion" in computation.opcodes for computation in file.modules[0].computations)
        file.path = Path(f"<{name}>{'.after_optimizations' if fused else ''}.txt")
        target = final_dump(file) if fused else file
        report = lint(target, self.select, self.ignore, settings=self.settings)
        self.reports.append((name, report))
        is_wrong = any(finding.severity is Severity.ERROR for finding in report.findings)
        if self.action is Action.RAISE and is_wrong:
            raise LiveError(f"hlo_lint stops the compilation of {name}\n{report}")
        if self.action is not Action.FIX or not report.findings:
            _warn(name, report)
            return None
        result = fix(target, self.select, self.ignore, settings=self.settings, verify=self.verify)
        _warn(name, result.remaining, [v for v in result.verdicts if not v.passes])
        if not result.edits:
            return None
        fixed = module_of_text(result.files[0].after.encode())
        self.mended.append(result)
        return fixed

    def remove(self) -> None:
        """Stop checking; later compilations are not looked at."""
        from jax.extend.xla import clear_hlo_module_transformation

        clear_hlo_module_transformation(self.name, platforms=self.platforms)

    def __exit__(self, *_: object) -> None:
        self.remove()


def install(
    action: Action | str = Action.WARN,
    select: Sequence[str | type[Rule]] | None = None,
    ignore: Sequence[str] | None = None,
    *,
    platforms: Sequence[str] | None = None,
    verify: bool = False,
    settings: Settings | None = None,
) -> Live:
    """Check every module that is compiled from here on, for all platforms or for `platforms`.

    `settings` are those of a settings file (`hlo_lint.load_settings` reads it).

    With `verify`, a fix that is not proven to keep every value is refused: the module goes on
    without it, and the warning gives the reason.

    Raises:
        UsageError: for an unknown rule or action, and for a jax without the hook.
    """
    try:
        chosen = Action(action)
    except ValueError:
        raise UsageError(f"no action is named {action}; there are {', '.join(Action)}") from None
    select_rules(select, ignore)
    try:
        from jax.extend.xla import register_hlo_module_transformation
    except ImportError as error:
        raise UsageError("hlo_lint.apps.jax.xla_hook needs jax 0.10.2 or later") from error
    live = Live(chosen, select, ignore, platforms, verify, settings)
    register_hlo_module_transformation(live, name=live.name, platforms=platforms)
    return live


def _warn(name: str, report: Report, refused: Sequence[Verdict] = ()) -> None:
    if not report.clean or refused:
        reasons = "".join(f"\n{verdict}" for verdict in refused)
        message = f"hlo_lint, in the compilation of {name}:\n{report}{reasons}"
        warnings.warn(message, LiveWarning, 1)
