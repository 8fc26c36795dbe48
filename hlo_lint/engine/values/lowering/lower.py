"""Lower a module to the values that it computes.

Fusions and calls are inlined, copies and layouts vanish, an asynchronous operation becomes the
operation that it wraps, a custom call becomes operations by its configuration. A module for several
devices becomes a single program that computes the values of all of them (`collectives.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final

from hlo_lint.analysis.cycles import cycles_of
from hlo_lint.analysis.shape_inference import inference_in
from hlo_lint.analysis.walks import chain as chain_of
from hlo_lint.analysis.walks import operands_first
from hlo_lint.engine.values.inputs import index_limit
from hlo_lint.engine.values.lowering import collectives, control_flow
from hlo_lint.engine.values.lowering.bounded import collected, shapes_of, with_sizes
from hlo_lint.engine.values.lowering.graph import (
    Graph,
    LoweredValue,
    Node,
    Nodes,
    NotLowered,
    assembled,
    bare,
    element_of,
    leaf_nodes,
)
from hlo_lint.engine.values.lowering.operations import on_device
from hlo_lint.engine.values.lowering.program import Cut, Input, Program
from hlo_lint.engine.values.lowering.watch import Watch
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Instruction, Module
from hlo_lint.hlo.opcodes import wrapped_opcode
from hlo_lint.hlo.shape import Shape, ShapeSyntaxError, TupleShape, arrays, part

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.shards import ProgramShardings

MAX_DEVICES: Final = 32
"""The most devices that are simulated: each has its own copy of every value."""

Values = list[LoweredValue]
"""A value on each device."""


@dataclass
class Lowering:
    """The state of lowering a module."""

    module: Module
    nodes: Nodes
    replicated: frozenset[int] = frozenset()
    """The entry parameters that have the same value on all devices."""
    layout: ProgramShardings | None = None
    """The shardings of a program whose parameters and results are whole arrays."""
    is_partitioned: bool = False
    """True if the module computes with the parts of `layout`, False if with whole arrays."""
    cuts: list[Cut] = field(default_factory=list)
    endless: list[tuple[Instruction, str]] = field(default_factory=list)
    origins: dict[tuple[str, int], Instruction] = field(default_factory=dict)
    last: dict[tuple[str, int], Instruction] = field(default_factory=dict)
    scope: str = ""
    iterations: tuple[Callable[[], Node] | None, ...] = ()
    """A function for each loop around the current instruction, outermost first.

    It makes the node of the iteration number, from 0; None where the loop is not annotated.
    """
    layouts_bind: bool = True
    """False before layout-assignment, which may change layouts."""
    devices: int = 1
    """The number of devices; before `program` runs, the number in the rest of the run."""
    watch: Watch | None = None
    """Instructions whose values replace the result of the entry computation.

    Only their operands are lowered, and for a single device.
    """

    def program(self) -> Program:
        """The values of the module as a program.

        Raises:
            NotLowered: a part of the module cannot be made to run.
        """
        entry = self.module.entry
        if entry is None or entry.root is None:
            raise NotLowered("it has no entry computation")
        if self.module.problems:
            raise NotLowered("it has text that cannot be read")
        cycles = cycles_of(self.module)
        if cycles is not None and cycles.calls:
            raise NotLowered("it has a computation that calls itself")
        self.nodes.asked = 0
        try:
            self.devices = 1 if self.watch is not None else self._device_count(self.devices)
        except AttributeSyntaxError as error:
            raise NotLowered(f"it is malformed: {error}") from error
        if self.devices > MAX_DEVICES:
            raise NotLowered(f"it runs on {self.devices} devices, more than {MAX_DEVICES}")
        inputs, arguments = self._inputs(entry)
        try:
            results = self.computation(entry, arguments)
        except RecursionError:
            raise NotLowered("it has too many calls inside calls") from None
        shape = self.shape(entry.root)
        leaves = [list(with_sizes(self.nodes, value, shape)) for value in results]
        if self.watch is not None:
            roots = self.watch.results(list(self.watch.seen))
        elif self.layout is None:
            roots = list(chain.from_iterable(leaves))
        elif self.is_partitioned:
            roots = self.layout.joined(self.nodes, leaves)
        else:
            roots = self.layout.repeated(leaves[0])
        devices = self.devices if self.layout is None else 1
        graph = self.nodes.graph(tuple(node.shape for node in inputs), roots, gives_tuple=True)
        origins, last = self.origins, self.last
        return Program(graph, tuple(inputs), origins, last, self.cuts, devices, self.endless)

    def _device_count(self, in_run: int) -> int:
        module = self.module
        if self.layout is None:
            own = collectives.device_count(module)
            is_in_run = own == 1 and collectives.header_devices(module) == in_run
            return in_run if is_in_run else own
        is_cut = self.is_partitioned or collectives.has_regions(module)
        return self.layout.devices if is_cut else 1

    def _inputs(self, entry: Computation) -> tuple[list[Input], list[Values]]:
        """The inputs of the program, and the module's parameters on each device."""
        inputs: list[Input] = []
        arguments: list[Values] = []
        leaf = 0
        given = collectives.given_inputs(entry, self.devices) if self.devices > 1 else {}
        needed = set(entry.parameters if self.watch is None else self._in_order(entry))
        for parameter in entry.parameters:
            if parameter not in needed:
                arguments.append([None])
                leaf += len(list(arrays(parameter.shape_or_none)))
                continue
            with _named(parameter):
                sized = list(shapes_of(self.shape(parameter)))
                limit = index_limit(parameter, self.module)
            shapes = [shape for shape, _ in sized]
            bounds = [bound for _, bound in sized]
            limits = [limit if bound is None else bound + 1 for bound in bounds]
            places = [count - 1 for count in accumulate(bound is None for bound in bounds)]
            if self.devices > 1 and any(bounds):
                raise NotLowered(f"%{parameter.name} is bounded and runs on several devices")
            number = parameter.parameter_number or 0
            shared = number in self.replicated or self.layout is not None
            own = shapes
            if self.layout is not None and self.is_partitioned:
                spread = self.layout.parameters[leaf : leaf + len(shapes)]
                if [sharded.part for sharded in spread] != shapes:
                    raise NotLowered(f"the shape of %{parameter.name} does not match its sharding")
                shapes = [sharded.shape for sharded in spread]
            values: Values = []
            for device in range(self.devices):
                if not (shared and device):
                    first = len(inputs)
                    fixed = given.get((number, device), ())
                    inputs += [
                        Input(leaf + place, device, shape, most, fixed)
                        for place, shape, most in zip(places, shapes, limits, strict=True)
                    ]
                whole = [self.nodes.parameter(i, shape) for i, shape in enumerate(shapes, first)]
                if own is not shapes:
                    pairs = zip(spread, whole, strict=True)
                    whole = [sharded.cut(self.nodes, node, device) for sharded, node in pairs]
                values.append(collected(self.nodes, self.shape(parameter), iter(whole)))
            arguments.append(values)
            leaf += sum(bound is None for bound in bounds)
        return inputs, arguments

    def shape(self, instruction: Instruction) -> Shape:
        """The shape that an instruction spells, else the shape that XLA infers."""
        if instruction.type_text:
            try:
                return instruction.shape
            except ShapeSyntaxError as error:
                raise NotLowered(f"%{instruction.name} has no shape: {error}") from error
        inferred = inference_in(self.module).shape(instruction)
        if inferred is None:
            raise NotLowered(f"%{instruction.name} has no shape, and none can be inferred")
        return inferred

    def operand_shapes(self, instruction: Instruction) -> list[Shape | None]:
        """The shapes of an instruction's operands; None for an undefined operand."""
        return [
            part(self.shape(source), index) if source else None
            for _, index, source in instruction.operands
        ]

    def computation(self, computation: Computation, arguments: Sequence[Values]) -> Values:
        """The result of a computation on each device."""
        by_name: dict[str, Values] = {}
        for instruction in self._in_order(computation):
            begin = len(self.nodes.made)
            with _named(instruction):
                values = self._values(instruction, by_name, arguments)
            if self.watch is not None and instruction in self.watch.instructions:
                operands = (
                    element_of(by_name[operand.name][0], operand.shape_index)
                    for operand in instruction.operands
                )
                self.watch.computed(instruction, values[0], operands)
            for node in self.nodes.made[begin:]:
                self.origins.setdefault((self.scope, node.number), instruction)
            del self.nodes.made[begin:]  # the rest is made by callers
            for value in values:
                if isinstance(value, Node) and instruction.opcode != "parameter":
                    self.last[self.scope, value.number] = instruction
            by_name[instruction.name] = values
        assert computation.root is not None
        return by_name.get(computation.root.name, [])

    def _values(
        self, instruction: Instruction, by_name: Mapping[str, Values], arguments: Sequence[Values]
    ) -> Values:
        if instruction.opcode == "parameter":
            number = instruction.parameter_number
            if number is None or number >= len(arguments):
                raise NotLowered(f"%{instruction.name} is a parameter without a number")
            return arguments[number]
        operands = [
            [element_of(value, operand.shape_index) for value in by_name[operand.name]]
            for operand in collectives.operands_of(instruction)
        ]
        return self._instruction(instruction, operands)

    def _in_order(self, computation: Computation) -> list[Instruction]:
        """The instructions to lower, operands first."""
        assert computation.root is not None
        wanted = self.watch.wanted(computation) if self.watch is not None else []
        if self.watch is None or not computation.is_entry:
            wanted.append(computation.root)
        return _in_order(wanted)

    def body(self, name: str) -> Computation:
        """A called computation."""
        computation = self.module.computation(name)
        if computation is None or computation.root is None:
            raise NotLowered(f"there is no computation %{name}")
        return computation

    def called(self, instruction: Instruction, name: str) -> Computation:
        """The computation that an attribute calls."""
        names = instruction.called_computations
        attributes = [key for key in instruction.attributes if key in CALLING_ATTRIBUTES]
        if name not in attributes or len(attributes) != len(names):
            if len(names) == 1:
                return self.body(names[0])
            raise NotLowered(f"%{instruction.name} calls no computation as its {name}")
        return self.body(names[attributes.index(name)])

    def function(self, computation: Computation) -> Graph:
        """A computation of scalars: the reducer of a reduce, the comparator of a sort."""
        types = [self.shape(parameter) for parameter in computation.parameters]
        shapes = tuple(leaf for shape in types for leaf in bare(shape))
        nodes = iter([self.nodes.parameter(number, leaf) for number, leaf in enumerate(shapes)])
        arguments: list[Values] = [[assembled(shape, nodes)] for shape in types]
        inner = replace(self, scope=computation.name, devices=1, watch=None)
        (value,) = inner.computation(computation, arguments)
        return self.nodes.graph(shapes, list(leaf_nodes(value)))

    # ---- one instruction

    def _instruction(self, instruction: Instruction, operands: list[Values]) -> Values:
        opcode = instruction.opcode
        if opcode == "async-start":
            return self._begun(instruction, self._callee(instruction), operands)
        base = "async" if opcode in ("async-update", "async-done") else wrapped_opcode(opcode)
        if base is None:
            return self._operation(instruction, opcode, operands, self.shape(instruction))
        if opcode.endswith("-done"):
            return _done(instruction, operands)
        if _is_update(instruction):
            return self._updated(instruction, operands)
        if base in ("fusion", "call"):
            return self._begun(instruction, self._callee(instruction), operands)
        # `slice-start(x)` names the operation itself, where an async-start calls a computation.
        result = self._parts(instruction)[1]
        results = self._operation(instruction, base, operands, result)
        return self._started(instruction, operands, results)

    def _operation(
        self, instruction: Instruction, opcode: str, operands: list[Values], shape: Shape
    ) -> Values:
        """The results of an instruction, or of the operation that it starts."""
        match opcode:
            case "fusion" | "call":
                return self.computation(self._callee(instruction), operands)
            case "while":
                return control_flow.while_results(self, instruction, operands[0], shape)
            case "conditional":
                return control_flow.conditional_results(self, instruction, operands, shape)
        if opcode in collectives.LOWERED:
            if self.watch is not None and collectives.device_count(self.module) > 1:
                raise NotLowered("it reads the values of other devices")
            return collectives.lowered(self, instruction, operands, opcode, shape)
        if collectives.is_transfer(instruction, operands):
            if self.watch is not None and opcode == "recv":
                raise NotLowered("it reads the values of other devices")
            return collectives.transferred(self, instruction, operands, shape)
        if opcode == "custom-call" and instruction.custom_call_target == "__cudnn$fusion":
            return self.computation(self._callee(instruction), operands)
        if opcode == "custom-call" and self.layout is not None and self.devices > 1:
            results = collectives.crossed(self, instruction, operands)
            if results is not None:
                return results
        return [
            on_device(self, instruction, opcode, [values[device] for values in operands], shape)
            for device in range(self.devices)
        ]

    def _callee(self, instruction: Instruction) -> Computation:
        names = instruction.called_computations
        if len(names) != 1:
            raise NotLowered(f"%{instruction.name} calls no computation")
        return self.body(names[0])

    def _updated(self, update: Instruction, operands: list[Values]) -> Values:
        """The tuple of an async-update, with its own operands bound as well."""
        held, *more = operands
        if not more:
            return held
        *_, start = chain_of(update, lambda step: step.producer() if _is_update(step) else None)
        bound = element_of(held[0], (0,))
        count = len(bound) if isinstance(bound, tuple) else 0
        earlier = [[element_of(value, (0, number)) for value in held] for number in range(count)]
        return self._begun(update, self._callee(start), [*earlier, *more])

    def _begun(self, instruction: Instruction, body: Computation, operands: list[Values]) -> Values:
        """The tuple of an async-start, whose result exists once all operands are bound."""
        results: Values = [()] * self.devices
        if len(operands) >= len(body.parameters):
            results = self.computation(body, operands)
        return self._started(instruction, operands, results)

    def _started(self, instruction: Instruction, operands: list[Values], results: Values) -> Values:
        """The tuple of an async-start: operands, result, and unused contexts."""
        contexts = self.contexts(self._parts(instruction))
        sources = zip(*operands, strict=True) if operands else [()] * self.devices
        return [
            (source, result, *contexts) for source, result in zip(sources, results, strict=True)
        ]

    def _parts(self, instruction: Instruction) -> tuple[Shape, ...]:
        """The shapes in the tuple of an async-start."""
        shape = self.shape(instruction)
        if not isinstance(shape, TupleShape) or len(shape.elements) < 2:
            raise NotLowered(f"%{instruction.name} is not a tuple of operands and results")
        return shape.elements

    def contexts(self, parts: Sequence[Shape]) -> list[LoweredValue]:
        """The unused elements after the operands and the result of a start, as zeros."""
        return [
            assembled(part, iter([self.nodes.filled(0, leaf) for leaf in bare(part)]))
            for part in parts[2:]
        ]


