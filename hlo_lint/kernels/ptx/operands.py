"""Operands of PTX as text: constants and addresses."""

from __future__ import annotations

import re
from typing import NamedTuple

_NUMBER = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[Uu]?")


class Address(NamedTuple):
    """An address such as `[%r1+16]`: a register or symbol and a constant offset."""

    base: str
    offset: int


def whole_constant(text: str) -> int | None:
    """The value of an integer constant; None for any other text.

    >>> whole_constant("0x10"), whole_constant("-4"), whole_constant("%r1")
    (16, -4, None)
    """
    if not _NUMBER.fullmatch(text) or len(text) > 24:
        return None
    digits = text.rstrip("Uu")
    if digits.lstrip("-").startswith(("0x", "0X")):
        return int(digits, 16)
    # As in C, a leading zero means octal.
    return int(digits, 8 if re.fullmatch(r"-?0[0-7]+", digits) else 10)


def address(operand: str) -> Address | None:
    """The address in a bracketed operand, without tensor coordinates.

    >>> address("[%r1+-16]"), address("[%rd1,{%r2,%r3}]"), address("%r1")
    (Address(base='%r1', offset=-16), Address(base='%rd1', offset=0), None)
    """
    if not operand.startswith("["):
        return None
    inside = operand[1:].removesuffix("]").split(",", 1)[0]
    base, sign, displacement = inside.partition("+")
    if not sign:
        base, sign, displacement = inside.partition("-")
    if not sign or not base:
        return Address(inside, 0)
    offset = whole_constant(displacement)
    if offset is None:
        return None
    return Address(base, -offset if sign == "-" else offset)
