"""Collectives that devices of a group run a different number of times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lint.analysis.device_groups import communicating, count_of, device_groups
from hlo_lint.analysis.loop_values import LoopValues
from hlo_lint.analysis.loops import COMPARISONS, MIRRORED, Counter, Loop, loops, state_element
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Severity, Stage

_DEVICE: Final = frozenset({"partition-id", "replica-id"})
_MAX_DEVICES: Final = 4096
_PROGRAM = """
HloModule m, replica_count=4
add {{ ROOT c = f32[] add(f32[] a, f32[] b) }}
yes {{
  ROOT r = f32[8] all-reduce(f32[8] p), replica_groups={groups}, to_apply=add  // error
}}
no {{ ROOT q = f32[8] parameter(0) }}
d = u32[] replica-id()
two = u32[] constant(2)
first-half = pred[] compare(d, two), direction=LT
ROOT o = f32[8] conditional(first-half, f32[8] x, x), true_computation=yes, false_computation=no
"""
_LOOP = """
HloModule m, replica_count=4
add {{ ROOT c = f32[] add(f32[] a, f32[] b) }}
body {{
  i = u32[] get-tuple-element((u32[], f32[8]) s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = u32[] constant(1)
  n = u32[] add(i, one)
  r = f32[8] all-reduce(x), replica_groups={{{{0,1,2,3}}}}, to_apply=add  // error
  ROOT t = (u32[], f32[8]) tuple(n, r)
}}
condition {{
  i = u32[] get-tuple-element((u32[], f32[8]) s), index=0
  limit = u32[] {limit}
  ROOT l = pred[] compare(i, limit), direction=LT
}}
zero = u32[] constant(0)
first = (u32[], f32[8]) tuple(zero, f32[8] p)
ROOT w = (u32[], f32[8]) while(first), condition=condition, body=body
"""


class DivergentCollective(Rule):
    """A collective that some devices of its group run less often than others, or never.

    ## Why
    A collective ends when all devices of its group have reached it. If a conditional depends on the
    device's id and only one branch has the collective, the devices in that branch wait forever for
    the others. The rule computes each device's branch from partition-id, replica-id and constants.
    It skips conditionals that depend on data, or in which several branches communicate. If a loop's
    trip count depends on the device's id, devices with more iterations wait for the others.

    The finding is a warning if a later pass may still turn the conditional into a select.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"conditional", "while"})
    evidence = (RefusedByXla("Termination timeout", by="cpu 0.10.2"),)
    examples = (
        Bad.entry(_PROGRAM.format(groups="{{0,1,2,3}}")),
        Good.entry(_PROGRAM.format(groups="{{0,1},{2,3}}")),
        Bad.entry(_LOOP.format(limit="replica-id()")),
        Good.entry(_LOOP.format(limit="constant(4)")),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Collectives in divergent conditionals and loops."""
        for computation in module.computations:
            for conditional in computation.with_opcode("conditional"):
                branches = [*map(module.computation, conditional.called_computations)]
                called = [branch for branch in branches if branch is not None]
                active = list(filter(communicating, called))
                # Collectives of two branches over the same devices may meet each other.
                if len(active) != 1 or len(called) < len(branches):
                    continue
                taken = _branches_taken(conditional, module, len(branches)) or ()
                number = branches.index(active[0])
                for collective in communicating(active[0]):
                    yield from _judge(collective, conditional, taken, number, module, stage)
        if not all(_DEVICE.isdisjoint(part.opcodes) for part in module.computations):
            yield from _in_loops(module, stage)


def _in_loops(module: Module, stage: Stage) -> Findings:
    """The first collective of each loop whose trip count differs within a device group."""
    for loop in loops(module):
        collectives = communicating(loop.body)
        if not collectives:
            continue
        trips = _trip_counts(loop, module)
        if trips is None or len(set(trips)) == 1:
            continue
        for collective in collectives:
            for group in device_groups(collective, module):
                counts = {trips[device]: device for device in group if device in range(len(trips))}
                if len(counts) > 1:
                    fewest, most = min(counts), max(counts)
                    yield Finding(
                        collective,
                        f"device {counts[most]} waits for device {counts[fewest]}: they run "
                        f"%{loop.instruction.name} {most} and {fewest} times",
                        severity=_severity(stage),
                    )
                    break


def _trip_counts(loop: Loop, module: Module) -> list[int] | None:
    """The trip count of a loop on each device; None if it depends on more than the device's id."""
    test = loop.condition.root
    if test is None or test.opcode != "compare" or len(test.operands) != 2:
        return None
    counters = [(number, state_element(test, number)) for number in (0, 1)]
    moving = [
        (number, index, step)
        for number, index in counters
        if index is not None and (step := loop.step(index))
    ]
    state = loop.instruction.operands[0].instruction if loop.instruction.operands else None
    direction = test.attributes.get("direction", "")
    shape = test.operand_shape(0)
    # A count follows from one side that moves and a limit from before the loop.
    if len(moving) != 1 or state is None or state.opcode != "tuple" or direction not in COMPARISONS:
        return None
    if not isinstance(shape, ArrayShape):
        return None
    (number, index, step) = moving[0]
    known, trips = LoopValues(module), []
    for ids in _devices(module):
        values = []
        for side, element in counters:
            source = test if element is None else state
            index_of_value = side if element is None else element
            operand = source.operand(index_of_value)
            values.append(None if operand is None else known.value(operand, None, ids))
        first, limit = values[number], values[1 - number]
        if first is None or limit is None:
            return None
        way = direction if number == 0 else MIRRORED[direction]
        count = Counter(index, shape.dtype, first, step, way, limit).trip_count
        if count is None:
            return None
        trips.append(count)
    return trips or None


def _devices(module: Module) -> Iterator[dict[str, int]]:
    """The ids of each device; empty if the module has both several replicas and partitions."""
    replicas, partitions = count_of(module, "replica_count"), count_of(module, "num_partitions")
    if min(replicas, partitions) == 1 < max(replicas, partitions) <= _MAX_DEVICES:
        for device in range(max(replicas, partitions)):
            yield {"partition-id": device % partitions, "replica-id": device // partitions}


def _judge(
    collective: Instruction,
    conditional: Instruction,
    taken: Sequence[int],
    branch: int,
    module: Module,
    stage: Stage,
) -> Findings:
    for group in device_groups(collective, module):
        devices = [device for device in group if device in range(len(taken))]
        absent = [device for device in devices if taken[device] != branch]
        present = [device for device in devices if taken[device] == branch]
        if absent and present:
            yield Finding(
                collective,
                f"device {present[0]} waits for device {absent[0]}, which takes another branch of "
                f"%{conditional.name}",
                severity=_severity(stage),
            )
            return


def _severity(stage: Stage) -> Severity | None:
    """An error if no later pass can turn the conditional into a select; None otherwise."""
    return Severity.ERROR if stage.scheduled and stage.final else None


def _branches_taken(conditional: Instruction, module: Module, branches: int) -> list[int] | None:
    """The branch that each device takes; None if it depends on more than the device's id."""
    choice, first = conditional.operand(0), conditional.producer()
    if choice is None or first is None:
        return None
    known, taken = LoopValues(module), []
    for ids in _devices(module):
        value = known.value(choice, None, ids)
        if value is None:
            return None
        if "branch_computations" in conditional.attributes and first.type_text[:4] != "pred":
            taken.append(value if 0 <= value < branches else branches - 1)
        else:
            taken.append(0 if value else 1)
    return taken or None
