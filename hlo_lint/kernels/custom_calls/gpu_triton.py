"""Pallas kernels that XLA compiles through Triton: the target `__gpu$xla.gpu.triton`.

    {debug = false, grid_x = 8 : i32, …, ir = "ML\\EFR…", name = "kern", num_stages = 3 : i32,
     num_warps = 4 : i32, zeroed_outputs = [0 : i32]}

From `TritonCall::Parse` in `xla/service/gpu/triton_call.cc`. Such calls are not autotuned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeVar

from hlo_lint.hlo.parser.mlir_dictionary import Dictionary, read_dictionary
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import decode

TARGET: Final = "__gpu$xla.gpu.triton"
_Value = TypeVar("_Value", bytes, int)


@dataclass(frozen=True)
class PallasTritonCall:
    """The decoded `backend_config` of the target."""

    name: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    ir: bytes = field(repr=False)
    """The kernel in Triton's dialect of MLIR, as text or bytecode."""


def decode_pallas_triton(content: bytes) -> PallasTritonCall:
    """Decode the call in a `backend_config`."""
    dictionary = read_dictionary(decode(content))
    name = required(dictionary, "name", bytes)
    x, y, z, warps, stages = (
        required(dictionary, number, int)
        for number in ("grid_x", "grid_y", "grid_z", "num_warps", "num_stages")
    )
    ir = required(dictionary, "ir", bytes)
    return PallasTritonCall(decode(name), (x, y, z), warps, stages, ir)


def required(dictionary: Dictionary, name: str, kind: type[_Value]) -> _Value:
    """The value of a name, of a given type."""
    entry = dictionary.entries.get(name)
    if entry is None:
        raise PayloadError(f"expected `{name}` in its dictionary", 0, "character")
    if isinstance(entry.value, bool) or not isinstance(entry.value, kind):
        wanted = "string" if kind is bytes else "whole number"
        raise PayloadError(f"`{name}` is not a {wanted}", entry.start, "character")
    return entry.value
