"""The parts of a custom call that affect the values of its kernel."""

from __future__ import annotations

from hlo_lint.analysis.buffers import declared_aliases
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import leaves
from hlo_lint.kernels.calls import triton_payload
from hlo_lint.kernels.custom_calls import decode_payload
from hlo_lint.kernels.custom_calls.triton import (
    AutotunedKernelCall,
    TritonCall,
    with_aliases,
    with_tensor_strides,
)
from hlo_lint.text.errors import PayloadError


def payload_key(call: Instruction) -> object:
    """A key that is equal for two calls whose kernels compute the same values.

    The key of a Triton call leaves out the buffers that the autotuner saves and restores around its
    trials, as the launch that counts comes after them, and the strides of dimensions of size 1 in
    tensor descriptors, where the only index is 0. The key of any other call is its whole text.
    """
    text = call.attributes.get("backend_config", "")
    try:
        payload = decode_payload(call)
        if not isinstance(payload, TritonCall):
            return text
        if isinstance(payload.call, AutotunedKernelCall):
            payload = with_aliases(payload, ())
        strides = _effective_strides(payload)
        if strides:
            payload = with_tensor_strides(payload, strides)
    except PayloadError:
        return text
    return payload.target, payload.name, payload.metadata, payload.message


def _effective_strides(payload: TritonCall) -> dict[tuple[int, int], tuple[int, ...]]:
    """The strides of descriptors with a dimension of size 1, whose stride becomes 0.

    They are by configuration and parameter, as `with_tensor_strides` takes them.
    """
    return {
        (config, number): tuple(
            0 if size == 1 else stride
            for size, stride in zip(descriptor.shape, descriptor.strides, strict=False)
        )
        for config, number, descriptor in payload.descriptors
        if 1 in descriptor.shape
    }


def inputs_read(call: Instruction) -> int:
    """The number of leading operands of a call whose values its kernel reads.

    A Triton kernel takes as many pointers as its payload lists: to the operands, then to the
    results. If further operands are aliased to all results, they are the memory of these results,
    and the kernel takes the same pointers; the initial contents of that memory are undefined.
    """
    count = len(call.operands)
    payload = triton_payload(call)
    if payload is None:
        return count
    results = [index for index, _ in leaves(call.shape)]
    read = payload.pointer_count - len(results)
    appended = {(index, read + number) for number, index in enumerate(results)}
    is_listed_twice = (
        count == payload.pointer_count and read >= 0 and appended <= declared_aliases(call).items()
    )
    return read if is_listed_twice else count
