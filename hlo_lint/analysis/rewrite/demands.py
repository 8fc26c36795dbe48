"""Checks that XLA would accept a change; each raises RewriteError otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from hlo_lint.analysis.calls import inline_computations
from hlo_lint.analysis.rewrite.graph import (
    AnyInstruction,
    NewInstruction,
    ReadValue,
    RewrittenGraph,
)
from hlo_lint.hlo.ir import Instruction, called_names
from hlo_lint.hlo.opcodes import COMMON, OPCODES, demands_on
from hlo_lint.hlo.records import attributes_before_metadata
from hlo_lint.hlo.shape import shape_or_none
from hlo_lint.text.errors import RewriteError, nearest
from hlo_lint.text.phrases import counted, in_a_line

if TYPE_CHECKING:  # loaded with the first rewrite
    from hlo_lint.analysis.shape_inference import Signature


def demand_own(graph: RewrittenGraph, node: AnyInstruction) -> None:
    """Check that an instruction is in this module and not removed."""
    if isinstance(node, NewInstruction):
        is_own = node in graph.lines.get(node.anchor, ())
    else:
        body = node.computation
        is_own = body is graph.module.computation(body.name) or body in graph.module
    if not is_own:
        raise RewriteError(f"%{node.name} is not in the module of this rewrite")
    if node in graph.removed:
        raise RewriteError(f"%{node.name} is removed")


def demand_readable(
    graph: RewrittenGraph, read: ReadValue, user: AnyInstruction, order: tuple[int, float]
) -> None:
    """Check that a user at a given place may read a value: same computation, defined above."""
    source = read.source
    demand_own(graph, source)
    if source.computation is not user.computation:
        places = f"%{source.computation.name} and %{user.computation.name}"
        raise RewriteError(f"%{user.name} cannot read %{source.name}: they are in {places}")
    if isinstance(source, Instruction) and source.is_nested:
        raise RewriteError(f"%{source.name} is written inside the operands of its user")
    if graph.order(source) >= order:
        raise RewriteError(f"%{user.name} cannot read %{source.name}, which is defined below it")
    if read.shape_index and not read.type_text:
        raise RewriteError(f"%{source.name} has no element %{read.reference}")


def demand_removable(
    graph: RewrittenGraph, instruction: Instruction, *, hands_name_on: bool = False
) -> None:
    """Check that an instruction may be removed, apart from its users."""
    demand_own(graph, instruction)
    name = instruction.name
    if instruction.opcode == "parameter":
        raise RewriteError(
            f"%{name} is a parameter: callers of its computation pass a value for it"
        )
    if instruction.is_nested:
        raise RewriteError(f"%{name} is written inside the operands of its user")
    # A control dependency is by name, which a new instruction takes over.
    if not hands_name_on and graph.has_control_dependencies(instruction):
        raise RewriteError(f"%{name} has control dependencies")


def demand_same_shape(old: AnyInstruction, read: ReadValue) -> None:
    """Check that two shapes are equal up to layout (`ShapeUtil::Compatible`)."""
    from hlo_lint.analysis.shape_inference.types import compatible

    before, after = shape_or_none(old.type_text), shape_or_none(read.type_text)
    if before is not None and after is not None and not compatible(before, after):
        message = f"%{old.name} has shape {before}, %{read.reference} has {after}"
        raise RewriteError(in_a_line(message, 200))


def demand_operands(new: NewInstruction) -> None:
    """Check the opcode and the number of operands."""
    opcode = new.opcode
    facts = demands_on(opcode)
    if facts is None:
        raise RewriteError(f"XLA has no opcode {opcode!r}: {nearest(opcode, OPCODES)}")
    if opcode == "parameter":
        raise RewriteError("a parameter is part of its computation's signature")
    if opcode == "constant":
        if not new.literal:
            raise RewriteError('expected the literal of a constant as text: "0", "{1, 2}"')
        return
    if new.literal:
        raise RewriteError(f"expected the operands of {opcode} as a list, got {new.literal!r}")
    count = len(new.operands)
    least, most = facts.operands
    if count < least or (most is not None and count > most):
        wanted = counted(least, "operand") if least == most else f"at least {least} operands"
        raise RewriteError(f"{opcode} takes {wanted}, got {count}")


def demand_attributes(opcode: str, names: Iterable[str], *, whole: bool = False) -> None:
    """Check attribute names against an opcode; if `whole`, also that required ones are present."""
    facts = demands_on(opcode)
    if facts is None:
        return
    for name in names:
        if name not in facts.allowed:
            raise RewriteError(
                f"{opcode} has no attribute {name}: {nearest(name, facts.allowed - COMMON)}"
            )
    missing = [name for name in facts.required if name not in names] if whole else ()
    if missing:
        raise RewriteError(f"{opcode} needs the attribute {missing[0]}")


def demand_shape(graph: RewrittenGraph, node: AnyInstruction) -> None:
    """Check the shape and the callees of an instruction that had no such errors before."""
    from hlo_lint.analysis.shape_inference import inference_in
    from hlo_lint.analysis.shape_inference.shape_check import check_shape

    tail = graph.tail(node)
    signatures = tuple(_signature(graph, name, node) for name in called_names(tail))
    operands = graph.operand_types(node)
    errors = check_shape(
        node.opcode, node.type_text, operands, attributes_before_metadata(tail), signatures
    ).errors
    if not errors:
        return
    if isinstance(node, Instruction):
        former = inference_in(graph.module).check_shape(node.computation, node.number)
        if former.errors:
            return
    line = f"%{node.name} = {node.type_text} {node.opcode}({', '.join(operands)})"
    raise RewriteError(f"XLA would refuse {in_a_line(line)}: {errors[0]}")


def _signature(graph: RewrittenGraph, name: str, caller: AnyInstruction) -> Signature | None:
    """Look up the signature of a callee, which has to be defined above its caller."""
    from hlo_lint.analysis.shape_inference import signature_of

    module = graph.module
    callee = graph.computations.get(name) or module.computation(name)
    if callee is None:
        names = [*graph.computations, *(computation.name for computation in module)]
        raise RewriteError(f"no computation is named %{name}: {nearest(name, names)}")
    # XLA's parser reads a computation before those that call it.
    if name not in graph.computations and callee not in inline_computations(module):
        start = module.computation_start(caller.computation)
        if module.computation_start(callee) >= start:
            raise RewriteError(f"%{caller.name} cannot call %{name}, which is defined below it")
    return signature_of(callee)
