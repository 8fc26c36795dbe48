"""Compiles a script for a chip by several releases of jax, with several GEMM backends."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

from hlo_lint.analysis.grouping import by_key
from hlo_lint.apps.api import lint
from hlo_lint.apps.jax.capture.children import Job, JobResult, ProgramOutcome, run_job
from hlo_lint.apps.jax.capture.jit import without_folder
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.validation import validate
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import CaptureError, DumpError, UsageError
from hlo_lint.xla.environments import Interpreter, version_of

LOGGING = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "autotuner_cache=5"}
"""Environment variables that make XLA log each key that it misses."""

OLD_FORMAT = {"xla_gpu_use_new_autotune_cache_format": False}
"""The option that selects the old format of results, in releases with two."""

RESULTS_FROM = "xla_gpu_load_autotune_results_from"
"""The option with the file of results."""

CUBLASLT_CALL = "__cublas$lt$matmul"

_missed = re.compile(r"<key model='(.*?)', hlo='(.*?)', version=(\d+)>", re.S)
# A GEMM result for a fusion means that cuBLASLt takes its dot out of it (legacy_cache.cc).
_ENTRY = """results {{
  device: "{device}"
  hlo: "{hlo}"
  result {{ gemm {{ algorithm: 0 }} }}
  version: {version}
}}
"""


def cublaslt_wins(log: str) -> str | None:
    """Results that make cuBLASLt win each dot that a log names; None for a log without dots."""
    keys = dict.fromkeys(match.groups() for match in _missed.finditer(log))
    entries = [
        _ENTRY.format(device=_quoted(device), hlo=_quoted(hlo), version=version)
        for device, hlo, version in keys
        if " dot(" in hlo
    ]
    return "version: 3\n" + "".join(entries) if entries else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


TWO_FORMATS = (0, 11)
"""The first release of jax whose autotuner reads two formats of results."""
CHOICE = b"__triton_gemm"
"""Text of a GEMM whose backend the autotuner chooses."""


_COUNTS = {f"{severity.value}s" for severity in Severity}


class Winner(Enum):
    """The backend that wins for the GEMMs of the autotuner."""

    DEFAULT = "default"
    """XLA's first choice where it cannot measure: Triton."""
    CUBLASLT = "cuBLASLt"


class ValuesVerdict(Enum):
    """The verdict on the values of a program before and after optimization."""

    SAME = "same"
    CHANGED = "changed"
    NOT_RUN = "not run"
    """The program, or one of its steps, does not run on the CPU."""
    NO_TIME = "no time"
    """The time for comparing values was over."""


class State(Enum):
    """The outcome of a compile."""

    COMPILES = "compiles"
    DIES = "dies"
    UNTRIED = "not tried"
    MOOT = "no such GEMM"
    """The autotuner chooses the backend of no GEMM of the program."""


@dataclass(frozen=True)
class Trial:
    """A compile of a program, and its findings."""

    program: str
    jax: str
    winner: Winner
    state: State
    message: str = ""
    """XLA's message, or the reason why the compile was not tried."""
    folder: Path | None = None
    report: Report | None = None
    values: ValuesVerdict | None = None
    """None if they were not asked for, or the program does not compile."""
    values_note: str = ""
    """The reason why the program was not run."""

    @property
    def title(self) -> str:
        """`jax 0.10.0 when cuBLASLt wins`"""
        return f"jax {self.jax}{'' if self.winner is Winner.DEFAULT else WINS}"


COMPILES = {
    None: "compiles, no findings",
    Severity.INFO: "compiles, with notes",
    Severity.WARNING: "compiles, with warnings",
    Severity.ERROR: "compiles, with errors",
}
"""The verdict on a release that compiles, by the most severe finding."""
NOT_TRIED, DIES = "not tried", "dies"
FATES = (*COMPILES.values(), NOT_TRIED, DIES)
"""The verdicts, from best to worst."""
WINS = f" when {Winner.CUBLASLT.value} wins"


@dataclass(frozen=True)
class Question:
    """The programs to compile, the target, the backends to try, and the settings of the check."""

    job: Job
    winners: Sequence[Winner]
    settings: Settings = field(default_factory=Settings)
    seconds: float = 0
    """Time for running all programs before and after optimization, and comparing the values."""


