"""Bugs of released compilers, run before and after their fix: `REPLAY.md`.

    python -m benchmarks.replay COMMITS.jsonl.xz... [--state FILE] [--minutes N]

COMMITS has one commit of XLA a line, as JSON: `index`, `commit`, `date`, `title` and `change`, the
message with the diff. The modules of its tests (`replay_texts.py`) are compiled by the last release
of jaxlib before the commit and by the first with it: once with all passes, once with the passes of
the commit alone. A bug is reproduced where the old release refuses a module, dies of it, changes
its values, or its passes write another module than those of the new one. Then `check` and
`validate` read both dumps; of passes alone, the dumps up to their last step. The passes that ran,
and the pass that died, are those of XLA's log.

Releases are installed in `--environments`, at most `--kept` at a time. With `--state` outcomes are
kept, and a run that was stopped goes on.

A build takes the place of the new releases: the jaxlib of `--python`, and for passes alone
`--hlo-opt`, which also runs passes that no pipeline has.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

from benchmarks.replay_texts import Change, ReplayText, pass_words, texts_of
from benchmarks.values import State
from hlo_lint.analysis.diff.difference import diff
from hlo_lint.apps.api import lint
from hlo_lint.apps.validation import validate
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.names import parse_name
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pass_lists import pass_lists
from hlo_lint.dumps.selection import in_order, longest_run, outer_pass
from hlo_lint.engine.fingerprints import nameless
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import arrays
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import CaptureError, DumpError, HloLintError, UsageError, os_errors_as
from hlo_lint.text.files import cache_folder
from hlo_lint.xla.environments import INSTALLED, Platform, check_release, environment_of, version_of
from hlo_lint.xla.limits import Deadline, NoTimeLeft
from hlo_lint_hunt.fair import unfair
from hlo_lint_hunt.judge import CPU, BugFinding, HuntCompiler, Judge, hunt_inputs

RESULTS = Path(__file__).parent / "REPLAY.md"
RELEASES = Path(__file__).parent / "releases.tsv"
KINDS = Path(__file__).parent / "replay_kinds.tsv"
NO_PASS: Final = "the commit changes no pass of the pipeline"
OTHER_CHANGE: Final = "another change of the pass"
SOUND: Final = "nothing wrong to see"
"""The start of each kind of module without a defect."""
HAND_WRITTEN: Final = "## What was read"
VERDICTS: Final = ("found", "other pass", "no pass named", "diff", "silent")
MISSED: Final = ("diff", "silent")
ALONE: Final = "alone"
WHOLE: Final = "whole"
SECONDS: Final = 60.0
"""Time for one module, in one release and one way."""
VALIDATED: Final = 30.0
"""Time to validate a dump."""
LARGE: Final = 1 << 22
"""Elements of the parameters of a module whose values are not computed."""
DEATHS: Final = {"crash": "dies", "hang": "dies", "memory": "dies", "error": "refuses"}
DIED: Final = "compilation-died"
BUILD_DAYS: Final = 21
"""Days from a commit of XLA to the first release that is sure to have it."""
CHIPS: Final = {Platform.CPU: CPU, Platform.GPU: "h200", Platform.TPU: "v5e"}
OLDEST: Final = {Platform.GPU: (0, 4, 28)}
"""The first release that compiles for an absent chip with a driver that knows it."""
WITHOUT_DRIVER: Final = (0, 4, 34)
"""The first release that asks no driver for the chip."""
BUILD: Final = "build"
"""The name of the release that a `Build` stands for."""
DRIVER: Final = Path(__file__).parent / "cuda_driver.c"
_DYNAMIC_SLICES: Final = (
    "dynamic-slice-fusion",
    "dynamic-slice-fusion-rewriter",
    "address-computation-fusion-rewriter",
)
SPELLED: Final[Mapping[str, tuple[str, ...]]] = {
    "algebraicsimplifier": ("algsimp",),
    "aliasinfo": ("copy-insertion",),
    "allgatherpermuteddssimplifier": (
        "all-gather-permuted-ds-simplifier",
        "all-gather-dynamic-slice-permuted-offset-simplifier",
    ),
    "callinliner": ("call-inliner",),
    "collectivepipeliner": (
        "collective-pipeliner-forward",
        "collective-pipeliner-backward",
        "collective-pipeliner-forwardsink",
    ),
    "cpuinstructionfusion": ("fusion",),
    "dothandler": ("spmd-partitioning",),
    "dotoperandconverter": ("operand_converter",),
    "doublebufferloopunrolling": ("loop-double-buffer-transformer",),
    "dynamicslicefusion": _DYNAMIC_SLICES,
    "dynamicslicefusionrewriter": _DYNAMIC_SLICES,
    "ffthandler": ("spmd-partitioning",),
    "gatherscatterhandler": ("spmd-partitioning",),
    "gemmfusion": ("triton-gemm-rewriter",),
    "gemmrewrite": ("cublas-gemm-rewriter",),
    "gemmrewriter": ("cublas-gemm-rewriter",),
    "gpucopyinsertion": ("copy-insertion",),
    "gpuhloschedule": ("latency-hiding-scheduler",),
    "gpulatencyhidingscheduler": ("latency-hiding-scheduler",),
    "hloconstantfolding": ("constant_folding",),
    "hlocse": ("cse",),
    "hlodce": ("dce",),
    "hlorematerialization": ("rematerialization",),
    "hostoffloadutils": ("host-offloader", "host-offload-legalize"),
    "libraryrewriter": ("dot-library-rewriter",),
    "paralleltaskassignment": ("cpu-parallel-task-assigner",),
    "permutationsortexpander": ("permutation_sort_simplifier",),
    "shardyxlapass": ("shardy-xla",),
    "smallwhileloophoistingpass": ("small-while-loop-hoisting",),
    "softmaxrewritertriton": ("triton-softmax-rewriter",),
    "spmdpartitioner": ("spmd-partitioning",),
    "spmdpartitionerutil": ("spmd-partitioning",),
    "statefulrngspmdpartitioner": ("spmd-partitioning",),
    "tritonfusionanalysis": ("triton-gemm-rewriter",),
    "tritontilingpropagation": ("triton-gemm-rewriter",),
    "valuerange": ("while-loop-trip-count-annotator",),
    "whileloopanalysis": ("while-loop-trip-count-annotator",),
}
"""Passes whose name is not that of their file."""
_PIPELINED: Final = {
    f"xla_gpu_enable_pipelined_{name}": "true"
    for name in ("all_gather", "all_reduce", "collectives", "p2p", "reduce_scatter")
}
FLAGS: Final[Mapping[str, Mapping[str, str]]] = {
    "collective-pipeliner-backward": _PIPELINED,
    "collective-pipeliner-forward": _PIPELINED,
    "collective-permute-decomposer": {"xla_gpu_enable_pipelined_p2p": "true"},
    "command-buffer-scheduling": {"xla_gpu_graph_min_graph_size": "1"},
    "dot-merger": {"xla_gpu_dot_merger_threshold_mb": "1000"},
    "dynamic-slice-fusion": {"xla_gpu_enable_dynamic_slice_fusion": "true"},
    "dynamic-slice-fusion-rewriter-v2": {"xla_gpu_enable_dynamic_slice_fusion": "true"},
    "gpu-copy-async-wrapper": {"xla_gpu_async_copy_min_bytes": "0"},
    "latency-hiding-scheduler": {"xla_gpu_enable_latency_hiding_scheduler": "true"},
    "loop-double-buffer-transformer": {
        "xla_gpu_enable_while_loop_double_buffering": "true",
        "xla_gpu_enable_while_loop_unrolling": "WHILE_LOOP_UNROLLING_DOUBLE_BUFFER",
    },
    "pipelined-p2p-rewriter": {"xla_gpu_enable_pipelined_p2p": "true"},
    "scatter_determinism_expander": {"xla_gpu_exclude_nondeterministic_ops": "true"},
    "scheduler-memory-fencing": {
        "xla_gpu_experimental_scheduler_memory_fencing_threshold_bytes": "1",
        "xla_gpu_experimental_scheduler_memory_fencing_slack_windows": "1",
    },
    "splitk-rewriter": {"xla_gpu_experimental_enable_split_k_rewrite": "true"},
    "triton-softmax-rewriter": {"xla_gpu_enable_triton_softmax_fusion": "true"},
    "unstable-reduction-detector": {"xla_detect_unstable_reductions": "DETECTION_MODE_WARNING"},
    "windowed-einsum-handler": {"xla_gpu_threshold_for_windowed_einsum_mib": "0"},
}
"""Debug options that put a pass into the pipeline, or let it take small modules."""


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
    changed: list[str] = field(default_factory=list)
    """The passes that the commit changes, by its files, as dumps may name them."""
    guilty: str = ""
    """The pass in which the old release died, or after which it has other values."""
    is_new: bool = False
    """True if the commit adds the test."""
    modules: list[str] = field(default_factory=list)
    """The modules that the old and the new release write, where they differ."""
    verdict: str = ""
    """`found`, `other pass`, `no pass named`, `diff`, `silent`; empty if it is not reproduced."""
    says: list[str] = field(default_factory=list)
    """The findings on the dump of the old release alone."""
    new_says: list[str] = field(default_factory=list)
    """The errors and warnings on the dump of the new release that name a pass."""


@cache
def releases() -> tuple[tuple[str, date], ...]:
    """The releases of jaxlib and the days on which they were published, oldest first."""
    lines = RELEASES.read_text("utf-8").splitlines()
    pairs = [line.split("\t") for line in lines if not line.startswith("#")]
    return tuple((release, date.fromisoformat(day)) for release, day in pairs)


def around(committed: date, platform: Platform = Platform.CPU) -> tuple[str, str]:
    """The last release without a commit, the first one with it; empty where there is none.

    Both can compile for the platform.
    """
    usable = [(release, day) for release, day in releases() if _compiles(release, platform)]
    before = [release for release, day in usable if day < committed]
    built = committed + timedelta(days=BUILD_DAYS)
    after = [release for release, day in usable if day >= built]
    return (before or [""])[-1], (after or [""])[0]


@cache
def _compiles(release: str, platform: Platform) -> bool:
    with suppress(UsageError):
        check_release(release, platform, OLDEST.get(platform))
        return True
    return False


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def _known_passes() -> Mapping[str, str]:
    return {_plain(name): name for of in pass_lists() for _, name in of.passes}


def passes_of(change: Change) -> list[str]:
    """The passes that a commit changes, as XLA names them, as far as its files tell."""
    return spelled(pass_words(change))


def spelled(words: Iterable[str]) -> list[str]:
    """The names that passes may have in dumps, from the names of files or classes."""
    names: list[str] = []
    for word in words:
        plain = _plain(word)
        known = _known_passes().get(plain)
        names += SPELLED.get(plain) or ([known] if known else [word.replace("_", "-")])
    return [*dict.fromkeys(names)]


def platform_of(text: ReplayText, passes: Collection[str]) -> Platform:
    """The platform whose pipeline runs the passes of a text; a GPU where both may."""
    if "memory_space_assignment" in text.file:
        return Platform.TPU
    names = {name for of in pass_lists() if of.backend == "gpu" for _, name in of.passes}
    is_cpu = any(
        of.backend == "cpu" and name in passes and name not in names
        for of in pass_lists()
        for _, name in of.passes
    )
    return (
        Platform.CPU if "gpu" not in text.file and ("cpu" in text.file or is_cpu) else Platform.GPU
    )


class Environments:
    """Pythons with releases of jaxlib, of which the last few that were used stay on disk."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        here = cache_folder().glob(f"*/{INSTALLED}")
        self._used: dict[Path, None] = dict.fromkeys(path.parent for path in here)

    def python(self, release: str, platform: Platform) -> Path:
        """The Python of a release; others are removed to make room for it.

        Raises:
            CaptureError: it cannot be installed.
            UsageError: it is too old for the platform.
        """
        interpreter = environment_of(release, print, platform, OLDEST.get(platform))
        folder = platform.folder(release)
        self._used.pop(folder, None)
        self._used[folder] = None
        for old in [*self._used][: -self._kept]:
            del self._used[old]
            if old.is_relative_to(cache_folder()):
                shutil.rmtree(old, ignore_errors=True)
        return interpreter.path


