"""Shape inference: the shape that XLA would give an instruction, from what it reads.

`ShapeInference` infers the shapes of a module's instructions, and says why printed ones cannot be.
What XLA's `shape_inference.cc`
infers and its `hlo_verifier.cc` demands of shapes is in one table an opcode family; XLA's leniency
is ours: precisions of floats may mix, dynamic flags are not compared, layouts only where an opcode
hands on what lies in memory.
"""

from hlo_lint.analysis.shape_inference.module import ShapeInference, inference_in, signature_of
from hlo_lint.analysis.shape_inference.operation import Signature
from hlo_lint.analysis.shape_inference.shape_check import Inferred, Open, Refusal

__all__ = [
    "Inferred",
    "Open",
    "Refusal",
    "ShapeInference",
    "Signature",
    "inference_in",
    "signature_of",
]
