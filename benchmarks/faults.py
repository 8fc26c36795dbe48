"""Kills `hlo-lint fix` at random moments, and counts the files that are then neither old nor new.

    python -m benchmarks.faults --trials 1000

Writes benchmarks/FAULTS.md. A trial is a process of its own, forked from one that has imported the
program. Three of four are killed while the files are written, the fourth at any moment of the run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
MODULE = """HloModule m

ENTRY e {
  p = f32[2,3]{0,1} parameter(0)
  ROOT r = f32[6]{0} reshape(p)
}
"""
FILES = 6


@dataclass
class Outcome:
    """The outcome of many trials."""

    trials: int = 0
    unfinished: int = 0
    """Trials in which the kill came before the last file was written."""
    partly: int = 0
    """Those of them in which some files were old and some new."""
    left_over: int = 0
    """Trials after which a temporary file was there."""
    mixed: int = 0
    """Files that were neither old nor new."""
    left_after_next: int = 0
    """Trials after which anything but the fixed files was there when `fix` had run again."""


def _forked(run: Callable[[], object]) -> int:
    """The number of a process that runs a function and ends."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        run()
    finally:
        os._exit(0)


def _fix(folder: Path, at_writing: Callable[[], object] = lambda: None) -> None:
    from hlo_lint.apps.cli import fix
    from hlo_lint.apps.cli.main import cli
    from hlo_lint.text.files import remove_left_over

    remove_left_over.cache_clear()  # which the process that was forked may have filled
    write_fixed = fix._write_fixed

    def watched(*given: Any) -> Iterator[Path]:
        at_writing()
        return write_fixed(*given)

    fix._write_fixed = watched  # type: ignore[assignment]
    arguments = ["fix", "--isolated", "--before", "layout_normalization", str(folder)]
    cli.main(arguments, standalone_mode=False)


def killed_fixes(trials: int, seed: int, parent: Path) -> Outcome:
    """Kill `fix` of a folder that many times, each at a moment drawn from its duration."""
    draw = random.Random(seed)
    folder = parent / "tree"
    names = [f"m{number}.hlo" for number in range(FILES)]

    def begin() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in names:
            (folder / name).write_text(MODULE)

    def state() -> dict[str, str]:
        return {path.name: path.read_text() for path in folder.iterdir()}

    begin()
    _fix(folder)  # imports what is imported late
    fixed = state()
    assert sorted(fixed) == sorted(names)
    assert MODULE not in fixed.values()
    begin()
    reader, writer = os.pipe()

    def notify() -> None:
        os.write(writer, b".")

    started = time.monotonic()
    child = _forked(lambda: _fix(folder, notify))
    os.read(reader, 1)
    writing = time.monotonic()
    os.waitpid(child, 0)
    ended = time.monotonic()
    outcome = Outcome()
    for number in range(trials):
        begin()
        if number % 4:
            child = _forked(lambda: _fix(folder, notify))
            os.read(reader, 1)
            time.sleep(draw.uniform(0, ended - writing))
        else:
            child = _forked(lambda: _fix(folder))
            time.sleep(draw.uniform(0, ended - started))
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        files = state()
        contents = [files.pop(name) for name in names]
        new = sum(fixed[name] == text for name, text in zip(names, contents, strict=True))
        old = contents.count(MODULE)
        outcome.trials += 1
        outcome.mixed += FILES - new - old
        outcome.unfinished += new < FILES
        outcome.partly += 0 < new < FILES
        outcome.left_over += bool(files)
        os.waitpid(_forked(lambda: _fix(folder)), 0)
        outcome.left_after_next += state() != fixed
    os.close(reader)
    os.close(writer)
    return outcome


def main() -> None:
    """Run the trials and write their table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--trials", type=int, default=1000)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "FAULTS.md")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = killed_fixes(given.trials, given.seed, Path(folder))
    given.output.write_text(
        f"""# Faults

`make faults`: `kill -9` of `hlo-lint fix` on {FILES} files, at random moments:
three of four while the files are written, the fourth at any moment of the run.

| | of {outcome.trials} trials |
|---|---|
| killed before the last file was written | {outcome.unfinished} |
| some files old, some new | {outcome.partly} |
| a temporary file was left | {outcome.left_over} |
| a file that was neither old nor new | {outcome.mixed} |
| anything but the fixed files after the next `fix` | {outcome.left_after_next} |
""",
        "utf-8",
    )


if __name__ == "__main__":
    main()