@dataclass(frozen=True)
class Build:
    """A build of XLA that takes the place of the release with the commit."""

    python: Path | None = None
    """An interpreter with its jaxlib."""
    hlo_opt: Path | None = None
    """Its `hlo-opt`, for the passes of the commit alone."""

    def optimized(
        self, source: str, passes: Sequence[str], platform: str, folder: Path
    ) -> Compiled:
        """The dump of passes that `hlo-opt` runs: the module before and after them."""
        folder.mkdir(parents=True)
        (folder / "module_0000.replayed.before_optimizations.txt").write_text(source, "utf-8")
        (folder / "in.hlo").write_text(source, "utf-8")
        names, given = ",".join(passes), folder / "in.hlo"
        command = [
            f"{self.hlo_opt}",
            f"--platform={platform.lower()}",
            f"--passes={names}",
            f"{given}",
        ]
        with os_errors_as(f"{self.hlo_opt} cannot be run", UsageError):
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        given.unlink()
        if done.returncode:
            return Compiled(
                folder, BugFinding("error", names, done.stderr.strip()[-200:]), [*passes]
            )
        step = f"module_0000.replayed.0001.hlo-opt.after_{passes[-1]}.before_pipeline-end.txt"
        (folder / step).write_text(done.stdout, "utf-8")
        return Compiled(folder, None, [*passes])


