"""Limits of a run: what they cut is in the report, and in the exit status."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
from click.testing import Result

from hlo_lint import Settings, lint
from hlo_lint.hlo.ir import Module
from hlo_lint.report.formats import FORMATS, render
from hlo_lint.rules.base import Findings, Rule
from hlo_lint.rules.findings import Finding
from tests.commands import invoke
from tests.conftest import written

PARAMETERS = "".join(f"  %p.{n} = f32[4]{{0}} parameter({n})\n" for n in range(2))


def _errors(count: int) -> str:
    """A module in which each sum has another shape than its operands."""
    sums = "".join(f"  %s.{n} = f32[5]{{0}} add(%p.0, %p.1)\n" for n in range(count))
    return f"HloModule m\n\nENTRY e {{\n{PARAMETERS}{sums}  ROOT %r = f32[4]{{0}} copy(%p.0)\n}}\n"


def _check(path: Path, *arguments: str) -> Result:
    return invoke("check", "--no-cache", *arguments, path)


def test_findings_beyond_the_limit_are_counted_and_not_printed() -> None:
    report = lint(_errors(12), ["wrong-result-shape"], settings=Settings(max_findings=10))
    assert len(report.findings) == 10
    assert report.stats["errors"] == 12
    (left_out,) = report.skipped
    assert left_out.reason == "2 errors more of wrong-result-shape (max-findings)"
    assert report.exit_status == 1


@pytest.mark.parametrize("name", sorted(FORMATS.keys() - {"concise", "github", "gitlab", "rdjson"}))
def test_formats_with_room_for_it_say_what_was_left_out(name: str) -> None:
    report = lint(_errors(12), ["wrong-result-shape"], settings=Settings(max_findings=10))
    assert "2 errors more of wrong-result-shape" in render(report, name)


def test_the_command_reports_the_first_thousand_findings_of_a_rule(tmp_path: Path) -> None:
    path = written(tmp_path / "m.hlo", _errors(1001))
    done = _check(path, "--select", "wrong-result-shape", "--output-format", "concise")
    assert done.stdout.count("wrong-result-shape") == 1000
    done = _check(path, "--select", "wrong-result-shape")
    assert "1 error more of wrong-result-shape (max-findings)" in done.stdout
    assert "1,001 errors in 1 file" in done.stdout.replace("1001", "1,001")


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "hlo_lint.toml").write_text("max-megabytes = 1\n")
    path = tmp_path / "m.hlo"
    with path.open("wb") as file:
        file.truncate(1 << 34)
    done = _check(path)
    assert "17180 MB, more than 1 (max-megabytes)" in done.stdout
    assert done.exit_code == 2


def test_a_file_that_nests_deeper_than_the_limit_is_not_checked() -> None:
    text = _errors(1).replace("copy(%p.0)", "copy(%p.0), x={{{{}}}}")
    assert not lint(text, settings=Settings(max_nesting=5)).skipped
    report = lint(text, settings=Settings(max_nesting=4))
    (left_out,) = report.skipped
    assert left_out.reason == "brackets nest deeper than 4 (max-nesting)"
    assert not report.findings
    assert report.exit_status == 2


def test_rules_end_when_their_time_is_over() -> None:
    report = lint(_errors(3), settings=Settings(max_seconds=0))
    assert [entry.reason for entry in report.skipped] == [
        "not every rule was checked in 0 s (max-seconds)"
    ]
    assert report.exit_status == 2


class NeverDone(Rule):
    """A rule without an end, which takes whatever happens for a miss."""

    examples = ()

    def check(self, module: Module) -> Findings:
        """Nothing, for ever."""
        while module.computations:
            try:
                sum(range(1000))
            except Exception:
                continue
        yield Finding(module.computations[0].instructions[0], "never")


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals are those of POSIX")
def test_the_time_ends_a_rule_at_its_work() -> None:
    begun = time.process_time()
    report = lint(_errors(1), [NeverDone, "wrong-result-shape"], settings=Settings(max_seconds=1))
    assert time.process_time() - begun < 2
    assert "not every rule was checked in 1 s (max-seconds)" in [
        entry.reason for entry in report.skipped
    ]
    assert report.exit_status == 2
    assert signal.getsignal(signal.SIGPROF) is signal.SIG_DFL


@pytest.mark.parametrize(
    "value",
    ["-" + "9" * 40, "-" + "9" * 5000, "9" * 5000, "0x" + "f" * 9000, "2147483648", "0", "nan"],
)
@pytest.mark.parametrize(
    "key", ["jobs", "max-findings", "max-megabytes", "max-nesting", "max-seconds"]
)
def test_a_number_of_any_length_is_one_error(tmp_path: Path, key: str, value: str) -> None:
    (tmp_path / "hlo_lint.toml").write_text(f"{key} = {value}\n")
    path = written(tmp_path / "m.hlo", _errors(1))
    done = _check(path)
    assert done.exit_code == 2
    assert done.stderr.startswith("Error: ")
    assert "internal error" not in done.stderr
    assert len(done.stderr) < 300


@pytest.mark.parametrize("value", ["9" * 5000, "-1", "0", "2147483648", "1.5", "two", "x" * 9000])
def test_a_wrong_number_of_processes_is_one_error(tmp_path: Path, value: str) -> None:
    path = written(tmp_path / "m.hlo", _errors(1))
    done = _check(path, f"--jobs={value}")
    assert done.exit_code == 2
    assert "is neither auto nor a whole number from 1" in done.stderr


def test_an_option_of_a_rule_has_64_bits(tmp_path: Path) -> None:
    (tmp_path / "hlo_lint.toml").write_text(
        f"[rules.reshape-runs-as-kernel]\nmin-bytes = 0x{'f' * 100}\n"
    )
    done = _check(tmp_path)
    assert "takes a whole number of at least 0" in done.stderr


def test_a_file_without_an_end_is_refused() -> None:
    done = _check(Path("/dev/zero"))
    assert done.exit_code == 2
    assert "it is a device, not a file" in done.stderr
