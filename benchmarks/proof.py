"""The gate's verdict on every fix, and chains of data movement beside brute force.

    python -m benchmarks.proof [--chains N] DUMPS...

DUMPS are dump directories, folders of them, `.hlo` files, or `.jsonl.xz` files with an object of
`id` and `text` a line. Every fix is planned, unsafe ones too, and nothing is written but PROOF.md.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import hlo_lint
from benchmarks.fixes import texts
from hlo_lint.engine.proof.gate import Verdict
from hlo_lint.engine.proof.prove import Level
from hlo_lint.engine.proof.terms import Differs, NotLayout, prove_equal
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.errors import HloLintError
from tests.oracle.layout_chains import random_pair

RESULTS: Final = Path(__file__).parent / "PROOF.md"
CHAINS: Final = 20_000
BEFORE: Final = "layout_normalization"
"""The pass before which single texts are checked as well: more has a fix there."""


@dataclass
class Measured:
    """Verdicts by rule."""

    levels: dict[str, Counter[str]] = field(default_factory=dict)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    seconds: float = 0.0

    def add(self, verdict: Verdict) -> None:
        rule, level = verdict.plan.diagnostic.rule, verdict.proof.level
        passed = level.value if verdict.passes and level is not None else "refused"
        self.levels.setdefault(rule, Counter())[passed] += 1
        if not verdict.passes:
            self.refused[rule, _nameless(verdict.failures[0])] += 1
        for note in verdict.notes:
            self.notes[note.partition(":")[0]] += 1


def _nameless(reason: str) -> str:
    """A reason that many fixes may share."""
    return " ".join("%…" if word.startswith("%") else word for word in reason.split())


def verdicts(path: Path) -> Iterator[tuple[Verdict, ...]]:
    """The verdicts on the fixes of each text or dump directory."""
    targets: Iterator[tuple[str | Path, str | None]]
    if path.name.endswith(".jsonl.xz"):
        targets = ((text, before) for _, text in texts(path) for before in (None, BEFORE))
    else:
        targets = iter([(path, None)])
    for target, before in targets:
        try:
            findings = hlo_lint.lint(target, before=before).findings
            if any(finding.fix for finding in findings):
                fixed = hlo_lint.fix(target, before=before, unsafe_fixes=True, verify=True)
                yield fixed.verdicts
            elif before is None:
                yield ()
        except HloLintError as error:
            print(f"{path}: {error}", file=sys.stderr)


def measure(paths: list[Path]) -> Measured:
    measured = Measured()
    begin = time.process_time()
    for path in paths:
        for of_text in verdicts(path):
            measured.texts += 1
            for verdict in of_text:
                measured.add(verdict)
    measured.seconds = time.process_time() - begin
    return measured


@dataclass
class Chains:
    """The outcome for random pairs of chains."""

    pairs: int = 0
    equal: int = 0
    instructions: int = 0
    wrong: int = 0
    unknown: int = 0
    seconds: float = 0.0


def measure_chains(count: int) -> Chains:
    """Pairs of chains, decided by index maps and by brute force."""
    measured = Chains()
    source = random.Random(0)
    for _ in range(count):
        one, other = random_pair(source)
        expected = bool((one.run() == other.run()).all())
        before, after = hlo_lint.parse(one.text()), hlo_lint.parse(other.text())
        begin = time.process_time()
        try:
            prove_equal(before, after)
            decided = True
        except Differs:
            decided = False
        except NotLayout:
            decided = not expected
            measured.unknown += 1
        measured.seconds += time.process_time() - begin
        measured.pairs += 1
        measured.equal += expected
        measured.instructions += len(one.steps) + len(other.steps)
        measured.wrong += decided is not expected
    return measured


def report(measured: Measured, chains: Chains) -> str:
    """The page."""
    columns = [level.value for level in Level] + ["refused"]
    lines = [
        "# Fixes and their proofs",
        "",
        "Written by `python -m benchmarks.proof`. What `hlo-lint fix --verify --unsafe-fixes` says "
        f"of every fix in {measured.texts} folders of dumps and single texts: each is minimal, "
        "done once, free of new findings by any rule, read by XLA's parser, and equal at the level "
        "of its column. The levels are in [the documentation](../docs/fixes.md).",
        "",
        f"| rule | fixes | {' | '.join(columns)} |",
        f"|---|{'---|' * (len(columns) + 1)}",
    ]
    fixable = {rule.name() for rule in all_rules() if type(rule).fixable()}
    for rule in sorted(fixable | measured.levels.keys()):
        counts = measured.levels.get(rule, Counter())
        cells = [str(counts[column] or "") for column in columns]
        lines.append(f"| {rule} | {counts.total()} | {' | '.join(cells)} |")
    total = sum((counts for counts in measured.levels.values()), Counter[str]())
    cells = [str(total[column] or "") for column in columns]
    lines += [f"| all | {total.total()} | {' | '.join(cells)} |", ""]
    if measured.refused:
        lines += ["## Refused, and why", "", "| rule | fixes | reason |", "|---|---|---|"]
        for (rule, reason), count in sorted(measured.refused.items()):
            lines.append(f"| {rule} | {count} | {reason} |")
        lines.append("")
    for note, count in sorted(measured.notes.items()):
        lines += [f"{count} fixes: {note}.", ""]
    if chains.pairs:
        mean = chains.instructions / chains.pairs
        lines += [
            "## Chains of data movement",
            "",
            "Random pairs of chains of reshape, transpose, bitcast, copy and broadcast, in layouts "
            "of every order and in tiles; the exact level beside brute force, element by element.",
            "",
            "| pairs | equal | instructions a pair | other answer | unknown | CPU ms a pair |",
            "|---|---|---|---|---|---|",
            f"| {chains.pairs} | {chains.equal} | {mean:.1f} | {chains.wrong} | {chains.unknown} | "
            f"{1000 * chains.seconds / chains.pairs:.2f} |",
            "",
        ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chains", type=int, default=CHAINS)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("dumps", nargs="*", type=Path)
    given = parser.parse_args()
    chains = measure_chains(given.chains)
    measured = measure(given.dumps)
    given.out.write_text(report(measured, chains))
    return 1 if chains.wrong or chains.unknown else 0


if __name__ == "__main__":
    sys.exit(main())