class Judges(ExitStack):
    """The judges of two releases for each platform, started when they are asked for."""

    def __init__(
        self, pair: tuple[str, str], environments: Environments, build: Build | None = None
    ) -> None:
        super().__init__()
        self.pair, self.build = pair, build or Build()
        self._environments = environments
        self._judges: dict[tuple[str, Platform], tuple[Judge, Deadline]] = {}

    def both(self, platform: Platform) -> list[tuple[Judge, Deadline]]:
        """The judges of the old and of the new release, each with the end of its time.

        Raises:
            CaptureError: a release cannot be installed.
            UsageError: it is too old for the platform.
        """
        return [self._judge(release, platform) for release in self.pair]

    def _judge(self, release: str, platform: Platform) -> tuple[Judge, Deadline]:
        key = (release, platform)
        if key not in self._judges:
            own = self.build.python if release == BUILD else None
            python = own or self._environments.python(release, platform)
            deadline = Deadline(SECONDS)
            compiler = HuntCompiler(python, CHIPS[platform], release)
            is_old = own is None and version_of(release) < WITHOUT_DRIVER
            needs_driver = platform is Platform.GPU and is_old
            variables = {"LD_LIBRARY_PATH": f"{cuda_driver()}"} if needs_driver else {}
            judge = Judge(compiler, (), deadline, environment=variables)
            self._judges[key] = self.enter_context(judge), deadline
        return self._judges[key]


