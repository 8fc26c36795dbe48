"""Transfers that wait for each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class SendRecvDeadlock(Verified, Rule):
    """A schedule in which devices wait for each other for ever.

    ## Why
    A send waits until somebody receives. Between the two no other collective may begin: some
    devices would be in it, the others still in the transfer (`VerifyNoCollectiveDeadlocks` in
    `xla/service/hlo_verifier.cc`). XLA's own search passes over all-reduce, reduce-scatter and the
    starts of asynchronous collectives, which are reported here as well.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "M-30": Bad(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8]{0} parameter(0)
              t = token[] after-all()
              s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1,  // error
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}
              sd = token[] send-done(s), channel_id=1
              r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              ROOT d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
            }
            """
        ),
        "M-31": Bad(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8]{0} parameter(0)
              t = token[] after-all()
              r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              r.1 = (f32[8]{0}, u32[], token[]) recv(t), channel_id=2,  // error
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              sd = token[] send-done(s), channel_id=1
              d.1 = (f32[8]{0}, token[]) recv-done(r.1), channel_id=2
              ROOT d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
            }
            """
        ),
        "M-32": Bad(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8]{0} parameter(0)
              t = token[] after-all()
              s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              g = f32[16]{0} all-gather(p), dimensions={0}, replica_groups={{0,1}}  // error
              sd = token[] send-done(s), channel_id=1
              r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              ROOT d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
            }
            """
        ),
        "M-33": Bad(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8]{0} parameter(0)
              t = token[] after-all()
              s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1,  // error
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              ROOT sd = token[] send-done(s), channel_id=1
            }
            """
        ),
        "3.5-8": Bad(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8]{0} parameter(0)
              t = token[] after-all()
              s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              g = (f32[8]{0}, f32[16]{0}) all-gather-start(p), dimensions={0},  // error
                  replica_groups={{0,1}}
              h = f32[16]{0} all-gather-done(g)
              sd = token[] send-done(s), channel_id=1
              r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              ROOT d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m, is_scheduled=true

            ENTRY e {
              p = f32[8]{0} parameter(0)
              t = token[] after-all()
              s = (f32[8]{0}, u32[], token[]) send(p, t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              sd = token[] send-done(s), channel_id=1
              r = (f32[8]{0}, u32[], token[]) recv(t), channel_id=1,
                  frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1}}"}
              d = (f32[8]{0}, token[]) recv-done(r), channel_id=1
              ROOT g = f32[16]{0} all-gather(p), dimensions={0}, replica_groups={{0,1}}
            }
            """
        ),
    )
