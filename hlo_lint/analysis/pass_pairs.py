"""The same instruction before and after a pass, by names: what XLA clones or moves keeps its name.

`hlo_lint.analysis.diff` pairs instructions by what they compute, for people; here a pair has to be
certain, and what no name tells is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hlo_lint.hlo.ir import Computation, Instruction, Module


def changed_computations(
    before: Module, after: Module
) -> Iterator[tuple[Computation, Computation]]:
    """The computations of one name whose texts differ."""
    earlier = {computation.name: computation for computation in before.computations}
    for computation in after.computations:
        found = earlier.get(computation.name)
        if found is not None and found is not computation and found.text != computation.text:
            yield found, computation


def same_instructions(
    before: Computation, after: Computation
) -> Iterator[tuple[Instruction, Instruction]]:
    """The instructions of one name and opcode; without one, what reads and gives the same.

    An instruction that a pass replaced by a clone has another name, the same operands and type.
    """
    replaced: dict[tuple[object, ...], list[Instruction]] = defaultdict(list)
    for old in before.instructions:
        if old.name not in after.index and old.operand_names:
            replaced[_value(old)].append(old)
    for new in after.instructions:
        found = before.instruction(new.name)
        if found is not None:
            if found.opcode == new.opcode:
                yield found, new
        elif replaced:
            candidates = replaced.get(_value(new), [])
            if len(candidates) == 1:
                yield candidates[0], new


def _value(instruction: Instruction) -> tuple[object, ...]:
    target = instruction.attributes.get("custom_call_target")
    return instruction.opcode, instruction.operand_names, instruction.type_text, target
