"""The attributes of each opcode that choose its value, compared by their effect."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from hlo_lint.analysis.side_effects import MARKERS
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.splitting import split_attributes
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Instruction
from hlo_lint.hlo.opcodes import COMMON, OPCODES, VALUELESS

_GROUPS: Final = "replica_groups"
_GLOBAL: Final = "use_global_device_ids"
_PAIRS: Final = "source_target_pairs"
_FREE: Final = COMMON | VALUELESS.union(CALLING_ATTRIBUTES)
"""Attributes that do not choose the value, or name computations that are compared themselves."""
_DEFAULTS: Final = frozenset({"1", "false", "{}"})


@lru_cache(maxsize=1 << 13)
def choosing_attributes(opcode: str, attributes: str) -> tuple[tuple[str, str], ...]:
    """The attributes that choose the value, with their texts."""
    facts = OPCODES.get(opcode)
    names = frozenset[str]() if facts is None else facts.allowed - _FREE
    spans = split_attributes(attributes) if names and attributes else {}
    texts = {name: "".join(attributes[start:end].split()) for name, (start, end) in spans.items()}
    # XLA itself configures the calls that its own passes make, and tunes them later.
    if opcode == "custom-call" and _is_of_user(texts.get("custom_call_target", "").strip('"')):
        names |= {"backend_config"}
    return tuple(sorted((name, text) for name, text in texts.items() if name in names))


def differs(old: Instruction, new: Instruction, name: str) -> bool:
    """True if an attribute of two instructions chooses different values."""
    ours, theirs = old.attributes.get(name), new.attributes.get(name)
    if old.opcode == "custom-call" and (ours is None or theirs is None):
        return False
    if ours == theirs or (name == _GROUPS and (ours in (None, "{}"))):
        return False  # empty groups are all devices, which passes spell out
    if name == _GROUPS and len({_GLOBAL in side.attributes for side in (old, new)}) > 1:
        return False  # the numbers are of replicas on one side, of devices on the other
    if name == "type":  # only the element type matters
        return "TOTALORDER" in (ours, theirs)
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
    return _is_of_user(call.custom_call_target)


def _is_of_user(target: str) -> bool:
    return target[:1].islower() and not target.startswith("xla.") and target not in MARKERS
