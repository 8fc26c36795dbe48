"""Settings: where they are found, what they mean, what is said of those that are wrong."""

from __future__ import annotations

import json
import os
import re
import threading
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import hlo_lint
from hlo_lint import Computation, ConfigError, Finding, Findings, Option, Rule, Settings, Severity
from hlo_lint.apps.cli import common
from hlo_lint.apps.cli.config import settings_text
from hlo_lint.apps.settings.keys import KEYS, read_settings, schema, schema_text
from hlo_lint.apps.settings.load import find_file, load_settings, read_file
from hlo_lint.apps.settings.settings import Globs
from hlo_lint.apps.settings.toml import as_toml
from hlo_lint.apps.settings.toml_locations import SettingPlace, locate
from hlo_lint.apps.testing import write_example
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine import input_size
from hlo_lint.engine.input_size import PARALLEL_MIN_BYTES, automatic_jobs
from hlo_lint.engine.suppressions.allowances import Allowance
from hlo_lint.rules.base import Bad
from hlo_lint.rules.registry import all_rules, find_rule
from tests.apps.test_cli import write
from tests.commands import invoke
from tests.conftest import CRASH, DUMPS, FIXTURES, present
from tests.docs import CONFIGURATION, SCHEMA, with_keys
from tests.texts import entry

LOOSE = entry("""
  %p = f32[8,3]{1,0} parameter(0)
  ROOT %r = f32[4,2,3]{0,1,2} reshape(%p)
""")


pytestmark = pytest.mark.usefixtures("here")


def settings(text: str) -> Settings:
    return read_file(write("hlo_lint.toml", text))


def names(rules: Iterable[Rule]) -> set[str]:
    return {rule.name() for rule in rules}


# Where they are found


@pytest.mark.parametrize(
    ("files", "paths", "wanted"),
    [
        (["hlo_lint.toml"], ["a.hlo"], "hlo_lint.toml"),
        (["pyproject.toml"], ["a.hlo"], "pyproject.toml"),
        (["hlo_lint.toml", "pyproject.toml"], ["a.hlo"], "hlo_lint.toml"),
        (["hlo_lint.toml", "x/pyproject.toml"], ["x/a.hlo"], "x/pyproject.toml"),
        (["x/hlo_lint.toml"], ["x/y/a.hlo", "x/z/a.hlo"], "x/hlo_lint.toml"),
        (["x/y/hlo_lint.toml"], ["x/y/a.hlo", "x/z/a.hlo"], None),
        (["x/hlo_lint.toml"], ["x"], "x/hlo_lint.toml"),
        (["hlo_lint.toml"], ["/"], "hlo_lint.toml"), (["hlo_lint.toml"], [], "hlo_lint.toml"),
        ([], ["a.hlo"], None),
    ],
    ids=str,
)  # fmt: skip
def test_the_nearest_file_above_all_paths_holds_else_that_of_the_working_directory(
    files: list[str], paths: list[str], wanted: str | None, tmp_path: Path
) -> None:
    for name in files:
        write(name, "[tool.hlo_lint]" if name.endswith("pyproject.toml") else "")
    for name in ("a.hlo", "x/a.hlo", "x/y/a.hlo", "x/z/a.hlo"):
        write(name, LOOSE)
    assert find_file(paths) == (None if wanted is None else tmp_path / wanted)


@pytest.mark.parametrize(
    "text", ["", "[tool.ruff]", "# hlo_lint", "[tool.hlo_lint_layers]", "tool=1"]
)
def test_a_pyproject_that_says_nothing_of_the_tool_is_passed_by(text: str, tmp_path: Path) -> None:
    write("hlo_lint.toml", "")
    write("x/pyproject.toml", text)
    assert find_file(["x/a.hlo"]) == tmp_path / "hlo_lint.toml"


