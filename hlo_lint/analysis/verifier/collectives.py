"""Which devices exchange data: groups of replicas, and pairs of source and target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from hlo_lint.analysis.verifier.scope import (
    Checks,
    Demands,
    RowChecks,
    Scope,
    Violation,
    all_communicating,
    contradiction,
    integer_of,
    text_of,
    value_of,
    value_or_none,
)
from hlo_lint.hlo.attributes import IotaReplicaGroups, MeshReplicaGroups, ReplicaGroupList
from hlo_lint.hlo.ir import Computation, Instruction, Module


class Mode(Enum):
    """What the numbers in a group count (`xla/service/collective_ops_utils.h`)."""

    REPLICAS = "replicas"
    REPLICAS_OF_ALL_PARTITIONS = "replicas, in all partitions"
    PARTITIONS = "partitions"
    DEVICES = "devices"


_BY_FLAG: Final = frozenset(
    "all-reduce all-reduce-start all-gather all-gather-start reduce-scatter".split()
)
"""What has `use_global_device_ids`; a text leaves it out where it is false."""


def mode_of(collective: Instruction) -> Mode:
    """What the numbers in its groups count."""
    if "channel_id=" not in collective.attributes_text:
        return Mode.REPLICAS
    if collective.opcode not in _BY_FLAG:
        return Mode.PARTITIONS
    flag = text_of(collective, "use_global_device_ids") == "true"
    return Mode.DEVICES if flag else Mode.REPLICAS_OF_ALL_PARTITIONS


class _Groups(NamedTuple):
    trouble: tuple[str, str] | None
    """A row and a message."""
    total: int
    sizes: frozenset[int]


@lru_cache(maxsize=1 << 12)
def _groups(text: str) -> _Groups | None:
    """What is to be said of groups on their own; None where they cannot be read."""
    if wrong := contradiction("replica_groups", text):
        return _Groups(("S-21m", wrong), 1, frozenset({1}))
    value = value_or_none("replica_groups", text)
    if not isinstance(value, ReplicaGroupList | IotaReplicaGroups | MeshReplicaGroups):
        return None
    try:
        groups = value.groups
    except (OverflowError, KeyError):
        return None
    numbers = [number for group in groups for number in group]
    sizes = frozenset(map(len, groups))
    return _Groups(_trouble(groups, numbers), len(numbers), sizes)


def _trouble(groups: tuple[tuple[int, ...], ...], numbers: list[int]) -> tuple[str, str] | None:
    if any(not group for group in groups):
        return "S-20", "a replica group is empty"
    seen: set[int] = set()
    for number in numbers:
        if number in seen:
            return "S-22", f"replica {number} is in the groups twice"
        seen.add(number)
    for number in numbers:
        if not 0 <= number < len(numbers):
            return "S-21", f"the groups hold {len(numbers)} numbers, and name replica {number}"
    return None


def _replica_groups(scope: Scope, collective: Instruction) -> Iterator[Violation]:
    text = text_of(collective, "replica_groups")
    mode = mode_of(collective)
    groups = _groups(text) if text is not None else None
    if groups is None:
        return
    broadcast = collective.opcode == "collective-broadcast"
    if not groups.total and not groups.sizes:
        if mode is Mode.DEVICES:
            message = (
                f"{collective.opcode} with use_global_device_ids has to say its replica groups"
            )
            yield Violation("S-27", collective, message)
        return
    if groups.trouble is not None:
        row, message = groups.trouble
        yield Violation("3.5-7g" if broadcast else row, collective, message)
        return
    if not broadcast:
        yield from _count(scope, collective, mode, groups.total)
    if len(groups.sizes) > 1 and not collective.opcode.startswith("all-reduce"):
        sizes = ", ".join(map(str, sorted(groups.sizes)))
        row = "3.5-7g" if broadcast else "S-26"
        yield Violation(row, collective, f"the replica groups have different sizes: {sizes}")


def _count(scope: Scope, collective: Instruction, mode: Mode, total: int) -> Iterator[Violation]:
    header = scope.header
    row, wanted = {
        Mode.REPLICAS: ("S-23", header.replicas),
        Mode.REPLICAS_OF_ALL_PARTITIONS: ("S-23", header.replicas),
        Mode.PARTITIONS: ("S-24", header.partitions),
        Mode.DEVICES: ("S-25", header.replicas * header.partitions),
    }[mode]
    if wanted not in (1, total):
        message = f"the groups hold {total} {mode.value}, and the module has {wanted}"
        yield Violation(row, collective, message)


def _pairs(scope: Scope, permute: Instruction) -> Iterator[Violation]:
    pairs = value_of(permute, "source_target_pairs")
    if not isinstance(pairs, tuple):
        return
    mode = mode_of(permute)
    header = scope.header
    limit = header.replicas if mode is Mode.REPLICAS else header.partitions
    what = "replicas" if mode is Mode.REPLICAS else "partitions"
    for place, name in enumerate(("source", "target")):
        seen: set[int] = set()
        for pair in pairs:
            if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[place], int):
                return
            number = pair[place]
            if number < 0 or (limit != 1 and number >= limit):
                message = f"{name} {number} is none of {limit} {what}"
                yield Violation("S-37", permute, message)
                return
            if number in seen and len(permute.operand_names) == 1:
                yield Violation("S-38", permute, f"{name} {number} is in source_target_pairs twice")
                return
            seen.add(number)


def _all_reduce(scope: Scope, reduce: Instruction) -> Iterator[Violation]:
    channel = integer_of(reduce, "channel_id")
    if channel is not None and channel <= 0:
        yield Violation("I-18", reduce, f"channel_id={channel} has to be greater than 0")


def _reducer(scope: Scope, collective: Instruction) -> Iterator[Violation]:
    """What joins two values takes both; XLA does not look, and dies where it generates code."""
    (callee, *_) = scope.called(collective) or (None,)
    if callee is None:
        return
    count = len(callee.with_opcode("parameter"))
    if count != 2:
        message = f"{collective.opcode} joins two values, and %{callee.name} takes {count}"
        yield Violation("3.5-r", collective, message)


def _constrained(
    module: Module, demands: Demands, by_name: Mapping[str, Computation]
) -> Iterator[Violation]:
    """All all-reduces of a module have constrained layouts, or none has."""
    kinds: dict[bool, Instruction] = {}
    for each in all_communicating(module):
        if each.opcode.startswith("all-reduce"):
            kinds.setdefault("constrain_layout=true" in each.attributes_text, each)
    if len(kinds) == 2:
        message = f"the layout of this {kinds[True].opcode} is constrained, and that of "
        yield Violation("M-41", kinds[True], f"{message}%{kinds[False].name} is not")


CHECKS: Checks = {
    **dict.fromkeys(
        (
            "all-gather",
            "all-gather-start",
            "all-to-all",
            "ragged-all-to-all",
            "collective-broadcast",
        ),
        (_replica_groups,),
    ),
    "reduce-scatter": (_replica_groups, _reducer),
    "all-reduce": (_replica_groups, _all_reduce, _reducer),
    "all-reduce-start": (_replica_groups, _all_reduce, _reducer),
    "collective-permute": (_pairs,),
    "collective-permute-start": (_pairs,),
}
OF_ROWS: RowChecks = {}
OF_COMPUTATIONS = ()
OF_MODULES = (_constrained,)
