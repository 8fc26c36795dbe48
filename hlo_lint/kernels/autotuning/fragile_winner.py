"""Judge from the autotuner's log if its choice of a backend would be made again.

XLA runs every candidate once to warm it up and times ONE more run
(`xla/backends/gpu/autotuner/gpu_profiler.cc:308-338`). It does not simply take the shortest time:
of the candidates within SCRATCH_WINDOW of that it takes the one with the least scratch memory, and
among those alike the fastest (`xla/backends/autotuner/config_selector.cc:43`). cuBLASLt asks for
32 MiB and Triton for none, so between the two a change of the shortest time does not change the
choice until cuBLASLt is a whole window ahead.

A winner is fragile whose lead, reckoned so, is too small a part of its time. How many candidates
each side had tells no more, once scratch is minded: `benchmarks/FRAGILE.md` says how that was
tried, and how well this does.
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
"""Nanoseconds that a candidate may take longer than the fastest and win, for its lesser scratch.

Anything from 1000 to 10000 explains every choice that benchmarks/fragile.py was shown.
"""
SURE: Final = 1.156
"""The quotient from which a lead lasts, alone and under load; benchmarks/fragile.py fits it."""


@dataclass(frozen=True, slots=True)
class Best:
    """The candidate with which one backend takes part in a contest."""

    backend: str
    nanoseconds: int
    scratch_bytes: int
    samples: int
    """The backend's candidates that were timed."""
    failures: int
    """Its candidates that were tried and not timed."""

    def __str__(self) -> str:
        return (
            f"{self.backend} ({microseconds(self.nanoseconds)}, {counted(self.samples, 'sample')})"
        )


@dataclass(frozen=True, slots=True)
class Contest:
    """The backend that won an instruction, and the one most likely to win it the next time."""

    winner: Best
    rival: Best

    @property
    def handicap(self) -> int:
        """The penalty, in nanoseconds, that the rival's scratch memory adds to its time."""
        more = self.rival.scratch_bytes - self.winner.scratch_bytes
        # The window counts once, however much more scratch the rival wants: XLA compares, it does
        # not weigh.
        return SCRATCH_WINDOW * ((more > 0) - (more < 0))

    @property
    def margin(self) -> int:
        """The lead in nanoseconds, handicap included; XLA's timer counts in steps of 32."""
        return self.rival.nanoseconds + self.handicap - self.winner.nanoseconds

    @property
    def ratio(self) -> float:
        """The lead as a quotient: 1.25 where the rival took a quarter longer."""
        return 1 + self.margin / self.winner.nanoseconds


