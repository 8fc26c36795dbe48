"""`hlo-lint run`: the values that a module computes, on XLA:CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hlo_lint.apps.cli import parameters
from hlo_lint.apps.cli.printing import shown_array
from hlo_lint.dumps.directory import RECORDED, open_dump
from hlo_lint.dumps.selection import main_compilations, module_at, only_module
from hlo_lint.engine.diagnose import origin_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import Shape, TupleShape, arrays
from hlo_lint.text.errors import DumpError, HloLintError, UsageError, nearest
from hlo_lint.text.files import write
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown_lines
from hlo_lint.xla.cpu import XlaCpu

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hlo_lint.engine.values.run import ArrayValue


@click.command("run")
@click.argument("path", metavar="FILE|DUMP", type=parameters.PATH)
@parameters.module_option
@parameters.inputs_option
@parameters.seed_option
@click.option(
    "--print",
    "printed",
    multiple=True,
    metavar="INSTRUCTION",
    help="Print the value of this instruction in place of the result; in a loop its last value.",
)
@click.option(
    "--first-nan",
    is_flag=True,
    help="Print the first instruction that makes a NaN or an infinity, with its operands.",
)
@click.option(
    "--wide", is_flag=True, help="Compute all floats as f64, to see the effect of rounding."
)
@click.option(
    "--as-compiled", is_flag=True, help="Run the text with the passes of XLA:CPU instead."
)
@parameters.show_inputs_option
@parameters.output_option()
def command(
    path: Path,
    module: str | None,
    inputs: Path | None,
    seed: int,
    printed: tuple[str, ...],
    first_nan: bool,
    wide: bool,
    as_compiled: bool,
    show_inputs: bool,
    out: Path | None,
) -> None:
    """Run a module, and print its result or inner values.

    The text may be that of any release and backend: it is lowered to what the installed jaxlib
    runs, with layouts, fusions and asynchronous operations; a custom call that only a kernel
    defines has no value. Parameters that --inputs leaves out are drawn by --seed. Only what is
    printed is run, so that the rest may be anything; `-o` writes it to a .npz file, too.

    With --first-nan it names the instruction that makes a NaN of operands without one, or an
    infinity of finite ones: in a loop, in any iteration. It then takes a dump directory, too, and
    runs each module as it was before optimizations until one makes such a value. With --module any
    run takes a dump directory.

    Exit status: 0, 1 if --first-nan finds one, or 2 if an instruction has no value here.
    """
    if first_nan and (printed or out):
        raise UsageError("--first-nan goes without --print and -o")
    if as_compiled and (first_nan or printed or wide):
        raise UsageError("--as-compiled goes without --first-nan, --print and --wide")
    if first_nan and path.is_dir():
        if inputs and module is None:
            raise UsageError("--inputs are those of one module: name it with --module")
        with XlaCpu() as xla:
            click.get_current_context().exit(_first_nan_in(path, module, inputs, seed, wide, xla))
    chosen = module_at(path, module)
    wanted = [_instruction(chosen, name) for name in printed]
    try:
        from hlo_lint.engine.values.inputs import leaves_of

        arguments = _inputs(chosen, inputs, seed)
        if first_nan:
            with XlaCpu() as xla:
                lines = _first_nan(chosen, arguments, wide, xla)
            click.echo(shown_lines("\n".join(lines)))
            click.get_current_context().exit(len(lines) > 1)
        if show_inputs:
            for (name, leaf), array in zip(leaves_of(chosen), arguments, strict=True):
                click.echo(f"%{name} = {leaf} (input)\n{shown_array(array)}")
        with XlaCpu() as xla:
            values = list(_values(chosen, wanted, arguments, wide, as_compiled, xla))
    except ImportError as error:
        message = f"values need {error.name or error}: pip install 'hlo-lint[xla]'"
        raise UsageError(message) from None
    for name, value, shape in values:
        click.echo(f"%{name} = {shape}\n{shown_array(value)}")
    if out is not None:
        import numpy as np

        content, arrays = BytesIO(), {name: value for name, value, _ in values}
        np.savez(content, **arrays)  # type: ignore[arg-type]
        write(out, content.getvalue())


def _values(
    module: Module,
    wanted: Sequence[Instruction],
    inputs: Sequence[NDArray[Any]],
    wide: bool,
    as_compiled: bool,
    xla: XlaCpu,
) -> Iterator[tuple[str, NDArray[Any], Shape | None]]:
    """The arrays that are wanted, each with a name and its shape.

    A result comes with a warning on stderr where the module as XLA:CPU compiles it gives another.
    """
    from hlo_lint.engine.values.compare import OWN_BOUND, result_difference
    from hlo_lint.engine.values.run import NoValue, arrays_of, text_values, values_of

    root = module.entry.root if module.entry is not None else None
    if as_compiled and root is not None:
        compiled = text_values(module, inputs, xla, with_passes=True)
        shapes = arrays(root.shape_or_none)
        for number, pair in enumerate(zip(compiled, shapes, strict=True)):
            yield f"{root.name}.{number}" if root.type_text.startswith("(") else root.name, *pair
        return
    of_result = not wanted and root is not None
    if of_result and root is not None:
        wanted = [root]
    values = values_of(module, inputs, wanted, wide=wide, xla=xla)
    for instruction, value in zip(wanted, values, strict=True):
        yield from _parts(instruction.name, value, instruction.shape_or_none)
    if of_result and not wide:
        ours = [*arrays_of(values[0])]
        for with_passes, words in ((False, "without"), (True, "with")):
            with suppress(NoValue):
                theirs = text_values(module, inputs, xla, with_passes=with_passes)
                difference = result_difference(ours, theirs, OWN_BOUND)
                if difference is not None:
                    message = f"hlo-lint: XLA {words} its passes gives another: {difference}"
                    click.echo(message, err=True)


def _first_nan_in(
    folder: Path, module: str | None, given: Path | None, seed: int, wide: bool, xla: XlaCpu
) -> int:
    """Print the first module of a dump that makes a NaN or an infinity; the exit status."""
    compiled = main_compilations(only_module(open_dump(folder), module, [folder]))
    refused: list[str] = []
    for compilation in compiled:
        dump = compilation.dumps[0]
        try:
            recorded = given or compilation.artefact_path(RECORDED)
            lines = _first_nan(dump.module, _inputs(dump.module, recorded, seed), wide, xla)
        except HloLintError as error:
            refused.append(f"{dump.path}: not run: {error}")
            continue
        if len(lines) > 1:
            click.echo(shown_lines("\n".join(lines)))
            return 1
        compilation.release_text()
    for line in refused:
        click.echo(shown_lines(line))
    if len(refused) == len(compiled):
        raise DumpError(f"{folder}: no module of it was run")
    count = counted(len(compiled) - len(refused), "module")
    click.echo(f"no instruction of {count} makes a NaN or an infinity with these inputs")
    return 0


def _first_nan(
    module: Module, inputs: Sequence[NDArray[Any]], wide: bool, xla: XlaCpu
) -> list[str]:
    """Lines about the first such instruction with its place and values; else one line."""
    import numpy as np

    from hlo_lint.engine.values.run import arrays_of, first_non_finite

    first = first_non_finite(module, inputs, wide=wide, xla=xla)
    if first is None:
        return ["no instruction makes a NaN or an infinity of finite operands with these inputs"]
    instruction, (value, *operands) = first
    assert module.file is not None
    span = module.span(instruction)
    line, column = module.file.lines.position(span.start)
    lines = [
        f"%{instruction.name} is the first instruction that makes a NaN or an infinity",
        f"  --> {module.path}:{line}:{column}",
        f"{line} | {module.file.text[span.start : span.end].strip()}",
    ]
    if origin := origin_of(instruction, module):
        lines.append(f"   = from: {origin}")
    array = next(leaf for leaf in arrays_of(value) if not _is_finite(leaf).all())
    bad = ~_is_finite(array)
    place = tuple(int(index[0]) for index in np.nonzero(bad)) if array.ndim else ()
    lines.append(
        f"   = value: {_element(array, place)}; {np.sum(bad)} of {array.size} are not finite"
    )
    for operand, of_operand in zip(instruction.operands, operands, strict=True):
        for leaf in arrays_of(of_operand):
            if leaf.shape in (array.shape, ()):
                shown = _element(leaf, place[: leaf.ndim])
            else:
                wide_array = leaf.astype(np.result_type(leaf, np.float64))
                shown = f"from {wide_array.min():g} to {wide_array.max():g}"
            lines.append(f"   = %{operand.name}: {shown}")
    return lines


def _is_finite(array: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    wide = array if array.dtype.kind == "c" else array.astype(np.float64)
    return np.asarray(np.isfinite(wide))


def _element(array: NDArray[Any], place: tuple[int, ...]) -> str:
    return f"{list(place) if place else ''} is {array[place]}".strip()


def _instruction(module: Module, name: str) -> Instruction:
    for computation in sorted(module.computations, key=lambda body: not body.is_entry):
        instruction = computation.instruction(name)
        if instruction is not None:
            return instruction
    hint = nearest(name.removeprefix("%"), module.names(), "no name is near")
    raise UsageError(f"no instruction is named {name}: {hint}")


def _inputs(module: Module, given: Path | None, seed: int) -> list[NDArray[Any]]:
    """The arrays in the parameters: those of the file, seeded ones for the rest."""
    from hlo_lint.engine.values.given import read_inputs
    from hlo_lint.engine.values.inputs import inputs_of

    arrays = read_inputs(given, module) if given is not None else {}
    return [arrays.get(leaf, drawn) for leaf, drawn in enumerate(inputs_of(module, seed))]


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
