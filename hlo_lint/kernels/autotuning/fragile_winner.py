"""Predict from the autotuner's log if another run would choose the same backend.

XLA runs every candidate once as a warm-up and times a single further run
(`xla/backends/gpu/autotuner/gpu_profiler.cc:308-338`). Among the candidates within SCRATCH_WINDOW
of the shortest time, it picks the least scratch memory, then the shortest time
(`xla/backends/autotuner/config_selector.cc:43`). cuBLASLt needs 32 MiB and Triton none, so
cuBLASLt wins only if it is a whole window faster.

A winner is fragile if its lead, computed this way, is too small a fraction of its time. The number
of candidates of each side adds no information once scratch is considered: `benchmarks/FRAGILE.md`
describes that experiment and the accuracy of the prediction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from hlo_lint.dumps.artefacts.autotune import Autotuning, Candidate, TunedInstruction
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import Span

SCRATCH_WINDOW: Final = 2000
"""The time in nanoseconds by which a candidate with less scratch may be slower and still win.

Any value from 1000 to 10000 explains all choices in the data of benchmarks/fragile.py.
"""
SURE: Final = 1.156
"""The smallest ratio of times of a stable choice, idle or under load; fitted by
benchmarks/fragile.py."""


@dataclass(frozen=True, slots=True)
class Best:
    """The best candidate of a backend."""

    backend: str
    nanoseconds: int
    scratch_bytes: int
    samples: int
    """The number of the backend's timed candidates."""

    def __str__(self) -> str:
        return (
            f"{self.backend} ({microseconds(self.nanoseconds)}, {counted(self.samples, 'sample')})"
        )


@dataclass(frozen=True, slots=True)
class Contest:
    """The winning backend of an instruction, and the rival most likely to win next time."""

    winner: Best
    rival: Best

    @property
    def handicap(self) -> int:
        """The penalty on the rival's time for its scratch memory, in nanoseconds."""
        more = self.rival.scratch_bytes - self.winner.scratch_bytes
        # XLA only compares scratch sizes: the window does not depend on the difference.
        return SCRATCH_WINDOW * ((more > 0) - (more < 0))

    @property
    def margin(self) -> int:
        """The lead in nanoseconds, including the handicap; XLA's timer has steps of 32 ns."""
        return self.rival.nanoseconds + self.handicap - self.winner.nanoseconds

    @property
    def ratio(self) -> float:
        """The lead as a ratio of times: 1.25 if the rival took a quarter longer."""
        return 1 + self.margin / self.winner.nanoseconds


