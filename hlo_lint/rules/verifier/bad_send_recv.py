"""Shapes of transfers."""

from __future__ import annotations

from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadSendRecv(VerifierRule):
    """A send or recv that does not return data, a context and a token.

    ## Why
    Both return `(data, u32[], token[])`; send-done returns a token, recv-done the data and a token
    (`HandleSend`, `HandleRecv` in `xla/service/hlo_verifier.cc`).
    """

    table = """
        send-recv-shape: ShapeVerifier::HandleSend (send recv send-done recv-done)
          send, recv and their dones: data, context, token
            s = (f32[8]{0}, u32[], token[]) send(f32[8]{0} p, p), channel_id=1  // error
            ROOT d = token[] send-done(s), channel_id=1
    """
    examples = (
        Good.entry("""
            t = token[] after-all()
            r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1
            ROOT d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
        """),
    )
