"""Temporary values too large for any device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.device_groups import count_of
from hlo_lint.analysis.kinds import types_in
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.records import opcode_of, type_of
from hlo_lint.hlo.shape import ArrayShape, shape_or_none
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import first_of, sized

_MAX_NAMED: Final = 4
_DEVICE_MEMORY: Final = 0
"""The memory space of a layout that names none."""
_WITHOUT_MEMORY: Final = frozenset(
    "bitcast constant dynamic-update-slice get-tuple-element iota parameter reshape tuple".split()
)
"""Opcodes whose result aliases another value, is an input, or is always fused into its users."""


class HugeTemporary(Rule):
    """A temporary value that takes many gigabytes.

    ## Why
    Broadcasts and elementwise operations cost no memory if they are fused with their users.
    Otherwise the whole result is written to memory, and a broadcast of a few megabytes may take
    tens of gigabytes: RESOURCE_EXHAUSTED when the program is compiled or run. Before fusion the
    finding is a warning in case the fusion does not happen; the instruction names the line of the
    program. Before partitioning, sizes are divided by the number of partitions.
    """

    severity = Severity.WARNING
    min_bytes = Option(
        1 << 35,
        "Smallest reported value, in bytes per partition: half of a large GPU's memory.",
        least=1,
    )
    evidence = (Counted("bytes accessed", 103280541696, 3422552064),)
    reports = "jax-ml/jax#23548"
    examples = (
        Bad.entry("""
            b = f32[512,4096,4096] broadcast(f32[4096,4096] p), dimensions={1,2}  // error
            n = f32[512,4096,4096] negate(b)
            ROOT s = f32[1,4096,4096] slice(n), slice={[0:1], [0:4096], [0:4096]}
        """),
        Good.entry("""
            b = f32[16,4096,4096] broadcast(f32[4096,4096] p), dimensions={1,2}
            n = f32[16,4096,4096] negate(b)
            ROOT s = f32[1,4096,4096] slice(n), slice={[0:1], [0:4096], [0:4096]}
        """),
    )

    def check(self, final: FinalModule) -> Findings:
        """A finding at the largest value, with notes on others that reach the limit."""
        if max(map(bytes_on_device, types_in(final.module)), default=0) < self.min_bytes:
            return
        shared = 1 if final.is_final else _partitions_to_come(final.module)
        # Without num_partitions, a sharding over devices leaves open how many will share a value.
        if shared is None:
            return
        sizes = [
            (size // shared, instruction)
            for size, instruction in _temporaries(final.module, self.min_bytes * shared)
        ]
        if not sizes:
            return
        largest, first = max(sizes, key=lambda value: value[0])
        others = [f"%{value.name}: {sized(size)}" for size, value in sizes if value is not first]
        notes = first_of(others, f"more values of at least {sized(self.min_bytes)}", _MAX_NAMED)
        message = f"this {first.opcode} returns {first.type_text}: {sized(largest)}"
        yield Finding(first, message, notes)


def _temporaries(module: Module, least: int) -> Iterator[tuple[int, Instruction]]:
    """Instructions outside fusions that return at least `least` bytes, with that size."""
    sizes = {text: bytes_on_device(text) for text in types_in(module)}
    large = {text: size for text, size in sizes.items() if size >= max(least, 1)}
    for computation in module.nonfusion_computations if large else ():
        if types_of(computation).isdisjoint(large):
            continue
        for number, row in enumerate(computation.rows):
            size = large.get(type_of(row))
            if size is not None and opcode_of(row) not in _WITHOUT_MEMORY:
                instruction = computation.at(number)
                if not instruction.is_root:
                    yield size, instruction


@lru_cache(maxsize=1 << 14)
def bytes_on_device(text: str) -> int:
    """The size in bytes of an array type in device memory; 0 for any other type."""
    shape = shape_or_none(text)
    if not isinstance(shape, ArrayShape):
        return 0
    return (shape.byte_size or 0) if shape.memory_space == _DEVICE_MEMORY else 0


def _partitions_to_come(module: Module) -> int | None:
    """The number of partitions that will share the values; None if shardings leave it open."""
    # The partitioner runs long before the scheduler.
    if module.is_scheduled:
        return 1
    count = count_of(module, "num_partitions")
    return None if count == 1 and module.mentions("sharding={devices=") else count