@dataclass(frozen=True, slots=True)
class Fragile:
    """A tuned instruction whose backend may differ in another run."""

    instruction: str
    """The instruction's name; empty if the log does not state it."""
    fingerprint: str
    """The `hlo_fingerprint`; empty in logs of old releases."""
    contest: Contest
    span: Span
    """The instruction's record in the log."""
    sure: float = SURE
    """The smallest ratio of times of a stable choice."""

    @property
    def subject(self) -> str:
        """The instruction's name, fingerprint, or both, as in the log."""
        return _subject(self.instruction, self.fingerprint)

    @property
    def reason(self) -> str:
        """The message: why the choice may change, with the numbers."""
        contest = self.contest
        winner, rival = contest.winner, contest.rival
        lead = (
            f"by {contest.margin} ns of {microseconds(winner.nanoseconds)}"
            if contest.margin > 0
            else "only by its place in the list"
        )
        return (
            f"the autotuner's choice for {self.subject} may change from run to run: "
            f"{winner} beat {rival} {lead}{_scratch(contest)}, but each candidate is timed once "
            f"and a lead below {self.sure - 1:.0%} is not stable{_inequality(winner, rival)}"
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """Ways to make the choice the same in every run, the safest first."""
        backends = {self.contest.winner.backend, self.contest.rival.backend}
        return (
            "pin it: --xla_gpu_dump_autotune_results_to=FILE.pbtxt once, on an idle GPU, then "
            "--xla_gpu_load_autotune_results_from=FILE.pbtxt in every run",
            *(
                ("compare fairly: --xla_gpu_blas_max_algorithms=1 gives cuBLASLt a single try",)
                if backends & _CUBLASLT
                else ()
            ),
            "time it again on an idle GPU and compare the two logs",
        )


_CUBLASLT: Final = frozenset({"CUBLASLT", "CUBLASLT_FISSION"})


@dataclass(frozen=True, slots=True)
class Win:
    """The winning backend of an instruction in a run."""

    log: int
    backend: str
    nanoseconds: int
    span: Span


@dataclass(frozen=True, slots=True)
class ChangedWinner:
    """An instruction whose winning backend differs between runs."""

    instruction: str
    fingerprint: str
    wins: tuple[Win, ...]

    @property
    def reason(self) -> str:
        """The message: the number of wins by backend."""
        wins = Counter(win.backend for win in self.wins).most_common()
        return (
            f"{_subject(self.instruction, self.fingerprint)} got different backends in "
            f"{len(self.wins)} runs: {', '.join(f'{name} in {times}' for name, times in wins)}"
        )


def fragile(log: Autotuning, sure: float = SURE) -> tuple[Fragile, ...]:
    """The instructions of a log whose backend may differ in another run.

    `sure` is the smallest ratio of times of a stable choice.
    """
    return tuple(
        Fragile(tuned.name, tuned.fingerprint, contest, tuned.span, sure)
        for tuned, contest in contests(log)
        if contest.ratio < sure
    )


def contests(log: Autotuning) -> Iterator[tuple[TunedInstruction, Contest]]:
    """The instructions of a log for which at least two backends were timed."""
    for tuned in log.instructions:
        contest = contest_of(tuned)
        if contest is not None:
            yield tuned, contest


def contest_of(tuned: TunedInstruction) -> Contest | None:
    """The contest for an instruction; None if fewer than two backends were timed."""
    won = chosen(tuned)
    backends = tuned.backends
    if won is None or len(backends) < 2:
        return None
    bests = [
        Best(
            candidate.backend,
            candidate.nanoseconds or 0,
            candidate.scratch_bytes,
            len(backends[candidate.backend]),
        )
        for candidate in tuned.candidates
        if candidate is won or (not candidate.failed and candidate.backend != won.backend)
    ]
    winner = next(best for best in bests if best.backend == won.backend)
    # The rival is the backend that would win after the smallest change of times.
    against = (Contest(winner, rival) for rival in bests if rival is not winner)
    return min(against, key=lambda contest: contest.margin)


def chosen(tuned: TunedInstruction) -> Candidate | None:
    """The candidate that XLA picks; None if all failed."""
    fastest = tuned.fastest
    if fastest is None:
        return None
    # config_selector.cc: within the window, the least scratch, then the least time.
    limit = (fastest.nanoseconds or 0) + SCRATCH_WINDOW
    return min(
        (
            candidate
            for candidate in tuned.candidates
            if not candidate.failed and (candidate.nanoseconds or 0) <= limit
        ),
        key=lambda candidate: (candidate.scratch_bytes, candidate.nanoseconds or 0),
    )


def changed_winners(logs: Iterable[Autotuning]) -> tuple[ChangedWinner, ...]:
    """The instructions whose winning backend differs between runs of the same program.

    A log may have several runs, since XLA appends to the file: a repeated fingerprint is from
    another process, because the autotuner caches within a process. Logs of old releases have no
    fingerprints: there the name identifies an instruction, and the last entry in a log counts.
    Different devices are not compared: their choices are expected to differ.
    """
    by_fingerprint: dict[tuple[str, str], list[tuple[TunedInstruction, Win]]] = defaultdict(list)
    for number, log in enumerate(logs):
        named = {}
        for tuned in log.instructions:
            won = chosen(tuned)
            if won is None:
                continue
            win = Win(number, won.backend, won.nanoseconds or 0, tuned.span)
            if tuned.fingerprint:
                by_fingerprint[tuned.device, tuned.fingerprint].append((tuned, win))
            elif tuned.name:
                named[tuned.device, tuned.name] = (tuned, win)
        for key, last in named.items():
            by_fingerprint[key].append(last)
    return tuple(
        ChangedWinner(runs[0][0].name, runs[0][0].fingerprint, tuple(win for _, win in runs))
        for runs in by_fingerprint.values()
        if len({win.backend for _, win in runs}) > 1
    )


def microseconds(nanoseconds: int) -> str:
    """Format a time in microseconds.

    >>> microseconds(3648)
    '3.65 us'
    """
    return f"{nanoseconds / 1000:.2f} us"


def _subject(instruction: str, fingerprint: str) -> str:
    name = f"%{instruction}" if instruction else ""
    key = f"(hlo_fingerprint {fingerprint})" if fingerprint else ""
    return " ".join(filter(None, (name, key))) or "an instruction without a name"


def _scratch(contest: Contest) -> str:
    if not contest.handicap:
        return ""
    least = min(contest.winner, contest.rival, key=lambda best: best.scratch_bytes)
    return f" ({least.backend} needs less scratch, which XLA counts as {SCRATCH_WINDOW} ns)"


def _inequality(winner: Best, rival: Best) -> str:
    if winner.samples <= rival.samples:
        return ""
    return (
        f"; the minimum of {counted(winner.samples, 'sample')} is low by chance more often than "
        f"{'a single sample' if rival.samples == 1 else f'that of {rival.samples}'}"
    )
