"""Custom calls whose configuration says what they compute, by the instructions it stands for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hlo_lint.engine.values.evaluator.arrays import Array, Unsupported, Value, packed
from hlo_lint.engine.values.lowering.emit import emit
from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
from hlo_lint.engine.values.lowering.lower import Lowering
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.parser.module import parse_file

if TYPE_CHECKING:
    from hlo_lint.engine.values.evaluator.site import Kernel


def custom_call(
    call: Instruction, evaluate: Callable[[Module, tuple[Value, ...]], tuple[Array, ...]]
) -> Kernel:
    """A kernel that evaluates what a call stands for.

    Raises:
        Unsupported: only a kernel defines it.
    """
    lines = [
        f"p{number} = {operand.shape} parameter({number})"
        for number, operand in enumerate(call.operands)
    ]
    names = ", ".join(f"p{number}" for number in range(len(lines)))
    lines.append(f"ROOT r = {call.type_text} custom-call({names}){call.attributes_text}")
    (alone,) = parse_file("HloModule call\n\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n").modules
    try:
        program = Lowering(alone, Nodes()).program()
    except NotLowered as error:
        raise Unsupported(f"{error}") from None
    if program.cuts:
        raise Unsupported(f"a custom call of {program.cuts[0].what}")
    (module,) = parse_file(emit(program.graph)).modules
    shape = call.shape
    return lambda *operands: packed(shape, iter(evaluate(module, operands)))
