"""What a payload says when it is broken."""

from __future__ import annotations

from typing import Literal

from hlo_lint.errors import HloLintError


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
