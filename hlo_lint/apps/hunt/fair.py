"""Modules that say what they compute: of what XLA leaves open, a pass may make anything.

`docs/hunt.md` has XLA's words for each of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from hlo_lint.analysis.walks import chain
from hlo_lint.apps.hunt.draft import DRAWN_OPCODES, SETS, neutral_element
from hlo_lint.hlo.constants import constant_integers, constant_of, number_of
from hlo_lint.hlo.dtypes import BITS, is_complex, is_float, is_integer, is_signed
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
            judge = _JUDGES.get(instruction.opcode)
            if judge is not None and (reason := judge(instruction, module)):
                return f"%{instruction.name}: {reason}"
    return ""


def _dtype(instruction: Instruction | None) -> str:
    shape = instruction.shape_or_none if instruction is not None else None
    return shape.dtype if isinstance(shape, ArrayShape) else ""


def _body(instruction: Instruction, module: Module, name: str = "to_apply") -> str:
    """A called computation of one operation: `compare LT 0 1`; empty for any other."""
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


def _division(instruction: Instruction, _: Module) -> str:
    divisors = constant_integers(instruction.producer(1))
    is_open = is_integer(_dtype(instruction)) and (divisors is None or {0, -1} & {*divisors})
    return "integers are divided by what may be 0 or -1" if is_open else ""


def _conversion(instruction: Instruction, _: Module) -> str:
    target, source = _dtype(instruction), _dtype(instruction.producer())
    if not is_integer(target) or not (is_float(source) or is_complex(source)):
        return ""
    for one in chain(instruction.producer(), Instruction.producer):
        dtype = _dtype(one)
        if is_integer(dtype) or dtype == "pred":
            bits = 1 if dtype == "pred" else BITS[dtype]
            if bits < BITS[target] and (is_signed(target) or not is_signed(dtype)):
                return ""
            break
        if one.opcode != "convert" or dtype not in ("f32", "f64", "bf16"):
            break
    return "a float that may be out of range becomes an integer"


def _combined(instruction: Instruction, module: Module) -> str:
    body, dtype, opcode = _body(instruction, module), _dtype(instruction), instruction.opcode
    combiner = body.partition(" ")[0]
    if body == "arg-reduction":
        return ""
    if combiner not in SETS["commutative"]["s"]:
        return "its combiner depends on the order"
    if opcode == "scatter" and is_float(dtype) and combiner in ("add", "multiply"):
        return "floats are added in any order"
    if opcode in ("scatter", "all-reduce", "reduce-scatter"):
        return ""
    start = instruction.producer(1) if len(instruction.operands) == 2 else None
    if start is None or start.opcode != "constant":
        return "the first value is not known"
    neutral = neutral_element(dtype, combiner) if not is_complex(dtype) else "?"
    same = start.operands_text.strip() == neutral
    same = same or (is_float(dtype) and number_of(start) == float(neutral))
    return "" if same else "the first value changes others"


def _sort(instruction: Instruction, module: Module) -> str:
    if len(instruction.operands) > 1 and instruction.attribute_text("is_stable") != "true":
        return "equal keys in any order"
    body = _body(instruction, module)
    return "" if body.startswith(("compare LT", "compare GT")) else "its comparator orders nothing"


def _pooling(instruction: Instruction, module: Module) -> str:
    bodies = [_body(instruction, module, name) for name in ("select", "scatter")]
    is_pooling = bodies[0] == "compare GE 0" and bodies[1].startswith("add")
    if is_float(_dtype(instruction)) or number_of(constant_of(instruction.producer(2))) != 0:
        is_pooling = False
    return "" if is_pooling else "its computations are not those of a pooling"


def _size(instruction: Instruction, _: Module) -> str:
    shape, axes = instruction.operand_shape(0), instruction.integers_attribute("dimensions") or ()
    if not isinstance(shape, ArrayShape) or any(map(shape.is_dynamic, axes)):
        return "what lay beyond the first size may come back"
    size = instruction.producer(1)
    ends = (size.producer(0), size.producer(2)) if size and size.opcode == "clamp" else (size,)
    numbers = [number for one in ends for number in constant_integers(one) or (-1,)]
    is_within = all(0 <= number <= shape.dims[axis] for number in numbers for axis in axes)
    return "" if is_within else "a size may be out of range"


_JUDGES: Final[Mapping[str, Callable[[Instruction, Module], str]]] = {
    **dict.fromkeys(("divide", "remainder"), _division),
    "constant": lambda one, _: "its numbers are left out" * ("..." in one.operands_text),
    "power": lambda one, _: "a power of integers" * is_integer(_dtype(one)),
    "convert": _conversion,
    "bitcast-convert": lambda one, _: (
        "the bits of a NaN are nobody's promise" * (not is_integer(_dtype(one.producer())))
    ),
    **dict.fromkeys("all-reduce reduce reduce-scatter reduce-window scatter".split(), _combined),
    "sort": _sort,
    "select-and-scatter": _pooling,
    "set-dimension-size": _size,
    "compare": lambda one, _: "the order of NaNs" * (one.attribute_text("type") == "TOTALORDER"),
}
