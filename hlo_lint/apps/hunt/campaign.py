"""A campaign: modules generated and judged until the time is over; a later one goes on from it.

The folder has a line of JSON for each verdict and each cause (`judged.jsonl`), the module of each
finding (`modules`), and what shows each cause (`causes`). Several processes write there at a time.
"""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from itertools import takewhile, zip_longest
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

from hlo_lint.apps.hunt.causes import BugCause, JudgeOf, known_issue, settled
from hlo_lint.apps.hunt.draft import STEPS
from hlo_lint.apps.hunt.generate import Generated, generate
from hlo_lint.apps.hunt.judge import BugFinding, HuntCompiler, judges_of
from hlo_lint.apps.hunt.mutate import mutated
from hlo_lint.apps.reduction import parser
from hlo_lint.text.errors import DumpError, UsageError, os_errors_as
from hlo_lint.xla.limits import Deadline, NoTimeLeft

JUDGED: Final = "judged.jsonl"
MODULES: Final = "modules"
CAUSES: Final = "causes"
PER_CAUSE: Final = 3
"""Modules of one cause that are reduced: one pass may have several mistakes."""
SETTLING: Final = 0.25
"""The share of the time that is kept for what was found to be reduced."""
LEAST_WEIGHT: Final = 0.3
MOST_WEIGHT: Final = 4.0

Judges = Mapping[str, JudgeOf]
"""The judges by what they compile with: `0.10.2 cpu`."""
HuntNote = Callable[[str], None]


