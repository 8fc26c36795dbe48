"""Attributes of instructions that a pass lost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

from hlo_lint.analysis.device_groups import count_of
from hlo_lint.analysis.pass_pairs import PassPair, is_clone
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_before_metadata,
    attributes_of,
    opcode_of,
)
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.patterns import late

_KEPT: Final = (
    "api_version",
    "async_execution_thread",
    "backend_config",
    "channel_id",
    "constrain_layout",
    "custom_call_has_side_effect",
    "infeed_config",
    "is_composite",
    "is_host_transfer",
    "is_stable",
    "operand_layout_constraints",
    "origin",
    "outfeed_config",
    "padding_type",
    "parameter_replication",
    "result_accuracy",
    "schedule",
    "sharding",
    "use_global_device_ids",
)
_find_fields = late(
    r'"(force_earliest_schedule|operation_queue_id|wait_on_operation_queues)":\s*'
    r'(?:true|"?[1-9]|\["?[0-9])'
).findall
"""Fields of XLA:GPU's configurations that say where and when an instruction runs."""
_OF_MODULE: Final = ("frontend_attributes", "num_partitions", "replica_count")
_MANUAL: Final = "manual}"
"""A part of a sharding whose devices the program tells apart itself."""
_RESHARDED: Final = "the sharding for another one"
_EFFECTS: Final = frozenset({"custom-call", "infeed", "outfeed", "recv", "send"})
"""Opcodes whose metadata is the only trace of the program line that has the side effect."""
_OF_A_NAME: Final = frozenset(
    {*_KEPT, _RESHARDED, "the manual devices of the sharding"} - {"origin"}
)
"""Things that a clone under a new name may do without: it may be of another kind."""
_HANDED_ON: Final = ("backend_config", "channel_id", "use_global_device_ids")
"""Things that an operation keeps when it becomes asynchronous."""
_WORDS: Final = (*(f"{name}=" for name in _KEPT), "frontend_attributes=")
"""Cheap to look for, and in every instruction that has one of the attributes."""
_KEEPS_CALL: Final = 'inlineable="false"'
_LOOP = """
HloModule m

b {{
  x = f32[8]{{0}} parameter(0)
  ROOT n = f32[8]{{0}} negate(x)
}}

c {{
  y = f32[8]{{0}} parameter(0)
  ROOT t = pred[] custom-call(y), custom_call_target="t"
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  ROOT {name} = f32[8]{{0}} while(p), condition=c, body=b{rest}
}}
"""
_PROGRAM = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  k = f32[8]{{0}} {opcode}(p)
  ROOT c = f32[8]{{0}} custom-call(k), custom_call_target="t"{rest}
}}
"""
_FUSION = """
HloModule m

f {{
  a = f32[8]{{0}} parameter(0)
  ROOT s = f32[8]{{0}} negate(a)
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  ROOT c = f32[8]{{0}} fusion(p), kind={kind}, calls=f{rest}
}}
"""
_REDUCED = """
HloModule m

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  {reduce}
}}
"""
_MARK = ', frontend_attributes={_scheduling_group_id="3"}'
_SYNC = f"ROOT r = f32[8]{{0}} all-reduce(p), to_apply=add{_MARK}"
_ASYNC = """s = f32[8]{{0}} all-reduce-start(p), to_apply=add{mark}
  ROOT d = f32[8]{{0}} all-reduce-done(s)"""
_ROOT: Final = """
HloModule m, num_partitions=4

ENTRY e {{
  p = f32[8]{{0}} parameter(0), sharding={{devices=[4]<=[4]}}
  ROOT {root}
}}
"""
_SUM = "a = f32[8]{0} add(p, p), sharding={devices=[4]<=[4]}"
_CALLED: Final = """
HloModule m

b {{
  x = f32[8]{{0}} parameter(0)
  ROOT n.1 = f32[8]{{0}} negate(x){attributes}
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  ROOT c = f32[8]{{0}} {caller}
}}
"""
_INLINED: Final = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  ROOT n.2 = f32[8]{{0}} negate(p){attributes}
}}
"""
_CALL: Final = "call(p), to_apply=b"
_KERNEL: Final = "fusion(p), kind=kLoop, calls=b"
_ATTRIBUTES = ', frontend_attributes={_xla_stream="1"}, backend_config="b"'
_QUEUE: Final = ', backend_config={"operation_queue_id":"2"}'
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_algsimp.txt"
_AFTER = "module_0001.m.0002.simplification.after_algsimp.before_pipeline-end.txt"
_SHARDED = "module_0001.m.0001.spmd-partitioner.after_dce.before_spmd-partitioning.txt"
_PARTITIONED = "module_0001.m.0002.spmd-partitioner.after_spmd-partitioning.before_dce.txt"


