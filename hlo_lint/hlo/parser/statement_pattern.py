"""The pattern of one plain statement: an instruction, a head or a closing brace.

Each part of it has two forms, tried one after the other: as most people write it, which means no
more needs to be looked at, and any other, which `plain.py` checks.
"""

from __future__ import annotations

import re
from typing import Final

from hlo_lint.hlo.ir import CALLING_ATTRIBUTES
from hlo_lint.text.patterns import late

# Classes are spelled out: Python tests a class that holds `\\w` or `\\d` in several steps.
# Brackets of any other form are matched roughly, a pair of quotes or braces at a time. A statement
# ends where the next one begins, a comma or an open comment do not follow.
WHITE = r"[ \t\r\n\f\v]"
LEAD = rf"{WHITE}*+(?:/(?:/.*+(?:\n//.*+)*+|\*[^*]*+\*/){WHITE}*+)*+"
WORD = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
COMMENT = r"/\*[^*\n]*+\*/"
# First as if no escape but `\\"` were in it: a string of machine code has thousands of others.
STRING = (
    r'"(?:[^"\n]*+(?:(?<=[^\\]\\)"[^"\n]*+)*+"(?<!\\")'
    r'|[^"\\\n]*+(?:\\.[^"\\\n]*+)*+")'
)
_LONG_STRING = r'"(?:[^"]*+(?:(?<=[^\\]\\)"[^"]*+)*+"(?<!\\")|[^"\\]*+(?:\\(?s:.)[^"\\]*+)*+")'
"""One of several lines, too: a class of one character is read six times as fast as one of two."""
_ARRAY = (
    r"[a-z][a-z0-9]*+\[[0-9, ?]*+(?:<=[0-9, ?]*+)*+\]"
    r"(?:\{(?:[-0-9:?][-0-9,:? ]*+(?:[A-Z]*+\([-0-9,:*A-Z ]*+\))*+)?+\})?+"
)
_SIMPLE_ARRAY = r"[a-z][a-z0-9]*+\[[0-9, ]*+\](?:\{(?:[0-9][0-9,]*+)?+\})?+"
_TUPLE = rf"\((?:{_SIMPLE_ARRAY}(?:, )?+)*+\)"
USUAL_TYPE = rf"(?:{_SIMPLE_ARRAY}|{_TUPLE})"
"""A type as most are written."""
_USUAL_SIGNATURE = rf"\((?:{WORD}: {USUAL_TYPE}(?:, )?+)*+\) -> {USUAL_TYPE}"
CALLS = "|".join(CALLING_ATTRIBUTES)


def _in_pairs(outside: str) -> str:
    """A pattern of text in which parentheses stand in pairs, at most six deep."""
    flat = rf"[^()=<\"'/{outside}]*+"
    comment = COMMENT if outside else rf"{COMMENT}|//.*+"
    pairs = special = rf"(?:<=?|{comment}){flat}"
    for _ in range(5):
        pairs = rf"(?:\({flat}(?:{pairs})*+\){flat}|{special})"
    return rf"{flat}(?:{pairs})*+"


def _attributes(wraps: bool) -> str:
    """A pattern of attributes as most are written: nobody has to look at them again.

    Braces are five deep at most, and `=` is in those of no attribute that calls.
    """
    string = _LONG_STRING if wraps else STRING
    flat = rf"[^(){{}}\[\]\"'/\0{'' if wraps else chr(10)}]++|{string}"
    array = rf"\[(?:{flat})*+\]"
    braces = rf"\{{(?:{flat}|\{{(?:{flat})*+\}}|\((?:{flat})*+\))*+\}}"
    group = rf"\((?:{flat}|{array}|{braces})*+\)"
    inner = rf"{flat}|\((?:{flat}|{array}|{braces}|{group})*+\)|\[(?:{flat}|{array}|{braces})*+\]"
    json = rf"{flat}|\[(?:{flat}|\{{(?:{flat}|{array})*+\}})*+\]"
    deep = rf"\{{(?:{inner}|\{{(?:{json}|\{{(?:{json}|\{{(?:{json})*+\}})*+\}})*+\}})*+\}}"
    values = (
        r"[A-Za-z0-9_.\-:;%#+>?!@$&*\\^`|~]++",
        r"\{[^(){}\[\]\"'/=\0\n]*+\}",
        string,
        rf"{array}(?:<=\[[0-9,]*+\](?:T\([0-9,]*+\))?+)?+",
    )
    deep = rf"(?!(?:{CALLS})=\{{[^}}=\0]*+=){WORD}={deep}"
    blank = WHITE if wraps else r"[ \t]"
    return rf"(?:,{blank}*+(?:{WORD}=(?:{'|'.join(values)})|{deep}))++"


