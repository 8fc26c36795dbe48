"""Inputs of a user: files of arrays, and inputs that `exec` recorded."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import BadZipFile

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.directory import RECORDED
from hlo_lint.dumps.selection import modules_of
from hlo_lint.engine.values.inputs import leaves_of
from hlo_lint.hlo.attributes.metadata import OpMetadata
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.literals import numpy_dtype
from hlo_lint.text.errors import DumpError, UsageError, nearest

if TYPE_CHECKING:
    from numpy.typing import NDArray


def read_inputs(path: Path, module: Module) -> dict[int, NDArray[Any]]:
    """The arrays in a file for the parameters of a module, by the number of the leaf.

    The arrays of a .npz file have the name of a parameter (`state.0` for an element of a tuple),
    its number, or the path that jax wrote into its metadata: `params['layer']['w']`, also spelled
    `params.layer.w` or `params/layer/w`.

    Raises:
        DumpError: the file is no such file.
        UsageError: no parameter has the name of an array, or has its shape.
    """
    import numpy as np

    arrays = _arrays_in(path)
    own = leaves_of(module)
    numbers = {f"{number}": number for number in range(len(own))}
    names = {name: number for number, (name, _) in enumerate(own)}
    paths: dict[tuple[str, ...], int] = {}
    for parameter in module.entry.parameters if module.entry else ():
        metadata = parameter.attribute_or_none("metadata")
        if parameter.name in names and isinstance(metadata, OpMetadata):
            paths[_path(metadata.op_name)] = names[parameter.name]
    by_leaf: dict[int, NDArray[Any]] = {}
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


def inputs_for(compilation: Compilation, path: Path | None) -> dict[int, NDArray[Any]]:
    """The inputs in a file; without one those that `exec --record-inputs` saved beside the dumps.

    Raises:
        DumpError: the file is not a .npz file.
        UsageError: it does not fit the first dump.
    """
    if path is None:
        path = compilation.artefact_path(RECORDED)
    return {} if path is None else read_inputs(path, modules_of(compilation.dumps[0])[0])


_steps_of: Final = re.compile(r"[^\W\d]\w*|\d+").findall


def _path(name: str) -> tuple[str, ...]:
    """The steps of a path in a pytree, however it is spelled."""
    return tuple(_steps_of(name))


def _arrays_in(path: Path) -> dict[str, NDArray[Any]]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, AttributeError) as error:
        raise DumpError(f"{path}: not a .npz file of arrays: {error}") from error
