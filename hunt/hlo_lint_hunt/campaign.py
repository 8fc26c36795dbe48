"""Campaigns: generate and judge modules until the time is over; a later campaign continues.

The folder has a line of JSON for each verdict and each cause (`judged.jsonl`), the module of each
finding (`modules`), and a reproducer of each cause (`causes`). Several processes write there.

A signature identifies a cause: the kind, the pass, XLA's check without names and numbers, and the
opcodes of the reduced module. Known bugs are recognized by it.
"""

from __future__ import annotations

import json
import re
import signal
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile, zip_longest
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from hlo_lint.apps.jax.capture.targets import target_of
from hlo_lint.apps.reduction import Problem, parser, reduce_problem
from hlo_lint.engine.reduce.interest import InterestVerdict
from hlo_lint.engine.reduce.search import Reduction
from hlo_lint.engine.values.validate import SEEDS
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.report.repro import Environment, Repro, semantics, write_repro
from hlo_lint.text.errors import DumpError, UsageError, os_errors_as
from hlo_lint.text.files import write
from hlo_lint.xla.limits import Deadline, NoTimeLeft
from hlo_lint_hunt import show
from hlo_lint_hunt.generate import Generated, generate, mutated
from hlo_lint_hunt.judge import (
    FOUND,
    LIMITS,
    BugFinding,
    HuntCompiler,
    Judge,
    JudgeVerdict,
    compilers_of,
    hunt_inputs,
)

JUDGED, MODULES, CAUSES = "judged.jsonl", "modules", "causes"
PER_CAUSE: Final = 3
"""The number of modules to reduce for each cause: a pass may have several bugs."""
SETTLING: Final = 0.25
"""The share of the time that is kept for reductions."""
OVERTIME: Final = 60.0
"""Seconds that a process has to end after the time is over."""
_KNOWN: Final[dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("known.toml").read_text("utf-8")
)["known"]

JudgeOf = Callable[[str], JudgeVerdict]
Judges = Mapping[str, JudgeOf]
"""The judges, by compiler: `0.10.2 cpu`."""
HuntNote = Callable[[str], None]


@dataclass(frozen=True)
class CauseTest:
    """The test of a reduction: the module still has a finding with this cause."""

    judge: JudgeOf
    key: str

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""
        finding = self.judge(text).finding
        return InterestVerdict(finding is not None and finding.cause == self.key)


def reduced(text: str, judge: JudgeOf, finding: BugFinding) -> Reduction:
    """Reduce a module with a finding; UsageError if the judge does not find it again."""
    return reduce_problem(Problem(text, CauseTest(judge, finding.cause), Path("hunted.hlo")))


def write_cause(record: JudgeVerdict, folder: Path) -> None:
    """Write a reproducer: for an absent GPU that of `hlo-lint repro`, else a commented module."""
    assert record.finding is not None
    message, (release, _, target) = record.finding.message, record.by.partition(" ")
    if target not in LIMITS and not (chip := target_of(target)).is_tpu:
        given, (before, after) = Environment(release, chip.description), record.size
        write_repro(Repro(record.reduced, message, (before, after), given), folder)
        return
    by, shows = record.finding.pass_name or "XLA", ", ".join(record.shows)
    first, platform = message.partition("\n")[0], target.upper() if target in LIMITS else "TPU"
    lines = [f"{record.finding.kind} by {by}, jax {shows}:", *message.splitlines()]
    lines.append(f"python -m {show.__name__} reduced.hlo")
    arrays = hunt_inputs(parse_file(record.reduced).modules[0], SEEDS[0])
    lines += [f"input: {array.dtype.name} {array.tolist()}" for array in arrays]
    module = "".join([*(f"// {line}\n" for line in lines), record.reduced])
    write(folder / "reduced.hlo", module)
    title = f"# [XLA:{platform}] {by}: {first}"
    report = (title, f"Shown by jax {shows}:", f"```\n{module}```", semantics(record.reduced))
    write(folder / "REPORT.md", "\n\n".join(report) + "\n")


