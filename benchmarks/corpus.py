"""Findings of every rule in every dump at hand: `make corpus ARCHIVES=FOLDER`.

A folder of `.tar.xz` archives, or of dump directories. The table's diff belongs to each change of a
rule.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path

import hlo_lint
from benchmarks.measure import unpacked

RESULTS = Path(__file__).parent / "CORPUS.md"


def table(folder: Path) -> list[str]:
    lines = ["| dumps | texts | findings |", "|---|---|---|"]
    for part in sorted(path for path in folder.glob("*") if path.is_dir()):
        report = hlo_lint.lint(part)
        counted = Counter(f"{f.severity.value} {f.rule}" for f in report.findings)
        said = ", ".join(f"{number} {what}" for what, number in sorted(counted.items())) or "none"
        lines.append(f"| {part.name} | {report.stats['files']} | {said} |")
    return lines


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit("usage: make corpus ARCHIVES=FOLDER")
    with tempfile.TemporaryDirectory() as scratch:
        folder = unpacked(Path(sys.argv[1]), Path(scratch))
        text = "\n".join(["# Findings in the dumps at hand", "", *table(folder), ""])
    print(text)
    RESULTS.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
