"""Speed and memory beside XLA's own parser, on the same files: `make bench DUMP=… BIG=… FILES=…`.

DUMP are folders of dumps, BIG is one that `benchmarks.big_dump` made, FILES are single texts, or
folders of which the largest are taken, CORPORA holds texts of XLA's tests. Directories are measured
in one process, in turns (`goals.py`), single files in processes of their own (`rules.py`).
"""

from __future__ import annotations

import platform
from argparse import ArgumentParser
from importlib.metadata import version
from pathlib import Path

from benchmarks import goals, rules
from benchmarks.measure import ROUNDS, write_page

RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> None:
    parser = ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--big", type=Path)
    parser.add_argument("--corpora", type=Path)
    parser.add_argument("--file", action="append", type=Path, default=[])
    given = parser.parse_args()
    folders = [folder.resolve() for folder in given.folders]
    lines = [
        "# Results",
        "",
        f"`make bench`, Python {platform.python_version()}, jaxlib {version('jaxlib')}, "
        f"{platform.machine()}. XLA's figures are of its parser alone. [What each command costs "
        "beside the compile](BESIDE.md) has a page of its own.",
        "",
        "## Goals",
        "",
        "Ratios of CPU time, XLA's over ours, in one process, in turns, all modules imported: "
        f"medians of {ROUNDS} rounds [least-greatest].",
        "",
        *goals.table(goals.measure(folders, given.big, given.corpora)),
        "",
        "What the printers print is read without a problem, and as XLA reads it (G9, G10): "
        "[AGREEMENT.md](AGREEMENT.md). No cache is used here: every check is a first one.",
        "",
        *rules.report(rules.chosen(path.resolve() for path in given.file)),
    ]
    write_page(RESULTS, lines)


if __name__ == "__main__":
    main()
