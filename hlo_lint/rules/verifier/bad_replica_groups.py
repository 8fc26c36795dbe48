"""Which devices a collective joins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadReplicaGroups(Verified, Rule):
    """A collective whose replica groups name devices twice, none, or others than there are.

    ## Why
    Each device looks for itself in the groups, and waits there for the others. One that is in none,
    or in two, lets the others wait for ever (`CheckReplicaGroups` in
    `xla/service/hlo_verifier.cc`). `collective-broadcast`, whose groups XLA does not look at, is
    held to the same, but for sizes and devices that take no part.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-20": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[32] all-gather(p), dimensions={0},  // error
                replica_groups={{0,1,2,3},{}}
        """),
        "S-21": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[32] all-gather(p), dimensions={0}, replica_groups={{0,1,2,4}}  // error
        """),
        "S-21m": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[16] all-gather(p), dimensions={0},  // error
                replica_groups=mesh['x'=2] {'y'}
        """),
        "S-22": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[16] all-gather(p), dimensions={0}, replica_groups={{0,1},{2,1}}  // error
        """),
        "S-23": Bad(
            """
            HloModule m, replica_count=8

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[32] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}  // error
            }
            """
        ),
        "S-24": Bad(
            """
            HloModule m, num_partitions=8

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[8] all-to-all(p), dimensions={0}, channel_id=1,  // error
                  replica_groups={{0,1,2,3}}
            }
            """
        ),
        "S-25": Bad(
            """
            HloModule m, num_partitions=8

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[32] all-gather(p), dimensions={0}, channel_id=1,  // error
                  use_global_device_ids=true, replica_groups={{0,1,2,3}}
            }
            """
        ),
        "S-26": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[8] all-to-all(p), dimensions={0},  // error
                replica_groups={{0,1,2,3},{4,5}}
        """),
        "S-27": Bad(
            """
            HloModule m

            add {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[8] all-reduce(p), channel_id=1, use_global_device_ids=true,  // error
                  replica_groups={}, to_apply=add
            }
            """
        ),
        "3.5-7g": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[8] collective-broadcast(p), replica_groups={{0,1},{1,2}}  // error
        """),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m, num_partitions=8

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[32] all-gather(p), dimensions={0}, channel_id=1,
                  use_global_device_ids=true, replica_groups=[2,4]<=[8]
            }
            """
        ),
        Good.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[32] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}
        """),
    )
