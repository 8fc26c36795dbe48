"""What a bitcast may not do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadBitcast(Verified, Rule):
    """A bitcast that changes how many bytes there are, or which memory they are in.

    ## Why
    A bitcast is another name for the same bytes: no kernel runs for it. With more bytes than its
    operand it reads what is behind it, and from host memory to a device's it is a pointer that the
    device may not follow (`HandleBitcast` in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-71": Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT b = f32[9]{0} bitcast(p)  // error
        """),
        "S-72": Bad.entry("""
            p = f32[8]{0:S(5)} parameter(0)
            ROOT b = f32[2,4]{1,0} bitcast(p)  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8]{0:S(5)} parameter(0)
            b = f32[2,4]{1,0:S(5)} bitcast(p)
            ROOT c = f32[2,4]{1,0} copy(b)
        """),
    )
