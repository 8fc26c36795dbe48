"""Versions of open texts, each parsed once."""

from __future__ import annotations

import re
from pathlib import Path

from hlo_lint.apps.lsp.texts import Text
from hlo_lint.hlo.ir import HloFile
from hlo_lint.hlo.parser.module import Memo, parse_file
from hlo_lint.hlo.records import SharedLines
from hlo_lint.hlo.symbols import SymbolTable
from hlo_lint.text.source import Span

# Of a comment like `// hlo-lint: allow RULE, FAMILY -- REASON`, the names.
_directive = re.compile(r"(?://|/\*)\s*hlo-lint:\s*\S+\s+(.*?)(?:\s--\s|\s--$|\*/|$)", re.M)
_rule_name = re.compile(r"[a-z][a-z\d]*(?:-[a-z\d]+)*")


class Document(SymbolTable):
    """A version of a text, with its modules."""

    def __init__(self, text: Text, memo: Memo) -> None:
        """Parse the text; lines of the previous version come from `memo`."""
        self.text = text
        is_file = text.uri.startswith("file:") and "\0" not in text.path
        self.file_path = Path(text.path) if is_file else None
        """The file of the text; None if it has no file, or if its path contains a NUL."""
        self.path = self.file_path or Path(text.uri.replace("\0", "%00"))
        super().__init__(parse_file(text.source, self.path, memo))
        _forget_older(memo, self.file)

    def rule_at(self, offset: int) -> tuple[str, Span] | None:
        """The name at a character of a suppression comment, and its span; it may be a rule."""
        directive = _directive.search(self.source, *self.line_at(offset))
        if directive is None:
            return None
        for name in _rule_name.finditer(self.source, directive.start(1), directive.end(1)):
            if name.start() <= offset <= name.end():
                return name[0], Span(*name.span())
        return None


def _forget_older(memo: Memo, file: HloFile) -> None:
    """Drop the entries of previous versions: a memo, made for directories, keeps everything."""
    memo.files.clear()
    computations = {computation for module in file.modules for computation in module.computations}
    memo.latest = {
        word: computation
        for word, computation in memo.latest.items()
        if computation in computations
    }
    if len(memo.lines.rows) > 2 * sum(len(computation.rows) for computation in computations) + 1000:
        memo.lines = SharedLines()
