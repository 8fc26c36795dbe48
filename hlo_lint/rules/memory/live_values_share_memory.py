"""Values that are alive at once and share memory."""

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
    """A write into memory whose value is still to be read.

    ## Why
    Buffer assignment lets values share memory whose live ranges do not meet, in the schedule that
    it was given. Where the two disagree (the schedule changed afterwards, a live range was counted
    wrongly, an alias was not known), an instruction writes over a value that a later one reads, and
    the numbers are wrong. Asynchronous operations are the business of asynchronous-buffer-reused.

    What counts is the order of a scheduled module and the buffer assignment beside it; what loops,
    calls and conditionals write inside counts for them.
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
        """True if the order of the text is the order of execution."""
        return module.is_scheduled

    def check(self, final: FinalModule, buffers: BufferAssignment) -> Findings:
        """Each value that is lost, at what writes over it."""
        for clash in clashes(final.module, buffers):
            value = clash.lost.read.value
            yield Finding(
                clash.writer,
                f"this writes over %{value.instruction}, which %{clash.lost.reader.name} reads "
                "after it",
                notes=(str(clash.written), str(clash.lost.read)),
            )
