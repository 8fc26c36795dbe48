"""The program as people run it: a child process, its two outputs and its exit status."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hlo_lint.apps.cli.common import status_line
from hlo_lint.apps.testing import write_example
from hlo_lint.dumps.directory import FIXED
from hlo_lint.rules.base import Bad
from hlo_lint.rules.registry import all_rules, find_rule
from tests.conftest import DUMPS, FIXTURES, PIPES, ROOT, present, started
from tests.forks import forked
from tests.texts import CLEAN, LOOSE, entry

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("here")]

NAMED = "module_0001.jit_batched_dot.0030.post-layout_assignment.after_autotuner."
NEXT = ("--before", "layout_normalization")


@dataclass(frozen=True)
class Ran:
    """The outcome of one run of the program."""

    status: int
    output: bytes
    errors: str

    @property
    def out(self) -> str:
        """Standard output as text."""
        return self.output.decode("utf-8", "surrogateescape")

    @property
    def json(self) -> dict[str, Any]:
        """Standard output as the report it spells."""
        report = json.loads(self.output)
        assert isinstance(report, dict)
        return report

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The findings of the report."""
        return list(self.json["findings"])


def command(*args: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "hlo_lint", *args]


def environment(**extra: str) -> dict[str, str]:
    ours = ("FORCE_COLOR", "NO_COLOR", "COLUMNS", "HLO_LINT_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    kept["HLO_LINT_CACHE_DIR"] = os.environ["HLO_LINT_CACHE_DIR"]
    return kept | {"PYTHONPATH": str(ROOT), "TERM": "xterm"} | extra


def run(*args: str, input: bytes | None = None, **env: str) -> Ran:
    """Runs the program in the current folder; no run may show a traceback."""
    status, output, said = forked(args, environment(**env), input or b"")
    errors = said.decode("utf-8", "replace")
    assert "Traceback" not in errors, errors
    assert "internal error" not in errors, errors
    return Ran(status, output, errors)


def check_json(*args: str) -> Ran:
    return run("check", "--output-format", "json", *args)


def on_terminal(*args: str, **env: str) -> str:
    """The output of a run on a terminal."""
    from tests import terminal

    return terminal.on_terminal(command(*args), 80, environment(**env)).data.decode()


def write(name: str, text: str | bytes = LOOSE) -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> list[str]:
    """The files that differ, besides the list of those that `fix` edited."""
    assert list(before) == [name for name in after if name != FIXED]
    return [name for name in before if before[name] != after[name]]


def underlined(text: str) -> list[str]:
    """The text above each run of carets."""
    return [
        above[line.index("^") : line.rindex("^") + 1]
        for above, line in pairwise(text.split("\n"))
        if "^" in line and not line.strip(" |^")
    ]


@pytest.fixture
def loose() -> Path:
    """A file whose reshape moves bytes."""
    return write("loose.hlo")


@pytest.fixture
def named(crash: Path) -> Path:
    """The dump that the finding of the crash names."""
    return next(crash.glob(f"{NAMED}*"))


# Exit status


@pytest.mark.parametrize(
    "case", sorted(DUMPS.glob("*/*")), ids=lambda case: "/".join(case.parts[-2:])
)
def test_every_fixture_dump_exits_as_its_manifest_says(case: Path) -> None:
    outcome = json.loads((case / "MANIFEST.json").read_text())["outcome"]
    ran = check_json(str(case))
    errors = [found["rule"] for found in ran.findings if found["severity"] == "error"]
    if case.name == "offloaded_scan_refused":
        assert sorted(errors) == ["broken-while", "broken-while", "wrong-result-shape"]
    else:
        assert errors == ([] if outcome == "compiled" else ["reshape-moves-data"])
    counted = [found for found in ran.findings if found["severity"] != "info"]
    assert ran.status == (1 if counted else 0)


def test_one_missing_path_among_others_exits_2_and_nothing_is_fixed(loose: Path) -> None:
    assert run("fix", "loose.hlo", "nowhere").status == 2
    assert loose.read_text() == LOOSE


@pytest.mark.parametrize("name", ["algsimp", "hlo_normalization"])
def test_any_pass_and_pipeline_of_a_release_may_come_next(name: str, loose: Path) -> None:
    assert run("check", "--before", name, "loose.hlo").status == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("check --nonsense .", ""), ("check --output-format xml .", ""),
        ("fix --form broadcast .", ""), ("nonsense", ""), ("explain", ""), ("check - .", ""),
        ("check nowhere", "nowhere: no such file or directory"),
        ("fix nowhere", "nowhere: no such file or directory"), (f"check {'a' * 5000}", ""),
        ("check --select reshape-move-data .", "did you mean reshape-moves-data?"),
        ("check --ignore reshape-move-data .", "did you mean reshape-moves-data?"),
        ("check --before layout-normalization .", "layout_normalization"),
        ("check -o loose.hlo/report loose.hlo", "loose.hlo/report: cannot be written"),
        ("check --statistics --output-format sarif loose.hlo", "--statistics is text or json"),
        ("check --stdin-filename x.hlo loose.hlo", "--stdin-filename"),
        ("check --watch -", "--watch"), ("check --jobs= .", "neither auto nor a whole number"),
    ],
    ids=lambda words: words[:40],
)  # fmt: skip
def test_wrong_use_exits_2_and_says_so(words: str, says: str, loose: Path) -> None:
    ran = run(*words.split())
    assert (ran.status, ran.out) == (2, "")
    assert "Error: " in ran.errors
    assert says in ran.errors


