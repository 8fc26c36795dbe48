"""Bugs of released compilers, run before and after their fix: `REPLAY.md`.

    python -m benchmarks.replay COMMITS.jsonl.xz... [--state FILE] [--minutes N]

COMMITS has one commit of XLA a line, as JSON: `index`, `commit`, `date`, `title` and `change`, the
message with the diff. The modules of its tests (`replay_texts.py`) are compiled by the last release
of jaxlib before the commit and by the first with it: once with the passes of the commit alone, once
with all. A bug is reproduced where the old release refuses a module, dies of it, changes its
values, or writes another module than the new one. Then `check` and `validate` read both dumps.

Releases are installed in `--environments`, at most `--kept` at a time. With `--state` outcomes are
kept, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.replay_texts import Change, ReplayText, pass_words, texts_of
from benchmarks.values import State
from hlo_lint.analysis.diff.difference import diff
from hlo_lint.apps.api import lint
from hlo_lint.apps.hunt.fair import unfair
from hlo_lint.apps.hunt.judge import CPU, BugFinding, HuntCompiler, Judge, hunt_inputs
from hlo_lint.apps.validation import validate
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pass_lists import pass_lists
from hlo_lint.dumps.selection import in_order, longest_run
from hlo_lint.engine.fingerprints import nameless
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import CaptureError, DumpError, HloLintError, UsageError
from hlo_lint.xla.environments import Platform, cache_folder, environment_of
from hlo_lint.xla.limits import Deadline, NoTimeLeft

RESULTS = Path(__file__).parent / "REPLAY.md"
RELEASES = Path(__file__).parent / "releases.tsv"
ALONE: Final = "alone"
WHOLE: Final = "whole"
SECONDS: Final = 120.0
"""Time for one module, in one release and one way."""
BUILD_DAYS: Final = 21
"""Days from a commit of XLA to the first release that is sure to have it."""
CHIPS: Final = {Platform.CPU: CPU, Platform.GPU: "h200", Platform.TPU: "v5e"}
SPELLED: Final = {
    "algebraicsimplifier": "algsimp",
    "hlodce": "dce",
    "hlocse": "cse",
    "hloconstantfolding": "constant_folding",
    "hlorematerialization": "rematerialization",
    "spmdpartitioner": "spmd-partitioning",
    "gatherscatterhandler": "spmd-partitioning",
    "dothandler": "spmd-partitioning",
    "ffthandler": "spmd-partitioning",
    "gemmrewrite": "cublas-gemm-rewriter",
    "gemmrewriter": "cublas-gemm-rewriter",
    "gemmfusion": "triton-gemm-rewriter",
    "softmaxrewritertriton": "triton-softmax-rewriter",
    "cpuinstructionfusion": "fusion",
    "callinliner": "call-inliner",
}
"""Passes whose name is not that of their file."""


@dataclass
class Outcome:
    """One text, compiled for one platform, in one way."""

    key: str
    index: str
    commit: str
    title: str
    test: str
    platform: str
    way: str
    """`alone` or `whole`."""
    passes: list[str]
    before: str
    """The release before the commit; empty where there is none."""
    after: str
    reproduced: str = ""
    """`dies`, `refuses`, `values`, `module`; empty where it is not reproduced."""
    reason: str = ""
    """The reason why it is not reproduced, or the message of the old release."""
    verdict: str = ""
    """`found`, `other pass`, `diff`, `silent`; empty where it is not reproduced."""
    says: list[str] = field(default_factory=list)
    """The findings on the dump of the old release alone."""
    new_says: list[str] = field(default_factory=list)
    """The errors and warnings on the dump of the new release."""


@cache
def releases() -> tuple[tuple[str, date], ...]:
    """The releases of jaxlib and the days on which they were published, oldest first."""
    lines = RELEASES.read_text("utf-8").splitlines()
    pairs = [line.split("\t") for line in lines if not line.startswith("#")]
    return tuple((release, date.fromisoformat(day)) for release, day in pairs)


def around(committed: date) -> tuple[str, str]:
    """The last release without a commit, the first one with it; empty where there is none."""
    before = [release for release, day in releases() if day < committed]
    built = committed + timedelta(days=BUILD_DAYS)
    after = [release for release, day in releases() if day >= built]
    return (before or [""])[-1], (after or [""])[0]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def _known_passes() -> Mapping[str, str]:
    return {_plain(name): name for of in pass_lists() for _, name in of.passes}


def passes_of(change: Change) -> list[str]:
    """The passes that a commit changes, as XLA names them, as far as its files tell."""
    names = []
    for word in pass_words(change):
        plain = _plain(word)
        known = SPELLED.get(plain) or _known_passes().get(plain)
        names += [known] if known else [word.replace("_", "-")]
    return [*dict.fromkeys(names)]


def platforms_of(text: ReplayText, passes: Sequence[str]) -> list[Platform]:
    """The platforms whose pipeline may run the passes of a text."""
    if "memory_space_assignment" in text.file:
        return [Platform.TPU]
    if "gpu" in text.file:
        return [Platform.GPU]
    if "cpu" in text.file:
        return [Platform.CPU]
    if {"spmd-partitioning", "sharding-propagation"} & {*passes}:
        return [Platform.GPU, Platform.CPU]  # the pass lists are of one device
    lists = {Platform.GPU: "gpu-", Platform.CPU: "cpu-"}
    return [
        platform
        for platform, prefix in lists.items()
        if any(
            name in passes
            for of in pass_lists()
            if of.name.startswith(prefix)
            for _, name in of.passes
        )
    ] or [Platform.GPU]


class Environments:
    """Pythons with releases of jaxlib, of which the last few that were used stay on disk."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._used: dict[Path, None] = {}

    def python(self, release: str, platform: Platform) -> Path:
        """The Python of a release; others are removed to make room for it.

        Raises:
            CaptureError: it cannot be installed.
            UsageError: it is too old for the platform.
        """
        interpreter = environment_of(release, print, platform)
        folder = platform.folder(release)
        self._used.pop(folder, None)
        self._used[folder] = None
        for old in [*self._used][: -self._kept]:
            del self._used[old]
            if old.is_relative_to(cache_folder()):
                shutil.rmtree(old, ignore_errors=True)
        return interpreter.path


