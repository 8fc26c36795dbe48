"""Instructions with side effects that a pass removed, or made more of."""

from __future__ import annotations

from collections import Counter
from typing import Final

from hlo_lint.analysis.calls import calls_of, with_opcodes
from hlo_lint.analysis.loops import loops
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.records import InstructionRecord, attributes_of, opcode_of
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.pipeline.marker_left import MARKERS, SHARDY
from hlo_lint.text.patterns import late

_EFFECTS: Final = frozenset({"custom-call", "infeed", "outfeed", "rng-get-and-update-state"})
_REPEATED: Final = _EFFECTS | {"rng"}
_BARRIER: Final = "opt-barrier"
_MERGED: Final = frozenset({"custom-call", "rng"})
_find_target = late(r'custom_call_target="([^"]*)"').search
_SIDE_EFFECT: Final = "custom_call_has_side_effect=true"
_REPLACES: Final = frozenset(
    "async-start call conditional custom-call fusion recv send while".split()
)
"""Opcodes of instructions that may have the side effect in the place of the one that is gone."""
_ENTRY = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0){call}
  ROOT n = f32[8]{{0}} negate(p){mark}
}}
"""
_CALL = """
  c = () custom-call(p), custom_call_target="log", custom_call_has_side_effect=true"""
_RANDOM = """
HloModule m

ENTRY e {{
  a = f32[] constant(0)
  b = f32[] constant(1)
  r = f32[8] rng(a, b), distribution=rng_uniform{second}
  ROOT n = f32[8] subtract(r, {other}){mark}
}}
"""
_CALLS = """
HloModule m

ENTRY e {{
  p = f32[8] parameter(0)
  c = f32[8] custom-call(p), custom_call_target="k", backend_config="1"{other}
  ROOT s = f32[8] subtract(c, {read}){mark}
}}
"""
_LOGGED = """
HloModule m

