"""What `strict=True` refuses."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.errors import HloSyntaxError
from hlo_lint.ir import HloFile, Problem
from hlo_lint.source import Span
from hlo_lint.strict.module import Seen, module_troubles


def strict_problems(file: HloFile) -> Iterator[Problem]:
    """Everything for which a file is refused, in the order of the text."""
    seen = Seen()
    lines = file.lines
    for module in file.modules:
        found = dict.fromkeys(module_troubles(module, seen))
        for message, start, end in sorted(found, key=lambda trouble: (trouble.start, trouble.end)):
            begin, stop = module.start + start, module.start + end
            yield Problem(message, Span(begin, stop), lines.position(begin), lines.position(stop))


def check_strict(file: HloFile) -> None:
    """Refuse a file at the first place that is wrong.

    Raises:
        HloSyntaxError: there.
    """
    for problem in strict_problems(file):
        raise HloSyntaxError(problem.message, problem.start, path=file.path, text=file.text)
