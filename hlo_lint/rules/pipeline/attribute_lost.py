"""Attributes of instructions that a pass lost."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.step_map.conserved import GROUP
from hlo_lint.analysis.step_map.links import LinkKind
from hlo_lint.analysis.step_map.losses import losses
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.opcodes import COMMUNICATES
from hlo_lint.hlo.records import attributes_of, opcode_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues
from hlo_lint.text.phrases import listed

_COUNTS: Final = ("num_partitions", "replica_count")
_OF_MODULE: Final = ("frontend_attributes", *_COUNTS)


class AttributeLost(Rule):
    """An instruction that a pass kept but stripped of an attribute.

    ## Why
    A pass that clones an instruction or changes its operands must carry over the attributes that
    are not part of the computation. A loss shows only much later: an unused stream, a transfer that
    counts in all iterations, a replicated array, a call removed as dead. A pass must not

    - drop `backend_config`, `frontend_attributes`, `sharding` or its manual axes, the thread, the
      layouts and the interface of a call, or `custom_call_has_side_effect`;
    - drop the `operand_precision` or the `algorithm` of a product, also if it becomes several
      products, a part of one, or a library call: it is computed in TF32 or bf16, and no type shows
      it;
    - drop the alias of a kernel's result, which may read or write only a part of the operand's
      memory;
    - give the transfer of a pair of devices other valid iterations (`_xla_send_recv_validation`):
      in others its result is undefined;
    - change the sharding of the same array, or the thread or a frontend attribute of the same
      operation on the same operands;
    - drop the fields of `backend_config` that state the stream or Triton's tiling;
    - make a sort unstable because it lost operands;
    - inline a call with `inlineable="false"`;
    - drop the schedule: the module is scheduled again, and the chosen order is gone;
    - change the sharding of the entry's root, whatever computes it: it is that of the result;
    - move a value back to the default memory: a copy to the host that stays on the device frees
      nothing (offloading passes may choose other memory spaces);
    - put an operation, such as a transpose, between a reduction and its sharding `unreduced={'x'}`,
      which says that each device along x keeps a partial sum: the partitioner then reduces the sum
      and treats it as a partial sum.

    Lost metadata is information, reported only for instructions with side effects and for replaced
    collectives: the line of the program is unknown afterwards.

    The successor of an instruction is found by its value: the same operation on equal operands,
    also in fused, outlined, inlined or unrolled code, as a part of a combined collective, or in
    asynchronous form; then by its readers, and by its name last. If all users of an instruction
    read a replacement, the replacement must have its frontend attributes and its sharding.
    Collectives of different scheduling groups must not become one. A fusion of a different kind is
    a different instruction. `analysis/step_map/conserved.py` lists each attribute with the
    successors that must have it.

    Passes that translate annotations may drop them, except the inputs of a custom call;
    partitioners may drop shardings. There is a single finding for each pass and lost attribute.
    """

    subsumes = frozenset({"meaning-changed"})
    severity = Severity.WARNING
    evidence = (WrongValues(15),)
    reports = "openxla/xla@6f330cb8d3, openxla/xla@078ac5263c"
    examples = (
        Bad.step("""
            - k = f32[8] negate(f32[8] p)
            - ROOT c = f32[8] custom-call(k), custom_call_target="t",
            -     frontend_attributes={_xla_stream="1"}, backend_config="b"
            + k = f32[8] copy(p)
            + ROOT c = f32[8] custom-call(k), custom_call_target="t"  // error
        """),
        Bad.step(
            """
            b { x = f32[8] parameter(0) ROOT n = f32[8] negate(x) }
            c { y = f32[8] parameter(0) ROOT t = pred[] custom-call(y), custom_call_target="t" }
            - ROOT w = f32[8] while(f32[8] p), condition=c, body=b, frontend_attributes={a="1"}
            + ROOT w.1 = f32[8] while(f32[8] p), condition=c, body=b  // error
            """,
            by="spmd-partitioning",
        ),
        Bad.step("""
            -HloModule m, is_scheduled=true
            +HloModule m  // error
              k = f32[8] copy(f32[8] p)
              ROOT c = f32[8] custom-call(k), custom_call_target="t"
        """),
        Bad.step("""
            add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
            - ROOT r = f32[8] all-reduce(f32[8] p), to_apply=add,
            -     frontend_attributes={_scheduling_group_id="3"}
            + s = f32[8] all-reduce-start(f32[8] p), to_apply=add  // error
            + ROOT d = f32[8] all-reduce-done(s)
        """),
        Bad.step("""
            HloModule m, num_partitions=4
              p = f32[8] parameter(0), sharding={devices=[4]<=[4]}
            - ROOT a = f32[8] add(p, p), sharding={devices=[4]<=[4]}
            + ROOT n = f32[8] negate(p)  // error
        """),
        Bad.step("""
            +b {
            + x = f32[8] parameter(0)
            + ROOT n.1 = f32[8] negate(x)  // error
            +}
            - ROOT n.2 = f32[8] negate(f32[8] p), backend_config={"operation_queue_id":"3"}
            + ROOT c = f32[8] fusion(f32[8] p), kind=kLoop, calls=b,
            +     backend_config={"operation_queue_id":"0"}
        """),
        Bad.step("""
            -b { x = f32[8] parameter(0) ROOT n.1 = f32[8] negate(x) }
            - ROOT c = f32[8] call(f32[8] p), to_apply=b, frontend_attributes={inlineable="false"}
            + ROOT n.2 = f32[8] negate(f32[8] p)  // error
        """),
        Bad.step("""
            w {
              ROOT c = f32[8] custom-call(f32[8] x), custom_call_target="t"  // error
            -}, execution_thread="host"
            +}
              s = ((f32[8]), f32[8], u32[]) async-start(f32[8] p), calls=w
              ROOT d = f32[8] async-done(s)
        """),
        Bad.step("""
            - ROOT d = f32[8,6] dot(f32[8,4] p, f32[4,6] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}, operand_precision={highest,highest}
            + h = f32[4,4] slice(p), slice={[0:4], [0:4]}
            + l = f32[4,4] slice(p), slice={[4:8], [0:4]}
            + e = f32[4,6] dot(h, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            + f = f32[4,6] dot(l, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}  // error
            + ROOT k = f32[8,6] concatenate(e, f), dimensions={0}
        """),
        Bad.step("""
            - c = f32[2,7,7,4] convolution(f32[2,9,9,8] p, f32[3,3,8,4] q), window={size=3x3},
            -     dim_labels=b01f_01io->b01f, operand_precision={highest,highest}
            - ROOT n = f32[2,7,7,4] negate(c)
            + k = (f32[2,7,7,4], u8[0]) custom-call(p, q), window={size=3x3},
            +     dim_labels=b01f_01io->b01f, custom_call_target="__cudnn$convForward"
            + g = f32[2,7,7,4] get-tuple-element(k), index=0  // error
            + ROOT n = f32[2,7,7,4] negate(g)
        """),
        Bad.step("""
            - a = f32[8,6] dot(f32[8,4] p, f32[4,6] q), lhs_contracting_dims={1},
            -     rhs_contracting_dims={0}
            - b = f32[8,6] dot(p, f32[4,6] r), lhs_contracting_dims={1}, rhs_contracting_dims={0},
            -     operand_precision={highest,highest}
            - ROOT t = f32[8,12] concatenate(a, b), dimensions={1}
            + c = f32[4,12] concatenate(q, r), dimensions={1}
            + ROOT d = f32[8,12] dot(p, c), lhs_contracting_dims={1},  // error
            +     rhs_contracting_dims={0}
        """),
        Bad.step("""
            HloModule m, num_partitions=2
            - x = f32[8] collective-permute(f32[8] p), channel_id=1,
            -     source_target_pairs={{0,1},{1,0}},
            -     frontend_attributes={_xla_send_recv_validation="{{0,2},{1,3}}"}
            + s = (f32[8], f32[8]) collective-permute-start(p), channel_id=1,  // error
            +     source_target_pairs={{0,1},{1,0}},
            +     frontend_attributes={_xla_send_recv_validation="{{0,2},{0,2}}"}
            + x = f32[8] collective-permute-done(s)
              ROOT n = f32[8] negate(x)
        """),
        Bad.step("""
            - k = f32[8] negate(f32[8] p)
            - ROOT c = f32[8] custom-call(k), custom_call_target="t",
            -     output_to_operand_aliasing={{}: (0, {})}
            + k = f32[8] copy(p)
            + ROOT c = f32[8] custom-call(k), custom_call_target="t"  // error
        """),
        Good.step("""
            HloModule m, num_partitions=4

            ENTRY e_spmd {
              p = s32[] parameter(0), sharding={maximal device=0}
              one = s32[] constant(1), sharding={maximal device=0}
            - a = s32[] add(p, one), sharding={maximal device=0},
            -     frontend_attributes={xla.sdy.sharding="#sdy.sharding<@mesh, []>"}
            - ROOT n = s32[] negate(a)
            + b = s32[] bitcast(p)
            + a.1 = s32[] add(b, one)
            + ROOT n = s32[] negate(a.1)
            }
        """),
        Good.step("""
            b {
              n = s32[] get-tuple-element((s32[], s32[]) x), index=0
            - one = s32[] constant(1), origin={{"one"}}
            + one = s32[] get-tuple-element(x), index=1
              m = s32[] add(n, one)
              ROOT t = (s32[], s32[]) tuple(m, one)
            }
            c { ROOT t = pred[] custom-call((s32[], s32[]) y), custom_call_target="test" }
              p = s32[] parameter(0)
            + one.1 = s32[] constant(1), origin={{"w#*/one"}}
            - i = (s32[], s32[]) tuple(p, p)
            + i = (s32[], s32[]) tuple(p, one.1)
              ROOT w = (s32[], s32[]) while(i), condition=c, body=b
        """),
        Bad.step("""
            - h = f32[8]{0:S(5)} copy(f32[8]{0} p)
            + h = f32[8]{0} copy(p)  // error
              ROOT d = f32[8]{0} copy(h)
        """),
        Bad.step("""
            HloModule m, num_partitions=2
              p = f32[8,4] parameter(0), sharding={mesh['x'=2], [{}, {'x'}]}
              q = f32[4,6] parameter(1), sharding={mesh['x'=2], [{'x'}, {}]}
            - d = f32[8,6] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
            - ROOT s = f32[8,6] custom-call(d), custom_call_target="Sharding",
            + c = f32[6,8] dot(q, p), lhs_contracting_dims={0}, rhs_contracting_dims={1}
            + t = f32[8,6] transpose(c), dimensions={1,0}
            + ROOT s = f32[8,6] custom-call(t), custom_call_target="Sharding",  // error
              sharding={mesh['x'=2], [{}, {}], unreduced={'x'}}
        """),
        Bad.step("""
            c {
              a = pred[] parameter(0)
              b = pred[] parameter(1)
              x = s32[] parameter(2)
              y = s32[] parameter(3)
            - v = s32[] parameter(4)
            - w = s32[] parameter(5)
              ROOT l = pred[] compare(a, b), direction=LT
            }
            - s = (pred[64], s32[64], s32[64]) sort(pred[64] p, s32[64] q, q), dimensions={0},
            -     to_apply=c, is_stable=true
            - ROOT i = s32[64] get-tuple-element(s), index=1
            + s.1 = (pred[64], s32[64]) sort(pred[64] p, s32[64] q),  // error
            +     dimensions={0}, to_apply=c
            + ROOT i = s32[64] get-tuple-element(s.1), index=1
        """),
        Bad.step("""
            HloModule m, num_partitions=2
            - x = f32[8] collective-permute(f32[8] p), channel_id=1,
            -     source_target_pairs={{0,1},{1,0}},
            -     frontend_attributes={_xla_send_recv_validation="{{0,2},{1,3}}"}
            + b = f32[8] collective-permute(f32[8] p), channel_id=1,  // error
            +     source_target_pairs={{1,0}},
            +     frontend_attributes={_xla_send_recv_validation="{{0,2}}"}
            + f = f32[8] collective-permute(p), channel_id=2, source_target_pairs={{0,1}},
            +     frontend_attributes={_xla_send_recv_validation="{{0,2}}"}
            + d = u32[] partition-id()
            + t = pred[] convert(d)
            + x = f32[8] select(t, f, b)
              ROOT n = f32[8] negate(x)
        """),
    )

    def check_groups(self, pair: PassPair) -> Findings:
        """Instructions of different scheduling groups that a pass made one instruction."""
        if not any(GROUP in attributes_of(row) for row in pair.changed_rows(is_before=True)):
            return
        links = pair.map.links(lambda row: opcode_of(row) in COMMUNICATES)
        merged = by_key((link.new, link.old) for link in links if link.kind == LinkKind.MERGED)
        for new, gone in merged.items():
            groups = {str(old.frontend_attributes().get(GROUP, "none")) for old in gone}
            # An instruction of several groups, or of a group and none, belongs to none.
            if len(groups) > 1 and (GROUP in new.attributes_text or "none" not in groups):
                yield Finding(
                    new,
                    f"{pair.pass_name} made this {new.opcode} of instructions of the scheduling "
                    f"groups {listed(sorted(groups))}",
                    notes=(f"before the pass, they were {listed(f'%{old.name}' for old in gone)}",),
                    key=GROUP,
                )

    def check(self, pair: PassPair) -> Findings:
        """Instructions, computations and modules that lost an attribute."""
        is_unscheduled = pair.before.is_scheduled and not pair.after.is_scheduled
        if is_unscheduled and not may(pair.pass_name, "schedule"):
            message = f"{pair.pass_name} lost the schedule"
            yield Finding(header_span(pair.after), message, key="schedule")
        annotates = may(pair.pass_name, "annotations")
        ours, theirs = pair.before.attributes, pair.after.attributes
        for name in () if annotates or may(pair.pass_name, "shardings") else _OF_MODULE:
            is_other = name in _COUNTS and ours.get(name) != theirs.get(name, ours.get(name))
            if name in ours and (name not in theirs or is_other):
                verb = "changed" if is_other else "lost"
                message = f"{pair.pass_name} {verb} {name} of the module"
                yield Finding(header_span(pair.after), message, key=name)
        for computation in pair.changed:
            threads = computation.before.thread, computation.after.thread
            is_other = threads[0] not in ("main", threads[1])
            if is_other and computation.after.root and not annotates:
                message = f"{pair.pass_name} lost the thread of %{computation.after.name}"
                note = f"the thread was {threads[0]} before the pass and is {threads[1]} now"
                yield Finding(computation.after.root, message, (note,), key="execution_thread")
        by_reason = by_key((", ".join(things), (old, new)) for old, new, things in losses(pair))
        for lost_things, pairs in by_reason.items():
            old, new = pairs[0]
            notes = [f"before the pass, the instruction was %{old.name}, {old.opcode}"]
            if others := ", ".join(f"%{other.name}" for _, other in pairs[1:4]):
                more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
                notes.append(f"also lost by {others}{more}")
            yield Finding(
                new,
                f"{pair.pass_name} lost {lost_things or 'the metadata'}",
                tuple(notes),
                severity=None if lost_things else Severity.INFO,
                key=lost_things or "metadata",
            )
