"""An evaluator of our own: the logical values of a module, computed with numpy.

It needs no jaxlib, reads the text of every release, and shares no code with a backend, so that it
judges what XLA:CPU says. Layouts matter to `bitcast` alone. Floats are rounded as their types ask;
where HLO leaves an order open (sums, dots) or a function to the backend (`tanh`), doubles are used
and the result is rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from hlo_lint.engine.values.evaluator import (
    contraction,
    elementwise,
    indexing,
    linear,
    movement,
    random,
    reduction,
    single_device,
)
from hlo_lint.engine.values.evaluator.arrays import Array, Numbers, Unsupported, Value, packed
from hlo_lint.engine.values.evaluator.site import Kernel, Site
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Instruction, Module, called_names
from hlo_lint.hlo.opcodes import wrapped_opcode
from hlo_lint.hlo.parser.literals import ELIDED, LiteralValue
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape, arrays
from hlo_lint.text.errors import HloLintError

MAX_WORK: Final = 1 << 33
"""Elementary operations after which an evaluation gives up: a loop that never ends, for one."""
MAX_DEPTH: Final = 100
"""Calls inside calls; a computation that calls itself has no value."""


class NotEvaluated(HloLintError):
    """An instruction that has no value here, and the reason."""

    def __init__(self, instruction: str, reason: str) -> None:
        super().__init__(f"%{instruction}: {reason}" if instruction else reason)
        self.instruction = instruction
        """Its name; empty where the module as a whole cannot be evaluated."""
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The values of a module."""

    result: Value
    """The value of the entry's root; None if only watched instructions were asked for."""
    watched: Mapping[str, Value]
    """The values of watched instructions that ran, by name; the last one of a loop's."""


def evaluate(
    module: Module,
    inputs: Sequence[Value],
    *,
    watch: Collection[str] = (),
    given: Mapping[str, Value] | None = None,
    wide: bool = False,
    needs_result: bool = True,
    max_work: int = MAX_WORK,
) -> Evaluation:
    """Evaluate a module's entry; only what the result and `watch` need is computed.

    Args:
        inputs: the value of each parameter, in order, or of each array in them; each is
            converted to the parameter's type.
        watch: names of instructions, in any computation, whose values are wanted.
        given: values of instructions by name, taken instead of computing them.
        wide: hold every float as a double and round nothing: the values without rounding errors.
        needs_result: False to evaluate what `watch` needs alone.
        max_work: elementary operations after which to give up.

    >>> from hlo_lint.hlo.parser.module import parse_file
    >>> text = "ENTRY e { p = s32[2]{0} parameter(0) ROOT a = s32[2]{0} add(p, p) }"
    >>> (module,) = parse_file(text).modules
    >>> evaluate(module, [np.array([1, 2], np.int32)]).result
    array([2, 4], dtype=int32)

    Raises:
        NotEvaluated: an instruction that is needed has no value here.
    """
    machine = _Machine(module, frozenset(watch), given or {}, Numbers(wide), max_work)
    entry = module.entry
    if entry is None or entry.root is None:
        raise NotEvaluated("", "the module has no entry")
    if module.parse_errors or any(computation.parse_errors for computation in module.computations):
        raise NotEvaluated("", "the module has text that cannot be read")
    arguments = _checked(entry, inputs, machine.numbers)
    with np.errstate(all="ignore"):
        result = machine.run(entry, arguments, lifted=False, needs_root=needs_result)
    return Evaluation(result, machine.watched)


def leaves(value: Value) -> tuple[Array, ...]:
    """The arrays of a value in order, those of tuples in tuples too; tokens are left out."""
    if isinstance(value, tuple):
        return tuple(array for part in value for array in leaves(part))
    return () if value is None else (value,)


def _checked(entry: Computation, inputs: Sequence[Value], numbers: Numbers) -> tuple[Value, ...]:
    """The arguments of the entry: a value for each parameter, or for each array in them."""
    given = [array for value in inputs for array in leaves(value)]
    wanted = [leaf for parameter in entry.parameters for leaf in arrays(parameter.shape_or_none)]
    if len(given) != len(wanted):
        raise NotEvaluated("", f"the entry takes {len(wanted)} arrays, {len(given)} are given")
    rest = iter(given)
    return tuple(
        _as_held(packed(shape, rest), shape, parameter.name, numbers)
        for parameter in entry.parameters
        for shape in (parameter.shape_or_none,)
    )