@dataclass
class Campaign:
    """The verdicts so far."""

    folder: Path
    seeds: set[int] = field(default_factory=set)
    """The modules that were judged."""
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """For each judge the number of verdicts of each kind."""
    passes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """For each judge how often each pass changed something."""
    causes: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """The findings of each cause, the first one first."""
    settled: dict[str, BugCause | str] = field(default_factory=dict)
    """The cause of a finding, or why it has none, by what found it and the seed."""
    _rarity: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def at(cls, folder: Path) -> Campaign:
        """The campaign in a folder; a new one where there is none.

        Raises:
            DumpError: the folder cannot be read.
        """
        campaign, path = cls(folder), folder / JUDGED
        with os_errors_as(f"{path}", DumpError):
            (folder / MODULES).mkdir(parents=True, exist_ok=True)
            for line in path.read_text("utf-8").splitlines() if path.exists() else ():
                try:
                    campaign._count(json.loads(line))
                except (ValueError, KeyError):
                    continue  # the earlier run ended while it wrote this line
        return campaign

    def run(
        self,
        judges: Judges,
        deadline: Deadline,
        modules: Iterable[Generated],
        note: HuntNote = lambda _: None,
    ) -> None:
        """Judge modules until the time is over.

        Raises:
            DumpError: the folder cannot be written.
        """
        for module in modules:
            for name, judge in judges.items():
                if deadline.left <= 0:
                    return
                try:
                    verdict = judge(module.text)
                except NoTimeLeft:
                    return
                if verdict.finding:
                    kept = self.folder / MODULES / f"{module.seed}.hlo"
                    kept.write_text(module.text, "utf-8")
                of_module = {"seed": module.seed, "by": name, "traits": module.traits}
                self._keep({**of_module, **asdict(verdict)})
            note(f"{len(self.seeds)} modules, {len(self.causes)} causes")

    def generated(self, seeds: Iterable[int]) -> Iterator[Generated]:
        """The module of each seed, with more of what made rare passes change something."""
        for seed in seeds:
            yield generate(seed, self.weights())

    def weights(self) -> dict[str, float]:
        """The frequency of each step: higher where rare passes changed something."""
        means = {
            name: sum(values[-400:]) / len(values[-400:])
            for name, values in self._rarity.items()
            if len(values) >= 20
        }
        if len(means) < len(STEPS) // 2:
            return {}
        middle = sorted(means.values())[len(means) // 2] or 1.0
        return {
            name: min(max(mean / middle, LEAST_WEIGHT), MOST_WEIGHT) for name, mean in means.items()
        }

    def settle(
        self, judges: Judges, note: HuntNote = lambda _: None, share: tuple[int, int] = (0, 1)
    ) -> None:
        """Reduce the first modules of each cause that nobody has looked at yet, or a share of them.

        Raises:
            DumpError: the folder cannot be written.
        """
        turns = zip_longest(*(of_cause[:PER_CAUSE] for of_cause in self.causes.values()))
        entries = [entry for turn in turns for entry in turn if entry]
        for entry in entries[share[0] :: share[1]]:
            by, seed, finding = entry["by"], entry["seed"], BugFinding(**entry["finding"])
            if f"{by} {seed}" in self.settled or by not in judges or known_issue(finding.cause):
                continue
            note(f"reducing {finding.cause[:60]}")
            text = (self.folder / MODULES / f"{seed}.hlo").read_text("utf-8")
            cause: BugCause | str
            try:
                cause = settled(text, by, finding, judges, seed)
            except NoTimeLeft:
                return
            except UsageError as error:
                cause = str(error)
            else:
                by_pass = cause.finding.pass_name or cause.finding.kind
                cause.write(self.folder / CAUSES / re.sub(r"\W+", "-", f"{seed}-{by_pass}"))
            kept = asdict(cause) if isinstance(cause, BugCause) else cause
            self._keep({"of": f"{by} {seed}", "as": kept})

    def table(self) -> list[tuple[str, ...]]:
        """A row for each cause: pass, cause, where it shows, first seed, how often it was found."""
        rows: dict[str, list[Any]] = {}
        for of, entries in self.causes.items():
            for number, entry in enumerate(entries):
                cause = self.settled.get(f"{entry['by']} {entry['seed']}")
                if isinstance(cause, BugCause):
                    of = cause.signature
                    head = [cause.finding.pass_name, of, ", ".join(cause.shows), str(cause.seed), 0]
                    rows.setdefault(of, [*head, cause.issue or "new"])
                elif number == 0:
                    shows = ", ".join({one["by"]: 1 for one in entries})
                    head = [entry["finding"]["pass_name"], of, shows, str(entry["seed"]), 0]
                    rows.setdefault(of, [*head, cause or known_issue(of) or "not reduced yet"])
                rows[of][4] += 1
        return [tuple(map(str, row)) for row in rows.values()]

    def _keep(self, entry: dict[str, Any]) -> None:
        path = self.folder / JUDGED
        # One write for each line: other processes append to the file, too.
        with os_errors_as(f"{path}", DumpError), path.open("ab", buffering=0) as file:
            file.write(json.dumps(entry).encode() + b"\n")
        self._count(entry)

    def _count(self, entry: Mapping[str, Any]) -> None:
        if "as" in entry:
            value = entry["as"]
            if isinstance(value, dict):
                value = BugCause(BugFinding(**value.pop("finding")), **value)
            self.settled[entry["of"]] = value
            return
        name = entry["by"]
        self.seeds.add(entry["seed"])
        self.outcomes[name][entry["outcome"]] += 1
        counts = self.passes[name]
        counts.update(entry["passes"])
        rarity = sum(1 / counts[changed] for changed in entry["passes"])
        for trait in set(entry["traits"]):
            self._rarity[trait].append(rarity)
        if finding := entry["finding"]:
            self.causes[BugFinding(**finding).cause].append(dict(entry))


@dataclass(frozen=True)
class HuntPlan:
    """The compilers to hunt in, with which modules, and how long."""

    folder: Path
    compilers: tuple[HuntCompiler, ...]
    minutes: float
    passes: tuple[str, ...] = ()
    seed: int = 0
    jobs: int = 1
    texts: tuple[str, ...] = ()
    """Modules to mutate in place of making modules."""
    rules: bool = True

    def judges(self, deadline: Deadline) -> AbstractContextManager[Judges]:
        """The judge of each compiler."""
        given = {"passes": self.passes, "rules": self.rules, "deadline": deadline}
        return judges_of(self.compilers, **given)

    def run(self, note: HuntNote = lambda _: None) -> Campaign:
        """Hunt, then reduce what was found; the campaign with what was there before.

        Raises:
            DumpError: the folder cannot be read or written, or all processes have ended.
        """
        begin = time.time()
        for work, share in ((_hunt, 1 - SETTLING), (_settle, 1.0)):
            first = max([self.seed - 1, *Campaign.at(self.folder).seeds]) + 1
            end = begin + 60 * self.minutes * share
            if self.jobs == 1:
                work(self, first, 0, end, note)
                continue
            context = get_context("spawn")
            workers = [
                context.Process(target=_quietly, args=(work, self, first, at, end), daemon=True)
                for at in range(self.jobs)
            ]
            for worker in workers:
                worker.start()
            while any(worker.is_alive() for worker in workers):
                workers[0].join(1.0)
                note(f"{self.jobs} processes, {max(end - time.time(), 0):.0f} s left")
                time.sleep(1.0)
            if all(worker.exitcode for worker in workers):
                raise DumpError(
                    "the processes that hunted have ended, of too little memory perhaps"
                )
        return Campaign.at(self.folder)


def _quietly(work: Callable[..., None], *given: object) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends with it, and ends this
    work(*given, lambda _: None)


def _hunt(plan: HuntPlan, first: int, at: int, end: float, note: HuntNote) -> None:
    deadline, campaign = Deadline(end - time.time()), Campaign.at(plan.folder)
    seeds = range(first + at, 1 << 62, plan.jobs)
    with plan.judges(deadline) as judges, parser() as guard:
        modules = campaign.generated(seeds)
        if plan.texts:
            in_time = takewhile(lambda _: deadline.left > 0, seeds)
            drawn = (mutated(plan.texts, seed, guard) for seed in in_time)
            modules = (module for module in drawn if module is not None)
        campaign.run(judges, deadline, modules, note)


def _settle(plan: HuntPlan, _: int, at: int, end: float, note: HuntNote) -> None:
    deadline = Deadline(end - time.time())
    with plan.judges(deadline) as judges:
        Campaign.at(plan.folder).settle(judges, note, (at, plan.jobs))
