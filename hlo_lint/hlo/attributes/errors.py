"""Errors for a text that is not a value of its attribute."""

from __future__ import annotations

from hlo_lint.hlo.shape import TextError


class AttributeSyntaxError(TextError):
    """A text that is not a value of its attribute."""
