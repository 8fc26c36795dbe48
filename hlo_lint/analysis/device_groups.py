"""The devices that wait for each other in a collective, by their numbers in the module."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import assert_never

from hlo_lint.analysis.verifier.devices import Mode, mode_of
from hlo_lint.analysis.verifier.scope import value_or_none
from hlo_lint.hlo.attributes import IotaReplicaGroups, MeshReplicaGroups, ReplicaGroupList
from hlo_lint.hlo.attributes.devices import MAX_DEVICES
from hlo_lint.hlo.ir import Instruction, Module, cached_analysis

_pair = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


def count_of(module: Module, name: str) -> int:
    """`replica_count` or `num_partitions` of a module's header; 1 where it is left out."""
    return _counts(module).get(name, 1)


@cached_analysis
def _counts(module: Module) -> Mapping[str, int]:
    # The header of a large program is long, and each collective asks.
    pairs = re.findall(r"\b(replica_count|num_partitions)=(\d+)", module.header)
    return {name: int(count) for name, count in reversed(pairs)}


def device_groups(collective: Instruction, module: Module) -> Iterator[tuple[int, ...]]:
    """The devices that wait for each other; of a permute, each pair of a source and a target.

    Partition p of replica r is device r * num_partitions + p. Nothing if groups cannot be read.
    """
    replicas, partitions = count_of(module, "replica_count"), count_of(module, "num_partitions")
    if replicas * partitions > MAX_DEVICES:
        return
    mode = mode_of(collective)
    pairs = collective.attributes.get("source_target_pairs")
    groups: tuple[tuple[int, ...], ...]
    if pairs is not None:
        groups = tuple((int(source), int(target)) for source, target in _pair.findall(pairs))
    else:
        value = value_or_none("replica_groups", collective.attributes.get("replica_groups", "{}"))
        if not isinstance(value, ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups):
            return
        try:
            groups = value.groups
        except (OverflowError, KeyError):
            return
        if not groups:
            counts = {Mode.PARTITIONS: partitions, Mode.DEVICES: replicas * partitions}
            groups = (tuple(range(counts.get(mode, replicas))),)
    # xla/service/collective_ops_utils.cc: GetParticipatingDevicesGroups
    match mode:
        case Mode.DEVICES:
            yield from groups
        case Mode.PARTITIONS:
            for replica in range(replicas):
                for group in groups:
                    yield tuple(replica * partitions + partition for partition in group)
        case Mode.REPLICAS:
            for partition in range(partitions):
                for group in groups:
                    yield tuple(replica * partitions + partition for replica in group)
        case Mode.REPLICAS_OF_ALL_PARTITIONS:
            for group in groups:
                yield tuple(
                    replica * partitions + partition
                    for replica in group
                    for partition in range(partitions)
                )
        case _:
            assert_never(mode)
