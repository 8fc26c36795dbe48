"""One script, compiled for one chip by several releases of jax, with several backends winning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path

from hlo_lint.apps.api import lint
from hlo_lint.apps.jax.capture.children import Job, JobResult, ProgramOutcome, run_job
from hlo_lint.apps.jax.capture.jit import without_folder
from hlo_lint.apps.jax.capture.winners import (
    CUBLASLT_CALL,
    LOGGING,
    OLD_FORMAT,
    RESULTS_FROM,
    cublaslt_wins,
)
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.validation import validate
from hlo_lint.dumps.directory import open_dump
from hlo_lint.engine.findings import Diagnostic
from hlo_lint.report.report import Report
from hlo_lint.rules.findings import Severity
from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.xla.environments import Interpreter, version_of

TWO_FORMATS = (0, 11)
"""The first release of jax whose autotuner has two formats of results."""
CHOICE = b"__triton_gemm"
"""Part of the text of a GEMM whose backend the autotuner chooses."""


_COUNTS = {f"{severity.value}s" for severity in Severity}


class Winner(Enum):
    """The backend that wins for the GEMMs of the autotuner."""

    DEFAULT = "default"
    """The first one that XLA takes where it cannot measure: Triton."""
    CUBLASLT = "cuBLASLt"


class State(Enum):
    """The outcome of a compile."""

    COMPILES = "compiles"
    DIES = "dies"
    UNTRIED = "not tried"
    MOOT = "no such GEMM"
    """There is none whose backend the autotuner chooses."""


@dataclass(frozen=True)
class Trial:
    """One compile of one program, and what is found in it."""

    program: str
    jax: str
    winner: Winner
    state: State
    message: str = ""
    """XLA's message, or the reason that it was not tried."""
    folder: Path | None = None
    report: Report | None = None
    values: str = ""
    """`same` or `changed`: the values of the optimized program, where it could be run; `not run`
    where it could not."""

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
"""A verdict on a release that compiles, by the worst finding."""
NOT_TRIED, DIES = "not tried", "dies"
FATES = (*COMPILES.values(), NOT_TRIED, DIES)
"""The verdicts, the best one first."""
WINS = f" when {Winner.CUBLASLT.value} wins"


@dataclass(frozen=True)
class Question:
    """The programs to compile, the target, the backends to try, and the settings of the check."""

    job: Job
    winners: Sequence[Winner]
    settings: Settings = field(default_factory=Settings)
    runs: bool = False
    """True to run the program before and after optimization as well, and compare the values."""


