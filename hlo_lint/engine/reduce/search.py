"""Search for the smallest text, with coarse chunks of changes first, then finer ones (ddmin).

A `Draft` is the module reduced so far. A transformation lists its targets in a draft, and returns
the draft with a chunk of them changed. The test of interest decides if a text still shows the
problem, and gives its anchor: the computation and the instruction.

A test may be slow, so several candidates are tested at once. The first interesting candidate in
order is taken, so the result does not depend on timing. Verdicts and the smallest text so far are
written to a state file, from which a later run resumes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import TextIO

from hlo_lint.engine.reduce.draft import Draft, swept
from hlo_lint.engine.reduce.interest import InterestTest, InterestVerdict
from hlo_lint.engine.reduce.transformations import COARSE, FINE, LAST
from hlo_lint.engine.reduce.transformations.base import ReductionTarget, Transformation
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.errors import DumpError, UsageError, os_errors_as
from hlo_lint.text.source import encode

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


class ReductionState:
    """The state file of a reduction: a line of JSON for each verdict and each new text."""

    def __init__(self, path: Path, key: str) -> None:
        self._path, self._key = path, key
        self.verdicts: dict[str, InterestVerdict] = {}
        self.text: str | None = None
        self._file: TextIO | None = None
        self._lock = Lock()

    @contextmanager
    def opened(self, text: str) -> Iterator[None]:
        """Read the state of an earlier run with the same input and test, and append to it.

        Raises:
            UsageError: the file belongs to another input or test.
            DumpError: the file cannot be read or written.
        """
        start = {"input": _digest(text), "test": self._key}
        with os_errors_as(f"{self._path}"):
            size = self._read(start)
            with self._path.open("a", encoding="utf-8") as self._file:
                self._file.truncate(size)
                if not size:
                    self._write(start)
                yield

    def _read(self, start: dict[str, str]) -> int:
        """Read the complete lines of the file, and return their size in bytes."""
        lines = self._path.read_bytes().splitlines(keepends=True) if self._path.exists() else []
        if lines and not f"{json.dumps(start)}\n".encode().startswith(lines[0]):
            raise UsageError(f"{self._path} is the state of another reduction; remove it")
        size = 0
        for line in lines:
            if not line.endswith(b"\n"):
                break  # the earlier run ended while it wrote this line
            try:
                entry = json.loads(line)
            except ValueError as error:
                raise DumpError(f"{self._path}: not the state of a reduction: {error}") from error
            size += len(line)
            if "text" in entry:
                self.text = entry["text"]
            if "verdict" in entry:
                anchor = entry["at"] and tuple(entry["at"])
                self.verdicts[entry["of"]] = InterestVerdict(entry["verdict"], anchor)
        return size

    def judged(self, digest: str, verdict: InterestVerdict) -> None:
        """Write a verdict."""
        self._write({"of": digest, "verdict": verdict.interesting, "at": verdict.anchor})

    def took(self, text: str) -> None:
        """Write the smallest text so far."""
        self._write({"text": text})

    def _write(self, entry: object) -> None:
        assert self._file is not None
        with self._lock:  # tests run in several threads
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()


def _digest(text: str) -> str:
    return sha256(encode(text)).hexdigest()[:32]


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
    state: ReductionState | None = None
    progress: ReductionProgress = lambda *_: None
    extra: Sequence[Transformation] = ()
    """Further transformations for this problem."""
    tests: int = 0
    _verdicts: dict[str, InterestVerdict] = field(default_factory=dict)

    def run(self, text: str, comments: str = "") -> Reduction:
        """The smallest interesting text found.

        Raises:
            UsageError: the text is not interesting, or no longer so when it is reprinted.
        """
        if self.state is None:
            return self._run(text, comments)
        with self.state.opened(text):
            self._verdicts = self.state.verdicts
            return self._run(text, comments)

    def _run(self, text: str, comments: str) -> Reduction:
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
        if self.state is not None and self.state.text is not None:
            current = Draft.of(parse_file(self.state.text).modules[0], comments)
            verdict = self._judge(current.text)
        with ThreadPoolExecutor(self.jobs) as self._pool:
            current, verdict = self._reduced(current, verdict)
        return Reduction(current.text, before, current, self.tests, verdict.anchor)

    def _reduced(self, current: Draft, verdict: InterestVerdict) -> tuple[Draft, InterestVerdict]:
        for group in (COARSE, (*COARSE, *FINE, *self.extra), LAST):
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
                    self.state.took(current.text)
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
        digest = _digest(text)
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
            if self.state is not None:
                self.state.judged(digest, verdict)
        return verdict
