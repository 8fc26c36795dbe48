"""Tensor descriptors that a Triton kernel makes on the device, from the TTIR in its payload."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hlo_lint.kernels.custom_calls.triton import KernelCall, Scalar

_SIGNATURE = re.compile(r"\btt\.func [^\n]*?@[\w.$-]+\((.*)")
_ARGUMENT = re.compile(r"(%[\w.$-]+): ")
_CONSTANT = re.compile(r"(%[\w.$-]+) = arith\.constant (-?\d+) : i\d+\b")
_CAST = re.compile(r"(%[\w.$-]+) = arith\.(?:extsi|extui|trunci|index_cast) (%[\w.$-]+) :")
_PRODUCT = re.compile(r"(%[\w.$-]+) = arith\.(muli|addi) (%[\w.$-]+), (%[\w.$-]+)[^\n]*? : i\d+\b")
_DESCRIPTOR = re.compile(
    r"tt\.make_tensor_descriptor %[\w.$-]+, \[([^\]]*)\], \[([^\]]*)\]"
    r"[^\n]*?, (?:!tt\.tensordesc)?<(?:tensor<)?[\dx]*?x([a-z]+\d+)\w*[>,]"
)
_BITS = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class DeviceDescriptor:
    """A `tt.make_tensor_descriptor`, row-major."""

    element_bits: int
    shape: tuple[int | None, ...]
    """The sizes; None if computed in the kernel."""
    strides: tuple[int | None, ...]
    """The strides in elements; None if computed in the kernel."""


def device_descriptors(call: KernelCall) -> Iterator[DeviceDescriptor]:
    """The descriptors that a kernel makes, with scalar arguments replaced by their values."""
    ttir = call.kernel.ttir
    if "tt.make_tensor_descriptor" not in ttir:
        return
    values = _values(call)
    for shape, strides, element in _DESCRIPTOR.findall(ttir):
        (bits,) = _BITS.findall(element)
        yield DeviceDescriptor(int(bits), _numbers(shape, values), _numbers(strides, values))


def _numbers(names: str, values: Mapping[str, int]) -> tuple[int | None, ...]:
    return tuple(values.get(name.strip()) for name in names.split(","))


def _values(call: KernelCall) -> dict[str, int]:
    """The integers of a kernel that are known before launch, by name.

    Names are unique in a function (SSA). Modules with several functions are skipped.
    """
    ttir = call.kernel.ttir
    signatures = _SIGNATURE.findall(ttir)
    if len(signatures) != 1:
        return {}
    values = {name: int(value) for name, value in _CONSTANT.findall(ttir)}
    for name, parameter in zip(_ARGUMENT.findall(signatures[0]), call.parameters, strict=False):
        if isinstance(parameter, Scalar) and isinstance(parameter.value, int):
            values[name] = parameter.value
    # Operands are printed before their users.
    for line in ttir.split("\n"):
        if cast := _CAST.search(line):
            if cast[2] in values:
                values[cast[1]] = values[cast[2]]
        elif product := _PRODUCT.search(line):
            left, right = values.get(product[3]), values.get(product[4])
            if left is not None and right is not None:
                values[product[1]] = left * right if product[2] == "muli" else left + right
    return values