@cache
def cuda_driver() -> Path:
    """The folder of a CUDA driver with an absent GPU, built with the system's C compiler.

    Raises:
        CaptureError: it cannot be built.
    """
    library = cache_folder() / "driver" / "libcuda.so.1"
    library.parent.mkdir(parents=True, exist_ok=True)
    command = ["cc", "-w", "-shared", "-fPIC", "-o", f"{library}", f"{DRIVER}"]
    with os_errors_as("no C compiler for the driver of old releases", CaptureError):
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise CaptureError(f"{DRIVER.name} is not compiled: {done.stderr[:200]}")
    return library.parent


@dataclass
class Compiled:
    """The dump of one release."""

    folder: Path
    bug: BugFinding | str | None
    started: list[str]
    """The passes that ran, by XLA's log."""

    @property
    def passes(self) -> set[str]:
        """The passes that ran: XLA:TPU logs none, so those that left a dump."""
        return {*self.started, *(dump.name.after for dump in self.dumps if dump.name)}

    @property
    def is_complete(self) -> bool:
        """True if the compilation ran to its end."""
        return any(dump.name is not None and dump.name.is_final for dump in self.dumps)

    @property
    def dumps(self) -> list[PassDump]:
        """The steps, the input first; empty where nothing was dumped."""
        try:
            return in_order(longest_run(self.folder, None))
        except DumpError:
            return []

    def changed(self, passes: Collection[str]) -> bool:
        """True if one of the passes left a dump."""
        return any(dump.name is not None and dump.name.after in passes for dump in self.dumps)

    def cut(self, passes: Collection[str]) -> None:
        """Remove all that was dumped after the last step of the passes."""
        dumps = self.dumps
        last = max(
            (at for at, dump in enumerate(dumps) if dump.name and dump.name.after in passes),
            default=0,
        )
        kept = {dump.path for dump in dumps[: last + 1]}
        for path in self.folder.iterdir():
            # The flags say which passes leave a dump.
            if path not in kept and not path.name.endswith((".debug_options", "config.pbtxt")):
                path.unlink()

    def findings(self) -> dict[str, set[str]]:
        """The errors and warnings of `check` and `validate`: the passes that each one names.

        What the input has already names no pass.
        """
        says: dict[str, set[str]] = {}
        for finding in lint(open_dump(self.folder)).findings:
            if finding.severity is Severity.INFO:
                continue
            names = {finding.introduced_by.pass_name} if finding.introduced_by else set()
            name = parse_name(Path(finding.path).name)
            if finding.seen_in is None and name is not None:
                names |= {name.after} - {""}  # no history: the file names the pass
            if finding.rule == DIED:
                names |= {*re.findall(r"[\w\-]+", " ".join((finding.message, *finding.notes)))}
            says.setdefault(f"{finding.rule}: {nameless(finding.message)}", set()).update(names)
        if _is_large(self.dumps[0].module):
            return says
        for validation in validate(self.folder, seconds=VALIDATED).validations:
            dumps = [step.dump for step in validation.steps]
            for change in validation.changes:
                if change.comparison.difference is not None:
                    name = change.after.name
                    by = outer_pass(dumps, dumps.index(change.after)) or (
                        name.after if name else ""
                    )
                    says[f"values-changed: {change.comparison.difference}"] = {by} - {""}
        return says


