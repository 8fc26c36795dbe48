"""Tensor descriptors that the CUDA driver or the launcher rejects."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from hlo_lint.analysis.kinds import instructions_where
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.kinds import ATTRIBUTES
from hlo_lint.kernels.calls import triton_calls, triton_payload
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.text.edits import Fix
from hlo_lint.text.source import Span

if TYPE_CHECKING:  # loaded where there is a descriptor
    from collections.abc import Iterator

    from hlo_lint.kernels.custom_calls.triton import TensorDescriptor
    from hlo_lint.kernels.tma.conditions import TmaViolation
    from hlo_lint.kernels.tma.cutlass_log import Log
    from hlo_lint.kernels.tma.descriptor import Descriptor

_LOG = """
TMA Desc Addr:   0x7ffc5a3f1240
format         9
dim            3
gmem_address   0x7f1a4c000000
globalDim      (128,1,32,1,1)
globalStrides  (2,{stride},256,0,0)
boxDim         (64,128,1,1,1)
elementStrides (1,1,1,1,1)
interleave     0
swizzle        3
l2Promotion    2
oobFill        0
Error: Failed to initialize the TMA descriptor 1
"""

_PROGRAM = r"""
HloModule loads_q

ENTRY e {{
  q = bf16[32,1,128] parameter(0)
  ROOT c = f32[64] custom-call(q), custom_call_target="triton_kernel_call",  // error
      backend_config="{payload}"
}}
"""
# Two minimal payloads: element strides (128, 1, 1), and (128, 128, 1).
_ONE = r"x\234\343R\347b\346b\314\026`\224`T`\324\222\362\222\340\022\343\340\024`\226bQ`l`Tbi`dd\324b\0012\035\000O/\004C"  # noqa: E501
_DENSE = r"x\234\343\322\340b\346b\314\026`\224`T`\324\222\366\222\344\022\347\340\024`\226bQ`l`Tbm\000\222\214Z,@\322\001\000W\203\004\310"  # noqa: E501


class TmaDescriptorRefused(Rule):
    """A tensor descriptor that the CUDA driver rejects.

    ## Why
    The strides of a tensor map must be multiples of 16 bytes, its box at most 256 wide, and so on;
    `cuTensorMapEncodeTiled` checks them at launch and reports only "invalid argument". The checks
    include dimensions of size 1, whose strides are never used: frameworks write any number there,
    which works on some machines and fails on others. The rule reads descriptors in the payload of
    Triton calls, those that Mosaic GPU kernels make, those that XLA's Triton emitter prints to
    `*.triton-to-llvm.txt`, and those that CUTLASS prints to a log.

    ## Fix
    Sets the stride of a dimension of size 1 in the payload to that of dense memory, rounded up to
    16 bytes. A misaligned stride of a larger dimension has no fix: it needs a copy to padded
    memory.
    """

    messages = ("cuTensorMapEncodeTiled",)
    opcodes = frozenset({"custom-call"})
    mentions = ("TMA", "Tma", "tma")
    evidence = (
        MeasuredHarm(
            "On an H100 the CUDA driver refuses the descriptors of a kernel of FlashInfer for a "
            "sequence of length 1: `Failed to initialize the TMA descriptor 1`.",
            "tma/cutlass_size_1_stride.txt",
        ),
    )
    examples = (
        Bad(_PROGRAM.format(payload=_ONE), fixed=_PROGRAM.format(payload=_DENSE)),
        Good(_PROGRAM.format(payload=_DENSE)),
        Bad(_LOG.format(stride=2), marks=(6,)),
        Good(_LOG.format(stride=256)),
    )

    def check(self, final: FinalModule) -> Findings:
        """Conditions that descriptors in Triton payloads violate."""
        for call, payload in triton_calls(final.module):
            from hlo_lint.kernels.tma.conditions import violations
            from hlo_lint.kernels.tma.descriptor import Consumer

            reported: set[str] = set()
            for _, number, parameter in payload.descriptors:
                for violation in violations(_as_cuda(parameter), Consumer.JAXLIB):
                    message = f"parameter {number} is a tensor descriptor whose {violation}"
                    if message not in reported:
                        reported.add(message)
                        yield Finding(call, message, notes=_notes(violation))

    def check_mosaic(self, final: FinalModule) -> Findings:
        """Conditions that descriptors of Mosaic GPU kernels violate."""
        for call, data in _mosaic_calls(final.module):
            from hlo_lint.kernels.custom_calls import PayloadError
            from hlo_lint.kernels.tma.conditions import violations
            from hlo_lint.kernels.tma.descriptor import Consumer

            try:
                descriptors = _mosaic_descriptors(data)
            except PayloadError as error:
                message = f"the tensor descriptors of this kernel were not checked: {error}"
                yield Finding(call, message, severity=Severity.INFO, fixable=False)
                continue
            for number, descriptor in enumerate(descriptors):
                for violation in violations(descriptor, Consumer.MOSAIC):
                    message = f"tensor descriptor {number} of this kernel: {violation}"
                    yield Finding(call, message, notes=_notes(violation), fixable=False)

    def check_log(self, log: Log) -> Findings:
        """Conditions that printed descriptors violate."""
        from hlo_lint.kernels.tma.conditions import violations

        for located in log.descriptors:
            for violation in violations(located.descriptor, located.consumer):
                message = f"this tensor descriptor's {violation}"
                yield Finding(located.place(violation.field), message, notes=_notes(violation))
        for reason, start, end in log.unreadable:
            message = f"this tensor descriptor cannot be read: {reason}"
            yield Finding(Span(start, end), message, severity=Severity.WARNING)

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Write valid strides for dimensions of size 1 into the payload."""
        from hlo_lint.kernels.custom_calls import encode_payload
        from hlo_lint.kernels.custom_calls.triton import with_tensor_strides
        from hlo_lint.kernels.tma.conditions import repair, violations
        from hlo_lint.kernels.tma.descriptor import Consumer

        payload = triton_payload(instruction)
        if payload is None:
            return None
        strides = {}
        for config, number, parameter in payload.descriptors:
            descriptor = _as_cuda(parameter)
            repaired = repair(descriptor)
            if repaired is not None and repaired != descriptor:
                # Strides of size-1 dimensions are all that the fix may choose freely.
                if violations(repaired, Consumer.JAXLIB):
                    return None
                strides[config, number] = repaired.row_major_strides()
        if not strides:
            return None
        text = encode_payload(instruction, with_tensor_strides(payload, strides))
        rewrite = Rewrite(module)
        rewrite.set_attribute(instruction, "backend_config", text)
        return rewrite.fix("give dimensions of size 1 an aligned stride")


