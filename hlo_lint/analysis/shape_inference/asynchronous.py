"""Pairs of a start and a done: what the start gives says what the done will."""

from __future__ import annotations

from hlo_lint.analysis.shape_inference.operation import (
    TOKEN,
    U32,
    Impossible,
    Inference,
    Operation,
    Table,
    Unknowable,
    known,
)
from hlo_lint.analysis.shape_inference.types import (
    apart,
    brief,
    compatible,
    without_layout,
)
from hlo_lint.hlo.shape import Shape, TupleShape


def _elements(shape: Shape, least: int, what: str) -> tuple[Shape, ...]:
    if not isinstance(shape, TupleShape) or len(shape.elements) < least:
        raise Impossible(f"{what} has to be a tuple of {least} or more, and is {brief(shape)}")
    return shape.elements


def _copy_start(operation: Operation) -> Shape:
    operand = without_layout(operation.shape(0))
    return TupleShape((operand, operand, U32))


def _copy_done(operation: Operation) -> Shape:
    taken = operation.shape(0)
    destination, source, *_ = _elements(taken, 2, "what copy-done takes")
    if not compatible(destination, source):
        raise Impossible("copy-done of {} into {}".format(*apart(source, destination)))
    return destination


def _send(operation: Operation) -> Shape:
    operation.token(1)
    return TupleShape((operation.shape(0), U32, TOKEN))


def _recv(operation: Operation, printed: Shape) -> None:
    operation.token(0)
    elements = _elements(printed, 3, "what recv gives")
    if len(elements) != 3 or not compatible(elements[1], U32) or elements[2] != TOKEN:
        raise Impossible(f"recv gives data, a u32[] and a token, and not {brief(printed)}")


def _send_done(operation: Operation) -> Shape:
    _elements(operation.shape(0), 3, "what send-done takes")
    return TOKEN


def _recv_done(operation: Operation) -> Shape:
    data, *_ = _elements(operation.shape(0), 3, "what recv-done takes")
    return TupleShape((data, TOKEN))


def _async_start(operation: Operation, printed: Shape) -> None:
    """`((operands…), result, contexts…)`."""
    called = operation.callee()
    taken, given = _async_parts(printed)
    shapes = operation.shapes()
    if len(taken) != len(shapes):
        raise Impossible(f"async-start takes {len(shapes)} operands, and its type has {len(taken)}")
    if len(called.parameters) != len(shapes):
        raise Impossible(
            f"async-start passes {len(shapes)} operands to a computation of "
            f"{len(called.parameters)} parameters"
        )
    for number, shape in enumerate(shapes):
        if not compatible(shape, taken[number]):
            ours, theirs = apart(shape, taken[number])
            raise Impossible(f"operand {number} of async-start is {ours}, its type has {theirs}")
        parameter = known(called.parameters[number])
        if not compatible(shape, parameter):
            ours, theirs = apart(shape, parameter)
            raise Impossible(f"async-start passes {ours}, and parameter {number} is {theirs}")
    if not compatible(known(called.root), given):
        ours, theirs = apart(given, known(called.root))
        raise Impossible(f"async-start says {ours}, and what it calls gives {theirs}")


def _async_parts(shape: Shape) -> tuple[tuple[Shape, ...], Shape]:
    taken, given, *_ = _elements(shape, 2, "the type of an async-start")
    if not isinstance(taken, TupleShape):
        found = brief(taken)
        raise Impossible(f"the type of an async-start begins with its operands, and not {found}")
    return taken.elements, given


def _async_update(operation: Operation) -> Shape:
    if len(operation.operands) != 1:
        raise Unknowable  # operands bound later, which only newer releases have
    _async_parts(operation.shape(0))
    return operation.shape(0)


def _async_done(operation: Operation) -> Shape:
    _, given = _async_parts(operation.shape(0))
    return given


def _done_of_all_gather(operation: Operation) -> Shape:
    taken = operation.shape(0)
    return _elements(taken, 2, "what all-gather-done takes")[1]


def _done_of_permute(operation: Operation) -> Shape:
    taken = operation.shape(0)
    return _elements(taken, 2, "what collective-permute-done takes")[1]


def _done_of_all_reduce(operation: Operation) -> Shape:
    taken = operation.shape(0)
    if (
        isinstance(taken, TupleShape)
        and taken.elements
        and isinstance(taken.elements[0], TupleShape)
    ):
        return _async_parts(taken)[1]  # an async-done that is printed by what it wraps
    return taken


SUGAR = frozenset(("start", "update", "done"))
"""What may stand behind an opcode that is printed in place of the computation around it."""


def sugar(opcode: str, part: str, wrapped: Inference) -> Inference:
    """How the shape of one part of an asynchronous instruction follows from what it wraps."""
    if part != "start":
        return OPCODES[f"async-{part}"]

    def start(operation: Operation, printed: Shape) -> None:
        taken, given = _async_parts(printed)
        shapes = TupleShape(operation.shapes())
        if not compatible(shapes, TupleShape(taken)):
            ours, theirs = apart(shapes, TupleShape(taken))
            raise Impossible(f"{operation.opcode} takes {ours}, and its type has {theirs}")
        inner = Operation(opcode, operation.operands, operation.tail, operation.callees)
        made = None if wrapped.infer is None else wrapped.infer(inner)
        if made is not None and not compatible(made, given, any_precision=True):
            ours, theirs = apart(made, given, any_precision=True)
            raise Impossible(f"{operation.opcode} makes {ours}, and its type has {theirs}")

    return Inference(None, start, wrapped.arity, wrapped.attributes, wrapped.calls)


OPCODES: Table = {
    "copy-start": Inference(_copy_start, arity=1),
    "copy-done": Inference(_copy_done, arity=1, keeps_layout=True),
    "send": Inference(_send, arity=2, keeps_layout=True),
    "recv": Inference(None, _recv, arity=1),
    "send-done": Inference(_send_done, arity=1),
    "recv-done": Inference(_recv_done, arity=1, keeps_layout=True),
    "async-start": Inference(None, _async_start, calls=True),
    "async-update": Inference(_async_update, keeps_layout=True),
    "async-done": Inference(_async_done, arity=1),
    "all-reduce-done": Inference(_done_of_all_reduce, arity=1),
    "all-gather-done": Inference(_done_of_all_gather, arity=1),
    "collective-permute-done": Inference(_done_of_permute, arity=1),
}
