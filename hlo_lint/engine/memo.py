"""The memo of a run: all that its pipelines share in one process."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

from hlo_lint.dumps.pipeline import Pipeline
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.parser.module import Memo

if TYPE_CHECKING:
    from hlo_lint.engine.verifier import Verifier

FREE_BYTES: Final = 64 << 20
"""Bytes of dumps after which memory is given back: it takes a tenth of a second."""


class RunMemo:
    """The results of the pipelines so far; another process begins with an empty memo."""

    def __init__(self, verifier: Verifier | None = None) -> None:
        self.parsed: dict[int, Memo] = {}
        """The caches that released dumps were read with, by identity."""
        self.released_bytes = 0
        """Bytes of dumps that were released since memory was given back."""
        self._verifier = verifier

    @property
    def verifier(self) -> Verifier:
        """The verifier of the run, imported when a rule asks for violations."""
        if self._verifier is None:
            from hlo_lint.engine.verifier import Verifier

            self._verifier = Verifier()
        return self._verifier

    def __reduce__(self) -> tuple[type[RunMemo], tuple[()]]:
        """Leave the content behind."""
        return RunMemo, ()

    def release(self, pipeline: Pipeline) -> None:
        """Forget what was read of a pipeline."""
        pipeline.release_text()
        self.released_bytes += pipeline.size
        memos = (dump.memo for dump in pipeline.dumps)
        self.parsed.update((id(memo), memo) for memo in memos if memo is not None)

    def free(self) -> None:
        """Now and then, before more is read, forget also what the pipelines of a folder share.

        Modules and their files refer to each other, so that only the collector frees them.
        """
        if self.released_bytes < FREE_BYTES:
            return
        self.released_bytes = 0
        for memo in self.parsed.values():
            memo.clear()
        self.parsed.clear()
        self.keep(None)
        gc.collect()

    def keep(self, file: HloFile | None) -> None:
        """Forget the computations of every other file."""
        modules = () if file is None else file.modules
        if self._verifier is not None:
            self._verifier.memo.keep(part for module in modules for part in module.computations)
