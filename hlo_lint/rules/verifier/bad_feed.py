"""Shapes of infeeds, outfeeds, dependencies: data with a token."""

from __future__ import annotations

from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadFeed(VerifierRule):
    """An infeed, outfeed or dependency without its token, or with wrong data.

    ## Why
    Tokens order side effects. Without a token, a device may feed or fetch before its turn
    (`HandleInfeed`, `HandleOutfeed` in `xla/service/hlo_verifier.cc`).
    """

    table = """
        token-operand: CheckIsTokenOperand (add-dependency after-all)
          add-dependency, after-all: operands that are tokens
            ROOT d = f32[8]{0} add-dependency(f32[8]{0} p, p)  // error
        infeed-shape: ShapeVerifier::HandleInfeed (infeed)
          infeed: a token in, data and a token out
            ROOT i = (f32[3]{0}, token[]) infeed(f32[8]{0} p)  // error
        outfeed-shape: ShapeVerifier::HandleOutfeed (outfeed)
          outfeed: data of its outfeed_shape, and a token
            t = token[] after-all()
            ROOT o = token[] outfeed(f32[8]{0} p, t), outfeed_shape=f32[3]{0}  // error
    """
    examples = (
        Good.entry("""
            t = token[] after-all()
            i = (f32[3]{0}, token[]) infeed(t)
            ROOT o = token[] outfeed(f32[8]{0} p, t), outfeed_shape=f32[8]{0}
        """),
    )
