"""Replica groups of collectives."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.device_groups import Mode, groups_of, mode_of
from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import HAS_GROUPS
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule


class BadReplicaGroups(VerifierRule):
    """A collective whose replica groups repeat, omit or exceed the devices of the module.

    ## Why
    Each device finds itself in the groups and waits for the other devices of its group. If a device
    is in no group or in two, the others wait forever (`CheckReplicaGroups` in
    `xla/service/hlo_verifier.cc`). XLA compiles any groups of a
    `collective-broadcast`.
    """

    messages = (
        "Instruction cannot have an empty replica group",
        "doesn't appear in replica groups",
        "Replica groups expected to be of uniform size",
        "Replica groups must be specified in flattened-id mode",
        "is not a valid axis name or index",
        "out of bounds for mesh",
        "does not match the tile assignment dimensions product",
        "Replica … is out of range",
        "Replica … is repeated",
        "replica groups should contain … replicas, but found",
        "Cannot have use_global_device_ids=true without channel_id",
    )
    table = """
        replica-group-empty: CheckReplicaGroups
          no replica group is empty
            ROOT g = f32[32] all-gather(f32[8] p), dimensions={0},  // error
                replica_groups={{0,1,2,3},{}}
        replica-id-range: CheckReplicaGroups
          ids are less than the number of ids
            ROOT g = f32[32] all-gather(f32[8] p), dimensions={0},  // error
                replica_groups={{0,1,2,4}}
        replica-group-mesh: MeshAxesReplicaGroupList
          the axes of the groups are in their mesh, and the groups contain its devices
            ROOT g = f32[16] all-gather(f32[8] p), dimensions={0},  // error
                replica_groups=mesh['x'=2] {'y'}
        replica-id-repeated: CheckReplicaGroups
          no id occurs twice in the groups
            p = f32[8] parameter(0)
            ROOT g = f32[16] all-gather(p), dimensions={0}, replica_groups={{0,1},{2,1}}  // error
        replica-count: CheckReplicaGroups
          groups of replicas name all replicas
            HloModule m, replica_count=8
            ROOT g = f32[32] all-gather(f32[8] p), dimensions={0},  // error
                replica_groups={{0,1,2,3}}
        partition-count: CheckReplicaGroups
          groups of partitions name all partitions
            HloModule m, num_partitions=8
            ROOT g = f32[8] all-to-all(f32[8] p), dimensions={0}, channel_id=1,  // error
                replica_groups={{0,1,2,3}}
        device-count: CheckReplicaGroups
          groups of flattened ids name all devices
            HloModule m, num_partitions=8
            ROOT g = f32[32] all-gather(f32[8] p), dimensions={0}, channel_id=1,  // error
                use_global_device_ids=true, replica_groups={{0,1,2,3}}
        replica-group-size: CheckReplicaGroups
          except in all-reduce, groups have equal sizes
            ROOT g = f32[8] all-to-all(f32[8] p), dimensions={0},  // error
                replica_groups={{0,1,2,3},{4,5}}
        replica-groups-missing: CheckReplicaGroups
          groups are present if use_global_device_ids is true
            add { ROOT s = f32[] add(f32[] a, f32[] b) }
            ROOT g = f32[8] all-reduce(f32[8] p), channel_id=1,  // error
                use_global_device_ids=true, replica_groups={}, to_apply=add
        device-ids-without-channel: GetCollectiveOpGroupMode
          flattened ids need a channel
            sum { ROOT c = f32[] add(f32[] a, f32[] b) }
            ROOT r = f32[8] all-reduce(f32[8] p), replica_groups={{0,1}},  // error
                use_global_device_ids=true, to_apply=sum
    """
    examples = (
        Good.entry("ROOT g = f32[8] collective-broadcast(f32[8] p), replica_groups={{0,1},{1,2}}"),
        Good.entry("""
            HloModule m, num_partitions=8
            ROOT g = f32[32] all-gather(f32[8] p), dimensions={0}, channel_id=1,
                use_global_device_ids=true, replica_groups=[2,4]<=[8]
        """),
    )

    @on(*sorted(HAS_GROUPS), local=True)
    def groups(self, scope: Scope, collective: Instruction) -> Iterator[Violation]:
        """The groups contain each device of the module exactly once."""
        has_device_ids = "use_global_device_ids=true" in collective.attributes_text
        if has_device_ids and "channel_id=" not in collective.attributes_text:
            message = f"{collective.opcode} has use_global_device_ids=true without a channel_id"
            yield Violation("device-ids-without-channel", collective, message)
        # XLA compiles a collective-broadcast with any groups.
        if not scope.stage.replica_groups or collective.opcode == "collective-broadcast":
            return
        text = collective.attribute_text("replica_groups")
        mode = mode_of(collective)
        groups = groups_of(text or "{}")
        if groups is None:
            return
        if not groups.total and not groups.sizes:
            if mode is Mode.DEVICES:
                message = f"{collective.opcode} with use_global_device_ids needs replica_groups"
                yield Violation("replica-groups-missing", collective, message)
            return
        if groups.error is not None:
            check, message = groups.error
            yield Violation(check, collective, message)
            return
        yield from _count(scope, collective, mode, groups.total)
        if len(groups.sizes) > 1 and not collective.opcode.startswith("all-reduce"):
            sizes = ", ".join(map(str, sorted(groups.sizes)))
            message = f"the replica groups have different sizes: {sizes}"
            yield Violation("replica-group-size", collective, message)


def _count(scope: Scope, collective: Instruction, mode: Mode, total: int) -> Iterator[Violation]:
    replicas, partitions = scope.header.replicas, scope.header.partitions
    check, count = {
        Mode.REPLICAS: ("replica-count", replicas),
        Mode.REPLICAS_OF_ALL_PARTITIONS: ("replica-count", replicas),
        Mode.PARTITIONS: ("partition-count", partitions),
        Mode.DEVICES: ("device-count", replicas * partitions),
    }[mode]
    if count not in (1, total):
        message = f"the groups contain {total} {mode.value}, but the module has {count}"
        yield Violation(check, collective, message)
