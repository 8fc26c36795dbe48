"""Fingerprints of findings, which are equal for the same finding in another dump of a program.

A fingerprint depends on the rule, the key of the finding and the thing at its place; the message
may be reworded. Numbers in names are ignored, because passes and releases renumber; paths, steps
and lines of Python are ignored, because they change between runs. Findings that are equal in all
this are numbered from 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256

from hlo_lint.engine.findings import Diagnostic
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.findings import Finding
from hlo_lint.text.patterns import late
from hlo_lint.text.source import encode

IDENTITY_DIGITS = 16
"""The hexadecimal digits that identify a finding; further digits number equal findings."""
MAX_TEXT = 100_000
"""The most characters of a text that are hashed directly."""

_measured = late(
    r"(?<![\d.])\d++(?:\.\d++)?(?: (?:[nuµm]?s|samples?|runs?)\b|%)|\bin \d++(?=,|$)"
).sub
_digits = late(r"\d++").sub
_place = late(r"\b((?:module|step|lines?|dump)[ _])\d++(?: to \d++)?").sub
_word = late(r"(?<![\w\-])([A-Za-z_][\w\-]*+)(?:\.\d++)++(?![\w\-])", re.A).sub
_name = late(r"%[A-Za-z_][\w.\-]*+", re.A).sub
_number_backwards = late(r"(?:\d++[._])*+", re.A).match


def fingerprint(
    rule: str,
    identity: str,
    module: str,
    instruction: Instruction | None,
    text: str,
    op_name: str = "",
    function: str = "",
) -> str:
    """The first `IDENTITY_DIGITS` digits; `text` is used if the finding is at no instruction."""
    if instruction is None:
        what = ("", "", _of_text(text))
    else:
        computation = instruction.computation
        role = "ENTRY" if computation.is_entry else _stem(computation.name)
        what = (role, instruction.opcode, instruction.type_text)
    parts = (rule, identity, base_name(module), *what, op_name, function)
    return sha256(encode("\0".join(parts))).hexdigest()[:IDENTITY_DIGITS]


@lru_cache(maxsize=16)
def _of_text(text: str) -> str:
    """A text without its numbers, or a digest of a long text, which many findings may share."""
    plain = _digits("", text)
    if len(plain) <= MAX_TEXT:
        return plain
    return sha256(encode(plain)).hexdigest()


def identity_of(finding: Finding) -> str:
    """The part of a fingerprint that tells the findings of a rule at a place apart."""
    if not finding.key and not isinstance(finding.at, Instruction):
        return nameless(finding.message)
    operand = "" if finding.operand is None else f"operand {finding.operand}"
    return f"{finding.key}\0{operand}"


@lru_cache(maxsize=4096)
def nameless(text: str) -> str:
    """A text without the parts that differ from run to run: numbers, steps, measured times.

    >>> nameless("%add.7 of step 0030 reads %region_0.12, 3.42 us")
    '%add of step  reads %region, '
    """
    plain = _word(r"\1", _place(r"\1", _measured("", text)))
    return _name(lambda name: _stem(name[0]), plain)


def base_name(name: str) -> str:
    """The name of a module or a computation in the program, such as `jit_f` for `jit_f.12`."""
    return _word(r"\1", name)


def _stem(name: str) -> str:
    """A name without trailing numbers."""
    number = _number_backwards(name[::-1])
    return name[: -number.end()] if number and number.end() else name


def numbered(findings: Sequence[Diagnostic]) -> list[Diagnostic]:
    """The findings with complete fingerprints: equal findings are numbered in text order."""
    count: dict[str, int] = {}
    number: dict[int, int] = {}
    places = [(finding.path, finding.start) for finding in findings]
    for index in sorted(range(len(findings)), key=places.__getitem__):
        digits = findings[index].fingerprint[:IDENTITY_DIGITS]
        number[index] = count[digits] = count.get(digits, -1) + 1
    return [
        replace(finding, fingerprint=f"{finding.fingerprint[:IDENTITY_DIGITS]}{number[index]:04x}")
        for index, finding in enumerate(findings)
    ]
