"""Attributes of instructions that a pass lost."""

from __future__ import annotations

from itertools import repeat
from typing import Final

from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.step_map.conserved import GROUP
from hlo_lint.analysis.step_map.links import LinkKind
from hlo_lint.analysis.step_map.losses import losses
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.opcodes import COMMUNICATES
from hlo_lint.hlo.records import InstructionRecord, opcode_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, PublicReport, Rule, Severity
from hlo_lint.text.phrases import listed

_COUNTS: Final = ("num_partitions", "replica_count")
_OF_MODULE: Final = ("frontend_attributes", *_COUNTS)
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
_THREAD: Final = """
HloModule m

w {{
  x = f32[8]{{0}} parameter(0)
  ROOT c = f32[8]{{0}} custom-call(x), custom_call_target="t"{mark}
}}{thread}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  s = ((f32[8]{{0}}), f32[8]{{0}}, u32[]) async-start(p), calls=w
  ROOT d = f32[8]{{0}} async-done(s)
}}
"""
_SIMPLER: Final = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  {steps}{mark}
  ROOT r = f32[8]{{0}} abs({name})
}}
"""
_ON_HOST: Final = """n = f32[8]{0} negate(q)
  d = f32[8]{0} add(p, n), frontend_attributes={_xla_compute_type="host"}"""
_CALL: Final = "call(p), to_apply=b"
_KERNEL: Final = "fusion(p), kind=kLoop, calls=b"
_ATTRIBUTES = ', frontend_attributes={_xla_stream="1"}, backend_config="b"'
_QUEUE: Final = ', backend_config={"operation_queue_id":"2"}'
_PACKED = """
HloModule m

ENTRY e {{
  p = f32[2]{{0}} parameter(0)
  q = f32[2]{{0}} parameter(1)
  {packed}
  ROOT c = f32[2]{{0}} custom-call({name}), custom_call_target="k"
}}
"""
_NESTED = """t = (f32[2]{0}, f32[2]{0}) tuple(p, q), frontend_attributes={a="b"}
  s = (f32[2]{0}, (f32[2]{0}, f32[2]{0})) tuple(p, t)"""
_FLAT = "u = (f32[2]{0}, f32[2]{0}, f32[2]{0}) tuple(p, p, q)"
_COPIED: Final = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  c = f32[8]{{0}} custom-call(p), custom_call_target="t", backend_config="b"
{copy}
  ROOT n = f32[8]{{0}} negate({name})
}}
"""
_TWICE: Final = """
HloModule m

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  k.2 = f32[8]{{0}} exponential(p){mark}
  ROOT k.3 = f32[8]{{0}} exponential(k.2)
}}
"""
_TWO_CALLS: Final = """
HloModule m

b {
  x = f32[8]{0} parameter(0)
  ROOT k.1 = f32[8]{0} exponential(x), frontend_attributes={_scheduling_group_id="3"}
}

ENTRY e {
  p = f32[8]{0} parameter(0)
  c = f32[8]{0} call(p), to_apply=b
  ROOT d = f32[8]{0} call(c), to_apply=b
}
"""
_WRAPPED: Final = """
HloModule m

ENTRY e {
  p = f32[8]{0} parameter(0)
  s = ((f32[8]{0}), f32[8]{0}, u32[]) custom-call-start(p), custom_call_target="t"
  ROOT d = f32[8]{0} custom-call-done(s)
}
"""
_TILED: Final = (
    ', backend_config={"fusion_backend_config":{"kind":"__triton",'
    '"block_level_fusion_config":{"output_tiles":[{"sizes":["8"]}]}}}'
)
_UNTILED: Final = ', backend_config={"fusion_backend_config":{"kind":"__triton"}}'
_SORTED: Final = """
HloModule m

c {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  x = s32[] parameter(2)
  y = s32[] parameter(3){more}
  ROOT l = pred[] compare(a, b), direction=LT
}}

ENTRY e {{
  p = f32[8] parameter(0)
  q = s32[8] parameter(1)
  r = s32[8] parameter(2)
  {name} = (f32[8], s32[8]{type}) sort(p, q{operand}), dimensions={{0}}, to_apply=c{mark}
  ROOT i = s32[8] get-tuple-element({name}), index=1
}}
"""
_THREE: Final = _SORTED.format(
    more="\n  v = s32[] parameter(4)\n  w = s32[] parameter(5)",
    type=", s32[8]",
    operand=", r",
    name="s",
    mark=", is_stable=true",
)
_SORT: Final = {"more": "", "type": "", "operand": "", "name": "s.1"}
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_algsimp.txt"
_AFTER = "module_0001.m.0002.simplification.after_algsimp.before_pipeline-end.txt"
_SHARDED = "module_0001.m.0001.spmd-partitioner.after_dce.before_spmd-partitioning.txt"
_PARTITIONED = "module_0001.m.0002.spmd-partitioner.after_spmd-partitioning.before_dce.txt"


