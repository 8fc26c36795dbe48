"""The memo of a run: caches that its compilations share within a process."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Final

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.parser.module import Memo

if TYPE_CHECKING:
    from hlo_lint.engine.verifier import Verifier

FREE_BYTES: Final = 64 << 20
"""Bytes of released dumps after which memory is collected, which takes a tenth of a second."""


class RunMemo:
    """Caches of the compilations so far; another process starts with an empty memo."""

    def __init__(self, verifier: Verifier | None = None) -> None:
        self.parsed: dict[int, Memo] = {}
        """The parser caches of released dumps, by identity."""
        self.released_bytes = 0
        """Bytes of dumps released since the last collection."""
        self._verifier = verifier

    @property
    def verifier(self) -> Verifier:
        """The verifier of the run, imported when a rule asks for violations."""
        if self._verifier is None:
            from hlo_lint.engine.verifier import Verifier

            self._verifier = Verifier()
        return self._verifier

    def __reduce__(self) -> tuple[type[RunMemo], tuple[()]]:
        """Pickle an empty memo."""
        return RunMemo, ()

    def release(self, compilation: Compilation) -> None:
        """Release the text of a compilation, and remember its caches."""
        compilation.release_text()
        self.released_bytes += compilation.size
        memos = (dump.memo for dump in compilation.dumps)
        self.parsed.update((id(memo), memo) for memo in memos if memo is not None)

    def free(self) -> None:
        """Clear the caches of released compilations, if enough bytes were released.

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
        """Drop the verifier's results for the computations of all other files."""
        modules = () if file is None else file.modules
        if self._verifier is not None:
            self._verifier.memo.keep(part for module in modules for part in module.computations)
