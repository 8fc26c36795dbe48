"""XLA's own parser, of any release of jaxlib, for many texts.

with XlaParser() as parser:
    for text in texts:
        print(parser.release, parser.refusal(text))
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from hlo_lint.text.errors import DumpError, UsageError
from hlo_lint.text.source import decode, encode, shown
from hlo_lint.xla import bindings
from hlo_lint.xla.child import Child, ChildDied, ChildError, logged
from hlo_lint.xla.limits import ChildLimits

MAX_SECONDS: Final = 60.0
"""The time limit per text in seconds, unless the environment sets another."""

_placed = re.compile(r"(\d+):(\d+): (.*)", re.DOTALL).fullmatch


class XlaRefusal(NamedTuple):
    """The reason why XLA rejects a text."""

    message: str
    """XLA's own message; if it aborted or reached a limit, how it ended."""
    line: int | None = None
    """From 1; None if XLA names no place in the text."""
    column: int | None = None
    """From 1, in characters."""

    def __str__(self) -> str:
        return self.message if self.line is None else f"{self.line}:{self.column}: {self.message}"


class XlaParser(Child):
    """XLA's parser in a child process; another takes over after a text that kills it."""

    def __init__(self, python: Path | str | None = None) -> None:
        """`python` is an interpreter with jaxlib; None for the current."""
        limits = ChildLimits.by_default(MAX_SECONDS)
        super().__init__(python, limits=limits, setup=bindings.release, forks="after death")
        self._is_here = python is None

    def start(self) -> None:
        """Start it unless it is running. Raises as `refusal`."""
        try:
            super().start()
        except ChildError as error:
            reason = shown(f"{error}")
            if not self._is_here:
                raise UsageError(f"{self.python} has no jaxlib: {reason}") from None
            raise DumpError(f"pip install 'hlo-lint[xla]' to ask XLA's parser: {reason}") from None
        except ChildDied as death:
            raise DumpError(f"XLA's parser cannot be asked: {death}") from None

    @property
    def release(self) -> str:
        """The release of the jaxlib that answers: "0.10.2". Raises as `refusal`."""
        self.start()
        return str(self.state)

    def refusal(self, text: str) -> XlaRefusal | None:
        """The reason why XLA rejects a text; None if it accepts it.

        Raises:
            DumpError: jaxlib is not installed, or does not survive its start.
            UsageError: the other interpreter cannot be run, or has no jaxlib.
        """
        data = encode(text)
        try:
            self.call(bindings.parsed, data)
        except ChildDied as death:
            return XlaRefusal(f"{death}")
        except ChildError as error:
            message = bindings.xla_message(f"{error}") or error.class_name
            placed = _placed(message)
            if placed is None:
                # The reason of a failed check is only in the log.
                errors = logged(self.log(), "E") if message.endswith(":") else []
                return XlaRefusal(shown(errors[0].partition("] ")[2] if errors else message))
            line, column = int(placed[1]), int(placed[2])
            rows = data.split(b"\n")
            if not (0 < line <= len(rows) and column > 0):
                return XlaRefusal(shown(placed[3]))
            # XLA counts bytes from 1.
            column = len(decode(rows[line - 1][: column - 1])) + 1
            return XlaRefusal(shown(placed[3]), line, column)
        return None
