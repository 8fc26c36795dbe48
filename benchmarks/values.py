"""Every healthy dump computes the same after each step: `VALUES.md`.

    python -m benchmarks.values [--archives FOLDER] [FOLDER...]

A folder is one source; of `--archives` each folder is one. Every step of every compilation is run
(`validate --all-steps`), the largest compilations first, each in a process of its own. With
`--state` outcomes are kept, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

import hlo_lint
from benchmarks.measure import unpacked
from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.file_types import FileType
from hlo_lint.dumps.selection import in_order
from hlo_lint.engine.values.programs import StepOutcome
from hlo_lint.engine.values.validate import validate_dumps
from hlo_lint.xla.cpu import XlaCpu

LARGE: Final = 1 << 20
"""Bytes of dumps from which the steps of one compilation run several at a time."""
RESULTS = Path(__file__).parent / "VALUES.md"
COLUMNS = (
    StepOutcome.SAME_GRAPH,
    StepOutcome.SAME_BITS,
    StepOutcome.WITHIN_BOUND,
    StepOutcome.CHANGED,
    StepOutcome.NOT_COMPARABLE,
    StepOutcome.NOT_LOWERED,
    StepOutcome.NOT_RUN,
    StepOutcome.BETWEEN,
)

TRUE_CHANGES = {
    "repro/alias/module_0057.jit_spmd.before_optimizations.txt": (
        "the partitioner of jaxlib 0.4.13 sums the copies of a concatenated array on all devices: "
        "that release computes a wrong `cumsum` of a sharded array when it runs"
    )
}
"""Errors of releases, by the compilation, with what was seen of them outside of `validate`."""

Verdict = dict[str, object]
"""The outcome of `validate` for one compilation, or of one planted edit, as JSON."""


def compilations(folder: Path) -> Iterator[Compilation]:
    """The compilations below a folder that have steps."""
    for compilation in hlo_lint.open_dump(folder):
        if {dump.file_type for dump in compilation.dumps} == {FileType.HLO} and len(
            compilation.dumps
        ) > 1:
            yield compilation


class State:
    """The outcomes so far, by their keys."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.verdicts: dict[str, Verdict] = {}
        if path is not None and path.is_file():
            for line in path.read_text("utf-8").splitlines():
                verdict = json.loads(line)
                self.verdicts[verdict["key"]] = verdict

    def add(self, verdict: Verdict) -> None:
        self.verdicts[str(verdict["key"])] = verdict
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(verdict) + "\n")


def table(verdicts: list[Verdict]) -> list[str]:
    heads = [outcome.value for outcome in COLUMNS]
    lines = [f"| source | modules | steps | {' | '.join(heads)} | runs |"]
    lines.append("|---|" + "---:|" * (len(COLUMNS) + 3))
    by_source: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_source.setdefault(str(verdict["source"]), []).append(verdict)
    for source, group in [*sorted(by_source.items()), ("**all**", verdicts)]:
        counts: Counter[str] = Counter()
        for verdict in group:
            counts.update(verdict["counts"])  # type: ignore[call-overload]
        numbers = [len(group), counts.total(), *(counts[head] for head in heads)]
        numbers.append(sum(int(str(verdict["runs"])) for verdict in group))
        lines.append(f"| {source} | {' | '.join(map(str, numbers))} |")
    return lines


def reasons(verdicts: list[Verdict]) -> Iterator[str]:
    """The reasons why steps were not compared, and what was cut, with numbers of steps."""
    for kind, title in (("reasons", "Steps that were not compared"), ("cuts", "Steps with a cut")):
        counts: Counter[str] = Counter()
        for verdict in verdicts:
            counts.update(verdict[kind])  # type: ignore[call-overload]
        yield from ["", f"## {title}", ""]
        yield from [f"- {count}: {text}" for text, count in counts.most_common()] or ["None."]
    changes = []
    for verdict in verdicts:
        known = TRUE_CHANGES.get(str(verdict["key"]))
        true = f" True: {known}." if known else ""
        changes += [f"{each}.{true}" for each in verdict["changes"]]  # type: ignore[attr-defined]
    yield from ["", "## Steps that changed the values", ""]
    yield from [f"- {change}" for change in changes] or ["None."]


