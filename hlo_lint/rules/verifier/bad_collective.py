"""What collectives take and give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadCollective(Verified, Rule):
    """A collective whose result does not fit its operands and the size of its groups.

    ## Why
    How long a gathered or scattered dimension is follows from the number of devices in a group
    (`HandleAllGather` and others in `xla/service/hlo_verifier.cc`); the library that moves the data
    is only told the number of elements.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-28": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[32,1] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}  // error
        """),
        "S-29": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[24] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}  // error
        """),
        "S-30": Bad(
            """
            HloModule m

            add {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[9] all-reduce(p), replica_groups={}, to_apply=add  // error
            }
            """
        ),
        "S-31": Bad(
            """
            HloModule m

            add {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[4] reduce-scatter(p), dimensions={0},  // error
                  replica_groups={{0,1,2,3}}, to_apply=add
            }
            """
        ),
        "S-32": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[8] all-to-all(p, p), dimensions={0}, replica_groups={{0,1}}  // error
        """),
        "S-33": Bad.entry("""
            p = f32[8] parameter(0)
            n = s32[2] parameter(1)
            m = s32[3] parameter(2)
            ROOT g = f32[8] ragged-all-to-all(p, p, n, n, n, m), replica_groups={{0,1}}  // error
        """),
        "S-35": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[9] collective-broadcast(p), replica_groups={{0,1}}  // error
        """),
        "S-36": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[9] collective-permute(p), source_target_pairs={{0,1}}  // error
        """),
        "I-18": Bad(
            """
            HloModule m

            add {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[8] all-reduce(p), channel_id=0, replica_groups={}, to_apply=add  // error
            }
            """
        ),
        "3.5-r": Bad(
            """
            HloModule m

            one {
              a = f32[] parameter(0)
              ROOT n = f32[] negate(a)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[8] all-reduce(p), replica_groups={}, to_apply=one  // error
            }
            """
        ),
        "M-41": Bad(
            """
            HloModule m

            add {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              q = f32[8] all-reduce(p), replica_groups={}, to_apply=add
              ROOT g = f32[8] all-reduce(q), replica_groups={}, constrain_layout=true,  // error
                  to_apply=add
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[32] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}
        """),
        Good(
            """
            HloModule m

            add {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[2] reduce-scatter(p), dimensions={0}, channel_id=1,
                  use_global_device_ids=true, replica_groups={{0,1,2,3}}, to_apply=add
            }
            """
        ),
    )
