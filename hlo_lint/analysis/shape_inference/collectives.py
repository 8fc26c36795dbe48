"""Opcodes that exchange data between devices; group sizes determine the result's sizes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlo_lint.analysis.shape_inference.operation import (
    U32,
    Impossible,
    Inference,
    Operation,
    Table,
    Unknowable,
)
from hlo_lint.analysis.shape_inference.types import (
    brief,
    compatible,
    demand_compatible,
    same_type,
    without_layout,
    wrong_result,
)
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Shape, TupleShape
from hlo_lint.text.phrases import counted


def _group_size(operation: Operation) -> int:
    """The number of devices in a group, if the instruction alone determines it."""
    from hlo_lint.hlo.attributes.devices import (
        IotaReplicaGroups,
        MeshReplicaGroups,
        ReplicaGroupList,
    )

    across = operation.text("channel_id") is not None and operation.opcode != "all-to-all"
    if across and operation.text("use_global_device_ids") != "true":
        raise Unknowable  # a group of replicas, and the module says how many partitions
    match operation.attribute("replica_groups"):
        case IotaReplicaGroups(size=size):
            group_size = size
        case ReplicaGroupList(groups=groups) if len(set(map(len, groups))) == 1:
            group_size = len(groups[0])
        case MeshReplicaGroups(mesh=mesh, axes=axes):
            try:
                group_size = prod(mesh.size(axis) for axis in axes)
            except KeyError:
                raise Unknowable from None
        case _:
            raise Unknowable
    if not 1 <= group_size < 1 << 31:
        raise Unknowable
    return group_size


def _each(operation: Operation, result_of: Callable[[ArrayShape], ArrayShape]) -> Shape:
    """A result for each operand; a tuple if there are several."""
    results = tuple(map(result_of, operation.arrays()))
    if not results:
        raise Impossible(f"{operation.opcode} needs an operand")
    return results[0] if len(results) == 1 else TupleShape(results)


def _plain(shape: ArrayShape) -> ArrayShape:
    return shape.with_layout(None)


def _same(operation: Operation) -> Shape:
    return _each(operation, _plain)


def _resized(operation: Operation) -> Shape:
    """The operands, with a dimension multiplied or divided by the number of devices."""
    devices = _group_size(operation)

    def resized(shape: ArrayShape) -> ArrayShape:
        along = operation.dimension(shape.rank)
        if devices == 1:
            raise Unknowable  # XLA then takes the printed size
        size = shape.dims[along]
        is_scatter = operation.opcode == "reduce-scatter"
        if is_scatter and size % devices:
            raise Impossible(
                f"reduce-scatter of {size} elements in dimension {along} to {devices} devices"
            )
        if UNBOUNDED in shape.dims:
            raise Unknowable
        changed = size // devices if is_scatter else size * devices
        dims = (*shape.dims[:along], changed, *shape.dims[along + 1 :])
        return ArrayShape(shape.dtype, dims, None, shape.dynamic)

    return _each(operation, resized)


def _differs_only_along(operation: Operation, printed: Shape) -> None:
    """Demand results that differ from the operands by a whole factor in a single dimension."""
    operands = operation.arrays()
    results = printed.elements if isinstance(printed, TupleShape) else (printed,)
    if len(results) != len(operands):
        raise Impossible(f"{operation.opcode} of {len(operands)} operands returns {len(results)}")
    for operand, result in zip(operands, results, strict=True):
        given = operation.as_array(result, "a result")
        along = operation.dimension(operand.rank)
        if UNBOUNDED in (*operand.dims, *given.dims):
            continue
        alike = same_type(given.dtype, operand.dtype) and given.rank == operand.rank
        others = [dims[:along] + dims[along + 1 :] for dims in (operand.dims, given.dims)]
        if not alike or others[0] != others[1]:
            raise Impossible(f"{operation.opcode} of {_plain(operand)} cannot give {_plain(given)}")
        small, large = sorted((operand.dims[along], given.dims[along]))
        grows = given.dims[along] >= operand.dims[along]
        if (large % small if small else large) or (
            large != small and grows != operation.opcode.startswith("all-gather")
        ):
            raise Impossible(
                f"{operation.opcode} of {operand.dims[along]} elements in dimension {along} cannot "
                f"give {given.dims[along]}"
            )


def _all_to_all(operation: Operation) -> Shape:
    arrays = operation.arrays()
    try:
        devices = _group_size(operation)
    except Unknowable:
        devices = 0
    if operation.text("dimensions") is None:
        # HandleAllToAll: without a dimension there is one operand for each device of a group.
        if devices and len(arrays) != devices:
            raise Impossible(f"all-to-all has {len(arrays)} operands for groups of {devices}")
        for number, array in enumerate(arrays):
            # InferAllToAllTupleShape compares layouts, too, at any stage.
            same_order = array.minor_to_major == arrays[0].minor_to_major
            if not compatible(array, arrays[0]) or not same_order:
                raise Impossible(f"operands 0 and {number} of all-to-all have different shapes")
        return TupleShape(tuple(map(_plain, arrays)))
    if len(arrays) != 1:
        raise Impossible(f"all-to-all along a dimension takes one operand, got {len(arrays)}")
    along = operation.dimension(arrays[0].rank)
    size = arrays[0].dims[along]
    if devices and size != UNBOUNDED and size % devices:
        raise Impossible(f"all-to-all of {size} elements in dimension {along} to {devices} devices")
    return _plain(arrays[0])


def _demand_offsets(shapes: tuple[Shape, ...]) -> None:
    """Demand offsets for each buffer of an in-place permute (CheckInplaceCollectivePermute)."""
    given, taken = (shape.elements if isinstance(shape, TupleShape) else () for shape in shapes[:2])
    if len(given) != len(taken):
        raise Impossible(f"collective-permute of {brief(shapes[0])} into {brief(shapes[1])}")
    for what, buffers, shape in (("input", given, shapes[2]), ("output", taken, shapes[3])):
        if not isinstance(shape, TupleShape):
            raise Impossible(f"the {what} offset of collective-permute is not a tuple")
        nested = all(isinstance(element, TupleShape) for element in shape.elements)
        if buffers and not (nested and len(shape.elements) == len(buffers)):
            raise Impossible(
                f"collective-permute of {len(buffers)} {what} buffers has the {what} offset "
                f"{brief(shape)}"
            )


def _permuted(operation: Operation) -> Shape:
    shapes = operation.shapes()
    if len(shapes) == 4 and isinstance(shapes[2], TupleShape):
        _demand_offsets(shapes)
        return without_layout(shapes[1])  # in place: into operand 1, at offsets
    return _same(operation)


def _start(operation: Operation, printed: Shape) -> None:
    """Demand `(operands, results, contexts…)`, with results sized by the group."""
    if not isinstance(printed, TupleShape) or len(printed.elements) < 2:
        raise Impossible(f"{operation.opcode} returns a tuple of its operands and results")
    shapes = operation.shapes()
    if len(shapes) == 4 and isinstance(shapes[2], TupleShape):
        return  # in place
    alone: Shape = shapes[0] if len(shapes) == 1 else TupleShape(shapes)
    # An async-start, printed by its wrapped opcode, begins with a tuple.
    taken = TupleShape(shapes) if isinstance(printed.elements[0], TupleShape) else alone
    message = f"{operation.opcode} takes {{}}, its type begins with {{}}"
    demand_compatible(taken, printed.elements[0], message)
    if operation.opcode == "all-gather-start":
        _differs_only_along(operation, printed.elements[1])
        try:
            expected = _resized(operation)
        except Unknowable:
            return
    else:
        expected = alone
    message = f"{operation.opcode} returns {{}}, its type has {{}}"
    demand_compatible(expected, printed.elements[1], message)


def _all_reduce_start(operation: Operation, printed: Shape) -> None:
    """Demand the result of all-reduce; or the type of async-start, which is printed alike."""
    expected = _same(operation)
    match printed:
        case TupleShape((TupleShape(), *_)):
            expected = TupleShape((TupleShape(operation.shapes()), expected))
            printed = TupleShape(printed.elements[:2])
    demand_compatible(expected, printed, wrong_result(operation.opcode), any_precision=True)


def _ragged_all_to_all(operation: Operation) -> Shape:
    arrays = operation.arrays()
    for number, array in enumerate(arrays[2:], 2):
        if array.rank not in (1, 2):
            dimensions = counted(array.rank, "dimension")
            raise Impossible(f"operand {number} of ragged-all-to-all has {dimensions}")
        if not compatible(array, arrays[2]):
            raise Impossible(f"operands 2 and {number} of ragged-all-to-all differ")
    return _plain(arrays[1])


OPCODES: Table = {
    "all-gather": Inference(_resized, _differs_only_along, attributes=True),
    "all-gather-start": Inference(None, _start, attributes=True),
    "all-reduce": Inference(_same),
    "all-reduce-start": Inference(None, _all_reduce_start),
    "reduce-scatter": Inference(_resized, _differs_only_along, attributes=True),
    "all-to-all": Inference(_all_to_all, attributes=True),
    "ragged-all-to-all": Inference(_ragged_all_to_all, arity=6),
    # The first operand (`InferCollectiveBroadcastShape`), whatever else is sent with it.
    "collective-broadcast": Inference(
        lambda operation: _plain(operation.array(0)), attributes=True
    ),
    "collective-permute": Inference(_permuted),
    "collective-permute-start": Inference(None, _start),
    "partition-id": Inference(lambda _: U32, arity=0),
    "replica-id": Inference(lambda _: U32, arity=0),
}
