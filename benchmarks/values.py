"""Every healthy dump computes the same after each step, and planted errors are found: `VALUES.md`.

    python -m benchmarks.values [--state FILE] [--plant N] [--archives FOLDER] [FOLDER...]

A folder is one source; of `--archives` each folder is one. Every step of every compilation is run
(`validate --all-steps`). Then N steps get an error each, which stays to the end of the run, and
bisection has to name that step (`benchmarks/planted.py`). What was found is kept in the state file,
so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import hlo_lint
from benchmarks.measure import unpacked
from benchmarks.planted import Planted, plant_errors
from hlo_lint.dumps.file_types import Kind
from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.engine.values.programs import Outcome
from hlo_lint.engine.values.validate import validate_pipeline
from hlo_lint.engine.values.xla_cpu import XlaCpu

RESULTS = Path(__file__).parent / "VALUES.md"
COLUMNS = (
    Outcome.SAME_GRAPH,
    Outcome.SAME_BITS,
    Outcome.WITHIN_BOUND,
    Outcome.CHANGED,
    Outcome.NOT_COMPARABLE,
    Outcome.NOT_LOWERED,
    Outcome.NOT_RUN,
)

Verdict = dict[str, object]
"""The outcome of `validate` for one compilation, as JSON."""


def compilations(folder: Path) -> Iterator[Pipeline]:
    """The compilations below a folder that have steps."""
    for pipeline in hlo_lint.open_dump(folder):
        if {each.kind for each in pipeline.dumps} == {Kind.HLO} and len(pipeline.dumps) > 1:
            yield pipeline


class State:
    """The verdicts so far, by the path of the first dump."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.verdicts: dict[str, Verdict] = {}
        if path is not None and path.is_file():
            for line in path.read_text("utf-8").splitlines():
                entry = json.loads(line)
                self.verdicts[entry["key"]] = entry

    def add(self, verdict: Verdict) -> None:
        self.verdicts[str(verdict["key"])] = verdict
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(verdict) + "\n")


def verdict_on(pipeline: Pipeline, source: str, xla: XlaCpu) -> Verdict:
    validation = validate_pipeline(pipeline, xla, all_steps=True)
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
        "key": str(pipeline.dumps[0].path),
        "source": source,
        "title": pipeline.title,
        "counts": {each.value: count for each, count in validation.counts.items()},
        "runs": validation.runs,
        "reasons": reasons,
        "cuts": cuts,
        "changes": [
            f"{change.after.path.name}: {change.comparison.difference}"
            for change in validation.changes
        ],
    }


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
    changes = [str(each) for verdict in verdicts for each in verdict["changes"]]  # type: ignore[attr-defined]
    yield from ["", "## Steps that changed the values", ""]
    yield from [f"- {change}" for change in changes] or ["None."]


def planted_lines(planted: list[Planted]) -> Iterator[str]:
    found = sum(each.is_found for each in planted)
    yield from ["", "## Planted errors", ""]
    yield f"{found} of {len(planted)} were found and attributed to their step."
    yield from ["", "| error | planted | found |", "|---|---:|---:|"]
    for kind in sorted({each.kind for each in planted}):
        group = [each for each in planted if each.kind == kind]
        yield f"| {kind} | {len(group)} | {sum(each.is_found for each in group)} |"
    missed = [each for each in planted if not each.is_found]
    if missed:
        yield from ["", "Not found:", ""]
        yield from [f"- {each.kind} in `{each.where}`: {each.said}" for each in missed]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--archives", type=Path, metavar="FOLDER")
    parser.add_argument("--state", type=Path, help="what was found, kept from run to run")
    parser.add_argument("--plant", type=int, default=0, metavar="N", help="errors to plant")
    parser.add_argument("--seed", type=int, default=0, help="of the steps that get errors")
    given = parser.parse_args()
    state = State(given.state)
    with tempfile.TemporaryDirectory() as scratch, XlaCpu() as xla:
        folders = list(given.folders)
        if given.archives:
            root = unpacked(given.archives, Path(scratch))
            folders += sorted(path for path in root.iterdir() if path.is_dir())
        verdicts: list[Verdict] = []
        pipelines: list[Pipeline] = []
        for folder in folders:
            for pipeline in compilations(folder):
                pipelines.append(pipeline)
                key = str(pipeline.dumps[0].path)
                if key not in state.verdicts:
                    state.add(verdict_on(pipeline, folder.name, xla))
                verdicts.append(state.verdicts[key])
            print(f"{folder.name}: {len(verdicts)} modules so far", file=sys.stderr, flush=True)
        planted = plant_errors(pipelines, given.plant, given.seed, xla)
    lines = [
        "# Values after each step",
        "",
        "`python -m benchmarks.values`: each step of each compilation is compared with the one "
        "before it, on two seeds of inputs. A step that is equal by graph does not run.",
        "",
        *table(verdicts),
        *reasons(verdicts),
        *(planted_lines(planted) if planted else ()),
    ]
    text = "\n".join([*lines, ""])
    print(text)
    RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
