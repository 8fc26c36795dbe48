"""Passes that change the values that a module computes."""

from __future__ import annotations

from hlo_lint.rules.base import Bad, Good, Rule, WrongValues


class ValuesChanged(Rule):
    """A pass that changes the values that the module computes.

    Only `hlo-lint validate` reports it, not `check`: it runs the modules.

    ## Why
    Whatever a pass rewrites, the program must compute the same values. A pass that violates this
    gives wrong numbers without a message, and the text does not show it.

    The dumps before and after the pass ran on the same seeded inputs, and a result differs by more
    than rounding allows. The finding is at the first instruction whose value differs. The notes
    state the location and size of the error, the inputs that show it, and the bound. A module that
    XLA rejects, although the module before the pass runs, is reported too.
    """

    evidence = (WrongValues(),)
    examples = (
        Bad.step("""
              s = f32[4,4] add(f32[4,4] x, f32[4,4] b)
            - ROOT r = f32[4,4] multiply(s, s)
            + ROOT r = f32[4,4] multiply(s, x)  // error
        """),
        Good.step("""
              s = f32[4,4] add(f32[4,4] x, f32[4,4] b)
            - ROOT r = f32[4,4] add(s, s)
            + two = f32[] constant(2)
            + twos = f32[4,4] broadcast(two), dimensions={}
            + ROOT r = f32[4,4] multiply(s, twos)
        """),
    )
    command = "validate"
    enabled_by_default = False
