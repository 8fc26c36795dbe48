"""Collectives that devices of a group run a different number of times."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from hlo_lint.analysis.device_groups import communicating, count_of, device_groups
from hlo_lint.analysis.loops import COMPARISONS, MIRRORED, Counter, Loop, loops, state_element
from hlo_lint.analysis.walks import operands_first
from hlo_lint.hlo.ir import Instruction, Module, Operand
from hlo_lint.hlo.opcodes import SAME_NUMBERS
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Severity, Stage
from hlo_lint.text.source import whole_number

_DEVICE: Final = frozenset({"partition-id", "replica-id"})
_ARITHMETIC: Final[Mapping[str, Callable[[int, int], int]]] = {
    "add": operator.add,
    "and": operator.and_,
    "maximum": max,
    "minimum": min,
    "multiply": operator.mul,
    "or": operator.or_,
    "remainder": lambda left, right: left % right,
    "divide": lambda left, right: left // right,
}
_EVALUATED: Final = SAME_NUMBERS.union(_ARITHMETIC, ("compare", "not"))
_MAX_PLACES: Final = 1000
"""The largest number of scalars evaluated for a single value."""
_MAX_DEVICES: Final = 4096
_MAX_VALUE: Final = 1 << 31
_HEAD = """
HloModule m, replica_count=4

add {{ ROOT c = f32[] add(f32[] a, f32[] b) }}

"""
_PROGRAM = (
    _HEAD
    + """\
yes {{
  ROOT r = f32[8] all-reduce(f32[8] p), replica_groups={groups}, to_apply=add{mark}
}}

no {{ ROOT q = f32[8] parameter(0) }}

ENTRY e {{
  d = u32[] replica-id()
  two = u32[] constant(2)
  first-half = pred[] compare(d, two), direction=LT
  ROOT o = f32[8] conditional(first-half, f32[8] x, x), true_computation=yes, false_computation=no
}}
"""
)
_LOOP = (
    _HEAD
    + """\
body {{
  i = u32[] get-tuple-element((u32[], f32[8]) s), index=0
  x = f32[8] get-tuple-element(s), index=1
  one = u32[] constant(1)
  n = u32[] add(i, one)
  r = f32[8] all-reduce(x), replica_groups={{{{0,1,2,3}}}}, to_apply=add{mark}
  ROOT t = (u32[], f32[8]) tuple(n, r)
}}

condition {{
  i = u32[] get-tuple-element((u32[], f32[8]) s), index=0
  limit = u32[] {limit}
  ROOT l = pred[] compare(i, limit), direction=LT
}}

ENTRY e {{
  zero = u32[] constant(0)
  first = (u32[], f32[8]) tuple(zero, f32[8] p)
  ROOT w = (u32[], f32[8]) while(first), condition=condition, body=body
}}
"""
)


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
        Bad(_PROGRAM.format(groups="{{0,1,2,3}}", mark="  // error")),
        Good(_PROGRAM.format(groups="{{0,1},{2,3}}", mark="")),
        Bad(_LOOP.format(limit="replica-id()", mark="  // error")),
        Good(_LOOP.format(limit="constant(4)", mark="")),
    )

    def check(self, module: Module, stage: Stage) -> Findings:
        """Collectives in divergent conditionals and loops."""
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
    if len(moving) != 1 or state is None or state.opcode != "tuple" or direction not in COMPARISONS:
        return None
    if not isinstance(shape, ArrayShape):
        return None
    (number, index, step) = moving[0]
    trips = []
    for ids in _devices(module):
        values = []
        for side, element in counters:
            source = test if element is None else state
            index_of_value = side if element is None else element
            operands = source.operands
            if index_of_value >= len(operands) or operands[index_of_value].shape_index:
                return None
            values.append(_evaluate(operands[index_of_value].instruction, ids, module))
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
    choice = conditional.operands[0].instruction if conditional.operands else None
    if choice is None:
        return None
    by_index = "branch_computations" in conditional.attributes
    taken = []
    for ids in _devices(module):
        value = _evaluate(choice, ids, module)
        if value is None:
            return None
        if by_index and not choice.type_text.startswith("pred"):
            taken.append(value if 0 <= value < branches else branches - 1)
        else:
            taken.append(0 if value else 1)
    return taken or None


class _ScalarPlace(NamedTuple):
    """A scalar, and the fusion that contains it."""

    scalar: Instruction
    fusion: _ScalarPlace | None = None

    def sources(self, module: Module) -> Sequence[_ScalarPlace | None]:
        """The scalars from which it is computed; None for each unknown operand."""
        scalar, fusion = self
        if scalar.opcode == "parameter" and fusion is not None:
            number = scalar.parameter_number
            argument = None if number is None else fusion.scalar.operand(number)
            return (_read(argument, fusion.fusion),)
        if scalar.opcode == "fusion":
            body = module.callee(scalar)
            root = None if body is None else body.root
            return () if root is None else (_ScalarPlace(root, self),)
        is_computed = scalar.opcode in _EVALUATED
        return [_read(operand, fusion) for operand in scalar.operands] if is_computed else ()


def _read(operand: Operand | None, fusion: _ScalarPlace | None) -> _ScalarPlace | None:
    if operand is None or operand.instruction is None or operand.shape_index:
        return None
    return _ScalarPlace(operand.instruction, fusion)


def _evaluate(scalar: Instruction | None, ids: Mapping[str, int], module: Module) -> int | None:
    """The integer value of a scalar on a device with these ids; None if it is unknown."""
    read: dict[_ScalarPlace, Sequence[_ScalarPlace | None]] = {}

    def sources(place: _ScalarPlace) -> Iterator[_ScalarPlace]:
        read[place] = place.sources(module) if len(read) < _MAX_PLACES else ()
        return filter(None, read[place])

    value: int | None = None
    values: dict[_ScalarPlace | None, int | None] = {}
    for place in operands_first([] if scalar is None else [_ScalarPlace(scalar)], sources):
        instruction, text = place.scalar, place.scalar.operands_text.strip()
        inputs = [value for source in read[place] if (value := values.get(source)) is not None]
        value = None
        if instruction.opcode in _DEVICE:
            value = ids[instruction.opcode]
        elif instruction.opcode == "constant":
            value = int(text == "true") if text in ("true", "false") else whole_number(text)
        elif inputs and len(inputs) == len(read[place]):
            is_computed = instruction.opcode in _EVALUATED
            value = _computed(instruction, inputs) if is_computed else inputs[0]
        values[place] = value
    return value


def _computed(instruction: Instruction, values: list[int]) -> int | None:
    opcode = instruction.opcode
    if opcode in SAME_NUMBERS:
        return values[0]
    if opcode == "not":
        return 1 - values[0] if instruction.type_text.startswith("pred") else None
    if len(values) != 2:
        return None
    if opcode == "compare":
        compare = COMPARISONS.get(instruction.attributes.get("direction", ""))
        return None if compare is None else int(compare(*values))
    if opcode in ("divide", "remainder") and not values[1]:
        return None
    result = _ARITHMETIC[opcode](*values)
    return result if result < _MAX_VALUE else None  # it may wrap around