def test_strict_reports_what_xla_refuses_as_errors() -> None:
    lines = "  n = f32[4]{0} negate(p\n  ROOT t = f32[4]{0} transpose(p)"
    write("refused.hlo", entry(f"  p = f32[4]{{0}} parameter(0)\n{lines}"))
    plain = run("check", "refused.hlo").out
    assert "parser-refuses" not in plain
    assert "warning[unreadable-text]" in plain
    assert "error[malformed-text]: transpose needs the attribute dimensions" in plain
    ran = run("check", "--strict", "refused.hlo")
    assert ran.status == 1
    assert "error[parser-refuses]: jaxlib 0." in ran.out
    assert "--> refused.hlo:5:24" in ran.out


def test_the_version_is_said_without_an_installed_package() -> None:
    import hlo_lint

    ran = run("--version")
    assert (ran.status, hlo_lint.__version__ in ran.out) == (0, True)


def test_a_letter_asks_for_the_help_of_a_command() -> None:
    ran = run("check", "-h")
    assert (ran.status, ran.out.startswith("Usage: hlo-lint")) == (0, True)


def test_the_help_groups_the_commands_and_cuts_no_description() -> None:
    from hlo_lint.apps.cli.main import FOR_PROGRAMS, GROUPS
    from hlo_lint.apps.cli.other_packages import DISTRIBUTIONS

    screen = run("--help", COLUMNS="80").out
    # As many packages as are installed may add lines to this section.
    own = re.sub(r"Of other packages:\n.*?\n\n", "", screen, flags=re.S)
    assert own.count("\n") <= 40
    listed = screen.partition("\nFind and fix:")[2]
    assert "..." not in listed
    assert listed.endswith(f"\nFor editors, shells and scripts: {', '.join(FOR_PROGRAMS)}.\n")
    rows = re.findall(r"^  ([a-z-]+) +\S", listed, re.M)
    assert rows == [name for names in (*GROUPS.values(), DISTRIBUTIONS) for name in names]


# What people read


def test_the_caret_stands_under_the_operand_and_origin_and_pass_are_named(crash: Path) -> None:
    out = run("check", "crash").out
    assert underlined(out) == ["%get-tuple-element"]
    assert f"{NAMED}before_cublas-gemm-broadcast-folding-rewriter.txt:43:50\n" in out
    assert "from: programs.py:40 in batched_dot\n" in out
    assert "since: pass autotuner of post-layout_assignment, step 0030\n" in out
    assert "ShapeUtil::ReshapeIsBitcast" in out
    assert "%custom-call.1, which feeds it, is a GEMM call" in out
    assert "split %gemm_fusion_dot.2" in out
    assert "missing: reshape-decomposer after autotuner" in out


@pytest.mark.parametrize(
    "operand",
    ["%p", "p", "%f", "f32[8,3]{1,0} %p", "f32[8,3]{1,0} %f", "f32[8,3]{1,0} f", "/* p */ %p"],
)
def test_the_caret_finds_the_name_however_the_operand_is_spelled(operand: str) -> None:
    name = operand.split()[-1]
    text = (
        LOOSE.replace("reshape(%p)", f"reshape({operand})")
        .replace("%p = ", f"{name} = ")
        .replace("bitcast(%p)", f"bitcast({name})")
    )
    write("loose.hlo", text)
    assert underlined(run("check", "loose.hlo").out) == [name]


@pytest.mark.parametrize(
    "text",
    [
        LOOSE.replace("%p", f"%{'p' * 400}"),
        LOOSE.replace("  ROOT", "\t\tROOT"),
        LOOSE.replace("reshape(", "reshape(/* é\x1b[31m */"),
    ],
    ids=["long", "tabs", "controls"],
)
def test_the_caret_stands_right_on_lines_that_are_not_shown_as_they_are(text: str) -> None:
    write("loose.hlo", text)
    out = run("check", "loose.hlo").out
    (stretch,) = underlined(out)
    assert stretch.rstrip("…").strip("p") in ("%", "")
    assert max(map(len, out.split("\n"))) < 400
    assert "\x1b" not in out


