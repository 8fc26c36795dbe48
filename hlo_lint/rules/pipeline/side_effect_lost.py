"""Instructions with side effects that a pass removed, repeated or moved."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from hlo_lint.analysis.buffers import ResultPart, origins
from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.loops import loops
from hlo_lint.analysis.merges import merges
from hlo_lint.analysis.pass_pairs import ChangedComputation, PassPair
from hlo_lint.analysis.side_effects import (
    MARKERS,
    REPEATED,
    SHARDY,
    EffectRun,
    effect_of,
    has_effect,
    runs_of,
)
from hlo_lint.analysis.step_map.conserved import HANDS_ON
from hlo_lint.analysis.walks import reached
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import CONTROL_FLOW
from hlo_lint.hlo.records import opcode_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues
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
    Two operations on the same operands must not be merged if they differ in configuration, devices
    or sharding, or if only one runs on the host or on a different stream.

    An operation behind an `opt-barrier` is computed again on purpose: a pass must not merge it with
    the same operation before it. Only the pass made for it may remove an `opt-barrier` or a call
    that marks a value for a pass: `MoveToHost`, `Sharding`, `LayoutConstraint`.

    The rule checks the entry, which always runs once, and computations that are still called under
    the same name: other computations may have been dead. If the pass added a call, a fusion or
    control flow, that may contain the effect, and nothing is reported.
    """

    subsumes = frozenset({"meaning-changed"})
    severity = Severity.WARNING
    evidence = (WrongValues(2),)
    reports = "openxla/xla#40519"
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
              r = f32[8] rng(a, b), distribution=rng_uniform  // error
            - q = f32[8] rng(a, b), distribution=rng_uniform
            - ROOT n = f32[8] subtract(r, q)
            + ROOT n = f32[8] subtract(r, r)
        """),
        Bad.step("""
            - b = f32[8] opt-barrier(f32[8] p)
            - ROOT n = f32[8] negate(b)
            + ROOT n = f32[8] negate(p)  // error
        """),
        Bad.step("""
              c = f32[8] custom-call(f32[8] p), custom_call_target="k", backend_config="1"  // error
            - d = f32[8] custom-call(p), custom_call_target="k", backend_config="2"
            - ROOT s = f32[8] subtract(c, d)
            + ROOT s = f32[8] subtract(c, c)
        """),
        Bad.step("""
            c { ROOT t = pred[] custom-call(f32[8] p.2), custom_call_target="test" }
            b {
              p = f32[8] parameter(0)
            - c = () custom-call(p), custom_call_target="log", custom_call_has_side_effect=true
              ROOT s = f32[8] sine(p)
            }
            + c = () custom-call(f32[8] p), custom_call_target="log",  // error
            +     custom_call_has_side_effect=true
              ROOT w = f32[8] while(f32[8] p), condition=c, body=b
        """),
        Bad.step("""
            f {
              c = () custom-call(f32[] x), custom_call_target="log",  // error
                  custom_call_has_side_effect=true
              ROOT y = f32[] abs(x)
            }
            g { z = f32[] parameter(0) ROOT n = f32[] negate(z) }
              o = pred[] parameter(0)
              p = f32[] parameter(1)
            - ROOT r = f32[] conditional(o, p, p), true_computation=f, false_computation=g
            + k = f32[] call(p), to_apply=f
            + l = f32[] call(p), to_apply=g
            + ROOT r.1 = f32[] select(o, k, l)
        """),
        Bad.step("""
            - h = f32[8] custom-call(f32[8] p), custom_call_target="MoveToHost"
            - ROOT n = f32[8] negate(h)
            + ROOT n = f32[8] negate(p)  // error
        """),
        Bad.step("""
              a = f32[8] sine(f32[8] p), frontend_attributes={_xla_compute_type="host"}  // error
            - b = f32[8] sine(p)
            - ROOT s = f32[8] atan2(a, b)
            + ROOT s = f32[8] atan2(a, a)
        """),
        Bad.step("""
            - t = token[] after-all()
            - s = (f32[8], u32[], token[]) send(f32[8] p, t), channel_id=1, is_host_transfer=true
            - e = token[] send-done(s), channel_id=1, is_host_transfer=true
              ROOT n = f32[8] negate(p)  // error
        """),
        Bad.step("""
              e = f32[8] exponential(f32[8] p)  // error
              t = (f32[8], f32[8]) tuple(p, e)
              b = (f32[8], f32[8]) opt-barrier(t)
              g = f32[8] get-tuple-element(b), index=0
            - f = f32[8] exponential(g)
            - ROOT s = f32[8] subtract(e, f)
            + ROOT s = f32[8] subtract(e, e)
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
            -f {
            - x = f32[8] parameter(0)
            - c = () custom-call(x), custom_call_target="log", custom_call_has_side_effect=true
            - ROOT y = f32[8] abs(x)
            -}
              p = f32[8] parameter(0)
            - k = f32[8] call(p), to_apply=f
            + c = () custom-call(p), custom_call_target="log", custom_call_has_side_effect=true
              ROOT n = f32[8] negate(p)
        """),
        Bad.step("""
            HloModule m, num_partitions=2
              a = f32[8,4] negate(f32[8,4] p), sharding={devices=[2,1]<=[2]}  // error
            - b = f32[8,4] negate(p), sharding={devices=[1,2]<=[2]}
            - ROOT t = (f32[8,4], f32[8,4]) tuple(a, b)
            + ROOT t = (f32[8,4], f32[8,4]) tuple(a, a)
        """),
        Good.step("""
            HloModule m, num_partitions=2

            ENTRY e_spmd {
              a = f32[8,4] negate(f32[8,4] p), sharding={devices=[2,1]<=[2]}
            - b = f32[8,4] negate(p), sharding={devices=[1,2]<=[2]}
            - ROOT t = (f32[8,4], f32[8,4]) tuple(a, b)
            + ROOT t = (f32[8,4], f32[8,4]) tuple(a, a)
            }
        """),
    )

    def check(self, pair: PassPair) -> Findings:
        """Effects that a pass removed, repeated, moved across a loop, or made unconditional."""
        opcodes = {opcode for computation in pair.removed for opcode in computation.opcodes}
        if opcodes.isdisjoint({*REPEATED, *CONTROL_FLOW}):
            return
        before, after = runs_of(pair.before), runs_of(pair.after)
        for effect, ours in before.items():
            theirs = after.get(effect, ())
            if len(ours) > len(theirs):
                yield from _lost(effect, ours, theirs, pair)
            elif len(ours) < len(theirs):
                yield from _repeated(effect, ours, theirs, pair)
            else:
                yield from _moved(effect, ours, theirs, pair)

    def check_barriers(self, pair: PassPair) -> Findings:
        """Values that are read past a barrier, or past a removed marker."""
        for computation in pair.changed:
            before, after = computation.before, computation.after
            for behind, kept in _merged_across(computation):
                message = f"merged %{behind.name}, behind an opt-barrier, into this {kept.opcode}"
                yield Finding(after.at(after.index[kept.name]), f"{pair.pass_name} {message}")
            gone = {
                value.name: mark
                for mark in with_opcodes(before, (_BARRIER, "custom-call"))
                if mark.name not in after.index and _stops(mark, pair.pass_name)
                for value in (mark, *mark.users)
                if value is mark or value.opcode == "get-tuple-element"
            }
            count, left = (len(body.positions(_BARRIER)) for body in (before, after))
            if 0 < count <= left:
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
                            f"{pair.pass_name} removed %{mark.name}, {title}: this "
                            f"{new.opcode} reads past it",
                        )

    def check_merged(self, pair: PassPair) -> Findings:
        """Instructions that stand for a different one, too."""
        for gone, kept, difference in merges(pair):
            yield Finding(
                kept,
                f"{pair.pass_name} merged %{gone.name} into this {kept.opcode}, which has "
                f"{difference}",
            )


def _merged_across(computation: ChangedComputation) -> Iterator[tuple[Instruction, Instruction]]:
    """Removed readers of barriers, each with its replacement, a reader of the barrier's operand."""
    before = computation.before
    barriers = before.with_opcode(_BARRIER)
    values = chain.from_iterable((barrier, *barrier.users) for barrier in barriers)
    for gone in dict.fromkeys(chain.from_iterable(value.users for value in values)):
        new = computation.replacement(gone)
        kept = None if new is None else before.instruction(new.name)
        if kept is None or kept.opcode != gone.opcode or gone.opcode in HANDS_ON:
            continue
        if _sources(kept) == _sources(gone, _BARRIER) != _sources(gone):
            yield gone, kept


