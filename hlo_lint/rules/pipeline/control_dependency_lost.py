"""Orders between instructions with side effects that a pass lost."""

from __future__ import annotations

from hlo_lint.analysis.control_orders import lost_orders
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted


class ControlDependencyLost(Rule):
    """A pass that loses the order of two instructions.

    ## Why
    `control-predecessors` state an order that operands do not show: between calls with side
    effects, between sends, receives and other collectives. A pass that removes or inlines an
    instruction must transfer its control dependencies to the remaining instructions. Otherwise the
    scheduler may run them in any order: side effects happen in the wrong order, and collectives
    deadlock if devices choose different orders. Tokens, which order infeeds, outfeeds, sends and
    calls, must be preserved too.

    The rule checks each pair of remaining instructions with a control dependency, whatever their
    opcodes. The order is kept if a path of operands and control dependencies connects the two, or
    if the module is scheduled in this order; in a scheduled module it is lost if the schedule has
    them the other way round. A copy that became asynchronous ends at its done. In inlined, outlined
    or cloned code, the rule checks direct control dependencies. It follows instructions into
    fusions, and through conversions to or from asynchronous form.
    """

    severity = Severity.WARNING
    evidence = (Counted("calls out of order", 1, 0, other=None),)
    reports = "openxla/xla#21680"
    examples = (
        Bad.step("""
              a = s32[] custom-call(s32[] p), custom_call_target="first"
            - c = s32[] negate(p), control-predecessors={a}
            - b = s32[] custom-call(s32[] q), custom_call_target="second", control-predecessors={c}
            + b = s32[] custom-call(q), custom_call_target="second"  // error
              ROOT t = (s32[], s32[]) tuple(a, b)
        """),
        Bad.step("""
              t = token[] after-all()
              i = (f32[8], token[]) infeed(t)
              u = token[] get-tuple-element(i), index=1
            - j = (f32[8], token[]) infeed(u)
            + j = (f32[8], token[]) infeed(t)  // error
              a = f32[8] get-tuple-element(i), index=0
              b = f32[8] get-tuple-element(j), index=0
              ROOT r = f32[8] subtract(a, b)
        """),
        Bad.step("""
            HloModule m, is_scheduled=true
            - c = f32[8] copy(f32[8] p)

            - n = f32[8] negate(f32[8] q), control-predecessors={c}
            - ROOT a = f32[8] add(c, n)
            + s = (f32[8]{0:S(1)}, f32[8], u32[]) copy-start(f32[8] p)
            + n = f32[8] negate(f32[8] q)  // error
            + d = f32[8]{0:S(1)} copy-done(s)
            + ROOT a = f32[8] add(d, n)
        """),
        Bad.step("""
            +f { ROOT n.1 = s32[] negate(s32[] x) }
              a = s32[] custom-call(s32[] p), custom_call_target="first"
            - n = s32[] negate(p), control-predecessors={a}
            - ROOT t = (s32[], s32[]) tuple(a, n)
            + k = s32[] fusion(p), kind=kLoop, calls=f  // error
            + ROOT t = (s32[], s32[]) tuple(a, k)
        """),
        Bad.step("""
              a = s32[] custom-call(s32[] p), custom_call_target="first"
            - c = s32[] copy(s32[] q), control-predecessors={a}
            - n = s32[] negate(c)
            + n = s32[] negate(q)
              b = s32[] custom-call(n), custom_call_target="second"  // error
              ROOT t = (s32[], s32[]) tuple(a, b)
        """),
        Bad.step("""
            -b { ROOT x = (s32[], s32[]) copy((s32[], s32[]) y) }
            +b { ROOT x = (s32[]) copy((s32[]) y) }
            -c { ROOT t = pred[] custom-call((s32[], s32[]) z), custom_call_target="test" }
            +c { ROOT t = pred[] custom-call((s32[]) z), custom_call_target="test" }
              a = s32[] custom-call(s32[] p), custom_call_target="first"
            - u = (s32[], s32[]) tuple(p, p)
            - w = (s32[], s32[]) while(u), condition=c, body=b, control-predecessors={a}
            - g = s32[] get-tuple-element(w), index=0
            + u = (s32[]) tuple(p)
            + w.1 = (s32[]) while(u), condition=c, body=b  // error
            + g = s32[] get-tuple-element(w.1), index=0
              ROOT r = (s32[], s32[]) tuple(g, a)
        """),
        Good.step("""
              g = (f32[2], u32[], token[]) get-tuple-element(((f32[2], u32[], token[])) q), index=0
              t = token[] after-all()
              s = (f32[2], u32[], token[]) send(f32[2] p, t), channel_id=1
            - d = token[] send-done(s), channel_id=1
            + d = token[] send-done(g), channel_id=1
              ROOT r = ((f32[2], u32[], token[])) tuple(s)
        """),
        Bad.step("""
            -f {
            - a.1 = s32[] custom-call(s32[] x), custom_call_target="first"
            - b.1 = s32[] custom-call(x), custom_call_target="second", control-predecessors={a.1}
            - ROOT t.1 = (s32[], s32[]) tuple(a.1, b.1)
            -}
              p = s32[] parameter(0)
            - ROOT c = (s32[], s32[]) call(p), to_apply=f
            + a.2 = s32[] custom-call(p), custom_call_target="first"
            + b.2 = s32[] custom-call(p), custom_call_target="second", control-predecessors={a.2}
            + a.3 = s32[] custom-call(b.2), custom_call_target="first"
            + b.3 = s32[] custom-call(b.2), custom_call_target="second"  // error
            + ROOT t.3 = (s32[], s32[]) tuple(a.3, b.3)
        """),
        Bad.step("""
              a = s32[] custom-call(s32[] p), custom_call_target="first"
              b = s32[] custom-call(p), custom_call_target="second", control-predecessors={a}
            - ROOT t = (s32[], s32[]) tuple(a, b)
            + a.clone = s32[] custom-call(b), custom_call_target="first"
            + b.clone = s32[] custom-call(b), custom_call_target="second"  // error
            + ROOT t = (s32[], s32[]) tuple(a, b.clone)
        """),
        Good.step("""
            HloModule m, is_scheduled=true
            - t = (f32[8]) tuple(f32[8] p)
            - o = (f32[8]) opt-barrier(t)
            - n = f32[8] negate(f32[8] q), control-predecessors={o}

            - ROOT a = f32[8] add(o#0, n)
            + n = f32[8] negate(q)
            + ROOT a = f32[8] add(p, n)
        """),
    )

    def check(self, pair: PassPair) -> Findings:
        """Lost or reversed orders, reported at the second instruction."""
        for ahead, behind, reason in lost_orders(pair):
            is_turned = pair.after.is_scheduled
            did = (
                f"scheduled %{behind.name} before %{ahead.name}"
                if is_turned
                else f"lost the order of %{ahead.name} and %{behind.name}"
            )
            notes = (f"before the pass, {reason}",)
            yield Finding(behind, f"{pair.pass_name} {did}", notes)
