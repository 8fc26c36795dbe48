"""Pages that are run: their files are written, their commands done, their output is what came.

A block after a line that ends with a name in backquotes and a colon is that file. In a `console`
block each line that begins with `$ ` is a command of the shell; what follows is what it printed.
All of a page happens in one folder, which has `fixtures` in it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path

from tests.conftest import FIXTURES, ROOT

BLOCK = re.compile(
    r"(?:`(?P<file>[\w./-]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S
)
COMMAND = re.compile(r"^\$ (.+)\n", re.M)
TIME = re.compile(r"\bin \d+\.\d\ds\b")

PROGRAMS = {
    "hlo-lint": '-m hlo_lint "$@"',
    # The packages that a project needs are there already, and no index has to be.
    "pip": '-m pip "$@" --no-deps --no-build-isolation --no-index',
}


def replayed(page: str, folder: Path) -> str:
    """The page, with what its commands print today."""
    work = folder / "work"
    work.mkdir()
    (work / "fixtures").symlink_to(FIXTURES)
    environment = _environment(folder / "environment")

    def run(block: re.Match[str]) -> str:
        if block["file"]:
            file = work / block["file"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block["text"], "utf-8")
        if block["kind"] != "console":
            return block[0]
        commands = COMMAND.findall(block["text"])
        said = (f"$ {command}\n{_said(command, work, environment)}" for command in commands)
        return f"```console\n{''.join(said)}```"

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


def _said(command: str, folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return TIME.sub("in 0.50s", done.stdout.decode("utf-8"))