def _sources(instruction: Instruction, *renames: str) -> Sequence[ResultPart]:
    """The values that an instruction reads, behind tuples and operations that rename them."""
    return [list(origins(value, (), renames))[-1] for value in instruction.producers]


def _lost(
    effect: str, ours: Sequence[EffectRun], theirs: Sequence[EffectRun], pair: PassPair
) -> Findings:
    """A finding if fewer places have an effect than must."""
    root = None if pair.after.entry is None else pair.after.entry.root
    # Unread random numbers may go, and an added call or fusion may hold the effect.
    if effect == "rng" or root is None or _is_replaced(pair):
        return
    trips = {loop.instruction: loop.trip_count for loop in loops(pair.before)}
    needed = [
        run
        for run in ours
        if all(trips.get(loop) or _is_kept(loop, pair) for loop in run.loops)
        and (run.case is None or _is_kept(run.case, pair) or _is_decided_later(run.case, pair))
    ]
    if len(needed) <= len(theirs):
        return
    left = {run.instruction.row for run in theirs}
    gone = next((run for run in needed if run.instruction.row not in left), needed[0])
    body = pair.after.computation(gone.instruction.computation.name)
    yield Finding(
        root if body is None or body.root is None else body.root,
        f"{pair.pass_name} removed %{gone.instruction.name} ({effect}), which has side effects",
    )


