"""A printed shape and what follows from what is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class WrongResultShape(Verified, Rule):
    """An instruction whose shape is not what follows from its operands and attributes.

    ## Why
    XLA infers the shape of every instruction and compares it with the one it carries
    (`ShapeVerifier` in `xla/service/hlo_verifier.cc`). Behind the text a wrong shape means a kernel
    that writes beyond its result, or leaves a part of it unwritten. XLA's own parser takes most of
    these texts, and release builds ask no verifier between passes.

    Precision of floats may differ where XLA lets it, dynamic flags are not compared, and layouts
    only where an opcode hands on what lies in memory.
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-01": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT t = (f32[8], f32[4]) tuple(p, p)  // error
        """),
        "S-04": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT r = f32[8] select(p, p)  // error
        """),
        "S-10": Bad.entry("""
            p = f32[8] parameter(0)
            q = s32[8] parameter(1)
            ROOT r = f32[8] add(p, q)  // error
        """),
        "S-11": Bad.entry("""
            p = f32[8,4] parameter(0)
            q = f32[2,5,6] parameter(1)
            n = s32[2] parameter(2)
            ROOT r = f32[8,6] ragged-dot(p, q, n), lhs_contracting_dims={1},  // error
                rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
        """),
        "S-17": Bad.entry("""
            p = f32[4,3] parameter(0)
            ROOT c = f32[4,3] cholesky(p), lower=true  // error
        """),
        "S-34": Bad.entry("""
            ROOT r = s32[] replica-id()  // error
        """),
        "S-39": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT r = f32[8] reverse(p), dimensions={1}  // error
        """),
        "S-48": Bad.entry("""
            ROOT i = s32[8] iota(), iota_dimension=1  // error
        """),
        "S-49": Bad.entry("""
            p = (f32[8], s32[]) parameter(0)
            ROOT g = f32[8] get-tuple-element(p), index=1  // error
        """),
        "S-73": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT b = f32[4,9] broadcast(p), dimensions={1}  // error
        """),
        "S-74": Bad.entry("""
            p = f32[8] parameter(0)
            n = s32[] parameter(1)
            ROOT r = f32[2,<=4] dynamic-reshape(p, n)  // error
        """),
        "S-75": Bad.entry("""
            p = f32[8,3] parameter(0)
            ROOT r = f32[23] reshape(p)  // error
        """),
        "S-76": Bad.entry("""
            p = f32[8,3] parameter(0)
            ROOT t = f32[8,3] transpose(p), dimensions={1,0}  // error
        """),
        "S-84": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT s = f32[4] slice(p), slice={[0:5]}  // error
        """),
        "S-103": Bad.entry("""
            p = f32[8] parameter(0)
            n = s32[] parameter(1)
            ROOT s = f32[<=8] set-dimension-size(p, n), dimensions={1}  // error
        """),
        "I-24": Bad(
            """
            HloModule m

            add {
              a = f32[] parameter(0)
              b = f32[] parameter(1)
              ROOT s = f32[] add(a, b)
            }

            ENTRY e {
              p = f32[8] parameter(0)
              i = s32[2,1] parameter(1)
              u = f32[2] parameter(2)
              ROOT s = f32[8] scatter(p, i, u), update_window_dims={},  // error
                  inserted_window_dims={0}, scatter_dims_to_operand_dims={1}, index_vector_dim=1,
                  to_apply=add
            }
            """
        ),
        "I-06": Bad.entry("""
            p = f32[8,3] parameter(0)
            ROOT b = f32[8,3,2] broadcast(p), dimensions={0}  // error
        """),
        "I-14": Bad.entry("""
            p = f32[8] parameter(0)
            q = f32[1] parameter(1)
            ROOT r = f32[8] add(p, q)  // error
        """),
        "I-16": Bad.entry("""
            p = f32[8] parameter(0)
            ROOT g = f32[8] get-tuple-element(p), index=0  // error
        """),
        "I-17": Bad.entry("""
            p = f32[8,3] parameter(0)
            ROOT t = f32[8] transpose(p), dimensions={0}  // error
        """),
    }
    examples = (
        *rows.values(),
        Good.entry("""
            p = f32[8,3] parameter(0)
            t = f32[3,8] transpose(p), dimensions={1,0}
            r = f32[24] reshape(t)
            s = f32[5] slice(r), slice={[0:5]}
            b = f32[4,5] broadcast(s), dimensions={1}
            n = bf16[4,5] convert(b)
            a = f32[4,5] add(b, n)
            g = (f32[4,5], f32[24]) tuple(a, r)
            ROOT o = f32[24] get-tuple-element(g), index=1
        """),
    )
