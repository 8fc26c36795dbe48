"""Every format of a report, read by what others read it with."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import jsonschema
import pytest
from junitparser import JUnitXml
from markdown_it import MarkdownIt

import hlo_lint
from hlo_lint import Diagnostic, Severity, lint
from hlo_lint.apps.cli.printing import ReportOptions, output_report
from hlo_lint.apps.examples import write_example_dump
from hlo_lint.engine.findings import PassRef, SourceLine, SuppressedBy, SuppressedFinding
from hlo_lint.report import markdown, sarif
from hlo_lint.report.formats import FORMATS, NO_ROOM, render
from hlo_lint.report.groups import grouped
from hlo_lint.report.report import Report
from hlo_lint.report.statistics import counts, render_statistics
from hlo_lint.text.errors import UsageError
from hlo_lint.text.source import decode
from tests.conftest import CRASH, DUMPS, FIXTURES, ROOT, completed
from tests.docs import crash_as, golden
from tests.texts import entry

pytestmark = pytest.mark.slow

SCHEMAS = FIXTURES / "schemas"
MOVES = entry("""
  %p = f32[8,3]{1,0} parameter(0)
  ROOT %r = f32[4,2,3]{0,1,2} reshape(%p), metadata={op_name="NAME"}
""")
EVIL = (
    "</script><img src=x onerror=alert(1)> ]]> \r\n::error::forged\n::add-mask::a%0Ab "
    "\x1b[31m\x00\x85\u2028\u202e\udce9\ud800\ufffe "
    "````\n```\n# [link](https://example.org) `|` <b>"
)
"""Texts in a dump that could attack each of those that read a report."""


@pytest.fixture(scope="module")
def crash() -> Report:
    return hlo_lint.lint(CRASH)


@pytest.fixture(scope="module")
def everything() -> Report:
    """Findings of every severity, and what was skipped."""
    return hlo_lint.lint(DUMPS, resolved=True)


@pytest.fixture(scope="module")
def evil(crash: Report) -> Report:
    """The crash, had all names in the dump been chosen by somebody with bad intent."""
    (finding,) = crash.findings
    assert finding.fix is not None
    (edit,) = finding.fix.edits
    fields = "message module computation instruction excerpt pipeline op_name"
    named: dict[str, Any] = dict.fromkeys(fields.split(), EVIL)
    found = replace(
        finding,
        **named,
        path=f"{EVIL}.txt",
        introduced_by=PassRef(EVIL, EVIL, 7, EVIL),
        resolved_by=PassRef(EVIL, EVIL, None, EVIL),
        origin=SourceLine(EVIL, 3, EVIL),
        notes=(EVIL, EVIL),
        fix=finding.fix._replace(title=EVIL, edits=(edit._replace(text=EVIL),)),
    )
    severities = (replace(found, severity=severity) for severity in Severity)
    skipped = tuple(each._replace(path=EVIL, reason=EVIL) for each in crash.skipped)
    allowed = SuppressedFinding(found, EVIL, SuppressedBy.CONFIGURATION)
    return Report(tuple(severities), skipped, crash.stats, (allowed,))


@pytest.fixture(scope="module")
def clean() -> Report:
    return hlo_lint.lint("HloModule m\n\nENTRY e {\n  ROOT p = f32[8]{0} parameter(0)\n}\n")


def moving(path: Path, name: str = "x", newline: str = "\n") -> Report:
    """The findings in a file whose reshape moves bytes."""
    text = MOVES.replace("NAME", name).replace("\n", newline)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return hlo_lint.lint(path, before="layout_normalization")


def fixed(path: Path) -> str:
    return hlo_lint.fix(path, before="layout_normalization").text


# All formats


@pytest.mark.parametrize("name", FORMATS)
def test_the_golden_output_is_fresh(name: str) -> None:
    assert golden(name).read_bytes() == crash_as(name).encode(), "run `make docs`, and read it"


@pytest.mark.parametrize("name", FORMATS)
def test_the_program_prints_what_the_format_says(name: str) -> None:
    command = [sys.executable, "-m", "hlo_lint", "check", str(CRASH.relative_to(FIXTURES))]
    outputs = set()
    for seed in ("0", "1"):
        done = subprocess.run(
            [*command, "--output-format", name],
            capture_output=True,
            cwd=FIXTURES,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        )
        assert (done.returncode, done.stderr) == (1, b"")
        outputs.add(done.stdout)
    assert outputs == {golden(name).read_bytes()}


@pytest.mark.parametrize("name", FORMATS)
def test_whatever_a_dump_says_output_is_utf_8_no_terminal_obeys(name: str, evil: Report) -> None:
    text = render(evil, name)
    text.encode()
    assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("name", ["sarif", "rdjson", "gitlab"])
def test_json_for_other_programs_has_no_half_of_a_character(name: str, evil: Report) -> None:
    json.dumps(json.loads(render(evil, name)), ensure_ascii=False).encode()


@pytest.mark.parametrize("name", FORMATS)
def test_a_clean_report_has_no_finding_in_any_format(name: str, clean: Report) -> None:
    text = render(clean, name)
    assert "error[" not in text
    assert text.endswith("\n") or not text


def test_an_unknown_format_is_refused_with_those_there_are(clean: Report) -> None:
    with pytest.raises(UsageError, match="unknown format xml; the formats are text, concise, json"):
        render(clean, "xml")


def test_what_is_allowed_counts_for_nothing_and_is_told_if_a_format_can(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    line = "// hlo-lint: allow reshape-moves-data -- as it should be\n  ROOT"
    path.write_text(MOVES.replace("  ROOT", f"  {line}"), "utf-8")
    report = hlo_lint.lint(path)
    assert len(report.allowed) == 1
    silent = [name for name in FORMATS if "as it should be" not in render(report, name)]
    assert silent == ["text", "concise", "sarif", "github", "gitlab", "rdjson", "markdown"]
    assert not run_of(report)["results"]
    assert run_of(report)["properties"]["allowed"] == 1
    for name in ("text", "markdown"):
        assert "no findings in 1 file, 1 module of HLO, 1 allowed" in render(report, name)
    (allowed,) = json.loads(render(report, "json"))["allowed"]
    assert (allowed["allowed_by"], allowed["reason"]) == ("comment", "as it should be")
    of_the_file, passed = suites(report)
    ((skipped,),) = [case.result for case in of_the_file]
    assert skipped.message == "allowed by comment: as it should be"
    assert [case.is_passed for case in passed] == [True]


# SARIF


@pytest.fixture(scope="module")
def sarif_schema() -> Any:
    schema = json.loads((SCHEMAS / "sarif-2.1.0-rtm.5.json").read_text("utf-8"))
    jsonschema.Draft4Validator.check_schema(schema)
    return jsonschema.Draft4Validator(schema)


@pytest.fixture(params=["crash", "everything", "evil", "clean"])
def each(request: pytest.FixtureRequest) -> Report:
    report: Report = request.getfixturevalue(request.param)
    return report


def run_of(report: Report, warn: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """The only run of the SARIF of a report."""
    (run,) = json.loads(render(report, "sarif", warn))["runs"]
    assert isinstance(run, dict)
    return run


def test_sarif_is_what_the_standard_says(each: Report, sarif_schema: Any) -> None:
    assert [*sarif_schema.iter_errors(json.loads(render(each, "sarif")))] == []


def test_the_sarif_schema_is_no_rubber_stamp(crash: Report, sarif_schema: Any) -> None:
    log = json.loads(render(crash, "sarif"))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert [error.json_path for error in sarif_schema.iter_errors(log)] == [
        "$.runs[0].results[0].level"
    ]


def test_sarif_keeps_the_limits_of_github(everything: Report) -> None:
    run = run_of(everything)
    rules = run["tool"]["driver"]["rules"]
    assert len(run["results"]) == len(everything.findings) <= sarif.MAX_RESULTS
    assert [rules[each["ruleIndex"]]["id"] for each in run["results"]] == [
        finding.rule for finding in everything.findings
    ]
    assert all(len(rule["properties"]["tags"]) <= 20 for rule in rules)
    prints = [each["partialFingerprints"]["hloLintFinding/v1"] for each in run["results"]]
    assert len(set(prints)) == len(prints)


def copies(finding: Diagnostic, number: int, severity: Severity) -> Iterator[Diagnostic]:
    first = {Severity.ERROR: "e", Severity.WARNING: "b", Severity.INFO: "f"}[severity]
    for at in range(number):
        fingerprint = f"{first}{at:015x}0000"
        yield replace(finding, severity=severity, fingerprint=fingerprint)


def test_of_too_many_findings_the_least_urgent_are_dropped_and_that_is_said(
    crash: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sarif, "MAX_RESULTS", 100)
    (finding,) = crash.findings
    findings = (
        *copies(finding, 60, Severity.INFO),
        *copies(finding, 58, Severity.WARNING),
        *copies(finding, 2, Severity.ERROR),
    )
    said: list[str] = []
    run = run_of(replace(crash, findings=findings), said.append)
    levels = [each["level"] for each in run["results"]]
    assert levels == ["note"] * 40 + ["warning"] * 58 + ["error"] * 2
    line = (
        "SARIF: 20 findings were left out, the least urgent first "
        "(100 results, 10000000 bytes compressed)"
    )
    assert said == [line]
    told = run["invocations"][0]["toolExecutionNotifications"]
    assert [each["message"]["text"] for each in told if each["level"] == "warning"] == [line]


def test_sarif_names_a_thousand_reasons_for_which_something_was_skipped(crash: Report) -> None:
    (entry,) = crash.skipped
    skipped = tuple(entry._replace(reason=f"reason {number}") for number in range(1_003))
    (invocation,) = run_of(replace(crash, skipped=skipped * 2))["invocations"]
    *_, last = invocation["toolExecutionNotifications"]
    assert len(invocation["toolExecutionNotifications"]) == 1_001
    assert last["message"]["text"] == "skipped: 3 more"


@pytest.mark.parametrize("name", FORMATS)
def test_what_a_flag_would_have_shown_is_said_once_in_every_format(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two files, and by a rule that has no buffer assignment to read."""
    text = "HloModule jit_f\n\nENTRY e {\n  ROOT c = s32[] constant(0)\n}\n"
    for number in (1, 2):
        file = tmp_path / f"module_000{number}.jit_f.cpu_after_optimizations.txt"
        file.write_text(text)
    output_report(lint(tmp_path), name, ReportOptions())
    said = "".join(capsys.readouterr())
    assert said.count("what each pass did; XLA_FLAGS=--xla_dump_hlo_pass_re=.* dumps it") == 1
    output_report(lint(tmp_path), name, ReportOptions(quiet=True))
    if name in NO_ROOM:
        assert not capsys.readouterr().err


