"""Orders between instructions with side effects that a pass lost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from hlo_lint.analysis.control_orders import (
    ancestors_of,
    ends_of_replaced,
    has_effects,
    has_order,
    orders,
    runs_before,
    turned_edges,
    waiting,
)
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.step_map.links import LinkKind
from hlo_lint.hlo.attributes.splitting import control_predecessors
from hlo_lint.hlo.ir import Instruction
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, Severity

_PROGRAM = """
HloModule m

ENTRY e {{
  p = s32[] parameter(0)
  q = s32[] parameter(1)
  a = s32[] custom-call(p), custom_call_target="first"
  {between}
  b = s32[] custom-call(q), custom_call_target="second"{after}
  ROOT t = (s32[], s32[]) tuple(a, b)
}}
"""
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_dce.txt"
_AFTER = "module_0001.m.0002.simplification.after_dce.before_pipeline-end.txt"
_TOKENS = """
HloModule m

ENTRY e {{
  t = token[] after-all()
  i = (f32[8], token[]) infeed(t)
  u = token[] get-tuple-element(i), index=1
  j = (f32[8], token[]) infeed({taken}){mark}
  a = f32[8] get-tuple-element(i), index=0
  b = f32[8] get-tuple-element(j), index=0
  ROOT r = f32[8] subtract(a, b)
}}
"""
_SCHEDULE = """
HloModule m, is_scheduled=true

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  {copy}
  {first}
  n = f32[8]{{0}} negate(q){control}
  {then}
  ROOT a = f32[8]{{0}} add({read}, n)
}}
"""
_ORDERED = _PROGRAM.format(
    between="c = s32[] negate(p), control-predecessors={a}", after=", control-predecessors={c}"
)
_CALLED: Final = """
HloModule m

f {{
  x = s32[] parameter(0)
  a.1 = s32[] custom-call(x), custom_call_target="first"
  b.1 = s32[] custom-call(x), custom_call_target="second", control-predecessors={{a.1}}
  ROOT t.1 = (s32[], s32[]) tuple(a.1, b.1)
}}

ENTRY e {{
  p = s32[] parameter(0)
  ROOT c = (s32[], s32[]) call(p), to_apply=f
}}
"""
_IN_PLACE: Final = """
HloModule m

ENTRY e {{
  p = s32[] parameter(0)
  a.2 = s32[] custom-call(p), custom_call_target="first"
  b.2 = s32[] custom-call(p), custom_call_target="second"{after}
  ROOT t.2 = (s32[], s32[]) tuple(a.2, b.2)
}}
"""
_ALONE: Final = """
HloModule m

ENTRY e {
  p = s32[] parameter(0)
  a = s32[] custom-call(p), custom_call_target="first"
  n = s32[] negate(p), control-predecessors={a}
  ROOT t = (s32[], s32[]) tuple(a, n)
}
"""
_PERMUTED: Final = """
HloModule m, replica_count=2

ENTRY e {{
  p = s32[] parameter(0)
  a = s32[] custom-call(p), custom_call_target="first"
  d = {types} collective-permute{suffix}(p), source_target_pairs={{{{0,1}},{{1,0}}}}{after}
{done}
  ROOT t = (s32[], s32[]) tuple(a, {read})
}}
"""
_FUSED: Final = """
HloModule m

f {{
  x = s32[] parameter(0)
  ROOT n.1 = s32[] negate(x)
}}

ENTRY e {{
  p = s32[] parameter(0)
  a = s32[] custom-call(p), custom_call_target="first"
  k = s32[] fusion(p), kind=kLoop, calls=f{after}
  ROOT t = (s32[], s32[]) tuple(a, k)
}}
"""
_TWICE: Final = """
HloModule m

ENTRY e {{
  p = s32[] parameter(0)
  a.2 = s32[] custom-call(p), custom_call_target="first"
  b.2 = s32[] custom-call(p), custom_call_target="second", control-predecessors={{a.2}}
  a.3 = s32[] custom-call(b.2), custom_call_target="first"
  b.3 = s32[] custom-call(b.2), custom_call_target="second"{after}
  ROOT t.3 = (s32[], s32[]) tuple(a.3, b.3)
}}
"""
_LOOPED: Final = """
HloModule m

b {{
  x = (s32[]{type}) parameter(0)
  i = s32[] get-tuple-element(x), index=0
  n = s32[] negate(i)
  ROOT t = (s32[]{type}) tuple(n{more})
}}

c {{
  y = (s32[]{type}) parameter(0)
  ROOT c = pred[] custom-call(y), custom_call_target="test"
}}

ENTRY e {{
  p = s32[] parameter(0)
  a = s32[] custom-call(p), custom_call_target="first"
  u = (s32[]{type}) tuple(p{given})
  {loop} = (s32[]{type}) while(u), condition=c, body=b{after}
  g = s32[] get-tuple-element({loop}), index=0
  ROOT r = (s32[], s32[]) tuple(g, a)
}}
"""
_PIPELINED: Final = """
HloModule m

