"""Sharded programs compute the same from their first step to their last: `SHARDED.md`.

    python -m benchmarks.sharded [--count N] [--dumps FOLDER] [--state FILE] [FOLDER...]

The programs of `fixtures/programs/sharded.py` are compiled for 4 and for 16 devices of XLA:CPU,
XLA:GPU and XLA:TPU, of which the last two are described, and each step is compared with the one
before it; a folder of dumps is a source of its own. Then N errors and half as many rewrites that
preserve every value are planted in what a partitioner made (`benchmarks/shard_plants.py`), each in
one instruction, and stay in the later steps: of an error the step of the partitioner has to be
named, and no other, of a rewrite none. An error counts if it changes the whole results on some of
seven sets of inputs. With `--state` outcomes are kept, and a run that was stopped goes on.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.planted import ERROR, MAX_TEXT, REWRITE, edited, with_text
from benchmarks.plants import REWRITES as ANY_REWRITES
from benchmarks.shard_plants import ERRORS, REWRITES
from benchmarks.values import (
    State,
    Verdict,
    folders_of,
    gather,
    opened,
    parser_of,
    reasons,
    table,
    tasks_of,
    validated,
    xla_cpu,
)
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.values.lowering.shards import ProgramShardings
from hlo_lint.engine.values.programs import StepOutcome
from hlo_lint.engine.values.steps import partitioned
from hlo_lint.engine.values.validate import validate_dumps
from hlo_lint.xla.limits import Deadline

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "SHARDED.md"
PROGRAM = ROOT / "fixtures" / "programs" / "sharded.py"
DEVICES = (4, 16)
TARGETS: Final = {
    "cpu": ("cpu", ""),
    "h200": ("gpu", "jax-0.11.2"),
    "v5e": ("tpu", "jax-0.10.2-tpu"),
}
"""The platform of each target, and the interpreter under `.venv-releases` that has its compiler."""
SAME: Final = ("transposed twice", "reshaped twice", "summed in another order")
"""Rewrites that give the same node, or that have no place here."""
KINDS: Final = {
    ERROR: ERRORS,
    REWRITE: {**REWRITES} | {name: edit for name, edit in ANY_REWRITES.items() if name not in SAME},
}
AROUND: Final = 3
"""Steps before the partitioner's and after it that are validated with it."""


def compiled(folder: Path) -> list[Path]:
    """The dumps of the programs, a folder for each target and number of devices."""
    folders = []
    for target, (platform, release) in TARGETS.items():
        python = ROOT / ".venv-releases/hlo_lint" / release / "bin/python" if release else ""
        for devices in DEVICES:
            dump = folder / f"{target}, {devices} devices"
            folders.append(dump)
            if dump.exists():
                continue
            flags = (
                f"--xla_force_host_platform_device_count={devices} --xla_dump_to='{dump}' "
                "--xla_dump_hlo_pass_re=.* --xla_dump_large_constants"
            )
            environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
            command = [python or sys.executable, PROGRAM, str(devices), platform]
            subprocess.run(command, check=True, env=environment)
    return folders


# ---- what is planted


class Partitioning(NamedTuple):
    """The steps of one compilation around that of the partitioner."""

    title: str
    dumps: Sequence[PassDump]
    at: int
    """The number of the partitioner's step among them."""
    layout: ProgramShardings
    """The shardings of the whole arrays."""


@cache
def partitionings(folders: tuple[Path, ...]) -> list[Partitioning]:
    """The partitionings in dumps."""
    every = (
        _partitioning(f"{folder.name}: {compilation.title}", in_order(compilation))
        for folder in folders
        for compilation in opened(folder)
    )
    return [one for one in every if one is not None]


def _partitioning(title: str, dumps: Sequence[PassDump]) -> Partitioning | None:
    at, layout = partitioned(dumps, Deadline())
    if layout is None or dumps[at].path.stat().st_size > MAX_TEXT:
        return None
    start = max(at - AROUND, 0)
    return Partitioning(title, dumps[start : at + AROUND + 1], at - start, layout)


