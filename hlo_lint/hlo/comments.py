"""Comments of HLO, as XLA's lexer skips them: `/* … */`, or `// …` to the end of the line."""

from __future__ import annotations

from typing import Final

from hlo_lint.text.patterns import late

COMMENT: Final = r"(?s:/\*.*?\*/)|//[^\n\r]*+"
"""A pattern; put it into a group of its own."""
BLANK: Final = rf"(?:\s++|{COMMENT})*+"
"""White space and comments, as many as there are."""

_comment = late(COMMENT)


def without_comments(text: str) -> str:
    """The text without its comments.

    >>> without_comments("/*index=5*/%p, 3 // the last")
    '%p, 3 '
    """
    return _comment.sub("", text) if "/" in text else text
