"""A crash of a rule or of a reader is a finding, and the run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from hlo_lint import Diagnostic, Finding, Findings, Good, Instruction, Module, Rule, lint
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.hlo.ir import Computation, HloFile
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.formats import FORMATS, render
from hlo_lint.rules.findings import INTERNAL_ERROR
from hlo_lint.text.edits import Fix
from tests.conftest import written

TEXT = """HloModule m

%first (q: f32[4]) -> f32[4] {
  ROOT %q = f32[4]{0} parameter(0)
}

%second (q: f32[4]) -> f32[4] {
  ROOT %q = f32[4]{0} parameter(0)
}

ENTRY %e (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %c = f32[4]{0} call(%p), to_apply=%first
  ROOT %d = f32[4]{0} call(%c), to_apply=%second
}
"""


class CrashesInTheSecond(Rule):
    """A rule that finds each parameter, and crashes after that of one computation."""

    examples = (Good("HloModule m"),)

    def check(self, computation: Computation) -> Findings:
        """Each parameter."""
        for parameter in computation.with_opcode("parameter"):
            yield Finding(parameter, f"a parameter of {computation.name}")
        if computation.name == "second":
            raise ZeroDivisionError("\x1b[31mdivision by zero")


class CrashesInItsFix(Rule):
    """A rule whose fix crashes."""

    examples = (Good("HloModule m"),)

    def check(self, module: Module) -> Findings:
        """The root."""
        assert module.entry is not None
        assert module.entry.root is not None
        yield Finding(module.entry.root, "the root", fixable=True)

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Nothing."""
        raise RecursionError


class CrashesOnText(Rule):
    """A rule that crashes on any file."""

    examples = (Good("HloModule m"),)

    def check(self, file: HloFile) -> Findings:
        """Nothing."""
        raise AssertionError(f"text of {len(file.text)} characters")


def _crashes(findings: tuple[Diagnostic, ...]) -> list[str]:
    return [finding.message for finding in findings if finding.rule == INTERNAL_ERROR]


def test_a_crash_is_reported_beside_all_other_findings() -> None:
    report = lint(TEXT, [CrashesInTheSecond, CrashesInItsFix, "verifier"])
    assert _crashes(report.findings) == [
        "crashes-in-the-second crashed: ZeroDivisionError: \\x1b[31mdivision by zero",
        "crashes-in-its-fix crashed: RecursionError",
    ]
    others = {finding.message for finding in report.findings if finding.rule != INTERNAL_ERROR}
    assert {f"a parameter of {name}" for name in ("first", "second", "e")} <= others
    assert report.exit_status == 2


def test_a_crash_says_where_it_was_and_asks_for_a_report() -> None:
    (finding,) = lint(TEXT, [CrashesOnText]).findings
    subject, place, request = finding.notes
    assert subject.startswith("on <")
    assert place.startswith("at test_internal_errors.py:")
    assert "check" in place
    assert "please report it with the file: https://" in request


def test_a_crash_is_reported_whatever_is_suppressed(tmp_path: Path) -> None:
    path = written(tmp_path / "m.hlo", f"// hlo-lint: allow-file crashes-on-text -- noise\n{TEXT}")
    settings = Settings(per_path_ignores={"*": (INTERNAL_ERROR,)})
    assert _crashes(lint(path, [CrashesOnText], settings=settings).findings)


@pytest.mark.slow
def test_a_crash_in_a_worker_process_reaches_the_report(tmp_path: Path) -> None:
    for number in range(3):
        name = f"module_000{number}.jit_f{number}.before_optimizations.txt"
        (tmp_path / name).write_text(TEXT + f"// {number}\n")
    report = lint(tmp_path, [CrashesOnText], settings=Settings(jobs=2, cache=True))
    assert len(_crashes(report.findings)) == 3
    again = lint(tmp_path, [CrashesOnText], settings=Settings(jobs=1, cache=True))
    assert _crashes(again.findings) == _crashes(report.findings)


@pytest.mark.parametrize("name", list(FORMATS))
def test_every_format_shows_a_crash(name: str) -> None:
    assert "crashes-on-text crashed" in render(lint(TEXT, [CrashesOnText]), name)


def test_a_parser_crash_leaves_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hlo_lint.dumps import pass_dump

    read = parse_file

    def crash(data: bytes | str, path: Path | None = None, memo: object = None) -> HloFile:
        if path is not None and path.name == "a.hlo":
            raise IndexError("list index out of range")
        return read(data, path)

    monkeypatch.setattr(pass_dump, "parse_file", crash)
    for name in ("a.hlo", "b.hlo"):
        (tmp_path / name).write_text(TEXT)
    report = lint(tmp_path, [CrashesInTheSecond])
    assert _crashes(report.findings)[0] == "the parser crashed: IndexError: list index out of range"
    assert {Path(finding.path).name for finding in report.findings} == {"a.hlo", "b.hlo"}
