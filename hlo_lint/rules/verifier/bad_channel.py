"""Channels of transfers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadChannel(Verified, Rule):
    """A transfer that its done, or another one on its channel, does not agree with.

    ## Why
    The runtime joins both ends of a transfer by the number of the channel (`VerifyChannels` in
    `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "M-43": Bad.entry("""
            p = f32[8]{0} parameter(0)
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1
            ROOT d = token[] send-done(s), channel_id=2  // error
        """),
        "M-44": Bad.entry("""
            p = f32[8]{0} parameter(0)
            q = f32[9]{0} parameter(1)
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1, is_host_transfer=true
            d = token[] send-done(s), channel_id=1, is_host_transfer=true
            s.1 = (f32[9]{0}, u32[], token[]) send(q, t), channel_id=1,  // error
                is_host_transfer=true
            ROOT d.1 = token[] send-done(s.1), channel_id=1, is_host_transfer=true
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            t = token[] after-all()
            s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1, is_host_transfer=true
            ROOT d = token[] send-done(s), channel_id=1, is_host_transfer=true
        """),
    )