class AttributeLost(Rule):
    """An instruction that a pass kept, without an attribute that it had.

    ## Why
    A pass that replaces an instruction by a clone, or gives it other operands, has to carry over
    what is not part of the computation: `backend_config`, `frontend_attributes`, `sharding` and
    which of its devices are manual, the thread, the layouts and the interface of a call, that a
    custom call has side effects. What is lost there is not missed until much later: a stream that
    is not used, a transfer that counts in all iterations, an array that is replicated, a call that
    is removed as dead. Nor does it give the same array another sharding, or take a field out of the
    configuration that says on which stream it runs. A schedule that is lost is made anew, and no
    order that was chosen holds. Of instructions with side effects, lost metadata is reported for
    information: nothing says any more which line of the program it was. The root of the entry says
    how the result is sharded, whatever computes it.

    An instruction is the same if name and opcode are, or if opcode, operands and type are and the
    names tell no other; in what was fused, outlined or inlined, if opcode, type and name are, but
    for the number. A loop is followed through a new name, as `diff` does, and, for frontend
    attributes, an operation that became asynchronous, or one with others; the former keeps its
    channel and its configuration, too. A fusion of another kind
    is another one. A call that says `inlineable="false"` is not inlined. Passes that turn
    annotations into something else are left alone, and those that partition may drop shardings.
    One finding for each pass and each thing that it lost.
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            _PROGRAM.format(opcode="copy", rest="  // error"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(opcode="negate", rest=_ATTRIBUTES)},
        ),
        Bad(
            _LOOP.format(name="w.1", rest="  // error"),
            file=_PARTITIONED,
            beside={_SHARDED: _LOOP.format(name="w", rest=', frontend_attributes={a="1"}')},
        ),
        Bad(
            _PROGRAM.format(opcode="copy", rest="").replace("m\n", "m  // error\n", 1),
            file=_AFTER,
            beside={
                _BEFORE: _PROGRAM.format(opcode="copy", rest="").replace(
                    "m\n", "m, is_scheduled=true\n", 1
                )
            },
        ),
        Bad(
            _REDUCED.format(reduce=_ASYNC.format(mark="  // error")),
            file=_AFTER,
            beside={_BEFORE: _REDUCED.format(reduce=_SYNC)},
        ),
        Bad(
            _REDUCED.format(reduce=_ASYNC.format(mark="  // error")),
            file=_AFTER,
            beside={_BEFORE: _REDUCED.format(reduce=_SYNC.replace(_MARK, ", channel_id=1"))},
        ),
        Bad(
            _ROOT.format(root="n = f32[8]{0} negate(p)  // error"),
            file=_AFTER,
            beside={_BEFORE: _ROOT.format(root=_SUM)},
        ),
        Bad(
            _ROOT.format(root="n = f32[8]{0} negate(p), sharding={replicated}  // error"),
            file=_AFTER,
            beside={_BEFORE: _ROOT.format(root="n = f32[8]{0} negate(p), sharding={manual}")},
        ),
        Bad(
            _PROGRAM.format(opcode="copy", rest=_QUEUE.replace("2", "0") + "  // error"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(opcode="copy", rest=_QUEUE)},
        ),
        Bad(
            _CALLED.format(caller=_KERNEL, attributes="  // error"),
            file=_AFTER,
            beside={_BEFORE: _INLINED.format(attributes=_MARK)},
        ),
        Bad(
            _INLINED.format(attributes="  // error"),
            file=_AFTER,
            beside={
                _BEFORE: _CALLED.format(
                    caller=f'{_CALL}, frontend_attributes={{inlineable="false"}}', attributes=""
                )
            },
        ),
        Good(
            _CALLED.format(caller=_KERNEL + _MARK, attributes=""),
            file=_AFTER,
            beside={_BEFORE: _INLINED.format(attributes=_MARK)},
        ),
        Good(
            _INLINED.format(attributes=""),
            file=_AFTER,
            beside={_BEFORE: _CALLED.format(caller=_CALL + _MARK, attributes="")},
        ),
        Good(
            _REDUCED.format(reduce=_ASYNC.format(mark=_MARK)),
            file=_AFTER,
            beside={_BEFORE: _REDUCED.format(reduce=_SYNC)},
        ),
        Good(
            _LOOP.format(name="w.1", rest=', frontend_attributes={a="1"}'),
            file=_PARTITIONED,
            beside={
                _SHARDED: _LOOP.format(
                    name="w", rest=', sharding={manual}, frontend_attributes={a="1"}'
                )
            },
        ),
        Good(
            _PROGRAM.format(opcode="copy", rest=_ATTRIBUTES),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(opcode="negate", rest=_ATTRIBUTES)},
        ),
        Good(
            _FUSION.format(kind="kLoop", rest=""),
            file=_AFTER,
            beside={_BEFORE: _FUSION.format(kind="kLoop", rest=", sharding={replicated}")},
        ),
        Good(
            _FUSION.format(kind="kLoop", rest=""),
            file=_AFTER,
            beside={_BEFORE: _FUSION.format(kind="kCustom", rest=', backend_config="b"')},
        ),
    )

    def check(self, change: PassPair) -> Findings:
        """Each instruction that lost something."""
        if change.before.is_scheduled and not change.after.is_scheduled:
            yield Finding(
                header_span(change.after), f"{change.pass_name} lost the schedule", key="schedule"
            )
        is_free = may(change.pass_name, "shardings")
        if may(change.pass_name, "annotations"):
            return
        ours, theirs = change.before.attributes, change.after.attributes
        for name in () if is_free else _OF_MODULE:
            if name in ours and name not in theirs:
                message = f"{change.pass_name} lost {name} of the module"
                yield Finding(header_span(change.after), message, key=name)
        by_reason: dict[str, list[tuple[Instruction, Instruction]]] = {}
        for old, new, is_renamed in _kept(change):
            if not _may_have_lost(old, new) or _kind(old) != _kind(new):
                continue
            lost = _lost(old, new)
            if count_of(change.before, "num_partitions") < 2 and _RESHARDED in lost:
                lost.remove(_RESHARDED)
            if lost and is_renamed and old.computation.name != new.computation.name:
                held = {
                    name
                    for user in change.runners(new.computation)
                    for name in _frontend_names(user)
                }
                lost = [thing for thing in lost if thing.rpartition(" ")[2] not in held]
            excused = _OF_A_NAME if is_free or is_renamed else frozenset[str]()
            lost = [thing for thing in lost if thing not in excused]
            if lost:
                by_reason.setdefault(", ".join(lost), []).append((old, new))
            elif not is_renamed and not is_free and _loses_metadata(old, new):
                by_reason.setdefault("", []).append((old, new))
        roots = None if is_free else _roots_without_sharding(change)
        if roots and not any(roots in pairs for pairs in by_reason.values()):
            by_reason.setdefault("the sharding of the result", []).append(roots)
        for old, new in _inlined(change):
            by_reason.setdefault("the frontend attribute inlineable", []).append((old, new))
        for old, new, parts in change.succeeded(_may_start):
            names = set(map(str, chain.from_iterable(map(_frontend_names, parts))))
            lost = [f"the frontend attribute {name}" for name in _frontend_names(old) - names]
            if len(old.operand_names) == len(new.operand_names):
                held = {name for part in parts for name in part.attributes}
                lost += [name for name in _HANDED_ON if name in {*old.attributes} - held]
            if lost:
                by_reason.setdefault(", ".join(sorted(lost)), []).append((old, new))
        for lost_things, pairs in by_reason.items():
            old = pairs[0][0]
            notes = [f"before it, the instruction was %{old.name}, {old.opcode}"]
            if others := ", ".join(f"%{new.name}" for _, new in pairs[1:4]):
                more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
                notes.append(f"so did {others}{more}")
            yield Finding(
                pairs[0][1],
                f"{change.pass_name} lost {lost_things or 'the metadata'}",
                tuple(notes),
                severity=None if lost_things else Severity.INFO,
                key=lost_things or "metadata",
            )


def _kept(change: PassPair) -> Iterator[tuple[Instruction, Instruction, bool]]:
    """The instructions that the pass kept, and True where only their place in the module tells."""
    for computation in change.changed:
        for old, new in computation.with_other_attributes(_may_lose):
            yield old, new, False
    for old, new in change.renamed("while", _is_marked):
        yield old, new, True
    for old, new in change.moved(_may_lose):
        yield old, new, True


def _inlined(change: PassPair) -> Iterator[tuple[Instruction, Instruction]]:
    """The calls that were not to be inlined, each with the root of what it called, in its place."""
    for computation in change.changed:
        before, after = computation.before, computation.after
        for call in before.with_opcode("call"):
            if call.name in after.index or _KEEPS_CALL not in call.attributes_text:
                continue
            body = change.before.callee(call)
            root = None if body is None else body.root
            for new in map(after.at, computation.added) if root else ():
                if new.name not in before.index and root and is_clone(root.row, new.row):
                    yield call, new


def _roots_without_sharding(change: PassPair) -> tuple[Instruction, Instruction] | None:
    """The old root of the entry and a new one, if the devices' parts of the result are open now."""
    before, after = change.before.entry, change.after.entry
    if before is None or after is None or count_of(change.before, "num_partitions") < 2:
        return None
    old, new = before.root, after.root
    if old is None or new is None or "sharding=" not in old.attributes_text:
        return None
    if "sharding" not in old.attributes or "sharding" in new.attributes:
        return None
    return old, new