def test_where_there_is_no_terminal_a_slow_step_is_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with status_line(line_after=0.2) as note:
        note("quick")
        note("slow")
        time.sleep(0.6)
        note("quick again")
    with status_line() as note:
        note("slow")
        time.sleep(0.4)
    assert capsys.readouterr().err == "slow …\n"


def test_a_terminal_gets_colours_unless_no_color_is_set(loose: Path) -> None:
    assert "\x1b[1;33m" in on_terminal("check", "loose.hlo")
    assert "\x1b[1;33m" not in on_terminal("check", "loose.hlo", NO_COLOR="1")


def test_what_was_not_looked_at_is_said(crash: Path) -> None:
    assert "skipped" not in run("check", "crash").out
    line = run("check", "--verbose", "crash").out.splitlines()[0]
    assert line.startswith("skipped: crash: ")
    assert "2" in line
    assert "(json, pbtxt)" in line


@pytest.mark.parametrize("words", ["check --output-format concise", "fix --diff"])
def test_nothing_is_said_of_a_clean_file(words: str) -> None:
    write("clean.hlo", CLEAN)
    ran = run(*words.split(), "clean.hlo")
    assert (ran.status, ran.out) == (0, "")


# JSON


def test_the_json_of_a_clean_run_is_the_same_object_without_findings() -> None:
    write("clean.hlo", CLEAN)
    ran = check_json("clean.hlo")
    assert ran.status == 0
    assert run("check", "clean.hlo", HLO_LINT_OUTPUT_FORMAT="json").json == ran.json
    stats = {"files": 1, "modules": 1}
    stats |= dict.fromkeys(("errors", "warnings", "infos", "resolved", "hidden"), 0)
    nothing: dict[str, object] = {"findings": [], "allowed": [], "skipped": []}
    assert ran.json == {"version": 3, **nothing, "stats": stats}


# Loose files, several modules, text that cannot be read


def test_a_loose_file_is_a_warning_that_says_when_it_is_fatal(loose: Path) -> None:
    (found,) = check_json("loose.hlo").findings
    assert found["severity"] == "warning"
    notes = " ".join(found["notes"])
    assert "fatal if layout_normalization comes before the next reshape-decomposer" in notes
    assert "--before layout_normalization" in notes
    (found,) = check_json("loose.hlo", *NEXT).findings
    assert found["severity"] == "error"
    assert "ShapeUtil::ReshapeIsBitcast" in " ".join(found["notes"])


def test_a_scheduled_loose_file_is_skipped_with_the_reason() -> None:
    write("loose.hlo", LOOSE.replace("HloModule m", "HloModule m, is_scheduled=true"))
    ran = check_json("loose.hlo")
    assert (ran.status, ran.findings) == (0, [])
    assert "scheduled" in ran.json["skipped"][0]["reason"]


@pytest.mark.parametrize("between", ["// -----\n", "\n", "\n// -----\n\n"])
def test_each_module_of_a_file_has_its_own_findings(between: str) -> None:
    write("several.hlo", between.join((LOOSE, CLEAN, LOOSE)))
    report = check_json("several.hlo").json
    assert report["stats"]["modules"] == 3
    step = (LOOSE + between + CLEAN + between).count("\n")
    assert [found["line"] for found in report["findings"]] == [5, 5 + step]


def test_a_hundred_unreadable_lines_make_a_short_report() -> None:
    body = "".join(f"  garbage {number} =\n" for number in range(100))
    write("cut.hlo", LOOSE.replace("  ROOT", body + "  ROOT"))
    write("noise.hlo", body)
    ran = run("check", "cut.hlo", "noise.hlo")
    assert ran.status == 1
    assert "unreadable-text" in ran.out
    assert len(ran.out.splitlines()) < 50


def test_names_with_blanks_and_strange_letters_are_paths_like_any() -> None:
    write("a folder/größe ü.hlo")
    (found,) = check_json("a folder").findings
    assert found["path"] == "a folder/größe ü.hlo"
    assert run("fix", "a folder").status == 0
    assert run("check", "a folder").status == 0


# Which rules


