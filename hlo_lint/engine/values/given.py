"""Inputs of a user: files of arrays, inputs that `exec` recorded, snapshots that XLA wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zipfile import BadZipFile

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import RECORDED
from hlo_lint.dumps.selection import modules_of, one_file
from hlo_lint.engine.values.inputs import leaves_of
from hlo_lint.hlo.attributes.metadata import OpMetadata
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.literals import AnyArray, numpy_dtype
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.hlo.wire import VARINT, Field, Reader
from hlo_lint.text.errors import DumpError, PayloadError, UsageError, nearest
from hlo_lint.text.files import is_proto
from hlo_lint.xla.proto import MAX_BYTES, stored_message

_VARINTS: Final = frozenset({"s32", "s64", "u32", "u64"})
"""The integer types that a LiteralProto holds as varints; of others it holds the bytes."""


def read_inputs(path: Path, module: Module) -> dict[int, AnyArray]:
    """The arrays in a file for the parameters of a module, by the number of the leaf.

    The file is a snapshot that XLA wrote, or a .npz file, whose arrays have the name of a parameter
    (`state.0` for an element of a tuple), its number, or the path that jax wrote into its metadata:
    `params['layer']['w']`, also spelled `params.layer.w` or `params/layer/w`.

    Raises:
        DumpError: the file is neither.
        UsageError: no parameter has the name of an array, or has its shape.
    """
    import numpy as np

    arrays = snapshot_arguments(path) if is_proto(path.name) else _arrays_in(path)
    own = leaves_of(module)
    numbers = {f"{number}": number for number in range(len(own))}
    names = {name: number for number, (name, _) in enumerate(own)}
    paths: dict[tuple[str, ...], int] = {}
    for parameter in module.entry.parameters if module.entry else ():
        metadata = parameter.attribute_or_none("metadata")
        if parameter.name in names and isinstance(metadata, OpMetadata):
            paths[_path(metadata.op_name)] = names[parameter.name]
    by_leaf: dict[int, AnyArray] = {}
    for name, array in arrays.items():
        leaf = names.get(name, numbers.get(name, paths.get(_path(name))))
        if leaf is None:
            raise UsageError(f"{path}: no parameter is named {name}: {nearest(name, names)}")
        shape = own[leaf][1]
        if array.shape != shape.dims:
            raise UsageError(f"{path}: {name} has the shape {array.shape}, the parameter {shape}")
        dtype = np.dtype(numpy_dtype(shape.dtype))
        if array.dtype.kind == "V" and array.dtype.itemsize == dtype.itemsize:
            array = array.view(dtype)  # numpy writes bf16 and the like as bytes without a type
        by_leaf[leaf] = array
    return by_leaf


def inputs_for(compilation: Compilation, path: Path | None) -> dict[int, AnyArray]:
    """The inputs in a file; without one those that `exec --record-inputs` saved beside the dumps.

    Raises:
        DumpError: the file is neither .npz nor a snapshot.
        UsageError: it does not fit the first dump.
    """
    if path is None:
        path = compilation.artefact_path(RECORDED)
    return {} if path is None else read_inputs(path, modules_of(compilation.dumps[0])[0])


def _path(name: str) -> tuple[str, ...]:
    """The steps of a path in a pytree, however it is spelled."""
    return tuple(re.findall(r"[^\W\d]\w*|\d+", name))


def _arrays_in(path: Path) -> dict[str, AnyArray]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        raise DumpError(f"{path}: not a .npz file of arrays: {error}") from error


# ---- snapshots


def snapshot_arguments(path: Path) -> dict[str, AnyArray]:
    """The arguments in a snapshot, by the number of the leaf; the types are those of its module.

    `HloSnapshot` has them in `arguments = 2`, `HloUnoptimizedSnapshot` in the inputs of a device,
    `partitions = 2`, of which they are field 1.

    Raises:
        DumpError: it cannot be read, has no arguments, or those of several devices.
    """
    shapes = [shape for _, shape in leaves_of(one_file(path).module)]
    reader = Reader(stored_message(path), MAX_BYTES)
    try:
        literals = list(reader.numbered(2))
        if literals and not _is_literal(reader, literals[0]):
            if len(literals) > 1:
                raise DumpError(f"{path}: it has the arguments of {len(literals)} devices")
            literals = list(reader.numbered(1, literals[0]))
        leaves = [leaf for literal in literals for leaf in _leaves(reader, literal)]
        if len(leaves) != len(shapes):
            raise DumpError(f"{path}: {len(leaves)} arguments for {len(shapes)} parameters")
        return {
            f"{number}": _array(reader, leaf, shape)
            for number, (leaf, shape) in enumerate(zip(leaves, shapes, strict=True))
        }
    except (PayloadError, ValueError) as error:
        raise DumpError(f"{path}: its arguments cannot be read: {error}") from error


def _is_literal(reader: Reader, field: Field) -> bool:
    """True for a LiteralProto: `shape = 1`, of which `element_type = 2` is a number."""
    return any(
        element_type.wire_type == VARINT
        for shape in reader.numbered(1, field)
        for element_type in reader.numbered(2, shape)
    )


def _leaves(reader: Reader, literal: Field) -> Iterator[Field]:
    """The arrays of a LiteralProto: `tuple_literals = 10` are those of a tuple."""
    parts = list(reader.numbered(10, literal))
    if not parts:
        yield literal
    for part in parts:
        yield from _leaves(reader, part)


def _array(reader: Reader, literal: Field, shape: ArrayShape) -> AnyArray:
    """The array of a LiteralProto: a shape, and the numbers in the order of its layout."""
    import numpy as np

    fields = {field.number: field for field in reader.iterate(literal)}
    dtype = np.dtype(numpy_dtype(shape.dtype))
    # Each type has a field of its own for its numbers; 1 is the shape.
    data = next((field for number, field in fields.items() if number > 1), None)
    if data is None:
        array = np.zeros(0, dtype)
    elif shape.dtype in _VARINTS:
        # Negative numbers have 64 bits on the wire.
        array = np.array(reader.numbers(data), np.uint64).astype(dtype)
    else:
        array = np.frombuffer(data.content, dtype)
    # `layout = 5` of a ShapeProto, of which `minor_to_major = 1`.
    minor_to_major = [
        axis
        for layout in reader.numbered(5, fields[1])
        for field in reader.numbered(1, layout)
        for axis in reader.numbers(field)
    ]
    order = minor_to_major[::-1] or [*range(shape.rank)]
    stored = [shape.dims[axis] for axis in order]
    return array.reshape(stored).transpose(np.argsort(order))
