"""Payloads as readable text."""

from __future__ import annotations

import json
from typing import assert_never

from hlo_lint.kernels.custom_calls.gemm import GemmConfig, TriangularSolveConfig
from hlo_lint.kernels.custom_calls.gpu_triton import PallasTritonCall
from hlo_lint.kernels.custom_calls.mosaic import MosaicCall, read_module
from hlo_lint.kernels.custom_calls.triton import TritonCall
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import shown

Payload = TritonCall | PallasTritonCall | MosaicCall | GemmConfig | TriangularSolveConfig


def render_payload(payload: Payload) -> str:
    """The fields of a payload, and its MLIR, if jax is installed to read it."""
    from rich.pretty import pretty_repr  # rules read payloads and print none

    match payload:
        case TritonCall():
            return pretty_repr(payload, max_width=100)
        case PallasTritonCall():
            return f"{pretty_repr(payload, max_width=100)}\n{_mlir(payload.ir)}"
        case MosaicCall():
            return _mlir(payload.module)
        case GemmConfig() | TriangularSolveConfig():
            return json.dumps(payload.config, indent=2)
        case _:
            assert_never(payload)


def _mlir(code: bytes) -> str:
    try:
        text = read_module(code).text
    except PayloadError as error:
        text = f"{len(code)} bytes of MLIR: {error}"
    return "\n".join(map(shown, text.rstrip().split("\n")))