@pytest.mark.parametrize(
    ("args", "rules"),
    [
        ((), {"reshape-moves-data", "unreadable-text"}),
        (("--select", "reshape-moves-data"), {"reshape-moves-data"}),
        (("--select", "layout"), {"reshape-moves-data"}),
        (("--select", "form,layout"), {"reshape-moves-data", "unreadable-text"}),
        (("--select", "form", "--select", "layout"), {"reshape-moves-data", "unreadable-text"}),
        (("--ignore", "layout"), {"unreadable-text"}),
        (("--ignore", "unreadable-text, layout"), set()),
        (("--select", "layout", "--ignore", "reshape-moves-data"), set()),
    ],
)
def test_rules_are_chosen_by_name_family_and_list(args: tuple[str, ...], rules: set[str]) -> None:
    write("both.hlo", LOOSE + "garbage")
    ran = check_json(*args, "both.hlo")
    assert {found["rule"] for found in ran.findings} == rules
    assert ran.status == bool(rules)


def test_fix_leaves_what_a_rule_that_was_not_chosen_would_mend(loose: Path) -> None:
    assert run("fix", "--select", "form", "loose.hlo").status == 0
    assert loose.read_text() == LOOSE


def test_rules_lists_each_rule_with_its_family_also_as_json() -> None:
    ran = run("rules")
    assert ran.status == 0
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["layout", "reshape-moves-data", "error", "yes"] in [row[:4] for row in rows]
    assert ["form", "unreadable-text", "warning", "no"] in [row[:4] for row in rows]
    listed = json.loads(run("rules", "--output-format", "json").output)
    assert {"name", "family", "severity", "fixable", "summary"} == set(listed[0])
    assert len(listed) == len(all_rules()) == len(rows) - 1


def test_explain_says_why_and_shows_bad_and_good() -> None:
    ran = run("explain", "reshape-moves-data")
    assert ran.status == 0
    for part in ("# reshape-moves-data", "## Why", "## Bad", "## Good", "ReshapeIsBitcast"):
        assert part in ran.out


@pytest.mark.parametrize(
    ("name", "offered"), [("nonsense", "`hlo-lint rules`"), ("layout", "reshape-moves-data")]
)
def test_explain_of_no_rule_exits_2_and_does_not_offer_the_same(name: str, offered: str) -> None:
    ran = run("explain", name)
    assert ran.status == 2
    assert f"did you mean {name}?" not in ran.errors
    assert offered in ran.errors


# Standard input


def test_check_reads_standard_input() -> None:
    ran = run("check", "-", "--output-format", "json", input=LOOSE.encode())
    (found,) = ran.findings
    assert (ran.status, found["path"], found["line"]) == (1, "<stdin>", 5)


def test_fix_of_standard_input_prints_the_fixed_text_and_nothing_else() -> None:
    ran = run("fix", "-", *NEXT, input=LOOSE.encode())
    assert ran.status == 0
    assert ran.out == LOOSE.replace(
        "ROOT %r = f32[4,2,3]{0,1,2} reshape(%p)",
        "%r.bitcast = f32[4,2,3]{2,1,0} bitcast(%p)\n"
        "  ROOT %r = f32[4,2,3]{0,1,2} copy(%r.bitcast)",
    )


@pytest.mark.parametrize("data", [CLEAN.encode(), b"\xff\x00\r\n garbage", b""])
def test_fix_of_standard_input_passes_on_what_it_cannot_mend(data: bytes) -> None:
    assert run("fix", "-", input=data).output == data


def test_fix_of_standard_input_may_go_to_a_file() -> None:
    assert run("fix", "-", "-o", "out.hlo", input=LOOSE.encode()).output == b""
    assert "transpose(" in Path("out.hlo").read_text()


# Fix


def test_fix_changes_only_the_dump_that_the_finding_names(crash: Path, named: Path) -> None:
    before = snapshot(crash)
    ran = run("fix", "--in-place", "crash")
    assert (ran.status, ran.out) == (0, "")
    once = snapshot(crash)
    assert changed(before, once) == [named.name]
    assert (crash / FIXED).read_text() == f"{named.name}\n"
    assert run("check", "crash").status == 0
    ran = run("fix", "--in-place", "crash")
    assert (ran.status, snapshot(crash)) == (0, once)
    assert "nothing to fix" in ran.errors


def test_a_dump_directory_is_not_edited_unless_that_is_asked_for(crash: Path) -> None:
    before = snapshot(crash)
    ran = run("fix", "crash")
    assert (ran.status, changed(before, snapshot(crash))) == (2, [])
    assert "`hlo-lint fix crash -o FIXED` writes a fixed copy" in ran.errors
    assert run("fix", "--diff", "crash").status in (0, 1)
    assert changed(before, snapshot(crash)) == []


@pytest.mark.parametrize("release", ["0.10.0", "0.10.2", "0.11.2"])
def test_fix_touches_no_dump_without_the_reshape(release: str) -> None:
    source = DUMPS / f"gpu-jax{release}" / "no_reshape_decomposer_crash"
    copy = Path(shutil.copytree(source, "dump"))
    before = snapshot(copy)
    (found,) = check_json("dump").findings
    assert run("fix", "--in-place", "dump").status == 0
    names = changed(before, snapshot(copy))
    assert Path(found["path"]).name in names
    assert all(" reshape(%transpose.1)" in before[name].decode() for name in names)
    assert run("check", "dump").status == 0