@dataclass
class Compiled:
    """The dump of one release."""

    folder: Path
    bug: BugFinding | str | None

    @property
    def dumps(self) -> list[PassDump]:
        """The steps, the input first; empty where nothing was dumped."""
        try:
            return in_order(longest_run(self.folder, None))
        except DumpError:
            return []

    def ran(self, passes: Sequence[str]) -> bool:
        """True if one of the passes left a dump."""
        return any(dump.name is not None and dump.name.after in passes for dump in self.dumps)

    def findings(self) -> dict[str, tuple[str, ...]]:
        """The errors and warnings of `check` and `validate`: the passes each one names."""
        says: dict[str, tuple[str, ...]] = {}
        report = lint(open_dump(self.folder))
        for finding in report.findings:
            if finding.severity is not Severity.INFO:
                by = finding.introduced_by.pass_name if finding.introduced_by else ""
                says[f"{finding.rule}: {nameless(finding.message)}"] = (by,)
        for validation in validate(self.folder, seconds=SECONDS).validations:
            for step in validation.changes:
                name = step.after.name
                says[f"values-changed: {step.comparison.difference}"] = (
                    (name.after if name else "") or "",
                )
        return says


def replayed(
    text: ReplayText, passes: Sequence[str], outcome: Outcome, pythons: Sequence[Path]
) -> None:
    """Compile a text by both releases, and fill in the outcome."""
    only = passes if outcome.way == ALONE else ()
    target = CHIPS[Platform[outcome.platform]]
    with tempfile.TemporaryDirectory(prefix="replay_", ignore_cleanup_errors=True) as name:
        both = []
        for python, release in zip(pythons, (outcome.before, outcome.after), strict=True):
            folder = Path(name) / release
            folder.mkdir()
            both.append(_compiled(text, only, HuntCompiler(python, target, release), folder))
        old, new = both
        _tell(old, new, outcome, passes)
        if not outcome.reproduced:
            return
        ours, theirs = old.findings(), new.findings()
        if outcome.way == ALONE:
            # What is left out after the passes is refused, in both releases.
            for says in (ours, theirs):
                for key in [key for key in says if key.startswith("compilation-died")]:
                    del says[key]
        new_ones = {key: by for key, by in ours.items() if key not in theirs}
        outcome.says, outcome.new_says = [*new_ones], [*theirs]
        named = {name for by in new_ones.values() for name in by}
        if new_ones:
            outcome.verdict = "found" if named & {*passes} else "other pass"
        else:
            outcome.verdict = "diff" if old.ran(passes) else "silent"