def replayed(
    text: ReplayText, whole: Outcome, alone: Outcome, judges: Judges, dumps: Path | None
) -> None:
    """Compile a text by both releases, and fill in the outcomes; keep the dumps of bugs."""
    known = whole.passes
    plain = {_plain(name) for name in (*known, *spelled(text.classes))}
    flags: dict[str, str] = {}
    for name, own in FLAGS.items():
        flags |= own if _plain(name) in plain else {}
    flags |= text.flags
    with tempfile.TemporaryDirectory(prefix="replay_", ignore_cleanup_errors=True) as name:
        places = [Path(name) / way / side for way in (WHOLE, ALONE) for side in ("old", "new")]
        both = judges.both(Platform[whole.platform])
        old, new = _by_both(text, (), flags, both, places[:2])
        started = old.passes | new.passes
        whole.passes = _named(known, started) or _named(spelled(text.classes), started)
        _tell(old, new, whole)
        if whole.reproduced:
            judge_dumps(old, new, whole)
            _keep(places[:2], whole, dumps)
        if not whole.passes and old.is_complete and new.is_complete:
            alone.reason = NO_PASS
            return
        alone.passes = whole.passes or known
        build = judges.build if judges.build.hlo_opt else None
        sides = both[:1] if build else both
        old, *others = _by_both(text, alone.passes, flags, sides, places[2:])
        if build:
            source = unscheduled(text.text)
            others = [build.optimized(source, alone.passes, alone.platform, places[3])]
        (new,) = others
        alone.passes = _named(alone.passes, old.passes | new.passes)
        if not alone.passes:
            alone.reason = NO_PASS
            return
        _tell(old, new, alone)
        if alone.reproduced:
            judge_dumps(old, new, alone)
            _keep(places[2:], alone, dumps)


def _keep(folders: Sequence[Path], outcome: Outcome, dumps: Path | None) -> None:
    if dumps:
        for folder in folders:
            shutil.copytree(folder, dumps_of(dumps, outcome) / folder.name, dirs_exist_ok=True)


def dumps_of(dumps: Path, outcome: Outcome) -> Path:
    """The folder of the dumps `old` and `new` of an outcome."""
    return dumps / outcome.key.replace("/", "-")


def judge_again(state: State, dumps: Path) -> Iterator[Outcome]:
    """Judge the dumps that were kept, for rules that have changed since."""
    for verdict in [*state.verdicts.values()]:
        outcome = Outcome(**cast(dict[str, Any], verdict))
        folder = dumps_of(dumps, outcome)
        if outcome.reproduced and folder.is_dir():
            old, new = (Compiled(folder / side, None, []) for side in ("old", "new"))
            judge_dumps(old, new, outcome)
            yield outcome


def _by_both(
    text: ReplayText,
    only: Sequence[str],
    flags: Mapping[str, str],
    judges: Iterable[tuple[Judge, Deadline]],
    folders: Iterable[Path],
) -> list[Compiled]:
    both = []
    for (judge, deadline), folder in zip(judges, folders, strict=False):
        folder.mkdir(parents=True)
        deadline.restart(SECONDS)
        compiled = _compiled(text, only, judge, flags, folder)
        if isinstance(compiled.bug, BugFinding) and compiled.bug.kind in DEATHS:
            # With a dump of each pass the last one names the pass that died.
            shutil.rmtree(folder)
            folder.mkdir()
            deadline.restart(SECONDS)
            every = {**flags, "xla_dump_hlo_pass_re": ".+"}
            again = _compiled(text, only, judge, every, folder)
            # A busy machine is slow.
            bug = again.bug if compiled.bug.kind == "hang" else compiled.bug
            compiled = replace(again, bug=bug)
        both.append(compiled)
    return both


def _named(passes: Collection[str], started: Collection[str]) -> list[str]:
    """The passes that ran, by the names that their release gives them."""
    plain = {_plain(name) for name in passes}
    return sorted(name for name in started if _plain(name) in plain)


def _is_large(module: Module) -> bool:
    parameters = module.entry.parameters if module.entry else ()
    return sum(a.elements for p in parameters for a in arrays(p.shape)) > LARGE


def unscheduled(text: str) -> str:
    """The module without its schedule: XLA schedules what it compiles."""
    return re.sub(r",\s*is_scheduled=true", "", text)


def _compiled(
    text: ReplayText, only: Sequence[str], judge: Judge, given: Mapping[str, str], folder: Path
) -> Compiled:
    """The dump of a text, with the flags that the release knows."""
    source = unscheduled(text.text)
    module = parse_file(source).modules[0]
    flags = dict(given)
    while True:
        judge.narrow(only, flags)
        bug: BugFinding | str | None
        try:
            bug = judge.bug(source, [] if _is_large(module) else [hunt_inputs(module, 0)], folder)
            if isinstance(bug, BugFinding) and bug.kind == "values":
                bug = unfair(module) or bug  # compilers may give such a module other values
        except NoTimeLeft:
            bug = "no time left"
        except UsageError as error:
            unknown = [name for name in flags if name in f"{error}"]
            for name in unknown:
                del flags[name]
            if unknown:
                continue
            bug = f"{error}"[:200]
        except HloLintError as error:
            bug = f"{error}"[:200]
        return Compiled(folder, bug, judge.started)