def _is_marked(record: InstructionRecord) -> bool:
    attributes = attributes_of(record)
    return "frontend_attributes=" in attributes or "origin=" in attributes


def _may_start(record: InstructionRecord) -> bool:
    attributes = attributes_of(record)
    is_collective = opcode_of(record) in COMMUNICATES and "channel_id=" in attributes
    return is_collective or "frontend_attributes=" in attributes


def _may_lose(record: InstructionRecord) -> bool:
    attributes = attributes_of(record)
    head = attributes_before_metadata(attributes)
    return (
        opcode_of(record) in _EFFECTS
        or "backend_config=" in attributes
        or (bool(head) and any(map(head.__contains__, _WORDS)))
    )


def _may_have_lost(old: Instruction, new: Instruction) -> bool:
    """True if a text is gone that stood for something: most lines that a pass changes keep all."""
    ours, theirs = old.attributes_text, new.attributes_text
    if any(f", {name}=" in ours and f", {name}=" not in theirs for name in (*_KEPT, "metadata")):
        return True
    if _MANUAL in ours and _MANUAL not in theirs:
        return True
    if _find_fields(ours) != _find_fields(theirs):
        return True
    return any(
        f", {name}=" in ours and old.attribute_text(name) != new.attribute_text(name)
        for name in ("sharding", "frontend_attributes")
    )