@dataclass
class ProgramTrials:
    """All compiles of a program."""

    program: str
    target: str
    trials: Sequence[Trial]

    @property
    def verdict(self) -> str:
        """`f on h200: compiles, no findings (jax 0.11.2); dies when cuBLASLt wins (jax 0.10.0)`"""
        by_release = by_key((trial.jax, trial) for trial in self.trials)
        fates = by_key((_fate(trials), release) for release, trials in by_release.items())
        best_first = sorted(fates, key=lambda fate: FATES.index(fate.removesuffix(WINS)))
        parts = [f"{fate} (jax {_listed(fates[fate])})" for fate in best_first]
        return f"{self.program} on {self.target}: {'; '.join(parts)}"

    @property
    def clean(self) -> bool:
        """True if every compile that XLA allows succeeded without errors and warnings."""
        return all(
            trial.report.clean and trial.state is State.COMPILES
            if trial.report is not None
            else trial.winner is not Winner.DEFAULT  # a backend that XLA refuses cannot win
            for trial in self.trials
        )

    def findings(self) -> Iterator[Diagnostic]:
        """The findings, equal ones once, with a note of the compiles that have them."""
        seen: dict[tuple[str, str], list[tuple[Trial, Diagnostic]]] = {}
        for trial in self.trials:
            for finding in trial.report.findings if trial.report else ():
                seen.setdefault((finding.rule, finding.message), []).append((trial, finding))
        for places in seen.values():
            _, first = places[0]
            titles = dict.fromkeys(trial.title for trial, _ in places)
            yield replace(first, notes=(*first.notes, f"in {_listed(list(titles))}"))


def compare_releases(
    question: Question,
    interpreters: Sequence[Interpreter],
    folder: Path,
    progress: Callable[[str], None] = lambda _: None,
    *,
    keep: bool,
) -> list[ProgramTrials]:
    """Compile with each interpreter, and with each winner, into folders below `folder`.

    `progress` is called with each step. A script that fails with some of several
    interpreters is not tried with those.

    Raises:
        UsageError: for an interpreter without the chip's compiler, and for a target or an option
            that it refuses.
        CaptureError: where the script fails with every interpreter.
    """
    is_tpu = question.job.target.is_tpu
    chip, package = ("TPU", "jax[tpu]") if is_tpu else ("GPU", "hlo-lint[gpu-compiler]")
    for interpreter in interpreters:
        if not (interpreter.has_tpu_compiler if is_tpu else interpreter.has_gpu_compiler):
            raise UsageError(
                f"{interpreter.path} has jax {interpreter.jax} without its {chip} compiler; "
                f"install {package} there (Linux), or give --jax RELEASE for an environment of its "
                "own"
            )
    trials: list[Trial] = []
    failures: list[CaptureError] = []
    comparer = _Comparer(question, folder, progress, keep, question.seconds)
    for interpreter in interpreters:
        try:
            trials += comparer.trials(interpreter)
        except CaptureError as error:
            failures.append(error)
            if len(failures) == len(interpreters):
                raise failures[0] from None
            name = question.job.function or question.job.script.stem
            trials.append(Trial(name, interpreter.jax, Winner.DEFAULT, State.UNTRIED, f"{error}"))
    target = question.job.target.name
    by_program = by_key((trial.program, trial) for trial in trials)
    return [ProgramTrials(program, target, tried) for program, tried in by_program.items()]