def _as_held(value: Value, shape: Shape | None, name: str, numbers: Numbers) -> Value:
    """An input as the machine holds it: of the parameter's dimensions and element type."""
    if isinstance(shape, TupleShape):
        parts = value if isinstance(value, tuple) else ()
        if len(parts) != len(shape.elements):
            raise NotEvaluated(name, f"the input is not a tuple of {len(shape.elements)} elements")
        return tuple(
            _as_held(part, element, name, numbers)
            for part, element in zip(parts, shape.elements, strict=True)
        )
    if not isinstance(shape, ArrayShape):
        return None
    array = np.asarray(value)
    if array.shape != shape.dims:
        raise NotEvaluated(name, f"the input has the dimensions {list(array.shape)}, not {shape}")
    return numbers.cast(array, shape.dtype)


@dataclass(slots=True)
class _Step:
    """One instruction of a plan."""

    instruction: Instruction
    kernel: Kernel
    operands: tuple[tuple[str, tuple[int, ...]], ...]
    """Name and element of a tuple."""
    is_watched: bool
    dead: tuple[str, ...] = ()
    """Values that no later step reads."""


@dataclass(slots=True)
class _Machine:
    module: Module
    watch: frozenset[str]
    given: Mapping[str, Value]
    numbers: Numbers
    budget: int
    watched: dict[str, Value] = field(default_factory=dict)
    depth: int = 0
    _plans: dict[tuple[str, bool, bool], list[_Step]] = field(default_factory=dict)
    _computations: dict[str, Computation] = field(default_factory=dict)
    _watching: frozenset[str] = frozenset()
    _arguments: list[tuple[Value, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._computations = {body.name: body for body in self.module.computations}
        self._watching = self._computations_to_enter()

    # Running ------------------------------------------------------------------------------------

    def run(
        self,
        computation: Computation,
        arguments: tuple[Value, ...],
        lifted: bool,
        needs_root: bool = True,
    ) -> Value:
        """The value of a computation's root."""
        if self.depth >= MAX_DEPTH:
            where = f"in %{computation.name}"
            raise NotEvaluated("", f"more than {MAX_DEPTH} calls inside calls, {where}")
        key = (computation.name, lifted, needs_root)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(computation, lifted, needs_root)
        values: dict[str, Value] = {}
        result: Value = None
        self.depth += 1
        self._arguments.append(arguments)
        for step in plan:
            value = self._value(step, values)
            if step.is_watched:
                self.watched[step.instruction.name] = value
            values[step.instruction.name] = result = value
            for name in step.dead:
                del values[name]
        self._arguments.pop()
        self.depth -= 1
        return result if needs_root else None

    def _value(self, step: _Step, values: dict[str, Value]) -> Value:
        name = step.instruction.name
        try:
            operands = [_element(values[operand], index) for operand, index in step.operands]
            value = step.kernel(*operands)
            self.spend(1 + (value.size if isinstance(value, np.ndarray | np.generic) else 0))
        except Unsupported as error:
            raise NotEvaluated(name, f"{error}") from None
        except (ValueError, IndexError, TypeError, KeyError, OverflowError, MemoryError) as error:
            raise NotEvaluated(name, f"its operands do not fit: {error}") from error
        return np.asarray(value) if isinstance(value, np.generic) else value

    def spend(self, operations: int) -> None:
        """Count elementary operations."""
        self.budget -= operations
        if self.budget < 0:
            raise Unsupported("the evaluation takes too many operations")

    def call(self, name: str, lifted: bool, arguments: tuple[Value, ...]) -> Value:
        """The value of a called computation."""
        return self.run(self.computation(name), arguments, lifted)

    def computation(self, name: str) -> Computation:
        """The computation with a name."""
        computation = self._computations.get(name)
        if computation is None:
            raise Unsupported(f"no computation %{name}")
        return computation

    # Planning -----------------------------------------------------------------------------------

    def _computations_to_enter(self) -> frozenset[str]:
        """The computations that hold something watched, or call one that does."""
        if not self.watch:
            return frozenset()
        entered = {c.name for c in self.module.computations if not self.watch.isdisjoint(c.index)}
        # A computation stands before those that call it, but no parser demands that.
        while True:
            callers = {
                c.name
                for c in self.module.computations
                if c.name not in entered
                and any(not entered.isdisjoint(i.called_computations) for i in c.instructions)
            }
            if not callers:
                return frozenset(entered)
            entered |= callers

    def _plan(self, computation: Computation, lifted: bool, needs_root: bool) -> list[_Step]:
        """The instructions to run, in order; the root last if it is needed."""
        root = computation.root
        if root is None:
            raise NotEvaluated("", f"%{computation.name} is empty")
        wanted = {root.name} if needs_root else set()
        if computation.name in self._watching:
            wanted |= {
                instruction.name
                for instruction in computation.instructions
                if instruction.name in self.watch
                or not self._watching.isdisjoint(instruction.called_computations)
            }
        needed: set[str] = set()
        last: dict[str, str] = {}
        for instruction in reversed(computation.instructions):
            name = instruction.name
            if name in needed or name not in wanted:
                continue
            needed.add(name)
            if name not in self.given:
                for operand in instruction.operands:
                    if (
                        operand.instruction is None
                        or operand.instruction.number >= instruction.number
                    ):
                        raise NotEvaluated(
                            name, f"reads %{operand.name}, which is not defined before it"
                        )
                    wanted.add(operand.name)
                    last.setdefault(operand.name, name)
        steps = [
            self._step(instruction, computation, lifted)
            for instruction in computation.instructions
            if instruction.name in needed
        ]
        if needs_root and steps[-1].instruction is not root:  # what is watched may stand after it
            steps.sort(key=lambda step: step.instruction is root)
        dead: dict[str, list[str]] = {}
        for name, reader in last.items():
            if name != root.name:
                dead.setdefault(reader, []).append(name)
        for step in steps:
            step.dead = tuple(dead.get(step.instruction.name, ()))
        return steps

    def _step(self, instruction: Instruction, computation: Computation, lifted: bool) -> _Step:
        name = instruction.name
        watched = name in self.watch and not lifted
        if name in self.given:
            value = _as_held(self.given[name], instruction.shape_or_none, name, self.numbers)
            return _Step(instruction, lambda: value, (), watched)
        try:
            kernel = self._kernel(instruction, computation, lifted)
        except Unsupported as error:
            raise NotEvaluated(name, f"{error}") from None
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise NotEvaluated(name, f"cannot be read: {error}") from error
        operands = tuple((operand.name, operand.index) for operand in instruction.operands)
        return _Step(instruction, kernel, operands, watched)

    def _kernel(self, instruction: Instruction, computation: Computation, lifted: bool) -> Kernel:
        opcode = instruction.opcode
        shape = instruction.shape
        for array in arrays(shape):
            if any(array.dynamic):
                raise Unsupported("a dimension of dynamic size")
        if opcode == "parameter":
            number = instruction.parameter_number or 0
            return lambda: self._arguments[-1][number]
        if opcode == "constant":
            value = _held_literal(instruction.literal, shape, self.numbers)
            return lambda: value
        wrapped = wrapped_opcode(opcode)
        if wrapped is not None and not opcode.endswith("-start"):
            return _update if opcode.endswith("-update") else _done
        site = self._site(instruction, wrapped or opcode, shape, lifted)
        build = _BUILDERS.get(site.opcode) or _CALLS.get(site.opcode)
        if opcode == "custom-call":
            return self._custom_call(instruction)
        if build is None:
            raise Unsupported(f"no value of {opcode}")
        kernel = _checking(build(site), site.shape, lifted)
        return _starting(kernel) if wrapped is not None else kernel

    def _site(self, instruction: Instruction, opcode: str, shape: Shape, lifted: bool) -> Site:
        if opcode != instruction.opcode:
            if not isinstance(shape, TupleShape) or len(shape.elements) < 2:
                raise Unsupported(f"{instruction.opcode} of the shape {shape}")
            shape = shape.elements[1]
        return Site(
            instruction,
            opcode,
            shape,
            tuple(operand.shape for operand in instruction.operands),
            self.numbers,
            lifted,
            self.computation,
            self.call,
            lambda attribute: _callees(instruction, attribute),
            self.spend,
            _runs_on_one_device(self.module),
        )

    def _custom_call(self, call: Instruction) -> Kernel:
        # It needs the lowering of whole modules, which most modules do not.
        from hlo_lint.engine.values.evaluator.custom_calls import custom_call

        def run(module: Module, inputs: tuple[Value, ...]) -> tuple[Array, ...]:
            wide, work = self.numbers.wide, self.budget
            return leaves(evaluate(module, inputs, wide=wide, max_work=work).result)

        return custom_call(call, run)


def _runs_on_one_device(module: Module) -> bool:
    counts = module.attributes
    return counts.get("num_partitions", "1") == "1" and counts.get("replica_count", "1") == "1"


def _callees(instruction: Instruction, attribute: str) -> tuple[str, ...]:
    """The names of the computations that one attribute calls, inline ones too."""
    if attribute not in CALLING_ATTRIBUTES:
        return ()
    text = instruction.attributes.get(attribute)
    if text is None:
        return ()
    if "=" not in text:
        return called_names(f"{attribute}={text}")
    inline = instruction.computation.inline.get(instruction.number, ())
    return tuple(call.computation.name for call in inline if call.computation.text in text)


def _element(value: Value, index: tuple[int, ...]) -> Value:
    for number in index:
        if not isinstance(value, tuple):
            raise Unsupported("an element of what is not a tuple")
        value = value[number]
    return value


def _held_literal(literal: LiteralValue, shape: Shape, numbers: Numbers) -> Value:
    if literal is ELIDED:
        raise Unsupported("a constant that was left out when the text was printed")
    if isinstance(literal, tuple) and isinstance(shape, TupleShape):
        return tuple(
            _held_literal(part, element, numbers)
            for part, element in zip(literal, shape.elements, strict=True)
        )
    if isinstance(literal, np.ndarray) and isinstance(shape, ArrayShape):
        return numbers.cast(literal, shape.dtype)
    return None


def _checking(kernel: Kernel, shape: Shape, lifted: bool) -> Kernel:
    """The kernel, refusing a result of other dimensions than the text gives."""
    if lifted or not isinstance(shape, ArrayShape):
        return kernel
    dims = shape.dims

    def check(*operands: Value) -> Value:
        value = np.asarray(kernel(*operands))
        if value.shape != dims:
            raise Unsupported(f"its operands give the dimensions {list(value.shape)}, not {shape}")
        return value

    return check


# Calls ------------------------------------------------------------------------------------------


def _call(site: Site) -> Kernel:
    name = site.callee("to_apply", "calls")
    return lambda *operands: site.call(name, site.lifted, operands)


def _while(site: Site) -> Kernel:
    condition, body = site.callee("condition"), site.callee("body")
    if site.lifted:
        raise Unsupported("a loop inside a reducer")

    def loop(value: Value) -> Value:
        while bool(site.call(condition, False, (value,))):
            value = site.call(body, False, (value,))
        return value

    return loop


def _conditional(site: Site) -> Kernel:
    if site.lifted:
        raise Unsupported("a conditional inside a reducer")
    branches = site.callees("branch_computations")
    by_index = isinstance(site.operand_shapes[0], ArrayShape) and site.operand(0).dtype != "pred"
    if not branches:
        branches = (site.callee("true_computation"), site.callee("false_computation"))

    def choose(selector: Array, *operands: Value) -> Value:
        # An index that names no branch takes the last one; of a pred the first branch is true's.
        number = int(selector) if by_index else int(not bool(selector))
        number = number if 0 <= number < len(branches) else len(branches) - 1
        return site.call(branches[number], False, (operands[number],))

    return choose


def _starting(kernel: Kernel) -> Kernel:
    return lambda *operands: (operands, kernel(*operands), np.zeros((), np.uint32))


def _async_start(site: Site) -> Kernel:
    return _starting(_call(site))


def _update(value: Value) -> Value:
    return value


def _done(value: Any) -> Value:
    if not isinstance(value, tuple) or len(value) < 2:
        raise Unsupported("the end of what did not start here")
    result: Value = value[1]
    return result


_CALLS: Final[dict[str, Callable[[Site], Kernel]]] = {
    "call": _call,
    "fusion": _call,
    "while": _while,
    "conditional": _conditional,
    "async-start": _async_start,
    "async-update": lambda _: _update,
    "async-done": lambda _: _done,
}
_BUILDERS: Final[dict[str, Callable[[Site], Kernel]]] = {
    **elementwise.BUILDERS,
    **movement.BUILDERS,
    **contraction.BUILDERS,
    **reduction.BUILDERS,
    **indexing.BUILDERS,
    **linear.BUILDERS,
    **random.BUILDERS,
    **single_device.BUILDERS,
}