def _any_attributes(wraps: bool) -> str:
    """A pattern of attributes, whatever stands in them, up to the end of the line.

    A line may end after a comma, in brackets, and where the next one is indented.
    """
    flat = braces = rf"[^{{}}\"/']++|{STRING}"
    for _ in range(6):
        braces = rf"{flat}|\{{(?:{braces})*+\}}"
    line_ends = (
        rf"|\n(?=[ \t]++,)|(?<=[,=:])\n|(?<=,[ \t\r])\n|(?<=\{{)\n(?:{braces})*+\}}"
        if wraps
        else ""
    )
    flat = r"[^\n\"'/]*+"
    return rf",{flat}(?:(?:{STRING}|/(?![/*]){line_ends}){flat})*+"


_GAP: Final = r"[ \t\r\n]*+(?<!\n)"
"""Blanks within a statement that goes on in the next line."""
_LINE_END: Final = r"[ \t]*+(?=[\n\r/}]|\Z)"
NEXT: Final = rf"{LEAD}(?![,/#\ufeff])"
"""White space and comments up to the next statement."""


def tail_pattern(wraps: bool) -> str:
    """A pattern of what may follow operands: two groups of attributes, the end of the line."""
    gap = _GAP if wraps else r"[ \t]*+"
    usual, others = _attributes(wraps), _any_attributes(wraps)
    return rf"(?:{_LINE_END}|({usual}){_LINE_END}|{gap}({others}){_LINE_END})"


def statement_pattern(wraps: bool) -> re.Pattern[str]:
    """The pattern of one statement, and of the white space and comments after it."""
    gap = _GAP if wraps else r"[ \t]*+"
    inside = _in_pairs("" if wraps else r"\n")
    other_tuple = rf"b?\({inside}\)"
    blank = WHITE if wraps else r"[ \t]"
    typed = rf"{blank}*+(?:{USUAL_TYPE} %?{WORD}(?:,{blank}*+|{blank}*+(?=\))))++"
    operands = rf"(?:(%?{WORD}(?:, %?{WORD})*+)(?=\))|({typed})(?=\))|({inside}))"
    instruction = (
        rf"=(?!=){gap}(?:(?:({_ARRAY}|{_TUPLE})|({other_tuple})){gap})?+(?!b\()"
        rf"([A-Za-z_][A-Za-z0-9_\-]*+)[ \t]*+\({operands}\){tail_pattern(wraps)}"
    )
    signature = rf"\({inside}\){gap}->{gap}(?:{_ARRAY}|{other_tuple})"
    # The brace of a computation, not that of a layout.
    head = rf"{gap}(?:(?:({_USUAL_SIGNATURE})|({signature})){gap})?+\{{(?!\s*+[-\d:?}}])"
    close = r"(\}(?:,[ \t]*+execution_thread=\"[^\"\n]*+\"(?=[ \t]*+(?:[\r\n]|//|\Z)))?+)"
    prefix = r"(?:(ROOT |ENTRY[ \t])[ \t]*+|)(?:%|(?!(?:ROOT|ENTRY)\b))"
    named = rf"{prefix}({WORD}):?+[ \t]*+"
    return late(rf"((?:{named}(?:{instruction}|{head})|{close}){NEXT})|(?s:.++)", re.ASCII)
