"""Unreduced shardings that a pass moved off the reduction."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, Severity

_UNREDUCED: Final = "unreduced={"
_REDUCES: Final = frozenset({"convolution", "dot", "reduce", "reduce-window", "scatter"})


class UnreducedOffReduction(Rule):
    """A pass that separates a reduction from its unreduced sharding.

    ## Why
    `unreduced={'x'}` says that each device along x keeps a partial sum. The partitioner omits the
    all-reduce of the operation that computes the sum: a dot, a convolution, a reduction. If a pass
    replaces it by an operation on its result, such as a transpose of a dot with swapped operands,
    the sharding is no longer on the sum: the partitioner reduces the sum and treats it as a partial
    sum, or fails.

    The rule reports a sharding that was on a reduction before the pass and is on a different
    operation after it.
    """

    severity = Severity.WARNING
    mentions = (_UNREDUCED,)
    evidence = (PublicReport("openxla/xla@078ac5263c"),)
    examples = (
        Bad.step("""
            HloModule m, num_partitions=2

            ENTRY e {
              p = f32[8,4] parameter(0), sharding={mesh['x'=2], [{}, {'x'}]}
              q = f32[4,6] parameter(1), sharding={mesh['x'=2], [{'x'}, {}]}
            - d = f32[8,6] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            - ROOT s = f32[8,6] custom-call(d), custom_call_target="Sharding",
            + c = f32[6,8] dot(q, p), lhs_contracting_dims={0}, rhs_contracting_dims={1}
            + t = f32[8,6] transpose(c), dimensions={1,0}
            + ROOT s = f32[8,6] custom-call(t), custom_call_target="Sharding",  // error
              sharding={mesh['x'=2], [{}, {}], unreduced={'x'}}
            }
        """),
        Good.step("""
            HloModule m, num_partitions=2

            ENTRY e {
              p = f32[8,4] parameter(0), sharding={mesh['x'=2], [{}, {'x'}]}
              q = f32[4,6] parameter(1), sharding={mesh['x'=2], [{'x'}, {}]}
            - d = f32[8,6] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            - ROOT s = f32[8,6] custom-call(d), custom_call_target="Sharding",
            + c = f32[6,8] dot(q, p), lhs_contracting_dims={0}, rhs_contracting_dims={1}
            + ROOT s = f32[8,6] custom-call(c), custom_call_target="Sharding",
              sharding={mesh['x'=2], [{}, {}], unreduced={'x'}}
            }
        """),
    )

    def check(self, change: PassPair) -> Findings:
        """Unreduced shardings that were on a reduction before the pass, but not after it."""
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
                        notes=(
                            f"before the pass, the sharding was on the {was.opcode} %{was.name}",
                        ),
                    )


def _marked(call: Instruction) -> Instruction | None:
    """The instruction whose result a Sharding call marks as unreduced."""
    if call.opcode != "custom-call" or _UNREDUCED not in call.attributes_text:
        return None
    return call.producer()
