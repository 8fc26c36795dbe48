"""Regular expressions that are compiled on first use.

Compilation takes longer than most uses, and a check of a small file uses few of the expressions in
the modules that it imports.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast


def late(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """The methods of `re.compile(pattern, flags)`, which runs when one of them is first called.

    >>> is_number = late("[0-9]+").fullmatch
    >>> is_number("12") is not None
    True
    """
    return cast("re.Pattern[str]", _Late(pattern, flags))


class _Late:
    """The methods of a pattern, each a function that compiles it on first use."""

    def __init__(self, pattern: str, flags: int) -> None:
        self._arguments = pattern, flags

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # `search = late(…).search` keeps `call`, so `call` keeps the method that it found.
        method = None

        def call(*given: Any) -> Any:
            nonlocal method
            if method is None:
                method = self.__dict__[name] = getattr(re.compile(*self._arguments), name)
            return method(*given)

        self.__dict__[name] = call
        return call
