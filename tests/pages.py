"""Pages that are run: their files are written, their commands done, their output is what came.

A block after a line that ends with a name in backquotes and a colon is that file. In a `console`
block each line that begins with `$ ` is a command of the shell; what follows is what it printed.
All of a page happens in one folder, which is empty: dumps come from `hlo-lint example`.

A command exits with 0, or with 1, which says that there are findings. Before a block with one that
exits with another status stands that status: `<!-- exit 2 -->`.

The `python` blocks of a page run in one process, in that folder, after its commands: those with
`>>>` as doctests, where `...` stands for any text. Comments of Markdown say what a reader need not
see:

- `<!-- before` and lines of Python up to `-->`, right before a block, run before it;
- `<!-- not run: reason -->` before a block that cannot run in a test;
- `<!-- python: programs -->` on a page whose blocks are programs of their own, which XLA refuses or
  dies of: each has a process, and may end in an error of XLA, but not of Python.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.conftest import ROOT, completed

BLOCK = re.compile(
    r"(?:`(?P<file>[\w./-]+)`:\n\n|<!-- exit (?P<status>\d+) -->\n"
    r"|<!-- before\n(?P<before>.*?)-->\n|<!-- not run: (?P<reason>.+) -->\n)?"
    r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$",
    re.M | re.S,
)
COMMAND = re.compile(r"^\$ (.+)\n", re.M)
TIME = re.compile(r"\bin \d+\.\d\ds\b")
SIZE = re.compile(r"(?<=html: 1 finding, )\d+ kB")
PROGRAMS_MARK = "<!-- python: programs -->"
PYTHON_ERROR = re.compile(r"^(?:Attribute|Import|ModuleNotFound|Name|Syntax|Type)Error\b", re.M)
PATIENCE_IN_SECONDS = 300

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


def run_python(page: Path, folder: Path) -> None:
    """Run the blocks of Python of a page in a folder.

    Raises:
        CommandFailed: a block raises, or prints something else than the page says.
    """
    if list(python_blocks(page.read_text("utf-8"))):
        child = _python(folder, "-m", "tests.pages", str(page))
        if child.returncode or PYTHON_ERROR.search(child.stderr):
            raise CommandFailed(f"{page.name}: {child.stdout}{child.stderr}")


class PythonBlock(NamedTuple):
    """A block of Python that runs."""

    line: int
    """Its first line in the page."""
    source: str
    before: str
    """Python that runs before it, and that the page does not show."""


def python_blocks(page: str) -> Iterator[PythonBlock]:
    """The blocks of Python of a page that run, in their order."""
    has_commands = "```console\n$ " in page
    for block in BLOCK.finditer(page):
        # A file of a page with commands is for them to run.
        if block["kind"] != "python" or block["reason"] or (block["file"] and has_commands):
            continue
        line = page.count("\n", 0, block.start("text")) + 1
        yield PythonBlock(line, block["text"], block["before"] or "")


def _python(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "hunt", folder))),
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
    }
    command, options = [sys.executable, *arguments], {"cwd": folder, "env": environment}
    return completed(command, **options, errors="replace", timeout=PATIENCE_IN_SECONDS)


def _run_programs(page: Path) -> None:
    """Run each block of a page in a process of its own, which has imported jax."""
    blocks = list(python_blocks(page.read_text("utf-8")))
    if any("import jax" in block.source for block in blocks):
        import jax  # noqa: F401
    for block in blocks:
        if (child := os.fork()) == 0:
            padded = "\n" * (block.line - 1) + block.source
            exec(compile(padded, str(page), "exec"), {"__name__": "__main__"})
            os._exit(0)
        os.waitpid(child, 0)


def _run_blocks(page: Path) -> int:
    """Run the blocks of a page in this process; gives the number of examples that fail."""
    names: dict[str, Any] = {"__name__": page.stem}
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for block in python_blocks(page.read_text("utf-8")):
        exec(block.before, names)
        if ">>> " in block.source:
            test = doctest.DocTestParser().get_doctest(
                block.source, names, page.name, str(page), block.line - 1
            )
            runner.run(test, clear_globs=False)
            names = test.globs
        else:
            padded = "\n" * (block.line - 1) + block.source
            exec(compile(padded, str(page), "exec"), names)
    return runner.failures


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


if __name__ == "__main__":
    given = Path(sys.argv[1])
    if PROGRAMS_MARK not in given.read_text("utf-8"):
        sys.exit(_run_blocks(given) > 0)
    _run_programs(given)
