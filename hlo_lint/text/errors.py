"""The exceptions that this package raises.

HloLintError
├── HloSyntaxError   text that is not HLO, for a caller with `strict=True`
├── DumpError        a path that cannot be read, or has unexpected content
├── PayloadError     a custom call whose payload is malformed
├── CaptureError     a program that could not be passed to the compiler
├── UsageError       an unknown rule or pass; lists the known names
├── ConfigError      invalid settings: file, line, what to write instead
├── RewriteError     a change of a module that XLA would reject
└── RuleError        a rule with an inconsistent definition
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from hlo_lint.text.phrases import in_a_line
from hlo_lint.text.source import Position, shown


def interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """The interrupt that caused an exception, or None.

    Up to Python 3.11, an interrupt during the creation of a class becomes the cause of a
    RuntimeError.
    """
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__
    return error


class HloLintError(Exception):
    """The base of all errors that this package raises on purpose."""

    def __repr__(self) -> str:
        return in_a_line(f"{type(self).__name__}({str(self)!r})")


class HloSyntaxError(HloLintError):
    """Text that is not HLO, with the place and the expectation."""

    def __init__(
        self, message: str, position: Position, *, text: str, path: Path | None = None
    ) -> None:
        self.message = message
        self.line, self.column = position
        self.path = path
        place = f"{path or '<text>'}:{self.line}:{self.column}"
        line = shown(text.split("\n")[self.line - 1])[:200]
        super().__init__(f"{place}: {message}\n{line}\n{' ' * min(self.column - 1, 200)}^")


class DumpError(HloLintError):
    """A path that cannot be read, or has unexpected content; the message gives advice."""


class PayloadError(HloLintError):
    """A malformed payload, with the expectation and the place."""

    def __init__(
        self, message: str, offset: int | None = None, unit: Literal["byte", "character"] = "byte"
    ) -> None:
        self.message = message
        self.offset = offset
        """In bytes of the message, or characters of the `backend_config`; None without a place."""
        self.unit = unit
        super().__init__(message if offset is None else f"{unit} {offset}: {message}")


class UsageError(HloLintError):
    """An unknown name, of a rule or a pass; the message lists the known names."""


class ConfigError(HloLintError):
    """Invalid settings, with the file, the line, and the allowed values."""


class CaptureError(HloLintError):
    """A program that could not be passed to the compiler, with the error and its place."""


class RewriteError(HloLintError):
    """A change of a module that XLA would reject, with the instruction and the reason."""


class RuleError(HloLintError):
    """A rule with an inconsistent definition: a repeated name, no example."""


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
    """The end of a sentence about an unknown name.

    Without a near name it is `otherwise`, else all names.

    >>> nearest("ignroe", ["select", "ignore"]), nearest("ad", ["add", "and", "pad"])
    ('did you mean ignore?', 'did you mean add?')
    >>> nearest("x", ["select"])
    'there is select'
    """
    from difflib import SequenceMatcher, get_close_matches

    def likeness(candidate: str) -> tuple[bool, float, int]:
        is_same_word = candidate.lower() == name.lower()
        ratio = SequenceMatcher(None, candidate, name).ratio()
        prefixes = (candidate[:end] for end in range(len(candidate) + 1))
        return is_same_word, ratio, sum(map(name.startswith, prefixes))

    names = sorted(candidates)
    near = get_close_matches(name, names, n=8, cutoff=cutoff)
    near += [candidate for candidate in names if candidate.lower() == name.lower()]
    if near:
        return f"did you mean {max(near, key=likeness)}?"
    if otherwise:
        return otherwise
    verb = "is" if len(names) == 1 else "are"
    return f"there {verb} {', '.join(names) or 'none'}"
