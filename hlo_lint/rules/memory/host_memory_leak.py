"""Values that are in host memory although neither HostOffloader nor a copy moved them."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.opcodes import FIRST_INDEX
from hlo_lint.hlo.records import opcode_of, type_of
from hlo_lint.hlo.shape import HOST_MEMORY, arrays, shape_or_none
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Stage

FAST: Final = 1


class HostMemoryLeak(Rule):
    """A value in host memory without a pass or a copy that moved it there.

    ## Why
    XLA:GPU's HostOffloader puts values into host memory, `S(5)`, and makes the copies that move
    them. Before it, only the entry's layout may mention host memory, and LayoutNormalization would
    turn a copy between two memories into a transpose (`layout_normalization.cc:621`). After it, a
    dynamic-slice must not move device memory to the host, nor a dynamic-update-slice host memory to
    the device (`hlo_verifier.cc:4596-4625`): no kernel does that. Release builds check this once,
    and only the dynamic-slice; no rule of the family verifier checks it.
    """

    skip_fusion_bodies = False
    always_reported = True
    mentions = ("S(",)
    evidence = (
        RefusedByXla(
            "Instruction shouldn't have the layout of host memory space", passes="hlo-verifier"
        ),
    )
    examples = (
        Bad.entry("""
            // hlo-lint: stage gpu before=layout_normalization
            ROOT c = f32[8]{0:S(5)} copy(f32[8]{0} p)  // error
        """),
        Bad.final("""
            p = f32[8]{0} parameter(0)
            i = s32[] parameter(1)
            ROOT d = f32[4]{0:S(5)} dynamic-slice(p, i), dynamic_slice_sizes={4}  // error
        """),
        Good.final("""
            ROOT d = f32[4]{0} dynamic-slice(f32[8]{0:S(5)} p, s32[] i), dynamic_slice_sizes={4}
        """),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Results in host memory before HostOffloader, and slices between memory spaces."""
        is_option = stage.backend is None and not stage.host_memory  # an option, not a pipeline
        if stage.assumed or not (stage.layouts or is_option):
            return
        if not any(map(_is_placed, types_of(computation))):
            return
        if not stage.host_memory:
            for number, row in enumerate(computation.rows):
                if _holds_host(type_of(row)):
                    result = f"this {opcode_of(row)} returns {type_of(row)} in host memory"
                    yield Finding(
                        computation.at(number), f"{result}, but host-offloader has not run"
                    )
            return
        for instruction in with_opcodes(computation, FIRST_INDEX):
            yield from _crossings(instruction, stage.backend)


def _crossings(instruction: Instruction, backend: str | None) -> Findings:
    """Moves between memory spaces that a slice must not make."""
    after, is_update = result_array(instruction), instruction.opcode == "dynamic-update-slice"
    if after is None:
        return
    for number in range(1 + is_update):
        before = operand_array(instruction, number)
        if before is None:
            continue
        was, becomes = before.memory_space, after.memory_space
        to_host = not is_update and was != HOST_MEMORY == becomes
        from_host = is_update and not number and was == HOST_MEMORY != becomes
        # On TPU, space 1 is VMEM, and memory-space assignment moves slices between it and HBM.
        fast = backend != "tpu" and was == FAST != becomes
        if to_host or from_host or fast:
            message = f"this {instruction.opcode} moves data from memory space {was} to {becomes}"
            yield Finding(instruction, message, operand=number)


def _is_placed(text: str) -> bool:
    return "S(" in text


@lru_cache(maxsize=1 << 12)
def _holds_host(text: str) -> bool:
    placed = arrays(shape_or_none(text)) if _is_placed(text) else ()
    return any(array.memory_space == HOST_MEMORY for array in placed)
