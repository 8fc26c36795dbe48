"""Values with overlapping live ranges that share memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.analysis.live_values import clashes
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding

if TYPE_CHECKING:  # loaded where a module is scheduled
    from hlo_lint.dumps.artefacts.buffer_assignment import BufferAssignment

_PROGRAM = """
HloModule m, is_scheduled=true

ENTRY e {{
  p = f32[512]{{0}} parameter(0)
  x = f32[512]{{0}} negate(p)
  y = f32[512]{{0}} {other}{mark}
  ROOT s = f32[512]{{0}} add(x, y)
}}
"""
_ASSIGNMENT = """
BufferAssignment:
allocation 0: size 2048, parameter 0, shape |f32[512]| at ShapeIndex {}:
 value: <0 p @0> (size=2048,offset=0): f32[512]{0}
allocation 1: size 2048, output shape is |f32[512]|, maybe-live-out:
 value: <3 s @0> (size=2048,offset=0): f32[512]{0}
allocation 2: size 4096, preallocated-temp:
 value: <1 x @0> (size=2048,offset=0): f32[512]{0}
 value: <2 y @0> (size=2048,offset=%d): f32[512]{0}
"""


class LiveValuesShareMemory(Rule):
    """A write to memory that holds a value still to be read.

    ## Why
    Buffer assignment lets values share memory if their live ranges are disjoint in the schedule. If
    it is out of step with the schedule (the schedule changed later, a live range was wrong, an
    alias was unknown), an instruction overwrites a value that a later instruction reads, and the
    numbers are wrong. The rule compares the order of a scheduled module with its buffer assignment;
    a loop, call or conditional counts as writing what its computations write.
    asynchronous-buffer-reused covers asynchronous operations.
    """

    mentions = ("is_scheduled=true",)
    examples = (
        Bad(
            _PROGRAM.format(other="sine(p)", mark="  // error"),
            artefacts={"-buffer-assignment.txt": _ASSIGNMENT % 1024},
        ),
        Good(
            _PROGRAM.format(other="sine(p)", mark=""),
            artefacts={"-buffer-assignment.txt": _ASSIGNMENT % 2048},
        ),
        Good(
            _PROGRAM.format(other="copy(x)", mark=""),
            artefacts={"-buffer-assignment.txt": _ASSIGNMENT % 0},
        ),
    )

    def is_applicable(self, module: Module) -> bool:
        """True if the module is scheduled, so that text order is execution order."""
        return module.is_scheduled

    def check(self, final: FinalModule, buffers: BufferAssignment) -> Findings:
        """Writes that destroy a value before its last read."""
        for clash in clashes(final.module, buffers):
            value = clash.lost.read.value
            yield Finding(
                clash.writer,
                f"this overwrites %{value.instruction}, which %{clash.lost.reader.name} reads "
                "later",
                notes=(str(clash.written), str(clash.lost.read)),
            )
