"""Slices and updates as large as their array, to which a pass gives an offset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.constants import constant_integers
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import FIRST_INDEX
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import PublicReport, WrongValues

_EXPANDABLE: Final = ("gather", "scatter")


class OffsetWithoutEffect(Rule):
    """A pass that makes a dynamic slice or update of a whole array at a computed offset.

    ## Why
    XLA clamps the start of a slice so that the slice is within the array. A slice as large as its
    array always starts at 0, whatever its offset: a pass that needs rows at the offset must pad the
    array. The rule reports only slices that a pass adds, in a dimension of more than one element: a
    program may contain them. Expanded gathers and scatters, which compute offsets of 0, are
    skipped.
    """

    severity = Severity.WARNING
    opcodes = frozenset(FIRST_INDEX)
    evidence = (WrongValues(), PublicReport("openxla/xla@0c0461629c"))
    examples = (
        Bad.step("""
            - ROOT r = f32[16] add(f32[16] p, f32[16] u)
            + ROOT r = f32[16] dynamic-update-slice(p, u, s32[] i)  // error
        """),
        Good.step("""
            - ROOT r = f32[16] copy(f32[16] p)
            + ROOT r = f32[16] dynamic-update-slice(p, f32[8] u, s32[] i)
        """),
        Good.step("""
            - ROOT s = f32[16] dynamic-update-slice(f32[16] p, f32[16] u, s32[] i)
            + ROOT r = f32[16] dynamic-update-slice(p, u, i)
        """),
        Good.step("""
            -second { a = f32[] parameter(0) ROOT b = f32[] parameter(1) }

            ENTRY e {
              p = f32[16] parameter(0)
              u = f32[16] parameter(1)
              i = s32[] parameter(2)
            - ROOT r = f32[16] scatter(p, i, u), to_apply=second, update_window_dims={0},
            -     inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=0
            + ROOT r = f32[16] dynamic-update-slice(p, u, i)
            }
        """),
        Good.step("""
            + n = s64[] constant(0)
            - i = s32[] parameter(2)
            - ROOT r = f32[16] add(f32[16] p, f32[16] u)
            + i = s32[] convert(n)
            + ROOT r = f32[16] dynamic-update-slice(p, u, i)
        """),
    )

    def check(self, pair: PassPair) -> Findings:
        """New slices and updates of whole arrays, if the module had none before the pass."""
        added = [update for computation in pair.added for update in _whole(computation)]
        if not added or any(any(_whole(computation)) for computation in pair.before.computations):
            return
        if _expandable(pair.before) > _expandable(pair.after):
            return
        for update in added:
            yield Finding(
                update,
                f"{pair.pass_name} made a {update.opcode} as large as its array, "
                f"{operand_array(update, 0)}: its offset has no effect",
            )


def _expandable(module: Module) -> int:
    """The number of gathers and scatters."""
    return sum(
        len(computation.positions(opcode))
        for computation in module.computations
        for opcode in _EXPANDABLE
    )


def _whole(computation: Computation) -> Iterator[Instruction]:
    for opcode, first in FIRST_INDEX.items():
        for instruction in computation.with_opcode(opcode):
            array = operand_array(instruction, 0)
            part = result_array(instruction) if first == 1 else operand_array(instruction, 1)
            if array is None or part is None or array.dims != part.dims:
                continue
            starts = zip(array.dims, instruction.operands[first:], strict=False)
            moved = [start.instruction for size, start in starts if size > 1]
            if any(start is not None and constant_integers(start) is None for start in moved):
                yield instruction
