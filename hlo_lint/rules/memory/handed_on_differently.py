"""Values that are passed on with a different memory space or dynamic size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.kinds import types_in
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.kinds import types_of
from hlo_lint.hlo.opcodes import TUPLES
from hlo_lint.hlo.shape import HOST_MEMORY, ArrayShape, Index, Shape, leaves, part, spelled_index
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity, Stage
from hlo_lint.rules.evidence import RefusedByXla

_HANDS_ON: Final = TUPLES | {"copy-done", "opt-barrier"}
_CALLS: Final = ("call", "conditional", "fusion", "while")


class HandedOnDifferently(Rule):
    """A tuple, call or dynamic-update-slice whose memory space differs from its operand's.

    ## Why
    A tuple, a get-tuple-element and an opt-barrier move no data: their results are their operands.
    Calls, loops and fusions do not move their arguments and results either, nor does a copy-done
    its start's result; a dynamic-update-slice writes into the memory of its operand. If a pass
    changes the shape of an operand (a fusion in device memory replaces a copy in host memory; a
    dimension becomes static) without updating its users, they disagree about the value. From layout
    assignment on, XLA's verifier rejects that; where the stage is known, the rules of the family
    verifier report it as an error instead. In a scheduled module the entry's result must be in the
    memory space that the header states.
    """

    severity = Severity.WARNING
    mentions = ("S(", "<=", "?")
    evidence = (RefusedByXla("Expected instruction to have shape equal to s32[8]{0}", example=1),)
    reports = "openxla/xla#20006, tensorflow/tensorflow#53685"
    examples = (
        Bad.entry("ROOT t = (f32[8]{0}, f32[8]{0:S(5)}) tuple(f32[8]{0} p, f32[8]{0} q)  // error"),
        Bad.entry(
            "ROOT g = s32[<=8]{0} get-tuple-element((s32[8]{0}, s32[4]{0}) p), index=0  // error"
        ),
        Bad.entry("""
            c = (f32[8]{0:S(5)}, f32[8]{0}, u32[]) copy-start(f32[8]{0} p)
            ROOT d = f32[8]{0} copy-done(c)  // error
        """),
        Bad.entry("""
            f { ROOT c = f32[8]{0} copy(f32[8]{0:S(5)} x) }
            ROOT r = f32[8]{0} fusion(f32[8]{0} p), kind=kLoop, calls=f  // error
        """),
        Bad.entry("""
            p = f32[8]{0:S(5)} parameter(0)
            u = f32[1]{0:S(5)} parameter(1)
            i = s32[] parameter(2)
            ROOT d = f32[8]{0} dynamic-update-slice(p, u, i)  // error
        """),
        Good.entry("ROOT t = (f32[8]{0}, f32[8]{0:S(5)}) tuple(f32[8]{0} p, f32[8]{0:S(5)} q)"),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Instructions that pass on an array with a different memory space or dynamic size."""
        if not stage.assumed:
            return  # the verifier's rules report it, as errors
        if module.is_scheduled and "S(" in module.header:
            yield from _in_header(module)
        if not any(map(_may_differ, types_in(module))):
            return
        placed = {
            part.name: part for part in module.computations if any(map(_may_differ, types_of(part)))
        }
        for computation in module.nonfusion_computations:
            yield from _passed(computation, module, placed)
            if computation.name not in placed:
                continue
            for instruction in with_opcodes(computation, _HANDS_ON):
                for number, difference in _differences(instruction):
                    yield Finding(instruction, difference, operand=number)
                    break


def _in_header(module: Module) -> Findings:
    """The root of the entry, if the header states a different memory space."""
    root = None if module.entry is None else module.entry.root
    program = module.attribute_or_none("entry_computation_layout")
    if root is None or not isinstance(program, ProgramShape):
        return
    if place := _other_memory(root.shape_or_none, program.result):
        ours, theirs = place
        yield Finding(root, f"this returns {ours}, but entry_computation_layout says {theirs}")