class AttributeLost(Rule):
    """An instruction that a pass kept but stripped of an attribute.

    ## Why
    A pass that clones an instruction or changes its operands must carry over the attributes that
    are not part of the computation. A loss shows only much later: an unused stream, a transfer that
    counts in all iterations, a replicated array, a call removed as dead. A pass must not

    - drop `backend_config`, `frontend_attributes`, `sharding` or its manual axes, the thread, the
      layouts and the interface of a call, or `custom_call_has_side_effect`;
    - change the sharding of the same array, or the thread or a frontend attribute of the same
      operation on the same operands;
    - drop the fields of `backend_config` that state the stream or Triton's tiling;
    - make a sort unstable because it lost operands;
    - inline a call with `inlineable="false"`;
    - drop the schedule: the module is scheduled again, and the chosen order is gone;
    - change the sharding of the entry's root, whatever computes it: it is that of the result.

    Lost metadata is information, reported only for instructions with side effects and for replaced
    collectives: the line of the program is unknown afterwards.

    Two instructions are the same if name and opcode match, or if opcode, operands and type match
    and no name contradicts. In fused, outlined, inlined or unrolled code, opcode, type and the name
    without its number must match; a copy beside the original has a suffix, such as `.clone`. A
    renamed loop is matched as in `diff`. An operation that became asynchronous must keep its
    frontend attributes, channel and configuration; an operation combined with others, its frontend
    attributes. If all users of an instruction read a replacement, the replacement must have its
    frontend attributes and sharding. A fusion of a different kind is a different instruction.

    Passes that translate annotations may drop them, except the inputs of a custom call;
    partitioners may drop shardings. There is a single finding for each pass and lost attribute.
    """

    subsumes = frozenset({"meaning-changed"})
    severity = Severity.WARNING
    evidence = (PublicReport("openxla/xla@6f330cb8d3"),)
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
            _PROGRAM.format(opcode="negate", rest=_ATTRIBUTES.replace('"1"', '"2"') + "  // error"),
            file=_AFTER,
            beside={_BEFORE: _PROGRAM.format(opcode="negate", rest=_ATTRIBUTES)},
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
        Bad(
            _THREAD.format(mark="  // error", thread=""),
            file=_AFTER,
            beside={_BEFORE: _THREAD.format(mark="", thread=', execution_thread="host"')},
        ),
        Bad(
            _REDUCED.format(
                reduce="r.1 = f32[8]{0} all-reduce(p), to_apply=add  // error\n"
                "  ROOT n = f32[8]{0} negate(r.1)"
            ),
            file=_AFTER,
            beside={
                _BEFORE: _REDUCED.format(
                    reduce="r = f32[8]{0} collective-broadcast(p), channel_id=1\n"
                    "  ROOT n = f32[8]{0} negate(r)"
                )
            },
        ),
        Bad(
            _SIMPLER.format(steps="d.1 = f32[8]{0} subtract(p, q)", name="d.1", mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _SIMPLER.format(steps=_ON_HOST, name="d", mark="")},
        ),
        Bad(
            _PROGRAM.format(opcode="copy", rest="  // error"),
            file=_PARTITIONED.replace("spmd-partitioning", "shardy-xla"),
            beside={
                _SHARDED.replace("spmd-partitioning", "shardy-xla"): _PROGRAM.format(
                    opcode="copy", rest=', backend_config="b"'
                )
            },
        ),
        Bad(
            _COPIED.format(
                copy='  c.clone = f32[8]{0} custom-call(c), custom_call_target="t"  // error',
                name="c.clone",
            ),
            file=_AFTER,
            beside={_BEFORE: _COPIED.format(copy="", name="c")},
        ),
        Bad(_TWICE.format(mark="  // error"), file=_AFTER, beside={_BEFORE: _TWO_CALLS}),
        Bad(
            _REDUCED.format(reduce=_ASYNC.format(mark=", channel_id=1  // error")),
            file=_AFTER,
            beside={
                _BEFORE: _REDUCED.format(
                    reduce=_SYNC.replace(_MARK, ', channel_id=1, metadata={op_name="f"}')
                )
            },
        ),
        Good(
            _WRAPPED,
            file=_AFTER,
            beside={
                _BEFORE: _PROGRAM.format(opcode="negate", rest=', backend_config="b"').replace(
                    "custom-call(k)", "custom-call(p)"
                )
            },
        ),
        Bad(
            _FUSION.format(kind="kCustom", rest=_UNTILED + "  // error"),
            file=_AFTER,
            beside={_BEFORE: _FUSION.format(kind="kCustom", rest=_TILED)},
        ),
        Bad(_SORTED.format(**_SORT, mark="  // error"), file=_AFTER, beside={_BEFORE: _THREE}),
        Good(
            _SORTED.format(**_SORT, mark=", is_stable=true"), file=_AFTER, beside={_BEFORE: _THREE}
        ),
        Bad(
            _SIMPLER.format(
                steps="w = f64[8]{0} convert(p)\n  e.1 = f64[8]{0} exponential(w)\n"
                "  d.1 = f32[8]{0} convert(e.1)",
                name="d.1",
                mark="  // error",
            ),
            file=_AFTER,
            beside={
                _BEFORE: _SIMPLER.format(
                    steps="d = f32[8]{0} exponential(p), result_accuracy={mode=highest}",
                    name="d",
                    mark="",
                )
            },
        ),
        Good(
            _PACKED.format(packed=_FLAT, name="u"),
            file=_AFTER,
            beside={_BEFORE: _PACKED.format(packed=_NESTED, name="s")},
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

    def check_groups(self, change: PassPair) -> Findings:
        """Instructions of different scheduling groups that a pass made one instruction."""
        merged: dict[Instruction, list[Instruction]] = {}
        has_group = any(map(Computation.mentions, change.removed, repeat(GROUP)))
        for link in change.map.links(_communicates) if has_group else ():
            if link.kind == LinkKind.MERGED:
                merged.setdefault(link.new, []).append(link.old)
        for new, gone in merged.items():
            groups = {str(old.frontend_attributes().get(GROUP, "none")) for old in gone}
            # An instruction of several groups, or of a group and none, belongs to none.
            if len(groups) > 1 and (GROUP in new.attributes_text or "none" not in groups):
                yield Finding(
                    new,
                    f"{change.pass_name} made this {new.opcode} of instructions of the scheduling "
                    f"groups {listed(sorted(groups))}",
                    notes=(f"before the pass, they were {listed(f'%{old.name}' for old in gone)}",),
                    key=GROUP,
                )

    def check(self, change: PassPair) -> Findings:
        """Instructions, computations and modules that lost an attribute."""
        if change.before.is_scheduled and not change.after.is_scheduled:
            yield Finding(
                header_span(change.after), f"{change.pass_name} lost the schedule", key="schedule"
            )
        annotates = may(change.pass_name, "annotations")
        ours, theirs = change.before.attributes, change.after.attributes
        for name in () if annotates or may(change.pass_name, "shardings") else _OF_MODULE:
            is_other = name in _COUNTS and ours.get(name) != theirs.get(name, ours.get(name))
            if name in ours and (name not in theirs or is_other):
                verb = "changed" if is_other else "lost"
                message = f"{change.pass_name} {verb} {name} of the module"
                yield Finding(header_span(change.after), message, key=name)
        for computation in change.changed:
            threads = computation.before.thread, computation.after.thread
            is_other = threads[0] not in ("main", threads[1])
            if is_other and computation.after.root and not annotates:
                message = f"{change.pass_name} lost the thread of %{computation.after.name}"
                note = f"the thread was {threads[0]} before the pass and is {threads[1]} now"
                yield Finding(computation.after.root, message, (note,), key="execution_thread")
        by_reason: dict[str, list[tuple[Instruction, Instruction]]] = {}
        for old, new, things in losses(change):
            by_reason.setdefault(", ".join(things), []).append((old, new))
        for lost_things, pairs in by_reason.items():
            old = pairs[0][0]
            notes = [f"before the pass, the instruction was %{old.name}, {old.opcode}"]
            if others := ", ".join(f"%{new.name}" for _, new in pairs[1:4]):
                more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
                notes.append(f"also lost by {others}{more}")
            yield Finding(
                pairs[0][1],
                f"{change.pass_name} lost {lost_things or 'the metadata'}",
                tuple(notes),
                severity=None if lost_things else Severity.INFO,
                key=lost_things or "metadata",
            )


def _communicates(row: InstructionRecord) -> bool:
    return opcode_of(row) in COMMUNICATES