def _is_update(instruction: Instruction) -> bool:
    return instruction.opcode.endswith("-update")


def _done(instruction: Instruction, operands: list[Values]) -> Values:
    """The results of an asynchronous operation, or of the update that bound its last operand."""
    results = [element_of(value, (1,)) for value in operands[0]]
    if () in results and instruction.type_text != "()":
        raise NotLowered(f"%{instruction.name} ends an operation whose operands are not all bound")
    return results


@contextmanager
def _named(instruction: Instruction) -> Iterator[None]:
    """Add the instruction's name to errors of its lowering."""
    try:
        yield
    except NotLowered as error:
        error.instruction = error.instruction or instruction.name
        raise
    except (ArithmeticError, AttributeSyntaxError, LookupError, StopIteration, ValueError) as error:
        message = f"it is malformed: {type(error).__name__}: {error}"
        raise NotLowered(message, instruction.name) from error


def _in_order(wanted: Sequence[Instruction]) -> list[Instruction]:
    """Instructions of a computation with everything they depend on, operands first."""

    def operands(instruction: Instruction) -> list[Instruction]:
        read: list[Instruction] = []
        for operand in collectives.operands_of(instruction):
            if operand.instruction is None:
                reads = f"reads %{operand.name}, which is not defined"
                reason = reads if operand.name else "is computed from itself"
                raise NotLowered(f"%{instruction.name} {reason}")
            read.append(operand.instruction)
        return read[::-1]

    order = operands_first(wanted, operands)
    done: set[Instruction] = set()
    for instruction in order:
        if not done.issuperset(operands(instruction)):
            raise NotLowered(f"%{instruction.name} depends on itself")
        done.add(instruction)
    return order
