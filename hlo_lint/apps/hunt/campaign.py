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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from itertools import takewhile, zip_longest
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, Final

from hlo_lint.apps.hunt.causes import HuntRecord, JudgeOf, known_issue, settled
from hlo_lint.apps.hunt.draft import STEPS
from hlo_lint.apps.hunt.generate import Generated, generate
from hlo_lint.apps.hunt.judge import HuntCompiler, Judge, compilers_of
from hlo_lint.apps.hunt.mutate import mutated
from hlo_lint.apps.reduction import parser
from hlo_lint.text.errors import DumpError, os_errors_as
from hlo_lint.text.files import write
from hlo_lint.xla.limits import Deadline, NoTimeLeft

JUDGED: Final = "judged.jsonl"
MODULES: Final = "modules"
CAUSES: Final = "causes"
PER_CAUSE: Final = 3
"""Modules of one cause that are reduced: one pass may have several mistakes."""
SETTLING: Final = 0.25
"""The share of the time that is kept for what was found to be reduced."""
OVERTIME: Final = 60.0
"""Seconds in which a process ends when the time is over."""
RECENT: Final = 500
"""The verdicts that say what makes rare passes fire."""
LEAST_WEIGHT, MOST_WEIGHT = 0.3, 4.0

Judges = Mapping[str, JudgeOf]
"""The judges by what they compile with: `0.10.2 cpu`."""
HuntNote = Callable[[str], None]


