"""What a scan carries and stacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadScan(Verified, Rule):
    """A scan whose step does not fit what it carries, or that is left where XLA has none any more.

    ## Why
    A step takes a slice of each input and the carries, and gives a slice of each output and the
    carries (`HandleScan` in `xla/service/hlo_verifier.cc`). Behind layout-assignment only an
    associative scan is left: the others have become loops.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-51": Bad(
            """
            HloModule m

            step {
              x = f32[] parameter(0)
              c = f32[] parameter(1)
              s = f32[] add(x, c)
              ROOT t = (f32[], f32[]) tuple(s, s)
            }

            ENTRY e {
              p = f32[8,2] parameter(0)
              z = f32[] constant(0)
              ROOT r = (f32[8], f32[]) scan(p, z), dimensions={0,1}, num_carries=1,  // error
                  is_associative=true, to_apply=step
            }
            """
        ),
        "S-52": Bad(
            """
            HloModule m

            step {
              x = f32[] parameter(0)
              c = f32[] parameter(1)
              s = f32[] add(x, c)
              ROOT t = (f32[], f32[]) tuple(s, s)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              z = f32[] constant(0)
              ROOT r = (f32[8]{0}, f32[]) scan(p, z), dimensions={0}, num_carries=1,  // error
                  is_associative=false, to_apply=step
            }
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
        "S-53": Bad(
            """
            HloModule m

            step {
              x = f32[] parameter(0)
              c = f32[] parameter(1)
              s = f32[] add(x, c)
              ROOT t = (f32[], f32[]) tuple(s, s)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              z = f32[] constant(0)
              ROOT r = (f32[8], f32[]) scan(p, z), dimensions={0}, num_carries=3,  // error
                  is_associative=true, to_apply=step
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m

            step {
              x = f32[] parameter(0)
              c = f32[] parameter(1)
              s = f32[] add(x, c)
              ROOT t = (f32[], f32[]) tuple(s, s)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              z = f32[] constant(0)
              ROOT r = (f32[8], f32[]) scan(p, z), dimensions={0}, num_carries=1,
                  is_associative=true, to_apply=step
            }
            """
        ),
    )
