"""Mistakes that are seen without jaxlib: XLA refuses each of them, and reads none of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.rules.findings import Severity
from tests.conftest import BROKEN, DUMPS, ROUNDTRIP, UNSOUND, hlo_files
from tests.texts import entry

RULE = ["malformed-text"]
F = "f {\n  ROOT a = s8[] parameter(0)\n}\n"


def record(folder: Path) -> dict[str, dict[str, object]]:
    """The verdict of each release of XLA's parser on the texts of a folder."""
    found = json.loads((folder / "WHAT_XLA_READS.json").read_text())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("folder", [ROUNDTRIP, UNSOUND], ids=lambda folder: folder.name)
def test_nothing_that_xla_reads_is_malformed(folder: Path) -> None:
    read = {name for name, verdicts in record(folder).items() if "read" in verdicts.values()}
    report = hlo_lint.lint([str(folder / name) for name in sorted(read)], RULE)
    assert [str(finding) for finding in report.findings] == []


@pytest.mark.slow
def test_nothing_in_a_real_dump_is_malformed() -> None:
    report = hlo_lint.lint([str(path) for path in hlo_files(DUMPS)], RULE)
    assert [str(finding) for finding in report.findings] == []


def test_of_four_broken_texts_three_are_found_without_jaxlib() -> None:
    findings = hlo_lint.lint(BROKEN).findings
    found = {Path(each.path).name for each in findings if each.severity is not Severity.INFO}
    silent = record(BROKEN).keys() - found
    # What is left is said in the rule's page: constants, names, stack frames, rare words.
    assert len(silent) <= len(record(BROKEN)) // 4, sorted(silent)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("  n = f32[4]{0} call(p), to_apply=f", "computation %f does not exist"),
        ("  n = f32[4]{0} call(p), to_apply=e", "computation %e is called before it is defined"),
        ("  n = f32[4]{0} negate(p), dimensions={0}", "negate has no attribute dimensions"),
        ("  n = s8[] constant(200)", "200 is out of range for s8: -128 to 127"),
        ("  n = f32[] constant(.5)", "expected a number, got .5"),
        ("  n = constant(1)", "constant needs a type: its operands do not determine it"),
        ("  n = f32[1] slice(p), slice={[0:1]}, slice={[0:2]}", "duplicate attribute slice"),
        ("  n = f32[4,]{0} copy(p)", "f32[4,]{0}: expected a size"),
        ("  n = pred[4] compare(p, p), direction=LESS", "unknown direction: LESS"),
        ("  n = f32[4] fft(p), fft_type=FFT, fft_length={x}", "fft_length: expected a list of"),
    ],
)
def test_a_person_can_act_on_what_is_said(line: str, says: str) -> None:
    text = entry(f"  p = f32[4]{{0}} parameter(0)\n{line}")
    (finding,) = hlo_lint.lint(text, RULE).findings
    assert finding.line == 5
    assert says in finding.message


@pytest.mark.parametrize(
    ("line", "underlined"),
    [
        ("  f23 = f23[4]{0} negate(p)", "f23[4]"),
        ("  ad = f32[4]{0} ad(p, p)", "ad(p, p)"),
        ("  n = f32[4]{0} negate(p), dimension={0}", "dimension={0}"),
        ("  n = pred[4] compare(p, p), direction=LESS", "LESS"),
        ("  n = f32[4,]{0} copy(p)", "f32[4,]{0} copy"),
        ("  n = f32[4]{0} call(p), to_apply=nope", "nope"),
        ("  n = f32[4]{0} negate(p), dimensions={0}", "dimensions={0}"),
        ("  n = constant(1)", "constant(1)"),
    ],
)
def test_the_caret_is_under_the_word(line: str, underlined: str) -> None:
    text = entry(f"  p = f32[4]{{0}} parameter(0)\n{line}")
    (finding,) = hlo_lint.lint(text, ["form"]).findings
    assert line[finding.column - 1 :].startswith(underlined)


@pytest.mark.parametrize("text", ["is_schedule", "is_scheduled=true, is_schedule"])
def test_the_caret_is_under_the_word_of_a_header(text: str) -> None:
    header = f"HloModule is_schedule, {text}=true"
    (finding,) = hlo_lint.lint(f"{header}\n\nENTRY {F}", RULE).findings
    assert header[finding.column - 1 :] == "is_schedule=true"


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("HloModule m\n", 1, "a module needs a computation"),
        ("HloModule m, replica_count=1, replica_count=1\n", 1, "duplicate attribute replica_count"),
        ("HloModule m, is_schedule=true\n", 1, "unknown attribute: is_schedule"),
        ("HloModule m\n\nENTRY e {\n}\n", 3, "%e has no instructions"),
        (f"HloModule m\n\n{F}{F}", 6, "computation already exists: %f"),
        (f"HloModule m\n\nENTRY {F}ENTRY g {F[2:]}", 6, "expected only one ENTRY"),
        (f"HloModule m\n\nf () -> s32[] {F[2:]}", 3, "the signature's result is s32[], but the"),
    ],
)
def test_headers_and_computations_are_looked_at(text: str, line: int, says: str) -> None:
    findings = hlo_lint.lint(text, RULE).findings
    assert any(each.line == line and says in each.message for each in findings)


@pytest.mark.parametrize(
    ("word", "note"),
    [
        *(("ad", "did you mean add?"), ("Add", "did you mean add?")),
        *(("ad-start", "did you mean add-start?"), ("rehsape", "did you mean reshape?")),
        ("entangle", "no release of XLA has it"),
    ],
)
def test_an_unknown_opcode_is_an_error_that_names_the_nearest(word: str, note: str) -> None:
    text = entry(f"  p = f32[8] parameter(0)\n  ROOT r = f32[8] {word}(p, p)")
    (found,) = hlo_lint.lint(text, ["unknown-word"], stage="pre-layout").findings
    assert found.severity is Severity.ERROR
    assert found.notes == (note,)