ENTRY e {{
  p = f32[2] parameter(0)
  q = ((f32[2], u32[], token[])) parameter(1)
  g = (f32[2], u32[], token[]) get-tuple-element(q), index=0
  t = token[] after-all()
  s = (f32[2], u32[], token[]) send(p, t), channel_id=1
  d = token[] send-done({started}), channel_id=1
  ROOT r = ((f32[2], u32[], token[])) tuple(s)
}}
"""
_COPIED: Final = """
HloModule m

ENTRY e {{
  p = s32[] parameter(0)
  a = s32[] custom-call(p), custom_call_target="first"
  b = s32[] custom-call(p), custom_call_target="second", control-predecessors={{a}}
{copies}
  ROOT t = (s32[], s32[]) tuple(a, {read})
}}
"""
_COPIES: Final = """\
  a.clone = s32[] custom-call(b), custom_call_target="first"
  b.clone = s32[] custom-call(b), custom_call_target="second\""""


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
    evidence = (PublicReport("openxla/xla#21680 (call-inliner)"),)
    examples = (
        Bad(
            _PROGRAM.format(between="", after="  // error"), file=_AFTER, beside={_BEFORE: _ORDERED}
        ),
        Bad(
            _TOKENS.format(taken="t", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _TOKENS.format(taken="u", mark="")},
        ),
        Bad(
            _SCHEDULE.format(
                copy="",
                first="s = (f32[8]{0:S(1)}, f32[8]{0}, u32[]) copy-start(p)",
                then="d = f32[8]{0:S(1)} copy-done(s)",
                control="  // error",
                read="d",
            ),
            file=_AFTER,
            beside={
                _BEFORE: _SCHEDULE.format(
                    copy="c = f32[8]{0} copy(p)",
                    first="",
                    then="",
                    control=", control-predecessors={c}",
                    read="c",
                )
            },
        ),
        Bad(
            _ALONE.replace(", control-predecessors={a}", "  // error"),
            file=_AFTER,
            beside={_BEFORE: _ALONE},
        ),
        Bad(_FUSED.format(after="  // error"), file=_AFTER, beside={_BEFORE: _ALONE}),
        Bad(
            _PERMUTED.format(suffix="", types="s32[]", after="  // error", done="", read="d"),
            file=_AFTER,
            beside={
                _BEFORE: _PERMUTED.format(
                    suffix="-start",
                    types="(s32[], s32[])",
                    after=", control-predecessors={a}",
                    done="  e = s32[] collective-permute-done(d)",
                    read="e",
                )
                .replace(" d ", " s ")
                .replace("(d)", "(s)")
            },
        ),
        Good(
            _FUSED.format(after=", control-predecessors={a}"), file=_AFTER, beside={_BEFORE: _ALONE}
        ),
        Bad(_IN_PLACE.format(after="  // error"), file=_AFTER, beside={_BEFORE: _CALLED.format()}),
        Bad(
            _PROGRAM.format(between="", after="  // error")
            .replace("(q)", "(n)")
            .replace("  b =", "  n = s32[] negate(q)\n  b ="),
            file=_AFTER,
            beside={
                _BEFORE: _PROGRAM.format(
                    between="c = s32[] copy(q), control-predecessors={a}", after=""
                )
                .replace("(q), custom", "(n), custom")
                .replace("  b =", "  n = s32[] negate(c)\n  b =")
            },
        ),
        Bad(
            _LOOPED.format(type="", more="", given="", loop="w.1", after="  // error"),
            file=_AFTER,
            beside={
                _BEFORE: _LOOPED.format(
                    type=", s32[]",
                    more=", i",
                    given=", p",
                    loop="w",
                    after=", control-predecessors={a}",
                )
            },
        ),
        Good(
            _PIPELINED.format(started="g"),
            file=_AFTER,
            beside={_BEFORE: _PIPELINED.format(started="s")},
        ),
        Bad(_TWICE.format(after="  // error"), file=_AFTER, beside={_BEFORE: _CALLED.format()}),
        Good(
            _TWICE.format(after=", control-predecessors={a.3}"),
            file=_AFTER,
            beside={_BEFORE: _CALLED.format()},
        ),
        Bad(
            _COPIED.format(copies=_COPIES + "  // error", read="b.clone"),
            file=_AFTER,
            beside={_BEFORE: _COPIED.format(copies="", read="b")},
        ),
        Bad(
            _FUSED.replace("fusion(p), kind=kLoop, calls", "call(p), to_apply").format(
                after="  // error"
            ),
            file=_AFTER,
            beside={_BEFORE: _ALONE},
        ),
        Good(
            _IN_PLACE.format(after=", control-predecessors={a.2}"),
            file=_AFTER,
            beside={_BEFORE: _CALLED.format()},
        ),
        Good(
            _SCHEDULE.format(copy="", first="", then="", control="", read="p"),
            file=_AFTER,
            beside={
                _BEFORE: _SCHEDULE.format(
                    copy="t = (f32[8]{0}) tuple(p)",
                    first="o = (f32[8]{0}) opt-barrier(t)",
                    then="",
                    control=", control-predecessors={o}",
                    read="o#0",
                )
            },
        ),
        Good(
            _PROGRAM.format(between="", after=", control-predecessors={a}"),
            file=_AFTER,
            beside={_BEFORE: _ORDERED},
        ),
    )

    def check_moved(self, change: PassPair) -> Findings:
        """Lost orders in computations that a pass inlined, outlined or cloned."""
        if not any(map(has_order, change.removed)):
            return
        clones: dict[tuple[str, str], list[Instruction]] = {}
        for link in change.map.links(has_effects):
            if link.kind in (LinkKind.MOVED, LinkKind.CLONED):
                place = link.old.computation.name, link.old.name
                clones.setdefault(place, []).append(link.new)
        for (name, second), copies in clones.items():
            before = change.before.computation(name)
            waiter = None if before is None else before.instruction(second)
            text = "" if waiter is None else waiter.attributes_text
            for first in control_predecessors(text):
                others = clones.get((name, first), [])
                if len(others) == len(copies):
                    # Clones are listed by iteration or call, so equal positions belong together.
                    pairs = zip(others, copies, strict=True)
                    yield from _lost_order(pairs, (first, second), name, change)

    def check_replaced(self, change: PassPair) -> Findings:
        """Lost orders of instructions that a pass made asynchronous or fused."""
        if not any(any(waiting(computation)) for computation in change.changed):
            return
        ends = ends_of_replaced(change)
        for computation in change.changed if ends else ():
            after = computation.after
            for second in waiting(computation):
                for name in control_predecessors(second.attributes_text):
                    ahead = ends.get(name, (None, after.instruction(name)))[1]
                    behind = ends.get(second.name, (after.instruction(second.name), None))[0]
                    if not (ahead and behind) or ends.keys().isdisjoint((name, second.name)):
                        continue
                    if ahead.computation is not after or behind.computation is not after:
                        continue
                    if ahead is behind or runs_before(ahead, behind, change):
                        continue
                    # A result of a call may be computed before its other effects happen.
                    if behind.opcode != "call" or behind.name not in ancestors_of(
                        after, ahead.name
                    ):
                        is_turned = change.after.is_scheduled
                        yield Finding(
                            behind,
                            f"{change.pass_name} scheduled %{behind.name} before %{ahead.name}"
                            if is_turned
                            else f"{change.pass_name} lost the order of %{ahead.name} and "
                            f"%{behind.name}",
                            notes=(
                                f"before the pass, they were %{name} and %{second.name}, ordered "
                                "by a control dependency",
                            ),
                        )

    def check(self, change: PassPair) -> Findings:
        """Lost or reversed orders of remaining instructions, reported at the second instruction."""
        for computation in change.changed:
            after = computation.after
            edges = turned_edges(computation) if change.after.is_scheduled else ()
            for before, ahead, behind in edges:
                yield Finding(
                    behind,
                    f"{change.pass_name} scheduled %{behind.name} before %{ahead.name}",
                    notes=(f"before the pass, a control dependency made %{before.name} run first",),
                )
            paths: dict[str, frozenset[str]] = {}
            for (first, second), means in dict(orders(computation)).items():
                ancestors = paths.get(second)
                if ancestors is None:
                    ancestors = paths[second] = ancestors_of(after, second)
                if first in ancestors:
                    continue
                if change.after.is_scheduled and after.index[first] < after.index[second]:
                    continue
                yield Finding(
                    after.at(after.index[second]),
                    f"{change.pass_name} lost the order of %{first} and %{second}",
                    notes=(
                        f"before the pass, {means} made %{first} run before %{second}; now no path "
                        "connects them",
                    ),
                )


def _lost_order(
    pairs: Iterable[tuple[Instruction, Instruction]],
    names: tuple[str, str],
    computation: str,
    change: PassPair,
) -> Findings:
    """A finding at the first pair of clones that lost its order."""
    first, second = names
    for ahead, behind in pairs:
        if ahead.computation is behind.computation and not runs_before(ahead, behind, change):
            yield Finding(
                behind,
                f"{change.pass_name} lost the order of %{ahead.name} and %{behind.name}",
                notes=(
                    f"before the pass, they were %{first} and %{second} of %{computation}, ordered "
                    "by a control dependency",
                ),
            )
            return
