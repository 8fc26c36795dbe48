"""Random modules with one `copy` of an array in them, which stands for a problem."""

from __future__ import annotations

import re
from random import Random

from hlo_lint_hunt.generate import drawn_module

_FUSED = """%fused {{
  %read = {0} parameter(0)
  ROOT %copied = {0} copy(%read)
}}

"""
_arrays = re.compile(r"^  %(\w+) = (\w+\[[^ ]*\]) .*\n", re.M)


def random_module(seed: int) -> str:
    """A module of a hunt; the copy is in the entry, what it calls, a loop or a fusion."""
    random = Random(seed)
    text, steps = drawn_module(random, (1, 1))
    while "conditional" in steps:  # it has copies of its own
        text, steps = drawn_module(random, (1, 1))
    entry = text.index("ENTRY")
    # Scalars elsewhere are those of combiners and comparators, which stay what they are.
    found = [m for m in _arrays.finditer(text) if m.start() > entry or not m[2].endswith("[]")]
    source = random.choice(found)
    body, end, rest = text[source.end() :].partition("\n}")
    head, call = text[: source.end()], f"copy(%{source[1]})"
    if random.randrange(2):
        call = f"fusion(%{source[1]}), kind=kLoop, calls=%fused"
        head = head.replace("\n\n", "\n\n" + _FUSED.format(source[2]), 1)
    mark = f'  %mark = {source[2]} {call}, metadata={{op_name="jit(f)/step" source_line=3}}\n'
    return head + mark + re.sub(rf"%{source[1]}\b", "%mark", body) + end + rest
