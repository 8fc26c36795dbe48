"""Gathers and scatters whose indices are not as sorted or as unique as they say."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.constants import INDEX_MAPS, index_rows, indexed_dimensions
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity

_PROGRAM = """
set {{
  old = f32[] parameter(0)
  ROOT new = f32[] parameter(1)
}}

ENTRY e {{
  p = f32[8] parameter(0)
  u = f32[3] parameter(1)
  i = s32[3,1] constant({{{indices}}})
  ROOT s = f32[8] scatter(p, i, u), update_window_dims={{}}, inserted_window_dims={{0}}, \
scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, {claim}=true, to_apply=set{mark}
}}
"""


class IndexClaimUntrue(Rule):
    """A gather or scatter whose constant indices are not unique, or not sorted, as it claims.

    ## Why
    `unique_indices=true` lets XLA write the updates of a scatter in any order and without atomic
    operations, and `indices_are_sorted=true` lets it work through them in runs. Neither is checked:
    where two rows are equal, one update is lost or any of them stays, and it differs from run to
    run and between backends. Rows that are out of bounds write nothing and may be equal.

    Indices are looked at that the text determines: constants, iotas, and what reshapes, converts or
    concatenates them.
    """

    severity = Severity.WARNING
    opcodes = frozenset(INDEX_MAPS)
    skip_fusion_bodies = False
    examples = (
        Bad.module(
            _PROGRAM.format(indices="{1}, {1}, {2}", claim="unique_indices", mark="  // error")
        ),
        Bad.module(
            _PROGRAM.format(indices="{4}, {1}, {2}", claim="indices_are_sorted", mark="  // error")
        ),
        Good.module(_PROGRAM.format(indices="{4}, {1}, {2}", claim="unique_indices", mark="")),
        Good.module(_PROGRAM.format(indices="{1}, {1}, {2}", claim="indices_are_sorted", mark="")),
    )

    def check(self, computation: Computation) -> Findings:
        """Each claim that constant indices belie."""
        for opcode in INDEX_MAPS:
            for instruction in computation.with_opcode(opcode):
                claims = instruction.attributes_text
                is_unique = "unique_indices=true" in claims and opcode == "scatter"
                is_sorted = "indices_are_sorted=true" in claims
                rows = index_rows(instruction) if is_unique or is_sorted else ()
                if not rows:
                    continue
                inside = [row for row in rows if is_unique and _fits(row, instruction)]
                twice, often = next(iter(Counter(inside).most_common(1)), ((), 0))
                if often > 1:
                    yield Finding(
                        instruction,
                        f"unique_indices is true, and {_spelled(twice)} is there {often} times",
                    )
                fall = next((pair for pair in pairwise(rows) if pair[1] < pair[0]), None)
                if is_sorted and fall is not None:
                    yield Finding(
                        instruction,
                        f"indices_are_sorted is true, and {_spelled(fall[1])} comes after "
                        f"{_spelled(fall[0])}",
                    )


def _fits(row: tuple[int, ...], instruction: Instruction) -> bool:
    shape = operand_array(instruction, 0)
    return shape is not None and all(
        0 <= start < shape.dims[dimension]
        for dimension, start in zip(indexed_dimensions(instruction), row, strict=True)
    )


def _spelled(row: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, row)) + "}"