def test_the_command_line_reads_the_file_unless_it_is_told_not_to() -> None:
    write("hlo_lint.toml", 'ignore = ["reshape-moves-data"]')
    write("other.toml", '[tool.hlo_lint]\nseverity = { reshape-moves-data = "info" }')
    write("a.hlo", LOOSE)
    assert invoke("check", "a.hlo").exit_code == 0
    assert invoke("check", "--isolated", "a.hlo").exit_code == 1
    told = invoke("check", "--min-severity=info", "--config", "other.toml", "a.hlo")
    assert "info[reshape-moves-data]" in told.output
    assert "settings: " in invoke("check", "-v", "a.hlo").stderr
    assert invoke("fix", "a.hlo").stderr.startswith("nothing to fix")
    assert invoke("check", "--blame", "a.hlo").output == "no findings\n"
    assert invoke("check", "--blame", "--isolated", "a.hlo").exit_code == 1


def test_from_python_no_file_is_read_unless_it_is_asked_for() -> None:
    path = write("a.hlo", LOOSE)
    write("hlo_lint.toml", 'ignore = ["layout"]')
    assert hlo_lint.lint(path).findings
    assert not hlo_lint.lint(path, settings=hlo_lint.load_settings([path])).findings


def test_patterns_and_the_baseline_are_relative_to_the_file_not_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("p/hlo_lint.toml", 'baseline = "known.json"\nexclude = ["/old"]')
    write("p/old/a.hlo", LOOSE)
    write("p/new/old/a.hlo", LOOSE)
    monkeypatch.chdir(tmp_path / "p" / "new")
    found = load_settings(["."])
    assert found.baseline == tmp_path / "p" / "known.json"
    assert found.excludes(Path("../old"))
    assert not found.excludes(Path("old"))


# Which rules run


UNREADABLE, UNUSED, TMA = "unreadable-text", "unused-allowance", "tma-descriptor-refused"


