"""Names and texts that somebody chose to attack a terminal, a log, or the machine that checks."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, completed, new_folder
from tests.forks import forked
from tests.report.test_html import HOSTILE, hostile_dump

pytestmark = pytest.mark.slow

NAME = "\x1b[31m\x1b]8;;http:evil\x07click\x1b]8;;\x07\x1b]0;title\x07\n::error::x\u202e|`<b>\x9b2J"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters of control, and those that turn the direction of a line."""


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder with an evil name, in which everything has one."""
    folder = new_folder(tmp_path / f"d{NAME}")
    hostile_dump(folder)
    text = HOSTILE.encode("utf-8", "surrogateescape")
    (folder / f"e{NAME}.hlo").write_bytes(text)
    (folder / f"e{NAME}.txt").write_text("nothing")
    (folder / f"e{NAME}.hlo.pb").write_bytes(b"\xff\xff")
    return folder


COMMANDS = {
    "check": ("check", "DIR"), "concise": ("check", "DIR", "--output-format", "concise"),
    "github": ("check", "DIR", "--output-format", "github"), "verbose": ("check", "-v", "DIR"),
    "files": ("check", "--show-files", "DIR"), "missing": ("check", "DIR/nothing"),
    "config": ("check", "DIR", "--config", "FILE"),
    "baseline": ("check", "FILE", "--baseline", "FILE"),
    "select": ("check", "FILE", "--select", NAME), "before": ("check", "FILE", "--before", NAME),
    "fix": ("fix", "--before", "layout_normalization", "FILE", "-o", "DIR/out"),
    "passes": ("passes", "DIR", "--module", NAME), "explain": ("explain", NAME), "unknown": (NAME,),
    "diff": ("diff", "FILE", "DIR"), "payload": ("payload", "FILE", NAME), "run": ("run", "DIR"),
    "update": ("check", "FILE", "--write-baseline", "DIR/list"), "capture": ("capture", "FILE"),
    "new-rule": ("new-rule", NAME, "--package", "x"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_no_name_is_obeyed_by_a_terminal_or_a_log(
    name: str, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {"DIR": str(hostile), "FILE": str(hostile / f"e{NAME}.hlo")}
    words = [*COMMANDS[name]]
    for place, path in places.items():
        words = [re.sub(f"^{place}", lambda _, path=path: path, word) for word in words]  # type: ignore[misc]
    monkeypatch.chdir(hostile.parent)
    status, *outputs = forked(words, {**os.environ, "COLUMNS": "200"})
    assert status in (0, 1, 2)
    for output in outputs:
        text = output.decode()  # strictly: it is UTF-8
        assert not UNSAFE.search(text), text
        assert "Traceback" not in text
        assert "internal error" not in text
        forged = [line for line in text.split("\n") if line.lstrip().startswith("::error::x")]
        assert not forged, text


@pytest.mark.skipif(os.name == "nt", reason="a terminal of POSIX")
@pytest.mark.parametrize(
    "words",
    [("check",), ("check", "--color", "always"), ("fix", "--diff"), ("check", "--blame")],
    ids=" ".join,
)
def test_a_real_terminal_shows_names_and_obeys_none(words: tuple[str, ...], hostile: Path) -> None:
    """A terminal that was obeyed has another title, is cleared, or has lost lines."""
    pyte = pytest.importorskip("pyte")
    from tests.terminal import on_terminal, program

    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "4000"}
    environment.pop("NO_COLOR", None)
    command = program(*words, "--before", "layout_normalization", str(hostile))
    seen = on_terminal(command, 120, environment, rows=4000)
    assert seen.status in (0, 1)
    text = seen.data.decode()
    screen = pyte.Screen(120, 4000)
    screen.title = "before"
    pyte.Stream(screen).feed(f"first line\r\n{text}")
    assert screen.title == "before"
    assert screen.display[0].startswith("first line")
    # The only sequences are colours, and those of a progress bar.
    rest = re.sub(r"\x1b\[[0-9;]*m|\x1b\[\?25[lh]|\x1b\[\d*[AK]|\r", "", text)
    assert not UNSAFE.search(rest), UNSAFE.search(rest)
    assert "\\x1b[31m" in text


EVIL = "import pathlib; pathlib.Path({mark!r}).write_text('ran')\n"


@pytest.mark.parametrize(
    "words", [("check",), ("fix",), ("check", "--blame"), ("report", "-o", "r.html")]
)
@pytest.mark.parametrize("program", ["script", "module"])
def test_checking_a_repository_runs_no_code_of_it(
    words: tuple[str, ...], program: str, tmp_path: Path
) -> None:
    mark = tmp_path / "ran"
    repository = new_folder(tmp_path / "repository")
    evil = EVIL.format(mark=str(mark))
    # Everything that Python, pytest, or a search for plug-ins might come upon.
    own = ("sitecustomize", "usercustomize", "conftest", "setup", "evil", "hlo_lint_plugin")
    for name in (*own, *"click rich lark networkx pathspec jinja2 jax jaxlib".split()):
        (repository / f"{name}.py").write_text(evil)
    (repository / "numpy").mkdir()
    (repository / "numpy" / "__init__.py").write_text(evil)
    metadata = new_folder(repository / "evil-1.0.dist-info")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[hlo_lint.rules]\nevil = evil\n")
    (repository / "pyproject.toml").write_text(
        '[tool.hlo_lint]\nbaseline = "list.json"\n[project.entry-points."hlo_lint.rules"]\n'
        'evil = "evil"\n'
    )
    (repository / "list.json").write_text('{"version": 2, "findings": []}')
    (repository / "m.hlo").write_bytes(HOSTILE.encode("utf-8", "surrogateescape"))
    (repository / "m.hlo.pb").write_bytes(b"\x0a\x02\x0a\x00")
    if program == "module":
        command = [sys.executable, "-m", "hlo_lint"]
    else:
        command = [sys.executable, "-P", "-c", "from hlo_lint.__main__ import main; main()"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = completed([*command, *words, "."], cwd=repository, env=environment)
    assert ran.returncode in (0, 1), ran.stderr
    assert not mark.exists(), mark.read_text()


@pytest.mark.parametrize(
    "line", ['plugins = ["evil"]', 'executor = "dask://evil:1"', 'rules-from = "evil.py"']
)
def test_no_setting_names_code_or_a_host(line: str, tmp_path: Path) -> None:
    (tmp_path / "hlo_lint.toml").write_text(f"{line}\n")
    (tmp_path / "m.hlo").write_text("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")
    ran = completed([sys.executable, "-m", "hlo_lint", "check", "."], cwd=tmp_path)
    assert ran.returncode == 2
    assert line.partition(" ")[0] in ran.stderr


def test_the_page_about_security_is_linked() -> None:
    assert "SECURITY.md" in (ROOT / "README.md").read_text("utf-8")
