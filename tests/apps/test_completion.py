"""Completion in the shells themselves: what a person gets who presses the tab key."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.apps.test_cli import environment
from tests.conftest import completed

pytestmark = pytest.mark.slow

ASKED = [
    ("hlo-lint che", ["check"]),
    ("hlo-lint check --select reshape-m", ["reshape-moves-data"]),
    ("hlo-lint check --select layout,reshape-m", ["layout,reshape-moves-data"]),
    ("hlo-lint check --before layout_n", ["layout_normalization"]),
    ("hlo-lint explain kernel-m", ["kernel-misses-result"]),
    ("hlo-lint capture model.py --target h2", ["h200"]),
    ("hlo-lint check --watc", ["--watch"]),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a dump in it, and the program beside it on the path."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "hlo-lint"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hlo_lint "$@"\n')
    program.chmod(0o755)
    (tmp_path / "my_dump").mkdir()
    return tmp_path


def run(folder: Path, *command: str) -> str:
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"no {command[0]} is installed")
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    done = completed(command, cwd=folder, env=environment(PATH=path), timeout=120)
    assert done.stderr == ""
    return done.stdout


BASH = r"""
eval "$(hlo-lint completion bash)"
complete_line() {
    COMP_WORDS=($1); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
    _hlo_lint_completion hlo-lint "${COMP_WORDS[$COMP_CWORD]}" 2> >(grep -v compopt >&2)
    echo "${COMPREPLY[*]}"
}
complete -p hlo-lint
"""


def test_bash_completes_commands_options_rules_passes_and_targets(folder: Path) -> None:
    lines = "".join(f"complete_line '{line}'\n" for line, _ in ASKED)
    hook, *answers = run(folder, "bash", "--norc", "-c", BASH + lines).splitlines()
    assert hook == "complete -o nosort -F _hlo_lint_completion hlo-lint"
    assert [answer.split() for answer in answers] == [names for _, names in ASKED]


def test_fish_completes_the_same_and_paths(folder: Path) -> None:
    # fish begins a new word after a comma.
    asked = [row for row in ASKED if "," not in row[0]] + [("hlo-lint check my_d", ["my_dump/"])]
    lines = "".join(f"complete -C '{line}' | cut -f 1; echo END\n" for line, _ in asked)
    out = run(folder, "fish", "-c", f"hlo-lint completion fish | source\n{lines}")
    answers = [answer.split() for answer in out.split("END\n")[:-1]]
    assert answers == [names for _, names in asked]


def test_zsh_takes_the_script(folder: Path) -> None:
    script = (
        "autoload -Uz compinit; compinit -u -d $PWD/.zcompdump\n"
        'eval "$(hlo-lint completion zsh)"\n'
        "print ${_comps[hlo-lint]}\n"
    )
    assert run(folder, "zsh", "-f", "-c", script) == "_hlo_lint_completion\n"