def _compiled(
    text: ReplayText, only: Sequence[str], compiler: HuntCompiler, folder: Path
) -> Compiled:
    """The dump of a text, with the flags of its test where the release knows them."""
    module = parse_file(text.text).modules[0]
    flags = dict(text.flags)
    while True:
        with Judge(compiler, only, Deadline(SECONDS), flags) as judge:
            try:
                bug = judge.bug(text.text, [hunt_inputs(module, 0)], folder)
                if isinstance(bug, BugFinding) and bug.kind == "values":
                    # Compilers may give such a module other values.
                    return Compiled(folder, unfair(module) or bug)
                return Compiled(folder, bug)
            except NoTimeLeft:
                return Compiled(folder, "no time left")
            except UsageError as error:
                unknown = [name for name in flags if name in f"{error}"]
                if not unknown:
                    return Compiled(folder, f"{error}"[:200])
                for name in unknown:
                    del flags[name]
            except HloLintError as error:
                return Compiled(folder, f"{error}"[:200])


def _tell(old: Compiled, new: Compiled, outcome: Outcome, passes: Sequence[str]) -> None:
    """Say if the bug is reproduced, and by what."""
    kinds = {"crash": "dies", "hang": "dies", "memory": "dies", "error": "refuses"}
    if isinstance(old.bug, BugFinding):
        if isinstance(new.bug, BugFinding) and new.bug.kind == old.bug.kind:
            outcome.reason = f"both releases: {old.bug.kind} {old.bug.message[:120]}"
            return
        outcome.reproduced = kinds.get(old.bug.kind, "values")
        outcome.reason = f"{old.bug.pass_name}: {old.bug.message[:200]}"
        return
    if not old.dumps or not new.dumps:
        outcome.reason = f"not compiled: {old.bug or new.bug}"[:200]
    elif not old.ran(passes) and not new.ran(passes):
        outcome.reason = "the pass is not in the pipeline, or changes nothing"
    elif outcome.way == WHOLE:
        outcome.reason = f"same outcome: {old.bug or 'ok'}"[:120]
    else:
        difference = diff(old.dumps[-1].module, new.dumps[-1].module)
        if difference.same:
            outcome.reason = "both releases write the same module"
        else:
            outcome.reproduced, outcome.reason = "module", "another module than the new release"


def outcomes(
    commits: Sequence[Mapping[str, Any]], state: State, kept: int, minutes: float
) -> Iterator[Outcome]:
    """Replay what the state does not have; commits of one pair of releases follow each other."""
    end = time.monotonic() + 60 * minutes
    environments = Environments(kept)
    for commit in sorted(commits, key=lambda commit: (around(_day(commit)), commit["date"])):
        change = Change.of(commit["change"])
        passes, (before, after) = passes_of(change), around(_day(commit))
        texts = texts_of(change)
        shared = {"index": str(commit["index"]), "commit": commit["commit"]}
        shared |= {"title": commit["title"], "before": before, "after": after}
        if not texts:
            outcome = Outcome(
                f"{commit['index']}", test="", platform="", way="", passes=passes, **shared
            )
            outcome.reason = "no module in the tests, as the diff shows them"
            if outcome.key not in state.verdicts:
                yield outcome
        for number, text in enumerate(texts):
            for platform in platforms_of(text, passes):
                for way in (ALONE, WHOLE):
                    if time.monotonic() > end:
                        return
                    key = f"{commit['index']}/{number}/{platform.name}/{way}"
                    if key in state.verdicts:
                        continue
                    outcome = Outcome(
                        key,
                        test=text.test,
                        platform=platform.name,
                        way=way,
                        passes=passes,
                        **shared,
                    )
                    _attempt(text, passes, outcome, environments, platform)
                    yield outcome


