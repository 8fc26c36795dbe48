"""Modules that say what they compute: of what XLA leaves open, a pass may make anything.

`docs/hunt.md` has XLA's words for each of these.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from hlo_lint.analysis.walks import chain
from hlo_lint.apps.hunt.draft import DRAWN_OPCODES, SETS
from hlo_lint.hlo.constants import constant_integers, constant_of, number_of
from hlo_lint.hlo.dtypes import BITS, is_complex, is_float, is_integer, is_signed, neutral_element
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape

ARG_REDUCTION: Final = Counter(
    "parameter parameter parameter parameter compare compare compare and or select select "
    "tuple".split()
)


def unfair(module: Module) -> str:
    """The reason why a module does not say what it computes; empty if it does."""
    for parameter in module.entry.parameters if module.entry else ():
        if not isinstance(parameter.shape_or_none, ArrayShape):
            return f"%{parameter.name} is not an array"
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode not in DRAWN_OPCODES:
                return f"{instruction.opcode} is not what a front end writes"
            if reason := _left_open(instruction, module):
                return f"%{instruction.name}: {reason}"
    return ""


def _left_open(one: Instruction, module: Module) -> str:
    """The reason why an instruction does not say what it computes."""
    match one.opcode:
        case "constant" if "..." in one.operands_text:
            return "its numbers are left out"
        case "power" if is_integer(_dtype(one)):
            return "a power of integers"
        case "divide" | "remainder" if is_integer(_dtype(one)):
            divisors = constant_integers(one.producer(1))
            if divisors is None or {0, -1} & {*divisors}:
                return "integers are divided by what may be 0 or -1"
        case "convert" if is_integer(_dtype(one)) and not _is_in_range(one):
            return "a float that may be out of range becomes an integer"
        case "bitcast-convert" if not is_integer(_dtype(one.producer())):
            return "the bits of a NaN are nobody's promise"
        case "compare" if one.attribute_text("type") == "TOTALORDER":
            return "the order of NaNs"
        case "sort" if len(one.operands) > 1 and one.attribute_text("is_stable") != "true":
            return "equal keys in any order"
        case "sort" if not _body(one, module).startswith(("compare LT", "compare GT")):
            return "its comparator orders nothing"
        case "select-and-scatter":
            is_zero = number_of(constant_of(one.producer(2))) == 0
            is_sum = _body(one, module, "scatter").startswith("add")
            is_exact = is_zero and is_sum and is_integer(_dtype(one))
            if not is_exact or _body(one, module, "select") != "compare GE 0":
                return "its computations are not those of a pooling"
        case "set-dimension-size":
            return _of_size(one)
        case "all-reduce" | "reduce" | "reduce-scatter" | "reduce-window" | "scatter":
            return _of_combiner(one, _body(one, module))
    return ""


def _dtype(instruction: Instruction | None) -> str:
    shape = instruction.shape_or_none if instruction is not None else None
    return shape.dtype if isinstance(shape, ArrayShape) else ""


def _body(instruction: Instruction, module: Module, name: str = "to_apply") -> str:
    """A called computation of one operation: `compare LT 0`; empty for any other."""
    body = module.computation((instruction.attribute_text(name) or "").lstrip("%"))
    root = body.root if body is not None else None
    if body is None or root is None:
        return ""
    if Counter(one.opcode for one in body.instructions) == ARG_REDUCTION:
        return "arg-reduction"
    numbers = [one.parameter_number for one in root.producers]
    is_order = root.opcode != "compare" or not is_float(_dtype(root.producer()))
    if numbers not in ([0, 1], [1, 0]) or not is_order:
        return ""
    return f"{root.opcode} {root.attribute_text('direction') or ''} {numbers[0]}"


def _is_in_range(conversion: Instruction) -> bool:
    """True if an integer is made of a narrower one, through floats or not, or of any other."""
    target, source = _dtype(conversion), conversion.producer()
    for one in chain(source, Instruction.producer):
        dtype = _dtype(one)
        if not is_float(dtype) and not is_complex(dtype):
            bits = BITS[dtype] if is_integer(dtype) else 1
            is_narrower = bits < BITS[target] and (is_signed(target) or not is_signed(dtype))
            return one is source or is_narrower
        if one.opcode != "convert" or dtype not in ("f32", "f64", "bf16"):
            break
    return False


def _of_combiner(one: Instruction, body: str) -> str:
    dtype, combiner = _dtype(one), body.partition(" ")[0]
    if body == "arg-reduction":
        return ""
    if combiner not in SETS["commutative"]["s"] or is_complex(dtype):
        return "its combiner depends on the order"
    if one.opcode == "scatter" and is_float(dtype) and combiner in ("add", "multiply"):
        return "floats are added in any order"
    if one.opcode not in ("reduce", "reduce-window"):
        return ""
    start, neutral = one.producer(1), neutral_element(dtype, combiner)
    if start is None or start.opcode != "constant":
        return "the first value is not known"
    is_neutral = start.operands_text.strip() == f"{neutral}".lower()
    is_neutral |= is_float(dtype) and number_of(start) == neutral
    return "" if is_neutral else "the first value changes others"


def _of_size(instruction: Instruction) -> str:
    shape, axes = instruction.operand_shape(0), instruction.integers_attribute("dimensions") or ()
    if not isinstance(shape, ArrayShape) or any(map(shape.is_dynamic, axes)):
        return "what lay beyond the first size may come back"
    size = instruction.producer(1)
    ends = (size.producer(0), size.producer(2)) if size and size.opcode == "clamp" else (size,)
    numbers = [number for one in ends for number in constant_integers(one) or (-1,)]
    is_within = all(0 <= number <= shape.dims[axis] for number in numbers for axis in axes)
    return "" if is_within else "a size may be out of range"
