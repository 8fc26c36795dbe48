"""Seeded damage to the tokens of HLO: what people mistype, and what rewriting scripts break."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

_tokens = re.compile(
    r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|[A-Za-z_%][\w.\-]*=?|-?[\d.]+|->|<=|\s+|.', re.S
).findall
_attribute = re.compile(r", ([a-z_\-]+)=(\{[^{}]*\}|\"[^\"]*\"|[^\s,{}\"]+)").finditer
_operands = re.compile(r" [a-z\-]+\(([^()]+)\)").finditer
_sizes = re.compile(r"\[[\d,]+\](?:\{[\d,]+\})?").finditer


def mutate_tokens(text: str, others: Sequence[str], chance: random.Random) -> str:
    """One change, chosen by `chance`."""
    return chance.choice(_KINDS)(text, others, chance)


def _spot(text: str, chance: random.Random) -> tuple[list[str], int]:
    tokens = _tokens(text)
    return tokens, chance.randrange(len(tokens)) if tokens else 0


def _delete(text: str, others: Sequence[str], chance: random.Random) -> str:
    tokens, at = _spot(text, chance)
    return "".join(tokens[:at] + tokens[at + 1 :])


def _double(text: str, others: Sequence[str], chance: random.Random) -> str:
    tokens, at = _spot(text, chance)
    return "".join(tokens[: at + 1] + tokens[at:])


def _replace(text: str, others: Sequence[str], chance: random.Random) -> str:
    tokens, at = _spot(text, chance)
    other, source = _spot(chance.choice((text, *others)), chance)
    return "".join([*tokens[:at], *other[source : source + 1], *tokens[at + 1 :]])


def _exchange(text: str, others: Sequence[str], chance: random.Random) -> str:
    tokens, at = _spot(text, chance)
    if tokens:
        to = chance.randrange(len(tokens))
        tokens[at], tokens[to] = tokens[to], tokens[at]
    return "".join(tokens)


def _change_number(text: str, others: Sequence[str], chance: random.Random) -> str:
    found = list(re.finditer(r"\d+", text))
    if not found:
        return text
    number = chance.choice(found)
    new = chance.choice(("0", "1", "7", "-1", "99", str(int(number[0]) + 1)))
    return text[: number.start()] + new + text[number.end() :]


def _drop_attribute(text: str, others: Sequence[str], chance: random.Random) -> str:
    found = list(_attribute(text))
    if not found:
        return text
    attribute = chance.choice(found)
    return text[: attribute.start()] + text[attribute.end() :]


def _move_attribute(text: str, others: Sequence[str], chance: random.Random) -> str:
    here, there = list(_attribute(text)), list(_attribute(chance.choice((text, *others))))
    if not here or not there:
        return text
    attribute = chance.choice(here)
    return text[: attribute.end()] + chance.choice(there)[0] + text[attribute.end() :]


def _change_operands(text: str, others: Sequence[str], chance: random.Random) -> str:
    found = list(_operands(text))
    if not found:
        return text
    operands = chance.choice(found)
    names = operands[1].split(", ")
    names = chance.choice((names[1:], names[::-1], [*names, names[0]]))
    return text[: operands.start(1)] + ", ".join(names) + text[operands.end(1) :]


def _change_sizes(text: str, others: Sequence[str], chance: random.Random) -> str:
    found = list(_sizes(text))
    if not found:
        return text
    here, there = chance.choice(found), chance.choice(found)
    return text[: here.start()] + there[0] + text[here.end() :]


def _drop_line(text: str, others: Sequence[str], chance: random.Random) -> str:
    lines = text.split("\n")
    del lines[chance.randrange(len(lines))]
    return "\n".join(lines)


def _exchange_lines(text: str, others: Sequence[str], chance: random.Random) -> str:
    lines = text.split("\n")
    here, there = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[here], lines[there] = lines[there], lines[here]
    return "\n".join(lines)


_KINDS = (
    _delete,
    _double,
    _replace,
    _exchange,
    _change_number,
    _drop_attribute,
    _move_attribute,
    _change_operands,
    _change_sizes,
    _drop_line,
    _exchange_lines,
)
