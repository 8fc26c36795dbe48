"""Values of constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadConstant(Verified, Rule):
    """A constant that does not have a value for each of its elements.

    ## Why
    XLA's parser refuses such a text, and a constant without its literal dies in its verifier.
    Values of more than 1024 elements, and values that the dump left out, are not counted.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-47": Bad.entry("""
            ROOT c = f32[3] constant({1, 2})  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            a = f32[2,2] constant({ { 1, 2 }, { 3, nan } })
            b = c64[2] constant({(0, 1), (1, 0)})
            ROOT c = f32[3] constant({...})
        """),
    )
