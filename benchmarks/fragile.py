"""Fits the threshold of `kernels/autotuning/fragile_winner.py`, and judges it on other programs.

    python -m benchmarks.fragile --tune LOG... [--judge LOG...] [--results FILE...] [--write]

What is fitted sees only the first logs. Those are of as many programs as their names say:
`PROGRAM.alone.3.textproto` and `PROGRAM.load.3.textproto`, as
`fixtures/programs/autotune_logs.py` writes them; any other name is a run of the folder it lies in,
under load if it says so. A log of several modules is as many runs. An instruction whose fingerprint
occurs in the second logs is left out of the first. `results.alone.3.pbtxt` says what XLA in fact
chose in the process that wrote `*.alone.3.textproto`.

The question put to a log: from ONE run alone, which instructions have another winning backend in
any other run?
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hlo_lint.dumps.artefacts.autotune import Candidate, TunedInstruction, read_autotuning
from hlo_lint.kernels.autotuning import fragile_winner
from hlo_lint.kernels.autotuning.fragile_winner import chosen, contest_of

RESULTS = Path(__file__).parent / "FRAGILE.md"

Score = Callable[[TunedInstruction], float]
"""Low where a winner is unsure."""
Winner = Callable[[TunedInstruction], Candidate | None]


def model(tuned: TunedInstruction) -> float:
    contest = contest_of(tuned)
    assert contest is not None, "asked only where two backends were timed"
    return contest.ratio


def bare(tuned: TunedInstruction) -> float:
    """The quotient of the two best times."""
    bests: dict[str, int] = {}
    for candidate in tuned.timed:
        best = bests.get(candidate.backend, candidate.nanoseconds)
        bests[candidate.backend] = min(best, candidate.nanoseconds)
    least, second, *_ = sorted(bests.values())
    return second / least


def shortest(tuned: TunedInstruction) -> Candidate | None:
    return tuned.fastest


@dataclass(frozen=True)
class Run:
    """One module compiled once: what each of its instructions came to."""

    name: str
    under_load: bool
    instructions: dict[str, TunedInstruction]

    def contests(self) -> Iterator[tuple[str, TunedInstruction]]:
        for key, tuned in self.instructions.items():
            if contest_of(tuned) is not None:
                yield key, tuned


@dataclass(frozen=True)
class Decision:
    """An instruction of one run, and whether any other run chose another backend for it."""

    tuned: TunedInstruction
    flips: bool


@dataclass(frozen=True)
class Outcome:
    """Counts of flags by flips."""

    hits: int
    false_alarms: int
    misses: int

    @property
    def precision(self) -> float:
        return self.hits / (self.hits + self.false_alarms) if self.hits else 0.0

    @property
    def recall(self) -> float:
        return self.hits / (self.hits + self.misses) if self.hits else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.hits / (2 * self.hits + self.false_alarms + self.misses or 1)

    def __str__(self) -> str:
        return f"{self.precision:.2f} | {self.recall:.2f} | {self.f1:.2f}"


# Reading


def programs(paths: Iterable[Path]) -> dict[str, list[Run]]:
    """The runs of each program.

    Old logs have no fingerprints: a program with one of them goes by the names of instructions.
    """
    logs = defaultdict(list)
    for path in sorted(paths):
        named = re.fullmatch(r"(.+)\.(alone|load)\.[0-9]+", path.stem)
        program = named[1] if named else path.parent.name
        under_load = named[2] == "load" if named else path.stem.startswith("load")
        logs[program].append((path.stem, under_load, read_autotuning(path.read_text("utf-8"))))
    found: dict[str, list[Run]] = defaultdict(list)
    for program, read in logs.items():
        by_name = not all(each.fingerprint for _, _, log in read for each in log.instructions)
        for name, under_load, log in read:
            modules: dict[int, dict[str, TunedInstruction]] = defaultdict(dict)
            for each in log.instructions:
                modules[each.module][each.name if by_name else each.fingerprint] = each
            for module, instructions in modules.items():
                full = f"{name}, module {module}" if len(modules) > 1 else name
                found[program].append(Run(full, under_load, instructions))
    return found


def without(runs: Iterable[Run], fingerprints: set[str]) -> list[Run]:
    """The runs less the instructions that are to be judged later."""
    return [
        Run(
            run.name,
            run.under_load,
            {
                key: each
                for key, each in run.instructions.items()
                if each.fingerprint not in fingerprints
            },
        )
        for run in runs
    ]


# Fitting


def decisions(runs: Sequence[Run], first: Iterable[Run], winner: Winner) -> Iterator[Decision]:
    """From each of the first runs, what all the others say."""
    for run in first:
        for key, tuned in run.contests():
            others = [
                won.backend
                for other in runs
                if other is not run and key in other.instructions
                for won in [winner(other.instructions[key])]
                if won
            ]
            mine = winner(tuned)
            if mine and others:
                yield Decision(tuned, any(backend != mine.backend for backend in others))


def alone(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if not run.under_load]


def outcome(made: Iterable[Decision], score: Score, cut: float) -> Outcome:
    counted = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
    for each in made:
        counted[score(each.tuned) < cut, each.flips] += 1
    return Outcome(counted[True, True], counted[True, False], counted[False, True])


def best_cut(made: Sequence[Decision], score: Score) -> float:
    """The cut with the best F1: half way between two decisions; of several the one in the middle.

    Both ways of judging get their cut in this way.
    """
    steps = sorted({score(each.tuned) for each in made})
    cuts = [(low + high) / 2 for low, high in itertools.pairwise(steps)]
    reached = [outcome(made, score, cut).f1 for cut in cuts]
    best = [cut for cut, f1 in zip(cuts, reached, strict=True) if f1 == max(reached)]
    return best[len(best) // 2]


def fitted(tuning: Iterable[list[Run]], score: Score, winner: Winner) -> float:
    return best_cut([d for runs in tuning for d in decisions(runs, alone(runs), winner)], score)


# Reporting


def report(tuning: dict[str, list[Run]], judged: dict[str, list[Run]]) -> list[str]:
    fingerprints = {
        each.fingerprint
        for runs in judged.values()
        for run in runs
        for each in run.instructions.values()
        if each.fingerprint
    }
    tuning = {name: without(runs, fingerprints) for name, runs in tuning.items()}
    lines = [
        f"`SURE` fitted to what XLA chose: {fitted(tuning.values(), model, chosen):.3f}; in the "
        f"module: {fragile_winner.SURE:.3f}."
    ]
    for winner, counted in ((chosen, "what XLA chose"), (shortest, "the shortest time")):
        cut = fitted(tuning.values(), bare, winner)
        lines += [
            "",
            f"### The winner is {counted}: bare threshold {cut:.3f}",
            "",
            *left_out(tuning, winner),
        ]
        for name, runs in judged.items():
            lines += ["", *judgement(name, runs, cut, winner)]
    return lines


def left_out(tuning: dict[str, list[Run]], winner: Winner) -> list[str]:
    """Each program judged by what is fitted to all the others."""
    lines = [
        "| left out | runs alone | under load | decisions | that flip "
        "| model: cut | F1 | bare threshold: cut | F1 |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    means = []
    for name, runs in tuning.items():
        others = [found for other, found in tuning.items() if other != name]
        made = [list(decisions(runs, [run], winner)) for run in alone(runs)]
        row, f1s = "", []
        for score in (model, bare):
            cut = fitted(others, score, winner)
            f1s.append(sum(outcome(each, score, cut).f1 for each in made) / len(made))
            row += f" {cut:.3f} | {f1s[-1]:.2f} |"
        means.append(f1s)
        flips = sum(each.flips for some in made for each in some)
        lines.append(
            f"| {name} | {len(made)} | {len(runs) - len(made)} | {sum(map(len, made))} | {flips} |"
            + row
        )
    ours, theirs = (sum(column) / len(means) for column in zip(*means, strict=True))
    lines.append(f"| mean | | | | | | {ours:.3f} | | {theirs:.3f} |")
    return lines


def judgement(name: str, runs: list[Run], bare_cut: float, winner: Winner) -> list[str]:
    """The verdict of the module as it stands, beside the bare threshold."""
    lines = [
        f"| {name}, from | flip | model: precision | recall | F1 "
        "| bare threshold: precision | recall | F1 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    totals = [0.0, 0.0]
    first = alone(runs)
    for run in first:
        made = list(decisions(runs, [run], winner))
        ours = outcome(made, model, fragile_winner.SURE)
        theirs = outcome(made, bare, bare_cut)
        totals = [totals[0] + ours.f1, totals[1] + theirs.f1]
        flip = f"{sum(each.flips for each in made)} of {len(made)}"
        lines.append(f"| {run.name} | {flip} | {ours} | {theirs} |")
    mean = [total / len(first) for total in totals]
    lines.append(f"| mean | | | | {mean[0]:.3f} | | | {mean[1]:.3f} |")
    return lines


def explained(logs: Sequence[Path], results: Sequence[Path]) -> list[str]:
    """The number of choices on record that are the candidate with the shortest time, or ours."""
    right = {shortest: 0, chosen: 0}
    total = 0
    for path in results:
        run = path.stem.removeprefix("results")
        read = read_autotuning(path.read_text("utf-8"))
        for log in (log for log in logs if log.stem.endswith(run)):
            for tuned in read_autotuning(log.read_text("utf-8")).instructions:
                alike = (one for one in read.results if one.fingerprint == tuned.fingerprint)
                recorded = next(alike, None)
                if recorded is None or tuned.fastest is None:
                    continue
                total += 1
                for winner in right:
                    won = winner(tuned)
                    right[winner] += won is not None and won.config == recorded.config
    return [
        f"Of {total} configurations on record as chosen, {right[shortest]} are those with the "
        f"shortest time, {right[chosen]} those that the module expects.",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--tune", nargs="+", type=Path, required=True)
    parser.add_argument("--judge", nargs="+", type=Path, default=[])
    parser.add_argument("--results", nargs="+", type=Path, default=[])
    parser.add_argument("--write", action="store_true", help=f"put the tables into {RESULTS.name}")
    given = parser.parse_args()
    tables = "\n".join(
        explained(given.tune, given.results) + report(programs(given.tune), programs(given.judge))
    )
    print(tables)
    if given.write:
        head, _, rest = RESULTS.read_text("utf-8").partition("<!-- tables -->\n")
        _, _, tail = rest.partition("<!-- end of tables -->")
        RESULTS.write_text(
            f"{head}<!-- tables -->\n{tables}\n<!-- end of tables -->{tail}", "utf-8"
        )


if __name__ == "__main__":
    main()
