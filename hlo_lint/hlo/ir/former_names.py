"""Former names of properties, which can be read for one more release."""

from __future__ import annotations

import warnings
from typing import Any


def renamed(former: str, name: str, call: bool = False) -> Any:
    """A property of a former name: it reads the new one, and warns for one release."""

    def read(self: object) -> object:
        message = f"{type(self).__name__}.{former} is {name}{'()' * call}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return getattr(self, name)

    return property(read)
