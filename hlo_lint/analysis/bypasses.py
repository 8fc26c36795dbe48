"""Operations that a value's reader bypasses after a pass."""

from __future__ import annotations

from typing import Any, Final

from hlo_lint.analysis.device_groups import device_groups
from hlo_lint.analysis.loops import loops
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.constants import constant_of, number_of
from hlo_lint.hlo.dtypes import BITS, ELEMENT_TYPES, neutral_element
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.opcodes import FIRST_INDEX

_READERS: Final = frozenset(
    "add atan2 cbrt divide dot erf exp2 exponential exponential-minus-one log log-plus-one log2 "
    "logistic multiply negate rsqrt sine sqrt subtract tan tanh tuple".split()
)
"""Readers whose result changes with every operation on their operand.

For another reader, a later operation may make up for it: all-reduce-reassociate lets two pads read
past their all-reduces, and reduces the sum of the pads (the TPU dump `v5e_2x2_train`).
"""
_FUNCTIONS: Final = frozenset(
    "cbrt cosine erf exp2 exponential exponential-minus-one log log-plus-one log2 logistic negate "
    "not rsqrt sine sqrt tan tanh".split()
)
"""Operations that leave no range of values unchanged."""
_LIMITS: Final = frozenset({"abs", "clamp", "maximum", "minimum"})
_PLACES: Final = frozenset({"MoveToDevice", "MoveToHost"})
_NEUTRAL: Final = {"add": 0, "subtract": 0, "divide": 1, "multiply": 1}
_KNOWN: Final = frozenset({"broadcast", "constant", "iota"})
_BOUNDED: Final = _KNOWN.union(
    "and clamp compare convert count-leading-zeros maximum minimum popcnt remainder "
    "shift-right-logical select".split()
)
"""Sources of integers that a pass may prove to fit into fewer bits."""


def bypassed(old: Instruction, new: Instruction, before: Module) -> tuple[int, Instruction] | None:
    """The number of the operand that now bypasses an operation, and that operation.

    `old` and `new` are the same instruction before and after a pass. None unless a single operand
    changed, and if the operation may leave every value unchanged.
    """
    if len(old.operand_names) != len(new.operand_names):
        return None
    names = enumerate(zip(old.operand_names, new.operand_names, strict=True))
    changed = [number for number, (ours, theirs) in names if ours != theirs]
    step = old.producer(changed[0]) if len(changed) == 1 else None
    source = None if step is None else old.computation.instruction(new.operand_names[changed[0]])
    # The size of a dimension that is known at run time is a part of the type.
    if step is None or source is None or _static(source) != _static(step):
        return None
    first_index = FIRST_INDEX.get(old.opcode)
    if first_index is not None:
        # A start that is always clamped to 0 hides what is added to it.
        is_seen = step.opcode in _NEUTRAL and changed[0] >= first_index and _moves(old, changed[0])
    elif old.opcode == "get-tuple-element":
        is_seen = step.opcode == "while" and _is_changed(step, old, before)
    else:
        is_sized = step.opcode == "set-dimension-size" and old.opcode == "reduce"
        is_seen = old.opcode in _READERS or step.opcode == "reduce-precision" or is_sized
    # A function of a known value may be that value: the hyperbolic tangent of 0.
    if not is_seen or source.opcode in _KNOWN:
        return None
    changes_value = old.opcode == "get-tuple-element" or _changes_values(step, source, before)
    return (changed[0], step) if changes_value or are_unequal(step, source) else None


def _static(value: Instruction) -> str:
    return value.type_text.replace("<=", "")


def are_unequal(first: Instruction, second: Instruction, depth: int = 4) -> bool:
    """True if two values of a computation differ for nearly all parameters of the entry."""
    if first is second or first.opcode != second.opcode:
        opcodes = {first.opcode, second.opcode}
        same_operand = first.operand_names == second.operand_names
        return first is not second and opcodes <= _FUNCTIONS and same_operand
    # The caller is free to pass any two values.
    if first.opcode == "parameter":
        return True
    if not depth or first.opcode not in _FUNCTIONS.union(_NEUTRAL):
        return False
    pairs = zip(first.operands, second.operands, strict=False)
    differing = [pair for pair in pairs if pair[0].name != pair[1].name]
    # Two changes may cancel out: a + b is (a - 1) + (b + 1).
    if len(differing) != 1:
        return False
    left, right = (operand.instruction for operand in differing[0])
    return left is not None and right is not None and are_unequal(left, right, depth - 1)