def test_fix_keeps_the_mode_and_a_link_stays_a_link(named: Path) -> None:
    named.chmod(0o640)
    link = Path("link.txt")
    link.symlink_to(named)
    assert run("fix", "link.txt").status == 0
    assert link.is_symlink()
    assert stat.S_IMODE(named.stat().st_mode) == 0o640
    assert " reshape(%get-tuple-element)" not in named.read_text()


@pytest.mark.parametrize("name", ["check", "report", "fix", "check --write-baseline b.json"])
@pytest.mark.parametrize("content", [{}, {"x.json": "{}"}], ids=["empty", "without HLO"])
def test_a_directory_without_hlo_exits_2_unless_allowed(name: str, content: dict[str, str]) -> None:
    Path("dump").mkdir()
    for file, text in content.items():
        (Path("dump") / file).write_text(text)
    words = [*name.split(), "dump", *(["-o", "page.html"] if name == "report" else [])]
    ran = run(*words)
    assert (ran.status, ran.errors.splitlines()[-1][:29]) == (2, "Error: nothing checked: dump:")
    assert "--xla_dump_hlo_as_text" in ran.errors
    reason = "no HLO text in 1 of its files" if content else "there is no HLO in it"
    assert (ran.out + ran.errors).count(reason) == 1
    assert not Path("b.json").exists()
    assert run(*words, "--allow-empty").status == 0


def test_one_directory_without_hlo_fails_the_run_after_the_others_are_checked() -> None:
    Path("empty").mkdir()
    write("sound.hlo", CLEAN)
    ran = run("check", "empty", "sound.hlo")
    assert ran.status == 2
    assert "no findings in 1 file, 1 module of HLO" in ran.out
    assert run("check", "empty", "sound.hlo", "--exit-zero").status == 2


def test_a_directory_whose_hlo_is_excluded_is_no_error() -> None:
    Path("dump").mkdir()
    write("dump/sound.hlo", CLEAN)
    ran = run("check", "dump", "--exclude", "*.hlo")
    assert ran.status == 0
    assert "all HLO in it is excluded" in ran.out


def test_what_cannot_be_written_exits_2_and_leaves_nothing_behind(loose: Path) -> None:
    write("plain")
    before = snapshot(Path())
    assert run("fix", "loose.hlo", "-o", "plain/out.hlo").status == 2
    assert snapshot(Path()) == before


def test_fix_exits_1_when_something_is_left() -> None:
    path = write("both.hlo", LOOSE + "garbage")
    ran = run("fix", "both.hlo")
    assert ran.status == 1
    assert "unreadable-text" in ran.errors
    assert path.read_text().endswith("garbage")
    assert "transpose(" in path.read_text()


@pytest.mark.parametrize("target", ["crash", "crash/" + NAMED])
def test_diff_prints_the_change_and_writes_nothing(crash: Path, named: Path, target: str) -> None:
    before = snapshot(crash)
    ran = run("fix", "--diff", target if target == "crash" else str(named))
    assert snapshot(crash) == before
    lines = ran.out.splitlines()
    assert lines[0].startswith("--- ")
    assert named.name in lines[0]
    assert lines[1].startswith("+++ ")
    assert [line[:14] for line in lines[2:] if line[0] != " "] == [
        "@@ -41,5 +41,6", "-  %reshape.15", "+  %reshape.15", "+  %reshape.15",
    ]  # fmt: skip


def test_diff_counts_lines_as_editors_do() -> None:
    write("loose.hlo", LOOSE.replace("HloModule m\n", "HloModule m\n// \x0c \u2028 here\n"))
    assert "@@ -4,5 +4,7 @@" in run("fix", "--diff", "loose.hlo").out


def test_diff_says_where_a_last_line_has_no_end() -> None:
    write("loose.hlo", LOOSE.removesuffix("\n"))
    assert "\\ No newline at end of file" in run("fix", "--diff", "loose.hlo").out


@pytest.mark.parametrize(
    ("args", "opcode"),
    [((), "transpose("), (NEXT, "copy("), (("--form", "copy"), "copy("),
     ((*NEXT, "--form", "transpose"), "transpose(")],
)  # fmt: skip
def test_the_form_is_as_asked_for_or_fits_the_next_pass(args: tuple[str, ...], opcode: str) -> None:
    path = write("loose.hlo")
    assert run("fix", *args, "loose.hlo").status == 0
    text = path.read_text()
    assert [word for word in ("copy(", "transpose(") if word in text] == [opcode]


