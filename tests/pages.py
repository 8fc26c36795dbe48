"""Pages that are run: their files are written, their commands done, their output is what came.

A block after a line that ends with a name in backquotes and a colon is that file. In a `console`
block each line that begins with `$ ` is a command of the shell; what follows is what it printed.
All of a page happens in one folder, which is empty: dumps come from `hlo-lint example`.

A command exits with 0, or with 1, which says that there are findings. Before a block with one that
exits with another status stands that status: `<!-- exit 2 -->`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

from tests.conftest import ROOT

BLOCK = re.compile(
    r"(?:`(?P<file>[\w./-]+)`:\n\n|<!-- exit (?P<status>\d+) -->\n)?"
    r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
COMMAND = re.compile(r"^\$ (.+)\n", re.M)
TIME = re.compile(r"\bin \d+\.\d\ds\b")
SIZE = re.compile(r"(?<=html: 1 finding, )\d+ kB")

PROGRAMS = {
    "hlo-lint": '-m hlo_lint "$@"',
    # The packages that a project needs are there already, and no index has to be.
    "pip": '-m pip "$@" --no-deps --no-build-isolation --no-index',
}


class CommandFailed(Exception):
    """A command of a page that exits with a status that the page does not state."""


def replayed(page: str, folder: Path) -> str:
    """The page, with what its commands print today.

    Raises:
        CommandFailed: where one of them fails; says what it printed.
    """
    work = folder / "work"
    work.mkdir()
    environment = _environment(folder / "environment")

    def run(block: re.Match[str]) -> str:
        if block["file"]:
            file = work / block["file"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block["text"], "utf-8")
        if block["kind"] != "console":
            return block[0]
        commands = COMMAND.findall(block["text"])
        allowed = {0, 1, int(block["status"] or 0)}
        said = (f"$ {each}\n{_said(each, work, environment, allowed)}" for each in commands)
        mark = f"<!-- exit {block['status']} -->\n" if block["status"] else ""
        return f"{mark}```console\n{''.join(said)}```"

    return BLOCK.sub(run, page)


def _environment(folder: Path) -> dict[str, str]:
    """A virtual environment that sees what this one has, and what a page installs besides."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "around.pth").write_text("\n".join(path for path in sys.path if path))
    for name, arguments in PROGRAMS.items():
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{folder}/bin/python" {arguments}\n')
        program.chmod(0o755)
    return {
        "PATH": f"{folder}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }


def _said(command: str, folder: Path, environment: dict[str, str], allowed: set[int]) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said = done.stdout.decode("utf-8")
    died = done.returncode == 1 and "Traceback (most recent call last)" in said
    if died or done.returncode not in allowed:
        raise CommandFailed(f"`{command}` exits with {done.returncode}:\n{said}")
    return SIZE.sub("330 kB", TIME.sub("in 0.50s", said))