def test_of_too_many_findings_those_go_first_that_only_repeat_another(crash: Report) -> None:
    (finding,) = crash.findings
    (other,) = copies(finding, 1, Severity.INFO)
    alike = [replace(finding, fingerprint=f"{'a' * 16}{n:04x}") for n in range(5)]
    assert sarif.most_urgent([*alike, other], 6) == [*alike, other]
    assert sarif.most_urgent([*alike, other], 5) == [alike[0], other]


def test_long_sarif_is_cut(
    crash: Report, sarif_schema: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sarif, "MAX_BYTES", 20_000)
    (finding,) = crash.findings
    findings = (
        replace(each, notes=(os.urandom(500).hex(),))
        for each in copies(finding, 100, Severity.WARNING)
    )
    said: list[str] = []
    report = replace(crash, findings=tuple(findings))
    log = json.loads(render(report, "sarif", said.append))
    kept = len(log["runs"][0]["results"])
    assert 5 < kept < 40
    assert said[0].startswith(f"SARIF: {100 - kept} findings were left out")
    assert [*sarif_schema.iter_errors(log)] == []


@pytest.mark.parametrize("name", ["x", "größe 𐐀 漢", "caf\udce9"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_the_fix_in_sarif_is_what_fix_writes(name: str, newline: str, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    (result,) = run_of(moving(path, name, newline))["results"]
    if name.startswith("caf"):
        assert "fixes" not in result  # the text has bytes that JSON cannot say
        return
    text = decode(path.read_bytes())
    (change,) = result["fixes"][0]["artifactChanges"]
    by_offset, by_line = text, text
    for each in reversed(change["replacements"]):
        region, new = each["deletedRegion"], each["insertedContent"]["text"]
        end = region["charOffset"] + region["charLength"]
        by_offset = by_offset[: region["charOffset"]] + new + by_offset[end:]
        start = offset(text, region["startLine"], region["startColumn"])
        end = offset(text, region["endLine"], region["endColumn"])
        by_line = by_line[:start] + new + by_line[end:]
    assert by_offset == by_line == fixed(path) != text


def offset(text: str, line: int, column: int) -> int:
    return sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1


def test_a_uri_leads_to_the_file_whatever_it_is_called(tmp_path: Path) -> None:
    name = "a file #1 100%?\udce9ü.hlo"
    inside, outside = tmp_path / "work" / "deep" / name, tmp_path / name
    inside.parent.mkdir(parents=True)
    for path in (inside, outside):
        moving(path)
    with chdir(tmp_path / "work"):
        paths = [Path("deep", name), inside, Path("..", name)]
        report = hlo_lint.lint(paths[0], before="layout_normalization")
        places = [
            run_of(replace(report, findings=(replace(report.findings[0], path=str(path)),)))[
                "results"
            ][0]["locations"][0]["physicalLocation"]["artifactLocation"]
            for path in paths
        ]
    base = [place.get("uriBaseId") for place in places]
    assert base == ["SRCROOT", "SRCROOT", None]
    assert places[0]["uri"] == "deep/a%20file%20%231%20100%25%3F%E9%C3%BC.hlo" == places[1]["uri"]
    url = urlsplit(places[2]["uri"])
    assert (url.scheme, url.netloc) == ("file", "")
    assert os.fsdecode(unquote_to_bytes(url.path)) == str(outside)


def test_a_finding_in_a_protocol_buffer_has_a_file_and_no_line(tmp_path: Path) -> None:
    _hlo = pytest.importorskip("jaxlib._hlo")
    moving(tmp_path / "m.hlo")
    message = _hlo.hlo_module_from_text((tmp_path / "m.hlo").read_text())
    (tmp_path / "m.hlo.pb").write_bytes(message.as_serialized_hlo_module_proto())
    report = hlo_lint.lint(tmp_path / "m.hlo.pb", before="layout_normalization")
    (result,) = run_of(report)["results"]
    assert "fixes" not in result
    assert "region" not in result["locations"][0]["physicalLocation"]
    (diagnostic,) = json.loads(render(report, "rdjson"))["diagnostics"]
    assert set(diagnostic) == {"message", "location", "severity", "code"}
    assert set(diagnostic["location"]) == {"path"}
    assert ",line=" not in render(report, "github")


def test_sarif_shows_the_line_unless_it_is_long_or_one_of_several(crash: Report) -> None:
    (finding,) = crash.findings
    several = replace(finding, end=finding.end._replace(line=finding.line + 1))
    long = replace(finding, excerpt="x" * (sarif.MAX_LINE_LENGTH + 1))
    results = run_of(replace(crash, findings=(finding, several, long)))["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert ["contextRegion" in place for place in places] == [True, False, False]
    assert places[0]["contextRegion"]["snippet"]["text"] == finding.excerpt
    assert all("region" in place for place in places)


def test_no_message_in_sarif_makes_a_link(evil: Report) -> None:
    for result in run_of(evil)["results"]:
        assert "](" not in result["message"]["text"]


# GitHub

command_of = re.compile(r"::(error|warning|notice) ([^:]*)::(.*)").fullmatch


def workflow_commands(text: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """The workflow commands in a log, as GitHub's runner takes them apart."""
    for line in text.splitlines():
        command = command_of(line)
        assert command is not None, line
        kind, written, message = command.groups()
        values = dict(value.split("=", 1) for value in written.split(","))
        yield kind, {name: unescaped(value) for name, value in values.items()}, unescaped(message)


def unescaped(text: str) -> str:
    for code, character in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ",")):
        text = text.replace(code, character)
    return text.replace("%25", "%")


def test_github_takes_no_columns_of_several_lines(crash: Report) -> None:
    (finding,) = crash.findings
    longer = replace(finding, end=finding.end._replace(line=45))
    ((_, values, _),) = workflow_commands(render(replace(crash, findings=(longer,)), "github"))
    assert {name for name in values if name != "file"} == {"line", "endLine", "title"}


def test_no_name_in_a_dump_forges_a_command(evil: Report) -> None:
    text = render(evil, "github")
    found = list(workflow_commands(text))
    assert [kind for kind, _, _ in found] == ["error", "warning", "notice"]
    assert text.count("\n") == 3
    for _, values, message in found:
        assert values["file"].startswith(
            "</script><img src=x onerror=alert(1)> ]]> \\x0d\\x0a::err"
        )
        assert "a%0Ab" in message  # as it was, not as the end of a line


# GitLab


def test_gitlab_gets_an_issue_for_each_finding(everything: Report) -> None:
    issues = json.loads(render(everything, "gitlab"))
    assert len(issues) == len(everything.findings)
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    assert {issue["severity"] for issue in issues} == {"critical", "major", "info"}
    assert all(issue["location"]["lines"]["begin"] > 0 for issue in issues)


# JUnit


def suites(report: Report) -> list[Any]:
    """The suites, whose counts junitparser finds to be right."""
    xml: Any = JUnitXml.fromstring(render(report, "junit").encode())
    for counted in (xml, *xml):
        said = counted.tests, counted.failures, counted.errors, counted.skipped
        counted.update_statistics()
        assert said == (counted.tests, counted.failures, counted.errors, counted.skipped)
    return list(xml)


def test_information_fails_no_test(everything: Report) -> None:
    failed = sum(suite.failures for suite in suites(everything))
    assert failed == everything.stats["errors"] + everything.stats["warnings"]
    assert everything.stats["infos"] > 0


def test_a_clean_report_is_one_test_that_passes(clean: Report) -> None:
    (suite,) = suites(clean)
    assert [(case.name, case.is_passed) for case in suite] == [
        ("no findings in 1 file, 1 module of HLO", True)
    ]


def test_junit_reads_whatever_a_dump_says(evil: Report) -> None:
    found, _ = suites(evil)
    assert [(case.is_passed, case.is_skipped) for case in found] == [
        (False, False), (False, False), (True, False), (False, True),
    ]  # fmt: skip


# reviewdog


def test_rdjson_is_what_reviewdog_reads(each: Report) -> None:
    schema = json.loads((SCHEMAS / "rdjson.json").read_text("utf-8"))
    result = json.loads(render(each, "rdjson"))
    jsonschema.Draft202012Validator(schema).validate(result)
    assert len(result["diagnostics"]) == len(each.findings)


@pytest.mark.parametrize("name", ["x", "größe 𐐀 漢"])
def test_a_suggestion_of_rdjson_counts_bytes_and_is_the_fix(name: str, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    text = MOVES.replace("NAME", name).replace("reshape(%p)", f"reshape(/*{name}*/%p)")
    path.write_text(text, "utf-8")
    report = hlo_lint.lint(path, before="layout_normalization")
    (diagnostic,) = json.loads(render(report, "rdjson"))["diagnostics"]
    lines = text.encode().splitlines(keepends=True)
    place = diagnostic["location"]["range"]
    line = lines[place["start"]["line"] - 1]
    assert line[place["start"]["column"] - 1 : place["end"]["column"] - 1] == b"%p"
    (suggestion,) = diagnostic["suggestions"]
    start, end = suggestion["range"]["start"], suggestion["range"]["end"]
    before = b"".join(lines[: start["line"] - 1]) + lines[start["line"] - 1][: start["column"] - 1]
    after = lines[end["line"] - 1][end["column"] - 1 :] + b"".join(lines[end["line"] :])
    assert before + suggestion["text"].encode() + after == fixed(path).encode()


def test_a_fix_is_no_suggestion_where_half_of_it_could_be_taken(crash: Report) -> None:
    (finding,) = crash.findings
    assert finding.fix is not None
    twice = finding.fix._replace(edits=finding.fix.edits * 2)
    found = replace(finding, fix=twice, regions=(*finding.regions, finding.regions[1]))
    (diagnostic,) = json.loads(render(replace(crash, findings=(found,)), "rdjson"))["diagnostics"]
    assert "suggestions" not in diagnostic


# JSON


def test_json_lines_are_the_json_report_line_by_line(everything: Report) -> None:
    *findings, summary = map(json.loads, render(everything, "json-lines").splitlines())
    report = json.loads(render(everything, "json"))
    assert [{"type": "finding", **each} for each in report["findings"]] == findings
    assert summary.pop("type") == "summary"
    assert summary == {name: report[name] for name in ("version", "skipped", "stats")}
    assert report["allowed"] == []


def test_bytes_that_are_no_utf_8_survive_in_json(tmp_path: Path) -> None:
    text = render(moving(tmp_path / "m.hlo", "caf\udce9"), "json")
    ((edit,),) = [each["fix"]["edits"] for each in json.loads(text)["findings"]]
    assert "caf\udce9" in edit["text"]


# Markdown


def test_markdown_of_an_evil_dump_is_text_in_code_blocks(evil: Report) -> None:
    major = replace(evil, skipped=tuple(entry._replace(minor=False) for entry in evil.skipped))
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(render(major, "markdown"))
    inline = [child for token in tokens for child in token.children or ()]
    assert {child.type for child in inline} <= {"text", "code_inline", "softbreak"}
    assert all("script" not in child.content for child in inline)
    html = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert html == ["<details><summary>Not looked at</summary>", "</details>"]
    blocks = [token.content for token in tokens if token.type == "fence"]
    assert len(blocks) == 1 + len(evil.findings)
    assert all("</script>" in block for block in blocks)


def test_markdown_counts_by_rule(everything: Report) -> None:
    rows = re.findall(
        r"^\| `(.+)` \| (\d+) \| (\d+) \| (\d+) \|", render(everything, "markdown"), re.M
    )
    by_rule = {rule: [int(number) for number in numbers] for rule, *numbers in rows}
    expected = {
        each.rule: [each.errors, each.warnings, each.infos] for each in counts(everything.findings)
    }
    assert by_rule == expected


def test_a_summary_that_is_too_long_says_how_much_is_left_out(
    everything: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(markdown, "MAX_BYTES", 8_000)
    said: list[str] = []
    text = render(everything, "markdown", said.append)
    assert len(text.encode()) < 8_200
    shown = text.count("\n### ")
    assert 0 < shown < len(everything.findings)
    rest = grouped(everything.findings)[shown:]
    left = f"{sum(1 + len(group.rest) for group in rest)} findings do not fit"
    assert said == [f"Markdown: {left} (8000 bytes)"]
    assert text.endswith(f"… {left}.\n")


# Counts


def test_statistics_count_the_findings_of_each_rule(everything: Report) -> None:
    rows = json.loads(render_statistics(everything, "json"))
    assert sum(row["count"] for row in rows) == len(everything.findings)
    for row in rows:
        mine = [finding for finding in everything.findings if finding.rule == row["rule"]]
        assert row["count"] == len(mine) == row["errors"] + row["warnings"] + row["infos"]
        assert row["fixable"] == sum(finding.fix is not None for finding in mine)
    numbers = [row["count"] for row in rows]
    assert numbers == sorted(numbers, reverse=True)


def test_statistics_as_text_are_a_table(crash: Report, clean: Report) -> None:
    assert render_statistics(crash) == (
        "1  reshape-moves-data  1 error  1 fixable\n1 error in 33 files, 33 modules of HLO\n"
    )
    assert render_statistics(clean) == "no findings in 1 file, 1 module of HLO\n"


# The page


def sessions() -> list[tuple[str, str]]:
    """Each command of the page and what it is said to print."""
    page = (ROOT / "docs" / "outputs.md").read_text("utf-8")
    blocks = [token for token in MarkdownIt().parse(page) if token.info == "console"]
    split = (token.content.split("\n", 1) for token in blocks)
    return [(command.removeprefix("$ hlo-lint "), said) for command, said in split]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the page: its file, and two examples."""
    made = tmp_path_factory.mktemp("page")
    page = (ROOT / "docs" / "outputs.md").read_text("utf-8")
    text = next(token.content for token in MarkdownIt().parse(page) if token.info == "hlo")
    (made / "reshape.hlo").write_text(text)
    for name in ("crash", "slow"):
        write_example_dump(name, made / name)
    return made


@pytest.mark.parametrize(("command", "said"), sessions(), ids=[each for each, _ in sessions()])
def test_the_page_shows_what_the_program_prints(command: str, said: str, folder: Path) -> None:
    """A line with an ellipsis stands for lines that are left out."""
    done = completed(
        [sys.executable, "-m", "hlo_lint", *shlex.split(command)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    shown = "(?s:.*)".join(map(re.escape, re.split(r"^…\n", said, flags=re.M)))
    assert re.fullmatch(shown, done.stdout), done.stdout


def test_the_page_shows_every_format_but_the_one_of_long_lines() -> None:
    shown = {shlex.split(command)[-1] for command, _ in sessions()}
    assert {name for name in FORMATS if name not in shown} == {"text", "json-lines"}
