"""Instructions with side effects that a pass removed."""

from __future__ import annotations

from typing import Final

from hlo_lint.hlo.records import InstructionRecord, attributes_of, opcode_of
from hlo_lint.rules.base import Bad, Findings, Good, PassPair, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.rules.pipeline.marker_left import MARKERS, SHARDY

_EFFECTS: Final = frozenset({"custom-call", "infeed", "outfeed", "rng-get-and-update-state"})
_SIDE_EFFECT: Final = "custom_call_has_side_effect=true"
_REPLACES: Final = frozenset("async-start call conditional custom-call fusion while".split())
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
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_dce.txt"
_AFTER = "module_0001.m.0002.simplification.after_dce.before_pipeline-end.txt"


class SideEffectLost(Rule):
    """A pass that removes an instruction with side effects from the entry.

    ## Why
    An infeed, an outfeed, a custom call with `custom_call_has_side_effect=true` and the state of a
    generator of random numbers count even where nobody reads their result: a pass may move or
    replace them, and may not delete them. A deleted callback prints nothing, and a deleted infeed
    gives its data to the next one.

    Only the entry is looked at, which runs once in any case: what another computation loses may
    have been dead, and calls that mark a value for a pass are there to be removed. Where the pass
    added a call, a fusion or control flow, that may have the effect, and nothing is reported.
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            _ENTRY.format(call="", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _ENTRY.format(call=_CALL, mark="")},
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

    def check(self, change: PassPair) -> Findings:
        """One finding for each instruction that is gone."""
        entry, left = change.before.entry, change.after.entry
        if entry is None or left is None or entry is left or _EFFECTS.isdisjoint(entry.opcodes):
            return
        there = set(map(id, left.rows))
        gone = [row for row in entry.rows if id(row) not in there and _has_effect(row)]
        if not gone or left.root is None:
            return
        kept = {id(row) for part in change.removed for row in part.rows}
        if any(
            (_has_effect(row) and part is not left) or (id(row) not in kept and _may_replace(row))
            for part in change.added
            for row in part.rows
        ):
            return
        for row in gone:
            target = entry.at(entry.rows.index(row))
            if target.custom_call_target in MARKERS or target.custom_call_target.startswith(SHARDY):
                continue
            name = target.attributes.get("custom_call_target", target.opcode)
            yield Finding(
                left.root,
                f"{change.pass_name} removed %{target.name} ({name}), which has side effects",
            )


def _may_replace(record: InstructionRecord) -> bool:
    return opcode_of(record) in _REPLACES or _has_effect(record)


def _has_effect(record: InstructionRecord) -> bool:
    opcode = opcode_of(record)
    if opcode == "custom-call":
        return _SIDE_EFFECT in attributes_of(record)
    return opcode in _EFFECTS