def _read(entry: dict[str, Any]) -> BugFinding | JudgeVerdict:
    """The inverse of `dataclasses.asdict`, for a verdict or its finding."""
    given: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in entry.items()}
    return BugFinding(**given) if "kind" in given else JudgeVerdict(**given)


def known_issue(of: str, by: str = "") -> str:
    """The place in `known.toml` that describes a signature; empty for a new bug."""
    matching = (
        pattern for pattern in _KNOWN if re.search(pattern, of) or re.search(pattern, f"{by}: {of}")
    )
    return _KNOWN.get(next(matching, ""), "")


@dataclass
class Campaign:
    """The verdicts so far, by judge and seed."""

    folder: Path
    records: dict[tuple[str, int], JudgeVerdict] = field(default_factory=dict)

    @classmethod
    def at(cls, folder: Path) -> Campaign:
        """The campaign in a folder, or a new campaign.

        Raises:
            DumpError: if the folder cannot be read, or comes from another release.
        """
        campaign, path = cls(folder), folder / JUDGED
        with os_errors_as(f"{path}", DumpError):
            lines = path.read_text("utf-8").splitlines() if path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                record: JudgeVerdict = json.loads(line, object_hook=_read)
                campaign.records[record.by, record.seed] = record
            except json.JSONDecodeError:
                continue  # an earlier run ended while it wrote this line
            except (TypeError, AttributeError):
                raise DumpError(
                    f"{path}:{number}: not a record of this hlo-lint: hunt in another folder (-o)"
                ) from None
        return campaign

    def run(
        self, judges: Judges, modules: Iterable[Generated], note: HuntNote = lambda _: None
    ) -> None:
        """Judge modules, until NoTimeLeft is raised."""
        for number, module in enumerate(modules, 1):
            for name, judge in judges.items():
                verdict = judge(module.text)
                if verdict.finding:
                    write(self.folder / MODULES / f"{module.seed}.hlo", module.text)
                seed, traits = module.seed, module.traits
                self._keep(replace(verdict, seed=seed, by=name, traits=traits))
            note(f"{number} modules")

    def settle(
        self, judges: Judges, note: HuntNote = lambda _: None, share: tuple[int, int] = (0, 1)
    ) -> None:
        """Reduce the first modules of each new cause, or a share of them.

        Every compiler judges the reduced modules. A finding that is not found again is dropped.
        """
        causes: dict[str, list[JudgeVerdict]] = defaultdict(list)
        for record in self.records.values():
            cause = record.finding.cause if record.by in judges and record.finding else ""
            if cause and not known_issue(cause, record.by):
                causes[cause].append(record)
        turns = zip_longest(*(records[:PER_CAUSE] for records in causes.values()))
        first = [record for turn in turns for record in turn if record]
        first.sort(key=lambda record: record.cause.startswith("values"))  # these take longest
        for record in first[share[0] :: share[1]]:
            if record.reduced or (finding := record.finding) is None:
                continue
            note(f"reducing {record.cause[:60]}")
            text = (self.folder / MODULES / f"{record.seed}.hlo").read_text("utf-8")
            record = replace(record, outcome="found only once", finding=None)
            with suppress(UsageError):
                reduction = reduced(text, judges[record.by], finding)
                again = {name: judge(reduction.text).finding for name, judge in judges.items()}
                own, size = again[record.by], (reduction.before.size, reduction.after.size)
                if own is not None and own.cause == finding.cause:
                    shows = tuple(
                        name for name, bug in again.items() if bug and bug.kind == own.kind
                    )
                    record = replace(record, outcome=FOUND, shows=shows, finding=own)
                    record = replace(record, reduced=reduction.text, size=size)
                    name = f"{record.seed}-{own.pass_name or own.kind}"
                    write_cause(record, self.folder / CAUSES / re.sub(r"\W+", "-", name))
            self._keep(record)

    def table(self) -> list[tuple[str, ...]]:
        """A row for each cause: pass, cause, judges, first seed, count of findings, known place."""
        rows: dict[str, list[Any]] = {}
        causes: dict[str, str] = {}
        for record in sorted(self.records.values(), key=lambda record: not record.reduced):
            if (finding := record.finding) is None:
                continue
            # A finding that is not reduced counts to the first signature of its cause.
            of = causes.setdefault(finding.cause, record.cause)
            of = record.cause if record.reduced else of
            issue = known_issue(finding.cause) or known_issue(record.cause, record.by)
            issue = issue or ("new" if record.reduced else "not reduced yet")
            shows = ", ".join(record.shows or [record.by])
            row = rows.setdefault(of, [finding.pass_name, of, shows, record.seed, 0, issue])
            row[4] += 1
        return [tuple(map(str, row)) for row in rows.values()]

    def _keep(self, record: JudgeVerdict) -> None:
        path, data = self.folder / JUDGED, b"\n" + json.dumps(asdict(record)).encode()
        with os_errors_as(f"{path}", DumpError):
            self.folder.mkdir(parents=True, exist_ok=True)
            # The newline comes first: another process may have ended in the middle of a line.
            with path.open("ab", buffering=0) as file:
                file.write(data)
        self.records[record.by, record.seed] = record


