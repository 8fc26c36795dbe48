"""Commands that other packages bring: found by their entry points, listed, and run."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from hlo_lint.apps.cli.main import cli
from hlo_lint.apps.cli.other_packages import command_of
from hlo_lint.text.errors import UsageError
from tests.commands import invoke
from tests.conftest import new_folder

MODULE = """\
import click

@click.command()
def command():
    \"\"\"Count the modules of a team. In a box.\"\"\"
    click.echo("counted")
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a package with a command, as pip would."""
    monkeypatch.syspath_prepend(tmp_path)

    def install(package: str, text: str = MODULE, *, command: str = "count") -> None:
        (tmp_path / f"{package}.py").write_text(text)
        info = new_folder(tmp_path / f"{package}-1.2.dist-info")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
        entry_point = f"{command} = {package}:command"
        (info / "entry_points.txt").write_text(f"[hlo_lint.commands]\n{entry_point}\n")

    return install


def test_a_command_of_another_package_runs_and_is_listed(install: Install) -> None:
    install("team_counts")
    assert invoke("count").output == "counted\n"
    listed = invoke("--help").output.partition("\nOf other packages:\n")[2]
    assert "\n  count     Count the modules of a team.\n" in f"\n{listed}"
    assert "count" in cli.list_commands(click.Context(cli))
    assert "did you mean count?" in invoke("coumt").output


def test_commands_of_this_package_take_precedence(install: Install) -> None:
    install("team_checks", command="rules")
    assert "reshape-moves-data" in invoke("rules").output
    assert invoke("--help").output.count("\n  rules ") == 1


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("broken", "raise ImportError('no\\nsuch thing')\n", "ImportError: no; repair"),
        ("ended", "raise SystemExit(3)\n", "cannot be imported: SystemExit: 3"),
        ("empty", "", "has no attribute 'command'"),
        ("other", "command = print\n", "must name a command of click"),
    ],
)
def test_a_broken_package_is_named(install: Install, name: str, text: str, reason: str) -> None:
    install(f"team_{name}", text, command=name)
    ran = invoke(name)
    assert ran.exit_code == 2
    assert f"Error: team_{name} 1.2 (entry point {name} = team_{name}:command)" in ran.output
    assert reason in ran.output
    assert ran.output.count("\n") == 1
    assert invoke("--help").exit_code == 0


def test_two_packages_with_one_command_are_both_named(install: Install) -> None:
    install("team_one")
    install("team_two")
    ran = invoke("count")
    assert ran.exit_code == 2
    assert "team_one 1.2" in ran.output
    assert "team_two 1.2" in ran.output


def test_a_command_that_is_not_installed_names_its_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert command_of("count") is None
    with pytest.raises(UsageError) as raised:
        command_of("hunt")
    message = "hunt is a distribution of its own: pip install hlo-lint-hunt"
    assert str(raised.value) == message