def _passed(
    computation: Computation, module: Module, placed: Mapping[str, Computation]
) -> Findings:
    """Calls and dynamic-update-slices whose operands and results disagree about memory spaces."""
    for update in computation.with_opcode("dynamic-update-slice"):
        if place := _other_memory(update.operand_shape(0), update.shape_or_none):
            ours, theirs = place
            yield Finding(update, f"this writes into {ours}, but returns {theirs}", operand=0)
    for call in with_opcodes(computation, _CALLS):
        names = call.called_computations
        if computation.name not in placed and placed.keys().isdisjoint(names):
            continue
        for callee in map(module.computation, names):
            if callee is not None and (place := _at_boundary(call, callee)) is not None:
                taken, given = place
                yield Finding(call, f"this passes {taken} to %{callee.name} as {given}")
                break


def _at_boundary(call: Instruction, callee: Computation) -> tuple[ArrayShape, ArrayShape] | None:
    # The operands of a conditional belong to different branches.
    for parameter in callee.parameters if call.opcode != "conditional" else ():
        number = parameter.parameter_number
        taken = None if number is None else call.operand_shape(number)
        if place := _other_memory(taken, parameter.shape_or_none):
            return place
    is_condition = call.attributes.get("condition", "").lstrip("%") == callee.name
    # A condition returns its decision, not the state of the loop.
    if callee.root is None or is_condition:
        return None
    return _other_memory(callee.root.shape_or_none, call.shape_or_none)


def _other_memory(taken: Shape | None, given: Shape | None) -> tuple[ArrayShape, ArrayShape] | None:
    """The first array that only the operand or only the result places in host memory."""
    for _, source, ours in _common_arrays(taken, given):
        # Only host memory counts: XLA:TPU writes its own memory spaces into fusion bodies late.
        if _memory_differs(source, ours) and HOST_MEMORY in (
            source.memory_space,
            ours.memory_space,
        ):
            return source, ours
    return None


def _common_arrays(
    taken: Shape | None, given: Shape | None
) -> Iterator[tuple[Index, ArrayShape, ArrayShape]]:
    """The arrays that two shapes have at the same index."""
    theirs = {} if taken is None else dict(leaves(taken))
    for index, ours in leaves(given) if given is not None else ():
        source = theirs.get(index)
        if isinstance(ours, ArrayShape) and isinstance(source, ArrayShape):
            yield index, source, ours


def _memory_differs(taken: ArrayShape, given: ArrayShape) -> bool:
    """True if two arrays with layouts are in different memory spaces."""
    is_stated = taken.layout is not None and given.layout is not None
    return is_stated and taken.memory_space != given.memory_space


@lru_cache(maxsize=1 << 14)
def _may_differ(type_text: str) -> bool:
    """True if a type states a memory space or a dynamic dimension."""
    return any(mark in type_text for mark in ("S(", "<=", "?"))


def _differences(instruction: Instruction) -> Iterator[tuple[int, str]]:
    """The number of each operand that is passed on differently, with a message."""
    for number, operand in enumerate(instruction.operands):
        taken: Shape | None = operand.shape
        given: Shape | None = instruction.shape_or_none
        if instruction.opcode == "tuple":
            given = part(given, (number,))
        elif instruction.opcode == "get-tuple-element":
            index = instruction.tuple_index
            taken = None if index is None else part(taken, (index,))
        elif instruction.opcode == "copy-done":
            taken = part(taken, (0,))
        for place, source, ours in _common_arrays(taken, given) if taken is not given else ():
            is_resized = any(ours.dynamic) != any(source.dynamic)
            if ours.dims == source.dims and (is_resized or _memory_differs(source, ours)):
                where = f", part {spelled_index(place)}," if place else ""
                yield number, f"%{operand.name}{where} is {source}, but is passed on as {ours}"
