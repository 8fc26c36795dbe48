"""The exceptions that this package raises.

HloLintError
├── HloSyntaxError   text that is not HLO, where the caller asked to be told (`strict=True`)
├── DumpError        a path that cannot be read, or not as what it should be
├── PayloadError     what a custom call carries is not what it promises
├── CaptureError     a program that could not even be handed to the compiler
├── UsageError       an unknown rule or pass; says which ones there are
├── ConfigError      settings that cannot be used: file, line, what to write instead
├── RewriteError     a change of a module that XLA would refuse
└── RuleError        a rule that is wrong about itself
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from hlo_lint.text.source import Position, shown


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that made an exception be raised, if one did.

    Up to Python 3.11, one that comes while a class is made is the cause of a RuntimeError.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error


class HloLintError(Exception):
    """Everything this package raises on purpose."""


class HloSyntaxError(HloLintError):
    """Text that is not HLO: where, and what was expected."""

    def __init__(self, message: str, at: Position, *, text: str, path: Path | None = None) -> None:
        self.message = message
        self.line, self.column = at
        self.path = path
        place = f"{path or '<text>'}:{self.line}:{self.column}"
        line = shown(text.split("\n")[self.line - 1])[:200]
        super().__init__(f"{place}: {message}\n{line}\n{' ' * min(self.column - 1, 200)}^")


class DumpError(HloLintError):
    """A path that cannot be read, or not as what it should be; says what to do."""


class PayloadError(HloLintError):
    """A payload that is not what its carrier promises: what was expected, and where."""

    def __init__(
        self, message: str, offset: int | None = None, unit: Literal["byte", "character"] = "byte"
    ) -> None:
        self.message = message
        self.offset = offset
        """Bytes of the message, or characters of the `backend_config`; None where no place is."""
        self.unit = unit
        super().__init__(message if offset is None else f"{unit} {offset}: {message}")


class UsageError(HloLintError):
    """A name that nothing has: a rule, a pass. Says which there are."""


class ConfigError(HloLintError):
    """Settings that cannot be used: the file, the line, and what may stand there."""


class CaptureError(HloLintError):
    """A program that could not be handed to the compiler: what failed, and where."""


class RewriteError(HloLintError):
    """A change of a module that XLA would refuse: which instruction, and why."""


class RuleError(HloLintError):
    """A rule that is wrong about itself: two of one name, no example."""


@contextmanager
def os_errors_as(
    message: str, error_class: type[Exception] = DumpError, *also: type[Exception]
) -> Iterator[None]:
    """Raise an OSError, or another error, of the block as `error_class`, after `message`."""
    causes: tuple[type[Exception], ...] = (OSError, *also)
    try:
        yield
    except causes as error:
        raise error_class(f"{message}: {getattr(error, 'strerror', None) or error}") from error


def nearest(
    name: str, candidates: Iterable[str], otherwise: str = "", *, cutoff: float = 0.5
) -> str:
    """The end of a sentence about a name that nothing has.

    Where nothing is near, `otherwise`, else all there are.

    >>> nearest("ignroe", ["select", "ignore"]), nearest("ad", ["add", "pad"])
    ('did you mean ignore?', 'did you mean add?')
    """
    from difflib import SequenceMatcher, get_close_matches

    def likeness(candidate: str) -> tuple[bool, float, bool]:
        is_same_word = candidate.lower() == name.lower()
        ratio = SequenceMatcher(None, candidate, name).ratio()
        return is_same_word, ratio, candidate[:1] == name[:1]

    names = sorted(candidates)
    near = get_close_matches(name, names, cutoff=cutoff)
    near += [candidate for candidate in names if candidate.lower() == name.lower()]
    if near:
        return f"did you mean {max(near, key=likeness)}?"
    if otherwise:
        return otherwise
    return f"there are {', '.join(names)}" if names else "there are none"