def test_for_one_file_out_is_a_file(loose: Path) -> None:
    assert run("fix", "loose.hlo", "-o", "new/out.hlo").status == 0
    assert loose.read_text() == LOOSE
    assert "transpose(" in Path("new/out.hlo").read_text()


def test_a_clean_file_is_written_out_as_it_is() -> None:
    write("clean.hlo", CLEAN)
    assert run("fix", "clean.hlo", "-o", "out.hlo").status == 0
    assert Path("out.hlo").read_text() == CLEAN


def test_for_a_folder_out_mirrors_it_with_the_untouched_files(crash: Path, named: Path) -> None:
    write("crash/deep/er/note.md", "kept")
    before = snapshot(crash)
    assert run("fix", "crash", "-o", "out").status == 0
    assert snapshot(crash) == before
    assert changed(before, snapshot(Path("out"))) == [named.name]


def test_for_several_files_out_is_a_folder() -> None:
    write("a.hlo")
    write("b.hlo", CLEAN)
    assert run("fix", "a.hlo", "b.hlo", "-o", "out").status == 0
    assert "transpose(" in Path("out/a.hlo").read_text()
    assert Path("out/b.hlo").read_text() == CLEAN


def test_two_folders_with_the_same_names_do_not_fall_on_each_other() -> None:
    write("a/x.hlo", "// a\n" + LOOSE)
    write("b/x.hlo", "// b\n" + LOOSE)
    ran = run("fix", "a", "b", "-o", "out")
    texts = [path.read_text()[:4] for path in Path("out").rglob("*.hlo")]
    assert ran.status == 2 or sorted(texts) == ["// a", "// b"]


@pytest.mark.parametrize("out", ["dumps/one", "dumps", "."])
def test_an_output_at_or_above_the_input_is_written_or_refused(out: str) -> None:
    write("dumps/one/loose.hlo")
    ran = run("fix", "dumps/one", "-o", out)
    written = Path(out, "loose.hlo")
    assert ran.status == 2 or (written.is_file() and "transpose(" in written.read_text())


def test_an_output_below_the_input_does_not_mirror_itself(crash: Path) -> None:
    names = list(snapshot(crash))
    assert run("fix", "crash", "-o", "crash/fixed").status == 0
    assert list(snapshot(crash / "fixed")) == sorted([*names, "hlo-lint.fixed"])


def test_a_link_to_nothing_does_not_stop_a_mirror(crash: Path, named: Path) -> None:
    (crash / "a_link").symlink_to("nothing")
    assert run("fix", "crash", "-o", "out").status == 0
    assert (Path("out") / named.name).is_file()


def test_lines_that_end_in_crlf_keep_doing_so() -> None:
    path = write("loose.hlo", LOOSE.replace("\n", "\r\n"))
    assert run("fix", "loose.hlo").status == 0
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n") == 9


# Several paths


def test_a_path_given_twice_is_checked_once(crash: Path, named: Path) -> None:
    assert len(check_json("crash", "crash").findings) == 1
    assert len(check_json("crash", str(named)).findings) == 1


def test_files_by_name_are_judged_like_their_folder(crash: Path) -> None:
    texts = [str(path) for path in sorted(Path("crash").glob("*.txt"))]
    (by_name,), (by_folder,) = check_json(*texts).findings, check_json("crash").findings
    assert by_name == by_folder


def test_every_file_of_a_folder_by_name_still_shows_the_crash(crash: Path) -> None:
    files = [str(path) for path in sorted(crash.iterdir())]
    errors = [found for found in check_json(*files).findings if found["severity"] == "error"]
    assert [found["instruction"] for found in errors] == ["reshape.15"]


def test_a_proto_is_never_overwritten_with_text() -> None:
    parser = pytest.importorskip("jaxlib._hlo")
    proto = parser.hlo_module_from_text(LOOSE).as_serialized_hlo_module_proto()
    path = write("dump/x.hlo.pb", proto)
    assert check_json("dump").json["stats"]["warnings"] == 1
    ran = run("fix", "--in-place", "dump")
    assert (ran.status == 0, path.read_bytes() == proto) == (False, True)


# What is asked for besides


def test_the_report_goes_to_a_file_where_one_is_named(loose: Path) -> None:
    ran = run("check", "-o", "out/report.json", "--output-format", "json", "loose.hlo")
    assert (ran.status, ran.output) == (1, b"")
    written = Path("out/report.json").read_bytes()
    assert written == check_json("loose.hlo").output
    ran = run("check", "--output", "report.txt", "loose.hlo", FORCE_COLOR="1")
    assert ran.output == b""
    assert Path("report.txt").read_bytes() == run("check", "loose.hlo").output


