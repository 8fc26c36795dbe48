"""From the text of a module to the values that it computes.

Fusions and calls are inlined, copies and layouts vanish, an asynchronous operation is the operation
that it wraps, a custom call is what its configuration says. A module of several devices becomes one
program that computes the values of all of them (`collectives.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from hlo_lint.analysis.cycles import cycles_of
from hlo_lint.analysis.endless_loops import endless
from hlo_lint.analysis.loops import Loop, read_loop
from hlo_lint.analysis.walks import operands_first
from hlo_lint.engine.values.inputs import index_limit
from hlo_lint.engine.values.lowering.cuts import cut
from hlo_lint.engine.values.lowering.graph import (
    Attributes,
    Graph,
    LoweredValue,
    Node,
    Nodes,
    NotLowered,
    Shapes,
    assembled,
    bare,
    leaf_nodes,
)
from hlo_lint.engine.values.lowering.memory import (
    bitcast_value,
    by_descriptor,
    from_memory,
    in_memory,
    untiled,
)
from hlo_lint.engine.values.lowering.program import Cut, Input, Program
from hlo_lint.engine.values.lowering.watch import Lasts, Watch
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Instruction, Module
from hlo_lint.hlo.opcodes import COMMON, FIRST_INDEX, OPCODES, wrapped_opcode
from hlo_lint.hlo.parser.literals import ELIDED, LiteralError, LiteralValue
from hlo_lint.hlo.shape import (
    ArrayShape,
    Shape,
    ShapeSyntaxError,
    TupleShape,
    arrays,
    spelled_index,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hlo_lint.engine.values.lowering.shards import ProgramShardings

MAX_DEVICES: Final = 32
"""A program of more devices is not simulated: each has its own copy of every value."""
_FREE: Final = frozenset("copy opt-barrier add-dependency domain optimization-barrier".split())
"""Opcodes whose result is their first operand, wherever it lies in memory."""
_DROPPED: Final = frozenset(
    "algorithm async_execution_thread channel_id constrain_layout custom_call_has_side_effect "
    "indices_are_sorted inferred_dimension is_composite is_stable operand_precision origin "
    "output_to_operand_aliasing result_accuracy unique_indices use_global_device_ids".split()
) | frozenset(COMMON)
"""Attributes that say how a value is computed, and not which value it is."""

Values = list[LoweredValue]
"""A value on each device."""


@dataclass
class Lowering:
    """One module on its way to its values."""

    module: Module
    nodes: Nodes
    replicated: frozenset[int] = frozenset()
    """The entry parameters that have the same value on all devices."""
    layout: ProgramShardings | None = None
    """The shardings of whole arrays: the program takes and gives whole ones."""
    is_partitioned: bool = False
    """True if the module has the parts of `layout`, False if it has the whole arrays."""
    cuts: list[Cut] = field(default_factory=list)
    endless: list[str] = field(default_factory=list)
    origins: dict[tuple[str, int], Instruction] = field(default_factory=dict)
    last: dict[tuple[str, int], Instruction] = field(default_factory=dict)
    scope: str = ""
    by_name: dict[str, Computation] = field(default_factory=dict)
    """The computations of the module."""
    iterations: tuple[Callable[[], Node] | None, ...] = ()
    """Of each loop around the instructions that are being lowered, outermost first: makes the
    number of the iteration, from 0; None where the loop is not annotated."""
    devices: int = 1
    """The devices that the module runs on; before `program`, those of the rest of the run."""
    watch: Watch | None = None
    """The instructions whose values are the results, in place of that of the entry computation:
    only what these need is lowered, and for one device."""

    def __post_init__(self) -> None:
        if self.by_name:
            return  # of the same module in another scope
        self.by_name.update({body.name: body for body in self.module.computations})
        for computation in self.module.computations:
            for inner in computation.inline.values():
                self.by_name.update({call.computation.name: call.computation for call in inner})

    def program(self) -> Program:
        """The values of the module.

        Raises:
            NotLowered: it holds something that cannot be made to run.
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
            raise NotLowered(f"it is not sound: {error}") from error
        if self.devices > MAX_DEVICES:
            raise NotLowered(f"it runs on {self.devices} devices, more than {MAX_DEVICES}")
        inputs, arguments = self._inputs(entry)
        try:
            results = self.computation(entry, arguments)
        except RecursionError:
            raise NotLowered("it has too many calls inside calls") from None
        leaves = [list(leaf_nodes(value)) for value in results]
        if self.watch is not None:
            roots = self.watch.results(list(self.watch.seen))
        elif self.layout is None:
            roots = list(chain.from_iterable(leaves))
        elif self.is_partitioned:
            columns = list(zip(self.layout.results, zip(*leaves, strict=True), strict=True))
            roots = [sharded.joined(self.nodes, parts) for sharded, parts in columns]
            roots += [
                sharded.joined(self.nodes, parts, takes_last=True)
                for sharded, parts in columns
                if sharded.has_copies
            ]
        else:
            results_of = zip(self.layout.results, leaves[0], strict=True)
            roots = leaves[0] + [node for sharded, node in results_of if sharded.has_copies]
        devices = self.devices if self.layout is None else 1
        graph = self.nodes.graph(tuple(node.shape for node in inputs), roots, gives_tuple=True)
        return Program(
            graph,
            tuple(inputs),
            self.origins,
            self.last,
            tuple(self.cuts),
            devices,
            tuple(self.endless),
        )

    def _device_count(self, in_run: int) -> int:
        from hlo_lint.engine.values.lowering.collectives import (
            device_count,
            has_regions,
            header_devices,
        )

        if self.layout is None:
            own = device_count(self.module)
            return in_run if own == 1 and header_devices(self.module) == in_run else own
        return self.layout.devices if self.is_partitioned or has_regions(self.module) else 1

    def _inputs(self, entry: Computation) -> tuple[list[Input], list[Values]]:
        """The parameters of the program, and those of the module on each device."""
        from hlo_lint.engine.values.lowering.collectives import given_inputs

        inputs: list[Input] = []
        arguments: list[Values] = []
        leaf = 0
        given = given_inputs(self.module, self.devices) if self.devices > 1 else {}
        needed = set(entry.parameters if self.watch is None else self._in_order(entry))
        for parameter in entry.parameters:
            if parameter not in needed:
                arguments.append([None])
                leaf += len(list(arrays(parameter.shape_or_none)))
                continue
            with _named(parameter):
                shapes = list(bare(self.shape(parameter)))
                limit = index_limit(parameter, self.module)
            number = parameter.parameter_number or 0
            shared = number in self.replicated or self.layout is not None
            own = shapes
            if self.layout is not None and self.is_partitioned:
                spread = self.layout.parameters[leaf : leaf + len(shapes)]
                if [sharded.part for sharded in spread] != shapes:
                    raise NotLowered(f"%{parameter.name} is not a part of what it was")
                shapes = [sharded.shape for sharded in spread]
            values: Values = []
            for device in range(self.devices):
                if not (shared and device):
                    first = len(inputs)
                    inputs += [
                        Input(leaf + at, device, shape, limit, given.get((number, device), ()))
                        for at, shape in enumerate(shapes)
                    ]
                whole = [self.nodes.parameter(first + at, shape) for at, shape in enumerate(shapes)]
                if own is not shapes:
                    pairs = zip(spread, whole, strict=True)
                    whole = [sharded.cut(self.nodes, node, device) for sharded, node in pairs]
                values.append(assembled(self.shape(parameter), iter(whole)))
            arguments.append(values)
            leaf += len(shapes)
        return inputs, arguments

    def shape(self, instruction: Instruction) -> Shape:
        """The shape that an instruction spells."""
        try:
            return instruction.shape
        except ShapeSyntaxError as error:
            raise NotLowered(f"%{instruction.name} has no shape: {error}") from error

    def computation(self, computation: Computation, arguments: Sequence[Values]) -> Values:
        """The result of a computation on each device."""
        by_name: dict[str, Values] = {}
        for instruction in self._in_order(computation):
            begin = len(self.nodes.made)
            with _named(instruction):
                values = self._values(instruction, by_name, arguments)
            if self.watch is not None and instruction in self.watch.instructions:
                operands = (
                    _part(by_name[operand.name][0], operand.index)
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
        self,
        instruction: Instruction,
        by_name: Mapping[str, Values],
        arguments: Sequence[Values],
    ) -> Values:
        if instruction.opcode == "parameter":
            number = instruction.parameter_number
            if number is None or number >= len(arguments):
                raise NotLowered(f"%{instruction.name} is a parameter without a number")
            return arguments[number]
        operands = [
            [_part(value, operand.index) for value in by_name[operand.name]]
            for operand in instruction.operands
        ]
        return self._instruction(instruction, operands)

    def _in_order(self, computation: Computation) -> list[Instruction]:
        """The instructions that are lowered, operands first."""
        assert computation.root is not None
        wanted = self.watch.wanted(computation) if self.watch is not None else []
        if self.watch is None or not computation.is_entry:
            wanted.append(computation.root)
        return _in_order(wanted)

    def body(self, name: str) -> Computation:
        """A called computation."""
        computation = self.by_name.get(name.strip().removeprefix("%"))
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
        shapes: list[ArrayShape] = []
        arguments: list[Values] = []
        for parameter in computation.parameters:
            leaves = list(bare(self.shape(parameter)))
            first = len(shapes)
            shapes += leaves
            nodes = iter([self.nodes.parameter(first + at, leaf) for at, leaf in enumerate(leaves)])
            arguments.append([assembled(self.shape(parameter), nodes)])
        inner = replace(self, scope=computation.name, devices=1, watch=None)
        (value,) = inner.computation(computation, arguments)
        return self.nodes.graph(tuple(shapes), list(leaf_nodes(value)))

    # ---- one instruction

    def _instruction(self, instruction: Instruction, operands: list[Values]) -> Values:
        opcode = instruction.opcode
        match opcode:
            case "fusion" | "call" | "async-start":
                return self._call(instruction, operands)
            case "while":
                return self._while(instruction, operands[0])
            case "conditional":
                return self._conditional(instruction, operands)
            case "async-update":
                return operands[0]
            case "async-done":
                return [_part(value, (1,)) for value in operands[0]]
        from hlo_lint.engine.values.lowering import collectives

        if opcode in collectives.LOWERED:
            if self.watch is not None and collectives.device_count(self.module) > 1:
                raise NotLowered("it reads the values of other devices")
            return collectives.lowered(self, instruction, operands)
        if opcode == "custom-call" and self.layout is not None and self.devices > 1:
            results = collectives.crossed(self, instruction, operands)
            if results is not None:
                return results
        base = wrapped_opcode(opcode)
        if base is not None:
            return self._sugar(instruction, base, operands)
        return [
            self._on_device(instruction, opcode, [values[device] for values in operands])
            for device in range(self.devices)
        ]

    def _call(self, instruction: Instruction, operands: list[Values]) -> Values:
        names = instruction.called_computations
        is_start = instruction.opcode == "async-start"
        if len(names) != 1:
            raise NotLowered(f"%{instruction.name} calls no computation")
        results = self.computation(self.body(names[0]), operands)
        return self._started(instruction, operands, results) if is_start else results

    def _started(self, instruction: Instruction, operands: list[Values], results: Values) -> Values:
        """The tuple of an async-start: operands, the result, and contexts that nobody reads."""
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
        """The values after the operands and the result of a start: zeros, which nobody reads."""
        return [
            assembled(part, iter([self.nodes.filled(0, leaf) for leaf in bare(part)]))
            for part in parts[2:]
        ]

    def _sugar(self, instruction: Instruction, base: str, operands: list[Values]) -> Values:
        """`slice-start(x)`: the operation that an async-start would call, written in its place."""
        if not instruction.opcode.endswith("-start"):
            return [
                value if instruction.opcode.endswith("-update") else _part(value, (1,))
                for value in operands[0]
            ]
        from hlo_lint.engine.values.lowering.collectives import LOWERED, lowered

        shape = self._parts(instruction)[1]
        if base in ("fusion", "call"):
            results = self.computation(self.body(instruction.called_computations[0]), operands)
        elif base in LOWERED:
            results = lowered(self, instruction, operands, base, shape)
        else:
            results = [
                self._on_device(instruction, base, [values[at] for values in operands], shape)
                for at in range(self.devices)
            ]
        return self._started(instruction, operands, results)

    def _while(self, instruction: Instruction, states: Values) -> Values:
        shape = self.shape(instruction)
        computation = self.called(instruction, "body")
        test = self.called(instruction, "condition")
        if reason := endless(Loop(instruction, computation, test)):
            self.endless.append(f"the loop %{instruction.name} {reason}")
        carried = self._carried(computation.name)
        leaves = [node for value in states for node in leaf_nodes(value)]
        leaves += self.watch.initial_values(carried) if self.watch is not None else []
        shapes = tuple(leaf.shape for leaf in leaves)
        begin = len(self.nodes.made)
        state, last = self._state(shape, shapes, carried)
        inner = replace(self, iterations=(*self.iterations, self._iteration(instruction, state)))
        body = inner._body(computation, state, shapes, carried, last)
        goes_on = replace(self, watch=None).computation(test, [state])
        # All devices run the loop as often: XLA demands it where the body communicates.
        condition = self.nodes.graph(shapes, [next(leaf_nodes(goes_on[0]))], takes_tuple=True)
        del self.nodes.made[begin:]  # they are inside the loop
        if tuple(root.shape for root in body.roots) != shapes:
            raise NotLowered(f"the body of %{instruction.name} gives another state than it takes")
        loop = self.nodes.make(
            "while", shapes, leaves, called=(("condition", condition), ("body", body))
        )
        results = self._results(shape, loop, carried)
        if self._carried(test.name):
            self.computation(test, [results])  # it runs once more after the last iteration
        return results

    def _carried(self, *computations: str) -> list[Instruction]:
        """The watched instructions in computations, whose values go with their results."""
        inside = self.watch.inside if self.watch is not None else lambda _: []
        return list(dict.fromkeys(watched for name in computations for watched in inside(name)))

    def _state(
        self, shape: Shape, shapes: Shapes, carried: Sequence[Instruction] = ()
    ) -> tuple[Values, Lasts]:
        """The parameter of a body on each device: its arrays, the devices one after the other.

        After them are the values of watched instructions in the iteration before.
        """
        nodes = iter([self.nodes.parameter(at, leaf) for at, leaf in enumerate(shapes)])
        state = [assembled(shape, nodes) for _ in range(self.devices)]
        return state, self.watch.last_values(carried, nodes) if self.watch is not None else []

    def _body(
        self,
        body: Computation,
        state: Values,
        shapes: Shapes,
        carried: Sequence[Instruction],
        last: Lasts = (),
    ) -> Graph:
        """The body of a loop, or a branch: from a tuple to a tuple."""
        watch = None if self.watch is None else self.watch.scoped(last)
        results = replace(self, scope=body.name, watch=watch).computation(body, [state])
        roots = [node for value in results for node in leaf_nodes(value)]
        roots += [] if watch is None else watch.results(carried)
        return self.nodes.graph(shapes, roots, takes_tuple=True, gives_tuple=True)

    def _results(self, shape: Shape, node: Node, carried: Sequence[Instruction]) -> Values:
        """The result of a loop or a conditional on each device; what is watched in it is seen."""
        every = iter(self.nodes.elements(node))
        values = [assembled(shape, every) for _ in range(self.devices)]
        if self.watch is not None:
            for instruction, last in self.watch.last_values(carried, every):
                self.watch.see(instruction, *last)
        return values

    def _iteration(self, instruction: Instruction, state: Values) -> Callable[[], Node] | None:
        loop = read_loop(instruction)
        if loop is None or loop.induction_variable is None or not loop.step:
            return None
        variable = _part(state[0], (loop.induction_variable,))
        if not isinstance(variable, Node):
            return None

        def iteration() -> Node:
            wide = self.nodes.convert(variable, "s64")
            start = self.nodes.scalar(loop.init, "s64")
            passed = self.nodes.binary("subtract", wide, start)
            return self.nodes.binary("divide", passed, self.nodes.scalar(loop.step, "s64"))

        return iteration

    def _conditional(self, instruction: Instruction, operands: list[Values]) -> Values:
        bodies = [self.body(name) for name in instruction.called_computations]
        shape = self.shape(instruction)
        predicate = next(leaf_nodes(operands[0][0]))
        leaves = [
            [node for value in values for node in leaf_nodes(value)] for values in operands[1:]
        ]
        branches: list[Graph] = []
        carried = self._carried(*instruction.called_computations)
        for body, arguments in zip(bodies, leaves, strict=True):
            shapes = tuple(leaf.shape for leaf in arguments)
            begin = len(self.nodes.made)
            state, _ = self._state(self.shape(body.parameters[0]), shapes)
            branches.append(self._body(body, state, shapes, carried))
            del self.nodes.made[begin:]  # they are inside the branch
        shapes = tuple(root.shape for root in branches[0].roots)
        if predicate.shape.dtype == "pred":
            # The first computation is that of true; branch 0 of an index is the first one.
            index = self.nodes.make("not", predicate.shape, (predicate,))
            predicate = self.nodes.convert(index, "s32")
        # The numbers of operands of each branch, so that two splits of one list are not equal.
        counts = (("", spelled_index(len(branch) for branch in leaves)),)
        node = self.nodes.make(
            "conditional",
            shapes,
            (predicate, *(leaf for arguments in leaves for leaf in arguments)),
            counts,
            tuple(("branch", branch) for branch in branches),
        )
        return self._results(shape, node, carried)

    # ---- an instruction on one device

    def _on_device(
        self,
        instruction: Instruction,
        opcode: str,
        operands: list[LoweredValue],
        shape: Shape | None = None,
    ) -> LoweredValue:
        shape = shape or self.shape(instruction)
        if opcode in _FREE:
            kept = operands[0]
            if isinstance(kept, Node) and isinstance(shape, ArrayShape):
                return self.nodes.convert(kept, shape.dtype)  # XLA:TPU rounds in a copy
            return kept
        if opcode == "get-tuple-element":
            index = instruction.attribute("index")
            return _part(operands[0], (index,) if isinstance(index, int) else ())
        if opcode == "copy-done":
            return _part(operands[0], (0,))
        if opcode == "tuple":
            return tuple(operands)
        if opcode == "after-all":
            return None
        if opcode == "copy-start":
            parts = shape.elements if isinstance(shape, TupleShape) else ()
            return (operands[0], operands[0], *self.contexts(parts))
        if opcode == "custom-call":
            from hlo_lint.engine.values.lowering.custom_calls import lowered_call

            return lowered_call(self, instruction, operands)
        leaves = [node for value in operands for node in leaf_nodes(value)]
        match opcode:
            case "constant":
                return self._constant(instruction, shape)
            case "bitcast" if isinstance(shape, ArrayShape):
                source = instruction.operands[0].shape
                if isinstance(source, ArrayShape):
                    return bitcast_value(
                        self.nodes, leaves[0], source, next(bare(shape)).with_layout(shape.layout)
                    )
            case "reshape" if isinstance(shape, ArrayShape):
                next(bare(shape))
                return self.nodes.reshape(leaves[0], shape.dims)
            case "transpose":
                permutation = instruction.integers_attribute("dimensions") or ()
                return self.nodes.transpose(leaves[0], permutation)
            case "broadcast" if isinstance(shape, ArrayShape):
                node = self.nodes.convert(leaves[0], shape.dtype)
                dimensions = instruction.integers_attribute("dimensions") or ()
                return self.nodes.broadcast(node, shape.dims, dimensions)
            case "convert" if isinstance(shape, ArrayShape):
                return self.nodes.convert(leaves[0], shape.dtype)
            case "convolution" if isinstance(shape, ArrayShape) and len(leaves) == 2:
                from hlo_lint.engine.values.lowering.convolutions import plain

                return plain(self.nodes, instruction, leaves, next(bare(shape)))
            case "dynamic-slice" | "dynamic-update-slice":
                first = FIRST_INDEX[opcode]
                if [start.shape.rank for start in leaves[first:]] == [1]:  # as XLA wrote until 2019
                    leaves = [*leaves[:first], *self.nodes.scalars(leaves[first])]
                described = by_descriptor(self, instruction, opcode, leaves, shape)
                if described is not None:
                    return described
            case "get-dimension-size" if isinstance(shape, ArrayShape):
                (axis,) = instruction.integers_attribute("dimensions") or ()
                return self.nodes.scalar(leaves[0].shape.dims[axis], shape.dtype)
            case "topk":
                from hlo_lint.engine.values.lowering.custom_calls import top_k

                largest = instruction.attribute("largest") is not False
                return assembled(shape, iter(top_k(self, leaves[0], list(bare(shape)), largest)))
            case "scan" | "ragged-dot" | "scaled-dot":
                expanded = self._expanded(instruction, opcode, leaves, list(bare(shape)))
                if expanded:
                    return assembled(shape, iter(expanded))
        if opcode not in OPCODES or opcode in _UNRUNNABLE:
            return self.cut(instruction, opcode, operands, shape)
        shapes = tuple(bare(shape))
        attributes, called = self._attributes(instruction, opcode)
        node = self.nodes.make(opcode, shapes, leaves, attributes, called)
        if not isinstance(shape, TupleShape):
            return node
        return assembled(shape, iter(self.nodes.elements(node)))

    def _expanded(
        self,
        instruction: Instruction,
        opcode: str,
        leaves: list[Node],
        results: list[ArrayShape],
    ) -> list[Node]:
        """The results of an operation that XLA:CPU has in other words; none if it is not known."""
        from hlo_lint.engine.values.lowering import expansions

        if opcode == "scan":
            return expansions.scan(self, instruction, leaves, results)
        if opcode == "ragged-dot":
            return [expansions.ragged_dot(self, instruction, leaves, results[0])]
        result = expansions.scaled_dot(self, instruction, leaves, results[0])
        return [] if result is None else [result]

    def cut(
        self,
        instruction: Instruction,
        what: str,
        operands: Sequence[LoweredValue],
        shape: Shape,
        operand_shapes: Sequence[Shape | None] | None = None,
    ) -> LoweredValue:
        """The results of an operation that cannot be run: some function of its operands."""
        read = _operand_shapes(instruction) if operand_shapes is None else operand_shapes
        # What is not a kernel of its own is a function of indices, in whatever layout.
        is_logical = instruction.opcode != "custom-call" or what.startswith(_LOGICAL)

        def lying(shape: Shape | None) -> list[ArrayShape]:
            return [
                leaf.with_layout(None) if is_logical else untiled(leaf) for leaf in arrays(shape)
            ]

        shapes = [lying(shape) for shape in read]
        rows: list[Node] = []
        for value, of_operand in zip(operands, shapes, strict=False):
            for node, leaf in zip(leaf_nodes(value), of_operand, strict=False):
                rows.append(in_memory(self.nodes, node, leaf) if leaf.dims else node)
        results = lying(shape)
        signature = (
            f"{[str(row.shape) for row in rows]} -> {[str(r.with_layout(None)) for r in results]}"
        )
        self.cuts.append(Cut(instruction, what, signature))
        leaves = [
            from_memory(self.nodes, row, leaf) if leaf.dims else row
            for row, leaf in zip(
                cut(self.nodes, what, rows, list(bare(shape))), results, strict=True
            )
        ]
        return assembled(shape, iter(leaves))

    def _attributes(
        self, instruction: Instruction, opcode: str
    ) -> tuple[Attributes, tuple[tuple[str, Graph], ...]]:
        """The attributes that decide on the value, and the computations, lowered."""
        allowed = (OPCODES[opcode].allowed - _DROPPED) | set(OPCODES[opcode].required)
        attributes: list[tuple[str, str]] = []
        called: list[tuple[str, Graph]] = []
        for name, text in instruction.attributes.items():
            if name not in allowed:
                continue
            if name in CALLING_ATTRIBUTES:
                called.append((name, self.function(self.called(instruction, name))))
            elif (name, text) == ("order", "TOTAL"):
                attributes.append(("type", "TOTALORDER"))  # as releases before 0.11 spell it
            elif (name, text) not in _DEFAULTS:
                attributes.append((name, " ".join(text.split())))
        return tuple(sorted(attributes)), tuple(called)

    def _constant(self, instruction: Instruction, shape: Shape) -> LoweredValue:
        try:
            literal = instruction.literal
        except LiteralError as error:
            raise NotLowered(f"%{instruction.name}: {error}") from error
        return self._literal(instruction, shape, literal)

    def _literal(
        self, instruction: Instruction, shape: Shape, literal: LiteralValue
    ) -> LoweredValue:
        if literal is ELIDED:
            return self.cut(instruction, "constant({...})", (), shape)
        if isinstance(shape, TupleShape):
            assert isinstance(literal, tuple)
            return tuple(
                self._literal(instruction, element, part)
                for element, part in zip(shape.elements, literal, strict=True)
            )
        if literal is None or not isinstance(shape, ArrayShape):
            return None
        array: NDArray[Any] = literal  # type: ignore[assignment]
        return self.nodes.constant(array, shape.dtype)


