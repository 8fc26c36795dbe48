"""The payload of a custom call without what bears on no value that its kernel computes."""

from __future__ import annotations

from hlo_lint.hlo.ir import Instruction
from hlo_lint.kernels.custom_calls import decode
from hlo_lint.kernels.custom_calls.triton import (
    AutotunedKernelCall,
    TensorDescriptor,
    TritonCall,
    with_aliases,
    with_tensor_strides,
)
from hlo_lint.text.errors import PayloadError


def payload_key(call: Instruction) -> object:
    """Equal for two calls whose kernels compute the same.

    Of a Triton call two things are left out. The buffers that the autotuner saves and restores
    around its trials: the launch that counts comes after them. The strides of dimensions of size 1
    in tensor descriptors: the only index there is 0. Of any other call the whole text counts.
    """
    text = call.attributes.get("backend_config", "")
    try:
        payload = decode(call)
        if not isinstance(payload, TritonCall):
            return text
        if isinstance(payload.call, AutotunedKernelCall):
            payload = with_aliases(payload, ())
        strides = _unused_strides(payload)
        if strides:
            payload = with_tensor_strides(payload, strides)
    except PayloadError:
        return text
    return payload.target, payload.name, payload.metadata, payload.message


def _unused_strides(payload: TritonCall) -> dict[tuple[int, int], tuple[int, ...]]:
    """By configuration and parameter the strides, with one value for those that nothing reads."""
    calls = (
        [config.kernel_call for config in payload.call.configs]
        if isinstance(payload.call, AutotunedKernelCall)
        else [payload.call]
    )
    return {
        (number, place): tuple(
            0 if size == 1 else stride
            for size, stride in zip(parameter.shape, parameter.strides, strict=False)
        )
        for number, call in enumerate(calls)
        for place, parameter in enumerate(call.parameters)
        if isinstance(parameter, TensorDescriptor) and 1 in parameter.shape
    }
