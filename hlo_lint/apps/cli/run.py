"""`hlo-lint run`: the values that a module computes, on XLA:CPU."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlo_lint.apps.cli import parameters
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.targets import as_dump
from hlo_lint.dumps.file_types import FileType
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import Shape, TupleShape, leaves
from hlo_lint.text.errors import DumpError, UsageError, nearest, os_errors_as
from hlo_lint.text.files import write

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hlo_lint.engine.values.run import ArrayValue

MAX_PRINTED = 1000
"""Elements of an array that are printed in full; of a larger one the edges are."""


@click.command("run")
@click.argument("path", metavar="FILE", type=parameters.PATH)
@click.option(
    "--inputs",
    "given",
    type=parameters.PATH,
    metavar="FILE.npz",
    help="The values of the parameters, by name; of an element of a tuple as name.0.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="The seed of the values where --inputs gives none.",
)
@click.option(
    "--print",
    "printed",
    multiple=True,
    metavar="INSTRUCTION",
    help="Print the value of this instruction in place of the result; of one in a loop the last.",
)
@click.option("--wide", is_flag=True, help="Hold every float as an f64, to see what rounding does.")
@parameters.written_to("OUT.npz", "Also write what is printed to this file.")
def command(
    path: Path,
    given: Path | None,
    seed: int,
    printed: tuple[str, ...],
    wide: bool,
    out: Path | None,
) -> None:
    """Run a module, and print its result or inner values.

    The text may be that of any release and backend: it is lowered to what the installed jaxlib
    runs, with layouts, fusions and asynchronous operations; a custom call that only a kernel
    defines has no value. Only what is printed is run, so that the rest may be anything.

    Exit status: 0, or 2 if an instruction has no value here.
    """
    module = _module(path)
    wanted = [_instruction(module, name) for name in printed]
    try:
        values = list(_values(module, wanted, given, seed, wide))
    except ImportError as error:
        message = f"values need {error.name or error}: pip install 'hlo-lint[xla]'"
        raise UsageError(message) from None
    for name, value, shape in values:
        click.echo(f"%{name} = {shape}\n{_shown(value)}")
    if out is not None:
        _save(out, {name: value for name, value, _ in values})


def _values(
    module: Module, wanted: Sequence[Instruction], given: Path | None, seed: int, wide: bool
) -> Iterator[tuple[str, NDArray[Any], Shape | None]]:
    """The arrays that are wanted, each with a name and its shape."""
    from hlo_lint.engine.values.run import values_of

    inputs = _inputs(module, given, seed)
    if not wanted and module.entry is not None and module.entry.root is not None:
        wanted = [module.entry.root]
    for instruction, value in zip(
        wanted, values_of(module, inputs, wanted, wide=wide), strict=True
    ):
        yield from _parts(instruction.name, value, instruction.shape_or_none)


def _module(path: Path) -> Module:
    if path.is_dir():
        raise UsageError(f"{path} is a folder; give one file")
    dump = as_dump(path, Settings()).pipelines[0].dumps[0]
    with os_errors_as(f"{path}: cannot be read"):
        module = dump.file.modules[0]
    if dump.file_type is not FileType.HLO or module.entry is None:
        raise DumpError(f"{path}: not an HLO module")
    return module


def _instruction(module: Module, name: str) -> Instruction:
    for computation in sorted(module.computations, key=lambda body: not body.is_entry):
        instruction = computation.instruction(name)
        if instruction is not None:
            return instruction
    hint = nearest(name.removeprefix("%"), module.names(), "no name is near")
    raise UsageError(f"no instruction is named {name}: {hint}")


def _inputs(module: Module, given: Path | None, seed: int) -> list[NDArray[Any]]:
    """The arrays in the parameters: those of the file, seeded ones for the rest."""
    from hlo_lint.engine.values.inputs import inputs_of

    inputs = inputs_of(module, seed)
    if given is None or module.entry is None:
        return inputs
    arrays = _loaded(given)
    names: list[str] = []
    for parameter in module.entry.parameters:
        names += [
            ".".join([parameter.name, *map(str, index)]) for index, _ in leaves(parameter.shape)
        ]
    unknown = arrays.keys() - set(names)
    if unknown:
        name = min(unknown)
        raise UsageError(f"{given}: no parameter is named {name}: {nearest(name, names)}")
    return [
        _as_kind(arrays[name], default) if name in arrays else default
        for name, default in zip(names, inputs, strict=True)
    ]


def _loaded(path: Path) -> Mapping[str, NDArray[Any]]:
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, zipfile.BadZipFile, AttributeError) as error:
        raise DumpError(f"{path}: not a .npz file of arrays: {error}") from error


def _as_kind(array: NDArray[Any], like: NDArray[Any]) -> NDArray[Any]:
    """A loaded array: numpy keeps bf16 and the like as bytes without a type."""
    if array.dtype.kind == "V" and array.dtype.itemsize == like.dtype.itemsize:
        return array.view(like.dtype)
    return array


def _parts(
    name: str, value: ArrayValue, shape: Shape | None
) -> Iterator[tuple[str, NDArray[Any], Shape | None]]:
    """The arrays of a value, each with a name and its shape."""
    if isinstance(value, tuple):
        shapes: Sequence[Shape | None] = [None] * len(value)
        if isinstance(shape, TupleShape):
            shapes = shape.elements
        for number, (part, of_part) in enumerate(zip(value, shapes, strict=True)):
            yield from _parts(f"{name}.{number}", part, of_part)
    elif value is not None:
        yield name, value, shape


def _shown(array: NDArray[Any]) -> str:
    import numpy as np

    if array.dtype.kind == "V" or array.dtype.name.startswith(("bfloat", "float8", "float4")):
        array = array.astype(np.float32)
    return str(np.array2string(array, threshold=MAX_PRINTED, separator=", ", max_line_width=100))


def _save(path: Path, values: Mapping[str, NDArray[Any]]) -> None:
    import numpy as np

    arrays: dict[str, Any] = dict(values)
    content = BytesIO()
    np.savez(content, **arrays)
    write(path, content.getvalue())
