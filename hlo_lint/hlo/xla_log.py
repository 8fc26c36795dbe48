"""The log that XLA writes to standard error."""

from __future__ import annotations

import re

_fatal = re.compile(r"^[ \t]*F\d{4} \S+ +\d+ (\S+\] .*)", re.A | re.M)


def fatal_messages(log: str) -> list[str]:
    """Absl's fatal messages, in order, without time and process: `shape.cc:12] Check failed: …`."""
    return [message.rstrip() for message in _fatal.findall(log)]
