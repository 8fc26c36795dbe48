"""Completion by a shell: of commands, options, rules, passes, targets, paths."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from hlo_lint.apps.cli.main import cli


@pytest.mark.parametrize(
    ("words", "begun", "offered"),
    [
        ([], "che", ["check"]),
        (["check"], "--show-f", ["--show-files"]),
        (["check", "--select"], "reshape-m", ["reshape-moves-data"]),
        (["explain"], "kernel-m", ["kernel-misses-result"]),
        (["check", "--before"], "layout_n", ["layout_normalization"]),
        (["capture", "--target"], "h", ["h100", "h200"]),
        (["capture", "--target"], "v5", ["v5e", "v5p"]),
    ],
)
def test_a_shell_completes(words: list[str], begun: str, offered: list[str]) -> None:
    shell = ShellComplete(cli, {}, "hlo-lint", "_HLO_LINT_COMPLETE")
    assert [item.value for item in shell.get_completions(words, begun)] == offered


def test_a_shell_completes_paths_itself(tmp_path: Path) -> None:
    shell = ShellComplete(cli, {}, "hlo-lint", "_HLO_LINT_COMPLETE")
    assert [item.type for item in shell.get_completions(["check"], "my_d")] == ["file"]
    targets = shell.get_completions(["capture", "--target"], "my_d")
    assert [item.type for item in targets] == ["file"]
