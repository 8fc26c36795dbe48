"""Ask XLA if it reads a text, and how the compilation of a text ends."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hlo_lint.engine.reduce.interest import InterestVerdict, skeleton
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.rules.form.malformed_text import MalformedText
from hlo_lint.xla.child import Pool
from hlo_lint.xla.compiler import Ending, XlaCompiler
from hlo_lint.xla.parser import XlaParser

ONLY_PASSES = "xla_enable_hlo_passes_only"
"""The flag that restricts XLA to the passes of a list."""

_place = re.compile(r"\b([\w./]*?[\w]+\.(?:cc|h)):\d+")
_path = re.compile(r"/[\w./\-]+")


def is_check(ending: Ending) -> bool:
    """True if a check in XLA's code failed and the message gives its line."""
    return ending.crashed and _place.search(ending.message) is not None


def cause_of(ending: Ending) -> str:
    """The cause of an ending: XLA's line of code, or the message without names."""
    place = _place.search(ending.message)
    if place is None:
        # After a name the message repeats the instruction, which is being reduced.
        first = re.split(r"[\n%]", ending.message, maxsplit=1)[0]
        return f"{ending.status}: {skeleton(_path.sub('', first))}"
    stem = place[1].rpartition("/")[2]
    line = place[0].rpartition(":")[2]
    return f"{ending.status}: {stem}:{line}"


class Guard:
    """Accepts texts that XLA's parser reads; without jaxlib, texts without visible errors."""

    def __init__(self, parsers: Pool[XlaParser] | None) -> None:
        self._parsers = parsers

    def __call__(self, text: str) -> bool:
        """True if the text is read."""
        if self._parsers is not None:
            with self._parsers.one() as parser:
                return parser.refusal(text) is None
        return not any(
            module.problems or any(True for _ in MalformedText().check(module))
            for module in parse_file(text).modules
        )


@dataclass(frozen=True)
class CrashTest:
    """A test for a compilation that ends as that of the input does."""

    compiler: XlaCompiler
    target_config: str
    flags: str
    cause: str = ""
    """The cause of the ending to look for; empty if `message` is used."""
    message: str = ""
    """A regular expression for the message."""

    @property
    def key(self) -> str:
        """The cause of the ending, and the flags."""
        return f"{self.cause} {self.message} {self.flags}"

    def ending(self, text: str) -> Ending:
        """The end of the compilation of a text."""
        return self.compiler.compile(text, self.target_config, self.flags)

    def __call__(self, text: str) -> InterestVerdict:
        """The verdict on a text."""
        ending = self.ending(text)
        if not ending.crashed:
            return InterestVerdict(False)
        if self.message:
            return InterestVerdict(re.search(self.message, ending.message) is not None)
        return InterestVerdict(cause_of(ending) == self.cause)
