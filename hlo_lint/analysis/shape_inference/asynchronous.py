"""Types of asynchronous operations: that of a start determines that of its done."""

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
    brief,
    compatible,
    demand_compatible,
    describe_mismatch,
    without_layout,
)
from hlo_lint.hlo.shape import Shape, TupleShape


def _elements(shape: Shape, least: int, what: str) -> tuple[Shape, ...]:
    if not isinstance(shape, TupleShape) or len(shape.elements) < least:
        raise Impossible(f"{what} has to be a tuple of {least} or more, got {brief(shape)}")
    return shape.elements


def _copy_done(operation: Operation) -> Shape:
    destination, source, *_ = _elements(operation.shape(0), 2, "the operand of copy-done")
    demand_compatible(source, destination, "copy-done of {} into {}")
    return destination


def _recv(operation: Operation, printed: Shape) -> None:
    operation.token(0)
    # XLA's parser takes the data from the printed type, and derives the rest.
    _elements(printed, 1, "the type of recv")


def _takes_send(operation: Operation, printed: Shape) -> None:
    _elements(operation.shape(0), 3, "the operand of send-done")


def _recv_done(operation: Operation) -> Shape:
    data, *_ = _elements(operation.shape(0), 3, "the operand of recv-done")
    return TupleShape((data, TOKEN))


def prefix_error(prefix: Shape, whole: Shape, what: str = "", of: str = "") -> str:
    """The error if `prefix`, the shapes bound so far, is not the start of `whole`, or ""."""
    if compatible(prefix, whole) or prefix == TupleShape(()):
        return ""
    if isinstance(prefix, TupleShape) and isinstance(whole, TupleShape):
        elements = whole.elements[: len(prefix.elements)]
        if len(elements) == len(prefix.elements):
            if compatible(prefix, TupleShape(elements)):
                return ""
            whole = TupleShape(elements)
    ours, theirs = describe_mismatch(prefix, whole)
    return f"{what} is {ours}, {of} {theirs}"


def _async_start(operation: Operation, printed: Shape) -> None:
    """`((operands…), result, contexts…)`; updates may bind operands and results later."""
    called = operation.callee()
    bound, result = _async_parts(printed)
    operands = TupleShape(operation.shapes())
    message = "the operands of async-start are {}, in its type {}"
    demand_compatible(operands, TupleShape(bound), message)
    parameters = TupleShape(tuple(map(known, called.parameters)))
    if len(bound) > len(parameters.elements):
        count = len(parameters.elements)
        raise Impossible(f"async-start has {len(bound)} operands for {count} parameters")
    if error := prefix_error(operands, parameters, "the operand of async-start", "its parameter"):
        raise Impossible(error)
    result_of = "the result in the type of async-start"
    if error := prefix_error(result, known(called.root), result_of, "its computation's"):
        raise Impossible(error)


def _async_parts(shape: Shape) -> tuple[tuple[Shape, ...], Shape]:
    bound, result, *_ = _elements(shape, 2, "the type of an async-start")
    if not isinstance(bound, TupleShape):
        first = brief(bound)
        raise Impossible(f"the type of an async-start begins with its operands, got {first}")
    return bound.elements, result


def _async_update(operation: Operation) -> Shape:
    _async_parts(operation.shape(0))
    if operation.is_typed or len(operation.operands) != 1:
        raise Unknowable  # it may bind operands and results
    return operation.shape(0)


def _bound_by_update(operation: Operation, printed: Shape) -> None:
    """Demand the operands of start and update, and a result that extends the earlier result."""
    before, old_result = _async_parts(operation.shape(0))
    after, result = _async_parts(printed)
    operands = TupleShape((*before, *operation.shapes()[1:]))
    demand_compatible(operands, TupleShape(after), "async-update binds {}, its type has {}")
    if error := prefix_error(old_result, result, "the result before", "of async-update"):
        raise Impossible(error)


def _async_done(operation: Operation) -> Shape:
    _, result = _async_parts(operation.shape(0))
    if operation.is_typed and isinstance(result, TupleShape):
        raise Unknowable  # a result that is bound in part, or as one element
    return result


def _result_of_done(operation: Operation, printed: Shape) -> None:
    _, result = _async_parts(operation.shape(0))
    if error := prefix_error(result, printed, "the result of its start", "of async-done"):
        raise Impossible(error)


def _done_of_collective(operation: Operation) -> Shape:
    return _elements(operation.shape(0), 2, f"the operand of {operation.opcode}")[1]


def _done_of_all_reduce(operation: Operation) -> Shape:
    match taken := operation.shape(0):
        case TupleShape((TupleShape(), *_)):
            return _async_parts(taken)[1]  # an async-done, printed by its wrapped opcode
        case _:
            return taken


def sugar(opcode: str, part: str, wrapped: Inference) -> Inference:
    """The inference of a start, an update or a done, from that of the wrapped opcode."""
    if part != "start":
        return OPCODES[f"async-{part}"]

    def start(operation: Operation, printed: Shape) -> None:
        bound, result = _async_parts(printed)
        shapes = TupleShape(operation.shapes())
        message = f"the operands of {operation.opcode} are {{}}, in its type {{}}"
        demand_compatible(shapes, TupleShape(bound), message)
        if result == TupleShape(()) or not bound:
            return  # bound by updates
        # An update will bind the other parameters.
        if operation.callees and len(operation.callee().parameters) > len(bound):
            return
        inner = Operation(opcode, operation.operands, operation.tail, operation.callees)
        wrapped.demand_arity(inner)
        inferred = None if wrapped.infer is None else wrapped.infer(inner)
        if inferred is not None:
            message = f"{operation.opcode} returns {{}}, its type has {{}}"
            demand_compatible(inferred, result, message, any_precision=True)

    return Inference(None, start, None, wrapped.attributes, wrapped.calls)


OPCODES: Table = {
    "copy-start": Inference(
        lambda operation: TupleShape((*[without_layout(operation.shape(0))] * 2, U32)), arity=1
    ),
    "copy-done": Inference(_copy_done, arity=1, keeps_layout=True),
    "send": Inference(
        lambda operation: TupleShape((operation.shape(0), U32, TOKEN)),
        lambda operation, _: operation.token(1),
        arity=2,
    ),
    "recv": Inference(None, _recv, arity=1),
    "send-done": Inference(lambda _: TOKEN, _takes_send, 1),
    "recv-done": Inference(_recv_done, arity=1),
    "async-start": Inference(None, _async_start, calls=True),
    "async-update": Inference(_async_update, _bound_by_update, keeps_layout=True),
    "async-done": Inference(_async_done, _result_of_done, arity=1),
    "all-reduce-done": Inference(_done_of_all_reduce, arity=1),
    "all-gather-done": Inference(_done_of_collective, arity=1),
    "collective-permute-done": Inference(_done_of_collective, arity=1),
}
