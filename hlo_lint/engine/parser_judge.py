"""The verdict of XLA's parser on a file: a reason for each refusal, at its place."""

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
"""Beginnings of messages about the instruction at which XLA stops. Other messages are about the
instruction before: XLA makes an instruction after reading the next token."""


class ParserJudge:
    """XLA's parser of a release; each thread asks a single child about all its files."""

    def __init__(self, python: Path | None = None) -> None:
        self._parsers = Pool(partial(XlaParser, python))
        atexit.register(self._parsers.close)

    def verdict(self, file: HloFile) -> ParserVerdict:
        """The verdict on a file, whose modules are read separately.

        Raises:
            UsageError, DumpError: jaxlib is not installed.
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
    """The judge of this process for a release of jax, or for the installed release if empty.

    Raises:
        UsageError, CaptureError: the release does not exist, or its environment cannot be made.
    """
    python = environment_of(release, platform=Platform.CPU).path if release else None
    return ParserJudge(python)


def _error(refusal: XlaRefusal, module: Module) -> ParseError:
    """A refusal with its place in the file: a word, or the instruction that XLA refused."""
    lines, begin = module.file.lines, module.start
    if refusal.line is None or refusal.column is None:
        start = max(module.text.find(module.header), 0)
        return ParseError(refusal.message, begin + start, begin + start + len(module.header))
    first = lines.position(begin).line - 1
    offset = min(lines.offset(Position(first + refusal.line, refusal.column)), len(lines.text))
    if not refusal.message.startswith(_ABOUT_THIS):
        before = [span for span in map(module.span, module.instructions()) if span.start < offset]
        last = max(before, default=None)
        if last is not None and last.end <= offset and not lines.text[last.end : offset].strip():
            return ParseError(refusal.message, *last)
    word = _word(lines.text, offset)
    return ParseError(refusal.message, *(word.span() if word else (offset, offset)))