def planted(folders: tuple[Path, ...], number: int, what: str) -> Verdict:
    """A planted error or rewrite, and what came of it; none where no step takes one."""
    choice, xla = random.Random(f"sharded {what} {number}"), xla_cpu()
    kinds = list(KINDS[what])
    places = list(partitionings(folders))
    choice.shuffle(places)
    first, others = kinds[number % len(kinds)], choice.sample(kinds, len(kinds))
    for kind, (title, dumps, at, layout) in product([first, *others], places):
        planting = edited(
            dumps[at].module, KINDS[what][kind], choice, xla if what == ERROR else None, layout
        )
        if planting is None:
            continue
        instruction, text = planting
        steps = [*dumps[:at], *with_text(dumps[at:], text)]
        validation = validate_dumps(title, steps, xla)
        missing = (StepOutcome.NOT_RUN, StepOutcome.NOT_LOWERED)
        if what == REWRITE and validation.steps[at].comparison.outcome in missing:
            continue
        reported = [change.after.path.name for change in validation.changes]
        return {
            "key": f"{what} {number}",
            "kind": kind,
            "where": f"{title} %{instruction.name}",
            "is_right": reported == ([dumps[at].path.name] if what == ERROR else []),
            "outcome": f"reported {reported}; {'; '.join(validation.notes)[:200]}",
        }
    return {"key": f"{what} {number}", "kind": None}


def section(plants: Sequence[Verdict], what: str) -> Iterator[str]:
    """The part of the page about errors, or about rewrites."""
    right = Counter(plant["kind"] for plant in plants if plant["is_right"])
    every = Counter(plant["kind"] for plant in plants)
    if what == ERROR:
        yield from ["", "## Errors planted in what the partitioner made", ""]
        yield f"{right.total()} of {len(plants)} were found, at their step and at no other."
    else:
        yield from ["", "## Rewrites that preserve the values", ""]
        yield f"In {right.total()} of {len(plants)} no step was named."
    yield from ["", f"| {what} | planted | {'found' if what == ERROR else 'right'} |"]
    yield "|---|---:|---:|"
    for kind in filter(every.get, KINDS[what]):
        yield f"| {kind} | {every[kind]} | {right[kind]} |"
    missed = [plant for plant in plants if not plant["is_right"]]
    if missed:
        yield ""
        yield from [f"- {one['kind']} in `{one['where']}`: {one['outcome']}" for one in missed]


def main() -> None:
    parser = parser_of(RESULTS, __doc__)
    parser.add_argument("--count", type=int, default=100, metavar="N", help="errors to plant")
    parser.add_argument("--dumps", type=Path, metavar="FOLDER", help="where they are, or will be")
    options = parser.parse_args()
    state = State(options.state)
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(options.jobs) as pool:
        made = compiled((options.dumps or Path(scratch)).resolve())
        folders = (*made, *folders_of(options, scratch))
        tasks = [task for folder in folders for task in tasks_of(folder)]
        waiting = [
            pool.submit(validated, task, 1) for task in tasks if task.key not in state.verdicts
        ]
        plants = [
            (number, what)
            for what, count in ((ERROR, options.count), (REWRITE, options.count // 2))
            for number in range(count)
        ]
        waiting += [
            pool.submit(planted, folders, number, what)
            for number, what in plants
            if f"{what} {number}" not in state.verdicts
        ]
        gather(state, waiting)
    verdicts = [state.verdicts[task.key] for task in tasks]
    compilers = ", ".join(
        f"{target} by {release}" for target, (_, release) in TARGETS.items() if release
    )
    lines = [
        "# Values of sharded programs",
        "",
        "`python -m benchmarks.sharded`: each step is compared with the one before it, also the "
        "parts that a partitioner made with the whole arrays that it took. "
        f"jaxlib {version('jaxlib')}; {compilers}.",
        "",
        *table(verdicts),
        *reasons(verdicts),
    ]
    for what in KINDS:
        every = [state.verdicts[f"{what} {number}"] for number, kind in plants if kind == what]
        lines += section([plant for plant in every if plant["kind"] is not None], what)
    options.output.write_text("\n".join(lines).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    main()
