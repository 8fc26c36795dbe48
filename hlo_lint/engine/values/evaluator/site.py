"""An instruction as a kernel is made for it: its shapes, attributes, and what it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from hlo_lint.engine.values.evaluator.arrays import Array, Numbers, Unsupported, Value
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.shape import ArrayShape, Shape, TupleShape

Kernel: TypeAlias = Callable[..., Value]
"""A function of the operands' values."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Site:
    """One instruction, with what a kernel needs to know of it."""

    instruction: Instruction
    opcode: str
    """Without the sugar of an asynchronous wrapper."""
    shape: Shape
    """The shape of the result; of an asynchronous start that of what it wraps."""
    operand_shapes: tuple[Shape | None, ...]
    numbers: Numbers
    lifted: bool
    """True if scalars stand for whole arrays of scalars, as in the body of a reduction."""
    computation: Callable[[str], Computation]
    """The computation with a name."""
    call: Callable[[str, bool, tuple[Value, ...]], Value]
    """Run a computation: its name, True to lift it, its arguments."""
    callees: Callable[[str], tuple[str, ...]]
    """The names of the computations that an attribute calls."""
    spend: Callable[[int], None]
    """Count elementary operations; raises where the budget is used up."""
    is_single_device: bool
    """True if the module runs on one device."""

    @property
    def array(self) -> ArrayShape:
        """The shape of the result, which is an array."""
        if not isinstance(self.shape, ArrayShape):
            raise Unsupported(f"a result of the shape {self.shape}")
        return self.shape

    @property
    def results(self) -> tuple[ArrayShape, ...]:
        """The shapes of the results: the elements of a tuple, or the one array."""
        shapes = self.shape.elements if isinstance(self.shape, TupleShape) else (self.shape,)
        arrays = tuple(shape for shape in shapes if isinstance(shape, ArrayShape))
        if len(arrays) != len(shapes):
            raise Unsupported(f"a result of the shape {self.shape}")
        return arrays

    def returned(self, arrays: tuple[Array, ...]) -> Value:
        """The results, as a tuple where the shape is one."""
        return arrays if isinstance(self.shape, TupleShape) else arrays[0]

    def operand(self, number: int) -> ArrayShape:
        """The shape of an operand, which is an array."""
        shape = self.operand_shapes[number]
        if not isinstance(shape, ArrayShape):
            raise Unsupported(f"an operand of the shape {shape}")
        return shape

    def attribute(self, name: str, default: _T) -> _T:
        """The value of an attribute, or the default where it is left out.

        Raises:
            Unsupported: the value is of another kind than the default.
        """
        value: Any = self.instruction.attribute(name)
        if value is None:
            return default
        if not isinstance(value, type(default)):
            raise Unsupported(f"{name}={self.instruction.attributes[name]}")
        return value

    def integers(self, name: str) -> tuple[int, ...]:
        """The value of an attribute that lists dimensions or sizes; empty where it is left out."""
        empty: tuple[int, ...] = ()
        return self.attribute(name, empty)

    def callee(self, *names: str) -> str:
        """The computation that the first of these attributes calls which stands there."""
        for name in names:
            computations = self.callees(name)
            if computations:
                return computations[0]
        raise Unsupported(f"no {names[0]}")

    def lift(self, computation: str) -> Callable[..., tuple[Array, ...]]:
        """A function of scalars as one of arrays of scalars: element by element."""

        def apply(*arguments: Array) -> tuple[Array, ...]:
            value = self.call(computation, True, arguments)
            parts = value if isinstance(value, tuple) else (value,)
            arrays = tuple(
                part for part in parts if part is not None and not isinstance(part, tuple)
            )
            if len(arrays) != len(parts):
                raise Unsupported(f"%{computation} gives no arrays")
            return arrays

        return apply