f {{
  x = f32[8] parameter(0)
  c = () custom-call(x), custom_call_target="log", custom_call_has_side_effect=true
  ROOT y = f32[8] abs(x)
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0){call}
  ROOT n = f32[8]{{0}} negate(p){mark}
}}
"""
_CALLED = "\n  k = f32[8] call(p), to_apply=f"
_OTHER = '\n  d = f32[8] custom-call(p), custom_call_target="k", backend_config="2"'
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_dce.txt"
_AFTER = "module_0001.m.0002.simplification.after_dce.before_pipeline-end.txt"


class SideEffectLost(Rule):
    """A pass that removes an instruction with side effects from the entry, or repeats it.

    ## Why
    An infeed, an outfeed, a custom call with `custom_call_has_side_effect=true` and the state of a
    generator of random numbers count even where nobody reads their result: a pass may move or
    replace them, and may not delete them. A deleted callback prints nothing, and a deleted infeed
    gives its data to the next one.

    One that runs twice writes twice, and takes the data of the next one. The same holds for `rng`,
    which gives other numbers each time: two that are merged give the same ones, and one that is
    cloned into each of its readers gives them different ones. Two calls on the same operands whose
    configurations differ are not one.

    So is an `opt-barrier`, which is there so that no pass looks past it: only the pass that is made
    for it takes it away.

    The entry is looked at, which runs once in any case, and computations that are called as before
    and kept their names: what another one loses may have been dead, and calls that mark a value for
    a pass are there to be removed. Where the pass added a call, a fusion or control flow, that may
    have the effect, and nothing is reported.
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            _ENTRY.format(call="", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _ENTRY.format(call=_CALL, mark="")},
        ),
        Bad(
            _ENTRY.format(call=_CALL + _CALL.replace("c =", "d =") + "  // error", mark=""),
            file=_AFTER,
            beside={_BEFORE: _ENTRY.format(call=_CALL, mark="")},
        ),
        Bad(
            _RANDOM.format(other="r", second="", mark="  // error"),
            file=_AFTER,
            beside={
                _BEFORE: _RANDOM.format(
                    other="q",
                    second="\n  q = f32[8] rng(a, b), distribution=rng_uniform",
                    mark="",
                )
            },
        ),
        Bad(
            _ENTRY.format(call="", mark="  // error"),
            file=_AFTER,
            beside={
                _BEFORE: _ENTRY.format(call="\n  b = f32[8] opt-barrier(p)", mark="").replace(
                    "negate(p)", "negate(b)"
                )
            },
        ),
        Bad(
            _CALLS.format(other="", read="c", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _CALLS.format(other=_OTHER, read="d", mark="")},
        ),
        Bad(
            _ENTRY.format(call="", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _LOGGED.format(call=_CALLED, mark="")},
        ),
        Good(
            _ENTRY.format(call=_CALL, mark=""),
            file=_AFTER,
            beside={_BEFORE: _LOGGED.format(call=_CALLED, mark="")},
        ),
        Good(
            _ENTRY.format(call="", mark=""),
            file=_AFTER,
            beside={_BEFORE: _ENTRY.format(call=_CALL.replace("log", "Sharding"), mark="")},
        ),
        Good(
            _ENTRY.format(call=_CALL, mark=""),
            file=_AFTER,
            beside={_BEFORE: _ENTRY.format(call=_CALL, mark="").replace("negate", "abs")},
        ),
    )

    def check_callers(self, change: PassPair) -> Findings:
        """One finding for each call or loop of the entry that is gone with an effect in it."""
        before, after = change.before.entry, change.after.entry
        if before is None or after is None or after.root is None or before is after:
            return
        gone = [
            caller
            for caller in with_opcodes(before, ("call", "while"))
            if caller.name not in after.index
        ]
        if not gone or _is_replaced(change):
            return
        left = {effect for part in change.after.computations for effect in map(_effect, part.rows)}
        runs = {loop.instruction for loop in loops(change.before) if loop.trip_count}
        for caller in gone:
            callees = [change.before.computation(name) for name in caller.called_computations]
            rows = (row for callee in callees if callee for row in callee.rows)
            lost = sorted({_effect(row) for row in rows if _has_effect(row)} - left - {""})
            if lost and (caller.opcode == "call" or caller in runs):
                yield Finding(
                    after.root,
                    f"{change.pass_name} removed %{caller.name}, a {caller.opcode} with "
                    f"{', '.join(lost)}, which has side effects",
                )

    def check_repeated(self, change: PassPair) -> Findings:
        """One finding for each kind of effect of the entry that there is more of."""
        before, after = change.before, change.after
        if before.entry is None or _REPEATED.isdisjoint(before.entry.opcodes):
            return
        at_first = Counter(_effect(one.row) for one in with_opcodes(before.entry, _REPEATED))
        left = Counter[str]()
        places: dict[str, Instruction] = {}
        for computation in after.computations:
            for one in with_opcodes(computation, _REPEATED):
                effect = _effect(one.row)
                if effect in at_first and effect:
                    left[effect] += 1
                    is_entry = computation is after.entry
                    if not (is_entry and one.name in before.entry.index):
                        places[effect] = one
        for effect, place in places.items():
            if left[effect] > at_first[effect] == _count(before, effect):
                yield Finding(
                    place,
                    f"{change.pass_name} made {left[effect]} of {at_first[effect]} {effect}, which "
                    "has an effect each time it runs",
                )

    def check_barriers(self, change: PassPair) -> Findings:
        """One finding for each value that is read past a barrier that is gone."""
        if may(change.pass_name, "barriers"):
            return
        for computation in change.changed:
            before, after = computation.before, computation.after
            if _BARRIER not in before.opcodes or len(after.with_opcode(_BARRIER)) >= len(
                before.with_opcode(_BARRIER)
            ):
                continue
            gone = {
                value.name: barrier.name
                for barrier in before.with_opcode(_BARRIER)
                if barrier.name not in after.index
                for value in (barrier, *barrier.users)
                if value is barrier or value.opcode == "get-tuple-element"
            }
            for number, position in computation.kept if gone else ():
                old, new = before.at(number), after.at(position)
                for ours, theirs in zip(old.operand_names, new.operand_names, strict=False):
                    name, _, _ = ours.partition("#")
                    source, _, _ = theirs.partition("#")
                    if name in gone and source in before.index and source not in gone:
                        yield Finding(
                            new,
                            f"{change.pass_name} removed %{gone[name]}, an {_BARRIER}: this "
                            f"{new.opcode} reads past it",
                        )

    def check_merged(self, change: PassPair) -> Findings:
        """One finding for each reader of a call or of random numbers that got those of another."""
        for computation in change.changed:
            calls = with_opcodes(computation.before, _MERGED)
            if all(call.name in computation.after.index for call in calls):
                continue
            for number, position in computation.kept:
                old, new = computation.before.at(number), computation.after.at(position)
                for ours, theirs in zip(old.operands, new.operands, strict=False):
                    one, other = ours.instruction, theirs.instruction
                    if (
                        one is not None
                        and other is not None
                        and one.opcode == other.opcode
                        and one.opcode in _MERGED
                        and one.name not in computation.after.index
                        and (was := computation.before.instruction(other.name)) is not None
                        and (what := _differ(one, was))
                    ):
                        yield Finding(
                            new,
                            f"{change.pass_name} merged %{one.name} into %{other.name}: this "
                            f"{new.opcode} read other {what}",
                        )

    def check(self, change: PassPair) -> Findings:
        """One finding for each instruction that is gone."""
        for computation in change.changed:
            before, after = computation.before, computation.after
            if _EFFECTS.isdisjoint(before.opcodes) or after.root is None:
                continue
            if after is not change.after.entry and after.name not in _called(change.after):
                continue
            gone = [one for one in with_opcodes(before, _EFFECTS) if _has_effect(one.row)]
            there = set(map(id, after.rows)) if gone else ()
            gone = [one for one in gone if id(one.row) not in there]
            if not gone:
                continue
            if _is_replaced(change):
                return
            if any(
                _has_effect(row) and part is not after for part in change.added for row in part.rows
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


def _called(module: Module) -> frozenset[str]:
    """The computations that something calls."""
    return frozenset(
        name
        for computation in module.computations
        for names in calls_of(computation).values()
        for name in names
    )


def _differ(one: Instruction, other: Instruction) -> str:
    """The difference between two calls on equal operands, or two that give random numbers."""
    if one.opcode == "rng":
        return "random numbers"
    alike = one.operand_names == other.operand_names and one.type_text == other.type_text
    if not alike or one.custom_call_target in MARKERS:
        return ""
    if one.custom_call_target != other.custom_call_target:
        return f"results, those of {one.custom_call_target}"
    configs = (one.attributes.get("backend_config"), other.attributes.get("backend_config"))
    return "results, by another backend_config" if configs[0] != configs[1] else ""


def _effect(record: InstructionRecord) -> str:
    """The opcode, or the target of a custom call, that has an effect; else empty."""
    opcode = opcode_of(record)
    if opcode == "custom-call" and _has_effect(record):
        target = _find_target(attributes_of(record))
        name = target[1] if target else ""
        return "" if name in MARKERS or name.startswith(SHARDY) else name
    return opcode if opcode in _REPEATED and opcode != "custom-call" else ""


def _count(module: Module, effect: str) -> int:
    return sum(
        _effect(row) == effect for computation in module.computations for row in computation.rows
    )


def _is_replaced(change: PassPair) -> bool:
    """True if something new may have the effects of what is gone."""
    kept = {id(row) for part in change.removed for row in part.rows}
    return any(
        id(row) not in kept and (opcode_of(row) in _REPLACES or _has_effect(row))
        for part in change.added
        for row in part.rows
    )


def _has_effect(record: InstructionRecord) -> bool:
    opcode = opcode_of(record)
    if opcode == "custom-call":
        return _SIDE_EFFECT in attributes_of(record)
    return opcode in _EFFECTS