def _as_cuda(parameter: TensorDescriptor) -> Descriptor:
    from hlo_lint.kernels.tma.descriptor import Descriptor, tensor_map_type

    return Descriptor.from_row_major(
        tensor_map_type(parameter.elem_type),
        parameter.shape,
        parameter.strides,
        parameter.block_shape,
        swizzle=parameter.swizzle,
        oob_fill=parameter.oob_fill,
    )


def _mosaic_calls(module: Module) -> Iterator[tuple[Instruction, bytes]]:
    """Mosaic GPU calls whose code makes a tensor descriptor, with the code."""
    for call in instructions_where(
        module, "custom-call", lambda kind: '"mosaic_gpu' in kind[ATTRIBUTES]
    ):
        if call.computation.name in module.fusion_computations:
            continue
        from hlo_lint.kernels.custom_calls import MosaicCall, readable_payload

        payload = readable_payload(call)
        if isinstance(payload, MosaicCall) and b"mosaic_gpu_init_tma_desc" in payload.module:
            yield call, payload.module


@lru_cache(maxsize=32)
def _mosaic_descriptors(data: bytes) -> tuple[Descriptor, ...]:
    """The descriptors in a kernel's code that have only constant numbers and supported types."""
    from hlo_lint.kernels.custom_calls.mosaic import read_module
    from hlo_lint.kernels.tma.descriptor import Descriptor, tensor_map_type

    descriptors = []
    for descriptor in read_module(data).descriptors:
        data_type = _MOSAIC_TYPES.get(-1 if descriptor.elem_type is None else descriptor.elem_type)
        shape, strides, block = (
            [number for number in numbers if number is not None]
            for numbers in (descriptor.shape, descriptor.strides, descriptor.block_shape)
        )
        if data_type is None or not len(shape) == len(strides) == len(block) == descriptor.rank:
            continue
        # Mosaic encodes no swizzle as 16 bytes.
        swizzle = _MOSAIC_SWIZZLES.get(descriptor.swizzle_bytes or 16, 0)
        arguments = tensor_map_type(data_type), shape, strides, block
        descriptors.append(Descriptor.from_row_major(*arguments, swizzle=swizzle))
    return tuple(descriptors)


_MOSAIC_TYPES = {1: 0, 2: 1, 3: 2, 4: 4, 5: 6, 6: 7, 7: 9, 9: 3, 10: 5}
"""The `CUtensorMapDataType` of each element type number of Mosaic (`runtime.cc:48-89`)."""
_MOSAIC_SWIZZLES = {16: 0, 32: 1, 64: 2, 128: 3}


def _notes(violation: TmaViolation) -> tuple[str, ...]:
    if violation.degenerate:
        return violation.source, "the dimension has size 1, so any valid stride is equivalent"
    return (violation.source,)
