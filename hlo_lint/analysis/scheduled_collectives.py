"""The collectives of a scheduled module, in the order in which a device runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final, TypeAlias

from hlo_lint.analysis.device_groups import TRANSFER_PAIRS, device_groups
from hlo_lint.analysis.kinds import template_of
from hlo_lint.analysis.loops import loops
from hlo_lint.analysis.sequential_calls import sequential_calls
from hlo_lint.analysis.walks import operands_first
from hlo_lint.hlo.attributes.metadata import OpMetadata
from hlo_lint.hlo.ir import Computation, Instruction, Module

_COLLECTIVES: Final = frozenset(
    "all-gather all-reduce all-to-all collective-broadcast collective-permute collective-reduce "
    "ragged-all-to-all recv reduce-scatter send".split()
)
_COMPARED: Final = ("dimensions", "split_dimension")
_SHOWN: Final = (
    *("channel_id", "replica_groups", "source_target_pairs", "use_global_device_ids"),
    *_COMPARED,
)
MAX_COLLECTIVES: Final = 100_000
"""The largest number of collectives of a module that are compared, over all iterations."""


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective in the order of the schedule."""

    instruction: Instruction
    opcode: str
    """The opcode without `-start`: asynchronous and synchronous collectives match."""
    shapes: str
    attributes: tuple[str, ...]
    """Channel, groups, pairs and dimensions, as spelled; the reduction, and the branch."""
    signature: tuple[object, ...]
    """Equal on ranks that agree, in any spelling: the opcode, shapes, devices and reduction, and
    the enclosing branches of conditionals."""

    @property
    def channel(self) -> str | None:
        """The number of its channel."""
        return self.instruction.attributes.get("channel_id")

    @property
    def origin(self) -> str:
        """The operation of the program that it comes from."""
        metadata = self.instruction.attribute_or_none("metadata")
        return metadata.op_name if isinstance(metadata, OpMetadata) else ""

    def __str__(self) -> str:
        return " ".join((f"%{self.instruction.name}:", self.opcode, self.shapes, *self.attributes))


def scheduled_collectives(module: Module, *, unrolled: bool = False) -> list[Collective]:
    """The collectives of a module in the order of the text, including called computations.

    A loop's collectives count once, or, if unrolled, in each iteration; the collectives of all
    branches of a conditional count. After `MAX_COLLECTIVES` the list ends.

    Raises:
        LookupError: if a loop to be unrolled has an unknown trip count, or runs too many.
    """
    entry = module.entry
    return [] if entry is None else _CollectiveTrace(module, unrolled).collectives(entry)


_Steps: TypeAlias = list[tuple[Instruction, Sequence[Computation]]]


class _CollectiveTrace:
    """The collectives of each computation, in the order in which a device runs them."""

    def __init__(self, module: Module, unrolled: bool) -> None:
        self._module = module
        self._calls = sequential_calls(module)
        self._unrolled = unrolled
        self._trip_counts = {loop.instruction: loop.trip_count for loop in loops(module)}
        self._known: dict[str, list[Collective]] = {}

    def collectives(self, entry: Computation) -> list[Collective]:
        """The collectives that a computation runs; callees are visited before their callers."""
        begun: dict[str, _Steps] = {}

        def called(computation: Computation) -> Iterator[Computation]:
            steps = begun[computation.name] = list(self._steps(computation))
            return chain.from_iterable(callees for _, callees in steps)

        for computation in operands_first([entry], called):
            self._known[computation.name] = self._run(begun[computation.name])
        return self._known[entry.name]

    def _steps(
        self, computation: Computation
    ) -> Iterator[tuple[Instruction, Sequence[Computation]]]:
        for instruction in computation.instructions:
            if instruction.opcode.removesuffix("-start") in _COLLECTIVES:
                # A transfer to or from the host does not wait for other devices.
                if instruction.attributes.get("is_host_transfer") != "true":
                    yield instruction, ()
            elif instruction.opcode == "fusion":
                # XLA:GPU fuses a collective, XLA:TPU asynchronous collectives.
                body = self._module.callee(instruction)
                if body is not None:
                    yield instruction, (body,)
            elif callees := self._calls.callees(instruction):
                yield instruction, callees

    def _run(self, steps: _Steps) -> list[Collective]:
        run: list[Collective] = []
        for instruction, callees in steps:
            opcode = instruction.opcode.removesuffix("-start")
            if opcode in _COLLECTIVES:
                run.append(_collective(instruction, opcode, self._module))
            else:
                run += self._called(instruction, callees)
            if len(run) >= MAX_COLLECTIVES:
                if self._unrolled:
                    raise LookupError(instruction.name)
                return run[:MAX_COLLECTIVES]
        return run

    def _called(self, caller: Instruction, callees: Sequence[Computation]) -> list[Collective]:
        runs = [self._known.get(callee.name, []) for callee in callees]
        if caller.opcode == "conditional":
            # Other devices may run the same collective in a different branch.
            return [
                replace(
                    collective,
                    attributes=(*collective.attributes, f"branch={number}"),
                    signature=(number, *collective.signature),
                )
                for number, run in enumerate(runs)
                for collective in run
            ]
        run = list(chain.from_iterable(runs))
        if self._unrolled and caller.opcode == "while" and run:
            trip_count = self._trip_counts.get(caller)
            if trip_count is None or trip_count * len(run) > MAX_COLLECTIVES:
                raise LookupError(caller.name)
            run *= trip_count
        return run


def _collective(instruction: Instruction, opcode: str, module: Module) -> Collective:
    attributes = instruction.attributes
    spelled = [f"{name}={attributes[name]}" for name in _SHOWN if name in attributes]
    pairs = attributes.get("frontend_attributes", "")
    devices: object = sorted(device_groups(instruction, module)) or tuple(spelled)
    # A send of a pipelined permute has its pairs in a frontend attribute, not in an attribute.
    if TRANSFER_PAIRS in pairs:
        devices = TRANSFER_PAIRS + pairs.partition(TRANSFER_PAIRS)[2].partition("}}")[0] + "}}"
        spelled.append(devices)
    shapes = f"({', '.join(str(operand.shape) for operand in instruction.operands)})"
    reducer = module.callee(instruction)
    if reducer is not None and reducer.root is not None:
        spelled.append(f"reduction={reducer.root.opcode}")
    reduction = None if reducer is None else template_of(reducer)
    signature = opcode, shapes, devices, reduction, *map(attributes.get, _COMPARED)
    return Collective(instruction, opcode, shapes, tuple(spelled), signature)
