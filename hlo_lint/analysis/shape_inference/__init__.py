"""Shape inference: the shape that XLA would give an instruction.

`ShapeInference` infers the shapes of a module's instructions, and gives the errors of printed
shapes. A table for each opcode family mirrors XLA's `shape_inference.cc`, and the conditions on
shapes in `hlo_verifier.cc`. It is as lenient as XLA: float precisions may mix, dynamic flags are
not compared, and layouts only where an opcode passes on a buffer.
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
