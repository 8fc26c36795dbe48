"""Instructions with side effects that a pass removed, repeated or moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from hlo_lint.analysis.calls import calls_of, with_opcodes
from hlo_lint.analysis.loops import loops
from hlo_lint.analysis.merges import merges
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.side_effects import (
    EFFECTS,
    MARKERS,
    REPEATED,
    SHARDY,
    effect_of,
    has_effect,
    runs_of,
)
from hlo_lint.analysis.walks import reached
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.records import opcode_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import PublicReport
from hlo_lint.text.phrases import an

_BARRIER: Final = "opt-barrier"
_REPLACES: Final = frozenset(
    "async-start call conditional custom-call fusion recv send while".split()
)
"""Opcodes that may carry the side effect of a removed instruction."""


class SideEffectLost(Rule):
    """A pass that removes or repeats an instruction with side effects.

    ## Why
    Infeeds, outfeeds, sends to the host, custom calls with `custom_call_has_side_effect=true` and
    updates of a random generator's state matter even if their result is unused. A pass may move or
    replace them, but not delete them: a deleted callback prints nothing, and a deleted infeed
    leaves its data to the next infeed.

    A pass must not repeat an effect, move it into or out of a remaining loop, or make a conditional
    effect unconditional: an infeed that runs twice takes the data of the next infeed. `rng` returns
    different numbers each time, so a pass must not merge two of them, or clone one for each user.
    Two operations on the same operands must not be merged if they differ in configuration, devices,
    precision or sharding, or if only one runs on the host or on a different stream.

    Only the pass made for it may remove an `opt-barrier` or a call that marks a value for a pass:
    `MoveToHost`, `Sharding`, `LayoutConstraint`.

    The rule checks the entry, which always runs once, and computations that are still called under
    the same name: other computations may have been dead. If the pass added a call, a fusion or
    control flow, that may contain the effect, and nothing is reported.
    """

    subsumes = frozenset({"meaning-changed"})
    severity = Severity.WARNING
    evidence = (PublicReport("openxla/xla#40519"),)
    examples = (
        Bad.step("""
              p = f32[8] parameter(0)
            - c = () custom-call(p), custom_call_target="log", custom_call_has_side_effect=true
              ROOT n = f32[8] negate(p)  // error
        """),
        Bad.step("""
              p = f32[8] parameter(0)
              c = () custom-call(p), custom_call_target="log", custom_call_has_side_effect=true
            + d = () custom-call(p), custom_call_target="log",  // error
            +     custom_call_has_side_effect=true
              ROOT n = f32[8] negate(p)
        """),
        Bad.step("""
              a = f32[] constant(0)
              b = f32[] constant(1)
              r = f32[8] rng(a, b), distribution=rng_uniform
            - q = f32[8] rng(a, b), distribution=rng_uniform
            - ROOT n = f32[8] subtract(r, q)
            + ROOT n = f32[8] subtract(r, r)  // error
        """),
        Bad.step("""
            - b = f32[8] opt-barrier(f32[8] p)
            - ROOT n = f32[8] negate(b)
            + ROOT n = f32[8] negate(p)  // error
        """),
        Bad.step("""
              c = f32[8] custom-call(f32[8] p), custom_call_target="k", backend_config="1"
            - d = f32[8] custom-call(p), custom_call_target="k", backend_config="2"
            - ROOT s = f32[8] subtract(c, d)
            + ROOT s = f32[8] subtract(c, c)  // error
        """),
        Bad.step("""
            -f {
            - x = f32[8] parameter(0)
            - c = () custom-call(x), custom_call_target="log", custom_call_has_side_effect=true
            - ROOT y = f32[8] abs(x)
            -}

            ENTRY e {
              p = f32[8] parameter(0)
            - k = f32[8] call(p), to_apply=f
              ROOT n = f32[8] negate(p)  // error
            }
        """),
        Bad.step("""
            c {
              p.2 = f32[8] parameter(0)
              ROOT t = pred[] custom-call(p.2), custom_call_target="test"
            }

            b {
              p = f32[8] parameter(0)
            - c = () custom-call(p), custom_call_target="log", custom_call_has_side_effect=true
              ROOT s = f32[8] sine(p)
            }

            ENTRY e {
              p = f32[8] parameter(0)
            + c = () custom-call(p), custom_call_target="log",  // error
            +     custom_call_has_side_effect=true
              ROOT w = f32[8] while(p), condition=c, body=b
            }
        """),
        Bad.step("""
            f {
              x = f32[] parameter(0)
              c = () custom-call(x), custom_call_target="log",  // error
                  custom_call_has_side_effect=true
              ROOT y = f32[] abs(x)
            }

            g { z = f32[] parameter(0) ROOT n = f32[] negate(z) }
            ENTRY e {
              o = pred[] parameter(0)
              p = f32[] parameter(1)
            - ROOT r = f32[] conditional(o, p, p), true_computation=f, false_computation=g
            + k = f32[] call(p), to_apply=f
            + l = f32[] call(p), to_apply=g
            + ROOT r.1 = f32[] select(o, k, l)
            }
        """),
        Bad.step("""
            - h = f32[8] custom-call(f32[8] p), custom_call_target="MoveToHost"
            - ROOT n = f32[8] negate(h)
            + ROOT n = f32[8] negate(p)  // error
        """),
        Bad.step("""
              a = f32[8] sine(f32[8] p), frontend_attributes={_xla_compute_type="host"}
            - b = f32[8] sine(p)
            - ROOT s = f32[8] atan2(a, b)
            + ROOT s = f32[8] atan2(a, a)  // error
        """),
        Bad.step("""
            - t = token[] after-all()
            - s = (f32[8], u32[], token[]) send(f32[8] p, t), channel_id=1, is_host_transfer=true
            - e = token[] send-done(s), channel_id=1, is_host_transfer=true
              ROOT n = f32[8] negate(p)  // error
        """),
        Good.step(
            """
            - h = f32[8] custom-call(f32[8] p), custom_call_target="MoveToHost"
            - ROOT n = f32[8] negate(h)
            + ROOT n = f32[8] negate(p)
            """,
            by="host-offloader",
        ),
        Good.step("""
            c {
              p.2 = f32[8] parameter(0)
              ROOT t = pred[] custom-call(p.2), custom_call_target="test"
            }

            b {
              p = f32[8] parameter(0)
              c = () custom-call(p), custom_call_target="log", custom_call_has_side_effect=true
              ROOT s = f32[8] sine(p)
            }

            ENTRY e {
              p = f32[8] parameter(0)
            - ROOT w = f32[8] while(p), condition=c, body=b
            + ROOT w = f32[8] while(p), condition=c, body=b,
            +     backend_config={"known_trip_count":{"n":"1"}}
            }
        """),
        Good.step("""
            -f {
            - x = f32[8] parameter(0)
            - c = () custom-call(x), custom_call_target="log", custom_call_has_side_effect=true
            - ROOT y = f32[8] abs(x)
            -}

            ENTRY e {
              p = f32[8] parameter(0)
            - k = f32[8] call(p), to_apply=f
            + c = () custom-call(p), custom_call_target="log", custom_call_has_side_effect=true
              ROOT n = f32[8] negate(p)
            }
        """),
        Good.step("""
            - c = () custom-call(f32[8] p), custom_call_target="Sharding",
            -     custom_call_has_side_effect=true
              ROOT n = f32[8] negate(p)
        """),
    )

    def check_callers(self, change: PassPair) -> Findings:
        """Removed calls, loops and conditionals of the entry that contained an effect."""
        before, after = change.before.entry, change.after.entry
        if before is None or after is None or after.root is None or before is after:
            return
        gone = [
            caller
            for caller in with_opcodes(before, ("call", "conditional", "while"))
            if caller.name not in after.index
        ]
        if not gone or _is_replaced(change):
            return
        left = {
            effect for part in change.after.computations for effect in map(effect_of, part.rows)
        }
        runs = {loop.instruction for loop in loops(change.before) if loop.trip_count}
        for caller in gone:
            callees = [change.before.computation(name) for name in caller.called_computations]
            rows = (row for callee in callees if callee for row in callee.rows)
            lost = sorted({effect_of(row) for row in rows if has_effect(row)} - left - {""})
            if lost and (
                caller.opcode == "call"
                or caller in runs
                or (caller.opcode == "conditional" and _is_decided_later(caller, change))
            ):
                yield Finding(
                    after.root,
                    f"{change.pass_name} removed %{caller.name}, a {caller.opcode} with "
                    f"{', '.join(lost)}, which has side effects",
                )

    def check_repeated(self, change: PassPair) -> Findings:
        """Effects of the entry that occur more often than before the pass."""
        before, after = change.before, change.after
        if before.entry is None or REPEATED.isdisjoint(before.entry.opcodes):
            return
        at_first = Counter(effect_of(call.row) for call in with_opcodes(before.entry, REPEATED))
        left = Counter[str]()
        places: dict[str, Instruction] = {}
        for computation in after.computations:
            for call in with_opcodes(computation, REPEATED):
                effect = effect_of(call.row)
                if effect in at_first and effect:
                    left[effect] += 1
                    is_entry = computation is after.entry
                    if not (is_entry and call.name in before.entry.index):
                        places[effect] = call
        for effect, place in places.items():
            if left[effect] > at_first[effect] == _count(before, effect):
                yield Finding(
                    place,
                    f"{change.pass_name} repeated {effect}, which has side effects: "
                    f"{left[effect]} calls, {at_first[effect]} before the pass",
                )

    def check_moved(self, change: PassPair) -> Findings:
        """Effects that a pass moved into or out of a loop, or made unconditional."""
        opcodes = {opcode for computation in change.removed for opcode in computation.opcodes}
        if opcodes.isdisjoint({*REPEATED, "conditional"}):
            return
        before, after = runs_of(change.before), runs_of(change.after)
        counts = [len(loops(module)) for module in (change.before, change.after)]
        for effect, ours in before.items():
            theirs = after.get(effect, ())
            if len(ours) != len(theirs):
                continue
            was_in, is_in = (sorted(run.loops for run in runs) for runs in (ours, theirs))
            depths = [sorted(run.depth for run in runs) for runs in (ours, theirs)]
            # A trip count of 1 that a pass annotates moves nothing: the depth stays.
            if was_in != is_in and depths[0] != depths[1] and counts[0] == counts[1]:
                more = Counter(is_in) - Counter(was_in)
                stayed = {(run.instruction.name, run.loops) for run in ours}
                place = min(
                    [run for run in theirs if run.loops in more],
                    key=lambda run: (run.instruction.name, run.loops) in stayed,
                )
                yield Finding(
                    place.instruction,
                    f"{change.pass_name} moved {effect}, which has side effects, "
                    f"{'into' if sum(is_in) > sum(was_in) else 'out of'} a loop",
                )
            chosen = [run.case for run in ours if run.case and _is_decided_later(run.case, change)]
            if chosen and not any(run.case for run in theirs):
                yield Finding(
                    theirs[0].instruction,
                    f"{change.pass_name} made {effect}, which has side effects, unconditional: "
                    f"it was in a branch of %{chosen[0].name}",
                )

    def check_barriers(self, change: PassPair) -> Findings:
        """Values that are read past a removed barrier or marker."""
        for computation in change.changed:
            before, after = computation.before, computation.after
            gone = {
                value.name: mark
                for mark in with_opcodes(before, (_BARRIER, "custom-call"))
                if mark.name not in after.index and _stops(mark, change.pass_name)
                for value in (mark, *mark.users)
                if value is mark or value.opcode == "get-tuple-element"
            }
            if _BARRIER in before.opcodes and len(after.with_opcode(_BARRIER)) >= len(
                before.with_opcode(_BARRIER)
            ):
                gone = {name: mark for name, mark in gone.items() if mark.opcode != _BARRIER}
            for number, position in computation.kept if gone else ():
                old, new = before.at(number), after.at(position)
                for ours, theirs in zip(old.operand_names, new.operand_names, strict=False):
                    name, _, _ = ours.partition("#")
                    source, _, _ = theirs.partition("#")
                    if name not in gone or source not in before.index or source in gone:
                        continue
                    mark = gone[name]
                    if mark.opcode == _BARRIER or (
                        old.opcode == new.opcode and source in _marked(mark, gone)
                    ):
                        title = an(mark.custom_call_target or _BARRIER)
                        yield Finding(
                            new,
                            f"{change.pass_name} removed %{mark.name}, {title}: this "
                            f"{new.opcode} reads past it",
                        )

    def check_merged(self, change: PassPair) -> Findings:
        """Users of an instruction that was merged into a different instruction."""
        for reader, gone, kept, difference in merges(change):
            yield Finding(
                reader,
                f"{change.pass_name} merged %{gone.name} into %{kept.name}, which has "
                f"{difference}: this {reader.opcode} reads it",
            )

    def check(self, change: PassPair) -> Findings:
        """Removed instructions with side effects."""
        for computation in change.changed:
            before, after = computation.before, computation.after
            if EFFECTS.isdisjoint(before.opcodes) or after.root is None:
                continue
            if after is not change.after.entry and after.name not in _called(change.after):
                continue
            effects = [call for call in with_opcodes(before, EFFECTS) if has_effect(call.row)]
            rows_after = set(after.rows) if effects else ()
            gone = [call for call in effects if call.row not in rows_after]
            if not gone:
                continue
            if _is_replaced(change):
                return
            if any(
                has_effect(row) and part is not after for part in change.added for row in part.rows
            ):
                continue
            for target in gone:
                name = target.custom_call_target
                if name in MARKERS or name.startswith(SHARDY):
                    continue
                yield Finding(
                    after.root,
                    f"{change.pass_name} removed %{target.name} "
                    f"({target.attributes.get('custom_call_target', target.opcode)}), which has "
                    "side effects",
                )


def _stops(mark: Instruction, pass_name: str) -> bool:
    """True for a barrier or a marker that the pass must not remove."""
    if mark.opcode == _BARRIER:
        return not may(pass_name, "barriers")
    target = mark.custom_call_target
    thing = "shardings" if target.startswith(("S", SHARDY)) else "marks"
    return target in MARKERS and not may(pass_name, thing)


def _marked(mark: Instruction, gone: Mapping[str, Instruction]) -> Iterator[str]:
    """The names of the values that a marker, or a chain of removed markers, is applied to."""
    yield from reached(
        mark.operand_names[:1], lambda name: gone[name].operand_names[:1] if name in gone else ()
    )


def _is_decided_later(conditional: Instruction, change: PassPair) -> bool:
    """True if a conditional is gone but its predicate still has users."""
    after = change.after.computation(conditional.computation.name)
    if after is None or not conditional.operand_names:  # a text may leave out the operands
        return False
    choice = after.instruction(conditional.operand_names[0])
    if choice is None or choice.opcode == "constant" or not choice.users:
        return False
    choosing = {user.name for user in choice.users if user.opcode == "conditional"}
    return conditional.name not in choosing


def _called(module: Module) -> frozenset[str]:
    """The names of the called computations."""
    return frozenset(
        name
        for computation in module.computations
        for names in calls_of(computation).values()
        for name in names
    )


def _count(module: Module, effect: str) -> int:
    return sum(
        effect_of(row) == effect for computation in module.computations for row in computation.rows
    )


def _is_replaced(change: PassPair) -> bool:
    """True if a new instruction may carry the effects of removed instructions."""
    kept = {row for part in change.removed for row in part.rows}
    return any(
        row not in kept and (opcode_of(row) in _REPLACES or has_effect(row))
        for part in change.added
        for row in part.rows
    )
