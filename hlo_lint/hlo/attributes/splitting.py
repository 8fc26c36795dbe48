"""Positions of attribute values in the text after an instruction's operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final

from hlo_lint.hlo.attributes.cursor import STRING, AttributeSyntaxError, find_tokens
from hlo_lint.hlo.comments import BLANK
from hlo_lint.text.patterns import late

# Compiled on demand: nested patterns take milliseconds. Three levels of braces cover nearly all
# values; deeper JSON and meshes with an order of devices are left to the scanner below.
_COMMENT = r"/\*(?:[^*]++|\*(?!/))*+\*/"
_PLAIN = rf"[^{{}}\"'/]++|/(?![*/])|{STRING}|{_COMMENT}"


@cache
def _match_attribute() -> Callable[[str, int], re.Match[str] | None]:
    braces = rf"\{{(?:{_PLAIN})*+\}}"
    for _ in range(2):
        braces = rf"\{{(?:{_PLAIN}|{braces})*+\}}"
    iota = r"\[[\d,]++\](?:<=\[[\d,]++\](?:T\([\d,]++\))?+)?+"  # replica_groups=[2,4]<=[4,2]T(1,0)
    mesh = r"mesh\[[^\[\](){}\"/]*+\] \{[^(){}\"/]*+\}"  # replica_groups=mesh['x'=2,'y'=4] {'y'}
    value = rf"{braces}|{STRING}|[^\s,(){{}}\[\]\"'/]++|{iota}|{mesh}"
    return re.compile(rf", ?([A-Za-z_][A-Za-z0-9_.\-]*+)=({value})(?=,|\Z)", re.S).match


_match_head = late(rf"{BLANK},{BLANK}([A-Za-z_][A-Za-z0-9_.\-]*+)\s*+={BLANK}", re.S).match
_match_blank = late(BLANK, re.S).match
_find_names = late(r"[^\s,{}%]+").findall
_PREDECESSORS: Final = "control-predecessors"
_CLOSES = {"(": ")", "[": "]", "{": "}"}


COUNTS_BRACES: Final = frozenset(("backend_config", "origin"))
"""Attributes whose value ends with its braces, regardless of other brackets."""
_find_braces = late(r'[{}]|"(?:(?:[^"\\]++|\\.)*+")?', re.S).finditer


def end_of_braces(text: str, offset: int, stop: int) -> int:
    """The end of the braces that open at `offset`, as `LexJsonDict` counts; -1 if unclosed.

    >>> end_of_braces('{"a": [{"}"]}}, b={}', 0, 21)
    14
    """
    depth = 0
    for match in _find_braces(text, offset, stop):
        if match[0] == '"':
            break  # a string that never ends
        depth += {"{": 1, "}": -1}.get(match[0], 0)
        if not depth:
            return match.end()
    return -1


def split_attributes(tail: str) -> dict[str, tuple[int, int]]:
    """The position of each attribute's value in the text after the operands, in order.

    Text that cannot be split has the name "" and reaches to the end. The first of duplicate names
    wins.

    >>> tail = ', dimensions={1,0}, metadata={op_name="a, b={"}'
    >>> {name: tail[start:end] for name, (start, end) in split_attributes(tail).items()}
    {'dimensions': '{1,0}', 'metadata': '{op_name="a, b={"}'}
    """
    spans: dict[str, tuple[int, int]] = {}
    try:
        _split(tail, spans)
    except AttributeSyntaxError as error:
        spans[""] = (error.offset, len(tail))
    return spans


def joined_attributes(values: Mapping[str, str]) -> str:
    """The text of attributes, with the comma before the first."""
    return "".join(f", {name}={value}" for name, value in values.items())


def attribute_span(tail: str, name: str) -> tuple[int, int] | None:
    """The position of an attribute's value; later attributes are not read."""
    match = _match_attribute()
    offset = 0
    while (attribute := match(tail, offset)) is not None:
        if attribute[1] == name:
            return attribute.span(2)
        offset = attribute.end()
    return None if offset == len(tail) else split_attributes(tail).get(name)


def control_predecessors(tail: str) -> tuple[str, ...]:
    """The names of an instruction's control predecessors, from its attributes.

    >>> control_predecessors(", control-predecessors={%a, b.1}, metadata={}")
    ('a', 'b.1')
    """
    span = attribute_span(tail, _PREDECESSORS) if _PREDECESSORS in tail else None
    return () if span is None else tuple(_find_names(tail[slice(*span)]))


def split_attributes_strictly(tail: str) -> dict[str, tuple[int, int]]:
    """Like `split_attributes`, but raises AttributeSyntaxError for text that cannot be split."""
    spans: dict[str, tuple[int, int]] = {}
    _split(tail, spans)
    return spans


def _split(tail: str, spans: dict[str, tuple[int, int]]) -> None:
    """Add the spans up to the end, or to text that cannot be split."""
    match = _match_attribute()
    offset, end = 0, len(tail)
    while offset < end and (attribute := match(tail, offset)) is not None:
        spans.setdefault(attribute[1], attribute.span(2))
        offset = attribute.end()
    while offset < end:
        offset = _scan_attribute(tail, offset, spans)


def _scan_attribute(tail: str, offset: int, spans: dict[str, tuple[int, int]]) -> int:
    """Add the span of an attribute in any spelling, and return the end."""
    head = _match_head(tail, offset)
    if head is None:
        blank = _match_blank(tail, offset)
        if blank is not None and blank.end() == len(tail):
            return len(tail)
        raise AttributeSyntaxError("expected `, name=value`", tail, offset)
    start = head.end()
    end = -1
    if head[1] in COUNTS_BRACES and tail.startswith("{", start):
        end = end_of_braces(tail, start, len(tail))
    if end < 0:
        end = _value_end(tail, start)
    if tail.startswith("mesh[", start):
        order = _match_head(tail, end)  # `mesh['x'=2], device_ids=(1,0) {'x'}` is one value
        if order is not None and order[1] == "device_ids":
            end = _value_end(tail, order.end())
    spans.setdefault(head[1], (start, end))
    blank = _match_blank(tail, end)
    return blank.end() if blank is not None else end


def _value_end(tail: str, start: int) -> int:
    """The end of the value that begins at `start`, without blanks and comments after it."""
    closing: list[str] = []
    end = start
    for match in find_tokens(tail, start):
        token = match[0]
        if token[:2] in ("/*", "//"):
            continue
        if token in _CLOSES:
            closing.append(_CLOSES[token])
        elif token in (")", "]", "}"):
            if not closing:
                break
            if closing.pop() != token:
                message = f"`{token}` closes what another bracket opens"
                raise AttributeSyntaxError(message, tail, match.start())
        elif token == "," and not closing:
            break
        elif token in ('"', "'") or (token == "/" and tail.startswith("*", match.end())):
            raise AttributeSyntaxError("a string or comment never ends", tail, match.start())
        end = match.end()
    if closing:
        raise AttributeSyntaxError(f"expected `{closing[-1]}`", tail, len(tail))
    return end
