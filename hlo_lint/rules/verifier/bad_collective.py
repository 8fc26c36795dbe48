"""Shapes of collectives."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.device_groups import Mode, all_communicating, groups_of, mode_of
from hlo_lint.analysis.verifier.checks import on, on_module
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import UNBOUNDED, ArrayShape, Shape, TupleShape, part
from hlo_lint.rules.base import Bad, Good, Stage
from hlo_lint.rules.verifier import VerifierRule


class BadCollective(VerifierRule):
    """A collective whose result does not match its operands and the size of its groups.

    ## Why
    The size of a gathered or scattered dimension follows from the number of devices in a group
    (`HandleAllGather` and others in `xla/service/hlo_verifier.cc`). The library that moves the data
    gets only the number of elements.
    """

    messages = (
        "HloModule has a mix of layout constrained and unconstrained AllReduce instructions",
        "All reduce channel id must be greater than 0 for",
        "HLO all-to-all has operands with different shapes",
        "Unmatching input buffers and output buffers",
        "Unmatching input buffers and input offset",
        "Unmatching output buffers and output offset",
        "hlo->operand_count() == split_count",
        "ars->scatter_dimension() <",
        "ag->shape().IsTuple()",
    )
    mentions = ("all-reduce",)
    table = """
        all-gather-shape: ShapeVerifier::HandleAllGather (all-gather all-gather-start)
          all-gather: a dimension, array operands, a result for each operand
            p = f32[8] parameter(0)
            ROOT g = f32[32,1] all-gather(p), dimensions={0}, replica_groups={{0,1,2,3}}  // error
        all-gather-size: ShapeVerifier::HandleAllGather
          all-gather: the dimension grows by the size of a group
            ROOT g = f32[24] all-gather(f32[8] p), dimensions={0},  // error
                replica_groups={{0,1,2,3}}
        all-reduce-shape: ShapeVerifier::HandleAllReduce
          (all-gather-done all-reduce all-reduce-start all-reduce-done)
          all-reduce and the dones of collectives: inferred
            add { ROOT s = f32[] add(f32[] a, f32[] b) }
            ROOT g = f32[9] all-reduce(f32[8] p), replica_groups={}, to_apply=add  // error
        reduce-scatter-shape: ShapeVerifier::HandleReduceScatter (reduce-scatter)
          reduce-scatter: the dimension shrinks by the size of a group
            add { ROOT s = f32[] add(f32[] a, f32[] b) }
            ROOT g = f32[4] reduce-scatter(f32[8] p), dimensions={0},  // error
                replica_groups={{0,1,2,3}}, to_apply=add
        all-to-all-shape: ShapeVerifier::HandleAllToAll (all-to-all)
          all-to-all: a single operand with a dimension, else an operand per device of a group
            ROOT g = f32[8] all-to-all(f32[8] p, p), dimensions={0},  // error
                replica_groups={{0,1}}
        ragged-all-to-all-shape: ShapeVerifier::HandleRaggedAllToAll (ragged-all-to-all)
          ragged-all-to-all: offsets and sizes have equal shapes
            p = f32[8] parameter(0)
            n = s32[2] parameter(1)
            m = s32[3] parameter(2)
            ROOT g = f32[8] ragged-all-to-all(p, p, n, n, n, m), replica_groups={{0,1}}  // error
        collective-broadcast-shape: ShapeVerifier::HandleCollectiveBroadcast (collective-broadcast)
          collective-broadcast: inferred
            ROOT g = f32[9] collective-broadcast(f32[8] p), replica_groups={{0,1}}  // error
        collective-permute-shape: ShapeVerifier::HandleCollectivePermute
          (collective-permute collective-permute-start)
          collective-permute: operands, offsets and results match
            ROOT g = f32[9] collective-permute(f32[8] p), source_target_pairs={{0,1}}  // error
        all-reduce-channel: InstructionVerifier::HandleAllReduce
          all-reduce: the channel is greater than 0
            add { ROOT s = f32[] add(f32[] a, f32[] b) }
            p = f32[8] parameter(0)
            ROOT g = f32[8] all-reduce(p), channel_id=0, replica_groups={}, to_apply=add  // error
        reducer-parameters:
          the computation of all-reduce and reduce-scatter takes two values
            one { ROOT n = f32[] negate(f32[] a) }
            ROOT g = f32[8] all-reduce(f32[8] p), replica_groups={}, to_apply=one  // error
        all-reduce-constrained: VerifyLayoutConstrainedAllReduce
          either all all-reduces are layout-constrained, or none
            add { ROOT s = f32[] add(f32[] a, f32[] b) }
            q = f32[8] all-reduce(f32[8] p), replica_groups={}, to_apply=add
            ROOT g = f32[8] all-reduce(q), replica_groups={}, constrain_layout=true,  // error
                to_apply=add
    """
    examples = (
        Bad.entry("""
            HloModule m, replica_count=4
            ROOT g = f32[16] all-gather(f32[8] p), dimensions={0}, replica_groups={}  // error
        """),
        Bad.entry("""
            HloModule m, replica_count=3
            ROOT a = (f32[8], f32[8]) all-to-all(f32[8] p, p), replica_groups={}  // error
        """),
        Good.entry("""
            HloModule m, replica_count=2, num_partitions=2
            g = f32[32] all-gather(f32[8] p), dimensions={0}, channel_id=1, replica_groups={{0,1}}
            s = f32[32] all-to-all(g), replica_groups={}, dimensions={0}
            ROOT a = (f32[32], f32[32]) all-to-all(s, s), replica_groups={}
        """),
        Good.entry("""
            add {
              s = f32[] add(f32[] a, f32[] b)
              t = f32[] add(f32[] c, f32[] d)
              ROOT r = (f32[], f32[]) tuple(s, t)
            }
            p = f32[8] parameter(0)
            q = f32[4] parameter(1)
            ROOT g = (f32[8], f32[4]) all-reduce(p, q), replica_groups={{0,1}}, to_apply=add
        """),
        Good.entry("""
            add { ROOT s = f32[] add(f32[] a, f32[] b) }
            ROOT g = f32[2] reduce-scatter(f32[8] p), dimensions={0}, channel_id=1,
                use_global_device_ids=true, replica_groups={{0,1,2,3}}, to_apply=add
        """),
    )

    @on("all-reduce", "all-reduce-start", local=True)
    def channel(self, scope: Scope, reduce: Instruction) -> Iterator[Violation]:
        """The channel of an all-reduce is greater than 0."""
        channel = reduce.integer_attribute("channel_id")
        if channel is not None and channel <= 0:
            message = f"channel_id={channel} must be greater than 0"
            yield Violation("all-reduce-channel", reduce, message)

    @on("all-reduce", "all-reduce-start", "reduce-scatter", local=True)
    def reducer(self, scope: Scope, collective: Instruction) -> Iterator[Violation]:
        """A reducer takes two values, or two per operand; else XLA fails at emission."""
        callee = scope.callee(collective)
        count = 2 if callee is None else len(callee.with_opcode("parameter"))
        if callee is not None and count not in (2, 2 * len(collective.operand_names)):
            message = (
                f"{collective.opcode} needs a reducer of 2 values, but %{callee.name} takes {count}"
            )
            yield Violation("reducer-parameters", collective, message)

    @on("all-gather", "all-gather-start", "reduce-scatter", "all-to-all", local=True)
    def size(self, scope: Scope, collective: Instruction) -> Iterator[Violation]:
        """Sizes match the replica groups and the device counts of the module."""
        devices = _devices_by_module(scope, collective)
        operands = [operand.shape for operand in collective.operands]
        if devices is None:
            return
        if collective.opcode == "all-to-all" and collective.attribute_text("dimensions") is None:
            if len(operands) != devices:
                message = f"all-to-all has {len(operands)} operands for groups of {devices}"
                yield Violation("all-to-all-shape", collective, message)
            return
        if devices == 1:
            return  # HandleAllGather and HandleReduceScatter accept any size
        dims = collective.attribute_or_none("dimensions")
        dim = dims[0] if isinstance(dims, tuple) and dims else None
        if not isinstance(dim, int):
            return
        gathers = collective.opcode != "reduce-scatter"
        for operand, result in zip(operands, _results(collective, len(operands)), strict=False):
            small, large = (operand, result) if gathers else (result, operand)
            if not isinstance(small, ArrayShape) or not isinstance(large, ArrayShape):
                continue
            if not 0 <= dim < min(small.rank, large.rank):
                continue
            is_split = collective.opcode == "all-to-all"
            size, total = small.dims[dim], large.dims[dim]
            if UNBOUNDED in (size, total):
                continue
            if total % devices if is_split else size * devices != total:
                message = (
                    f"{collective.opcode} over {devices} devices turns {operand} into {result}"
                )
                check = "all-gather-size" if gathers else "reduce-scatter-shape"
                yield Violation("all-to-all-shape" if is_split else check, collective, message)
                return

    @on_module
    def constrained(self, module: Module, stage: Stage) -> Iterator[Violation]:
        """Either all all-reduces of a module have constrained layouts, or none."""
        by_constraint: dict[bool, Instruction] = {}
        for instruction in all_communicating(module):
            if instruction.opcode.startswith("all-reduce"):
                is_constrained = "constrain_layout=true" in instruction.attributes_text
                by_constraint.setdefault(is_constrained, instruction)
        if len(by_constraint) == 2:
            message = (
                f"the layout of this {by_constraint[True].opcode} is constrained, "
                f"that of %{by_constraint[False].name} is not"
            )
            yield Violation("all-reduce-constrained", by_constraint[True], message)


def _devices_by_module(scope: Scope, collective: Instruction) -> int | None:
    """The size of a group (`GetSubgroupSize`), if it depends on the module's device counts.

    None if the instruction alone determines it, or if the module states no counts: XLA then assumes
    1, which says nothing about sizes.
    """
    mode, header = mode_of(collective), scope.header
    groups = groups_of(collective.attribute_text("replica_groups") or "{}")
    if groups is None or groups.error is not None or mode is Mode.DEVICES:
        return None
    if not header.is_counted or (mode is not Mode.REPLICAS_OF_ALL_PARTITIONS and groups.total):
        return None
    across = header.partitions if mode is Mode.REPLICAS_OF_ALL_PARTITIONS else 1
    if groups.total:
        return next(iter(groups.sizes)) * across if len(groups.sizes) == 1 else None
    return across * (header.partitions if mode is Mode.PARTITIONS else header.replicas)


def _results(collective: Instruction, count: int) -> tuple[Shape, ...]:
    """The result shapes of a collective, a shape per operand."""
    shape = collective.shape_or_none
    if collective.opcode.endswith("-start"):
        shape = part(shape, (1,))
    if shape is None or count == 1:
        return () if shape is None else (shape,)
    return shape.elements if isinstance(shape, TupleShape) else ()
