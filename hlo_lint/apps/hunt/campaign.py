"""A campaign: modules generated and judged until the time is over; a later one goes on from it.

The folder has a line of JSON for each verdict (`judged.jsonl`), the module of each finding
(`modules`), and what was made of each cause (`causes`).
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from hlo_lint.apps.hunt.causes import BugCause, settled, write_cause
from hlo_lint.apps.hunt.generate import STEPS, Generated, generate
from hlo_lint.apps.hunt.judge import BugFinding, JudgeVerdict
from hlo_lint.text.errors import DumpError, UsageError, os_errors_as
from hlo_lint.xla.limits import Deadline, NoTimeLeft

JUDGED: Final = "judged.jsonl"
MODULES: Final = "modules"
CAUSES: Final = "causes"
SETTLED: Final = "settled.jsonl"
PER_CAUSE: Final = 3
"""Modules of one cause that are reduced: one pass may have several mistakes."""
LEAST_WEIGHT: Final = 0.3
MOST_WEIGHT: Final = 4.0

Judges = Mapping[str, Callable[[str], JudgeVerdict]]
"""The judges by what they compile with: `0.10.2 cpu`."""
HuntNote = Callable[[str], None]


@dataclass
class Campaign:
    """The verdicts so far."""

    folder: Path
    judged: int = 0
    """The number of modules."""
    outcomes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """For each judge the number of verdicts of each kind."""
    passes: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """For each judge how often each pass changed something."""
    causes: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """The findings of each cause, the first one first."""
    last: int = -1
    """The last seed."""
    settled: dict[str, BugCause | str] = field(default_factory=dict)
    """The cause of a finding, or why it has none, by what found it and the seed."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _rarity: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def at(cls, folder: Path) -> Campaign:
        """The campaign in a folder; a new one where there is none.

        Raises:
            DumpError: the folder cannot be read.
        """
        campaign = cls(folder)
        path = folder / JUDGED
        with os_errors_as(f"{path}", DumpError):
            (folder / MODULES).mkdir(parents=True, exist_ok=True)
            for line in path.read_text("utf-8").splitlines() if path.exists() else ():
                try:
                    campaign._count(json.loads(line))
                except (ValueError, KeyError):
                    continue  # the earlier run ended while it wrote this line
            path = folder / SETTLED
            for line in path.read_text("utf-8").splitlines() if path.exists() else ():
                entry = json.loads(line)
                value = entry["as"]
                if isinstance(value, dict):
                    value = BugCause(**{**value, "shows": tuple(value["shows"])})
                campaign.settled[entry["of"]] = value
        return campaign

    def run(
        self,
        judges: Judges,
        deadline: Deadline,
        modules: Iterable[Generated],
        note: HuntNote = lambda _: None,
    ) -> None:
        """Judge modules until the time is over; several threads may, each with its own judges.

        Raises:
            DumpError: the folder cannot be written.
        """
        path = self.folder / JUDGED
        with os_errors_as(f"{path}", DumpError), path.open("a", encoding="utf-8") as file:
            for module in modules:
                if deadline.left <= 0:
                    return
                for name, judge in judges.items():
                    verdict = judge(module.text)
                    entry = self._entry(module, name, verdict)
                    with self._lock:
                        file.write(json.dumps(entry) + "\n")
                        file.flush()
                        self._count(entry)
                        if verdict.finding:
                            kept = self.folder / MODULES / f"{module.seed}.hlo"
                            kept.write_text(module.text, "utf-8")
                note(f"{self.judged} modules, {len(self.causes)} causes")

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

    def settle(self, judges: Judges, deadline: Deadline, note: HuntNote = lambda _: None) -> None:
        """Reduce the first modules of each cause that nobody has looked at yet.

        Raises:
            DumpError: the folder cannot be written.
        """
        path = self.folder / SETTLED
        for entries in list(self.causes.values()):
            for entry in entries[:PER_CAUSE]:
                key = f"{entry['by']} {entry['seed']}"
                if deadline.left <= 0 or key in self.settled or entry["by"] not in judges:
                    continue
                note(f"reducing {entry['cause'][:60]}")
                text = (self.folder / MODULES / f"{entry['seed']}.hlo").read_text("utf-8")
                finding = BugFinding(*entry["found"])
                try:
                    cause = settled(
                        text,
                        entry["by"],
                        finding,
                        judges,
                        entry["seed"],
                        lambda *_: deadline.check(),
                    )
                except NoTimeLeft:
                    return
                except UsageError as error:
                    self.settled[key] = str(error)
                else:
                    self.settled[key] = cause
                self._keep(path, key)

    def _keep(self, path: Path, key: str) -> None:
        settled_as = self.settled[key]
        with os_errors_as(f"{path}", DumpError):
            with path.open("a", encoding="utf-8") as file:
                value = asdict(settled_as) if isinstance(settled_as, BugCause) else settled_as
                file.write(json.dumps({"of": key, "as": value}) + "\n")
            if isinstance(settled_as, BugCause):
                write_cause(settled_as, self.folder / CAUSES, len(self.settled))

    def table(self) -> list[tuple[str, ...]]:
        """A row for each cause: pass, cause, where it shows, first seed, how often it was found."""
        rows: dict[str, list[Any]] = {}
        for entries in self.causes.values():
            of = entries[0]["cause"]
            for number, entry in enumerate(entries):
                cause = self.settled.get(f"{entry['by']} {entry['seed']}")
                if isinstance(cause, BugCause):
                    of = cause.signature
                    head = [cause.pass_name, of, ", ".join(cause.shows), str(cause.seed), 0]
                    rows.setdefault(of, [*head, cause.issue or "new"])
                elif number == 0:
                    shows = ", ".join({one["by"]: 1 for one in entries})
                    head = [entry["found"][1], of, shows, str(entry["seed"]), 0]
                    rows.setdefault(of, [*head, cause or "not reduced yet"])
                rows[of][4] += 1
        return [tuple(map(str, row)) for row in rows.values()]

    def _entry(self, module: Generated, name: str, verdict: JudgeVerdict) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "seed": module.seed,
            "by": name,
            "traits": module.traits,
            "outcome": verdict.outcome,
            "passes": sorted(verdict.passes),
        }
        if verdict.finding is not None:
            finding = verdict.finding
            entry["found"] = [finding.kind, finding.pass_name, finding.message]
            entry["cause"] = finding.cause
        return entry

    def _count(self, entry: Mapping[str, Any]) -> None:
        name, seed = entry["by"], entry["seed"]
        self.judged += seed != self.last
        self.last = max(seed, self.last)
        self.outcomes[name][entry["outcome"]] += 1
        counts = self.passes[name]
        counts.update(entry["passes"])
        rarity = sum(1 / counts[changed] for changed in entry["passes"])
        for trait in set(entry["traits"]):
            self._rarity[trait].append(rarity)
        if "cause" in entry:
            self.causes[entry["cause"]].append(dict(entry))
