"""Speed and memory beside XLA's own parser, on the same files: `make bench DUMP=… BIG=… FILES=…`.

DUMP are folders of dumps, BIG is one that `benchmarks.big_dump` made, FILES are single texts, or
folders of which the largest are taken, CORPORA holds texts of XLA's tests. The goals are measured
in one process (`goals.py`). In the tables after them every figure is the median of rounds in which
all kinds take turns, each in a process of its own, so that neither drift of the machine nor memory
of the other is in it.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from argparse import ArgumentParser
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks import goals, rules
from benchmarks.measure import KINDS, hlo_texts

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "RESULTS.md"
ROUNDS = 5
TITLES = {
    "xla": "XLA: `hlo_module_from_text`, every module held",
    "parse": "`hlo_lint.parse`, file by file, every module held",
    "open": "`hlo_lint.open_dump`, every module held",
    "check": "`hlo_lint.lint` of the directory (parse, pipeline, rules, report)",
    "command": "`hlo-lint check` of the directory",
}


def measure(kind: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.measure", kind, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def compare(folder: Path) -> list[str]:
    texts = hlo_texts(folder)
    megabytes = sum(path.stat().st_size for path in texts) / 1e6
    rounds = [{kind: measure(kind, folder) for kind in KINDS} for _ in range(ROUNDS)]

    def figure(kind: str, name: str) -> float:
        return median(round_[kind][name] for round_ in rounds)

    def ratio(kind: str, name: str) -> float:
        return median(round_[kind][name] / round_["xla"][name] for round_ in rounds)

    lines = [
        f"## {folder.parent.name}/{folder.name}: {len(texts)} texts, {megabytes:.1f} MB",
        "",
        "| | work, s CPU | MB/s | of XLA | whole process, s CPU | of XLA | held, MB | of XLA "
        "| peak, MB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, title in TITLES.items():
        work, process = figure(kind, "work"), figure(kind, "process")
        held, peak = figure(kind, "held"), figure(kind, "peak")
        lines.append(
            f"| {title} | {work:.3f} | {megabytes / work:.0f} | {ratio(kind, 'work'):.2f} "
            f"| {process:.3f} | {ratio(kind, 'process'):.2f} | {held:.1f} "
            f"| {ratio(kind, 'held'):.2f} | {peak:.0f} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--big", type=Path)
    parser.add_argument("--corpora", type=Path)
    parser.add_argument("--file", action="append", type=Path, default=[])
    given = parser.parse_args()
    folders = [folder.resolve() for folder in given.folders] or [
        ROOT / "fixtures/dumps/gpu-jax0.11.2/attention"
    ]
    compared = [line for folder in folders for line in compare(folder)]
    lines = [
        "# Results",
        "",
        f"`make bench`, Python {platform.python_version()}, jaxlib {version('jaxlib')}, "
        f"{platform.machine()}. XLA's figures are of its parser alone. [What each command costs "
        "beside the compile](BESIDE.md) has a page of its own.",
        "",
        "## Goals",
        "",
        "Ratios of CPU time, XLA's over ours, in one process, in turns: medians of "
        f"{ROUNDS} rounds [least-greatest].",
        "",
        *goals.table(goals.measure(folders, given.big, given.corpora)),
        "",
        "What the printers print is read without a problem, and as XLA reads it (G9, G10): "
        "[AGREEMENT.md](AGREEMENT.md). No cache is used here: every check is a first one.",
        "",
        f"Below: medians of {ROUNDS} rounds, each measurement in a process of its own. “Work” is "
        "the CPU time of the thread that reads; “whole process” counts start-up, imports and all "
        "threads on both sides, for ours the import of the rules.",
        "",
        *compared,
        *rules.report(rules.chosen(path.resolve() for path in given.file)),
    ]
    text = "\n".join(lines)
    print(text)
    RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
