"""Programs whose temporary memory is many times the size of arguments and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import types_of
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.memory.huge_temporary import DEVICE, bytes_on_device
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import first_of, sized

if TYPE_CHECKING:  # loaded where a module has large arrays
    from hlo_lint.dumps.artefacts.buffer_assignment import AssignedValue, BufferAssignment

_TEMPORARY: Final = "preallocated-temp"
_LIVE_OUT: Final = "maybe-live-out"
_SHOWN: Final = 3
_SHARE: Final = 32
"""Skip modules whose largest array is smaller than the limit by more than this factor."""
_PROGRAM = """
HloModule m, is_scheduled=true

ENTRY e {{
  p = f32[16384]{{0}} parameter(0)
  b = f32[16384,16384]{{1,0}} broadcast(p), dimensions={{0}}{mark}
  c = f32[16384,16384]{{1,0}} sine(b)
  ROOT r = f32[16384]{{0}} custom-call(b, c), custom_call_target="kernel"
}}
"""
_ASSIGNMENT = """
BufferAssignment:
allocation 0: size {size}, parameter 0, shape |f32[16384]| at ShapeIndex {{}}:
 value: <0 p @0> (size=65536,offset=0): f32[16384]{{0}}
allocation 1: size 65536, output shape is |f32[16384]|, maybe-live-out:
 value: <3 r @0> (size=65536,offset=0): f32[16384]{{0}}
allocation 2: size 2147483648, preallocated-temp:
 value: <1 b @0> (size=1073741824,offset=0): f32[16384,16384]{{1,0}}
 value: <2 c @0> (size=1073741824,offset=1073741824): f32[16384,16384]{{1,0}}
"""


class TemporariesOutgrowArguments(Rule):
    """A program whose temporary memory is many times the size of its arguments and results.

    ## Why
    Temporaries are invisible in the source: the activations that a gradient keeps, a broadcast that
    was not fused, an array that an all-gather materialized on each device. If they are many times
    as large as arguments and results, a single line of the program usually causes most of them, and
    rematerialization, a scan over parts or a different sharding saves the memory. The finding is at
    the largest value, which names its line; sizes come from the buffer assignment.
    """

    severity = Severity.WARNING
    min_bytes = Option(1 << 30, "Smallest reported temporary memory, in bytes.", least=1)
    times = Option(
        8.0, "Smallest reported ratio of temporary memory to arguments and results.", least=0
    )
    examples = (
        Bad(
            _PROGRAM.format(mark="  // error"),
            artefacts={"-buffer-assignment.txt": _ASSIGNMENT.format(size=65536)},
        ),
        Good(
            _PROGRAM.format(mark=""),
            artefacts={"-buffer-assignment.txt": _ASSIGNMENT.format(size=1 << 30)},
        ),
    )

    def is_applicable(self, module: Module) -> bool:
        """True if the module has arrays large enough to reach the limit."""
        least = self.min_bytes // _SHARE
        return module.is_scheduled and any(
            bytes_on_device(text) >= least
            for computation in module.nonfusion_computations
            for text in types_of(computation)
        )

    def check(self, final: FinalModule, buffers: BufferAssignment) -> Findings:
        """A finding at the largest temporary value, if the total reaches both limits."""
        temporary = passed = 0
        values: list[AssignedValue] = []
        for allocation in buffers.allocations:
            if allocation.color != DEVICE:
                continue
            if _TEMPORARY in allocation.flags:
                temporary += allocation.size
                values += allocation.values
            elif allocation.parameter is not None or _LIVE_OUT in allocation.flags:
                passed += allocation.size
        if temporary < max(self.min_bytes, self.times * passed):
            return
        largest = sorted(values, key=lambda value: -value.size)
        places = {value.id: _instruction(final.module, value) for value in largest[:_SHOWN]}
        largest_known = next((place for place in places.values() if place is not None), None)
        if largest_known is not None:
            yield Finding(
                largest_known,
                f"{sized(temporary)} of temporary memory, {sized(passed)} of arguments and results",
                first_of(
                    [f"%{value.instruction}: {sized(value.size)}" for value in largest],
                    "more values",
                    _SHOWN,
                ),
            )


def _instruction(module: Module, value: AssignedValue) -> Instruction | None:
    for computation in module.computations:
        instruction = computation.instruction(value.instruction)
        if instruction is not None:
            return instruction
    return None
