"""Shape inference: the shape that XLA would give an instruction, from what it reads.

    infer(instruction, module) -> Shape | Refusal | Open     what follows, or why nothing does
    check(instruction, module) -> tuple[str, ...]            why the printed shape cannot be

`ShapeInference` does both for many instructions of one module. What XLA's `shape_inference.cc`
infers and its `hlo_verifier.cc` demands of shapes is in one table an opcode family; XLA's leniency
is ours: precisions of floats may mix, dynamic flags are not compared, layouts only where an opcode
hands on what lies in memory.
"""

from hlo_lint.analysis.shape_inference.module import ShapeInference, check, infer, signature_of
from hlo_lint.analysis.shape_inference.operation import Signature
from hlo_lint.analysis.shape_inference.shape_check import Inferred, Open, Refusal

__all__ = [
    "Inferred",
    "Open",
    "Refusal",
    "ShapeInference",
    "Signature",
    "check",
    "infer",
    "signature_of",
]
