"""XLA's own parser as a judge: each text by itself, its words, and the place in the file."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.engine import input_size
from hlo_lint.engine.cache.store import FOLDER_VARIABLE
from hlo_lint.text.source import decode
from tests.conftest import BROKEN, ROOT, ROUNDTRIP, completed, hlo_files, present, written
from tests.mutations import mutate

pytest.importorskip("jaxlib")

RELEASES = os.environ.get("HLO_LINT_RELEASES", "")
INSTALLED = version("jaxlib")
FRAME = "HloModule m\n\nENTRY e {\n  p = f32[4]{0} parameter(0)\n%s\n}\n"
GOOD = FRAME % "  ROOT n = f32[4]{0} negate(p)"
UNKNOWN = FRAME % "  ROOT n = f32[4]{0} negat(p)"
ABORTS = FRAME % "  ROOT t = f32[4]{0} tuple(p)"
SETTINGS = Settings(select=("parser-refuses",))


def refusal(text: str | bytes) -> tuple[int, int, str]:
    """Line, column and message; that of the release left out."""
    with pytest.raises(hlo_lint.HloSyntaxError) as raised:
        hlo_lint.parse_all(text, strict=True)
    release, _, message = raised.value.message.partition(" refuses: ")
    assert release == f"jaxlib {INSTALLED}"
    return raised.value.line, raised.value.column, message


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        (UNKNOWN, 5, 22, "Unknown opcode: negat"),
        (UNKNOWN.replace("\n", "\r\n"), 5, 22, "Unknown opcode: negat"),
        (UNKNOWN.replace("  ROOT n = ", "\tROOT\tn = "), 5, 21, "Unknown opcode: negat"),
        (UNKNOWN.replace("ROOT", "/* né 語 😀 */ ROOT"), 5, 35, "Unknown opcode: negat"),
        (UNKNOWN.replace("ROOT", "/* \udce9 */ ROOT"), 5, 30, "Unknown opcode: negat"),
        (f"{GOOD}\n// -----\n{GOOD}{UNKNOWN}", 19, 22, "Unknown opcode: negat"),
        (f"\ufeff{GOOD}", 1, 2, "expects name"),
        # XLA has read the next token when it makes an instruction.
        (FRAME % "  ROOT t = f32[4]{0} transpose(p)", 5, 3, "attribute dimensions is expected"),
        (FRAME % "  c = f32[4] copy(p)\n  ROOT c = f32[4] copy(p)", 6, 8, "already exists: c"),
        (GOOD.replace("ENTRY", "ENTRI"), 3, 7, "expects"),
        (ABORTS, 1, 1, "SIGABRT"),
        ("", 1, 1, "expects"),
    ],
)
def test_a_refusal_stands_at_the_mistake(text: str, line: int, column: int, says: str) -> None:
    found = refusal(text)
    assert says in found[2]
    assert found[:2] == (line, column)


def test_the_modules_of_a_text_are_read_each_by_itself() -> None:
    text = f"{UNKNOWN}{GOOD}{ABORTS}{UNKNOWN}"
    findings = hlo_lint.lint(text, settings=SETTINGS).findings
    assert [finding.line for finding in findings] == [5, 13, 23]
    assert len(hlo_lint.parse_all(GOOD + GOOD, strict=True)) == 2


@pytest.mark.slow
def test_a_text_that_ends_xla_costs_the_others_nothing(tmp_path: Path) -> None:
    texts = [ABORTS, UNKNOWN, GOOD, ABORTS, UNKNOWN]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.hlo").write_text(text)
    reports = [
        hlo_lint.lint(tmp_path, settings=SETTINGS.overridden(jobs=jobs)).findings
        for jobs in (1, 2)  # each worker asks a child of its own
    ]
    assert reports[0] == reports[1]
    assert [Path(finding.path).stem for finding in reports[0]] == ["0", "1", "3", "4"]
    assert ["SIGABRT" in finding.message for finding in reports[0]] == [True, False, True, False]


@pytest.mark.slow
def test_what_xla_refuses_is_what_is_on_record() -> None:
    column = f"jaxlib {INSTALLED}"
    for folder in (BROKEN, ROUNDTRIP):
        record = json.loads((folder / "WHAT_XLA_READS.json").read_text())
        if column not in next(iter(record.values())):
            pytest.skip(f"{column} has no column there")
        findings = hlo_lint.lint(folder, settings=SETTINGS).findings
        refused = {Path(finding.path).name for finding in findings}
        several = {name for name in record if name.startswith("modules_")}
        wanted = {name for name, said in record.items() if said[column] != "read"}
        assert refused - several == wanted - several
        assert not refused & several  # XLA reads their modules, not the whole text


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_of_damaged_bytes_every_place_is_in_the_text(seed: int) -> None:
    texts = [path.read_bytes() for path in hlo_files(ROUNDTRIP)]
    chance = random.Random(seed)
    for _ in range(100):
        data = mutate(chance.choice(texts), texts, chance)
        lines = decode(data).split("\n")
        for finding in hlo_lint.lint(data + b"\n", settings=SETTINGS).findings:
            assert 1 <= finding.line <= len(lines) + 1
            assert re.match(rf"jaxlib {re.escape(INSTALLED)} refuses: .{{4,}}", finding.message)


# ---- which release is asked


def run(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hlo_lint", "check", "--isolated", "--quiet", *args]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return completed(command, env=environment)


@pytest.mark.slow
def test_without_jaxlib_the_extra_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "unknown.hlo", UNKNOWN)
    click = present(find_spec("click"))
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "click").symlink_to(Path(present(click.origin)).parent)
    command = [sys.executable, "-S", "-m", "hlo_lint", "check", "--isolated", str(path)]
    where = os.pathsep.join((str(ROOT), str(tmp_path / "packages")))
    environment = {**os.environ, "PYTHONPATH": where}
    for options, status, says in (
        ((), 1, "unknown opcode: negat"),
        (("--strict",), 2, "pip install 'hlo-lint[xla]'"),
        (("--select", "parser-refuses"), 2, "pip install 'hlo-lint[xla]'"),
    ):
        done = completed([*command, "--output-format", "concise", *options], env=environment)
        assert (done.returncode, says in done.stdout + done.stderr) == (status, True), done
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_another_release_goes_with_strict_and_is_one() -> None:
    path = str(BROKEN / "opcode_unknown.hlo")
    for options, says in (
        (("--jax", "0.11.2"), "--jax goes with --strict"),
        (("--strict", "--jax", "0.11"), "0.11 is not a release of jax"),
        (("--strict", "--jax", "0.1.0"), "too old"),
    ):
        done = run(*options, path)
        assert (done.returncode, says in done.stderr) == (2, True), done


@pytest.mark.slow
@pytest.mark.skipif(not RELEASES, reason="no environments of other releases: HLO_LINT_RELEASES")
def test_the_release_that_is_asked_for_judges() -> None:
    path = str(BROKEN / "all_gather_along_two_dimensions.hlo")
    newer = run("--strict", "--jax", "0.11.2", path, XDG_CACHE_HOME=RELEASES)
    assert newer.returncode == 1, newer
    assert "error[parser-refuses]: jaxlib 0.11.2 refuses: " in newer.stdout
    older = run("--strict", "--jax", "0.10.0", path, XDG_CACHE_HOME=RELEASES)
    assert "parser-refuses" not in older.stdout + older.stderr


@pytest.mark.slow
@pytest.mark.skipif(not RELEASES, reason="no environments of other releases: HLO_LINT_RELEASES")
def test_what_is_cached_is_what_that_release_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", RELEASES)
    monkeypatch.setattr(input_size, "CACHE_MIN_BYTES", 0)
    path = written(tmp_path / "unknown.hlo", UNKNOWN)
    for release in ("", "0.11.2", "0.10.0", "0.11.2", ""):
        options = {"parser-refuses": {"jax": release}}
        settings = SETTINGS.overridden(rules=options, cache=True)
        (finding,) = hlo_lint.lint(path, settings=settings).findings
        assert finding.message.startswith(f"jaxlib {release or INSTALLED} refuses: ")
