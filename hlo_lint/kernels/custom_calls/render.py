"""Payloads as readable text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, groupby
from typing import assert_never

from hlo_lint.hlo.parser.mlir_dictionary import Dictionary, spelled
from hlo_lint.kernels.custom_calls.gemm import GemmConfig, TriangularSolveConfig
from hlo_lint.kernels.custom_calls.gpu_triton import PallasTritonCall
from hlo_lint.kernels.custom_calls.mosaic import MlirModule, MosaicCall, read_module
from hlo_lint.kernels.custom_calls.triton import (
    Array,
    AutotunedKernelCall,
    KernelCall,
    Parameter,
    Scalar,
    TensorDescriptor,
    TritonCall,
    UnknownParameter,
)
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.phrases import counted
from hlo_lint.text.source import shown

_SHOWN_BYTES = 48

Payload = TritonCall | PallasTritonCall | MosaicCall | GemmConfig | TriangularSolveConfig


def render_payload(payload: Payload) -> str:
    """Describe a payload in some lines. MLIR bytecode is printed if jax is installed."""
    match payload:
        case TritonCall():
            lines = _triton(payload)
        case PallasTritonCall():
            lines = _pallas(payload)
        case MosaicCall():
            inside = (_entries(payload.dictionary, "module"), _module(payload.module))
            lines = chain(["mosaic_gpu"], *inside)
        case GemmConfig() | TriangularSolveConfig():
            return json.dumps(payload.config, indent=2)
        case _:
            assert_never(payload)
    return "\n".join(map(shown, lines))


def _triton(payload: TritonCall) -> Iterator[str]:
    yield f"{payload.target} {payload.name}".rstrip()
    if payload.metadata:
        yield f"  metadata: {_bytes(payload.metadata)}"
    match payload.call:
        case KernelCall() as call:
            yield from _kernel_call(call)
        case AutotunedKernelCall(name=name, configs=configs, input_output_aliases=aliases):
            yield f"  autotuned {name}: {counted(len(configs), 'configuration')}"
            yield "  buffers saved around the trials, numbered operands first, then results:"
            for alias in aliases:
                yield (
                    f"    buffer {alias.input_buffer}, which is also result buffer "
                    f"{alias.output_buffer}: {alias.size_bytes} bytes"
                )
            if not aliases:
                yield "    none"
            for number, config in enumerate(configs):
                yield f"  configuration {number}: {config.description}"
                yield from _kernel_call(config.kernel_call)
        case _:
            assert_never(payload.call)


def _kernel_call(call: KernelCall) -> Iterator[str]:
    kernel = call.kernel
    code = f"{len(kernel.ptx)} characters of PTX"
    if kernel.object_bytes:
        code = f"{kernel.object_bytes} bytes of machine code"
    yield (
        f"  kernel {kernel.kernel_name}: grid {_product(call.grid)}, "
        f"{counted(kernel.num_warps, 'warp')}, {kernel.shared_mem_bytes} bytes of shared memory, "
        f"sm_{kernel.compute_capability}, {code}"
    )
    if kernel.num_ctas is not None and kernel.num_ctas > 1:
        yield f"    clusters of {kernel.num_ctas} blocks"
    if kernel.global_scratch_size:
        yield (
            f"    {kernel.global_scratch_size} bytes of scratch, "
            f"aligned to {kernel.global_scratch_align or 1}"
        )
    yield f"    {counted(call.pointer_count, 'pointer')} for the buffers"
    index = 0
    # A kernel has dozens of equal pointers: print them on a single line.
    for line, repeated in groupby(map(_parameter, call.parameters)):
        count = len(list(repeated))
        place = f"{index}" if count == 1 else f"{index} to {index + count - 1}"
        yield f"    parameter {place}: {line}"
        index += count


def _parameter(parameter: Parameter) -> str:
    match parameter:
        case Array(bytes_to_zero=zeroed, ptr_divisibility=divisor):
            aligned = f", divisible by {divisor}" if divisor else ""
            return f"pointer{aligned}{f', {zeroed} bytes set to zero' if zeroed else ''}"
        case Scalar(type=type_name, value=value):
            return f"{type_name} {str(value).lower()}"
        case TensorDescriptor():
            return (
                f"tensor descriptor: shape {list(parameter.shape)}, "
                f"strides {list(parameter.strides)} in elements, "
                f"block {list(parameter.block_shape)}, element type {parameter.elem_type}, "
                f"swizzle {parameter.swizzle}, out of bounds {parameter.oob_fill}"
            )
        case UnknownParameter(fields=fields):
            return f"of unknown kind, fields {list(fields)}"
        case _:
            assert_never(parameter)


def _pallas(payload: PallasTritonCall) -> Iterator[str]:
    yield (
        f"__gpu$xla.gpu.triton {payload.name}: grid {_product(payload.grid)}, "
        f"{counted(payload.num_warps, 'warp')}, {counted(payload.num_stages, 'stage')}"
    )
    yield from _entries(payload.dictionary, "ir")
    yield from _module(payload.ir)


def _entries(dictionary: Dictionary, code: str) -> Iterator[str]:
    for name, entry in dictionary.entries.items():
        if name != code:
            value = entry.value
            yield f"  {name} = {_bytes(value) if isinstance(value, bytes) else spelled(value)}"


def _module(data: bytes) -> Iterator[str]:
    yield f"  MLIR: {len(data)} bytes"
    try:
        module: MlirModule = read_module(data)
    except PayloadError as error:
        yield f"  {error}"
        return
    yield from module.text.rstrip().split("\n")


def _bytes(value: bytes) -> str:
    text = value.decode("latin-1")
    if text.isascii() and text.isprintable() and len(text) <= 4 * _SHOWN_BYTES:
        return f'"{text}"'
    more = " …" if len(value) > _SHOWN_BYTES else ""
    return f"{value[:_SHOWN_BYTES].hex()}{more} ({len(value)} bytes)"


def _product(numbers: tuple[int, ...]) -> str:
    return " x ".join(map(str, numbers))