def _kind(instruction: Instruction) -> str | None:
    """The kind of a fusion: the configuration is that of the emitter that the kind names."""
    return instruction.attributes.get("kind") if instruction.opcode == "fusion" else None


def _lost(old: Instruction, new: Instruction) -> list[str]:
    ours, theirs = old.attributes, new.attributes
    lost: list[str] = [name for name in _KEPT if name in ours and name not in theirs]
    if old.opcode in ("bitcast", "fusion") and "sharding" in lost:
        lost.remove("sharding")  # made after the partitioner, of what was annotated for it
    if _MANUAL in ours.get("sharding", "") and _MANUAL not in theirs.get("sharding", _MANUAL):
        lost.append("the manual devices of the sharding")
    elif (
        (old.name, old.type_text) == (new.name, new.type_text)
        and "sharding" in ours
        and ours["sharding"] != theirs.get("sharding", ours["sharding"])
    ):
        lost.append(_RESHARDED)
    if old.name == new.name and "backend_config" in theirs:
        there = _find_fields(new.attributes_text)
        fields = _find_fields(old.attributes_text)
        lost += [f"{field} of the backend_config" for field in fields if field not in there]
    if "frontend_attributes" in ours:
        names = _frontend_names(old) - _frontend_names(new)
        lost += [f"the frontend attribute {name}" for name in sorted(names)]
    return lost


def _frontend_names(instruction: Instruction) -> set[str]:
    value = instruction.attribute_or_none("frontend_attributes")
    return {str(name) for name in value} if isinstance(value, Mapping) else set()


def _loses_metadata(old: Instruction, new: Instruction) -> bool:
    return (
        old.opcode in _EFFECTS
        and "op_name=" in old.attributes.get("metadata", "")
        and "metadata" not in new.attributes
    )
