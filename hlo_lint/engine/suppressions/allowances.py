"""Allowances in the settings: the findings that may stay, chosen by rule, name or path."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.engine.fingerprints import base_name
from hlo_lint.text.errors import UsageError
from hlo_lint.text.phrases import short_repr


@dataclass(frozen=True, slots=True, repr=False)
class Allowance:
    """A set of allowed findings, and the reason.

    A field that is None matches anything; a pattern has to match the whole name, as in shells: `*`
    matches anything, `?` a character, `[ab]` a or b.

    Raises:
        UsageError: the rule or the reason is missing.
    """

    rule: str
    """A rule or a family."""
    reason: str
    module: str | None = None
    """A pattern such as `jit_train*`; a number after a name is optional: `jit_f` covers
    `jit_f.12`."""
    computation: str | None = None
    op_name: str | None = None
    """A pattern for the op_name of metadata, such as `jit(step)/*/dot_general`."""
    path: str | None = None
    """A pattern for a file or a folder above it, from the root or any folder on, such as `old/`."""
    stated_in: str = "<allowances>"
    """The file that states it, for findings about it."""
    line: int = 1
    """The line in that file, counted from 1."""

    __repr__ = short_repr

    def __post_init__(self) -> None:
        if not self.rule.strip():
            raise UsageError(f"{self.stated_in}:{self.line}: an allowance needs a rule")
        if not self.reason.strip():
            raise UsageError(
                f"{self.stated_in}:{self.line}: the allowance of {self.rule} needs a reason"
            )

    def covers(self, finding: Diagnostic) -> bool:
        """True if module, computation, op_name and path match; the rule is ignored."""
        return (
            self.is_about(finding.path, (finding.module,))
            and _fits(finding.computation, self.computation)
            and (self.op_name is None or _matches(finding.op_name, self.op_name))
        )

    def is_about(self, path: str, modules: tuple[str, ...]) -> bool:
        """True if a file with these modules may have a covered finding."""
        if self.path is not None:
            written, pattern = PurePath(path).as_posix(), self.path
            pattern = pattern.removeprefix("./").removesuffix("/")
            forms = (pattern, f"*/{pattern}", f"{pattern}/*", f"*/{pattern}/*")
            if not any(fnmatchcase(written, form) for form in forms):
                return False
        return any(_fits(module, self.module) for module in modules)

    def __str__(self) -> str:
        patterns = {
            "module": self.module,
            "computation": self.computation,
            "op_name": self.op_name,
            "path": self.path,
        }
        given = [f"{name} {pattern}" for name, pattern in patterns.items() if pattern is not None]
        return f"{self.rule} of {', '.join(given)}" if given else self.rule


def _fits(name: str | None, pattern: str | None) -> bool:
    if pattern is None:
        return True
    return _matches(name, pattern) or (name is not None and _matches(base_name(name), pattern))


def _matches(name: str | None, pattern: str) -> bool:
    return name is not None and fnmatchcase(name, pattern)