def judge_dumps(old: Compiled, new: Compiled, outcome: Outcome) -> None:
    """Say what the tool says of a bug that is reproduced."""
    has_died = outcome.reproduced in ("dies", "refuses")
    if outcome.way == ALONE:
        # What is left out after the passes is refused in both releases.
        new.cut(outcome.passes)
        if not has_died:
            old.cut(outcome.passes)
    ours, theirs = old.findings(), new.findings()
    if outcome.way == ALONE or not new.is_complete:
        theirs = {key: names for key, names in theirs.items() if not key.startswith(DIED)}
    if outcome.way == ALONE and not has_died:
        ours = {key: names for key, names in ours.items() if not key.startswith(DIED)}
    # No pass is named where the difference came before the start of a pipeline.
    new_ones = {key: names - {"pipeline-start"} for key, names in ours.items() if key not in theirs}
    if outcome.way == ALONE:
        # Passes that are left out would mend what no pass did.
        new_ones = {key: names for key, names in new_ones.items() if names}
    outcome.says = [*new_ones]
    # A test may break a rule on purpose: its pass carries that on.
    given = {key.partition(":")[0] for key, names in theirs.items() if not names}
    outcome.new_says = [
        key for key, names in theirs.items() if names and key.partition(":")[0] not in given
    ]
    # The verifier runs after a pipeline, whose name it gives.
    guilty = {outcome.guilty, *outcome.passes, *outcome.changed} - {"", "pipeline-start"}
    # Where the verifier refuses the input, maybe in a later pipeline, no pass is to be named.
    is_input = outcome.guilty == "pipeline-start" and (
        len(old.dumps) == 1 or not all(new_ones.values())
    )
    if any(names & guilty for names in new_ones.values()) or (is_input and new_ones):
        outcome.verdict = "found"
    elif any(new_ones.values()):
        outcome.verdict = "other pass"
    elif new_ones:
        outcome.verdict = "no pass named"
    else:
        outcome.verdict = "diff" if old.changed(outcome.passes) else "silent"


def _tell(old: Compiled, new: Compiled, outcome: Outcome) -> None:
    """Say if the bug is reproduced, and by what."""
    passes = outcome.passes
    if isinstance(old.bug, BugFinding):
        deaths = {
            (bug.kind, bug.pass_name) for bug in (old.bug, new.bug) if isinstance(bug, BugFinding)
        }
        if isinstance(new.bug, BugFinding) and len(deaths) == 1:
            outcome.reason = f"both releases: {old.bug.kind} {old.bug.message}"[:160]
            return
        outcome.reproduced = DEATHS.get(old.bug.kind, "values")
        outcome.guilty = old.bug.pass_name
        outcome.reason = f"{old.bug.message}"[:200]
        return
    if not old.dumps or not new.dumps:
        outcome.reason = f"not compiled: {old.bug or new.bug}"[:160]
    elif outcome.way == WHOLE:
        outcome.reason = f"same outcome: {old.bug or 'ok'}"[:120]
    elif not old.changed(passes) and not new.changed(passes):
        outcome.reason = "the pass changes nothing, in both releases"
    else:
        ends = [_end(compiled, passes) for compiled in (old, new)]
        if diff(*(end.module for end in ends)).same:
            outcome.reason = "both releases write the same module"
        else:
            outcome.reproduced, outcome.reason = "module", "another module than the new release"
            outcome.modules = [end.module.text[:6000] for end in ends]


def _end(compiled: Compiled, passes: Collection[str]) -> PassDump:
    """The dump after the last step of the passes; the input where they change nothing."""
    dumps = compiled.dumps
    own = [dump for dump in dumps if dump.name is not None and dump.name.after in passes]
    return own[-1] if own else dumps[0]


def outcomes(
    commits: Sequence[Mapping[str, Any]],
    state: State,
    kept: int,
    minutes: float,
    dumps: Path | None = None,
    build: Build | None = None,
) -> Iterator[Outcome]:
    """Replay what the state does not have, the newest releases first, a pair after the other."""
    end = time.monotonic() + 60 * minutes
    environments = Environments(kept)
    judges = Judges(("", ""), environments)
    plans = [plan for commit in commits for plan in _plans(commit, build)]
    # An environment for TPUs is large, and few tests need it.
    plans.sort(key=lambda plan: [*map(version_of, plan[0])], reverse=True)
    plans.sort(key=lambda plan: plan[1].platform == Platform.TPU.name)
    for pair, outcome, text in plans:
        if time.monotonic() > end:
            return
        keys = [f"{outcome.key}/{way}" for way in (WHOLE, ALONE)] if text else [outcome.key]
        if keys[-1] in state.verdicts:
            continue
        if text is None:
            yield outcome
            continue
        if judges.pair != pair:
            judges.close()
            judges = Judges(pair, environments, build)
        ways = zip(keys, (WHOLE, ALONE), strict=True)
        whole, alone = (replace(outcome, key=key, way=way) for key, way in ways)
        _attempt(text, whole, alone, judges, dumps)
        yield whole
        yield alone
    judges.close()


