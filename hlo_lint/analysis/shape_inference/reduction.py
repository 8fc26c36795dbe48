"""Opcodes that fold elements by a called computation, or put them in order."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_lint.analysis.shape_inference.operation import (
    PRED,
    Impossible,
    Operation,
    Rule,
    Table,
    known,
)
from hlo_lint.analysis.shape_inference.types import (
    bare,
    compatible,
    flags,
    same_dims,
)
from hlo_lint.shape import UNBOUNDED, ArrayShape, Shape, TupleShape


def demand_reducer(
    operation: Operation,
    initial: Sequence[ArrayShape],
    inputs: Sequence[ArrayShape],
    number: int = 0,
) -> tuple[ArrayShape, ...]:
    """Demands a computation of scalars that folds `inputs` into `initial`; gives what it gives."""
    called = operation.callee(number)
    count = len(inputs)
    what = f"the computation that {operation.opcode} calls"
    if len(called.parameters) != 2 * count:
        raise Impossible(f"{what} has {len(called.parameters)} parameters, and not {2 * count}")
    root = known(called.root)
    given = root.elements if isinstance(root, TupleShape) else (root,)
    if len(given) != count or (count > 1 and not isinstance(root, TupleShape)):
        raise Impossible(f"{what} gives {root}, and not {count} scalars")
    scalars = tuple(
        operation.as_array(each, f"what is called by {operation.opcode}, a result")
        for each in given
    )
    parameters = tuple(map(known, called.parameters))
    for at, scalar in enumerate(scalars):
        accumulated, taken = parameters[at], parameters[count + at]
        if scalar.rank:
            raise Impossible(f"{what} gives {scalar.with_layout(None)}, and no scalar")
        if not compatible(accumulated, scalar):
            raise Impossible(f"{what} gives {scalar} and takes {accumulated} as parameter {at}")
        for shape, of in ((initial[at], "starts with"), (bare(inputs[at].dtype, ()), "folds")):
            against = scalar if of == "starts with" else taken
            if not compatible(against, shape.with_layout(None), any_precision=True):
                raise Impossible(
                    f"{operation.opcode} {of} {shape}, and what it calls has {against}"
                )
        if not compatible(scalar, taken, any_precision=True):
            raise Impossible(f"{what} gives {scalar} and takes {taken} as parameter {count + at}")
    return scalars


def _reduce(operation: Operation) -> Shape:
    if not operation.operands or len(operation.operands) % 2:
        raise Impossible("reduce needs an initial value for each operand")
    count = len(operation.operands) // 2
    arrays, initial = operation.arrays(0, count), operation.arrays(count)
    first = arrays[0]
    for number, each in enumerate(arrays):
        if not same_dims(each, first):
            raise Impossible(f"operands 0 and {number} of reduce differ in their sizes")
    demand_reducer(operation, initial, arrays)
    dims = operation.integers("dimensions")
    for dim in dims:
        if not 0 <= dim < first.rank:
            raise Impossible(f"dimensions={dim} of reduce is no dimension of {first}")
    if len(set(dims)) != len(dims):
        raise Impossible("dimensions of reduce names one twice")
    kept = [dim for dim in range(first.rank) if dim not in dims]
    sizes, dynamic = [first.dims[dim] for dim in kept], [flags(first)[dim] for dim in kept]
    results = tuple(bare(each.dtype, sizes, dynamic) for each in initial)
    return results[0] if count == 1 else TupleShape(results)


def _sort(operation: Operation) -> Shape:
    arrays = operation.arrays()
    if not arrays:
        raise Impossible("sort needs an operand")
    for number, each in enumerate(arrays):
        if not same_dims(each, arrays[0]):
            raise Impossible(f"operands 0 and {number} of sort differ in their sizes")
    operation.dimension(arrays[0].rank)
    called = operation.callee()
    if len(called.parameters) != 2 * len(arrays):
        raise Impossible(
            f"sort calls a computation of {len(called.parameters)} parameters, and not "
            f"{2 * len(arrays)}"
        )
    if not compatible(known(called.root), PRED):
        raise Impossible(f"sort calls a computation that gives {called.root}, and no pred[]")
    for number, text in enumerate(called.parameters):
        wanted = bare(arrays[number // 2].dtype, ())
        if not compatible(known(text), wanted, any_precision=True):
            raise Impossible(f"sort compares {wanted} by a parameter {number} of {text}")
    results = tuple(bare(each.dtype, each.dims, each.dynamic) for each in arrays)
    return results[0] if len(results) == 1 else TupleShape(results)


def _topk(operation: Operation) -> Shape:
    operand = operation.array(0)
    count = operation.integer("k")
    last = operand.dims[-1] if operand.rank else 0
    if count < 0 or (last != UNBOUNDED and count > last):
        raise Impossible(f"topk of {count} out of {last}")
    dims = (*operand.dims[:-1], count)
    dynamic = (*flags(operand)[:-1], False)
    return TupleShape((bare(operand.dtype, dims, dynamic), bare("s32", dims, dynamic)))


def _scan(operation: Operation) -> Shape:
    """Carries come last among what it reads and what it gives; the rest has the scan's dimension.

    `to_apply` takes a slice of each input and the carries, and gives a slice of each output and the
    carries.
    """
    called = operation.callee()
    carried = operation.integer("num_carries")
    shapes = operation.shapes()
    root = known(called.root)
    results = root.elements if isinstance(root, TupleShape) else (root,)
    most = min(len(shapes), len(results))
    if len(called.parameters) != len(shapes) or not 0 <= carried <= most:
        raise Impossible(
            f"scan reads {len(shapes)} operands, {carried} of them carried; what it calls has "
            f"{len(called.parameters)} parameters and {len(results)} results"
        )
    inputs = operation.arrays(0, len(shapes) - carried)
    dimension = operation.integers("dimensions")
    if len(dimension) != 1:
        raise Impossible(f"scan goes along one dimension, and not {len(dimension)}")
    lengths = set()
    for number, each in enumerate(inputs):
        if not 0 <= dimension[0] < each.rank:
            raise Impossible(
                f"scan goes along dimension {dimension[0]} of operand {number}, {each}"
            )
        lengths.add(each.dims[dimension[0]])
        taken = known(called.parameters[number])
        if not compatible(taken, _without(each, dimension[0])):
            raise Impossible(f"scan takes slices of operand {number}, {each}, as {taken}")
    if len(lengths) > 1:
        raise Impossible("the operands of scan differ in the length of what it goes along")
    outputs = len(results) - carried
    for number in range(carried):
        carry = shapes[len(inputs) + number]
        taken, given = known(called.parameters[len(inputs) + number]), results[outputs + number]
        if not (compatible(carry, taken) and compatible(carry, given)):
            raise Impossible(f"scan carries {carry} as {taken}, and gives it as {given}")
    stacked = [
        _with(operation.as_array(each, "a result"), dimension[0], lengths)
        for each in results[:outputs]
    ]
    return TupleShape((*stacked, *results[outputs:]))


def _without(shape: ArrayShape, dimension: int) -> ArrayShape:
    sizes = shape.dims[:dimension] + shape.dims[dimension + 1 :]
    return bare(shape.dtype, sizes)


def _with(shape: ArrayShape, dimension: int, lengths: set[int]) -> ArrayShape:
    if dimension > shape.rank or len(lengths) != 1:
        raise Impossible(f"scan cannot stack {shape} along dimension {dimension}")
    sizes = (*shape.dims[:dimension], *lengths, *shape.dims[dimension:])
    return bare(shape.dtype, sizes)


RULES: Table = {
    "reduce": Rule(_reduce, attributes=True, calls=True),
    "sort": Rule(_sort, attributes=True, calls=True),
    "topk": Rule(_topk, arity=1, attributes=True),
    "scan": Rule(_scan, attributes=True, calls=True),
}