# ---- work for one process, which names a compilation by its folder and its number


class Task(NamedTuple):
    """A compilation to validate."""

    size: int
    """Bytes of all its dumps."""
    folder: Path
    number: int
    key: str


@cache
def opened(folder: Path) -> list[Compilation]:
    """The compilations below a folder, which a process opens once."""
    return list(compilations(folder))


@cache
def xla_cpu() -> XlaCpu:
    """The child of this process, which ends with it."""
    xla = XlaCpu()
    atexit.register(xla.close)
    return xla


def tasks_of(folder: Path) -> list[Task]:
    return [
        Task(
            sum(dump.path.stat().st_size for dump in compilation.dumps),
            folder,
            number,
            f"{folder.name}/{compilation.dumps[0].path.relative_to(folder)}",
        )
        for number, compilation in enumerate(opened(folder))
    ]


def validated(task: Task, jobs: int) -> Verdict:
    """The verdict on one compilation."""
    compilation = opened(task.folder)[task.number]
    begun = time.monotonic()
    validation = validate_dumps(
        compilation.title,
        in_order(compilation),
        xla_cpu(),
        all_steps=True,
        jobs=jobs if task.size > LARGE else 1,
    )
    reasons = Counter(
        f"{step.comparison.outcome.value}: {step.comparison.reason}"
        for step in validation.steps
        if step.comparison.reason
    )
    cuts = Counter(
        what
        for step in validation.steps
        if step.program is not None
        for what in {cut.what for cut in step.program.cuts}
    )
    return {
        "key": task.key,
        "source": task.folder.name,
        "counts": {outcome.value: count for outcome, count in validation.counts.items()},
        "runs": validation.runs,
        "reasons": reasons,
        "cuts": cuts,
        "changes": [
            f"{change.after.path.name}: {change.comparison.difference}"
            for change in validation.changes
        ],
        "seconds": time.monotonic() - begun,
    }


def parser_of(page: Path, about: str | None) -> argparse.ArgumentParser:
    """The arguments of the programs that judge the steps of dumps."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--archives", type=Path, metavar="FOLDER")
    parser.add_argument("--state", type=Path, help="outcomes, kept from run to run")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--output", type=Path, default=page, help="the page to write")
    return parser


def folders_of(options: argparse.Namespace, scratch: str) -> list[Path]:
    """The folders that are given, and those in archives."""
    folders = list(options.folders)
    if options.archives:
        root = unpacked(options.archives, Path(scratch))
        folders += sorted(path for path in root.iterdir() if path.is_dir())
    return folders


def gather(state: State, waiting: Sequence[Future[Verdict]]) -> None:
    """Add the outcomes as they come."""
    begun = time.monotonic()
    for number, future in enumerate(as_completed(waiting), 1):
        state.add(future.result())
        progress = f"{number} of {len(waiting)} after {time.monotonic() - begun:.0f} s"
        print(f"{progress}: {future.result()['key']}", file=sys.stderr, flush=True)


def main() -> None:
    options = parser_of(RESULTS, __doc__).parse_args()
    state = State(options.state)
    with tempfile.TemporaryDirectory() as scratch, ProcessPoolExecutor(options.jobs) as pool:
        several = pool.map(tasks_of, folders_of(options, scratch))
        tasks = [task for tasks in several for task in tasks]
        waiting = [
            pool.submit(validated, task, options.jobs)
            for task in sorted(tasks, key=lambda task: -task.size)
            if task.key not in state.verdicts
        ]
        gather(state, waiting)
    verdicts = [state.verdicts[task.key] for task in tasks]
    lines = [
        "# Values after each step",
        "",
        "`python -m benchmarks.values`: each step of each compilation is compared with the one "
        "before it, on ordinary and on hostile inputs. A step that is equal by graph does not run; "
        "of steps that compute more than 2^39 elements only those that bisection needs. "
        f"jaxlib {version('jaxlib')}.",
        "",
        *table(verdicts),
        *reasons(verdicts),
    ]
    text = "\n".join([*lines, ""])
    print(text)
    options.output.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
