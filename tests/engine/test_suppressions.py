"""Findings that may stay: what says so, what is left then, and what says so of nothing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_lint
from hlo_lint import Allowance, DumpError, FixResult, Report, UsageError
from hlo_lint.engine.findings import SuppressedBy
from hlo_lint.engine.fingerprints import IDENTITY_DIGITS
from hlo_lint.engine.suppressions import baseline as baselines
from hlo_lint.report.formats import FORMATS, render
from tests.conftest import CRASH, DUMPS, FIXTURES, ROOT, completed, new_folder, present, written
from tests.renumbering import another_run

RESHAPE = "reshape-moves-data"
UNUSED = "unused-allowance"
HEAD = "HloModule m\n\nENTRY e {\n  p = f32[8,3]{1,0} parameter(0)\n"
BAD = "  {} = f32[4,2,3]{{0,1,2}} reshape(p)"
LAST = "  ROOT r = f32[8,3]{1,0} bitcast(p)\n}\n"


def module(*lines: str) -> str:
    """A module with lines in its body; `@a` is an instruction of that name that moves bytes."""
    body = "".join(re.sub(r"^@(\w+)", lambda n: BAD.format(n[1]), line) + "\n" for line in lines)
    return HEAD + body + LAST


def told(report: Report | FixResult) -> list[str]:
    """The fact that counts: the instruction that moves bytes, or the message about an allowance."""
    return [f.message if f.rule == UNUSED else str(f.instruction) for f in report.findings]


def spared(report: Report) -> list[tuple[str | None, str, str]]:
    return [(a.finding.instruction, a.reason, a.by.value) for a in report.allowed]


# Comments


@pytest.mark.parametrize(
    "lines",
    [
        ["@a  // hlo-lint: allow reshape-moves-data -- why"],
        ["@a  /* hlo-lint: allow reshape-moves-data -- why */"],
        ["  /* hlo-lint: allow reshape-moves-data -- why */ a = f32[4,2,3]{0,1,2} reshape(p)"],
        ["@a, metadata={}  //hlo-lint:allow reshape-moves-data -- why"],
        ["  // hlo-lint: allow reshape-moves-data -- why", "@a"],
        ["  // hlo-lint: allow reshape-moves-data -- why", "", "  // a word between", "@a"],
        ["  /* hlo-lint: allow reshape-moves-data", "     -- why */", "@a"],
        ["  // hlo-lint: allow layout -- why", "@a"],
        ["  a = f32[4,2,3]{0,1,2} // hlo-lint: allow layout -- why", "    reshape(", "    p)"],
        ["  a = f32[4,2,3]{0,1,2}", "    reshape( // hlo-lint: allow layout -- why", "    p)"],
        ["  a = f32[4,2,3]{0,1,2}", "    // hlo-lint: allow layout -- why", "    reshape(p)"],
        ["  a = f32[4,2,3]{0,1,2}", "    reshape(p // hlo-lint: allow layout -- why", "    )"],
        ["  // hlo-lint: allow layout -- why", "  a = f32[4,2,3]{0,1,2}", "    reshape(", "    p)"],
        ["  // hlo-lint: allow-begin layout -- why", "@a", "  // hlo-lint: allow-end layout"],
        ["@a", "  // hlo-lint: allow-file reshape-moves-data -- why"],
        ["@a  // hlo-lint: allow layout, reshape-moves-data, layout -- why"],
    ],
)
def test_a_comment_allows_what_it_speaks_of(lines: list[str]) -> None:
    report = hlo_lint.lint(module(*lines))
    assert (told(report), spared(report)) == ([], [("a", "why", "comment")])
    assert (report.clean, report.exit_status) == (True, 0)


def test_a_comment_allows_nothing_else() -> None:
    text = module("@a", "@b  // hlo-lint: allow reshape-moves-data -- why", "@c", "@d")
    report = hlo_lint.lint(text)
    assert told(report) == ["a", "c", "d"]


def test_a_region_ends_where_it_says() -> None:
    begin, end = "  // hlo-lint: allow-begin layout -- outer", "  // hlo-lint: allow-end layout"
    report = hlo_lint.lint(module("@a", begin, "@b", end, "@c"))
    assert (told(report), spared(report)) == (["a", "c"], [("b", "outer", "comment")])


@pytest.mark.parametrize("place", ["after it", "before it"])
def test_a_comment_speaks_of_a_header(place: str, tmp_path: Path) -> None:
    dump = Path(shutil.copytree(DUMPS / "gpu-jax0.11.2/short_text", tmp_path / "dump"))
    rules = ["incomplete-dump", UNUSED]
    (found,) = hlo_lint.lint(dump, rules).findings
    path, comment = Path(found.path), "// hlo-lint: allow incomplete-dump -- it is short"
    header, _, rest = path.read_text("utf-8").partition("\n")
    lines = [f"{header}  {comment}"] if place == "after it" else [comment, header]
    path.with_suffix(".hlo").write_text("\n".join([*lines, rest]), "utf-8")
    path.unlink()
    report = hlo_lint.lint(dump, rules)
    assert (report.findings, len(report.allowed)) == ((), 1)


def test_ptx_has_comments_too(tmp_path: Path) -> None:
    path = tmp_path / "kernel.ptx"
    shutil.copy(FIXTURES / "ptx/last_wait_removed/triton_sm80_three_stages.ptx", path)
    rule = "store-overtakes-copy"
    (found,) = hlo_lint.lint(path).findings
    lines = path.read_text("utf-8").split("\n")
    lines.insert(found.line - 1, f"\t// hlo-lint: allow {rule} -- on the line before")
    path.write_text("\n".join(lines), "utf-8")
    report = hlo_lint.lint(path)
    assert not report.findings
    assert [each.finding.rule for each in report.allowed] == [rule]


HOSTILE = "// hlo-lint: allow-file layout -- said by a name"


@pytest.mark.parametrize(
    "line",
    [
        f'@a, metadata={{op_name="{HOSTILE}"}}', f'@a, metadata={{op_name="\\" {HOSTILE}"}}',
        f'@a, metadata={{op_name="x\n{HOSTILE}\n"}}', f"@a, frontend_attributes={{x='{HOSTILE}'}}",
        f"@a  // to say {HOSTILE}", f"@a  /* see {HOSTILE} */",
    ],
)  # fmt: skip
def test_what_is_no_comment_of_ours_allows_nothing(line: str) -> None:
    report = hlo_lint.lint(module(line), [RESHAPE, UNUSED])
    assert (told(report), report.allowed) == (["a"], ())


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        ("allow reshape-moves-data", "gives no reason"),
        ("allow reshape-moves-data --", "gives no reason"),
        ("allow reshape-moves-data - why", "is not the name of a rule"),
        ("allow reshape-moves-data needless-transpose -- why", "commas"),
        ("allow reshape-moves-data, -- why", "is not the name of a rule"),
        ("allow -- why", "names no rule"),
        ("allow reshape-move-data -- why", "did you mean reshape-moves-data?"),
        ("alow reshape-moves-data -- why", "did you mean allow?"),
        ("", "has no directive: write `hlo-lint: allow RULE -- REASON`"),
        ("ignore[HLO201]", "is not a directive"),
        ("allow-begin reshape-moves-data -- why", "no `allow-end reshape-moves-data` ends"),
        ("allow-end reshape-moves-data", "no `allow-begin reshape-moves-data` comes before"),
    ],
)
def test_an_unclear_comment_is_a_finding_and_allows_nothing(comment: str, said: str) -> None:
    report = hlo_lint.lint(module(f"  // hlo-lint: {comment}", "@a"))
    about, found = report.findings
    assert (about.rule, about.line, about.column) == (UNUSED, 5, 3)
    assert said in about.message
    assert (found.instruction, report.allowed) == ("a", ())


def test_what_a_hostile_comment_says_is_shown_as_text() -> None:
    text = module("  // hlo-lint: allow \x1b[31mred\u202e -- why")
    report = hlo_lint.lint(text)
    assert len(report.findings) == 1
    assert "\x1b" not in str(report)
    assert "\u202e" not in str(report)


# Comments that have no use


def test_a_comment_without_use_is_a_finding_with_a_fix() -> None:
    text = module("  // hlo-lint: allow reshape-moves-data -- why", "  q = f32[8,3]{1,0} copy(p)")
    (found,) = hlo_lint.lint(text).findings
    assert (found.rule, found.severity.value, found.line) == (UNUSED, "warning", 5)
    assert found.message == "there is no finding of reshape-moves-data on line 6 to allow"
    assert hlo_lint.fix(text).text == module("  q = f32[8,3]{1,0} copy(p)")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            ["@a  // hlo-lint: allow layout, needless-transpose -- why"],
            ["@a  // hlo-lint: allow layout -- why"],
        ),
        (
            ["@a  // hlo-lint: allow bad-sharding, layout, needless-transpose -- why"],
            ["@a  // hlo-lint: allow layout -- why"],
        ),
        (["  q = f32[8,3]{1,0} copy(p)  // hlo-lint: allow layout -- why"],
         ["  q = f32[8,3]{1,0} copy(p)"]),
        (["  q = f32[8,3]{1,0} /* hlo-lint: allow layout -- why */ copy(p)"],
         ["  q = f32[8,3]{1,0} copy(p)"]),
        (["  // hlo-lint: allow-begin layout -- why", "  q = f32[8,3]{1,0} copy(p)",
          "  // hlo-lint: allow-end layout"], ["  q = f32[8,3]{1,0} copy(p)"]),
        (["  // hlo-lint: allow-begin layout, bad-sharding -- why", "@a",
          "  // hlo-lint: allow-end bad-sharding, layout"],
         ["  // hlo-lint: allow-begin layout -- why", "@a",
          "  // hlo-lint: allow-end layout"]),
        (["  /* hlo-lint: allow-file bad-sharding", "  -- why */"], []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_only_what_is_unused_is_removed(before: list[str], after: list[str], newline: str) -> None:
    old, new = (module(*lines).replace("\n", newline) for lines in (before, after))
    assert hlo_lint.fix(old).text == new
    assert not hlo_lint.lint(new).findings


def test_a_comment_is_judged_only_where_its_rule_ran() -> None:
    text = module("  q = f32[8,3]{1,0} copy(p)  // hlo-lint: allow reshape-moves-data -- why")
    assert told(hlo_lint.lint(text))
    assert told(hlo_lint.lint(text, [UNUSED, RESHAPE]))
    assert not told(hlo_lint.lint(text, [UNUSED]))
    assert not told(hlo_lint.lint(text, None, [RESHAPE]))
    assert not told(hlo_lint.lint(text, None, ["layout"]))
    assert not told(hlo_lint.lint(text, None, [UNUSED]))
    assert not told(hlo_lint.lint(text, before="autotuner"))  # then the rule does not bind
    family = text.replace(RESHAPE, "layout")
    assert told(hlo_lint.lint(family))
    assert not told(hlo_lint.lint(family, [UNUSED, RESHAPE]))


def test_a_rule_that_lacks_what_it_needs_has_found_nothing_yet(tmp_path: Path) -> None:
    """Without a buffer assignment nobody knows whether the allowance is still of use."""
    (dump,) = {path.parent for path in FIXTURES.rglob("shared_with_operand_legacy/*.txt")}
    copy = Path(shutil.copytree(dump, tmp_path / "dump"))
    (found,) = hlo_lint.lint(copy, ["custom-call-overlaps-operand"]).findings
    path = Path(found.path)
    with path.open("a") as file:
        file.write("// hlo-lint: allow-file custom-call-overlaps-operand -- why\n")
    allowed = hlo_lint.lint(copy, ["custom-call-overlaps-operand", UNUSED])
    assert (told(allowed), len(allowed.allowed)) == ([], 1)
    for artefact in copy.glob("*buffer-assignment*"):
        artefact.unlink()
    assert not told(hlo_lint.lint(copy, ["custom-call-overlaps-operand", UNUSED]))


def test_a_finding_about_an_allowance_can_be_allowed() -> None:
    unused = "  q = f32[8,3]{1,0} copy(p)  // hlo-lint: allow layout -- why"
    text = module("  // hlo-lint: allow-file unused-allowance -- layouts come back", unused)
    report = hlo_lint.lint(text)
    assert (told(report), len(report.allowed)) == ([], 1)
    assert hlo_lint.fix(text).text == text


# Fixes


def test_fix_leaves_alone_what_is_allowed() -> None:
    text = module("@a  // hlo-lint: allow layout -- why", "@b")
    fixed = hlo_lint.fix(text)
    assert BAD.format("a") + "  // hlo-lint: allow layout -- why\n" in fixed.text
    assert "b = f32[4,2,3]{0,1,2} bitcast(b.transpose)\n" in fixed.text
    assert not fixed.findings
    assert len(fixed.remaining.allowed) == 1


KEPT = "// hlo-lint: allow mixed-float-operands -- for ü"


@pytest.mark.parametrize(
    "lines",
    [
        ["@a  KEPT"], ["@a, metadata={}  KEPT"], ["  KEPT", "@a"],
        ["  a = f32[4,2,3]{0,1,2}", "    KEPT", "    reshape(p)"],
        ["  a = f32[4,2,3]{0,1,2}", "    reshape(p KEPT", "    )"], ["@a", "  KEPT"],
        ["  a = f32[4,2,3]{0,1,2} /* hlo-lint: allow bad-sharding -- x */ reshape(p) KEPT"],
    ],
)  # fmt: skip
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_comments_survive_a_fix_byte_for_byte(lines: list[str], newline: str) -> None:
    text = module(*lines).replace("KEPT", KEPT).replace("\n", newline)
    fixed = hlo_lint.fix(text, [RESHAPE]).text
    assert fixed != text
    assert fixed.count(KEPT) == 1
    assert fixed.count("/* hlo-lint: allow bad-sharding -- x */") == text.count("bad-sharding")
    assert not hlo_lint.lint(fixed, [RESHAPE, "unreadable-text"]).findings
    assert len(fixed.split("\n")) == len(fixed.split(newline))


# Allowances that were configured


ALLOWED = [
    Allowance(RESHAPE, "why"), Allowance("layout", "why"),
    Allowance(RESHAPE, "why", module="jit_batched_dot"),
    Allowance(RESHAPE, "why", module="jit_*", op_name="jit(*)/dot_general"),
    Allowance(RESHAPE, "why", computation="main"), Allowance(RESHAPE, "why", computation="main.1"),
    Allowance(RESHAPE, "why", path="*.0030.*"),
    Allowance(RESHAPE, "why", path="cublaslt_fission_crash/*"),
    Allowance(RESHAPE, "why", path="cublaslt_fission_crash/"),
    Allowance(RESHAPE, "why", path="gpu-*/cublaslt_fission_crash"),
    Allowance(RESHAPE, "why", path=f"{CRASH}/*"),
]  # fmt: skip


@pytest.mark.parametrize("allowance", ALLOWED, ids=str)
def test_an_allowance_matches_by_module_computation_op_name_and_path(allowance: Allowance) -> None:
    report = hlo_lint.lint(CRASH, allow=[allowance])
    assert (told(report), spared(report)) == ([], [("reshape.15", "why", "configuration")])


@pytest.mark.parametrize(
    "allowance",
    [
        Allowance("needless-transpose", "why"),
        Allowance(RESHAPE, "why", op_name="jit(*)/reshape"),
        Allowance(RESHAPE, "why", computation="body"),
    ],
    ids=str,
)
def test_an_allowance_that_matches_nothing_is_a_finding(allowance: Allowance) -> None:
    allowance = replace(allowance, stated_in="pyproject.toml", line=12)
    report = hlo_lint.lint(CRASH, allow=[allowance])
    assert [found.rule for found in report.findings] == [RESHAPE, UNUSED]
    unused = report.findings[1]
    assert (unused.path, unused.line) == ("pyproject.toml", 12)
    assert unused.message == f"there is no finding of {allowance} to allow"
    assert unused.notes == ("it was allowed because: why",)


@pytest.mark.parametrize(
    ("allowance", "select", "paths"),
    [
        (Allowance(RESHAPE, "why", module="other"), None, [CRASH]),
        (Allowance(RESHAPE, "why", path="other/*"), None, [CRASH]),
        (Allowance("needless-transpose", "why"), [RESHAPE, UNUSED], [CRASH]),
        (Allowance("needless-transpose", "why"), None, sorted(CRASH.glob("*.0030.*txt"))),
        (Allowance(UNUSED, "why"), None, [CRASH]),
    ],
)
def test_an_allowance_is_judged_only_where_what_it_speaks_of_was_looked_at(
    allowance: Allowance, select: Sequence[str] | None, paths: list[Path]
) -> None:
    report = hlo_lint.lint(paths, select, allow=[allowance])
    assert [found.rule for found in report.findings] == [RESHAPE]


def test_an_allowance_of_an_unknown_rule_is_refused_with_its_place() -> None:
    wrong = Allowance("reshape-move-data", "why", stated_in="pyproject.toml", line=3)
    with pytest.raises(UsageError, match=r"^pyproject.toml:3: .* did you mean reshape-moves-data"):
        hlo_lint.lint(CRASH, allow=[wrong])


@pytest.mark.parametrize(("rule", "reason"), [("", "why"), (RESHAPE, " ")])
def test_an_allowance_names_a_rule_and_gives_a_reason(rule: str, reason: str) -> None:
    with pytest.raises(UsageError, match="allowance"):
        Allowance(rule, reason)


def test_all_who_allow_a_finding_have_met_one(tmp_path: Path) -> None:
    lines = ["@a  // hlo-lint: allow layout -- here", "  // hlo-lint: allow-file layout -- there"]
    listed = baseline_of(module("@a"), tmp_path / "b.json")
    report = hlo_lint.lint(
        module(*lines), allow=[Allowance(RESHAPE, "elsewhere", path="<text>")], baseline=listed
    )
    assert (told(report), spared(report)) == ([], [("a", "here", "comment")])


@pytest.fixture
def unused(tmp_path: Path) -> Report:
    """A report of one finding that counts, one that is allowed, and of allowances without use."""
    folder = new_folder(tmp_path / "dump")
    lines = ["@a  // hlo-lint: allow layout -- ü", "@b  /* ü */ // hlo-lint: allow speed -- why"]
    (folder / "a.hlo").write_text(module(*lines), "utf-8")
    entry = baselines.BaselineEntry("0" * IDENTITY_DIGITS, RESHAPE, "m", "said \x1b", 2, "why", 7)
    baselines.write_baseline(baselines.Baseline(tmp_path / "b.json", (entry,)))
    allowance = Allowance("bad-sharding", "why", stated_in="hlo_lint.toml", line=3)
    return hlo_lint.lint(folder, allow=[allowance], baseline=tmp_path / "b.json")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_tells_of_allowances(name: str, unused: Report) -> None:
    assert Counter(found.rule for found in unused.findings) == {UNUSED: 3, RESHAPE: 1}
    text = render(unused, name)
    assert text.count("unused-allowance") >= 3
    assert "\x1b" not in text


def test_a_place_behind_wide_characters_is_counted_in_bytes_as_well(unused: Report) -> None:
    (found,) = [found for found in unused.findings if found.fix and found.rule == UNUSED]
    at, removed = found.regions
    assert (at.start.column, at.start_byte) == (found.column, found.column + 1)
    assert (removed.start.column, removed.start_byte) == (found.column - 1, found.column)


@pytest.mark.parametrize("jobs", [1, 2])
def test_comments_count_however_many_processes_check(jobs: int, tmp_path: Path) -> None:
    for number in range(6):
        text = module("@a  // hlo-lint: allow layout -- why", f"@b{number}")
        (tmp_path / f"{number}.hlo").write_text(text, "utf-8")
    report = hlo_lint.lint(tmp_path, settings=hlo_lint.Settings(jobs=jobs))
    assert told(report) == [f"b{number}" for number in range(6)]
    assert len(report.allowed) == 6


def test_a_rule_of_ones_own_can_be_allowed() -> None:
    class NoCopies(hlo_lint.Rule):
        """A copy."""

        def check(self, computation: hlo_lint.Computation) -> hlo_lint.Findings:
            for each in computation.with_opcode("copy"):
                yield hlo_lint.Finding(each, "a copy")

    text = module("  q = f32[8,3]{1,0} copy(p)  // hlo-lint: allow no-copies -- why")
    report = hlo_lint.lint(text, [NoCopies, UNUSED], allow=[Allowance("no-copies", "why")])
    assert (told(report), len(report.allowed)) == ([], 1)


def test_fix_takes_allowances() -> None:
    fixed = hlo_lint.fix(CRASH, allow=[Allowance(RESHAPE, "why")])
    assert not fixed.edits
    assert len(fixed.remaining.allowed) == 1


def test_what_is_allowed_keeps_its_fingerprint_and_that_of_the_others() -> None:
    one, two = hlo_lint.lint(module("@a", "@b")).findings
    report = hlo_lint.lint(module("@a  // hlo-lint: allow layout -- why", "@b"))
    assert report.allowed[0].finding.fingerprint == one.fingerprint
    assert report.findings[0].fingerprint == two.fingerprint


# Baselines


def baseline_of(target: Path | str, path: Path, *, reason: str = "") -> Path:
    updated = baselines.updated_baseline(baselines.Baseline(path), hlo_lint.lint(target).findings)
    baselines.write_baseline(updated.baseline)
    if reason:
        text = path.read_text("utf-8")
        path.write_text(text.replace('"count"', f'"reason": "{reason}", "count"'), "utf-8")
    return path


@given(factor=st.integers(1, 9), offset=st.integers(0, 90), steps=st.integers(1, 900))
@settings(max_examples=5)
def test_a_baseline_outlasts_another_run(
    tmp_path_factory: pytest.TempPathFactory, factor: int, offset: int, steps: int
) -> None:
    """Renumbered names, other steps, another directory."""
    folder = tmp_path_factory.mktemp("run")
    listed = baseline_of(CRASH, folder / "b.json", reason="known")
    other = another_run(CRASH, folder / "other", lambda number: number * factor + offset, steps)
    report = hlo_lint.lint(other, baseline=listed)
    assert not report.findings
    assert [(each.reason, each.by) for each in report.allowed] == [("known", SuppressedBy.BASELINE)]


@pytest.mark.parametrize("folder", ["gpu-jax0.10.0", "gpu-jax0.10.2", "gpu-jax0.11.2"])
def test_a_baseline_of_a_folder_leaves_nothing(folder: str, tmp_path: Path) -> None:
    listed = baseline_of(DUMPS / folder, tmp_path / "b.json")
    report = hlo_lint.lint(DUMPS / folder, baseline=listed)
    assert not report.findings
    assert report.allowed


def test_one_more_of_a_kind_than_the_baseline_lists_is_told(tmp_path: Path) -> None:
    listed = baseline_of(module("@a", "@b"), tmp_path / "b.json")
    (entry,) = baselines.read_baseline(listed).entries
    assert entry.count == 2
    report = hlo_lint.lint(module("@a", "@b", "@c"), baseline=listed)
    assert (told(report), len(report.allowed)) == (["c"], 2)


def test_what_a_baseline_lists_in_vain_is_a_finding(tmp_path: Path) -> None:
    dump = Path(shutil.copytree(CRASH, tmp_path / "dump"))
    listed = baseline_of(dump, tmp_path / "b.json")
    assert hlo_lint.fix(dump).edits
    for file in hlo_lint.fix(dump).files:
        present(file.path).write_text(file.after, "utf-8")
    report = hlo_lint.lint(dump, baseline=listed)
    (unused,) = [found for found in report.findings if found.rule == UNUSED]
    assert (unused.path, unused.line) == (str(listed), 5)
    assert unused.message.startswith("a finding of the baseline is gone: reshape-moves-data: ")
    assert "--prune" in unused.notes[0]
    assert not told(hlo_lint.lint(dump, [UNUSED], baseline=listed))


def test_fix_leaves_alone_what_the_baseline_lists(tmp_path: Path) -> None:
    listed = baseline_of(module("@a"), tmp_path / "b.json")
    fixed = hlo_lint.fix(module("@a", "@b"), baseline=listed)
    assert BAD.format("a") + "\n" in fixed.text
    assert BAD.format("b") not in fixed.text
    folder = new_folder(tmp_path / "two")
    for name in ("one.hlo", "two.hlo"):
        (folder / name).write_text(module("@a"), "utf-8")
    assert len(hlo_lint.fix(folder, baseline=listed).edits) == 1  # it lists one of the two


def test_a_baseline_reads_well_in_a_diff(tmp_path: Path) -> None:
    path = baseline_of(DUMPS / "gpu-jax0.10.0", tmp_path / "b.json")
    text = path.read_text("utf-8")
    listed = json.loads(text)["findings"]
    assert listed == sorted(listed, key=lambda each: (each["rule"], each["module"]))
    assert all(list(each)[:4] == ["fingerprint", "rule", "module", "message"] for each in listed)
    baselines.write_baseline(baselines.read_baseline(path))
    assert path.read_text("utf-8") == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1:1: a baseline is JSON"),
        ('{"version": 2,\n "findings": [}', ":2:15: a baseline is JSON"),
        ("[]", ':1:1: a baseline is an object with "version" and "findings"'),
        ('{"findings": []}', "expected a baseline of version 2, got None"),
        ('{"version": 1, "findings": []}', "expected a baseline of version 2, got 1"),
        ('{"version": 2, "findings": [1]}', 'finding 1 of the baseline has no "fingerprint"'),
        ('{"version": 2, "findings": [\n{"fingerprint": "ab"}]}', ":2:1: this finding of the"),
        ('{"version": 2, "findings": [\n{"fingerprint": "ab", "x": 1}]}', ":2:1: x is not a field"),
        (
            '{"version": 2, "findings": [\n{"fingerprint": "", "count": ""}]}',
            "count is not a field of a baseline's finding, or not of its type",
        ),
        ("[" * 100_000, ":1:1: this is not a baseline: nested too deeply"),
        ('{"version": ' + "1" * 5000 + "}", ":1:1: this is not a baseline: number too long"),
    ],
)  # fmt: skip
def test_what_is_no_baseline_is_refused_at_its_place(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path / "b.json", text, "utf-8")
    with pytest.raises(DumpError) as caught:
        baselines.read_baseline(path)
    assert str(caught.value).startswith(str(path))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_baseline_that_is_not_there_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(DumpError, match=r"no such baseline; .* --write-baseline FILE`"):
        hlo_lint.lint(CRASH, baseline=tmp_path / "none.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff")
    with pytest.raises(DumpError, match="UTF-8"):
        baselines.read_baseline(tmp_path / "bytes.json")


def test_entries_of_rules_that_did_not_run_stay() -> None:
    entry = baselines.BaselineEntry("0" * IDENTITY_DIGITS, RESHAPE, "m", "said", 2, "why")
    baseline = baselines.Baseline(Path("b"), (entry,))
    for prune in (True, False):
        assert baselines.updated_baseline(baseline, (), {RESHAPE}, prune=prune) == (baseline, 0, 0)
        empty = baselines.Baseline(Path("b"))
        assert baselines.updated_baseline(baseline, (), prune=prune) == (empty, 0, 2)


# The command

NONE_BUT_ONE = "no findings in 1 file, 1 module of HLO, 1 allowed\n"


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return completed(
        [sys.executable, "-m", "hlo_lint", *map(str, arguments)],
        cwd=cwd,
        env={"PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
def test_the_command_writes_compares_and_prunes(tmp_path: Path) -> None:
    def check(*options: str) -> subprocess.CompletedProcess[str]:
        return run("check", ".", *options, cwd=tmp_path)

    one, two = tmp_path / "one.hlo", tmp_path / "two.hlo"
    one.write_text(module("@a"), "utf-8")
    for missing in (check("--baseline", "b.json"), check("--prune-baseline", "b.json")):
        assert (missing.returncode, missing.stdout) == (2, "")
        assert missing.stderr.startswith("Error: b.json: no such baseline")

    wrote = check("--write-baseline", "b.json")
    assert (wrote.returncode, wrote.stdout) == (0, "b.json: 1 finding, 1 new, 0 gone\n")
    assert check("--baseline", "b.json").stdout == NONE_BUT_ONE

    two.write_text(module("@a"), "utf-8")
    more = check("--baseline", "b.json", "--output-format", "concise")
    assert more.returncode == 1
    assert more.stdout.startswith("two.hlo:5:")

    path = tmp_path / "b.json"
    path.write_text(path.read_text().replace('"count": 1', '"count": 1, "reason": "old"'))
    assert check("--write-baseline", "b.json").stdout.endswith("1 new, 0 gone\n")
    (entry,) = baselines.read_baseline(path).entries
    assert (entry.count, entry.reason) == (2, "old")

    two.unlink()
    gone = check("--baseline", "b.json", "--output-format", "concise").stdout
    assert "warning[unused-allowance]: a finding of the baseline is gone 1 of 2 times" in gone
    pruned = check("--prune-baseline", "b.json")
    assert (pruned.returncode, pruned.stdout) == (0, "b.json: 1 finding, 1 gone\n")
    (entry,) = baselines.read_baseline(path).entries
    assert (entry.count, entry.reason) == (1, "old")

    (tmp_path / "hlo_lint.toml").write_text('baseline = "ours.json"\n')
    assert check().stderr.startswith("Error: ours.json: no such")
    path.rename(tmp_path / "ours.json")
    speed = check("--select", "speed", "--write-baseline", "ours.json")
    assert speed.stdout == "ours.json: 1 finding, 0 new, 0 gone\n"  # of a rule that did not run
    assert check().stdout == NONE_BUT_ONE

    for words in (("--prune-baseline", "b.json"), ("--blame",), ("--fix",)):
        refused = check("--write-baseline", "b.json", *words)
        assert (refused.returncode, refused.stdout) == (2, "")


class Negation(hlo_lint.Rule):
    """A negation."""

    words = "a negation"

    def check(self, computation: hlo_lint.Computation) -> hlo_lint.Findings:
        for found in computation.with_opcode("negate"):
            yield hlo_lint.Finding(found, self.words, key="negation")


def test_a_message_that_is_reworded_breaks_no_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    text = module("  n = f32[8,3]{1,0} negate(p)")
    (one,) = hlo_lint.lint(text, [Negation]).findings
    monkeypatch.setattr(Negation, "words", "%n negates")
    (other,) = hlo_lint.lint(text, [Negation]).findings
    assert one.message != other.message
    assert one.fingerprint == other.fingerprint
