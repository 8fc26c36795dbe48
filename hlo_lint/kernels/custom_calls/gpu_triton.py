"""Pallas kernels that XLA compiles through Triton: the target `__gpu$xla.gpu.triton`.

    {debug = false, grid_x = 8 : i32, …, ir = "ML\\EFR…", name = "kern", num_stages = 3 : i32,
     num_warps = 4 : i32, zeroed_outputs = [0 : i32]}

From `TritonCall::Parse` in `xla/service/gpu/triton_call.cc`. Such calls are not autotuned.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from hlo_lint.hlo.parser.mlir_dictionary import Dictionary, MlirValue, read_dictionary
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.source import decode, encode

TARGET: Final = "__gpu$xla.gpu.triton"


@dataclass(frozen=True)
class PallasTritonCall:
    """The decoded `backend_config` of the target."""

    name: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    ir: bytes = field(repr=False)
    """The kernel in Triton's dialect of MLIR, as text or bytecode."""
    dictionary: Dictionary = field(repr=False)
    """The whole dictionary, including entries unknown to this release."""

    @property
    def content(self) -> bytes:
        """The bytes of the `backend_config`."""
        return encode(self.dictionary.text)


def decode_pallas_triton(content: bytes) -> PallasTritonCall:
    """Decode the call in a `backend_config`.

    Raises:
        PayloadError: it is not such a dictionary.
    """
    dictionary = read_dictionary(decode(content))
    values = DictionaryReader(dictionary)
    return PallasTritonCall(
        name=values.string("name").decode("utf-8", "surrogateescape"),
        grid=(values.integer("grid_x"), values.integer("grid_y"), values.integer("grid_z")),
        num_warps=values.integer("num_warps"),
        num_stages=values.integer("num_stages"),
        ir=values.string("ir"),
        dictionary=dictionary,
    )


class DictionaryReader:
    """Reads values of a known type; without a default, a missing value raises."""

    def __init__(self, dictionary: Dictionary) -> None:
        self.dictionary = dictionary

    def _get(self, name: str, default: MlirValue) -> MlirValue:
        entry = self.dictionary.entries.get(name)
        if entry is None and default is None:
            raise PayloadError(f"expected `{name}` in its dictionary", 0, "character")
        return default if entry is None else entry.value

    def _wrong(self, name: str, wanted: str) -> PayloadError:
        start = self.dictionary.entries[name].start
        return PayloadError(f"`{name}` is not a {wanted}", start, "character")

    def string(self, name: str, default: bytes | None = None) -> bytes:
        """The bytes of a string."""
        value = self._get(name, default)
        if not isinstance(value, bytes):
            raise self._wrong(name, "string")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "whole number")
        return value
