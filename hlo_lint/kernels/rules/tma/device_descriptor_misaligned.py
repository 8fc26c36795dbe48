"""Tensor descriptors made on the device with a stride that the hardware cannot represent."""

from __future__ import annotations

from hlo_lint.kernels.calls import triton_calls
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding

STRIDE_UNIT = 16
"""The unit of strides in a descriptor, in bytes."""

_PROGRAM = r"""
HloModule copies_tiles

ENTRY e {
  x = f16[64,%d]{1,0} parameter(0)
  ROOT c = f16[64,%d]{1,0} custom-call(x), custom_call_target="triton_kernel_call", backend_config="%s"%s
}
"""  # noqa: E501
# Two minimal payloads: TTIR with the stride as an argument, 100 and 96.
_BAD = r"x\332e\217Aj\3030\020E\261\310J+/\263\374]\030RcB\235\004/\202\023z\216\226\020\134I\241\302\211d\2441\030J\356\322u\357\320\273U\262\323tQ\230\315\374y\363\347\017\377f\374\213\361\244Mg\371'\273X\331\237\025>8@\264<\365F\240\353\337\316Z\340\271]d\303\026\017A\356\310\325\247\262\332\027\310<9-\325\026z\275z\034\267\200LT\033\354\3208M\357Ka\215\247\306\020\2026R7\244\374O\224\021\2506\023\340\357s5\220\327\277\207&\017\220\375#e C\246K\323\252#)\343\255;J\345\205\323\035Y\207l(\360\032\023\335\263\036\242\340\213\230\341\020\354n\217\324\323j\275^\015\241\242\266\037\355\203\263S\324;\023\272+\277\362\247\2274\231'H\362\031gi\232\263\271\374\001X\177X\257"  # noqa: E501
_GOOD = r"x\332e\217\301j\302@\020\206\311\342iO9z\374{\010\264!\210Q\311AR\351sX\304\246\233\225.\321\335\260;\201@\361]z\356;\370n\335M\254\036\204\271\314?\337\374\363\017\2770\376\313x\324\304\223\364\207\235L\335\035%\2769@4;tZ\240\355>\217J\340\255yN\3725\236\274\334\222-\017y\261\311\2208\262\252\226k\250\345\342e\330\002\022Q\254\360\212\312*\372\232\011\243\035U\232\340\265\201\272\042\371#\221\007\240X\215\200\273\315eON\375\037\032=@\346N\326\236\364\231NU#\367$\2653v_K'\254j\311X$}\206\367\220\350\226u\027\004\227\205\014;ow}\244\034W\313\345\242\367\025\264\315`\357\235\255\244\316j\337\235\371\231\317\267q4\215\020\245\023\316\3428e\323\217?X{X\253"  # noqa: E501


class DeviceDescriptorMisaligned(Rule):
    """A tensor descriptor made in a Triton kernel whose stride is not a multiple of 16 bytes.

    ## Why
    `tl.make_tensor_descriptor` writes a TMA descriptor on the device. The descriptor stores strides
    in units of 16 bytes, without a check: the driver checks only descriptors made on the host. The
    remainder is dropped, so every row except the first is read from or written to a wrong address,
    and the numbers are silently wrong. The strides are in the TTIR of jax-triton's payload, as
    constants or kernel arguments.

    Pad the array to rows of a multiple of 16 bytes, or load it through pointers.
    """

    opcodes = frozenset({"custom-call"})
    examples = (
        Bad(_PROGRAM % (100, 100, _BAD, "  // error")),
        Good(_PROGRAM % (96, 96, _GOOD, "")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Descriptors with a stride that is not a multiple of 16 bytes."""
        for call, payload in triton_calls(final.module):
            from hlo_lint.kernels.custom_calls.ttir import device_descriptors

            messages = {
                f"a tensor descriptor that {kernel_call.kernel.kernel_name} makes has a stride of "
                f"{stride} elements, {stride * descriptor.element_bits / 8:g} bytes: it must be a "
                f"multiple of {STRIDE_UNIT} bytes"
                for kernel_call in payload.kernel_calls
                for descriptor in device_descriptors(kernel_call)
                for size, stride in zip(descriptor.shape, descriptor.strides[:-1], strict=False)
                if stride is not None
                and size != 1  # the stride of a dimension of size 1 is never used
                and stride * descriptor.element_bits % (8 * STRIDE_UNIT)
            }
            for message in sorted(messages):
                yield Finding(
                    call, message, notes=("there is no check at run time: the results are wrong",)
                )
