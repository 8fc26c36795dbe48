"""Unreduced shardings that a pass takes off the operation that makes partial sums."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_UNREDUCED: Final = "unreduced={"
_REDUCES: Final = frozenset({"convolution", "dot", "reduce", "reduce-window", "scatter"})
_PROGRAM: Final = """
HloModule m, num_partitions=2

ENTRY e {{
  p = f32[8,4] parameter(0), sharding={{mesh['x'=2], [{{}}, {{'x'}}]}}
  q = f32[4,6] parameter(1), sharding={{mesh['x'=2], [{{'x'}}, {{}}]}}
  {product}
  ROOT s = f32[8,6] custom-call({of}), custom_call_target="Sharding",{mark}
    sharding={{mesh['x'=2], [{{}}, {{}}], unreduced={{'x'}}}}
}}
"""
_DOT: Final = "d = f32[8,6] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
_TURNED: Final = """c = f32[6,8] dot(q, p), lhs_contracting_dims={0}, rhs_contracting_dims={1}
  t = f32[8,6] transpose(c), dimensions={1,0}"""
_BEFORE: Final = "module_0001.m.0001.p.after_pipeline-start.before_algsimp.txt"
_AFTER: Final = "module_0001.m.0002.p.after_algsimp.before_pipeline-end.txt"


class UnreducedOffReduction(Rule):
    """A pass that puts something between a reduction and the sharding that leaves it unreduced.

    ## Why
    `unreduced={'x'}` says that each device along x keeps its part of a sum. The partitioner leaves
    the all-reduce out of the operation that makes the sum: a dot, a convolution, a reduction. Where
    a pass turns that into another operation on its result, a transpose of a dot with its sides
    exchanged, the sum is no longer what the sharding is on: it is reduced, and then counted as a
    part, or the partitioner stops.

    It is reported where the pass changed what the sharding is on from a reduction to another
    operation.

    Reports: openxla/xla@078ac5263c.
    """

    severity = Severity.WARNING
    mentions = (_UNREDUCED,)
    examples = (
        Bad(
            _PROGRAM.format(product=_TURNED, of="t", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(product=_DOT, of="d", mark="")},
        ),
        Good(
            _PROGRAM.format(product=_TURNED.partition("\n")[0], of="c", mark=""),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(product=_DOT, of="d", mark="")},
        ),
    )

    def check(self, change: PassPair) -> Findings:
        """Each sharding that was on a reduction, and is on something else."""
        if may(change.pass_name, "shardings"):
            return
        for computation in change.changed:
            for number, position in computation.kept:
                old, new = computation.before.at(number), computation.after.at(position)
                was, now = _marked(old), _marked(new)
                if was is None or now is None:
                    continue
                if was.opcode in _REDUCES and now.opcode not in _REDUCES:
                    yield Finding(
                        new,
                        f"{change.pass_name} put the {now.opcode} %{now.name} between a reduction "
                        "and its unreduced sharding",
                        notes=(f"before it, the sharding was on the {was.opcode} %{was.name}",),
                    )


def _marked(call: Instruction) -> Instruction | None:
    """The instruction that a call of Sharding leaves unreduced."""
    if call.opcode != "custom-call" or _UNREDUCED not in call.attributes_text:
        return None
    return call.producer()
