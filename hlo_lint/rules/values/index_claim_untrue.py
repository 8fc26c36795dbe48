"""Untrue claims of gathers or scatters about their indices: unique, sorted."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import prod
from operator import attrgetter
from typing import Final

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.walks import reached
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.constants import INDEX_MAPS, index_rows, indexed_dimensions, leading_index_rows
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import FORWARDS
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted

_CLAIMS: Final = ("unique_indices=true", "indices_are_sorted=true")
_MOVES: Final = FORWARDS | frozenset(
    "broadcast convert get-tuple-element parameter reshape slice transpose tuple".split()
)
_SCATTER = """
add {{ ROOT c = f32[] add(f32[] a, f32[] b) }}
i = s32[3,1] constant({indices})
ROOT s = f32[8] scatter(f32[8] p, i, f32[3] u), to_apply=add,  // error
    update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}},
    index_vector_dim=1, {claim}=true
"""


class IndexClaimUntrue(Rule):
    """A gather or scatter whose indices are not unique or not sorted, although it claims so.

    ## Why
    `unique_indices=true` lets XLA write the updates of a scatter in any order and without atomics,
    and `indices_are_sorted=true` lets it process them in runs. XLA does not check either: if two
    rows are equal, an update is lost or either remains, which differs between runs and backends.
    Rows out of bounds write nothing and may be equal.

    The rule checks indices that the text determines: constants, iotas, and their reshapes,
    conversions and concatenations. If a pass introduces a claim that no gather or scatter made
    before, the indices must come from a sort, an iota or a constant.
    """

    severity = Severity.WARNING
    evidence = (Counted("atomic instructions", 0, 1, other=2),)
    reports = "openxla/xla@90693a5034"
    opcodes = frozenset(INDEX_MAPS)
    skip_fusion_bodies = False
    examples = (
        Bad.entry(_SCATTER.format(indices="{{1}, {1}, {2}}", claim="unique_indices")),
        Bad.entry(_SCATTER.format(indices="{{4}, {1}, {2}}", claim="indices_are_sorted")),
        Bad.step("""
            add { ROOT c = f32[] add(f32[] a, f32[] b) }
              ROOT s = f32[8] scatter(f32[8] p, s32[3,1] i, f32[3] u), to_apply=add,  // error
                  update_window_dims={}, inserted_window_dims={0}, index_vector_dim=1,
            -     scatter_dims_to_operand_dims={0}
            +     scatter_dims_to_operand_dims={0}, unique_indices=true
        """),
        Good.step("""
            add { ROOT c = f32[] add(f32[] a, f32[] b) }
            - ROOT s = f32[8] scatter(f32[8] p, s32[3,1] i, f32[3] u), to_apply=add,
            + ROOT t = f32[8] scatter(f32[8] p, s32[3,1] i, f32[3] u), to_apply=add,
                  update_window_dims={}, inserted_window_dims={0}, index_vector_dim=1,
                  scatter_dims_to_operand_dims={0}, unique_indices=true
        """),
        Good.entry(_SCATTER.format(indices="{{4}, {1}, {2}}", claim="unique_indices")),
        Good.entry(_SCATTER.format(indices="{{1}, {1}, {2}}", claim="indices_are_sorted")),
    )

    def check_pass(self, pair: PassPair) -> Findings:
        """Claims that a pass makes about arbitrary indices."""
        for claim in _CLAIMS:
            old, new = (
                [
                    reader
                    for body in bodies
                    for reader in with_opcodes(body, INDEX_MAPS)
                    if claim in reader.attributes_text
                ]
                for bodies in (pair.removed, pair.added)
            )
            for reader in () if old else new:
                number = (len(reader.operands) - 1) // 2 if reader.opcode == "scatter" else 1
                indices = reader.producer(number) if len(reader.operands) > number else None
                if indices is not None and _may_be_any(indices):
                    yield Finding(
                        reader,
                        f"{pair.pass_name} claims {claim}, but %{indices.name} may be arbitrary",
                        operand=number,
                    )

    def check(self, computation: Computation) -> Findings:
        """Claims that known indices contradict."""
        for instruction in with_opcodes(computation, INDEX_MAPS):
            claims = instruction.attributes_text
            is_unique = "unique_indices=true" in claims and instruction.opcode == "scatter"
            is_sorted = "indices_are_sorted=true" in claims
            rows = index_rows(instruction) if is_unique else ()
            inside = [row for row in rows if _fits(row, instruction)]
            twice, often = next(iter(Counter(inside).most_common(1)), ((), 0))
            if often > 1:
                yield Finding(
                    instruction,
                    f"unique_indices is true, but {_spelled(twice)} occurs {often} times",
                )
            # Rows compare by their first dimensions, whatever the indices of the others are.
            leading = leading_index_rows(instruction) if is_sorted else ()
            fall = next((pair for pair in pairwise(leading) if pair[1] < pair[0]), None)
            if fall is not None:
                yield Finding(
                    instruction,
                    f"indices_are_sorted is true, but {_spelled(fall[1])} comes after "
                    f"{_spelled(fall[0])}",
                )


def _may_be_any(indices: Instruction) -> bool:
    """True if there are several indices and they depend only on parameters."""
    shape = indices.shape_or_none
    # A single row of indices is unique and sorted.
    if not isinstance(shape, ArrayShape) or prod(shape.dims) <= max(shape.dims[-1:], default=1):
        return False
    cone = reached([indices], attrgetter("producers"))
    return all(value.opcode in _MOVES for value in cone)


def _fits(row: tuple[int, ...], instruction: Instruction) -> bool:
    shape = operand_array(instruction, 0)
    return shape is not None and all(
        0 <= start < shape.dims[dimension]
        for dimension, start in zip(indexed_dimensions(instruction), row, strict=True)
    )


def _spelled(row: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, row)) + "}"
