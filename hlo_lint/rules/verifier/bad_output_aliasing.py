"""Results that share memory with operands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BadOutputAliasing(Verified, Rule):
    """An instruction whose aliasing names what is not there, or parts that differ.

    ## Why
    `output_to_operand_aliasing` says that a part of the result lies where a part of an operand
    lies. With another size or order the kernel overwrites what others still read (`HandleFusion`,
    `HandleCustomCall` in `xla/service/hlo_verifier.cc`).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-80": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              ROOT r = f32[8]{0} fusion(p), kind=kCustom,  // error
                  output_to_operand_aliasing={{}: (1, {})}, calls=wrapped
            }
            """
        ),
        "S-83": Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT c = f32[9]{0} custom-call(p), custom_call_target="f",  // error
                output_to_operand_aliasing={{}: (0, {})}
        """),
        "S-91": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p),  // error
                  output_to_operand_aliasing={{}: (0, {})}, calls=wrapped
              ROOT d = f32[8]{0} async-done(s)
            }
            """
        ),
        "S-92": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s),  // error
                  output_to_operand_aliasing={{2}: (1, {2})}
              ROOT d = f32[8]{0} async-done(u)
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8]{0} parameter(0)
            ROOT c = f32[8]{0} custom-call(p), custom_call_target="f",
                output_to_operand_aliasing={{}: (0, {})}
        """),
    )
