"""Instructions that compute a different value after a pass, from the same operands."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

from hlo_lint.analysis.device_groups import count_of, device_groups, transfer_pairs
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.step_map.differences import changed_operations
from hlo_lint.analysis.step_map.links import Link, LinkKind
from hlo_lint.hlo.attributes.devices import MAX_DEVICES
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import HAS_GROUPS
from hlo_lint.hlo.records import opcode_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import WrongValues
from hlo_lint.text.phrases import listed, shortened

_PERMUTES: Final = frozenset({"collective-permute", "collective-permute-start", "recv"})
_EXCHANGES: Final = _PERMUTES | HAS_GROUPS
_CHOOSES: Final = frozenset({"select", "conditional"})


class MeaningChanged(Rule):
    """An instruction that a pass kept but that computes a different value afterwards.

    ## Why
    An instruction that keeps its operands and its readers through a pass must keep the operation
    and the attributes that define its value: the direction of a compare, the bounds of a slice, the
    edges of a pad, the groups of a collective, the literal of a constant, the target and the
    configuration of a user's custom call. The rule also reports:

    - operands, results or branches in a different order, where the order matters;
    - a different constant, or a different operation on the same operands, as in a reducer;
    - an operand that bypasses an operation (a scale, a narrowing conversion, a sum over devices, a
      dynamic size),
      or is a value that cannot be equal, while all users are unchanged;
    - collectives that were combined, or made asynchronous, for different devices;
    - permutes, or receives with pairs, in place of an exchange that sent data to more devices: a
      device that is not a target gets zeros. A pair `{p,p}` moves no data, but keeps that of `p`;

    XLA does not check for such wrong values.

    Names do not matter if the rest of the module computes equal values: instructions may be
    renamed, moved to other computations, cloned or merged. The finding is an error if no other
    change of the pass could compensate, and a warning if only the users of the value are known to
    be unchanged. Changes together with the operands or the users are not reported.
    """

    evidence = (WrongValues(),)
    reports = "openxla/xla#45218"
    examples = (
        Bad.step("""
            - c = pred[8] compare(f32[8] p, f32[8] q), direction=LT
            + c = pred[8] compare(p, q), direction=GT  // error
              ROOT s = f32[8] select(c, p, q)
        """),
        Bad.step("""
            - ROOT n = f32[8] minimum(f32[8] p, f32[8] q)
            + ROOT n = f32[8] maximum(p, q)  // error
        """),
        Bad.step("""
            - least = f32[] constant(-inf)
            + zero = f32[] constant(0)  // error
              s = f32[1,8] slice(f32[8,8] p), slice={[2:3], [0:8]}
            - q = f32[4,8] pad(s, least), padding=0_3x0_0
            + q = f32[4,8] pad(s, zero), padding=0_3x0_0
              ROOT n = f32[4,8] negate(q)
        """),
        Bad.step("""
              c = f32[] constant(0.5)
              b = f32[8] broadcast(c), dimensions={}
              s = f32[8] multiply(f32[8] p, b)
            - r = f32[8] sine(s)
            + r = f32[8] sine(p)  // error
              n = f32[8] negate(r)
              ROOT t = (f32[8], f32[8]) tuple(n, s)
        """),
        Bad.step("""
              a = f32[8] sine(f32[8] p)
              b = f32[8] cosine(p)
            - ROOT s = f32[8] subtract(a, b)
            + ROOT s = f32[8] subtract(a, a)  // error
        """),
        Bad.step("""
            f { x = f32[] parameter(0) ROOT a = f32[] negate(x) }
            g { y = f32[] parameter(0) ROOT b = f32[] sine(y) }
            - c = f32[] conditional(s32[] i, f32[] p, p), branch_computations={f, g}
            + c = f32[] conditional(s32[] i, f32[] p, p), branch_computations={g, f}  // error
              ROOT n = f32[] abs(c)
        """),
        Bad.step("""
            HloModule m, replica_count=4
            sum { ROOT w = f32[] add(f32[] u, f32[] v) }
            - a = f32[8] all-reduce(f32[8] p), replica_groups={{0,1},{2,3}}, to_apply=sum
            - b = f32[8] all-reduce(f32[8] q), replica_groups={{0,1},{2,3}}, to_apply=sum
            - ROOT t = (f32[8], f32[8]) tuple(a, b)
            + ROOT c = (f32[8], f32[8]) all-reduce(p, q), to_apply=sum,  // error
            +     replica_groups={{0,2},{1,3}}
        """),
        Bad.step("""
            - ROOT c = f32[8] custom-call(f32[8] p), custom_call_target="kernel", backend_config="a"
            + ROOT c = f32[8] custom-call(f32[8] p), custom_call_target="kernel",  // error
            +     backend_config="b"
        """),
        Bad.step("""
            HloModule m, num_partitions=2
              zero = u32[] constant(0)
              i = u32[] partition-id()
            - g = f32[4] all-gather(f32[2] p), channel_id=1, replica_groups={{0,1}},
            -     dimensions={0}, use_global_device_ids=true
            - ROOT d = f32[2] dynamic-slice(g, i), dynamic_slice_sizes={2}
            + ROOT c = f32[2] collective-permute(p), channel_id=1,  // error
            +     source_target_pairs={{1,0}}
        """),
        Bad.step("""
            HloModule m, num_partitions=4
            - c = f32[8] collective-permute(f32[8] p), channel_id=1,
            -     source_target_pairs={{0,1},{1,0},{2,2},{3,3}}
            - ROOT n = f32[8] negate(c)
            + t = token[] after-all()
            + r = (f32[8], u32[], token[]) recv(t), channel_id=1,
            +     frontend_attributes={_xla_send_recv_source_target_pairs={{0,1},{1,0},{2,2}}}
            + d = (f32[8], token[]) recv-done(r), channel_id=1
            + g = f32[8] get-tuple-element(d), index=0  // error
            + ROOT n = f32[8] negate(g)
        """),
        Bad.step("""
            sum { ROOT w = f32[] add(f32[] u, f32[] v) }
              q = f32[8] negate(f32[8] p)
              s = f32[<=8] set-dimension-size(q, s32[] n), dimensions={0}
              zero = f32[] constant(0)
            - ROOT r = f32[] reduce(s, zero), dimensions={0}, to_apply=sum
            + ROOT r = f32[] reduce(q, zero), dimensions={0}, to_apply=sum  // error
        """),
        Good.step("""
              m = s32[] constant(7)
              a = s32[] and(s32[] p, m)
            - c = s8[] convert(a)
            - w = s32[] convert(c)
            - ROOT n = s32[] negate(w)
            + ROOT n = s32[] negate(a)
        """),
        Good.step("""
              c = f32[8] convert(bf16[8] p)
            - r = f32[8] reduce-precision(c), exponent_bits=8, mantissa_bits=7
            - ROOT n = f32[8] negate(r)
            + ROOT n = f32[8] negate(c)
        """),
        Good.step("""
              e = f32[8] exponential(f32[8] p)
              z = f32[] constant(0)
              b = f32[8] broadcast(z), dimensions={}
            - m = f32[8] maximum(e, b)
            - ROOT n = f32[8] negate(m)
            + ROOT n = f32[8] negate(e)
        """),
        Good.step("""
              e = f32[8] exponential(f32[8] p)
              z = f32[] constant(0)
              b = f32[8] broadcast(z), dimensions={}
              c = pred[8] compare(e, b), direction=GE
            - s = f32[8] select(c, e, b)
            - ROOT n = f32[8] negate(s)
            + ROOT n = f32[8] negate(e)
        """),
        Good.step("""
              one = s32[] constant(1)
            - j = s32[] add(s32[] i, one)
            - s = f32[8] dynamic-slice(f32[8] p, j), dynamic_slice_sizes={8}
            + s = f32[8] dynamic-slice(p, i), dynamic_slice_sizes={8}
              ROOT n = f32[8] negate(s)
        """),
        Good.step("""
            sum { ROOT s = f32[] add(f32[] u, f32[] v) }
              z = f32[] constant(0)
            - r = f32[4]{0} reduce(f32[4,2,3]{2,1,0} p, z), dimensions={1,2}, to_apply=sum
            + b = f32[4,6]{1,0} bitcast(f32[4,2,3]{2,1,0} p)
            + r = f32[4]{0} reduce(b, z), dimensions={1}, to_apply=sum
              ROOT n = f32[4]{0} negate(r)
        """),
        Good.step("""
            - c = pred[8] compare(f32[8] p, f32[8] q), direction=LT
            + c = pred[8] compare(q, p), direction=GT
              ROOT s = f32[8] select(c, p, q)
        """),
        Good.step("""
              zero = f32[] constant(0)
            - s = f32[1,8] slice(f32[8,8] p), slice={[2:4:2], [0:8]}
            - q = f32[4,8] pad(s, zero), padding=0_3_1x0_0
            + s = f32[1,8] slice(p), slice={[2:3], [0:8]}
            + q = f32[4,8] pad(s, zero), padding=0_3x0_0
              ROOT n = f32[4,8] negate(q)
        """),
        Good.step("""
            HloModule m, replica_count=4
            sum { ROOT w = f32[] add(f32[] u, f32[] v) }
            - a = f32[8] all-reduce(f32[8] p), replica_groups={{0,1},{2,3}}, to_apply=sum
            - b = f32[8] all-reduce(f32[8] q), replica_groups={{0,1},{2,3}}, to_apply=sum
            - c = f32[8] all-reduce(a), replica_groups={{0,2},{1,3}}, to_apply=sum
            - d = f32[8] all-reduce(b), replica_groups={{0,2},{1,3}}, to_apply=sum
            - ROOT t = (f32[8], f32[8]) tuple(c, d)
            + e = (f32[8], f32[8]) all-reduce(p, q), replica_groups={{0,1},{2,3}}, to_apply=sum
            + ROOT t = (f32[8], f32[8]) all-reduce(e#0, e#1), replica_groups={{0,2},{1,3}},
            +     to_apply=sum
        """),
        Good.step("""
            HloModule m, num_partitions=2
              i = u32[] partition-id()
              z = u32[] constant(0)
              k = pred[] compare(i, z), direction=EQ
            - c = f32[8] collective-permute(f32[8] p), source_target_pairs={{0,1},{1,0}}
            - ROOT r = f32[8] negate(c)
            + c.1 = f32[8] collective-permute(p), source_target_pairs={{1,0}}
            + c.2 = f32[8] collective-permute(p), source_target_pairs={{0,1}}
            + b = pred[8] broadcast(k), dimensions={}
            + s = f32[8] select(b, c.1, c.2)
            + ROOT r = f32[8] negate(s)
        """),
    )

    def check(self, pair: PassPair) -> Findings:
        """Kept instructions that compute a different value, and exchanges of other devices."""
        seen = set[str]()
        for old, new, text, is_sure in changed_operations(pair):
            seen.add(new.name)
            yield Finding(
                new,
                f"{pair.pass_name} changed {text}",
                notes=(f"before the pass: {_excerpt(old)}",),
                severity=None if is_sure else Severity.WARNING,
            )
        links = list(pair.map.links(lambda row: opcode_of(row) in _EXCHANGES))
        for link in links:
            if link.kind == LinkKind.CLONED:  # a cycle is split into two chains
                clones = [other.parts for other in links if other.old is link.old]
                link = link._replace(parts=tuple(chain.from_iterable(clones)))
            message, *notes = _other_devices(link, pair)
            if message and link.new.name not in seen:
                seen.add(link.new.name)
                notes.insert(0, f"before the pass: {_excerpt(link.old)}")
                yield Finding(link.new, f"{pair.pass_name} {message}", tuple(notes))


def _other_devices(link: Link, pair: PassPair) -> Sequence[str]:
    """The change of the devices of a collective, or an empty string, and notes on it."""
    old, new, parts = link.old, link.new, link.parts
    if link.kind == LinkKind.CONVERTED:
        same = (part for part in parts if part.opcode == old.opcode)
        ours, theirs = _devices(old, pair.before), _devices(next(same, new), pair.after)
        if ours == theirs or not (ours[0] and theirs[0]):
            return [""]
        part = "a part of this" if new.opcode == old.opcode else "this"
        which = "which has different devices or a different operation"
        return [f"made %{old.name} {part} {new.opcode}, {which}"]
    pairs = [transfer_pairs(part) for part in parts if part.opcode in _EXCHANGES]
    # A select or a conditional may treat devices differently.
    if not pairs or not all(pairs) or any(part.opcode in _CHOOSES for part in parts):
        return [""]
    targets = {target for _, target in transfer_pairs(old)}
    if old.opcode not in _PERMUTES:
        count = max(count_of(pair.before, name) for name in ("num_partitions", "replica_count"))
        targets = set(range(min(count, MAX_DEVICES)))
    lost = sorted(targets.difference(target for part in pairs for _, target in part))
    message = f"left no pair with the target {listed(lost)}" if lost else ""
    return [message, "a device that is not a target gets zeros"]


def _devices(collective: Instruction, module: Module) -> tuple[object, ...]:
    """The device groups of a collective, and the opcode of its reduction."""
    reducer = module.callee(collective)
    root = None if reducer is None else reducer.root
    groups = frozenset(device_groups(collective, module))
    return groups, None if root is None else root.opcode


def _excerpt(instruction: Instruction) -> str:
    text = f"{instruction.opcode}({shortened(instruction.operands_text)})"
    return shortened((text + instruction.attributes_text).partition(", metadata=")[0], 160)
