"""Modules of a few lines."""

from __future__ import annotations

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
