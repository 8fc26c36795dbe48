"""Tokens, and what is fed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadFeed(Verified, Rule):
    """An infeed, outfeed or dependency without its token, or with other data than it says.

    ## Why
    Tokens put what has an effect into an order. Without one a device may feed or fetch before its
    turn (`HandleInfeed`, `HandleOutfeed` in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-40": Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT d = f32[8]{0} add-dependency(p, p)  // error
        """),
        "S-41": Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT i = (f32[3]{0}, token[]) infeed(p)  // error
        """),
        "S-42": Bad.entry("""
            p = f32[8]{0} parameter(0)
            t = token[] after-all()
            ROOT o = token[] outfeed(p, t), outfeed_shape=f32[3]{0}  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            t = token[] after-all()
            i = (f32[3]{0}, token[]) infeed(t)
            ROOT o = token[] outfeed(p, t), outfeed_shape=f32[8]{0}
        """),
    )
