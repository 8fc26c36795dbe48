"""Runs of `hlo-lint` as forks of a process that has run it: most of a short run is imports."""

from __future__ import annotations

import atexit
import gc
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from click.testing import CliRunner

from hlo_lint.__main__ import main
from hlo_lint.apps.cli.main import cli
from tests.conftest import ROOT, present
from tests.texts import LOOSE

STREAMS = ("stdin", "stdout", "stderr")


@cache
def _parent() -> subprocess.Popen[str]:
    """The process that forks, until this one ends."""
    command = [sys.executable, "-P", "-W", "error", "-m", "tests.forks"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    parent = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    atexit.register(parent.__exit__, None, None, None)
    return parent


def forked(
    words: Sequence[str], environment: Mapping[str, str], given: bytes = b""
) -> tuple[int, bytes, bytes]:
    """The status and the outputs of `hlo-lint` in the current folder."""
    with TemporaryDirectory() as folder:
        streams = {name: Path(folder, name) for name in STREAMS}
        streams["stdin"].write_bytes(given)
        request = (words, os.getcwd(), dict(environment), folder)
        parent = _parent()
        print(json.dumps(request), file=present(parent.stdin), flush=True)
        status = int(present(parent.stdout).readline())
        return status, streams["stdout"].read_bytes(), streams["stderr"].read_bytes()


def _serve() -> None:
    # What a check with a finding imports.
    CliRunner().invoke(cli, ["check", "--isolated", "--no-cache", "-"], input=LOOSE)
    gc.freeze()
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    for request in requests:
        words, here, environment, folder = json.loads(request)
        if child := os.fork():
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
            continue
        requests.close()
        answers.close()
        os.chdir(here)
        os.environ.clear()
        os.environ.update(environment)
        for number, name in enumerate(STREAMS):
            flags = os.O_WRONLY | os.O_CREAT if number else os.O_RDONLY
            os.dup2(os.open(f"{folder}/{name}", flags), number)
        sys.argv = ["hlo-lint", *words]
        main()


if __name__ == "__main__":
    _serve()
