"""Buffers that instructions write in place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadBuffer(Verified, Rule):
    """A mutable buffer that is made, written or freed in a way that loses track of it.

    ## Why
    A buffer has one writer at a time: each instruction that writes it takes it and gives it back,
    and who pins a value frees it (`VerifyBuffers` in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "M-50": Bad.entry("""
            p = f32[8]{0} parameter(0)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="CreateBuffer"  // error
            ROOT r = f32[8]{0} negate(p)
        """),
        "M-51": Bad.entry("""
            p = b(f32[8]{0}) parameter(0)  // error
            ROOT r = f32[8]{0} custom-call(p), custom_call_target="Unpin"
        """),
        "M-52": Bad.entry("""
            p = f32[8]{0} parameter(0)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="Pin"
            c = b(f32[8]{0}) custom-call(b), custom_call_target="write"  // error
            ROOT r = f32[8]{0} custom-call(c), custom_call_target="Unpin"
        """),
        "M-53": Bad.entry("""
            p = f32[8]{0} parameter(0)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="Pin"
            r = f32[8]{0} custom-call(b), custom_call_target="Unpin"
            s = f32[8]{0} custom-call(b), custom_call_target="Unpin"  // error
            ROOT t = (f32[8]{0}, f32[8]{0}) tuple(r, s)
        """),
        "M-54": Bad.entry("""
            p = f32[8]{0} parameter(0)
            u = f32[2]{0} parameter(1)
            i = s32[] parameter(2)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="Pin"
            ROOT d = f32[8]{0} dynamic-update-slice(b, u, i)  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            b = b(f32[8]{0}) custom-call(p), custom_call_target="Pin"
            c = b(f32[8]{0}) custom-call(b), custom_call_target="write",
                output_to_operand_aliasing={{}: (0, {})}
            ROOT r = f32[8]{0} custom-call(c), custom_call_target="Unpin"
        """),
    )
