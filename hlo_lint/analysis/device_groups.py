"""The devices that wait for each other in a collective, by their numbers in the module."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlo_lint.analysis.verifier.devices import Mode, mode_of
from hlo_lint.analysis.verifier.scope import value_or_none
from hlo_lint.hlo.attributes import IotaReplicaGroups, MeshReplicaGroups, ReplicaGroupList
from hlo_lint.hlo.ir import Instruction, Module

_pair = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")


def count_of(module: Module, name: str) -> int:
    """`replica_count` or `num_partitions` of a module's header; 1 where it is left out."""
    match = re.search(rf"\b{name}=(\d+)", module.header)
    return int(match[1]) if match else 1


def device_groups(collective: Instruction, module: Module) -> Iterator[tuple[int, ...]]:
    """The devices that wait for each other, where one of both counts of devices is 1.

    None where that is not known; of a permute, each pair of a source and a target.
    """
    pairs = collective.attributes.get("source_target_pairs")
    if pairs is not None:
        yield from ((int(source), int(target)) for source, target in _pair.findall(pairs))
        return
    by_partition = mode_of(collective) in (Mode.PARTITIONS, Mode.DEVICES)
    partitions = count_of(module, "num_partitions")
    if not by_partition and partitions > 1:
        return  # each group has one device of each partition, or the group is of replicas
    value = value_or_none("replica_groups", collective.attributes.get("replica_groups", ""))
    if isinstance(value, ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups):
        try:
            yield from value.groups
        except (OverflowError, KeyError):
            return