@pytest.mark.parametrize("command", ["check", "fix"])
def test_exit_zero_forgives_findings_and_nothing_else(command: str) -> None:
    write("loose.hlo", LOOSE.replace("%p)", "%p), sharding={replicated"))
    assert run(command, "loose.hlo").status == 1
    assert run(command, "--exit-zero", "loose.hlo").status == 0
    assert run(command, "--exit-zero", "nowhere.hlo").status == 2


def test_quiet_prints_findings_and_nothing_else(crash: Path) -> None:
    out = run("check", "--quiet", "crash").out
    assert out.startswith("error[reshape-moves-data]")
    assert "skipped: " not in out
    assert " in 33 files" not in out
    run("check", "--quiet", "-o", "report", "crash")
    assert Path("report").read_text() == out
    ran = run("fix", "--in-place", "--quiet", "crash")
    assert (ran.output, ran.errors) == (b"", "")


def test_verbose_says_what_was_read_and_how(crash: Path) -> None:
    write("hlo_lint.toml", 'ignore = ["layout"]')
    ran = run("check", "--verbose", "crash")
    assert "settings: " in ran.errors
    assert f"{Path('hlo_lint.toml').absolute()}\n" in ran.errors
    assert "read: 33 files, 33 modules of HLO\n" in ran.errors
    assert "settings: no file\n" in run("check", "-v", "--isolated", "crash").errors


def test_the_files_that_would_be_read_are_listed_and_not_read(crash: Path) -> None:
    (crash / "ptx").mkdir()
    (crash / "ptx" / "module_0001.jit_batched_dot.0099.p.after_q.before_r.txt").write_bytes(b"\0")
    ran = run("check", "--show-files", "crash")
    listed = ran.out.splitlines()
    assert (ran.status, ran.errors, len(listed)) == (0, "", 34)
    assert all(Path(path).is_file() for path in listed)


# Standard input with a name


def piped(*args: str, text: str = LOOSE) -> Ran:
    return run("check", "--output-format", "json", *args, "-", input=text.encode())


def test_what_is_piped_is_reported_under_the_name_it_is_given() -> None:
    (found,) = piped("--stdin-filename", "src/model.hlo").findings
    assert found["path"] == "src/model.hlo"


def test_the_name_decides_the_kind_of_text_and_whether_layouts_bind() -> None:
    ptx = (FIXTURES / "ptx/last_wait_removed/triton_sm80_three_stages.ptx").read_text()
    named = piped("--stdin-filename", "kernel.ptx", text=ptx).findings
    assert {found["rule"] for found in named} == {"store-overtakes-copy"}
    assert not piped("--stdin-filename", "m.before_optimizations.hlo").findings
    (found,) = piped(
        "--stdin-filename", "module_0001.m.0003.p.after_q.before_layout_normalization.txt"
    ).findings
    assert (found["severity"], found["step"]) == ("error", 3)


def test_the_name_decides_which_settings_hold() -> None:
    write("src/hlo_lint.toml", '[per-path-ignores]\n"old.hlo" = ["layout"]')
    assert not piped("--stdin-filename", "src/old.hlo").findings
    assert piped("--stdin-filename", "src/new.hlo").findings
    assert piped("--stdin-filename", "old.hlo").findings


def test_what_is_piped_and_fixed_has_its_name_too() -> None:
    ran = run("fix", "--diff", "--stdin-filename", "x/y.hlo", *NEXT, "-", input=LOOSE.encode())
    assert ran.out.startswith("--- x/y.hlo\n+++ x/y.hlo\n")


# Colours


def test_colours_are_forced_and_forbidden(loose: Path) -> None:
    assert b"\x1b[" in run("check", "--color", "always", "loose.hlo", NO_COLOR="1").output
    assert "\x1b" not in on_terminal("check", "--color", "never", "loose.hlo")
    write("noise.txt", bytes(range(256)) * 20)
    assert "\x1b[" in run("fix", "--color", "always", "noise.txt").errors


# Fixes


def test_what_may_change_a_value_is_mended_only_on_request_and_said_to_be_there() -> None:
    rule = find_rule("autotuning-runs-early")
    example = next(e for e in rule.examples if isinstance(e, Bad) and e.fixed)
    Path("d").mkdir()
    write_example(example, Path("d"))
    before = snapshot(Path("d"))
    ran = run("fix", "d")
    assert (ran.status, snapshot(Path("d"))) == (1, before)
    assert "nothing fixed" in ran.errors
    assert ran.errors.endswith("1 fixable with `hlo-lint fix --unsafe-fixes`\n")
    assert "(unsafe; hlo-lint fix --unsafe-fixes)" in run("check", "d").out
    assert run("fix", "--in-place", "d").status == 1
    assert snapshot(Path("d")) == before
    copied = Path(shutil.copytree("d", "e"))
    assert run("fix", "--in-place", "--unsafe-fixes", "e").status == 0
    assert snapshot(copied) != before
    write("hlo_lint.toml", "unsafe-fixes = true")
    assert run("fix", "--no-unsafe-fixes", "d").status == 1
    assert run("fix", "d").status == 0
    assert snapshot(Path("d")) != before


