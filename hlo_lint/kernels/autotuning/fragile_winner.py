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
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from hlo_lint.dumps.artefacts.autotune import Autotuning, Candidate, TunedInstruction
from hlo_lint.text.phrases import counted

SCRATCH_WINDOW: Final = 2000
"""The time in nanoseconds by which a candidate with less scratch may be slower and still win.

Any value from 1000 to 10000 explains all choices in the data of benchmarks/fragile.py.
"""
SURE: Final = 1.156
"""The smallest ratio of times of a stable choice, idle or under load; fitted by
benchmarks/fragile.py."""


@dataclass(frozen=True, slots=True)
class Contest:
    """The winner of an instruction, and the other backend's candidate most likely to win next."""

    winner: Candidate
    rival: Candidate

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

    tuned: TunedInstruction
    contest: Contest
    sure: float
    """The smallest ratio of times of a stable choice."""

    @property
    def reason(self) -> str:
        """The message: why the choice may change, with the numbers."""
        contest = self.contest
        winner, rival = contest.winner, contest.rival
        samples = Counter(candidate.backend for candidate in self.tuned.timed)
        beat = " beat ".join(
            f"{candidate.backend} ({microseconds(candidate.nanoseconds)}, "
            f"{counted(samples[candidate.backend], 'sample')})"
            for candidate in (winner, rival)
        )
        lead = (
            f"by {contest.margin} ns of {microseconds(winner.nanoseconds)}"
            if contest.margin > 0
            else "only by its place in the list"
        )
        return (
            f"the autotuner's choice for {subject_of(self.tuned)} may change from run to run: "
            f"{beat} {lead}{_scratch(contest)}, but each candidate is timed once and a lead below "
            f"{self.sure - 1:.0%} is not stable"
            f"{_inequality(samples[winner.backend], samples[rival.backend])}"
        )

    @property
    def advice(self) -> tuple[str, ...]:
        """Ways to make the choice the same in every run, the safest first."""
        pin = (
            "pin it: --xla_gpu_dump_autotune_results_to=FILE.pbtxt once, on an idle GPU, then "
            "--xla_gpu_load_autotune_results_from=FILE.pbtxt in every run"
        )
        fair = "compare fairly: --xla_gpu_blas_max_algorithms=1 gives cuBLASLt a single try"
        again = "time it again on an idle GPU and compare the two logs"
        backends = {self.contest.winner.backend, self.contest.rival.backend}
        return (pin, fair, again) if backends & _CUBLASLT else (pin, again)


_CUBLASLT: Final = frozenset({"CUBLASLT", "CUBLASLT_FISSION"})


class Win(NamedTuple):
    """The winner of an instruction in a run."""

    log: int
    """The number of the log, from 0."""
    tuned: TunedInstruction
    candidate: Candidate


@dataclass(frozen=True, slots=True)
class ChangedWinner:
    """An instruction whose winning backend differs between runs."""

    wins: tuple[Win, ...]

    @property
    def tuned(self) -> TunedInstruction:
        """The instruction in the first run."""
        return self.wins[0].tuned

    @property
    def reason(self) -> str:
        """The message: the number of wins by backend."""
        wins = Counter(win.candidate.backend for win in self.wins).most_common()
        return (
            f"{subject_of(self.tuned)} got different backends in {len(self.wins)} runs: "
            f"{', '.join(f'{name} in {times}' for name, times in wins)}"
        )


def fragile(log: Autotuning, sure: float = SURE) -> tuple[Fragile, ...]:
    """The instructions of a log whose backend may differ in another run.

    `sure` is the smallest ratio of times of a stable choice.
    """
    return tuple(
        Fragile(tuned, contest, sure)
        for tuned in log.instructions
        if (contest := contest_of(tuned)) is not None and contest.ratio < sure
    )


def contest_of(tuned: TunedInstruction) -> Contest | None:
    """The contest for an instruction; None if fewer than two backends were timed."""
    winner = chosen(tuned)
    if winner is None:
        return None
    contests = (Contest(winner, rival) for rival in tuned.timed if rival.backend != winner.backend)
    # The rival is the candidate that would win after the smallest change of times.
    return min(contests, key=lambda contest: contest.margin, default=None)


def chosen(tuned: TunedInstruction) -> Candidate | None:
    """The candidate that XLA picks; None if all failed."""
    fastest = tuned.fastest
    if fastest is None:
        return None
    # config_selector.cc: within the window, the least scratch, then the least time.
    limit = fastest.nanoseconds + SCRATCH_WINDOW
    return min(
        (candidate for candidate in tuned.timed if candidate.nanoseconds <= limit),
        key=lambda candidate: (candidate.scratch_bytes, candidate.nanoseconds),
    )


def changed_winners(logs: Iterable[Autotuning]) -> tuple[ChangedWinner, ...]:
    """The instructions whose winning backend differs between runs of the same program.

    A log may have several runs, since XLA appends to the file: a repeated fingerprint is from
    another process, because the autotuner caches within a process. Logs of old releases have no
    fingerprints: there the name identifies an instruction, and the last entry in a log counts.
    Different devices are not compared: their choices are expected to differ.
    """
    wins: dict[tuple[str, str], list[Win]] = defaultdict(list)
    """By the device, and the fingerprint or name of the instruction."""
    for number, log in enumerate(logs):
        named = {}
        for tuned in log.instructions:
            winner = chosen(tuned)
            if winner is None:
                continue
            win = Win(number, tuned, winner)
            if tuned.fingerprint:
                wins[tuned.device, tuned.fingerprint].append(win)
            elif tuned.name:
                named[tuned.device, tuned.name] = win
        for key, last in named.items():
            wins[key].append(last)
    return tuple(
        ChangedWinner(tuple(runs))
        for runs in wins.values()
        if len({win.candidate.backend for win in runs}) > 1
    )


def microseconds(nanoseconds: int) -> str:
    """Format a time in microseconds.

    >>> microseconds(3648)
    '3.65 us'
    """
    return f"{nanoseconds / 1000:.2f} us"


def subject_of(tuned: TunedInstruction) -> str:
    """The instruction's name, fingerprint, or both, as in the log."""
    name = f"%{tuned.name}" if tuned.name else ""
    key = f"(hlo_fingerprint {tuned.fingerprint})" if tuned.fingerprint else ""
    return " ".join(filter(None, (name, key))) or "an instruction without a name"


def _scratch(contest: Contest) -> str:
    if not contest.handicap:
        return ""
    least = min(contest.winner, contest.rival, key=lambda candidate: candidate.scratch_bytes)
    return f" ({least.backend} needs less scratch, which XLA counts as {SCRATCH_WINDOW} ns)"


def _inequality(samples: int, of_rival: int) -> str:
    if samples <= of_rival:
        return ""
    return (
        f"; the minimum of {counted(samples, 'sample')} is low by chance more often than "
        f"{'a single sample' if of_rival == 1 else f'that of {of_rival}'}"
    )
