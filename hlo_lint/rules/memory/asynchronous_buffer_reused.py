"""Uses of the memory of an asynchronous operation in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.analysis.async_chains import async_chains, has_async
from hlo_lint.analysis.memory_accesses import Accesses, MemoryAccess, Race
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule
from hlo_lint.rules.evidence import MeasuredHarm

if TYPE_CHECKING:  # loaded where a module has asynchronous operations
    from hlo_lint.dumps.artefacts.buffer_assignment import BufferAssignment

_DURING = """
HloModule copied, is_scheduled=true
x = f32[512]{0} negate(f32[512]{0} p)
s = (f32[512]{0}, f32[512]{0}, u32[]) copy-start(x)
y = f32[512]{0} sine(p)  // error
d = f32[512]{0} copy-done(s)
ROOT t = (f32[512]{0}, f32[512]{0}) tuple(d, y)
"""
_BUFFERS = "-buffer-assignment.txt"
_ASSIGNMENT = """
BufferAssignment:
allocation 0: size 2048, parameter 0, shape |f32[512]| at ShapeIndex {{}}:
 value: <0 p @0> (size=2048,offset=0): f32[512]{{0}}
allocation 1: size 16, output shape is |(f32[512], f32[512])|, maybe-live-out:
 value: <1 t{{}} @0> (size=16,offset=0): (f32[512]{{0}}, f32[512]{{0}})
allocation 2: size 8192, preallocated-temp:
 value: <2 x @0> (size=2048,offset=0): f32[512]{{0}}
 value: <3 s{{0}} @0> (size=2048,offset={s}): f32[512]{{0}}
 value: <4 y @0> (size=2048,offset={y}): f32[512]{{0}}
"""


class AsynchronousBufferReused(Rule):
    """An instruction that uses memory of an asynchronous operation in flight.

    ## Why
    A copy, a collective or a computation on another stream runs concurrently with the schedule from
    its start to its done. Until the done, no instruction may write its inputs, or read or write its
    outputs. Buffer assignment separates the values by live range, but no check follows if the order
    changes later. Where two values share memory, the numbers depend on timing: right on a slow run,
    under a profiler or a sanitizer, and wrong on a fast run.

    The rule compares the order of a scheduled module with its buffer assignment. It includes the
    bodies of loops, calls and conditionals that run in between, and other operations in flight. It
    ignores tuple index tables and contexts of starts, which hold no data.
    """

    mentions = ("-start", "-done", "send", "recv")
    evidence = (
        MeasuredHarm(
            "`tests/rules/test_races.py` compares the rule with the uses that XLA lists, on dumps "
            "in which a value was moved into memory in flight."
        ),
    )
    examples = (
        Bad.entry(_DURING, artefacts={_BUFFERS: _ASSIGNMENT.format(s=6144, y=1024)}),
        Bad.entry(_DURING, artefacts={_BUFFERS: _ASSIGNMENT.format(s=2048, y=3072)}),
        Bad.entry(
            """
            HloModule copied, is_scheduled=true
            x = f32[512]{0} negate(f32[512]{0} p)
            s = (f32[512]{0}, f32[512]{0}, u32[]) copy-start(x)  // error
            ROOT d = f32[512]{0} copy-done(s)
            """,
            artefacts={_BUFFERS: _ASSIGNMENT.format(s=1024, y=4096)},
        ),
        Good.entry(_DURING, artefacts={_BUFFERS: _ASSIGNMENT.format(s=2048, y=4096)}),
        Good.entry(
            """
            HloModule copied, is_scheduled=true
            x = f32[512]{0} negate(f32[512]{0} p)
            s = (f32[512]{0}, f32[512]{0}, u32[]) copy-start(x)
            d = f32[512]{0} copy-done(s)
            y = f32[512]{0} sine(p)
            ROOT t = (f32[512]{0}, f32[512]{0}) tuple(d, y)
            """,
            artefacts={_BUFFERS: _ASSIGNMENT.format(s=6144, y=1024)},
        ),
    )

    def is_applicable(self, module: Module) -> bool:
        """True if the module is scheduled and has asynchronous operations."""
        return module.is_scheduled and has_async(module) and bool(async_chains(module))

    def check(self, final: FinalModule, buffers: BufferAssignment) -> Findings:
        """Instructions that conflict with an operation in flight."""
        accesses = Accesses(final.module, buffers)
        for chain in async_chains(final.module):
            races = list(accesses.races(chain))
            for instruction in dict.fromkeys(race.instruction for race in races):
                worst = max(
                    (race for race in races if race.instruction is instruction),
                    key=lambda race: (race.theirs.writes, race.ours.writes),
                )
                notes = str(worst.ours), str(worst.theirs)
                yield Finding(instruction, _message(worst), notes)
            for read, written in accesses.folds(chain):
                yield Finding(
                    chain.start,
                    f"this copies onto its own source: {_common(read, written)} bytes overlap at "
                    "different offsets",
                    notes=(str(read), str(written)),
                )
            for loss in accesses.losses(chain):
                yield Finding(
                    chain.start,
                    f"this overwrites {_common(loss.read, loss.ours)} bytes of "
                    f"%{loss.read.value.instruction}, which %{loss.reader.name} reads after "
                    f"{chain.until}",
                    notes=(str(loss.ours), str(loss.read)),
                )


def _message(race: Race) -> str:
    theirs, ours, chain = race.theirs, race.ours, race.chain
    verb, other = ("reads", "is still writing")
    if theirs.writes:
        verb, other = ("writes", "also writes" if ours.writes else "still reads")
    size = _common(theirs, ours)
    return f"this {verb} {size} bytes that %{chain.start.name} {other}, until {chain.until}"


def _common(left: MemoryAccess, right: MemoryAccess) -> int:
    """The size of the overlap of two accesses, in bytes."""
    a, b = left.value.slice, right.value.slice
    return min(a.end, b.end) - max(a.offset, b.offset)