def _moves(slice_: Instruction, operand: int) -> bool:
    """True if the index at an operand may differ from 0."""
    first = FIRST_INDEX[slice_.opcode]
    whole = operand_array(slice_, 0)
    part = result_array(slice_) if first == 1 else operand_array(slice_, 1)
    number = operand - first
    if whole is None or part is None or not number < len(whole.dims) == len(part.dims):
        return False
    return part.dims[number] < whole.dims[number]


def _is_changed(loop: Instruction, element: Instruction, module: Module) -> bool:
    """True if a loop runs, and changes an element of its state."""
    index = element.tuple_index
    loops_here = [described for described in loops(module) if described.instruction is loop]
    return any(here.trip_count and not here.is_invariant(index or 0) for here in loops_here)


def _changes_values(step: Instruction, source: Instruction, module: Module) -> bool:
    """True if an operation changes the value, whatever range a pass may know for it."""
    sources = [operand.instruction for operand in step.operands]
    if step.opcode == "convert":
        return _loses_bits(step, source)
    if source not in sources:
        return False
    match step.opcode:
        case "add" | "subtract" | "divide" | "multiply" if len(sources) == 2:
            constant = sources[1 - sources.index(source)]
            is_first = source is sources[0] or step.opcode in ("add", "multiply")
            number = number_of(constant_of(constant))
            return is_first and number not in (None, _NEUTRAL[step.opcode])
        case "reverse" | "transpose":
            shape = result_array(source)
            moved: Any = step.attribute_or_none("dimensions") or ()
            long = [] if shape is None else [number for number in moved if shape.dims[number] > 1]
            return bool(long) if step.opcode == "reverse" else long != sorted(long)
        case "all-reduce":
            # A sum over groups of one device each is the value itself.
            reducer = module.callee(step)
            is_sum = reducer is not None and "add" in reducer.opcodes
            return is_sum and any(len(group) > 1 for group in device_groups(step, module))
        case "collective-permute":
            return any(len(set(pair)) > 1 for pair in device_groups(step, module))
        case "reduce-precision":
            facts = ELEMENT_TYPES.get(source.type_text.partition("[")[0])
            if facts is None or not facts.is_float:
                return False
            held = facts.bits - facts.significand_bits, facts.significand_bits - 1
            kept = step.integer_attribute("exponent_bits"), step.integer_attribute("mantissa_bits")
            # A rounded value may have no bits left to lose.
            rounded = source.opcode in ("convert", "reduce-precision")
            return None not in kept and held > kept and not rounded
        case "custom-call":
            return step.custom_call_target in _PLACES
        case "set-dimension-size":
            array, named = result_array(source), step.integers_attribute("dimensions") or ()
            sizes = enumerate(array.dims if array else ())
            full = [size for number, size in sizes if number in named]
            return number_of(step.producer(1)) not in full
        case "select":
            return _is_free(sources[0]) and source in sources[1:]
        case _:
            # A pass may know the range of a value, but not that of a parameter.
            is_argument = source.opcode == "parameter" and source.computation is module.entry
            return step.opcode in _FUNCTIONS or (is_argument and _limits(step, source))


def _limits(step: Instruction, source: Instruction) -> bool:
    """True if a value has a limit that is neither the value itself nor the end of its type."""
    array = result_array(source)
    if step.opcode not in _LIMITS or array is None or array.dtype not in ELEMENT_TYPES:
        return False
    if step.opcode == "abs":
        return array.dtype[0] != "u"
    opcodes = ("maximum", "", "minimum") if step.opcode == "clamp" else (step.opcode,) * 2
    limits = [(name, step.producer(number)) for number, name in enumerate(opcodes) if name]
    return any(
        limit is not source
        and number_of(constant_of(limit)) != float(neutral_element(array.dtype, name))
        for name, limit in limits
    )


def _loses_bits(step: Instruction, source: Instruction) -> bool:
    """True if a value goes through integers of fewer bits and back."""
    narrow = step.producer()
    if narrow is None or narrow.opcode != "convert" or narrow.producer() is not source:
        return False
    types = [end.type_text.partition("[")[0] for end in (source, narrow)]
    wide, small = (BITS.get(name, 0) if name[:1] in "su" else 0 for name in types)
    return 0 < small < wide and source.opcode not in _BOUNDED


def _is_free(condition: Instruction | None) -> bool:
    """True if a condition compares two parameters, or is a parameter."""
    if condition is not None and condition.opcode == "compare":
        opcodes = {source.opcode for source in condition.producers}
        return opcodes == {"parameter"} and len(set(condition.operand_names)) == 2
    return condition is not None and condition.opcode == "parameter"