def _plans(
    commit: Mapping[str, Any], build: Build | None
) -> Iterator[tuple[tuple[str, str], Outcome, ReplayText | None]]:
    """The pair of releases for each text of a commit and each platform; without a text none."""
    change, day = Change.of(commit["change"]), date.fromisoformat(commit["date"][:10])
    passes = passes_of(change)
    empty = Outcome(
        f"{commit['index']}",
        f"{commit['index']}",
        commit["commit"],
        commit["title"],
        test="",
        platform="",
        way="",
        passes=passes,
        before="",
        after="",
        changed=passes,
    )
    texts = texts_of(change)
    if not texts:
        empty.reason = "no module in the tests, as the diff shows them"
        yield ("", ""), empty, None
    for number, text in enumerate(texts):
        platform = platform_of(text, passes)
        pair = around(day, platform)
        if build and build.python:
            pair = pair[0], BUILD
        outcome = replace(empty, before=pair[0], after=pair[1], test=text.test, is_new=text.is_new)
        outcome.platform, outcome.key = platform.name, f"{empty.key}/{number}/{platform.name}"
        yield pair, outcome, text


def _attempt(
    text: ReplayText, whole: Outcome, alone: Outcome, judges: Judges, dumps: Path | None
) -> None:
    """Replay a text, and say why it cannot be where it cannot."""
    reason = ""
    if not whole.before or not whole.after:
        reason = "no release before it" if not whole.before else "no release after it"
    else:
        try:
            replayed(text, whole, alone, judges, dumps)
        except (UsageError, CaptureError) as error:
            reason = f"{error}"[:200]
        except Exception as error:  # a defect of ours is an outcome, too
            reason = f"internal error: {type(error).__name__}: {error}"[:300]
    for outcome in (whole, alone):
        outcome.reason = outcome.reason or reason