@dataclass
class _Comparer:
    """Compiles and checks the programs of a question, with an interpreter at a time."""

    question: Question
    folder: Path
    progress: Callable[[str], None]
    keep: bool
    seconds_left: float
    """For comparing values."""

    def trials(self, interpreter: Interpreter) -> Iterator[Trial]:
        release, winners = interpreter.jax, self.question.winners
        job = self.question.job
        if version_of(release) >= TWO_FORMATS and not job.target.is_tpu:
            job = replace(job, options={**OLD_FORMAT, **job.options})
        note = self._noting(f"jax {release}")
        first = run_job(interpreter, job, self.folder / f"jax{release}", LOGGING, note)
        defaults = [self._trial(outcome, release, Winner.DEFAULT) for outcome in first.outcomes]
        forced = self._forced(interpreter, job, first) if Winner.CUBLASLT in winners else {}
        for outcome, default in zip(first.outcomes, defaults, strict=True):
            if Winner.DEFAULT in winners or default.state is State.DIES:
                yield default
            if Winner.CUBLASLT not in winners or default.state is not State.COMPILES:
                continue
            won = forced.get(outcome.name)
            untried = Trial(outcome.name, release, Winner.CUBLASLT, State.UNTRIED)
            if not _mentions(outcome.folder, CHOICE):
                yield replace(untried, state=State.MOOT)
            elif won is None:
                reason = f"the autotuner of jax {release} does not log which results it looks up"
                yield replace(untried, message=reason)
            elif not _mentions(won.folder, CUBLASLT_CALL.encode()):
                reason = ": ".join(filter(None, ("XLA chose another backend", won.failure)))
                yield replace(untried, message=reason)
            else:
                yield self._trial(won, release, Winner.CUBLASLT)

    def _noting(self, subject: str) -> Callable[[str], None]:
        return lambda step: self.progress(f"{subject}: {step}")

    def _forced(
        self, interpreter: Interpreter, job: Job, first: JobResult
    ) -> Mapping[str, ProgramOutcome]:
        """The outcomes if cuBLASLt wins, from a new process: XLA reads autotuning results once."""
        results = cublaslt_wins(first.log)
        if results is None:
            return {}
        path = self.folder / f"jax{interpreter.jax}-cublaslt.pbtxt"
        path.write_text(results, "utf-8")
        job = replace(job, options={**job.options, RESULTS_FROM: str(path.absolute())})
        note = self._noting(f"jax {interpreter.jax} with {Winner.CUBLASLT.value}")
        folder = self.folder / f"jax{interpreter.jax}-cublaslt"
        answer = run_job(interpreter, job, folder, {}, note)
        return {outcome.name: outcome for outcome in answer.outcomes}

    def _trial(self, outcome: ProgramOutcome, release: str, winner: Winner) -> Trial:
        trial = Trial(outcome.name, release, winner, State.COMPILES)
        if outcome.not_lowered is not None:
            return replace(trial, state=State.UNTRIED, message=outcome.not_lowered)
        note = self._noting(trial.title)
        note(f"checking {outcome.name}")
        report = lint(open_dump(outcome.folder), settings=self.question.settings)
        trial = replace(trial, folder=outcome.folder, report=report)
        if outcome.failure is not None:
            trial = replace(trial, state=State.DIES, message=outcome.failure)
        elif self.question.seconds:
            note(f"comparing the values of {outcome.name}")
            trial = self._with_values(trial)
        assert trial.report is not None
        return (
            trial if self.keep else replace(trial, report=without_folder(trial.report, self.folder))
        )

    def _with_values(self, trial: Trial) -> Trial:
        """The trial with the verdict on its values, and the first pass that changed them.

        The modules before and after optimization run on the same inputs, by XLA:CPU of the
        installed jaxlib. If they differ, the modules between them run as well.
        """
        assert trial.folder is not None
        assert trial.report is not None
        if self.seconds_left <= 0:
            return replace(trial, values=ValuesVerdict.NO_TIME)
        begun = time.monotonic()
        settings = self.question.settings
        try:
            ran = validate(open_dump(trial.folder), seconds=self.seconds_left, settings=settings)
        except DumpError as error:
            return replace(trial, values=ValuesVerdict.NOT_RUN, values_note=f"{error}")
        self.seconds_left -= time.monotonic() - begun
        notes = [skip.reason for skip in ran.report.skipped]
        if ran.report.findings:
            report = replace(
                trial.report,
                findings=(*ran.report.findings, *trial.report.findings),
                stats={
                    name: count + (ran.report.stats[name] if name in _COUNTS else 0)
                    for name, count in trial.report.stats.items()
                },
            )
            return replace(trial, report=report, values=ValuesVerdict.CHANGED)
        is_whole = any(
            validation.compared and validation.compared == validation.counts.total()
            for validation in ran.validations
        )
        if is_whole:
            return replace(trial, values=ValuesVerdict.SAME)
        if self.seconds_left <= 0:
            return replace(trial, values=ValuesVerdict.NO_TIME)
        return replace(trial, values=ValuesVerdict.NOT_RUN, values_note="; ".join(notes))


def _mentions(folder: Path, word: bytes) -> bool:
    return any(word in path.read_bytes() for path in sorted(folder.glob("*.txt")))


def _fate(trials: Sequence[Trial]) -> str:
    """The verdict on a release, from `FATES`: that of its worst trial."""
    tried = [trial for trial in trials if trial.state in (State.COMPILES, State.DIES)]
    worst = max(tried, key=lambda trial: FATES.index(_outcome(trial)), default=None)
    if worst is None:
        return NOT_TRIED
    return _outcome(worst) + ("" if worst.winner is Winner.DEFAULT else WINS)


def _outcome(trial: Trial) -> str:
    if trial.state is State.DIES:
        return DIES
    severities = {finding.severity for finding in trial.report.findings} if trial.report else set()
    worst = next((severity for severity in Severity if severity in severities), None)
    return COMPILES[worst]


def _listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`"""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
