"""What is said of a text that is no value of its attribute."""

from __future__ import annotations


class AttributeSyntaxError(ValueError):
    """A text that is no value of its attribute; `offset` is where, in characters from its start."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.offset = offset
