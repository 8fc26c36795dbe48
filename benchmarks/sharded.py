"""Sharded programs compute the same from their first step to their last: `SHARDED.md`.

    python -m benchmarks.sharded [--count N] [--python PATH] [FOLDER...]

The programs of `fixtures/programs/sharded.py` are compiled for 4 and for 16 devices of XLA:CPU, and
each step is compared with the one before it; a folder of dumps is a source of its own. Then N
errors are planted in what a partitioner made, each in one instruction: the step of the partitioner
has to be named.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from benchmarks.planted import MAX_TEXT, _edited, _with_text
from benchmarks.plants import EDITS
from benchmarks.values import opened, reasons, table, tasks_of, validated, xla_cpu
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.values.validate import validate_dumps

RESULTS = Path(__file__).parent / "SHARDED.md"
PROGRAM = Path(__file__).parent.parent / "fixtures" / "programs" / "sharded.py"
DEVICES = (4, 16)
MAX_TRIES = 60
"""Steps and kinds that are tried for each error."""


def compiled(python: str, folder: Path) -> list[Path]:
    """The dumps of the programs, a folder for each number of devices."""
    folders = []
    for devices in DEVICES:
        dump = folder / f"cpu, {devices} devices"
        flags = (
            f"--xla_force_host_platform_device_count={devices} --xla_dump_to='{dump}' "
            "--xla_dump_hlo_pass_re=.* --xla_dump_large_constants"
        )
        environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
        subprocess.run([python, str(PROGRAM), str(devices)], check=True, env=environment)
        folders.append(dump)
    return folders


def partitions(folders: Sequence[Path]) -> list[tuple[PassDump, PassDump]]:
    """The steps before and after each partitioning."""
    pairs = []
    for folder in folders:
        for pipeline in opened(folder):
            dumps = in_order(pipeline)
            for before, after in pairwise(dumps):
                if after.name is not None and after.name.after.endswith("spmd-partitioning"):
                    pairs.append((before, after))
    return [pair for pair in pairs if pair[1].path.stat().st_size < MAX_TEXT]


def planted(folders: tuple[Path, ...], number: int) -> tuple[str, bool, str]:
    """The kind of an error, True if it was found, and where it is."""
    choice, xla = random.Random(f"sharded {number}"), xla_cpu()
    pairs, kinds = partitions(folders), list(EDITS)
    for attempt in range(MAX_TRIES):
        before, after = choice.choice(pairs)
        kind = kinds[(number + attempt) % len(kinds)]
        edited = _edited(after.module, EDITS[kind], choice, xla)
        if edited is None:
            continue
        instruction, text = edited
        dumps = [before, *_with_text([after], text)]
        changes = validate_dumps("sharded", dumps, xla).changes
        return kind, bool(changes), f"{after.path.name[:40]} %{instruction.name}"
    return "none", False, "no step takes an error"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--count", type=int, default=100, metavar="N", help="errors to plant")
    parser.add_argument("--python", default=sys.executable, help="a Python that has jax")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(options.jobs) as pool:
        folders = (*compiled(options.python, Path(scratch)), *options.folders)
        tasks = [task for folder in folders for task in tasks_of(folder)]
        verdicts = list(pool.map(validated, tasks, [1] * len(tasks)))
        errors = list(
            pool.map(planted, [folders] * options.count, range(options.count), chunksize=5)
        )
    count = sum(is_found for _, is_found, _ in errors)
    kinds, found = (
        Counter(kind for kind, *_ in errors),
        Counter(kind for kind, ok, _ in errors if ok),
    )
    lines = [
        "# Values of sharded programs",
        "",
        "`python -m benchmarks.sharded`: each step is compared with the one before it, also the "
        "parts that a partitioner made with the whole arrays that it took. "
        f"jaxlib {version('jaxlib')}.",
        "",
        *table(verdicts),
        *reasons(verdicts),
        "",
        "## Errors planted in what the partitioner made",
        "",
        f"{count} of {len(errors)} were found.",
        "",
        "| error | planted | found |",
        "|---|---:|---:|",
        *(f"| {kind} | {number} | {found[kind]} |" for kind, number in sorted(kinds.items())),
        "",
        *(f"- not found: {kind} in `{where}`" for kind, is_found, where in errors if not is_found),
    ]
    RESULTS.write_text("\n".join(lines).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
