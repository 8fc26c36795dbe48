"""Search for the smallest text, with coarse chunks of changes first, then finer ones (ddmin).

A `Draft` is the module reduced so far. A transformation lists its targets in a draft, and returns
the draft with a chunk of them changed. The test of interest decides if a text still shows the
problem, and gives its anchor: the computation and the instruction.

A test may be slow, so several candidates are tested at once. The first interesting candidate in
order is taken, so the result does not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from hlo_lint.engine.reduce.draft import Draft, swept
from hlo_lint.engine.reduce.interest import InterestTest, InterestVerdict
from hlo_lint.engine.reduce.transformations import COARSE, FINE, LAST
from hlo_lint.engine.reduce.transformations.base import ReductionTarget, Transformation
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.errors import UsageError, os_errors_as
from hlo_lint.text.files import write
from hlo_lint.text.source import decode, encode

MAX_ROUNDS = 20
"""Each round tries every transformation; a round that changes nothing is the last."""

ReductionProgress = Callable[[str, int, int, int], None]
"""Called with a transformation, the instructions and characters left, and the number of tests."""


@dataclass
class Reduction:
    """The result of a search."""

    text: str
    before: Draft
    after: Draft
    tests: int
    """The number of times the test ran."""
    anchor: tuple[str, str] | None
    """The computation and the instruction at which the problem shows, if that is known."""


@dataclass
class Search:
    """A search for the smallest text for which `test` is true."""

    test: InterestTest
    accepts: Callable[[str], bool]
    """True for texts that XLA's parser reads."""
    jobs: int = 1
    """The number of concurrent tests."""
    repeat: int = 1
    """The most runs of the test for a text; a single one has to show the problem."""
    progress: ReductionProgress = lambda *_: None
    state: Path | None = None
    """A file for the smallest text so far; a later search begins with it."""
    tests: int = 0
    _verdicts: dict[bytes, InterestVerdict] = field(default_factory=dict)

    def run(self, text: str, comments: str = "") -> Reduction:
        """The smallest interesting text found.

        Raises:
            UsageError: the text is not interesting, or no longer so when it is reprinted; or the
                state file does not show the problem.
            DumpError: the state file cannot be read or written.
        """
        is_read = self.accepts(text)
        if not is_read:
            self.accepts = lambda _: True  # XLA's refusal may be the problem
        if not self._judge(text).interesting:
            raise UsageError("the input does not show the problem: the test of interest is false")
        before = Draft.of(parse_file(text).modules[0], comments)
        verdict = self._judge(before.text)
        if not verdict.interesting:
            raise UsageError(
                "the problem depends on the spelling of the text: the reprinted module does not "
                "show it"
            )
        current = before
        if self.state is not None and self.state.exists():
            with os_errors_as(f"{self.state}"):
                kept = decode(self.state.read_bytes())
            modules = parse_file(kept).modules
            if modules:
                current = Draft.of(modules[0], comments)
                verdict = self._judge(current.text)
            if not modules or not verdict.interesting:
                raise UsageError(f"{self.state} does not show the problem; remove it")
        with ThreadPoolExecutor(self.jobs) as self._pool:
            current, verdict = self._reduced(current, verdict)
        return Reduction(current.text, before, current, self.tests, verdict.anchor)

    def _reduced(self, current: Draft, verdict: InterestVerdict) -> tuple[Draft, InterestVerdict]:
        for group in (COARSE, (*COARSE, *FINE), LAST):
            for _ in range(MAX_ROUNDS if group is not LAST else 1):
                start = current.text
                for transformation in group:
                    current, verdict = self._apply(transformation, current, verdict)
                if current.text == start:
                    break
        return current, verdict

    def _apply(
        self, transformation: Transformation, current: Draft, verdict: InterestVerdict
    ) -> tuple[Draft, InterestVerdict]:
        """The draft after all possible changes by a transformation."""
        targets = list(transformation.targets(current, verdict.anchor))
        size = 1 if transformation.alternatives else len(targets)
        while size and targets:
            start = 0
            while start < len(targets):
                chunks = [
                    targets[begin : begin + size]
                    for begin in range(start, min(len(targets), start + size * self.jobs), size)
                ]
                taken = self._first(transformation, current, chunks)
                if taken is None:
                    start += size * len(chunks)
                    continue
                number, current, verdict = taken
                if self.state is not None:
                    write(self.state, current.text)
                self.progress(transformation.name, current.size, len(current.text), self.tests)
                if transformation.alternatives:
                    return current, verdict
                start += size * number
                # Targets that the change left unused are gone, too. Those before `start` were
                # tried in vain.
                gone = set(targets[start : start + size])
                left = set(transformation.targets(current, verdict.anchor)) - gone
                passed = sum(target in left for target in targets[:start])
                targets = [target for target in targets if target in left]
                start = passed
            size = 0 if size == 1 else (size + 1) // 2
            size = min(size, len(targets))
        return current, verdict

    def _first(
        self,
        transformation: Transformation,
        current: Draft,
        chunks: Sequence[list[ReductionTarget]],
    ) -> tuple[int, Draft, InterestVerdict] | None:
        """The first chunk whose change keeps the problem, with the changed draft."""
        pending: list[tuple[int, Draft, Future[InterestVerdict] | None]] = []
        for number, chunk in enumerate(chunks):
            changed = transformation.apply(current, chunk)
            if changed is None:
                continue
            candidate = swept(changed, current, wholly=transformation.sweeps)
            if candidate.text == current.text:
                continue
            future = self._pool.submit(self._judge, candidate.text) if self.jobs > 1 else None
            pending.append((number, candidate, future))
        taken = None
        for number, candidate, future in pending:
            if taken is not None:
                break
            verdict = self._judge(candidate.text) if future is None else future.result()
            self.progress(transformation.name, current.size, len(current.text), self.tests)
            if verdict.interesting:
                taken = number, candidate, verdict
        for _, _, future in pending:
            if future is not None:
                future.cancel()
        return taken

    def _judge(self, text: str) -> InterestVerdict:
        """The verdict on a text, cached if it was tested before."""
        digest = sha256(encode(text)).digest()
        verdict = self._verdicts.get(digest)
        if verdict is None:
            verdict = InterestVerdict(False)
            for _ in range(self.repeat):
                self.tests += 1
                verdict = self.test(text)
                if verdict.interesting:
                    break
            if verdict.interesting and not self.accepts(text):
                verdict = InterestVerdict(False)
            self._verdicts[digest] = verdict
        return verdict