@dataclass(frozen=True, slots=True)
class Fragile:
    """A tuned instruction whose backend another run would choose differently."""

    instruction: str
    """Empty where the log does not name it."""
    fingerprint: str
    """`hlo_fingerprint`; empty in logs of old releases."""
    contest: Contest
    span: Span
    """The instruction's record in the log."""
    sure: float = SURE
    """The quotient from which a lead would last."""

    @property
    def subject(self) -> str:
        """The instruction as the log spells it: by name, by fingerprint, or both."""
        return _subject(self.instruction, self.fingerprint)

    @property
    def reason(self) -> str:
        """The reason why the choice may not last, with the numbers."""
        contest = self.contest
        winner, rival = contest.winner, contest.rival
        lead = (
            f"by {contest.margin} ns of {microseconds(winner.nanoseconds)}"
            if contest.margin > 0
            else "by its place in the list alone"
        )
        return (
            f"the autotuner's choice for {self.subject} may change from run to run: "
            f"{winner} beat {rival} {lead}{_scratch(contest)}, where each candidate is timed once "
            f"and a lead below {self.sure - 1:.0%} does not last{_inequality(winner, rival)}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Further facts from the log."""
        return tuple(
            f"{failed} of {best.backend} failed: the time is the best of the other {best.samples}"
            for best in (self.contest.winner, self.contest.rival)
            if best.failures
            for failed in [f"{best.failures} of {best.failures + best.samples} candidates"]
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """Measures that make the choice the same in every run, the surest first."""
        backends = {self.contest.winner.backend, self.contest.rival.backend}
        return (
            "pin it: --xla_gpu_dump_autotune_results_to=FILE.pbtxt once, on an idle GPU, then "
            "--xla_gpu_load_autotune_results_from=FILE.pbtxt in every run",
            *(
                ("compare like with like: --xla_gpu_blas_max_algorithms=1 gives cuBLASLt one try",)
                if backends & _CUBLASLT
                else ()
            ),
            "time it again alone: compile with nothing else on the GPU and compare the two logs",
        )


_CUBLASLT: Final = frozenset({"CUBLASLT", "CUBLASLT_FISSION"})


@dataclass(frozen=True, slots=True)
class Win:
    """The backend that won an instruction in one run."""

    log: int
    """Index of the log among those given."""
    backend: str
    nanoseconds: int
    span: Span
    """The instruction's record in that log."""


@dataclass(frozen=True, slots=True)
class ChangedWinner:
    """An instruction that one run gave to one backend and another run to another."""

    instruction: str
    fingerprint: str
    wins: tuple[Win, ...]
    """In the order of the logs."""

    @property
    def reason(self) -> str:
        """Number of wins by backend."""
        wins = Counter(win.backend for win in self.wins).most_common()
        return (
            f"{_subject(self.instruction, self.fingerprint)} was given different backends in "
            f"{len(self.wins)} runs: {', '.join(f'{name} in {times}' for name, times in wins)}"
        )


def fragile(log: Autotuning, sure: float = SURE) -> tuple[Fragile, ...]:
    """The instructions of one log that another run might give another backend.

    `sure` is the quotient from which a lead lasts.
    """
    return tuple(
        Fragile(tuned.name, tuned.fingerprint, contest, tuned.span, sure)
        for tuned, contest in contests(log)
        if contest.ratio < sure
    )


def contests(log: Autotuning) -> Iterator[tuple[TunedInstruction, Contest]]:
    """Every instruction of a log for which two backends or more were timed."""
    for tuned in log.instructions:
        contest = contest_of(tuned)
        if contest is not None:
            yield tuned, contest


def contest_of(tuned: TunedInstruction) -> Contest | None:
    """The contest for one instruction; None where one backend had it to itself."""
    won = chosen(tuned)
    backends = tuned.backends
    if won is None or len(backends) < 2:
        return None
    failed = Counter(candidate.backend for candidate in tuned.candidates if candidate.failed)
    bests = [
        Best(
            candidate.backend,
            candidate.nanoseconds or 0,
            candidate.scratch_bytes,
            len(backends[candidate.backend]),
            failed[candidate.backend],
        )
        for candidate in tuned.candidates
        if candidate is won or (not candidate.failed and candidate.backend != won.backend)
    ]
    winner = next(best for best in bests if best.backend == won.backend)
    # The rival is whichever backend would win with the smallest change of times.
    against = (Contest(winner, rival) for rival in bests if rival is not winner)
    return min(against, key=lambda contest: contest.margin)


def chosen(tuned: TunedInstruction) -> Candidate | None:
    """The candidate that XLA takes; None where all failed."""
    fastest = tuned.fastest
    if fastest is None:
        return None
    # config_selector.cc: of those within the window the least scratch, then the least time.
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

    One log may hold several runs, since XLA appends to the file: a fingerprint that comes again is
    another process, as within one the autotuner remembers. Logs of old releases have no
    fingerprints; there the name stands for it, and of several alike in a log the last counts.
    Other devices are not compared: they are expected to differ.
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
    """As people say it.

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
        f"; the least of {counted(winner.samples, 'sample')} is low by luck more often than "
        f"{'one is' if rival.samples == 1 else f'that of {rival.samples}'}"
    )