@pytest.mark.parametrize(
    ("file", "args", "wanted"),
    [
        ('select = ["form"]', "", {UNUSED, UNREADABLE}),
        (f'select = ["form"]\nignore = ["{UNUSED}"]', "", {UNREADABLE}),
        (f'ignore = ["form"]\nselect = ["{UNUSED}"]', "", {UNUSED}),
        ('select = ["form"]\nignore = ["form"]', "", set()),
        (f'select = ["{UNUSED}"]\nextend-select = ["{UNREADABLE}"]', "", {UNUSED, UNREADABLE}),
        ('select = ["layout"]', f"--select {UNREADABLE}", {UNREADABLE}),
        ('ignore = ["form"]', f"--select {UNREADABLE}", {UNREADABLE}),
        ("severity = { form = 'off' }", f"--select {UNREADABLE}", {UNREADABLE}),
        ('select = ["form"]', f"--ignore {UNREADABLE}", {UNUSED}),
        (f'select = ["{UNREADABLE}"]', "--ignore form", set()),
        (f'select = ["{UNUSED}"]', f"--extend-select {UNREADABLE}", {UNUSED, UNREADABLE}),
        (
            f'select = ["form"]\nignore = ["{UNREADABLE}"]',
            *(f"--extend-select {UNREADABLE} --ignore form", {UNREADABLE}),
        ),
        (f'select = ["form"]\nseverity = {{ {UNREADABLE} = "off" }}', "", {UNUSED}),
        (
            f'select = ["form"]\nseverity = {{ {UNREADABLE} = "off" }}',
            *(f"--extend-select {UNREADABLE}", {UNUSED, UNREADABLE}),
        ),
        (
            f'select = ["form"]\nseverity = {{ form = "off", {UNREADABLE} = "error" }}',
            *("", {UNREADABLE}),
        ),
        ('select = ["form"]', f"--severity {UNREADABLE}=off", {UNUSED}),
        ("", f"--select {TMA},{UNREADABLE} --ignore tma", {TMA, UNREADABLE}),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_the_command_line_counts_more_than_the_file_and_a_rule_more_than_its_family(
    file: str, args: str, wanted: set[str]
) -> None:
    write("hlo_lint.toml", file)
    given: dict[str, Any] = {}
    options = args.split()
    for option, value in zip(options[::2], options[1::2], strict=True):
        given[option.removeprefix("--").replace("-", "_")] = (value,)
    found = names(common.settings_of((), common.SharedOptions(**given)).chosen_rules())
    assert found & {TMA, UNREADABLE, UNUSED} == wanted  # the family may have more


def test_python_arguments_count_more_than_settings() -> None:
    told = settings('select = ["layout"]\nbefore = "autotuner"')
    report = hlo_lint.lint(
        LOOSE, ["reshape-moves-data"], None, "layout_normalization", settings=told
    )
    assert [each.severity for each in report.findings] == [Severity.ERROR]


BAD = {
    rule.name(): example
    for rule in all_rules()
    for example in rule.examples
    if isinstance(example, Bad)
}


@pytest.mark.parametrize(
    "rule", [rule for rule in all_rules() if rule.command == "check"], ids=lambda rule: rule.name()
)
def test_a_severity_holds_for_every_rule_and_the_exit_status(rule: Rule, tmp_path: Path) -> None:
    name, demand = rule.name(), rule.precondition
    before = demand.demanded_by if demand else None
    path = write_example(BAD[name], tmp_path)
    for level, status in ((Severity.ERROR, 1), (Severity.WARNING, 1), (Severity.INFO, 0)):
        told = Settings(select=(name,), severity={name: level}, before=before)
        report = hlo_lint.lint(path, settings=told)
        assert {each.severity for each in report.findings} == {level}
        assert report.exit_status == status
        assert report.stats[f"{level.value}s"] == len(report.findings)
    off = Settings(select=(name,), severity={name: None}, before=before)
    assert not hlo_lint.lint(path, settings=off).findings


def test_what_was_resolved_stays_information() -> None:
    fission = DUMPS / "gpu-jax0.10.2" / "cublaslt_fission"
    told = Settings(severity={"reshape-moves-data": Severity.ERROR})
    report = hlo_lint.lint(fission, ["reshape-moves-data"], settings=told, resolved=True)
    assert [each.severity for each in report.findings] == [Severity.INFO]


# Options of rules


def final(folder: Path, text: str) -> Path:
    stem = "module_0001.jit_f.sm_9.0_gpu_after_optimizations"
    write(f"{folder}/{stem}.txt", text)
    write(f"{folder}/{stem.removesuffix('_gpu_after_optimizations')}_gpu.ir-no-opt.ll", "")
    return folder


@pytest.mark.parametrize(
    ("rule", "option", "silent", "loud"),
    [
        ("needless-transpose", "min-bytes", 1 << 40, 1),
        ("costly-transposes", "min-bytes", 1 << 40, 1 << 20),
        ("reshape-runs-as-kernel", "min-bytes", 1 << 40, 0),
        ("fragile-autotuner-winner", "lasting-lead", 1.001, 1.2),
    ],
)
def test_an_option_changes_what_its_rule_says(
    rule: str, option: str, silent: float, loud: float, tmp_path: Path
) -> None:
    example = next(each for each in find_rule(rule).examples if isinstance(each, Bad))
    path = write_example(example, tmp_path)
    for value, found in ((silent, False), (loud, True)):
        told = Settings(select=(rule,), rules={rule: {option: value}})
        assert bool(hlo_lint.lint(path, settings=told).findings) is found


def test_a_rule_without_options_is_as_it_was_and_one_with_the_same_options_is_the_same() -> None:
    rule = find_rule("needless-transpose")
    told = Settings(rules={"needless-transpose": {"min-bytes": 9}})
    (first,), (second,) = (
        [each for each in told.chosen_rules() if each.name() == rule.name()] for _ in range(2)
    )
    assert first is second
    assert first is not rule
    assert (vars(first), vars(rule)) == ({"min_bytes": 9}, {})
    with pytest.raises(hlo_lint.UsageError, match="did you mean min-bytes"):
        rule.with_options({"min-byte": 3})
    with pytest.raises(hlo_lint.UsageError, match="a whole number of at least 0, not True"):
        rule.with_options({"min-bytes": True})


class LongComputation(Rule):
    """A computation of more than so many instructions."""

    most = Option(2, "Instructions.", least=0)
    strict = Option(True, "True if it is told at all.")
    word = Option("long", "What it is called.")

    def check(self, computation: Computation) -> Findings:
        if len(computation.instructions) > self.most and self.strict:
            yield Finding(computation.instructions[-1], self.word)


def test_a_rule_of_ones_own_has_options_of_any_type() -> None:
    told: dict[str, int | bool | str] = {"most": 1, "word": "too long"}
    found = hlo_lint.lint(
        LOOSE, [LongComputation], settings=Settings(rules={"long-computation": told})
    ).findings
    assert [each.message for each in found] == ["too long"]
    assert not hlo_lint.lint(LOOSE, [LongComputation]).findings
    told["strict"] = False
    assert not hlo_lint.lint(
        LOOSE, [LongComputation], settings=Settings(rules={"long-computation": told})
    ).findings
    with pytest.raises(hlo_lint.UsageError, match="strict takes true or false, not 1"):
        LongComputation().with_options({"strict": 1})
    with pytest.raises(hlo_lint.UsageError, match="word takes a text, not 1"):
        LongComputation().with_options({"word": 1})


PAD = entry("""
  p = f32[8]{0} parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[108]{0} pad(p, z), padding=0_100
""")


def test_the_rule_on_the_page_about_settings_takes_its_option() -> None:
    text = CONFIGURATION.read_text("utf-8")
    block = present(re.search(r"```python\n(.*?)```", text, re.S))
    page: dict[str, Any] = {"__name__": "pages.wide_pad"}
    exec(block[1], page)
    rule = page["WidePad"]
    assert not hlo_lint.lint(PAD, [rule]).findings
    told = Settings(rules={"wide-pad": {"max-added": 64}})
    (found,) = hlo_lint.lint(PAD, [rule], settings=told).findings
    assert found.message == "this pad adds more than 64 elements"


def test_the_page_of_a_rule_lists_its_options() -> None:
    page = invoke("explain", "costly-transposes").output
    assert "`[tool.hlo_lint.rules.costly-transposes]`" in page
    assert "- `min-bytes = 16777216` (a whole number of at least 0): " in page


# Files


def test_rules_are_silent_about_files_that_a_pattern_means() -> None:
    for name in ("a.hlo", "old/a.hlo", "old/deep/b.hlo"):
        write(name, LOOSE)
    write("hlo_lint.toml", '[per-path-ignores]\n"old/" = ["layout"]\n"b.*" = ["speed"]')
    told = load_settings(["."])
    found = hlo_lint.lint(".", settings=told).findings
    assert [each.path for each in found] == ["a.hlo"]
    fixed = hlo_lint.fix(".", settings=told, before="layout_normalization")
    assert [str(file.path) for file in fixed.files] == ["a.hlo"]


def test_what_is_excluded_is_not_read_unless_it_is_given_by_name() -> None:
    for name in ("a.hlo", "old/b.hlo", "new/c.hlo", "new/d.hlo"):
        write(name, LOOSE)
    write("hlo_lint.toml", 'exclude = ["old", "new/c.*"]')
    listed = invoke("check", "--show-files", ".").output.split()
    assert listed == ["a.hlo", "new/d.hlo"]
    assert invoke("check", "--show-files", "old/b.hlo").output.split() == ["old/b.hlo"]
    forced = invoke("check", "--force-exclude", "old/b.hlo", "new/c.hlo")
    assert forced.exit_code == 0
    assert "skipped: old/b.hlo and 1 more: it is excluded" in forced.output
    assert invoke("check", "--show-files", "--exclude", "new", ".").output.split() == ["a.hlo"]


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.hlo", "a.hlo", True), ("*.hlo", "x/y/a.hlo", True), ("x/*.hlo", "x/a.hlo", True),
        ("x/*.hlo", "y/x/a.hlo", False), ("**/x/*.hlo", "y/x/a.hlo", True),
        ("x", "x/y/a.hlo", True), ("x/**", "x/y/a.hlo", True), ("/a.hlo", "a.hlo", True),
        ("/a.hlo", "x/a.hlo", False), ("dump", "../elsewhere/dump/a.txt", True),
        ("elsewhere/dump", "../elsewhere/dump/a.txt", False), ("a[01].hlo", "a1.hlo", True),
    ],
)  # fmt: skip
def test_patterns_follow_git(pattern: str, path: str, matches: bool, tmp_path: Path) -> None:
    assert Globs((pattern,), tmp_path).match(tmp_path / path) is matches


# Allowances and the baseline


def test_an_allowance_in_the_file_is_held_and_one_without_use_is_told_with_its_place() -> None:
    write("a.hlo", LOOSE)
    told = settings(
        "[[allow]]\n"
        'rule = "reshape-moves-data"\n'
        'reason = "the next pass is a reshape-decomposer"\n'
        'module = "m"\n'
    )
    report = hlo_lint.lint("a.hlo", settings=told)
    assert (report.findings, len(report.allowed)) == ((), 1)
    assert report.allowed[0].reason == "the next pass is a reshape-decomposer"
    write("b/c.hlo", LOOSE)
    write(
        "hlo_lint.toml",
        '[[allow]]\nrule = "speed"\nreason = "r"\n\n[[allow]]\nrule = "layout"\nreason = "r"\n'
        'path = "c.hlo"\nmodule = "other"\n',
    )
    found = hlo_lint.lint("b", settings=load_settings(["b"])).findings
    unused = [each for each in found if each.rule == "unused-allowance"]
    assert [(each.path, each.line) for each in unused] == [("hlo_lint.toml", 1)]


# What is wrong with a file

WRONG = {
    'selekt = ["layout"]': "1:1: selekt: unknown key: did you mean select?",
    'select = "layout"': '1:1: select: takes an array of rules and families, not "layout"',
    'select = [\n  "layout",\n  "layut",\n]': (
        "3:3: select[1]: no rule or family is named layut: did you mean layout?"
    ),
    "ignore = [1]": "1:1: ignore[0]: takes the name of a rule or of a family, not 1",
    "jobs = 0": '1:1: jobs: takes "auto" or a whole number from 1, not 0',
    "jobs = true": '1:1: jobs: takes "auto" or a whole number from 1, not true',
    '\n[severity]\nneedless-transpose = "eror"': (
        '3:1: severity.needless-transpose: "eror" is not "error", "warning", "info" or "off": '
        "did you mean error?"
    ),
    '[severity]\nneedles-transpose = "off"': (
        "2:1: severity.needles-transpose: no rule or family is named needles-transpose: "
        "did you mean needless-transpose?"
    ),
    "severity = 1": (
        "1:1: severity: takes a table of rules and families with a severity each, not 1"
    ),
    '[per-path-ignores]\n"*.hlo" = "layout"': (
        '2:1: per-path-ignores.*.hlo: takes an array of rules and families, not "layout"'
    ),
    "[rules.needless-transpose]\nmin-byte = 2": (
        "2:1: rules.needless-transpose.min-byte: unknown option of needless-transpose: "
        "did you mean min-bytes?"
    ),
    "rules = { needless-transpose = { min-bytes = -1 } }": (
        "1:34: rules.needless-transpose.min-bytes: takes a whole number of at least 0, not -1"
    ),
    "[rules.layout]": "1:1: rules.layout: layout is a family of rules: ",
    "[rules]\nneedless-transpose = 3": "2:1: rules.needless-transpose: takes a table, not 3",
    'output-format = "jsno"': "did you mean json?",
    'before = "sorting"': '1:1: before: "sorting" is not "layout_normalization", ',
    'exclude = ["*", 3]': "1:1: exclude[1]: takes a pattern, not 3",
    "baseline = 4": "1:1: baseline: takes a path, relative to the folder of the file, not 4",
    'unsafe-fixes = "yes"': '1:1: unsafe-fixes: takes true or false, not "yes"',
    '[[allow]]\nrule = "layout"': "1:1: allow[0]: an allowance needs a reason",
    '[[allow]]\nrule="tma"\nreason="r"\n[[allow]]\nreason = "r"\nrul = "layout"': (
        "6:1: allow[1].rul: unknown key: did you mean rule?"
    ),
    "[tool.hlo_lint]\njobs = 2": "1:1: tool: in hlo_lint.toml the keys stand at the top",
    'allow = [{ rule = "layut", reason = "r" }]': (
        "1:12: allow[0].rule: no rule or family is named layut: did you mean layout?"
    ),
}
"""A refused setting, with the place and the message."""

GOOD = """
select = ["layout", "needless-transpose"]
ignore = ["reshape-moves-data"]
extend-select = ["tma"]
stage = "gpu post-layout"
before = "layout_normalization"
exclude = ["old/**", "*.bak"]
force-exclude = true
baseline = "known.json"
jobs = 3
min-severity = "info"
max-findings = 10
max-megabytes = 100
max-nesting = 100
max-seconds = 60
cache = false
output-format = "sarif"
unsafe-fixes = true

[severity]
layout = "warning"
needless-transpose = "off"

[per-path-stages]
"fixtures/*" = "tpu final mixed_precision=false"
[per-path-ignores]
"fixtures/*" = ["layout"]

[rules.costly-transposes]
min-bytes = 1_000_000

[rules.fragile-autotuner-winner]
lasting-lead = 2

[[allow]]
rule = "layout"
reason = 'a "quoted" one'
op_name = "jit(f)/*"
"""
"""Every key."""


@pytest.mark.parametrize(("text", "said"), WRONG.items(), ids=range(len(WRONG)))
def test_what_is_wrong_is_refused_at_its_place_and_by_the_schema(text: str, said: str) -> None:
    write("hlo_lint.toml", text)
    write("a.hlo", LOOSE)
    ran = invoke("check", "a.hlo")
    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("Error: hlo_lint.toml:")
    assert said in ran.stderr
    assert not Draft202012Validator(schema()).is_valid(tomllib.loads(text))


WORDS = """layout needless-transpose costly-transposes tma off error auto text sarif autotuner
    min-bytes lasting-lead rule reason op_name path"""
_words = st.sampled_from([*WORDS.split(), " "])
_allowances = st.lists(
    st.fixed_dictionaries(
        {"rule": st.sampled_from(["layout", "tma"]), "reason": _words},
        optional={"path": _words, "module": st.booleans() | _words, "rul": _words},
    ),
    max_size=2,
)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from([0.5, -1.5, 2.5]) | _words,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3) | _allowances
    ),
    max_leaves=6,
)
_documents = st.dictionaries(
    st.sampled_from([*(key.name for key in KEYS), "selekt"]), _values, max_size=3
) | st.fixed_dictionaries({"allow": _allowances})


VALIDATOR = Draft202012Validator(schema())


@given(_documents)
@example({"allow": [{"rule": "tma", "reason": "because"}], "jobs": 2, "select": ["layout"]})
@example({"allow": [{"rule": "tma", "reason": " "}]})
@example({"per-path-stages": {"layout": "lay/out"}})
@example({"stage": "gpu, post-layout  mixed_precision=true"})
def test_the_schema_accepts_exactly_what_the_program_reads(document: dict[str, object]) -> None:
    """The schema compares the names of rules, not their meaning: it leaves little unsaid."""
    try:
        read_settings(document, SettingPlace(Path("hlo_lint.toml"), ""))
        reads = True
    except ConfigError as error:
        assume("unknown stage" not in str(error) or "/" in str(error))  # names of passes: 483
        reads = False
    assert VALIDATOR.is_valid(document) == reads


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"select = [", "hlo_lint.toml:1:11: "),
        (b"a = 1\nb == 2\n", "hlo_lint.toml:2:4: "),
        (b"a = 1\r\na = 2\r\n", "hlo_lint.toml:2:6: "),
        (b"# caf\xe9\n", "hlo_lint.toml: it is not UTF-8"),
        (b"a = " + b"[" * 5000, "hlo_lint.toml: its values are nested too deep"),
        (b"selekt\x1b = 1", "hlo_lint.toml:1:"),
        (b'"\\u001b[31m" = 1', "hlo_lint.toml:1:1: \\x1b[31m: unknown key"),
    ],
)
def test_what_is_no_toml_is_refused_in_one_line(data: bytes, said: str) -> None:
    Path("hlo_lint.toml").write_bytes(data)
    ran = invoke("config")
    assert ran.exit_code == 2
    assert said in ran.stderr
    assert ran.stderr.count("\n") == 1
    assert "\x1b" not in ran.stderr


def test_a_file_that_is_not_there_is_named() -> None:
    ran = invoke("check", "--config", "nowhere.toml", ".")
    assert (ran.exit_code, "nowhere.toml: cannot be read" in ran.stderr) == (2, True)


def test_a_pyproject_whose_table_is_none_is_refused() -> None:
    write("pyproject.toml", "[tool]\nhlo_lint = 3\n")
    with pytest.raises(ConfigError, match=r"pyproject.toml:2:1: .*has to be a table"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "keys", "place"),
    [
        ("a = 1\n[b]\n'c d' = 2\n", ("b", "c d"), (3, 1)), ("b.c = 1\n", ("b", "c"), (1, 1)),
        ("[b]\n  c = 1\n", ("b", "c"), (2, 3)), ("[ b . 'c' ]\nd = 1\n", ("b", "c", "d"), (2, 1)),
        ("[b]\nx = 1\n[b.c]\ny = 1\n", ("b", "c"), (3, 1)),
        ("[[a]]\nb = 1\n[[a]]\nb = 2\n", ("a", 1, "b"), (4, 1)),
        ("é = 1\r\n[b]\r\nc = { d = 1, e = 2 }\r\n", ("b", "c", "e"), (3, 14)),
        ("a = 1\n", ("z",), (1, 1)),
    ],
)  # fmt: skip
def test_a_key_has_a_place(text: str, keys: tuple[str | int, ...], place: tuple[int, int]) -> None:
    assert locate(text, keys) == place


# What is shown and published


def test_every_key_is_read_and_shown_and_what_is_shown_is_read_again(tmp_path: Path) -> None:
    assert {key.name for key in KEYS} == set(tomllib.loads(GOOD))
    told = settings(GOOD)
    again = read_file(write("again.toml", settings_text(told)))
    for key in KEYS:
        shown, meant = getattr(again, key.attribute), getattr(told, key.attribute)
        if key.name == "allow":
            shown, meant = ([vars_of(each) for each in one] for one in (shown, meant))
        assert shown == meant, key.name
        assert told.origin(key.attribute).startswith("hlo_lint.toml:"), key.name
    assert VALIDATOR.is_valid(tomllib.loads(GOOD))


def vars_of(allowance: Allowance) -> tuple[str | None, ...]:
    return allowance.rule, allowance.reason, allowance.op_name, allowance.module, allowance.path


def test_what_holds_is_shown_with_where_it_comes_from() -> None:
    write("hlo_lint.toml", 'jobs = 2\n[severity]\nlayout = "off"\n')
    out = invoke("config", "--ignore", "form").output
    assert "jobs = 2  # hlo_lint.toml:1\n" in out
    assert 'severity = { layout = "off" }  # hlo_lint.toml:2\n' in out
    form = ", ".join(f'"{rule.name()}"' for rule in all_rules() if rule.family() == "form")
    assert f"ignore = [{form}]  # command line\n" in out
    assert 'output-format = "text"  # default\n' in out
    assert "# file: none\n" in invoke("config", "--isolated").output


def test_a_setting_with_a_name_that_nothing_has_is_refused_by_config_as_by_check() -> None:
    assert invoke("config", "--severity", "nothing=off").exit_code == 2
    assert invoke("config", "--severity", "layout=bad").exit_code == 2
    assert invoke("config", "--severity", "layout").exit_code == 2
    assert invoke("config", "--schema", "x").exit_code == 2


def test_the_schema_is_published_as_it_is() -> None:
    assert SCHEMA.read_text("utf-8") == schema_text(), "run `make docs`"
    assert invoke("config", "--schema").output == schema_text()
    Draft202012Validator.check_schema(json.loads(SCHEMA.read_text("utf-8")))


def test_the_table_of_keys_is_fresh() -> None:
    text = CONFIGURATION.read_text("utf-8")
    assert text == with_keys(text), "run `make docs`"


@pytest.mark.parametrize(
    "value",
    [True, 7, 0.5, 'a"b\\c\n\x7f\x00é🙂\u202e\U000e0001', ["x", 1], {"a b": {"c": []}, "": "d"}],
)
def test_toml_is_spelled_so_that_it_reads_as_the_same(value: object) -> None:
    assert tomllib.loads(f"x = {as_toml(value)}") == {"x": value}


# Several processes


def report(path: Path, jobs: int, **more: Any) -> str:
    return hlo_lint.lint(path, settings=Settings(jobs=jobs), **more).to_json()


@pytest.mark.parametrize(
    ("jobs", "resolved"),
    [
        (2, False),
        *(pytest.param(*one, marks=pytest.mark.slow) for one in ((2, True), (5, False), (5, True))),
    ],
)
def test_several_processes_say_what_one_says_byte_for_byte(jobs: int, resolved: bool) -> None:
    assert report(DUMPS, jobs, resolved=resolved) == report(DUMPS, 1, resolved=resolved)


@pytest.mark.slow
def test_logs_of_the_autotuner_are_put_together_by_several_processes_too() -> None:
    assert "got different backends" in report(FIXTURES / "autotune", 1)
    assert report(FIXTURES / "autotune", 2) == report(FIXTURES / "autotune", 1)


@pytest.mark.slow
def test_processes_that_are_not_forked_say_the_same() -> None:
    """A fork beside other threads could catch one of them with a lock in its hand."""
    over = threading.Event()
    other = threading.Thread(target=over.wait, daemon=True)
    other.start()
    try:
        path = DUMPS / "gpu-jax0.10.2"
        assert report(path, 2) == report(path, 1)
    finally:
        over.set()
        other.join()


def test_the_program_checks_a_small_dump_itself() -> None:
    assert "processes: 1\n" in invoke("check", "-v", str(CRASH)).stderr
    assert "processes: 3\n" in invoke("check", "-v", "--jobs", "3", str(CRASH)).stderr


def test_a_large_input_gets_as_many_processes_as_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_size, "_processors", lambda: 16)
    names = [f"{number}.hlo" for number in range(8)]
    for name in names:
        write(name, LOOSE)
    assert automatic_jobs(open_dump(names)) == 1
    os.truncate(names[0], PARALLEL_MIN_BYTES)
    assert automatic_jobs(open_dump(names[0])) == 1
    assert automatic_jobs(open_dump(names)) == 2
    for name in names:
        os.truncate(name, PARALLEL_MIN_BYTES)
    assert automatic_jobs(open_dump(names)) == 8
    monkeypatch.setattr(input_size, "_processors", lambda: 3)
    assert automatic_jobs(open_dump(names)) == 3