def read_commits(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The commits of files of JSON lines."""
    commits = []
    for path in paths:
        opened = lzma.open if path.suffix == ".xz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            commits += [json.loads(line) for line in file]
    return commits


@cache
def kinds() -> Mapping[str, str]:
    """The kind of what was lost for commits, by the first ten digits of their hashes."""
    lines = KINDS.read_text("utf-8").splitlines()
    return dict(line.split("\t", 1) for line in lines if not line.startswith("#"))


def _is_reproduced(verdict: Mapping[str, Any]) -> bool:
    is_other = kinds().get(verdict["commit"][:10]) == OTHER_CHANGE
    return bool(verdict["reproduced"]) and not (verdict["reproduced"] == "module" and is_other)


def page(verdicts: Sequence[Mapping[str, Any]], classes: Mapping[str, str], tail: str = "") -> str:
    """The page about all outcomes, with the classes of commits; `tail` is written by hand."""
    by_commit: dict[str, list[Mapping[str, Any]]] = {}
    for verdict in verdicts:
        by_commit.setdefault(verdict["index"], []).append(verdict)
    shown = [verdict for verdict in verdicts if _is_reproduced(verdict)]
    lines = [
        "# Replay",
        "",
        "Bugs of released compilers, run before and after their fix. Written by "
        "`python -m benchmarks.replay`, which defines the terms.",
        "",
        f"{len(by_commit)} commits, {len(_modules(verdicts))} modules of their tests. Reproduced: "
        f"{len(_modules(shown))} modules of {len({v['index'] for v in shown})} commits.",
        "",
        "By the class that the file of commits gives, in modules. A defect is wrong to see if the "
        "modules, as they were read, show one: `replay_kinds.tsv` names those that are sound.",
        "",
        "| class | commits | reproduced | modules | wrong to see | found | right pass |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name in (*sorted({*classes.values()}), "all"):
        of = [v for v in shown if name in ("all", classes.get(v["index"]))]
        wrong = [v for v in of if v["verdict"] not in MISSED or not _is_sound(v)]
        found = [v for v in wrong if v["verdict"] not in MISSED]
        right = [v for v in found if v["verdict"] == "found"]
        number = sum(name in ("all", classes.get(index)) for index in by_commit)
        counts = [number, len({v["index"] for v in of})]
        counts += [len(_modules(part)) for part in (of, wrong, found, right)]
        lines.append(f"| {name} | {' | '.join(map(str, counts))} |")
    lines += ["", "In modules for each way, `whole` or `alone`:", ""]
    lines += [f"| reproduced by | {' | '.join(VERDICTS)} |", f"|---|{'---:|' * len(VERDICTS)}"]
    for kind in ("dies", "refuses", "values", "module"):
        verdicts_of = Counter(v["verdict"] for v in shown if v["reproduced"] == kind)
        lines.append(f"| {kind} | {' | '.join(str(verdicts_of[name]) for name in VERDICTS)} |")
    lines += [
        "",
        "| class | commit | test | pass | where | releases | reproduced | verdict | says |",
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for v in sorted(shown, key=lambda v: (classes.get(v["index"], ""), v["verdict"], v["key"])):
        says = "; ".join(v["says"])[:160].replace("|", "\\|")
        lines.append(
            f"| {classes.get(v['index'], '')} | {v['commit'][:10]} | {v['test']} | "
            f"{v['guilty'] or ', '.join(v['passes'][:2])} | "
            f"{v['platform']} {v['way']} | {v['before']}, {v['after']} | "
            f"{v['reproduced']} | {v['verdict']} | {says} |"
        )
    lines += ["", "## What is not found", ""]
    lines += ["The kinds of `diff` and `silent`:", ""]
    lines += ["| kind | commits | modules |", "|---|---:|---:|"]
    missed: dict[str, list[Mapping[str, Any]]] = {}
    for v in verdicts:
        if v["reproduced"] and v["verdict"] in MISSED:
            missed.setdefault(kinds().get(v["commit"][:10], "not read yet"), []).append(v)
    for kind, group in sorted(missed.items(), key=lambda pair: -len({v["index"] for v in pair[1]})):
        lines.append(f"| {kind} | {len({v['index'] for v in group})} | {len(_modules(group))} |")
    reasons = Counter(
        _reason(of) for of in by_commit.values() if not any(v["reproduced"] for v in of)
    )
    lines += ["", "## What is not reproduced", ""]
    lines += ["Commits, by the reason that holds for most of their modules:", ""]
    lines += ["| commits | reason |", "|---:|---|"]
    lines += [f"| {count} | {reason} |" for reason, count in reasons.most_common()]
    lines += ["", "## Errors and warnings on dumps of the new releases", ""]
    lines += sorted({f"- {v['commit'][:10]}: {say}" for v in shown for say in v["new_says"]}) or [
        "None."
    ]
    return "\n".join(lines) + f"\n\n{tail}".rstrip() + "\n"


def _is_sound(verdict: Mapping[str, Any]) -> bool:
    return kinds().get(verdict["commit"][:10], "").startswith(SOUND)


def hand_written(path: Path) -> str:
    """The part of the page that is written by hand, from its first heading on."""
    text = path.read_text("utf-8") if path.is_file() else ""
    return HAND_WRITTEN + text.partition(HAND_WRITTEN)[2] if HAND_WRITTEN in text else ""


def _modules(verdicts: Iterable[Mapping[str, Any]]) -> set[str]:
    """The modules, without platform and way."""
    return {"/".join(v["key"].split("/")[:2]) for v in verdicts if v["way"]}


def _reason(of: Sequence[Mapping[str, Any]]) -> str:
    """The reason why most modules of a commit are not reproduced, without what is special to it."""
    reasons = [str(v["reason"]).partition("\n")[0] for v in of if v["way"] != WHOLE]
    (reason, _), *_ = Counter(
        "the old release is too old to compile for a chip that is absent"
        if "too old" in reason
        else reason.partition(": ")[0]
        for reason in reasons or ["not run"]
    ).most_common(1)
    return reason


def main() -> None:
    """Replay, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("commits", nargs="+", type=Path)
    parser.add_argument("--state", type=Path, default=Path("build/replay.jsonl"))
    parser.add_argument("--environments", type=Path, default=Path("build/replay"))
    parser.add_argument("--kept", type=int, default=6, help="environments on disk at a time")
    parser.add_argument("--python", type=Path, help="a build's Python, in place of new releases")
    parser.add_argument("--hlo-opt", type=Path, help="a build's hlo-opt, for passes alone")
    parser.add_argument("--dumps", type=Path, help="folder to keep the dumps of bugs in")
    parser.add_argument("--again", action="store_true", help="judge the kept dumps again")
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.state.parent.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(options.environments.resolve())
    state = State(options.state)
    commits = read_commits(options.commits)
    build = Build(options.python, options.hlo_opt)
    replays = (
        judge_again(state, options.dumps)
        if options.again
        else outcomes(commits, state, options.kept, options.minutes, options.dumps, build)
    )
    with suppress(KeyboardInterrupt):
        for outcome in replays:
            state.add(asdict(outcome))
            print(outcome.key, outcome.reproduced or "-", outcome.verdict, outcome.reason[:100])
    classes = {f"{commit['index']}": _class_of(commit) for commit in commits}
    known = [v for v in state.verdicts.values() if v["index"] in classes]
    text = page(known, classes, hand_written(options.output))
    options.output.write_text(text, "utf-8")


def _class_of(commit: Mapping[str, Any]) -> str:
    """The class without what is special to the commit: `not visible`."""
    return f"{commit.get('class', '')}".partition(":")[0]


if __name__ == "__main__":
    main()
