"""An asynchronous operation, from its start to its done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good, Rule
from hlo_lint.rules.verifier import Verified


class BrokenAsync(Verified, Rule):
    """An asynchronous operation whose parts do not agree, or whose value is read too early.

    ## Why
    Between start and done the operation runs beside the program; what the start gives is a handle,
    and only the done, an update, or what hands it on may read it. Start, updates and done are of
    one computation, on one thread, and beside its parameters that computation holds one instruction
    (`VerifyAsynchronousInstructionPairs` in `xla/service/hlo_verifier.cc`). That each start has one
    done is [start-without-done](#start-without-done).
    """

    between_passes = True
    rows: ClassVar[Mapping[str, Bad]] = {
        "S-90": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p),  // error
                  async_execution_thread="host", calls=wrapped
              ROOT d = f32[8]{0} async-done(s)
            }
            """
        ),
        "S-93": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = (f32[8]{0}, f32[8]{0}, u32[]) async-start(p), calls=wrapped  // error
              ROOT d = f32[8]{0} negate(p)
            }
            """
        ),
        "S-94": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[9]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped  // error
              ROOT d = f32[8]{0} async-done(s)
            }
            """
        ),
        "S-95": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              u = ((f32[8]{0}), f32[9]{0}, u32[]) async-update(s)  // error
              ROOT d = f32[9]{0} async-done(u)
            }
            """
        ),
        "S-95c": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            other {
              a.1 = f32[8]{0} parameter(0)
              ROOT n.1 = f32[8]{0} sine(a.1)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s), calls=other  // error
              ROOT d = f32[8]{0} async-done(u)
            }
            """
        ),
        "S-96": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            other {
              a.1 = f32[8]{0} parameter(0)
              ROOT n.1 = f32[8]{0} sine(a.1)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              ROOT d = f32[8]{0} async-done(s), calls=other  // error
            }
            """
        ),
        "S-97": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8,3]{0,1} parameter(0)
              ROOT n = f32[8,3]{0,1} negate(a)
            }

            ENTRY e {
              p = f32[8,3]{1,0} parameter(0)
              s = ((f32[8,3]{1,0}), f32[8,3]{1,0}, u32[]) async-start(p), calls=wrapped  // error
              ROOT d = f32[8,3]{1,0} async-done(s)
            }
            """
        ),
        "S-98": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              ROOT d = f32[9]{0} async-done(s)  // error
            }
            """
        ),
        "M-20": Bad.entry("""
            p = f32[8]{0} parameter(0)
            s = (f32[8]{0}, f32[8]{0}) collective-permute-start(p),  // error
                source_target_pairs={{0,1}}
            c = (f32[8]{0}, f32[8]{0}) custom-call(s), custom_call_target="peek"
            ROOT d = f32[8]{0} collective-permute-done(s)
        """),
        "M-21": Bad.entry("""
            p = (f32[8]{0}, f32[8]{0}) custom-call(), custom_call_target="make"
            ROOT d = f32[8]{0} collective-permute-done(p)  // error
        """),
        "M-22": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped  // error
              c = f32[8]{0} custom-call(s), custom_call_target="peek"
              ROOT d = f32[8]{0} async-done(s)
            }
            """
        ),
        "M-23": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              ROOT d = f32[8]{0} async-done(s, p)  // error
            }
            """
        ),
        "M-24": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s)
              v = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s)  // error
              d.1 = f32[8]{0} async-done(u)
              ROOT d = f32[8]{0} async-done(v)
            }
            """
        ),
        "M-40": Bad(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              b = f32[8]{0} sine(a)
              ROOT n = f32[8]{0} negate(b)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped  // error
              ROOT d = f32[8]{0} async-done(s)
            }
            """
        ),
    }
    examples = (
        *rows.values(),
        Good(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              u = ((f32[8]{0}), f32[8]{0}, u32[]) async-update(s)
              ROOT d = f32[8]{0} async-done(u)
            }
            """
        ),
        Good(
            """
            HloModule m

            wrapped {
              a = f32[8]{0} parameter(0)
              ROOT n = f32[8]{0} negate(a)
            }

            ENTRY e {
              p = f32[8]{0} parameter(0)
              s = ((f32[8]{0}), f32[8]{0}, u32[]) async-start(p), calls=wrapped
              ROOT d = f32[8]{0} async-done(s)
            }
            """
        ),
    )
