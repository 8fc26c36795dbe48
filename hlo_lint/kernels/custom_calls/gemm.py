"""Calls of cuBLAS, by their JSON: `GemmBackendConfig`, `TriangularSolveOptions`.

    __cublas$gemm  __cublas$lt$matmul  __cublas$lt$matmul$f8  __cublas$triangularSolve

From `xla/service/gpu/backend_configs.proto`. Releases before 2024 print the configuration of a
gemm without the enclosing `gemm_backend_config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from hlo_lint.hlo.attributes.configuration import Json
from hlo_lint.kernels.custom_calls.carrier import read_json
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import whole_number

PREFIX: Final = "__cublas$"
T = TypeVar("T", bool, str, Mapping[str, Json])


class DotDimensions(NamedTuple):
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
    if target == "__cublas$triangularSolve":
        return TriangularSolveConfig(
            _field(config, "left_side", False),
            _field(config, "lower", False),
            _field(config, "unit_diagonal", False),
            _field(config, "transpose_a", "NO_TRANSPOSE"),
            config,
        )
    gemm = _field(config, "gemm_backend_config", config)
    numbers = _field(gemm, "dot_dimension_numbers", {})
    dimensions = (_integers(numbers, f"{name}_dimensions") for name in DotDimensions._fields)
    return GemmConfig(
        target=target,
        alpha=complex(_number(gemm, "alpha_real"), _number(gemm, "alpha_imag")),
        beta=_number(gemm, "beta"),
        dimensions=DotDimensions(*dimensions),
        epilogue=_field(gemm, "epilogue", "DEFAULT"),
        gives_largest=_field(gemm, "damax_output", False),
        config=config,
    )


def _field(fields: Mapping[str, Json], name: str, default: T) -> T:
    """A field of the type of its default, which a missing field has."""
    value = fields.get(name, default)
    if not isinstance(value, type(default)):
        raise PayloadError(f"{name} has the wrong type")
    return value


def _number(fields: Mapping[str, Json], name: str) -> float:
    value = fields.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PayloadError(f"{name} is not a number")
    return float(value)


def _integers(fields: Mapping[str, Json], name: str) -> tuple[int, ...]:
    """The numbers of a list, which protobuf prints as strings or as numbers."""
    numbers = fields.get(name, ())
    if not isinstance(numbers, list | tuple):
        raise PayloadError(f"{name} is not a list")
    wholes = [number for text in map(str, numbers) if (number := whole_number(text)) is not None]
    if len(wholes) < len(numbers):
        raise PayloadError(f"{name} is not a list of whole numbers")
    return tuple(wholes)
