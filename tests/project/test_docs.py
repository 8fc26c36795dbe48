"""Generated pages are fresh, and commands on pages were run."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import hlo_lint
from tests import docs
from tests.conftest import CRASH, ROOT, completed, program, written
from tests.pages import CommandFailed, python_blocks, replayed, run_python

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (docs.RULES, docs.rules_page),
        (docs.VERIFIER, docs.verifier_page),
        (docs.CONTRACTS, docs.contracts_page),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_a_page_is_fresh(page: Path, text: Callable[[], str]) -> None:
    assert page.read_text("utf-8") == text(), "run `make docs`"


def test_the_page_of_each_rule_is_fresh() -> None:
    kept = {path: path.read_text("utf-8") for path in docs.PAGES.iterdir()}
    assert kept == docs.rule_pages(), "run `make docs`"


def needs_jax(text: str) -> None:
    if "import jax" in text:
        pytest.importorskip("jax.extend.xla", reason="the hook came with jax 0.10.2")


WITH_PYTHON = [page for page in docs.PYTHON_PAGES if list(python_blocks(page.read_text("utf-8")))]


@pytest.mark.parametrize("page", sorted({*WITH_PYTHON} - {*docs.RUN}), ids=lambda page: page.stem)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    needs_jax(page.read_text("utf-8"))
    run_python(page, tmp_path)


def test_little_of_the_python_on_pages_is_not_run() -> None:
    text = "".join(page.read_text("utf-8") for page in docs.PYTHON_PAGES)
    assert len(re.findall(r"<!-- not run: (.+) -->", text)) < 4
    assert sum(len(list(python_blocks(page.read_text("utf-8")))) for page in WITH_PYTHON) > 30


@pytest.mark.parametrize("page", docs.RUN, ids=lambda page: page.stem)
def test_a_page_that_is_run_shows_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    text = page.read_text("utf-8")
    needs_jax(text)
    assert text == replayed(text, tmp_path), "read the difference, then run `make docs`"
    run_python(page, tmp_path / "work")


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ("```python\nprint(nothing)\n```", 'page.md", line 4'),
        ("```python\n>>> 1 + 1\n3\n```", "Expected:"),
        ("<!-- before\nnothing = 1\n-->\n```python\nprint(nothing)\n```", ""),
        ("<!-- not run: reason -->\n```python\nprint(nothing)\n```", ""),
        ("```python\nimport os\n```\n\n```python\n>>> os.listdir()\n[...]\n```", ""),
        ("<!-- python: programs -->\n```python\nraise ValueError\n```", ""),
        ("<!-- python: programs -->\n```python\nprint(nothing)\n```", 'page.md", line 5'),
    ],
)
def test_python_on_a_page_that_fails_is_refused(block: str, says: str, tmp_path: Path) -> None:
    page = written(tmp_path / "page.md", f"# A page\n\n{block}\n")
    if not says:
        run_python(page, tmp_path)
        return
    with pytest.raises(CommandFailed) as raised:
        run_python(page, tmp_path)
    assert says in str(raised.value)


def test_the_demo_lints_fixes_and_lints_again(tmp_path: Path) -> None:
    command = program(tmp_path / "hlo-lint")
    ran = completed(
        ["sh", str(ROOT / "fixtures/programs/demo.sh"), str(command), str(CRASH)],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        check=True,
    )
    assert "error[reshape-moves-data]" in ran.stdout
    assert "\nfixed 1 " in ran.stdout


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


@pytest.mark.parametrize(
    ("command", "status"), [("exit 1", ""), ("exit 2", "<!-- exit 2 -->\n"), ("echo so", "")]
)
def test_a_page_keeps_what_its_commands_say(command: str, status: str, tmp_path: Path) -> None:
    said = "so\n" if command == "echo so" else ""
    page = f"# A page\n\n{status}```console\n$ {command}\n{{}}```\n"
    assert replayed(page.format("old\n"), tmp_path) == page.format(said)


@pytest.mark.parametrize("command", ["hlo-lint check nothing", "python -c 'raise ValueError'"])
def test_a_page_with_a_command_that_fails_is_refused(command: str, tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=re.escape(command)):
        replayed(f"```console\n$ {command}\n```\n", tmp_path)


def reports() -> list[tuple[str, str]]:
    """The message and the command in each row of the README's table of bug reports."""
    text = (ROOT / "README.md").read_text("utf-8")
    return re.findall(r"^\|[^|]*\| (.+) \| `hlo-lint (.+)` \|$", text, re.M)


@pytest.mark.parametrize(("said", "command"), reports())
def test_each_bug_report_in_the_readme_is_found(said: str, command: str, tmp_path: Path) -> None:
    task, *options, path = command.split()
    copy = tmp_path / Path(path).name
    source = ROOT / "fixtures" / path
    (shutil.copytree if source.is_dir() else shutil.copy)(source, copy)
    found = str(hlo_lint.lint(copy, before=options[1] if "--before" in options else None))
    for words in re.findall("`([^`]+)`", said):
        for part in words.split(" … "):
            assert part in found
    if task == "fix":
        result = hlo_lint.fix(copy)
        assert result.edits
        assert not result.findings


def test_there_are_five_bug_reports_and_three_more_faces_of_them() -> None:
    assert len(reports()) == 8


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "editors/README.md"])
def test_every_link_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", text):
        assert ((ROOT / page).parent / link).exists(), link