@dataclass
class Campaign:
    """The verdicts so far."""

    folder: Path
    records: dict[tuple[str, int], HuntRecord] = field(default_factory=dict)
    """By the judge and the seed."""

    @classmethod
    def at(cls, folder: Path) -> Campaign:
        """The campaign in a folder; a new one where there is none.

        Raises:
            DumpError: the folder cannot be read, or is of another release.
        """
        campaign, path = cls(folder), folder / JUDGED
        with os_errors_as(f"{path}", DumpError):
            lines = path.read_text("utf-8").splitlines() if path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                record = HuntRecord.of(json.loads(line))
            except json.JSONDecodeError:
                continue  # an earlier run ended while it wrote this line
            except (KeyError, TypeError, AttributeError):
                raise DumpError(
                    f"{path}:{number}: not a record of this hlo-lint: hunt in another folder (-o)"
                ) from None
            campaign.records[record.by, record.seed] = record
        return campaign

    def run(
        self, judges: Judges, modules: Iterable[Generated], note: HuntNote = lambda _: None
    ) -> None:
        """Judge modules.

        Raises:
            DumpError: the folder cannot be written.
            NoTimeLeft: the time is over.
        """
        for number, module in enumerate(modules, 1):
            for name, judge in judges.items():
                verdict = judge(module.text)
                if verdict.finding:
                    write(self.folder / MODULES / f"{module.seed}.hlo", module.text)
                seed, traits = module.seed, module.traits
                self._keep(HuntRecord(seed=seed, by=name, traits=traits, **vars(verdict)))
            note(f"{number} modules")

    def weights(self) -> dict[str, float]:
        """The frequency of each step: higher where rare passes changed something."""
        recent = [*self.records.values()][-RECENT:]
        counts = Counter((one.by, name) for one in recent for name in one.passes)
        rarities: dict[str, list[float]] = defaultdict(list)
        for one in recent:
            for trait in {*one.traits}:
                rarities[trait].append(sum(1 / counts[one.by, name] for name in one.passes))
        means = {name: mean(values) for name, values in rarities.items() if len(values) >= 20}
        if len(means) < len(STEPS) // 2:
            return {}
        middle = median(means.values()) or 1.0
        return {
            name: min(max(value / middle, LEAST_WEIGHT), MOST_WEIGHT)
            for name, value in means.items()
        }

    def settle(
        self, judges: Judges, note: HuntNote = lambda _: None, share: tuple[int, int] = (0, 1)
    ) -> None:
        """Reduce the first modules of each cause that nobody has looked at yet, or a share of them.

        Raises:
            DumpError: the folder cannot be written.
            NoTimeLeft: the time is over.
        """
        causes: dict[str, list[HuntRecord]] = defaultdict(list)
        for record in self.records.values():
            if record.finding and record.by in judges and not known_issue(record.finding.cause):
                causes[record.finding.cause].append(record)
        turns = zip_longest(*(records[:PER_CAUSE] for records in causes.values()))
        first = [record for turn in turns for record in turn if record]
        for record in first[share[0] :: share[1]]:
            if record.reduced:
                continue
            note(f"reducing {record.cause[:60]}")
            text = (self.folder / MODULES / f"{record.seed}.hlo").read_text("utf-8")
            record = settled(record, text, judges)
            if finding := record.finding:
                name = f"{record.seed}-{finding.pass_name or finding.kind}"
                record.write(self.folder / CAUSES / re.sub(r"\W+", "-", name))
            self._keep(record)

    def table(self) -> list[tuple[str, ...]]:
        """A row for each cause: pass, cause, where it shows, first seed, how often it was found."""
        rows: dict[str, list[Any]] = {}
        causes: dict[str, str] = {}
        for record in sorted(self.records.values(), key=lambda record: not record.reduced):
            if record.finding is None:
                continue
            # What is not reduced counts as the first that is of its cause.
            own = record.finding.cause
            of = record.cause if record.reduced else causes.get(own, own)
            causes.setdefault(own, of)
            issue = record.issue or ("new" if record.reduced else "not reduced yet")
            shows = ", ".join(record.shows or [record.by])
            row = rows.setdefault(of, [record.finding.pass_name, of, shows, record.seed, 0, issue])
            row[4] += 1
        return [tuple(map(str, row)) for row in rows.values()]

    def _keep(self, record: HuntRecord) -> None:
        path, data = self.folder / JUDGED, b"\n" + json.dumps(asdict(record)).encode()
        with os_errors_as(f"{path}", DumpError):
            self.folder.mkdir(parents=True, exist_ok=True)
            # One write for each line, begun anew: another process may write, or have ended in one.
            with path.open("ab", buffering=0) as file:
                file.write(data)
        self.records[record.by, record.seed] = record


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

    def run(self, note: HuntNote = lambda _: None) -> Campaign:
        """Hunt, then reduce what was found; the campaign with what was there before.

        Raises:
            DumpError: the folder cannot be read or written, or a process has ended.
        """
        end = time.time() + 60 * self.minutes
        judged = (seed for _, seed in Campaign.at(self.folder).records)
        first = max([self.seed - 1, *judged]) + 1
        if self.jobs == 1:
            self._work(first, 0, end, note)
            return Campaign.at(self.folder)
        ignoring = (signal.SIGINT, signal.SIG_IGN)  # the parent ends with it, and ends these
        with get_context("spawn").Pool(self.jobs, signal.signal, ignoring) as pool:
            done = pool.starmap_async(self._work, [(first, at, end) for at in range(self.jobs)])
            while not done.ready():
                note(f"{self.jobs} processes, {max(end - time.time(), 0):.0f} s left")
                done.wait(1.0)
                if time.time() > end + OVERTIME:
                    raise DumpError("a process that hunted has ended, of too little memory perhaps")
            done.get()
        return Campaign.at(self.folder)

    def _work(self, first: int, at: int, end: float, note: HuntNote = lambda _: None) -> None:
        """Hunt, then reduce; one process of several."""
        deadline, campaign = Deadline(end - time.time()), Campaign.at(self.folder)
        kept = 60 * self.minutes * SETTLING
        seeds = takewhile(lambda _: deadline.left > kept, range(first + at, 1 << 62, self.jobs))
        with ExitStack() as stack, suppress(NoTimeLeft):
            judges = {
                f"{one.release} {one.target}": stack.enter_context(
                    Judge(one, self.passes, deadline)
                )
                for one in self.compilers
            }
            campaign.run(judges, self._modules(campaign, seeds), note)
            Campaign.at(self.folder).settle(judges, note, (at, self.jobs))

    def _modules(self, campaign: Campaign, seeds: Iterable[int]) -> Iterator[Generated]:
        if not self.texts:
            yield from (generate(seed, campaign.weights()) for seed in seeds)
            return
        with parser() as guard:
            yield from filter(None, (mutated(self.texts, seed, guard) for seed in seeds))


def hunt(
    *,
    passes: Sequence[str] = (),
    minutes: float = 1.0,
    jax: str | None = None,
    python: str | Path | None = None,
    target: str = "cpu",
    seed: int = 0,
    folder: str | Path | None = None,
) -> int:
    """Judge modules for some minutes; the number of modules that were judged.

    Args:
        passes: run these passes of XLA, and no other; by default all.
        minutes: the time for all of it.
        jax: a release; `python` an interpreter with jaxlib; by default this one.
        target: `cpu`, `gpu`, or a chip to compile for: `h200`, `v5e`.
        seed: of the first module.
        folder: keep verdicts and causes here.

    Raises:
        AssertionError: for what is found, with the reduced module of each cause.
    """
    with TemporaryDirectory(prefix="hlo_lint_") as temporary:
        compilers = tuple(compilers_of([jax] if jax else [], [python] if python else [], [target]))
        place = Path(folder or temporary)
        campaign = HuntPlan(place, compilers, minutes, tuple(passes), seed).run()
        new = [row[1] for row in campaign.table() if row[-1] in ("new", "not reduced yet")]
        texts = {record.cause: record.reduced for record in campaign.records.values()}
        new = [f"{cause}\n{texts.get(cause, '')}" for cause in new]
        assert not new, "\n\n".join(new)
        return len(campaign.records)
