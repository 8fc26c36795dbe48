"""Test the examples of a rule in any test suite.

    def test_the_examples_of_the_rule() -> None:
        check_examples(WideConcatenate)

A failure is an `AssertionError` with the example and the findings in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from inspect import cleandoc
from pathlib import Path
from tempfile import TemporaryDirectory

from hlo_lint.apps.api import lint
from hlo_lint.apps.asking import refusals
from hlo_lint.apps.fixes import fix
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.validation import validate
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.rules.base import Bad, Good, Rule

__all__ = ["check_example", "check_examples", "check_page", "write_example"]

_ENDINGS = {"HloModule": "hlo", ".entry": "ptx", "instruction_profiles": "textproto"}
"""The file ending of an example, by a word of its text; the default is `log`."""
_STEM = "module_0001.example.sm_9.0_gpu_after_optimizations"


def check_examples(rule: type[Rule]) -> None:
    """Check a rule's page and all its examples.

    Raises:
        AssertionError: at the first failure.
    """
    check_page(rule)
    for example in rule.examples:
        check_example(rule, example)


def check_page(rule: type[Rule]) -> None:
    """Check that a rule's docstring and examples are complete.

    Raises:
        AssertionError: the page has no summary of one sentence, no `## Why`, no bad or no good
            example, or a `## Fix` that no example shows.
    """
    name = rule.name()
    _expect(rule.summary().endswith("."), f"{name}: the docstring's first line ends with no stop")
    _expect(". " not in rule.summary(), f"{name}: the docstring's first line is not one sentence")
    _expect("## Why" in rule.page(), f"{name}: the docstring has no `## Why`")
    for example_type in (Bad, Good):
        shown = any(isinstance(example, example_type) for example in rule.examples)
        _expect(shown, f"{name}: there is no {example_type.__name__} example")
    if rule.fixable() != ("## Fix" in rule.page()):
        missing = "the docstring has no `## Fix`" if rule.fixable() else "no example shows a fix"
        raise AssertionError(f"{name}: {missing}")


def check_example(rule: type[Rule], example: Bad | Good) -> None:
    """Check that a rule reports the marked lines of an example, and fixes them as shown.

    Raises:
        AssertionError: the findings or the fixed text differ, a second check differs, or a message
            ends with a full stop.
    """
    place = _title(rule, example)
    wanted = example.marked if isinstance(example, Bad) else []
    _expect(isinstance(example, Good) or bool(wanted), f"{place} marks no line with `// error`")
    with TemporaryDirectory() as folder:
        path = write_example(example, Path(folder))
        findings = _reported(rule, path)
        marked = ", ".join(map(str, wanted)) or "none"
        lines = [finding.line for finding in findings]
        listed = _listed(findings) or " none"
        _expect(lines == wanted, f"{place} marks the lines {marked}; found:{listed}")
        repeated = _reported(rule, path)
        _expect(findings == repeated, f"{place}: the second check said something else")
        for finding in findings:
            message = finding.message
            _expect(bool(message), f"{place}: line {finding.line} has no message")
            _expect(not message.endswith("."), f"{place}: a full stop ends {message!r}")
        if isinstance(example, Bad) and example.fixed:
            _check_fix(rule, example, path, place)


def _reported(rule: type[Rule], path: Path) -> tuple[Diagnostic, ...]:
    """The findings of a rule, from its command."""
    if rule.command == "validate":
        return validate(path).report.findings
    if rule.command == "check --ask-xla":
        return tuple(refusals(open_dump(path))[0])
    return lint(path, [rule], None, _demanding(rule)).findings


def _demanding(rule: type[Rule]) -> str | None:
    """The pass whose precondition the rule checks, if any."""
    return rule.precondition.demanded_by if rule.precondition else None


def _listed(findings: Iterable[Diagnostic]) -> str:
    return "".join(f"\n  {finding.line}: {finding.message}" for finding in findings)


def _check_fix(rule: type[Rule], example: Bad, path: Path, place: str) -> None:
    before = _demanding(rule)
    chosen = Settings(rules={rule.name(): dict(example.options)})
    old = Counter(finding.rule for finding in lint(path, None, None, before).findings)
    fixed = fix(path, [rule], None, before, settings=chosen, unsafe_fixes=True)
    if fixed.text != example.fixed_source:
        from difflib import unified_diff

        expected, actual = (text.splitlines(True) for text in (example.fixed_source, fixed.text))
        differs = "".join(unified_diff(expected, actual, "example", "fix"))
        raise AssertionError(f"{place}: the fix gives another text\n{differs}")
    _expect(fixed.remaining.clean, f"{place}: the fix leaves{_listed(fixed.findings)}")
    for file in fixed.files:
        if file.path is not None:
            file.path.write_text(file.after, "utf-8")
    new = lint(path, None, None, before).findings
    added = Counter(finding.rule for finding in new if finding.rule != rule.name()) - old
    listed = _listed(finding for finding in new if finding.rule in added)
    _expect(not added, f"{place}: the fix introduces {', '.join(added)}{listed}")


def write_example(example: Bad | Good, folder: Path) -> Path:
    """Write an example as in a dump directory, and return the path to check.

    The example's other files are written beside it, under the names that XLA gives them.
    """
    if example.file:
        (folder / example.file).write_text(example.source, "utf-8")
        for name, text in example.others.items():
            (folder / name).write_text(text + "\n", "utf-8")
        return folder
    if not example.artefacts:
        endings = [ending for mark, ending in _ENDINGS.items() if mark in example.source]
        path = folder / f"example.{endings[0] if endings else 'log'}"
        path.write_text(example.source, "utf-8")
        return path
    (folder / f"{_STEM}.txt").write_text(example.source, "utf-8")
    for ending, text in example.artefacts.items():
        (folder / f"{_STEM}{ending}").write_text(cleandoc(text) + "\n", "utf-8")
    return folder


def _title(rule: type[Rule], example: Bad | Good) -> str:
    """`wide-concatenate: bad example 2 (HloModule pads)`."""
    same_type = [shown for shown in rule.examples if type(shown) is type(example)]
    number = next(n for n, shown in enumerate(same_type, 1) if shown is example)
    first = example.source.partition("\n")[0].partition(",")[0]
    return f"{rule.name()}: {type(example).__name__.lower()} example {number} ({first[:60]})"


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise AssertionError(otherwise)