def _repeated(
    effect: str, ours: Sequence[EffectRun], theirs: Sequence[EffectRun], pair: PassPair
) -> Findings:
    """A finding if an effect that no loop and no conditional runs has more places."""
    # An unrolled loop has more calls and as many effects, and so has a call copied into branches.
    if any(run.loops or run.case for run in (*ours, *theirs)):
        return
    stayed = {run.instruction.name for run in ours}
    place = min(theirs, key=lambda run: run.instruction.name in stayed)
    yield Finding(
        place.instruction,
        f"{pair.pass_name} repeated {effect}, which has side effects: "
        f"{len(theirs)} calls, {len(ours)} before the pass",
    )


def _moved(
    effect: str, ours: Sequence[EffectRun], theirs: Sequence[EffectRun], pair: PassPair
) -> Findings:
    """Findings for effects in other loops, or outside of their conditional."""
    was_in, is_in = (sorted(len(run.loops) for run in runs) for runs in (ours, theirs))
    counts = [len(loops(module)) for module in (pair.before, pair.after)]
    if was_in != is_in and counts[0] == counts[1]:
        more = Counter(is_in) - Counter(was_in)
        stayed = {(run.instruction.name, len(run.loops)) for run in ours}
        place = min(
            [run for run in theirs if len(run.loops) in more],
            key=lambda run: (run.instruction.name, len(run.loops)) in stayed,
        )
        yield Finding(
            place.instruction,
            f"{pair.pass_name} moved {effect}, which has side effects, "
            f"{'into' if sum(is_in) > sum(was_in) else 'out of'} a loop",
        )
    chosen = [run.case for run in ours if run.case and _is_decided_later(run.case, pair)]
    if chosen and not any(run.case for run in theirs):
        yield Finding(
            theirs[0].instruction,
            f"{pair.pass_name} made {effect}, which has side effects, unconditional: "
            f"it was in a branch of %{chosen[0].name}",
        )


def _is_kept(caller: Instruction, pair: PassPair) -> bool:
    after = pair.after.computation(caller.computation.name)
    kept = None if after is None else after.instruction(caller.name)
    return kept is not None and kept.opcode == caller.opcode


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


def _is_decided_later(conditional: Instruction, pair: PassPair) -> bool:
    """True if a conditional is gone but its predicate still has users."""
    after = pair.after.computation(conditional.computation.name)
    if after is None or not conditional.operand_names:  # a text may leave out the operands
        return False
    choice = after.instruction(conditional.operand_names[0])
    # With a constant predicate, a pass may keep the branch that runs.
    if choice is None or choice.opcode == "constant" or not choice.users:
        return False
    choosing = {user.name for user in choice.users if user.opcode == "conditional"}
    return conditional.name not in choosing


def _is_replaced(pair: PassPair) -> bool:
    """True if there are more instructions that may carry the effects of removed instructions."""
    before, after = (
        Counter(
            (opcode_of(row), effect_of(row))
            for computation in computations
            for row in computation.rows
            if opcode_of(row) in _REPLACES or has_effect(row)
        )
        for computations in (pair.removed, pair.added)
    )
    return bool(after - before)
