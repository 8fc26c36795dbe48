"""Shape inference of one instruction: without its module, what it calls is not known."""

from __future__ import annotations

from hlo_lint.analysis.shape_inference import Inferred, ShapeInference
from hlo_lint.hlo.ir import Instruction, Module


def infer(instruction: Instruction, module: Module | None = None) -> Inferred:
    """The shape that XLA would infer for an instruction; or why there is none."""
    inference = _inference(instruction, module)
    return inference.check_shape(instruction.computation, instruction.number, typed=False).inferred


def check(instruction: Instruction, module: Module | None = None) -> tuple[str, ...]:
    """The errors of an instruction's printed shape."""
    inference, computation = _inference(instruction, module), instruction.computation
    return tuple(
        message
        for wrong, message in inference.errors(computation)
        if wrong.number == instruction.number
    )


def _inference(instruction: Instruction, module: Module | None) -> ShapeInference:
    return ShapeInference((instruction.computation,) if module is None else module.computations)
