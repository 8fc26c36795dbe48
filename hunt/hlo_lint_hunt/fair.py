"""Fair modules: modules without operations whose results XLA leaves undefined.

`docs/hunt.md` quotes XLA for each such operation.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from hlo_lint.analysis.walks import chain
from hlo_lint.hlo.constants import constant_integers, constant_of, number_of
from hlo_lint.hlo.dtypes import BITS, is_complex, is_float, is_integer, is_signed, neutral_element
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint_hunt.random_module import DRAWN_OPCODES, SETS

ARG_REDUCTION: Final = Counter(
    "parameter parameter parameter parameter compare compare compare and or select select "
    "tuple".split()
)


def unfair(module: Module) -> str:
    """The reason why the results of a module are undefined; empty if they are defined."""
    for parameter in module.entry.parameters if module.entry else ():
        if not isinstance(parameter.shape_or_none, ArrayShape):
            return f"%{parameter.name} is not an array"
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode not in DRAWN_OPCODES:
                return f"no front end writes {instruction.opcode}"
            if reason := _left_open(instruction, module):
                return f"%{instruction.name}: {reason}"
    return ""


def _left_open(instruction: Instruction, module: Module) -> str:
    """The reason why the result of an instruction is undefined; empty if it is defined."""
    match instruction.opcode:
        case "constant" if "..." in instruction.operands_text:
            return "its numbers are not printed"
        case "power" if is_integer(_dtype(instruction)):
            return "a power of integers"
        case "divide" | "remainder" if is_integer(_dtype(instruction)):
            divisors = constant_integers(instruction.producer(1))
            if divisors is None or {0, -1} & {*divisors}:
                return "an integer divisor may be 0 or -1"
        case "convert" if is_integer(_dtype(instruction)) and not _is_in_range(instruction):
            return "a float that may be out of range becomes an integer"
        case "bitcast-convert" if not is_integer(_dtype(instruction.producer())):
            return "the bits of a NaN are undefined"
        case "compare" if instruction.attribute_text("type") == "TOTALORDER":
            return "the order of NaNs"
        case "sort":
            is_stable = instruction.attribute_text("is_stable") == "true"
            if len(instruction.operands) > 1 and not is_stable:
                return "equal keys in any order"
            if not _body(instruction, module).startswith(("compare LT", "compare GT")):
                return "its comparator is not a strict order"
        case "select-and-scatter":
            is_zero = number_of(constant_of(instruction.producer(2))) == 0
            is_sum = _body(instruction, module, "scatter").startswith("add")
            is_exact = is_zero and is_sum and is_integer(_dtype(instruction))
            if not is_exact or _body(instruction, module, "select") != "compare GE 0":
                return "its computations are not those of a pooling"
        case "set-dimension-size":
            return _of_size(instruction)
        case "all-reduce" | "reduce" | "reduce-scatter" | "reduce-window" | "scatter":
            return _of_combiner(instruction, _body(instruction, module))
    return ""


def _dtype(instruction: Instruction | None) -> str:
    shape = instruction.shape_or_none if instruction is not None else None
    return shape.dtype if isinstance(shape, ArrayShape) else ""


def _body(instruction: Instruction, module: Module, name: str = "to_apply") -> str:
    """A called computation with a single operation: `compare LT 0`; empty for others."""
    body = module.computation((instruction.attribute_text(name) or "").lstrip("%"))
    root = body.root if body is not None else None
    if body is None or root is None:
        return ""
    if Counter(instruction.opcode for instruction in body.instructions) == ARG_REDUCTION:
        return "arg-reduction"
    numbers = [producer.parameter_number for producer in root.producers]
    is_order = root.opcode != "compare" or not is_float(_dtype(root.producer()))
    if numbers not in ([0, 1], [1, 0]) or not is_order:
        return ""
    return f"{root.opcode} {root.attribute_text('direction') or ''} {numbers[0]}"


def _is_in_range(conversion: Instruction) -> bool:
    """True for a conversion of an integer, directly, or of a narrower integer through floats."""
    target, source = _dtype(conversion), conversion.producer()
    for value in chain(source, Instruction.producer):
        dtype = _dtype(value)
        if dtype == "f4e2m1fn":  # from -6 to 6, without infinities and NaNs
            return is_signed(target) and BITS[target] >= 4
        if not is_float(dtype) and not is_complex(dtype):
            bits = BITS[dtype] if is_integer(dtype) else 1
            is_narrower = bits < BITS[target] and (is_signed(target) or not is_signed(dtype))
            return value is source or is_narrower
        if value.opcode != "convert" or dtype not in ("f32", "f64", "bf16"):
            break
    return False


def _of_combiner(instruction: Instruction, body: str) -> str:
    dtype, combiner = _dtype(instruction), body.partition(" ")[0]
    if body == "arg-reduction":
        return ""
    if combiner not in SETS["commutative"]["s"] or is_complex(dtype):
        return "its combiner depends on the order"
    is_rounded = is_float(dtype) and combiner in ("add", "multiply")
    if instruction.opcode == "scatter" and is_rounded:
        return "floats are added in any order"
    if instruction.opcode not in ("reduce", "reduce-window"):
        return ""
    start, neutral = instruction.producer(1), neutral_element(dtype, combiner)
    if start is None or start.opcode != "constant":
        return "the initial value is unknown"
    is_neutral = start.operands_text.strip() == f"{neutral}".lower()
    is_neutral |= is_float(dtype) and number_of(start) == neutral
    return "" if is_neutral else "the initial value is not the identity"


def _of_size(instruction: Instruction) -> str:
    shape, axes = instruction.operand_shape(0), instruction.integers_attribute("dimensions") or ()
    if not isinstance(shape, ArrayShape) or any(map(shape.is_dynamic, axes)):
        return "elements beyond the first size may come back"
    size = instruction.producer(1)
    ends = (size.producer(0), size.producer(2)) if size and size.opcode == "clamp" else (size,)
    numbers = [number for end in ends for number in constant_integers(end) or (-1,)]
    is_within = all(0 <= number <= shape.dims[axis] for number in numbers for axis in axes)
    return "" if is_within else "a size may be out of range"
