"""Payloads of custom calls: embedded kernels, configurations of library calls.

`decode_payload` reads the Triton kernels of jax-triton and Pallas, the kernels of Mosaic GPU and
the configurations of cuBLAS. Payloads are frozen; `encode_payload` writes a changed copy of a
Triton call, such as that of `triton.with_aliases`, back to the text.
A payload that is damaged, or not of the asked form, raises PayloadError.
"""

from __future__ import annotations

from functools import lru_cache

from hlo_lint.hlo.ir import Instruction
from hlo_lint.kernels.custom_calls.carrier import content_of, with_content
from hlo_lint.kernels.custom_calls.gemm import (
    PREFIX,
    GemmConfig,
    TriangularSolveConfig,
    decode_cublas,
)
from hlo_lint.kernels.custom_calls.gpu_triton import TARGET, PallasTritonCall, decode_pallas_triton
from hlo_lint.kernels.custom_calls.mosaic import TARGETS as MOSAIC_TARGETS
from hlo_lint.kernels.custom_calls.mosaic import MosaicCall, decode_mosaic
from hlo_lint.kernels.custom_calls.render import Payload, render_payload
from hlo_lint.kernels.custom_calls.triton import TARGETS as TRITON_TARGETS
from hlo_lint.kernels.custom_calls.triton import TritonCall, decode_triton
from hlo_lint.text.errors import PayloadError

__all__ = [
    "GemmConfig",
    "MosaicCall",
    "PallasTritonCall",
    "Payload",
    "PayloadError",
    "TriangularSolveConfig",
    "TritonCall",
    "decode_payload",
    "encode_payload",
    "readable_payload",
    "render_payload",
]

_KERNELS = TRITON_TARGETS | MOSAIC_TARGETS | {TARGET}


def decode_payload(instruction: Instruction) -> Payload | None:
    """The decoded payload of an instruction; None if it has no payload of a known kind.

    Raises:
        PayloadError: the payload is missing or damaged.
    """
    if instruction.opcode != "custom-call":
        return None
    target = instruction.custom_call_target
    if target not in _KERNELS and not target.startswith(PREFIX):
        return None
    config = instruction.attribute_text("backend_config")
    if config is None:
        raise PayloadError(f"this call of {target} has no backend_config")
    return _decoded(target, config)


def readable_payload(instruction: Instruction) -> Payload | None:
    """The decoded payload of an instruction; None also if it is missing or damaged."""
    try:
        return decode_payload(instruction)
    except PayloadError:
        return None


def encode_payload(instruction: Instruction, payload: TritonCall) -> str:
    """The new text of the instruction's `backend_config`, with the same kind of quoting.

    For an unchanged payload, it is the old text.
    """
    text = instruction.attributes.get("backend_config")
    if text is None:
        raise PayloadError(f"{instruction.name} has no backend_config")
    return with_content(text, payload.content)


# The dumps of a module repeat their payloads, some with 100 kB of PTX.
@lru_cache(maxsize=128)
def _decoded(target: str, text: str) -> Payload:
    content = content_of(text)
    if target in TRITON_TARGETS:
        return decode_triton(target, content)
    if target in MOSAIC_TARGETS:
        return decode_mosaic(content)
    if target == TARGET:
        return decode_pallas_triton(content)
    return decode_cublas(target, content)
