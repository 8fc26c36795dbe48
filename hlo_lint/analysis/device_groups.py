"""The devices that wait for each other in a collective, by its groups or pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, assert_never

from hlo_lint.analysis.calls import with_opcodes
from hlo_lint.analysis.verifier.scope import device_list_error, header_counts
from hlo_lint.hlo.attributes.devices import (
    MAX_DEVICES,
    IotaReplicaGroups,
    MeshReplicaGroups,
    ReplicaGroupList,
)
from hlo_lint.hlo.ir import Computation, Instruction, Module, cached_analysis
from hlo_lint.hlo.opcodes import COMMUNICATES, HAS_GLOBAL_IDS
from hlo_lint.text.patterns import late

TRANSFER_PAIRS: Final = "_xla_send_recv_source_target_pairs"
"""The frontend attribute of a send or receive with the pairs of its original permute."""
_find_pairs = late(r"\{\s*(\d{1,18})\s*,\s*(\d{1,18})\s*\}").findall


class Mode(Enum):
    """The meaning of the ids in a group (`xla/service/collective_ops_utils.h`)."""

    REPLICAS = "replicas"
    REPLICAS_OF_ALL_PARTITIONS = "replicas, in all partitions"
    PARTITIONS = "partitions"
    DEVICES = "devices"


def mode_of(collective: Instruction) -> Mode:
    """The meaning of the ids in its groups."""
    if "channel_id=" not in collective.attributes_text:
        return Mode.REPLICAS
    # A permute or all-to-all with a channel is across partitions (`GetCollectiveOpGroupMode`).
    if collective.opcode.removesuffix("-start") not in HAS_GLOBAL_IDS:
        return Mode.PARTITIONS
    flag = collective.attribute_text("use_global_device_ids") == "true"
    return Mode.DEVICES if flag else Mode.REPLICAS_OF_ALL_PARTITIONS


class Groups(NamedTuple):
    """The replica groups of a collective."""

    error: tuple[str, str] | None
    """The name of the check that the groups by themselves violate, and a message; or None."""
    total: int
    sizes: frozenset[int]


def _listed(text: str) -> tuple[tuple[int, ...], ...] | None:
    from hlo_lint.hlo.attributes.reading import value_or_none  # few texts have groups

    value = value_or_none("replica_groups", text)
    if not isinstance(value, ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups):
        return None
    try:
        return value.groups
    except (OverflowError, KeyError):
        return None


@lru_cache(maxsize=1 << 12)
def groups_of(text: str) -> Groups | None:
    """The groups that a text spells; None if unreadable."""
    if error := device_list_error("replica_groups", text):
        return Groups(("replica-group-mesh", error), 1, frozenset({1}))
    groups = _listed(text)
    if groups is None:
        return None
    ids = [number for group in groups for number in group]
    return Groups(_error(groups, ids), len(ids), frozenset(map(len, groups)))


def _error(groups: tuple[tuple[int, ...], ...], ids: list[int]) -> tuple[str, str] | None:
    if any(not group for group in groups):
        return "replica-group-empty", "a replica group is empty"
    seen: set[int] = set()
    for number in ids:
        if number in seen:
            return "replica-id-repeated", f"replica {number} is in the groups twice"
        seen.add(number)
    for number in ids:
        if not 0 <= number < len(ids):
            message = f"replica {number} is out of range: the groups hold {len(ids)} ids"
            return "replica-id-range", message
    return None


@cached_analysis
def all_communicating(module: Module) -> tuple[Instruction, ...]:
    """The instructions of a module that exchange data with other devices or the host."""
    return tuple(chain.from_iterable(map(communicating, module.computations)))


@cached_analysis
def communicating(computation: Computation) -> tuple[Instruction, ...]:
    """The communicating instructions of a computation, in the text's order."""
    return tuple(with_opcodes(computation, COMMUNICATES))


def count_of(module: Module, name: str) -> int:
    """`replica_count` or `num_partitions` of a module's header; 1 where it is left out."""
    return max(header_counts(module).get(name, 1), 1)


def binds_shardings(module: Module) -> bool:
    """True if a partitioner is still to read the shardings of a module."""
    is_part = module.entry is not None and is_name_of_part(module.entry.name)
    return not is_part and count_of(module, "num_partitions") > 1


def is_name_of_part(entry: str) -> bool:
    """True for the name that the partitioner gives the entry computation: `main_spmd`."""
    return re.search(r"_spmd(\.\d+)?$", entry) is not None


def pairs_in(text: object) -> tuple[tuple[int, int], ...]:
    """The pairs of a list as spelled: `{{0,1},{1,0}}`; empty if missing or unreadable."""
    from hlo_lint.hlo.attributes.reading import value_or_none

    value = value_or_none("source_target_pairs", text.strip('"')) if isinstance(text, str) else None
    pairs = value if isinstance(value, tuple) else ()
    return tuple((pair[0], pair[1]) for pair in pairs if isinstance(pair, tuple) and len(pair) == 2)


def transfer_pairs(transfer: Instruction) -> tuple[tuple[int, int], ...]:
    """The source-target pairs of a permute, a send or a receive; empty if missing or unreadable."""
    pairs = transfer.attribute_text("source_target_pairs")
    return pairs_in(transfer.frontend_attributes().get(TRANSFER_PAIRS) if pairs is None else pairs)


def device_groups(collective: Instruction, module: Module) -> Iterator[tuple[int, ...]]:
    """The groups of devices that wait for each other; for a permute, its source-target pairs.

    Partition p of replica r is device r * num_partitions + p. Empty if the groups are unreadable.
    """
    replicas, partitions = count_of(module, "replica_count"), count_of(module, "num_partitions")
    if replicas * partitions > MAX_DEVICES:
        return
    mode = mode_of(collective)
    pairs = collective.attributes.get("source_target_pairs")
    groups: tuple[tuple[int, ...], ...] | None
    if pairs is not None:
        groups = tuple((int(source), int(target)) for source, target in _find_pairs(pairs))
    else:
        groups = _listed(collective.attributes.get("replica_groups", "{}"))
        if groups is None:
            return
        if not groups:
            counts = {Mode.PARTITIONS: partitions, Mode.DEVICES: replicas * partitions}
            groups = (tuple(range(counts.get(mode, replicas))),)
    yield from participants(groups, mode, replicas, partitions)


def participants(
    groups: Iterable[Sequence[int]], mode: Mode, replicas: int, partitions: int
) -> Iterator[tuple[int, ...]]:
    """The devices of groups of ids (`GetParticipatingDevicesGroups`, `collective_ops_utils.cc`)."""
    match mode:
        case Mode.DEVICES:
            yield from map(tuple, groups)
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
