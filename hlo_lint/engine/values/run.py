"""Compute the values of instructions on XLA:CPU."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from typing import Final, TypeAlias

from hlo_lint.engine.values.inputs import leaves_of
from hlo_lint.engine.values.lowering.emit import NATIVE, WIDE, emit_graph
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered, Tree, with_leaves
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.engine.values.lowering.program import Cut, Program
from hlo_lint.engine.values.lowering.watch import FirstNonFinite, Watch
from hlo_lint.engine.values.programs import in_types
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import CONTROL_FLOW
from hlo_lint.hlo.parser.literals import AnyArray, numpy_dtype
from hlo_lint.text.errors import HloLintError
from hlo_lint.xla.cpu import JUDGE, NotRun, XlaCpu

ArrayValue: TypeAlias = "Tree[AnyArray]"
"""A logical array (a scalar has no dimensions), a tuple, or None for a token."""


class NoValue(HloLintError):
    """An instruction without a value; the message names it and gives the reason."""


def values_of(
    module: Module,
    inputs: Sequence[AnyArray],
    instructions: Sequence[Instruction] = (),
    *,
    wide: bool = False,
    xla: XlaCpu | None = None,
) -> list[ArrayValue]:
    """The values of instructions, or of the module's result by default.

    The value of an instruction in a loop is its last value. Only the operations that the
    instructions need are lowered and run, on one device.

    Args:
        inputs: a value for each array in the parameters of the entry computation, in order, with
            the dimensions of its shape; it is converted to the element type.
        instructions: instructions of any called computation except reducers and comparators.
        wide: hold every float as an f64, which avoids most rounding errors.
        xla: the child process that runs the program; by default a new one.

    >>> import numpy
    >>> from hlo_lint.hlo.parser.module import parse_file
    >>> text = "ENTRY e { p = s32[2]{0} parameter(0) ROOT a = s32[2]{0} add(p, p) }"
    >>> (module,) = parse_file(text).modules
    >>> values_of(module, [numpy.array([1, 2])])
    [array([2, 4], dtype=int32)]

    Raises:
        NoValue: an instruction cannot be lowered, XLA:CPU does not run it, or these inputs do not
            reach it.
        DumpError: jaxlib is not installed.
    """
    entry = module.entry
    if entry is None or entry.root is None:
        raise NoValue("the module has no entry computation")
    nodes = Nodes()
    watch = Watch(module, list(instructions) or [entry.root], nodes)
    program = _program(module, nodes, watch)
    for instruction in watch.instructions:
        if instruction not in watch.seen:
            raise NoValue(f"%{instruction.name} does not run with these inputs")
    values: dict[Instruction, ArrayValue] = {}
    for instruction, value, has_run in _seen(watch, program, inputs, wide, xla):
        values[instruction] = value
        if not has_run:
            raise NoValue(f"%{instruction.name} does not run with these inputs")
    return [values[instruction] for instruction in watch.instructions]


def first_non_finite(
    module: Module, inputs: Sequence[AnyArray], *, wide: bool = False, xla: XlaCpu | None = None
) -> tuple[Instruction, tuple[ArrayValue, ...]] | None:
    """The first instruction that turns NaN-free operands into a NaN, or finite ones into infinity.

    It comes with its value and those of its operands when it first does so; None if no instruction
    does. Iterations of loops count; of several instructions the first in the module's order is
    returned.

    Raises:
        NoValue: as `values_of`.
        DumpError: jaxlib is not installed.
    """
    watched = [
        instruction
        for instruction in module.instructions()
        if instruction.operands and instruction.opcode.removesuffix("-start") not in _CALLERS
    ]
    for keeps in (False, True):  # the values of all instructions may need too much memory
        nodes = Nodes()
        watch = FirstNonFinite(module, watched, nodes, keeps=keeps)
        program = _program(module, nodes, watch)
        seen = _seen(watch, program, inputs, wide, xla)
        non_finite = [(instruction, value) for instruction, value, has_run in seen if has_run]
        if not non_finite:
            return None
        watched = [non_finite[0][0]]
    instruction, values = non_finite[0]
    assert isinstance(values, tuple)
    return instruction, values


_CALLERS: Final = CONTROL_FLOW | {"async", "fusion"}
"""Opcodes whose value comes from a called computation."""


def _program(module: Module, nodes: Nodes, watch: Watch) -> Program:
    """The program that computes the watched values."""
    lowering = Lowering(module, nodes, watch=watch)
    try:
        program = lowering.program()
    except NotLowered as error:
        is_named = not error.instruction or f"%{error.instruction}" in str(error)
        raise NoValue(f"{error}" if is_named else f"%{error.instruction}: {error}") from error
    if program.cuts:
        raise NoValue(_cut_reason(program.cuts[0]))
    if program.endless:
        raise NoValue(program.endless[0][1])
    return program


def _seen(
    watch: Watch, program: Program, inputs: Sequence[AnyArray], wide: bool, xla: XlaCpu | None
) -> Iterator[tuple[Instruction, ArrayValue, bool]]:
    """Each watched instruction, with its value and whether it has run."""
    arguments = _arguments(watch.module, program, inputs)
    results = iter(_run(program, arguments, wide, xla))
    for instruction, last in watch.seen.items():
        yield instruction, with_leaves(last.value, results), bool(next(results))


def arrays_of(value: ArrayValue) -> Iterator[AnyArray]:
    """The arrays of a value in order, nested tuples included; tokens are left out."""
    if isinstance(value, tuple):
        for part in value:
            yield from arrays_of(part)
    elif value is not None:
        yield value


def _arguments(module: Module, program: Program, inputs: Sequence[AnyArray]) -> list[AnyArray]:
    """The arrays that a program takes, out of those for all parameters of its module."""
    leaves = leaves_of(module)
    if len(inputs) != len(leaves):
        raise NoValue(f"the entry takes {len(leaves)} arrays, got {len(inputs)}")
    arguments = []
    for parameter in program.inputs:
        name, leaf = leaves[parameter.leaf]
        if any(leaf.dynamic):
            raise NoValue(f"%{name}: {leaf} has a size that is known at run time only")
        array, shape = inputs[parameter.leaf], parameter.shape
        if array.shape != shape.dims:
            dims = list(array.shape)
            raise NoValue(f"%{name}: the input has the dimensions {dims}, not {shape}")
        arguments.append(array.astype(numpy_dtype(shape.dtype)))
    return arguments


def _run(
    program: Program, arguments: Sequence[AnyArray], wide: bool, xla: XlaCpu | None
) -> list[AnyArray]:
    types = WIDE if wide else NATIVE
    with ExitStack() as stack:
        xla = xla or stack.enter_context(XlaCpu())
        text = emit_graph(program.graph, types)
        inputs = in_types(arguments, program, types)
        try:
            with suppress(NotRun):
                return xla.run(text, inputs, flags=JUDGE)
            return xla.run(text, inputs)
        except NotRun as error:
            raise NoValue(_refusal(error, text, program)) from error


def text_values(
    module: Module, inputs: Sequence[AnyArray], xla: XlaCpu, *, with_passes: bool
) -> list[AnyArray]:
    """The arrays of the result as XLA:CPU computes them from the text itself, in order.

    Args:
        module: a module of one device.
        inputs: as for `values_of`.
        xla: the child process that runs it.
        with_passes: True for all passes of XLA:CPU, False for those without which it cannot run.

    Raises:
        NoValue: XLA:CPU does not compile or run the text of the module.
        DumpError: jaxlib is not installed.
    """
    pairs = zip(inputs, leaves_of(module), strict=True)
    typed = [array.astype(numpy_dtype(shape.dtype)) for array, (_, shape) in pairs]
    flags = {} if with_passes else JUDGE
    try:
        return xla.run(module.text, typed, flags=flags, plain=with_passes)
    except NotRun as error:
        raise NoValue(f"XLA:CPU does not run the text itself: {error}") from error


_find_nodes: Final = re.compile(r"%?\bn(\d+)\b").sub
_place: Final = re.compile(r"(\d+):(\d+): ").match
_words: Final = re.compile(r"[a-z][a-z-]+").findall


def _refusal(error: NotRun, text: str, program: Program) -> str:
    """XLA's message about the program, with the module's own names.

    XLA names a node, a line, or only the unknown opcode.
    """
    by_number = {number: source.name for (_, number), source in program.origins.items()}

    def named(text: str) -> str:
        return _find_nodes(lambda node: f"%{by_number.get(int(node[1]), node[0])}", text)

    message = f"{error}"
    place = _place(message)
    if place is not None:
        # XLA reports missing text at the start of the next line.
        lines = text.split("\n")[: int(place[1])]
        begin = lines.pop()
        line = begin if begin[: int(place[2]) - 1].strip() else lines[-1]
        message = f"{message[place.end() :]}: {named(line).strip()}"
    else:
        words = _words(message)
        of_opcode = (source.name for source in program.origins.values() if source.opcode in words)
        message = named(message)
        name = "" if "%" in message else next(of_opcode, "")
        message = f"{message}: %{name}" if name else message
    return f"XLA:CPU does not run it: {message}"


def _cut_reason(cut: Cut) -> str:
    match cut.instruction.opcode:
        case "custom-call":
            reason = f"a custom call of {cut.what}"
        case "constant":
            reason = "a constant that was left out when the text was printed"
        case opcode:
            reason = f"XLA:CPU does not run {opcode}"
    return f"%{cut.instruction.name}: {reason}"
