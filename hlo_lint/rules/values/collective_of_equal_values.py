"""Collectives over devices that already hold the same value."""

from __future__ import annotations

from typing import Final

from hlo_lint.analysis.device_groups import device_groups
from hlo_lint.hlo.constants import constant_of
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import FORWARDS, HAS_GLOBAL_IDS, UNARY
from hlo_lint.rules.base import Bad, FinalModule, Findings, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.patterns import late

_MAKES_EQUAL: Final = HAS_GLOBAL_IDS - {"reduce-scatter"}
_KEEPS: Final = (FORWARDS | UNARY).union(
    "all-gather-done all-reduce-done broadcast get-tuple-element reshape slice transpose".split()
)
"""Unary opcodes that map equal operands to equal results."""
_SCALES: Final = frozenset({"add", "divide", "multiply", "subtract"})
_SUFFIX = late(r"(\.(\d+|[a-z_]*clone\d*))+$")
"""The suffix of a clone's name."""
_PROGRAM = """
HloModule m, num_partitions=4

add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  half = f32[] constant(0.5)
  halves = f32[8]{{0}} broadcast(half), dimensions={{}}
  first = f32[8]{{0}} all-reduce(p), channel_id=1, replica_groups={first}, \
use_global_device_ids=true, to_apply=add
  scaled = f32[8]{{0}} multiply(first, halves)
  ROOT second = f32[8]{{0}} all-reduce(scaled), channel_id=2, replica_groups={second}, \
use_global_device_ids=true, to_apply=add{mark}
}}
"""


class CollectiveOfEqualValues(Rule):
    """A collective over devices that already hold the same value.

    ## Why
    After an all-reduce or an all-gather, every device of a group has the same value. A second sum
    over these devices multiplies it by their number: a gradient summed by `psum` and again by the
    partitioner, a loss averaged twice. The program runs, but with a different learning rate. A
    maximum or an all-gather of equal values moves bytes that each device already has. Iterations of
    an unrolled loop are not reported.
    """

    severity = Severity.WARNING
    opcodes = HAS_GLOBAL_IDS
    examples = (
        Bad(_PROGRAM.format(first="{{0,1,2,3}}", second="{{0,1},{2,3}}", mark="  // error")),
        Good(_PROGRAM.format(first="{{0,1},{2,3}}", second="{{0,2},{1,3}}", mark="")),
        Good(
            _PROGRAM.format(first="{{0,1,2,3}}", second="{{0,1,2,3}}", mark="").replace(
                "second", "first.double_buffer_clone"
            )
        ),
        Good(_PROGRAM.format(first="{{0,1},{2,3}}", second="{{0,1,2,3}}", mark="")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Collectives whose devices already hold the same operand."""
        module = final.module
        for computation in module.nonfusion_computations:
            for opcode in HAS_GLOBAL_IDS & computation.opcodes:
                for collective in computation.with_opcode(opcode):
                    source = _made_equal(collective)
                    if source is None or _is_next_iteration(collective, source):
                        continue
                    count = _equal_devices(collective, source, module)
                    if count > 1:
                        yield Finding(
                            collective,
                            f"the {count} devices of a group already have the same value, from "
                            f"%{source.name}: {_effect(collective, module, count)}",
                            operand=0,
                        )


def _is_next_iteration(collective: Instruction, source: Instruction) -> bool:
    """True if both are the same instruction in two iterations of an unrolled loop."""
    names = [_SUFFIX.sub("", call.name) for call in (collective, source)]
    metadata = [call.attributes.get("metadata") for call in (collective, source)]
    return names[0] == names[1] and metadata[0] == metadata[1]


def _made_equal(collective: Instruction) -> Instruction | None:
    """The earlier collective that made the operand equal on all devices; None if unknown."""
    value = collective.producer()
    while value is not None and value.opcode not in _MAKES_EQUAL:
        if value.opcode in _SCALES and len(value.operand_names) == 2:
            varying = [number for number in (0, 1) if constant_of(value.producer(number)) is None]
            if len(varying) != 1:
                return None
            value = value.producer(varying[0])
        elif value.opcode in _KEEPS and len(value.operand_names) == 1:
            value = value.producer()
        else:
            return None
    return value


def _equal_devices(collective: Instruction, source: Instruction, module: Module) -> int:
    """The smallest group size, if each group is part of a group of the source; else 0."""
    equal = [frozenset(group) for group in device_groups(source, module)]
    group_of = {device: group for group in equal for device in group}
    groups = list(device_groups(collective, module))
    if not all(group_of.get(group[0], frozenset()).issuperset(group) for group in groups if group):
        return 0
    return min(map(len, groups), default=0)


def _effect(collective: Instruction, module: Module, count: int) -> str:
    reducer = module.callee(collective)
    operation = None if reducer is None or reducer.root is None else reducer.root.opcode
    if operation == "add":
        return f"this sum is {count} times that value"
    return f"this {collective.opcode} moves bytes that each device has"
