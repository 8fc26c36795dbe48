"""Patterns that read like the programs they match.

>>> from hlo_lint import match as m, parse
>>> pattern = m.transpose(m.copy("inner").one_user()).named("outer")
>>> pattern
m.transpose(m.copy("inner").one_user()).named("outer")
>>> module = parse('''HloModule m
...
... ENTRY e {
...   p = f32[2,3]{1,0} parameter(0)
...   c = f32[2,3]{0,1} copy(p)
...   ROOT t = f32[3,2]{1,0} transpose(c), dimensions={1,0}
... }
... ''')
>>> for hit in m.find(pattern, module):
...     print(hit["outer"].name, hit["inner"].name)
t c
>>> m.explain(m.transpose(m.reshape()), module.entry.root)
'%c is a copy, not a reshape'

Every opcode is a function: `m.all_reduce(...)`, with `_` for `-`, and `m.and_`, `m.while_` for
Python's keywords; `m.op("…")` takes opcodes of later releases, too. The operands of a pattern match
the first operands of an instruction; further operands may be anything. A name is a capture, and the
same name twice is the same instruction. A pattern is a frozen value that prints as it was written.

An implicit get-tuple-element (`%call#1`) is matched like a printed one; its capture is the
instruction whose element it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.analysis.match.pattern import (
    ArrayPattern,
    Match,
    Pattern,
    array,
    explain,
    find,
    is_function,
    op,
)
from hlo_lint.analysis.match.pattern import any_ as any
from hlo_lint.analysis.match.pattern import opcode as _opcode

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ArrayPattern", "Match", "Pattern", "any", "array", "explain", "find", "op"]


def __getattr__(name: str) -> Callable[..., Pattern]:
    """The function of an opcode: `reshape`, `all_reduce`, `and_`."""
    if name.startswith("_") or not is_function(name):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _opcode(name)
