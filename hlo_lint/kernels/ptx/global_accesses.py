"""Global memory accesses of a kernel, by the parameters from which their addresses come."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from hlo_lint.analysis.walks import reached
from hlo_lint.kernels.ptx.async_copies import access_size

if TYPE_CHECKING:
    from collections.abc import Collection

    from hlo_lint.kernels.ptx.reader import Function, Ptx, PtxInstruction

# The name of a declared parameter: `x` in `.param .u64 .ptr .global x,`, `d` in `.param .b8 d[8],`.
_PARAMETER = re.compile(r"\.param\b[^,()]*?([\w$]+)\s*(?:\[\s*\d*\s*\])?\s*(?=[,)])")
_REGISTER = re.compile(r"%[\w$@]+")
_NOT_GLOBAL = frozenset("param local shared const shared::cta shared::cluster tex".split())
_ATOMIC = ("atom", "red")
# Tensor copies address memory through a descriptor, and a called function is not followed.
_OPAQUE = ("cp.async.bulk", "cp.reduce", "call", "tensormap", "st.async", "multimem")


@dataclass(frozen=True, slots=True)
class GlobalAccesses:
    """The accesses of a kernel; parameters count from 0."""

    reads_first: frozenset[int]
    """Parameters whose memory is read before any store through them, in text order."""
    stored: dict[int, int | None]
    """Upper bound of the bytes a thread block stores through each; None if any is in a loop."""

    def may_store(self, parameter: int) -> int | None:
        """Upper bound of the bytes that a thread block stores through a parameter.

        None if any store of the kernel is in a loop, whatever its parameter.
        """
        return self.stored.get(parameter, 0) if None not in self.stored.values() else None


def global_accesses(ptx: Ptx, pointers: Collection[int]) -> GlobalAccesses | None:
    """The accesses of a file's only kernel; None if addresses cannot be followed.

    `pointers` are the numbers of the pointer parameters; addresses depend on scalars too.
    """
    kernels = [function for function in ptx.functions if function.is_kernel]
    if len(kernels) != 1 or len(ptx.functions) != 1 or not ptx.is_whole:
        return None
    (kernel,) = kernels
    instructions = list(kernel.instructions())
    if any(instruction.is_a(*_OPAQUE) for instruction in instructions):
        return None
    # The analysis does not follow registers spilled to local memory.
    if any(instruction.is_a("ld.local", "st.local") for instruction in instructions):
        return None
    names = _PARAMETER.findall(ptx.text[kernel.span.start : kernel.span.end])
    numbers = {name: number for number, name in enumerate(names) if number in pointers}
    sources = _sources(instructions, numbers)
    threads = prod(kernel.threads)
    looped = _blocks_in_loops(kernel)
    reads: set[int] = set()
    stored: dict[int, int | None] = {}
    for number, block in enumerate(kernel.blocks):
        for instruction in block.instructions:
            through, is_read, is_written = _access(instruction, sources)
            if not is_read and not is_written:
                continue
            if is_read and len(through) == 1:  # of several parameters, only one is surely read
                reads |= through - stored.keys()
            if is_written:
                size = None if number in looped else threads * access_size(instruction)
                # An address of unknown origin may lie in the memory of each.
                for source in through or pointers:
                    before = stored.get(source, 0)
                    stored[source] = None if size is None or before is None else before + size
    return GlobalAccesses(frozenset(reads), stored)


def _sources(
    instructions: list[PtxInstruction], parameters: dict[str, int]
) -> dict[str, frozenset[int]]:
    """The parameters from which each register is computed; loads are not followed."""
    sources: dict[str, frozenset[int]] = defaultdict(frozenset)
    changed = True
    # A register in a loop depends on later assignments: iterate to a fixed point.
    while changed:
        changed = False
        for instruction in instructions:
            if not instruction.operands:
                continue
            if instruction.is_a("ld.param"):
                name = instruction.operands[-1].strip("[]").partition("+")[0]
                given = frozenset({parameters[name]} if name in parameters else ())
            elif instruction.is_a("ld", "atom", "st", "red"):
                continue
            else:
                registers = _REGISTER.findall(" ".join(instruction.operands[1:]))
                given = frozenset().union(*(sources[register] for register in registers))
            for register in _REGISTER.findall(instruction.operands[0]):
                if not given <= sources[register]:
                    sources[register] |= given
                    changed = True
    return sources


def _access(
    instruction: PtxInstruction, sources: dict[str, frozenset[int]]
) -> tuple[frozenset[int], bool, bool]:
    """The parameters of an access's address, and whether it reads and writes global memory."""
    is_copy = instruction.is_a("cp.async.ca", "cp.async.cg")
    is_read = is_copy or instruction.is_a("ld", *_ATOMIC)
    is_written = instruction.is_a("st", *_ATOMIC)
    parts = set(instruction.opcode.split("."))
    if not (is_read or is_written) or (not is_copy and parts & _NOT_GLOBAL):
        return frozenset(), False, False
    addresses = [operand for operand in instruction.operands if operand.startswith("[")]
    if not addresses:
        return frozenset(), False, False
    # A copy goes from global memory, its last address, to shared memory.
    address = addresses[-1] if is_copy else addresses[0]
    through = [sources.get(register, frozenset[int]()) for register in _REGISTER.findall(address)]
    return frozenset().union(*through), is_read, is_written


def _blocks_in_loops(function: Function) -> set[int]:
    """The numbers of the basic blocks on a cycle."""
    following = [block.successors for block in function.blocks]
    return {
        number
        for number, successors in enumerate(following)
        if number in reached(successors, following.__getitem__)
    }