def test_a_fix_may_count_as_a_finding(loose: Path) -> None:
    assert run("fix", "--exit-non-zero-on-fix", *NEXT, "loose.hlo").status == 1
    assert run("fix", "--exit-non-zero-on-fix", *NEXT, "loose.hlo").status == 0


# Several processes


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (("chek", "x.hlo"), "no command is named chek: did you mean check?"),
        (
            ("check", "--before", "layout_normalisation", "x.hlo"),
            "no release has a pass or a pipeline named layout_normalisation: "
            "did you mean layout_normalization?",
        ),
        (
            ("capture", "x.py", "--target", "h20"),
            "no target is named h20; did you mean h200? There are h100, h200, v4, v5e, v5p, v6e, "
            "tpu7x, a topology of TPUs (v5e:4x4), and any gpu_target_config.pbtxt of a dump, by "
            "its path",
        ),
        (
            ("explain", "reshape-move-data"),
            "no rule or family is named reshape-move-data: did you mean reshape-moves-data?",
        ),
    ],
    ids=lambda words: words[0] if isinstance(words, tuple) else "",
)
def test_an_unknown_name_gets_a_hint(words: tuple[str, ...], hint: str) -> None:
    write("x.hlo", CLEAN)
    write("x.py", "")
    ran = run(*words)
    assert (ran.status, ran.errors.splitlines()[-1]) == (2, f"Error: {hint}")


# Watching


def test_a_watched_file_is_checked_again_when_it_changes(tmp_path: Path, loose: Path) -> None:
    settings = write("hlo_lint.toml", "")
    program = "from hlo_lint.apps.cli.program import main; main()"
    options = ("check", "--watch", "--output-format", "concise", ".")
    begun = [sys.executable, "-W", "error", "-c", program, *options]
    with started(begun, env=environment(PYTHONUNBUFFERED="1"), **PIPES) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        said = watching.stdout.readline()
        assert said.startswith("loose.hlo:5:39: warning[reshape-moves-data]")
        assert watching.stderr.readline() == "watching; Ctrl-C ends it\n"
        loose.write_text(f"// a line more\n{LOOSE}")
        assert watching.stdout.readline().startswith("loose.hlo:6:39: ")
        assert watching.stderr.readline() == "watching; Ctrl-C ends it\n"
        settings.write_text('select = "layout"')
        assert "hlo_lint.toml:1:1: select: takes" in watching.stderr.readline()
        assert watching.stderr.readline() == "watching; Ctrl-C ends it\n"
        settings.write_text('severity = { layout = "error" }')
        assert watching.stdout.readline().startswith("loose.hlo:6:39: error[")
        assert watching.stderr.readline() == "watching; Ctrl-C ends it\n"
        loose.write_text(CLEAN)
        assert watching.stderr.readline() == "watching; Ctrl-C ends it\n"
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 0


def test_a_report_among_the_files_that_are_watched_is_no_change(loose: Path) -> None:
    with started(
        command("check", "--watch", "-o", "report.txt", "."),
        stderr=subprocess.PIPE,
        env=environment(PYTHONUNBUFFERED="1"),
        text=True,
    ) as watching:
        assert present(watching.stderr).readline() == "watching; Ctrl-C ends it\n"
        first = Path("report.txt").stat().st_mtime_ns
        time.sleep(1.5)
        assert Path("report.txt").stat().st_mtime_ns == first


def test_check_without_a_path_takes_the_folder_of_xla_flags_else_this_one(crash: Path) -> None:
    flags = f"--xla_a=1 --xla_dump_to={crash} --xla_b=2"
    assert run("check", XLA_FLAGS=flags).out == run("check", str(crash)).out
    assert run("check", XLA_FLAGS="--xla_dump_to=-").out == run("check", ".").out


def test_a_reason_to_skip_files_is_said_once() -> None:
    for number in range(3):
        write(f"{number}.hlo", b"\0")
    ran = run("check", "--sniff", "--allow-empty", ".")
    assert [line for line in ran.out.splitlines() if line.startswith("skipped: ")] == [
        "skipped: 0.hlo and 2 more: it holds no HLO"
    ]
    verbose = run("check", "--sniff", "--allow-empty", "--verbose", ".")
    assert [line for line in verbose.out.splitlines() if line.startswith("skipped: ")] == [
        f"skipped: {number}.hlo: it holds no HLO" for number in range(3)
    ]