@dataclass
class ProgramTrials:
    """All compiles of one program."""

    program: str
    target: str
    trials: list[Trial] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        """`f on h200: compiles, no findings (jax 0.11.2); dies when cuBLASLt wins (jax 0.10.0)`"""
        fates: dict[str, list[str]] = {}
        for release in dict.fromkeys(trial.jax for trial in self.trials):
            mine = [trial for trial in self.trials if trial.jax == release]
            fates.setdefault(_fate(mine), []).append(release)
        best_first = sorted(fates, key=lambda fate: FATES.index(fate.removesuffix(WINS)))
        parts = [f"{fate} (jax {_listed(fates[fate])})" for fate in best_first]
        return f"{self.program} on {self.target}: {'; '.join(parts)}"

    @property
    def clean(self) -> bool:
        """True if all that can be compiled was, and there is neither an error nor a warning."""
        return all(
            trial.report.clean and trial.state is State.COMPILES
            if trial.report is not None
            else trial.winner is not Winner.DEFAULT  # a backend that XLA does not take cannot win
            for trial in self.trials
        )

    def findings(self) -> Iterator[Diagnostic]:
        """Each thing that was found, once, with the compiles that have it as a note."""
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
    """Compiles with each interpreter, and with each winner, into folders below `folder`.

    `progress` is called with what is done next.

    Raises:
        UsageError: for an interpreter without the GPU compiler, a target or an option that it
            does not take.
        CaptureError: where the script fails.
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
    comparisons: dict[str, ProgramTrials] = {}
    for interpreter in interpreters:
        for trial in _trials(question, interpreter, folder, progress, keep=keep):
            name = question.job.target.name
            comparisons.setdefault(trial.program, ProgramTrials(trial.program, name))
            comparisons[trial.program].trials.append(trial)
    return list(comparisons.values())


def _trials(
    question: Question,
    interpreter: Interpreter,
    folder: Path,
    progress: Callable[[str], None],
    *,
    keep: bool,
) -> Iterator[Trial]:
    release = interpreter.jax
    job = question.job
    if version_of(release) >= TWO_FORMATS and not job.target.is_tpu:
        job = replace(job, options={**OLD_FORMAT, **job.options})
    begun = partial(_trial, question, release, folder, keep, progress)
    progress(f"jax {release}: compiling")
    first = run_job(interpreter, job, folder / f"jax{release}", LOGGING)
    defaults = {outcome.name: begun(outcome, Winner.DEFAULT) for outcome in first.outcomes}
    forced: Mapping[str, ProgramOutcome] = {}
    if Winner.CUBLASLT in question.winners:
        progress(f"jax {release}: compiling with cuBLASLt")
        forced = _forced(interpreter, job, first, folder)
    for outcome in first.outcomes:
        default = defaults[outcome.name]
        if Winner.DEFAULT in question.winners or default.state is State.DIES:
            yield default
        if Winner.CUBLASLT not in question.winners or default.state is not State.COMPILES:
            continue
        other = forced.get(outcome.name)
        if not _mentions(outcome.folder, CHOICE):
            yield Trial(outcome.name, release, Winner.CUBLASLT, State.MOOT)
        elif other is None:
            reason = f"the autotuner of jax {release} does not log which results it looks up"
            yield Trial(outcome.name, release, Winner.CUBLASLT, State.UNTRIED, reason)
        elif not _mentions(other.folder, CUBLASLT_CALL.encode()):
            reason = f"XLA did not take it: {other.failure or 'it chose another backend'}"
            yield Trial(outcome.name, release, Winner.CUBLASLT, State.UNTRIED, reason)
        else:
            yield begun(other, Winner.CUBLASLT)


def _forced(
    interpreter: Interpreter, job: Job, first: JobResult, folder: Path
) -> Mapping[str, ProgramOutcome]:
    """The same with cuBLASLt as the winner; in a new process, since XLA reads results once."""
    results = cublaslt_wins(first.log)
    if results is None:
        return {}
    path = folder / f"jax{interpreter.jax}-cublaslt.pbtxt"
    path.write_text(results, "utf-8")
    job = replace(job, options={**job.options, RESULTS_FROM: str(path.absolute())})
    answer = run_job(interpreter, job, folder / f"jax{interpreter.jax}-cublaslt", {})
    return {outcome.name: outcome for outcome in answer.outcomes}


def _trial(
    question: Question,
    release: str,
    folder: Path,
    keep: bool,
    progress: Callable[[str], None],
    outcome: ProgramOutcome,
    winner: Winner,
) -> Trial:
    begun = partial(Trial, outcome.name, release, winner)
    if outcome.not_lowered is not None:
        return begun(State.UNTRIED, outcome.not_lowered)
    progress(f"jax {release}: checking {outcome.name}")
    report = lint(open_dump(outcome.folder), settings=question.settings)
    values = ""
    if question.runs and outcome.failure is None:
        progress(f"jax {release}: comparing the values of {outcome.name}")
        report, values = _with_values(report, outcome.folder, question.settings)
    if not keep:
        report = without_folder(report, folder)
    state = State.COMPILES if outcome.failure is None else State.DIES
    return begun(state, outcome.failure or "", outcome.folder, report, values)


def _with_values(report: Report, folder: Path, settings: Settings) -> tuple[Report, str]:
    """The report with the first pass that changed what the program computes, and the verdict.

    The module before optimization and the optimized one run on the same inputs, by XLA:CPU of the
    installed jaxlib; the passes between them run only where these differ.
    """
    try:
        ran = validate(open_dump(folder), settings=settings)
    except DumpError:
        return report, "not run"
    findings = ran.report.findings
    if findings:
        stats = {
            name: count + (ran.report.stats[name] if name in _COUNTS else 0)
            for name, count in report.stats.items()
        }
        return replace(report, findings=(*findings, *report.findings), stats=stats), "changed"
    is_whole = any(
        validation.compared and validation.compared == validation.counts.total()
        for validation in ran.validations
    )
    return report, "same" if is_whole else "not run"


def _mentions(folder: Path, word: bytes) -> bool:
    return any(word in path.read_bytes() for path in sorted(folder.glob("*.txt")))


def _fate(trials: Sequence[Trial]) -> str:
    """The verdict on one release: one of `FATES`, that of its worst trial."""
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