_UNRUNNABLE: Final = frozenset(
    "infeed outfeed rng rng-get-and-update-state send send-done recv recv-done scan scaled-dot "
    "ragged-dot stochastic-convert dynamic-reshape set-dimension-size".split()
)
"""Opcodes that have no value of their own on one CPU, or that jaxlib does not read."""
_LOGICAL: Final = ("__cublas$", "__cudnn$", "__onednn$")
"""Calls of XLA's own that layout-assignment may give operands in any layout."""
_DEFAULTS: Final = frozenset(
    {("feature_group_count", "1"), ("batch_group_count", "1"), ("order", "PARTIAL")}
)


def _operand_shapes(instruction: Instruction) -> list[Shape | None]:
    """The shapes of the operands as an operation reads them: before layout-assignment only the
    constraints of a custom call say how."""
    constraints = instruction.attribute("operand_layout_constraints")
    shapes = [operand.shape for operand in instruction.operands]
    if not isinstance(constraints, tuple) or len(constraints) != len(shapes):
        return shapes
    return [
        given if isinstance(given, ArrayShape | TupleShape) else shape
        for given, shape in zip(constraints, shapes, strict=True)
    ]


def _part(value: LoweredValue, index: Sequence[int]) -> LoweredValue:
    """One element of a tuple."""
    for number in index:
        if not isinstance(value, tuple) or number >= len(value):
            raise NotLowered("an element is read of what is not a tuple")
        value = value[number]
    return value


@contextmanager
def _named(instruction: Instruction) -> Iterator[None]:
    """Names the instruction in the errors of its lowering."""
    try:
        yield
    except NotLowered as error:
        error.instruction = error.instruction or instruction.name
        raise
    except (ArithmeticError, AttributeSyntaxError, LookupError, StopIteration, ValueError) as error:
        message = f"it is not sound: {type(error).__name__}: {error}"
        raise NotLowered(message, instruction.name) from error


def _in_order(wanted: Sequence[Instruction]) -> list[Instruction]:
    """Instructions of one computation and those that they need, operands first."""

    def operands(instruction: Instruction) -> list[Instruction]:
        read: list[Instruction] = []
        for operand in instruction.operands:
            if operand.instruction is None:
                reads = f"reads %{operand.name}, which is not there"
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