@dataclass(frozen=True)
class HuntPlan:
    """The plan of a hunt: compilers, modules and time."""

    folder: Path
    compilers: tuple[HuntCompiler, ...]
    minutes: float
    passes: tuple[str, ...] = ()
    seed: int = 0
    jobs: int = 1
    texts: tuple[str, ...] = ()
    """Modules to mutate, instead of generating modules."""

    def run(self, note: HuntNote = lambda _: None) -> Campaign:
        """Hunt, then reduce the findings; returns the campaign, with earlier verdicts."""
        end = time.time() + 60 * self.minutes
        first = max([self.seed - 1, *(seed for _, seed in Campaign.at(self.folder).records)]) + 1
        if self.jobs == 1:
            self._work(first, 0, end, note)
            return Campaign.at(self.folder)
        ignoring = (signal.SIGINT, signal.SIG_IGN)  # the parent ends with it, and ends these
        with get_context("spawn").Pool(self.jobs, signal.signal, ignoring) as pool:
            done = pool.starmap_async(self._work, [(first, job, end) for job in range(self.jobs)])
            while not done.ready():
                note(f"{self.jobs} processes, {max(end - time.time(), 0):.0f} s left")
                done.wait(1.0)
                if time.time() > end + OVERTIME:
                    raise DumpError("a hunting process has ended, perhaps out of memory")
            done.get()
        return Campaign.at(self.folder)

    def _work(self, first: int, job: int, end: float, note: HuntNote = lambda _: None) -> None:
        """Hunt, then reduce, in process number `job` of `jobs`."""
        deadline, campaign = Deadline(end - time.time()), Campaign.at(self.folder)
        kept = 60 * self.minutes * SETTLING
        seeds = takewhile(lambda _: deadline.left > kept, range(first + job, 1 << 62, self.jobs))
        with ExitStack() as stack, suppress(NoTimeLeft):
            judges: dict[str, Judge] = {}
            for compiler in self.compilers:
                judge = stack.enter_context(Judge(compiler, self.passes, deadline))
                judges[f"{compiler.release} {compiler.target}"] = judge
            guard = stack.enter_context(parser())

            def drawn(seed: int) -> Generated | None:
                return mutated(self.texts, seed, guard) if self.texts else generate(seed)

            campaign.run(judges, filter(None, map(drawn, seeds)), note)
            Campaign.at(self.folder).settle(judges, note, (job, self.jobs))


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
    """Judge modules for some minutes; returns the number of verdicts.

    The arguments are the options of `hlo-lint hunt`; `folder` keeps verdicts and causes.

    Raises:
        AssertionError: for a new bug, with the reduced module of each cause.
    """
    with TemporaryDirectory(prefix="hlo_lint_") as temporary:
        compilers = tuple(compilers_of([jax] if jax else [], [python] if python else [], [target]))
        place = Path(folder or temporary)
        campaign = HuntPlan(place, compilers, minutes, tuple(passes), seed).run()
        new = [row[1] for row in campaign.table() if row[-1] in ("new", "not reduced yet")]
        texts = {record.cause: record.reduced for record in campaign.records.values()}
        assert not new, "\n\n".join(f"{cause}\n{texts.get(cause, '')}" for cause in new)
        return len(campaign.records)
