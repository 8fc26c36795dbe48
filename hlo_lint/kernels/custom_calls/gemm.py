"""Calls of cuBLAS and cuBLASLt: `GemmBackendConfig` and `TriangularSolveOptions` as JSON.

    __cublas$gemm  __cublas$lt$matmul  __cublas$lt$matmul$f8  __cublas$triangularSolve

From `xla/service/gpu/backend_configs.proto`. Releases before 2024 print the configuration of a
gemm without the enclosing `gemm_backend_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hlo_lint.hlo.attributes.configuration import Json
from hlo_lint.kernels.custom_calls.carrier import JsonReader, read_json

PREFIX: Final = "__cublas$"


@dataclass(frozen=True)
class DotDimensions:
    """The contracting and the batch dimensions of a dot."""

    lhs_batch: tuple[int, ...]
    lhs_contracting: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    rhs_contracting: tuple[int, ...]


@dataclass(frozen=True)
class GemmConfig:
    """The configuration of a cuBLAS GEMM."""

    target: str
    alpha: complex
    beta: float
    """The factor of the third operand, C; 0 if there is none."""
    dimensions: DotDimensions
    epilogue: str
    """The operation on the product: `DEFAULT`, `BIAS`, `RELU` …"""
    gives_largest: bool
    """True if a result is the largest absolute value of D before scaling to 8 bits."""
    config: Mapping[str, Json] = field(repr=False)


@dataclass(frozen=True)
class TriangularSolveConfig:
    """The configuration of a cuBLAS triangular solve."""

    left_side: bool
    lower: bool
    unit_diagonal: bool
    transpose_a: str
    config: Mapping[str, Json] = field(repr=False)


def decode_cublas(target: str, content: bytes) -> GemmConfig | TriangularSolveConfig:
    """Decode the configuration in a `backend_config`."""
    config = read_json(content)
    whole = JsonReader(config, "backend_config")
    if target == "__cublas$triangularSolve":
        return TriangularSolveConfig(
            whole.boolean("left_side"),
            whole.boolean("lower"),
            whole.boolean("unit_diagonal"),
            whole.text("transpose_a", "NO_TRANSPOSE"),
            config,
        )
    gemm = whole.object("gemm_backend_config") or whole
    dimensions = gemm.object("dot_dimension_numbers") or JsonReader({}, "dot_dimension_numbers")
    return GemmConfig(
        target=target,
        alpha=complex(gemm.number("alpha_real"), gemm.number("alpha_imag")),
        beta=gemm.number("beta"),
        dimensions=dot_dimensions(dimensions),
        epilogue=gemm.text("epilogue", "DEFAULT"),
        gives_largest=gemm.boolean("damax_output"),
        config=config,
    )


def dot_dimensions(numbers: JsonReader) -> DotDimensions:
    """The dimensions in a `DotDimensionNumbers`."""
    return DotDimensions(
        numbers.integers("lhs_batch_dimensions"),
        numbers.integers("lhs_contracting_dimensions"),
        numbers.integers("rhs_batch_dimensions"),
        numbers.integers("rhs_contracting_dimensions"),
    )
