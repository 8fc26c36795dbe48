"""Modules of a few lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

LOOSE = """\
HloModule m

ENTRY %e {
  %p = f32[8,3]{1,0} parameter(0)
  ROOT %r = f32[4,2,3]{0,1,2} reshape(%p)
  %b = f32[24]{0} bitcast(%p)
}
"""
"""A reshape that moves bytes: a warning, or an error before layout_normalization."""
CLEAN = LOOSE.replace("{0,1,2} reshape", "{2,1,0} reshape")
ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n\n"


def entry(lines: str, before: str = "", header: str = "") -> str:
    """A module whose entry, `e`, has these lines, after other computations."""
    body = lines.strip("\n")
    return f"HloModule m{header}\n\n{before}ENTRY e {{\n{body}\n}}\n"


summing = partial(entry, before=ADD)
"""A module whose entry may apply `add`."""


def counted(
    state: Mapping[str, str], turn: str, results: str, around: str, count: object = 5
) -> str:
    """A module with a loop of so many turns, each of which makes results of the state.

    `w = LOOP(x)`, a line of those around it, is the loop that begins with x.
    """
    whole = f"(s32[], {', '.join(state.values())})"
    head = f"  p = {whole} parameter(0)\n  i = s32[] get-tuple-element(p), index=0\n"
    elements = enumerate(state.items(), 1)
    lines = [
        *(f"{name} = {kind} get-tuple-element(p), index={at}" for at, (name, kind) in elements),
        *("one = s32[] constant(1)", "next = s32[] add(i, one)", turn.strip()),
        f"ROOT t = {whole} tuple(next, {results})",
    ]
    body = head + "".join(f"  {line}\n" for line in lines)
    ends = f"  n = s32[] constant({count})\n  ROOT less = pred[] compare(i, n), direction=LT\n"
    loop = rf"zero = s32[] constant(0)\n  t = {whole} tuple(zero, \2)\n  \1 = {whole} "
    loop += "while(t), condition=condition, body=body"
    return entry(
        re.sub(r"((?:ROOT )?\w+) = LOOP\((.*)\)", loop, around),
        f"body {{\n{body}}}\n\ncondition {{\n{head}{ends}}}\n\n",
    )