def _attempt(
    text: ReplayText,
    passes: Sequence[str],
    outcome: Outcome,
    environments: Environments,
    platform: Platform,
) -> None:
    if not outcome.before or not outcome.after:
        outcome.reason = "no release before it" if not outcome.before else "no release after it"
        return
    try:
        pythons = [
            environments.python(release, platform) for release in (outcome.before, outcome.after)
        ]
    except (UsageError, CaptureError) as error:
        outcome.reason = f"{error}"[:200]
        return
    try:
        replayed(text, passes, outcome, pythons)
    except Exception as error:  # a defect of ours is an outcome, too
        outcome.reason = f"internal error: {type(error).__name__}: {error}"[:300]


def _day(commit: Mapping[str, Any]) -> date:
    return date.fromisoformat(commit["date"][:10])


def read_commits(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The commits of files of JSON lines."""
    commits = []
    for path in paths:
        opened = lzma.open if path.suffix == ".xz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            commits += [json.loads(line) for line in file]
    return commits


def page(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """The page about all outcomes."""
    by_commit: dict[str, list[Mapping[str, Any]]] = {}
    for verdict in verdicts:
        by_commit.setdefault(verdict["index"], []).append(verdict)
    shown = [v for v in verdicts if v["reproduced"]]
    commits = {v["index"] for v in shown}
    lines = [
        "# Replay",
        "",
        "Bugs of released compilers, run before and after their fix. Made by "
        "`python -m benchmarks.replay`, which says what is counted.",
        "",
        f"{len(by_commit)} commits, {_modules(verdicts)} modules, each with its platform. "
        f"Reproduced: {_modules(shown)} modules of {len(commits)} commits.",
        "",
        "| reproduced by | found | other pass named | in `diff` alone | silent |",
        "|---|---:|---:|---:|---:|",
    ]
    for kind in ("dies", "refuses", "values", "module"):
        counts = Counter(v["verdict"] for v in shown if v["reproduced"] == kind)
        cells = " | ".join(str(counts[name]) for name in ("found", "other pass", "diff", "silent"))
        lines.append(f"| {kind} | {cells} |")
    lines += ["", "| commit | test | passes | where | releases | reproduced | verdict | says |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for v in shown:
        says = "; ".join(v["says"])[:160].replace("|", "\\|")
        lines.append(
            f"| {v['commit'][:10]} | {v['test']} | {', '.join(v['passes'][:2])} | "
            f"{v['platform']} {v['way']} | {v['before']}, {v['after']} | "
            f"{v['reproduced']} | {v['verdict']} | {says} |"
        )
    reasons = Counter(
        re.sub(r"\d[\d.]*", "N", _reason(of)) for of in by_commit.values() if _reason(of)
    )
    lines += ["", "Commits that are not reproduced, by the reason of their last module:", ""]
    lines += ["| commits | reason |", "|---:|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in reasons.most_common()]
    untrue = sorted({say for v in shown for say in v["new_says"]})
    lines += ["", "Errors and warnings on dumps of the new releases, to be read:", ""]
    lines += [f"- {say}" for say in untrue] or ["none"]
    return "\n".join(lines) + "\n"


def _modules(verdicts: Sequence[Mapping[str, Any]]) -> int:
    return len({v["key"].rpartition("/")[0] for v in verdicts if v["way"]})


def _reason(of: Sequence[Mapping[str, Any]]) -> str:
    if any(v["reproduced"] for v in of):
        return ""
    return str(of[-1]["reason"]).partition("\n")[0][:100].replace("|", "\\|")


def main() -> None:
    """Replay, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("commits", nargs="+", type=Path)
    parser.add_argument("--state", type=Path, default=Path("build/replay.jsonl"))
    parser.add_argument("--environments", type=Path, default=Path("build/replay"))
    parser.add_argument("--kept", type=int, default=6, help="environments on disk at a time")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.state.parent.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(options.environments.resolve())
    state = State(options.state)
    commits = read_commits(options.commits)
    with suppress(KeyboardInterrupt):
        for outcome in outcomes(commits, state, options.kept, options.minutes):
            state.add(asdict(outcome))
            print(outcome.key, outcome.reproduced or "-", outcome.verdict, outcome.reason[:100])
    options.output.write_text(page([*state.verdicts.values()]), "utf-8")


if __name__ == "__main__":
    main()
