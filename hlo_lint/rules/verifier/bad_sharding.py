"""How values are spread over devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadSharding(Verified, Rule):
    """An instruction whose sharding does not fit its shape or the devices of the module.

    ## Why
    Tiles cut each dimension of the array, and devices are named once each, from those that there
    are (`xla/hlo/ir/hlo_sharding.cc`). The partitioner dies on another, or leaves parts of the
    array to nobody.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "I-02": Bad(
            """
            HloModule m, num_partitions=2

            ENTRY e {
              p = f32[8,4] parameter(0), sharding={devices=[2]0,1}  // error
              ROOT n = f32[8,4] negate(p)
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m, num_partitions=2

            ENTRY e {
              p = f32[8,4] parameter(0), sharding={devices=[2,1]<=[2]}
              ROOT n = f32[8,4] negate(p), sharding={replicated}
            }
            """
        ),
    )
