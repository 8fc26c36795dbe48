"""Collectives that only some devices of a group run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lint.analysis.device_groups import communicating, count_of, device_groups
from hlo_lint.analysis.loop_values import LoopValues
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Severity, Stage

_MAX_DEVICES: Final = 4096
_PROGRAM = """
HloModule m, replica_count=4

add {{ ROOT c = f32[] add(f32[] a, f32[] b) }}

yes {{
  ROOT r = f32[8] all-reduce(f32[8] p), replica_groups={groups}, to_apply=add{mark}
}}

no {{ ROOT q = f32[8] parameter(0) }}

d = u32[] replica-id()
two = u32[] constant(2)
first-half = pred[] compare(d, two), direction=LT
ROOT o = f32[8] conditional(first-half, f32[8] x, x), true_computation=yes, false_computation=no
"""


class DivergentCollective(Rule):
    """A collective that some devices of its group never run.

    ## Why
    A collective ends when all devices of its group have reached it. If a conditional depends on the
    device's id and only one branch has the collective, the devices in that branch wait forever for
    the others. The rule computes each device's branch from partition-id, replica-id and constants.
    It skips conditionals that depend on data, or in which several branches communicate.

    The finding is a warning if a later pass may still turn the conditional into a select.
    """

    severity = Severity.WARNING
    opcodes = frozenset({"conditional"})
    evidence = (RefusedByXla("Termination timeout", by="cpu 0.10.2"),)
    examples = (
        Bad.entry(_PROGRAM.format(groups="{{0,1,2,3}}", mark="  // error")),
        Good.entry(_PROGRAM.format(groups="{{0,1},{2,3}}", mark="")),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Collectives in divergent conditionals."""
        for computation in module.computations:
            for conditional in computation.with_opcode("conditional"):
                branches = [*map(module.computation, conditional.called_computations)]
                active = [
                    branch for branch in branches if branch is not None and communicating(branch)
                ]
                if len(active) != 1 or None in branches:
                    continue
                taken = _branches_taken(conditional, module, len(branches))
                if taken is None:
                    continue
                number = branches.index(active[0])
                for collective in communicating(active[0]):
                    yield from _judge(collective, conditional, taken, number, module, stage)


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
                # Otherwise a later pass may still turn the conditional into a select.
                severity=Severity.ERROR if stage.scheduled and stage.final else None,
            )
            return


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
