"""The attributes of each opcode that choose its value, compared by their effect."""

from __future__ import annotations

from typing import Any, Final

from hlo_lint.analysis.side_effects import MARKERS
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.opcodes import COMMON, KEEPS_TYPE, OPCODES, UNARY

_GROUPS: Final = "replica_groups"
_PAIRS: Final = "source_target_pairs"
_BRANCHES: Final = ("branch_computations", "true_computation", "false_computation")
_NEUTRAL: Final = frozenset(
    "calls channel_id constrain_layout convolution_kind dynamic_slice_sizes indices_are_sorted "
    "mode result_accuracy scatter select to_apply unique_indices".split()
).union(_BRANCHES)
"""Attributes without effect on the value, or compared separately."""
ACCURACY: Final = {
    "convolution": ("operand_precision", "algorithm"),
    "dot": ("operand_precision", "algorithm"),
    **{name: ("result_accuracy",) for name in UNARY if "result_accuracy" in OPCODES[name].allowed},
}
_COMPARED: Final = KEEPS_TYPE.union(
    "all-gather all-reduce all-to-all broadcast cholesky collective-broadcast collective-permute "
    "clamp compare complex concatenate conditional constant convolution dot dynamic-slice "
    "dynamic-update-slice fft gather get-dimension-size get-tuple-element iota map pad reduce "
    "reduce-precision reduce-scatter reduce-window reverse rng rng-bit-generator scatter select "
    "select-and-scatter set-dimension-size slice sort topk transpose triangular-solve".split()
)
CHOOSES: Final = {
    opcode: OPCODES[opcode].allowed.difference(COMMON, _NEUTRAL, ACCURACY.get(opcode, ()))
    for opcode in _COMPARED
} | dict.fromkeys(("call", "fusion", "tuple"), frozenset[str]())
CHOOSES["custom-call"] = frozenset({"backend_config", "custom_call_target"})
"""The attributes of each opcode that determine its value, together with the operands."""
_DEFAULTS: Final = frozenset({"1", "false", "{}"})


def differs(old: Instruction, new: Instruction, name: str) -> bool:
    """True if an attribute of two instructions chooses different values."""
    ours, theirs = old.attributes.get(name), new.attributes.get(name)
    if old.opcode == "custom-call" and (ours is None or theirs is None):
        return False
    if ours == theirs or (name == _GROUPS and (ours in (None, "{}"))):
        return False  # empty groups are all devices, which passes spell out
    if name == "type":  # only the element type matters
        return "TOTALORDER" in (ours, theirs)
    if name == "is_stable":  # a stable sort is also a sort
        return ours == "true" and old.called_computations == new.called_computations
    if ours is None or theirs is None:
        return name != _GROUPS and {ours, theirs}.isdisjoint(_DEFAULTS)
    try:
        return _effect(old, name) != _effect(new, name) and not _same_groups(old, new, name)
    except AttributeSyntaxError:
        return False


def _effect(instruction: Instruction, name: str) -> object:
    """The value of an attribute without parts that have no effect on arrays of these sizes."""
    value: Any = instruction.attribute(name)
    if not isinstance(value, tuple):
        return value
    operand = operand_array(instruction, 0)
    sizes = operand.dims if operand is not None and len(operand.dims) == len(value) else ()
    single = {number for number, size in enumerate(operand.dims if operand else ()) if size <= 1}
    match instruction.opcode, name:
        case "slice", "slice":  # a stride that leads past the end
            counts = [len(range(part.start, part.limit, part.stride or 1)) for part in value]
            return [
                (part.start, count, part.stride if count > 1 else 1)
                for part, count in zip(value, counts, strict=True)
            ]
        case "pad", "padding" if sizes:  # a single element has no interior
            return [
                (padding.low, padding.high, padding.interior if size > 1 else 0)
                for padding, size in zip(value, sizes, strict=True)
            ]
        case "transpose", "dimensions" if sizes:
            return [number for number in value if number not in single]
        case "reduce", "dimensions":
            return set(value)
        case "reverse", "dimensions":
            return set(value) - single
        case _, "window":  # a window of size 1 has no dilation and no direction
            return [
                dim._replace(window_dilation=1, is_reversed=False) if dim.size == 1 else dim
                for dim in value
            ]
        case _:
            return value


def _same_groups(old: Instruction, new: Instruction, name: str) -> bool:
    """True if two spellings give the same groups, in any order.

    Pairs that lose a target are left to another rule.
    """
    if name not in (_GROUPS, _PAIRS):
        return False
    # A list and an iota tile assignment can only be compared when spelled out.
    texts = old.attributes[name], new.attributes[name]
    ours, theirs = (sorted("".join(text.split()).strip("{}").split("},{")) for text in texts)
    if name == _PAIRS:
        reached = [sorted(pair.partition(",")[2] for pair in side) for side in (ours, theirs)]
        return ours == theirs or reached[0] != reached[1]
    return any("<=" in text for text in texts) or ours == theirs


def is_of_user(call: Instruction) -> bool:
    """True for a custom call whose target and configuration come from the user."""
    target = call.custom_call_target
    return target[:1].islower() and not target.startswith("xla.") and target not in MARKERS
