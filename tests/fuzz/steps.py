"""Fuzzing by steps: `python -m tests.fuzz.steps [--count N] [--first N] [--seed N] [--jobs N]`.

Two to four consecutive steps of a real dump, or of an example of a rule, with one to three changes.
Every rule checks them, and one other command reads them. A mutant is drawn by the seed and its
number alone. The steps that break a promise are left in `--found`, a folder for each place that
breaks, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path

from click.testing import CliRunner

import hlo_lint
from hlo_lint.apps.cli.main import cli
from hlo_lint.rules.findings import INTERNAL_ERROR
from hlo_lint.rules.registry import all_rules
from tests.conftest import FIXTURES
from tests.fuzz.graphs import mutant_of
from tests.fuzz.targets import every_rule

MAX_TEXT = 40_000
"""Bytes of a file that is a step."""
MAX_SECONDS = 20.0
"""CPU time of one mutant."""
CHUNK = 50
COMMANDS = (
    ("check", "--no-cache", "--blame"),
    ("passes",),
    ("report", "-o", os.devnull),
    ("compare", "@", "@"),
    ("bisect", "@", "@"),
    ("diff", "@/0", "@/1"),
    ("match", "add(any(), any())"),
    ("fix", "--diff"),
)
"""The commands that read a dump and start no XLA; `@` is the folder, `@/N` its Nth file."""
Steps = list[tuple[str, str]]
"""File names and texts, in order."""
Change = Callable[[Steps, random.Random], Steps | None]


@cache
def dumps() -> Sequence[Steps]:
    """The dumps of two steps and more: fixtures, and examples of rules."""
    drawn: list[Steps] = []
    for folder in sorted((FIXTURES / "dumps").glob("*/*")):
        files = [file for file in sorted(folder.glob("*.txt")) if ".after_" in file.name]
        texts = [
            (file.name, file.read_text("utf-8", "surrogateescape"))
            for file in files
            if file.stat().st_size <= MAX_TEXT
        ]
        if len(texts) > 1:
            drawn.append(texts)
    for rule in all_rules():
        drawn += [
            sorted({**example.beside, example.file: example.source}.items())
            for example in rule.examples
            if example.file and example.beside
        ]
    return drawn


def _in_one(
    steps: Steps, chance: random.Random, change: Callable[[str], str | None]
) -> Steps | None:
    place = chance.randrange(len(steps))
    name, text = steps[place]
    after = change(text)
    return None if after is None else [*steps[:place], (name, after), *steps[place + 1 :]]


def _of_instruction(steps: Steps, chance: random.Random) -> Steps | None:
    def change(text: str) -> str | None:
        mutant = mutant_of(text, chance) if hlo_lint.parse_all(text) else None
        return None if mutant is None or mutant.mutation == "a chain" else mutant.text

    return _in_one(steps, chance, change)


def _renamed(steps: Steps, chance: random.Random) -> Steps | None:
    def change(text: str) -> str | None:
        names = re.findall(r"^\s+(?:ROOT )?%?([\w.\-]+) = ", text, re.M)
        if not names:
            return None
        old = re.escape(chance.choice(names))
        return re.sub(rf"(?<![\w.\-]){old}(?![\w.\-])", f"n.{chance.randrange(99)}", text)

    return _in_one(steps, chance, change)


def _lines_exchanged(steps: Steps, chance: random.Random) -> Steps | None:
    def change(text: str) -> str:
        lines = text.splitlines(keepends=True) or [""]
        first, second = (chance.randrange(len(lines)) for _ in range(2))
        lines[first], lines[second] = lines[second], lines[first]
        return "".join(lines)

    return _in_one(steps, chance, change)


def _mixed(steps: Steps, chance: random.Random) -> Steps | None:
    """Some computations of a step are those of a step of any dump."""
    _, other = chance.choice(chance.choice(dumps()))

    def change(text: str) -> str:
        ours, theirs = text.split("\n\n"), other.split("\n\n")
        ours[chance.randrange(len(ours))] = chance.choice(theirs)
        return "\n\n".join(ours)

    return _in_one(steps, chance, change)


def _step_removed(steps: Steps, chance: random.Random) -> Steps | None:
    place = chance.randrange(len(steps))
    return [*steps[:place], *steps[place + 1 :]] if len(steps) > 2 else None


def _texts_exchanged(steps: Steps, chance: random.Random) -> Steps | None:
    texts = [text for _, text in steps]
    chance.shuffle(texts)
    return [(name, text) for (name, _), text in zip(steps, texts, strict=True)]


CHANGES: dict[str, Change] = {
    "an instruction": _of_instruction,
    "a name": _renamed,
    "lines exchanged": _lines_exchanged,
    "truncated": lambda steps, chance: _in_one(
        steps, chance, lambda text: text[: chance.randint(0, len(text))]
    ),
    "computations mixed": _mixed,
    "a step removed": _step_removed,
    "steps exchanged": _texts_exchanged,
}


def mutant_at(seed: int, number: int) -> tuple[str, Steps]:
    """The mutant of a number, after what was changed; every third is of an example of a rule."""
    chance = random.Random(f"{seed}/{number}")
    real = [steps for steps in dumps() if len(steps) > 3]
    steps = chance.choice(real if number % 3 else dumps())
    start = chance.randrange(max(1, len(steps) - 3))
    steps = steps[start : start + chance.randint(2, 4)]
    done: list[str] = []
    wanted = chance.randint(1, 3)
    while len(done) < wanted:
        kind = chance.choice(["an instruction", *CHANGES])
        if (changed := CHANGES[kind](steps, chance)) is not None:
            steps = changed
            done.append(kind)
    return ", ".join(done), steps


def failure_of(steps: Steps, number: int) -> str | None:
    """The promise that steps break, after the place; None if they break none."""
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name, _ in steps]
        for path, (_, text) in zip(paths, steps, strict=True):
            path.write_text(text, "utf-8", "surrogateescape")
        for finding in hlo_lint.lint(Path(folder), settings=every_rule(), resolved=True):
            if finding.rule == INTERNAL_ERROR:
                return "\n".join((finding.notes[1], finding.message))
        command = COMMANDS[number % len(COMMANDS)]
        words = [
            folder if word == "@" else str(paths[int(word[2:])]) if word.startswith("@/") else word
            for word in command
        ]
        ended = CliRunner().invoke(cli, words if "@" in "".join(command) else [*words, folder])
        broken = ended.exception is not None and not isinstance(ended.exception, SystemExit)
        if broken or "internal error" in ended.output:
            return f"{command[0]}: {ended.exception!r}\n{ended.output[-500:]}"
    seconds = time.process_time() - begun
    return f"slow\n{seconds:.1f} s of CPU" if seconds > MAX_SECONDS else None


def _part(seed: int, found: Path, first: int, end: int) -> tuple[Counter[str], Counter[str]]:
    changes, failures = Counter[str](), Counter[str]()
    for number in range(first, end):
        done, steps = mutant_at(seed, number)
        changes.update(done.split(", "))
        failure = failure_of(steps, number)
        if failure is None:
            continue
        place = failure.partition("\n")[0]
        print(f"{number}: {done}: {failure}", flush=True)
        if not failures[place]:
            folder = found / re.sub(r"\W+", "-", place)[:100]
            folder.mkdir(parents=True, exist_ok=True)
            for name, text in steps:
                (folder / name).write_text(text, "utf-8", "surrogateescape")
        failures[place] += 1
    return changes, failures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--found", type=Path, default=Path("build/steps"))
    options = parser.parse_args()
    end = options.first + options.count
    firsts = range(options.first, end, CHUNK)
    changes, failures = Counter[str](), Counter[str]()
    with ProcessPoolExecutor(options.jobs) as pool:
        part = partial(_part, options.seed, options.found)
        ends = [min(first + CHUNK, end) for first in firsts]
        for counted, broken in pool.map(part, firsts, ends):
            changes += counted
            failures += broken
    for kind, number in changes.most_common():
        print(f"{number:7,} {kind}")
    print(f"{options.count:,} mutants, {failures.total()} failures at {len(failures)} places")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
