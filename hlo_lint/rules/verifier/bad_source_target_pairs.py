"""Who sends to whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadSourceTargetPairs(Verified, Rule):
    """A collective-permute that sends from a device twice, to one twice, or where none is.

    ## Why
    Each device sends once at most and receives once at most, among those that the module has
    (`CheckSourceTargetPairs` in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-37": Bad(
            """
            HloModule m, num_partitions=2

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[8] collective-permute(p), channel_id=1,  // error
                  source_target_pairs={{0,1},{1,2}}
            }
            """
        ),
        "S-38": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[8] collective-permute(p), source_target_pairs={{0,1},{0,2}}  // error
        """),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m, num_partitions=2

            ENTRY e {
              p = f32[8] parameter(0)
              ROOT g = f32[8] collective-permute(p), channel_id=1, source_target_pairs={{0,1},{1,0}}
            }
            """
        ),
    )
