"""Opcodes that group values, call computations or order effects: shapes pass through them."""

from __future__ import annotations

from hlo_lint.analysis.shape_inference.operation import (
    PRED,
    S32,
    TOKEN,
    Impossible,
    Inference,
    Operation,
    Signature,
    Table,
    Unknowable,
    known,
)
from hlo_lint.analysis.shape_inference.types import (
    brief,
    compatible,
    demand_compatible,
    demand_pred,
)
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape
from hlo_lint.text.phrases import counted


def _get_tuple_element(operation: Operation) -> Shape:
    operand = operation.shape(0)
    index = operation.integer("index")
    if not isinstance(operand, TupleShape):
        raise Impossible(f"get-tuple-element of {brief(operand)}, which is not a tuple")
    if not 0 <= index < len(operand.elements):
        raise Impossible(f"get-tuple-element {index} of a tuple of {len(operand.elements)}")
    return operand.elements[index]


def _same(operation: Operation) -> Shape:
    return operation.shape(0)


def _demand_arguments(operation: Operation, called: Signature, shapes: tuple[Shape, ...]) -> None:
    if len(called.parameters) != len(shapes):
        raise Impossible(
            f"{operation.opcode} passes {counted(len(shapes), 'operand')} to a computation of "
            f"{counted(len(called.parameters), 'parameter')}"
        )
    for number, (text, shape) in enumerate(zip(called.parameters, shapes, strict=True)):
        message = f"{operation.opcode} passes {{}} as operand {number}, the parameter is {{}}"
        demand_compatible(shape, known(text), message)


def _call(operation: Operation) -> Shape:
    called, shapes = operation.callee(), operation.shapes()
    if operation.opcode == "fusion":  # HandleFusion looks at the operands of parameters
        shapes = shapes[: len(called.parameters)]
    _demand_arguments(operation, called, shapes)
    return known(called.root)


def _while(operation: Operation) -> Shape:
    carried = operation.shape(0)
    condition, body = operation.callee(0), operation.callee(1)
    if len(operation.callees) != 2:
        raise Unknowable
    if operation.tail.find("body=") <= operation.tail.find("condition="):
        condition, body = body, condition
    for name, called in (("condition", condition), ("body", body)):
        if len(called.parameters) != 1:
            raise Impossible(f"the {name} of while has {len(called.parameters)} parameters")
        message = f"while carries {{}}, its {name} takes {{}}"
        demand_compatible(carried, known(called.parameters[0]), message)
    demand_pred("the condition of while", condition.root)
    demand_compatible(carried, known(body.root), "while carries {}, its body returns {}")
    return carried


def _conditional(operation: Operation) -> Shape:
    selector = operation.shape(0)
    passed = operation.shapes()[1:]
    if not isinstance(selector, ArrayShape) or selector.rank:
        raise Impossible(f"conditional selects by a scalar, got {brief(selector)}")
    if not compatible(selector, PRED) and not compatible(selector, S32):
        raise Impossible(f"conditional selects by pred[] or s32[], got {selector}")
    branches = [operation.callee(number) for number in range(len(operation.callees))]
    if 0 <= operation.tail.find("false_computation=") < operation.tail.find("true_computation="):
        branches.reverse()
    if not branches:
        raise Unknowable
    if selector.dtype == "pred" and len(branches) != 2:
        raise Impossible(f"conditional on a pred has two branches, got {len(branches)}")
    if len(passed) != len(branches):
        operands = counted(len(passed), "operand")
        raise Impossible(f"conditional passes {operands} to {len(branches)} branches")
    result = known(branches[0].root)
    for number, (branch, shape) in enumerate(zip(branches, passed, strict=True)):
        if len(branch.parameters) != 1:
            raise Impossible(f"branch {number} has {len(branch.parameters)} parameters")
        taken = known(branch.parameters[0])
        demand_compatible(taken, shape, f"branch {number} takes {{}}, got {{}}")
        given = known(branch.root)
        demand_compatible(given, result, f"branch {number} returns {{}}, branch 0 {{}}")
    return result


def _infeed(operation: Operation, printed: Shape) -> None:
    operation.token(0)
    if not isinstance(printed, TupleShape) or printed.elements[1:] != (TOKEN,):
        raise Impossible(f"infeed returns data and a token, got {brief(printed)}")


def _feeds(operation: Operation, printed: Shape) -> None:
    operation.token(1)
    text = operation.text("outfeed_shape")
    if text is not None:
        demand_compatible(known(text), operation.shape(0), "outfeed_shape is {}, operand 0 is {}")


OPCODES: Table = {
    "tuple": Inference(lambda operation: TupleShape(operation.shapes()), keeps_layout=True),
    "get-tuple-element": Inference(_get_tuple_element, arity=1, attributes=True, keeps_layout=True),
    "opt-barrier": Inference(_same, arity=1, keeps_layout=True),
    "domain": Inference(_same, arity=1),
    "after-all": Inference(lambda _: TOKEN),
    "add-dependency": Inference(_same, lambda operation, _: operation.token(1), 2),
    "call": Inference(_call, keeps_layout=True, calls=True),
    "fusion": Inference(_call, keeps_layout=True, calls=True),
    "while": Inference(_while, arity=1, attributes=True, keeps_layout=True, calls=True),
    "conditional": Inference(_conditional, attributes=True, keeps_layout=True, calls=True),
    "infeed": Inference(None, _infeed, arity=1),
    "outfeed": Inference(lambda _: TOKEN, _feeds, 2, attributes=True),
    "parameter": Inference(),
    "constant": Inference(),
    "custom-call": Inference(),
}
