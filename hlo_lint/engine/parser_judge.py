"""XLA's parser as a judge of files: the reasons why it refuses one, and where in the file."""

from __future__ import annotations

import atexit
import re
from functools import cache, partial
from pathlib import Path
from typing import Final

from hlo_lint.hlo.ir import HloFile, Module
from hlo_lint.rules.base import ParserVerdict
from hlo_lint.text.source import ParseDiagnostic, ParseError, Position
from hlo_lint.xla.child import Pool
from hlo_lint.xla.environments import Platform, environment_of
from hlo_lint.xla.parser import XlaParser, XlaRefusal

_word = re.compile(r"[%\w.\-]+|\S|$").search
_ABOUT_THIS: Final = ("computation already", "expects name", "expects only", "instruction", "one ")
"""Beginnings of messages about the instruction at whose begin XLA stops. Others are about the one
before it: XLA makes an instruction when it has read all of it, and the next token."""


class ParserJudge:
    """XLA's parser of one release: a thread asks one child about all its files."""

    def __init__(self, python: Path | None = None) -> None:
        self._parsers = Pool(partial(XlaParser, python))
        atexit.register(self._parsers.close)

    def verdict(self, file: HloFile) -> ParserVerdict:
        """The verdict on a file, of which each module is read by itself.

        Raises:
            UsageError, DumpError: there is no jaxlib.
        """
        refusals: list[ParseDiagnostic] = []
        with self._parsers.one() as parser:
            for module in file.modules:
                refusal = parser.refusal(module.text)
                if refusal is not None:
                    refusals.append(file.lines.diagnostic(_error(refusal, module)))
            return ParserVerdict(file, parser.release, tuple(refusals))


@cache
def judge_of(release: str) -> ParserJudge:
    """The judge of this process with a release of jax; of an empty one, with that of this Python.

    Raises:
        UsageError, CaptureError: there is no such release, or no environment can be made for it.
    """
    python = environment_of(release, platform=Platform.CPU).path if release else None
    return ParserJudge(python)


def _error(refusal: XlaRefusal, module: Module) -> ParseError:
    """A refusal with its place in the file: a word, or the instruction that XLA could not make."""
    lines, begin = module.file.lines, module.start
    if refusal.line is None or refusal.column is None:
        start = max(module.text.find(module.header), 0)
        return ParseError(refusal.message, begin + start, begin + start + len(module.header))
    first = lines.position(begin).line - 1
    at = min(lines.offset(Position(first + refusal.line, refusal.column)), len(lines.text))
    if not refusal.message.startswith(_ABOUT_THIS):
        before = [span for span in map(module.span, module.instructions()) if span.start < at]
        last = max(before, default=None)
        if last is not None and last.end <= at and not lines.text[last.end : at].strip():
            return ParseError(refusal.message, *last)
    word = _word(lines.text, at)
    return ParseError(refusal.message, *(word.span() if word else (at, at)))
