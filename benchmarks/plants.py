"""Errors that a pass could make in one instruction, and rewrites that preserve every value.

Each is a function of an instruction that gives its new line, or None where it has none of the kind.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape, TupleShape

Edit = Callable[[Instruction, random.Random], str | None]
Edits = Mapping[str, Edit]


# ---- the errors


def _swapped(instruction: Instruction, choice: random.Random) -> str | None:
    """The operands of an operation that is not symmetric, in the other order."""
    if instruction.opcode not in ("subtract", "divide", "power", "select", "concatenate", "dot"):
        return None
    operands = instruction.operands_text.split(", ")
    types = [each.shape for each in instruction.operands]
    if len(operands) != len(types) or len(operands) < 2:
        return None
    if operands[-1] == operands[-2] or str(types[-1]) != str(types[-2]):
        return None
    operands[-1], operands[-2] = operands[-2], operands[-1]
    return with_operands(instruction, ", ".join(operands))


def _constant(instruction: Instruction, choice: random.Random) -> str | None:
    """Another number."""
    shape = instruction.shape_or_none
    if instruction.opcode != "constant" or not isinstance(shape, ArrayShape) or shape.dims:
        return None
    if shape.dtype[0] not in "fbsu" or shape.dtype == "pred":
        return None
    try:
        number = float(instruction.operands_text)
    except ValueError:
        return None
    if not -1e6 < number < 1e6:
        return None
    other = number * 1.5 + 1 if shape.dtype[0] in "fb" else int(number) + 1
    return with_operands(instruction, str(other))


def _dropped(instruction: Instruction, choice: random.Random) -> str | None:
    """A sum or a product without one of its terms."""
    if instruction.opcode not in ("add", "multiply", "maximum", "minimum"):
        return None
    first = instruction.operands_text.split(", ")[0]
    return with_operands(instruction, first).replace(f" {instruction.opcode}(", " copy(", 1)


def _dimension(instruction: Instruction, choice: random.Random) -> str | None:
    """Another dimension of the same size."""
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.rank < 2:
        return None
    match instruction.opcode:
        case "broadcast" | "transpose":
            found = re.search(r"dimensions=\{(\d+(?:,\d+)*)\}", instruction.text)
        case "iota":
            found = re.search(r"iota_dimension=(\d+)", instruction.text)
        case _:
            return None
    if found is None:
        return None
    axes = [int(axis) for axis in found[1].split(",")]
    if instruction.opcode == "transpose":
        pairs = [
            (i, j) for i in range(len(axes)) for j in range(i) if shape.dims[i] == shape.dims[j] > 1
        ]
        if not pairs:
            return None
        i, j = choice.choice(pairs)
        axes[i], axes[j] = axes[j], axes[i]
    else:
        other = [
            axis
            for axis in range(shape.rank)
            if axis not in axes
            and (instruction.opcode == "iota" or shape.dims[axis] == shape.dims[axes[-1]])
        ]
        if not other:
            return None
        axes[-1] = choice.choice(other)
    text = ",".join(map(str, axes))
    return instruction.text[: found.start(1)] + text + instruction.text[found.end(1) :]


def cut_further(instruction: Instruction, choice: random.Random) -> str | None:
    """A slice one element further."""
    source = instruction.operands[0].shape if instruction.operands else None
    if instruction.opcode != "slice" or not isinstance(source, ArrayShape):
        return None
    ranges = list(
        re.finditer(r"\[(\d+):(\d+)(:\d+)?\]", instruction.text[instruction.text.find("slice={") :])
    )
    base = instruction.text.find("slice={")
    for size, part in zip(source.dims, ranges, strict=False):
        start, limit = int(part[1]), int(part[2])
        step = 1 if limit < size else -1 if start > 0 else 0
        if step:
            text = f"[{start + step}:{limit + step}{part[3] or ''}]"
            return (
                instruction.text[: base + part.start()]
                + text
                + instruction.text[base + part.end() :]
            )
    return None


def _comparison(instruction: Instruction, choice: random.Random) -> str | None:
    """A comparison that holds for other numbers."""
    others = {"LT": "GT", "GT": "LT", "LE": "GT", "GE": "LT", "EQ": "NE", "NE": "EQ"}
    found = re.search(r"direction=([A-Z]{2})", instruction.text)
    if instruction.opcode != "compare" or found is None:
        return None
    return instruction.text.replace(found[0], f"direction={others[found[1]]}", 1)


def other_operation(instruction: Instruction, choice: random.Random) -> str | None:
    """Another operation of as many operands: also in reducers."""
    others = {
        "add": "subtract",
        "subtract": "add",
        "maximum": "minimum",
        "minimum": "maximum",
        "multiply": "add",
        "negate": "copy",
        "and": "or",
        "or": "and",
        "sine": "cosine",
    }
    other = others.get(instruction.opcode)
    if other is None:
        return None
    if other == "subtract" and all(one.opcode == "parameter" for one in instruction.producers):
        other = "maximum"  # by a difference, which is not associative, no reduction is defined
    return instruction.text.replace(f" {instruction.opcode}(", f" {other}(", 1)


def _initial_value(instruction: Instruction, choice: random.Random) -> str | None:
    """A reduction that begins with another number, which shows where it is the largest one, say."""
    if instruction.opcode != "constant" or not any(
        user.opcode in ("reduce", "reduce-window", "select-and-scatter")
        and instruction in [each.instruction for each in user.operands[len(user.operands) // 2 :]]
        for user in instruction.users
    ):
        return None
    return other_constant(instruction)


def _part(instruction: Instruction, choice: random.Random) -> str | None:
    """Another element of a tuple, of the same type."""
    found = re.search(r"index=(\d+)", instruction.text)
    if instruction.opcode != "get-tuple-element" or found is None:
        return None
    source = instruction.operands[0].shape if instruction.operands else None
    if not isinstance(source, TupleShape):
        return None
    number = int(found[1])
    others = [
        at
        for at, shape in enumerate(source.elements)
        if at != number and str(shape) == str(source.elements[number])
    ]
    if not others:
        return None
    index = str(choice.choice(others))
    return instruction.text[: found.start(1)] + index + instruction.text[found.end(1) :]


def _padding(instruction: Instruction, choice: random.Random) -> str | None:
    """Padding on the other side."""
    found = re.search(r"padding=(\d+)_(\d+)((?:_\d+)?(?:x[\dx_]+)?)", instruction.text)
    if instruction.opcode != "pad" or found is None or found[1] == found[2]:
        return None
    return instruction.text.replace(found[0], f"padding={found[2]}_{found[1]}{found[3]}", 1)


def _contraction(instruction: Instruction, choice: random.Random) -> str | None:
    """A product over another dimension of the same size."""
    found = re.search(r"lhs_contracting_dims=\{(\d+)\}", instruction.text)
    source = instruction.operands[0].shape if instruction.operands else None
    if instruction.opcode != "dot" or found is None or not isinstance(source, ArrayShape):
        return None
    number = int(found[1])
    batch = re.search(r"lhs_batch_dims=\{([\d,]*)\}", instruction.text)
    taken = {number, *(map(int, batch[1].split(",")) if batch and batch[1] else ())}
    others = [
        at for at, size in enumerate(source.dims) if at not in taken and size == source.dims[number]
    ]
    if not others:
        return None
    index = str(choice.choice(others))
    return instruction.text[: found.start(1)] + index + instruction.text[found.end(1) :]


def _narrowed(instruction: Instruction, choice: random.Random) -> str | None:
    """An integer by way of a type that does not hold it, or a float by way of an integer."""
    shape = instruction.shape_or_none
    ways = {"s64": "s32", "s32": "f32", "u32": "s16", "u8": "s8", "f32": "s32", "s8": "s4"}
    if not isinstance(shape, ArrayShape) or shape.dtype not in ways:
        return None
    return _by_way_of(instruction, "convert", list(shape.dims), dtype=ways[shape.dtype])


def _wrapped(instruction: Instruction, choice: random.Random) -> str | None:
    """An integer times 16, divided by 16: the product wraps."""
    return _factored(instruction, "16", "su")


def _overflown(instruction: Instruction, choice: random.Random) -> str | None:
    """A float times a large number, divided by it: the product overflows."""
    return _factored(
        instruction, {"f32": "1e+36", "bf16": "1e+36"}.get(_dtype(instruction), ""), "fb"
    )


def _dtype(instruction: Instruction) -> str:
    shape = instruction.shape_or_none
    return shape.dtype if isinstance(shape, ArrayShape) else ""


def _factored(instruction: Instruction, factor: str, kinds: str) -> str | None:
    shape, dtype = instruction.shape_or_none, _dtype(instruction)
    if not factor or not isinstance(shape, ArrayShape) or dtype[0] not in kinds or dtype == "pred":
        return None
    if dtype in ("s4", "u4", "s2", "u2") or instruction.opcode not in _PLAIN:
        return None
    (root, name), line = head(instruction), instruction.text.partition("=")[2].lstrip()
    dims = ",".join(map(str, shape.dims))
    return (
        f"{name}.own = {line}\n  {name}.k = {dtype}[] constant({factor})\n"
        f"  {name}.f = {dtype}[{dims}] broadcast({name}.k), dimensions={{}}\n"
        f"  {name}.way = {dtype}[{dims}] multiply({name}.own, {name}.f)\n"
        f"  {root}{name} = {shape} divide({name}.way, {name}.f)"
    )


def _rarely(instruction: Instruction, choice: random.Random) -> str | None:
    """Another value where a predicate is rarely true."""
    shape, dtype = instruction.shape_or_none, _dtype(instruction)
    if not isinstance(shape, ArrayShape) or instruction.opcode not in _PLAIN:
        return None
    if dtype not in ("s32", "s64", "u32", "f32", "s16"):
        return None
    (root, name), line = head(instruction), instruction.text.partition("=")[2].lstrip()
    dims = ",".join(map(str, shape.dims))
    number = choice.choice(["7", "129", "12345"])
    return (
        f"{name}.own = {line}\n  {name}.k = {dtype}[] constant({number})\n"
        f"  {name}.f = {dtype}[{dims}] broadcast({name}.k), dimensions={{}}\n"
        f"  {name}.p = pred[{dims}] compare({name}.own, {name}.f), direction=EQ\n"
        f"  {name}.o = {dtype}[{dims}] negate({name}.own)\n"
        f"  {root}{name} = {shape} select({name}.p, {name}.o, {name}.own)"
    )


def _bordered(instruction: Instruction, choice: random.Random) -> str | None:
    """A comparison that decides otherwise at its border."""
    found = re.search(r"direction=(LT|LE|GT|GE)\b", instruction.text)
    if instruction.opcode != "compare" or found is None:
        return None
    other = {"LT": "LE", "LE": "LT", "GT": "GE", "GE": "GT"}[found[1]]
    return instruction.text[: found.start(1)] + other + instruction.text[found.end(1) :]


def _unordered(instruction: Instruction, choice: random.Random) -> str | None:
    """A comparison of floats by its negation, which decides otherwise for a NaN."""
    found = re.search(r"direction=(LT|LE|GT|GE)\b", instruction.text)
    source = instruction.operands[0].shape if instruction.operands else None
    if instruction.opcode != "compare" or found is None or "TOTAL" in instruction.text:
        return None
    if not isinstance(source, ArrayShape) or source.dtype not in ("f32", "bf16", "f16", "f64"):
        return None
    other = {"LT": "GE", "LE": "GT", "GT": "LE", "GE": "LT"}[found[1]]
    operation = instruction.text.partition("=")[2].partition("compare(")[2]
    start = found.start(1) - len(instruction.text) + len(operation)
    operation = f"compare({operation[:start]}{other}{operation[start + 2 :]}"
    return instead(instruction, instruction.type_text, operation, "not(OWN)")


def _by_one(instruction: Instruction, choice: random.Random) -> str | None:
    """An integer constant off by 1."""
    shape = instruction.shape_or_none
    if instruction.opcode != "constant" or not isinstance(shape, ArrayShape) or shape.dims:
        return None
    if shape.dtype not in ("s32", "s64", "u32", "s8", "s16") or "{" in instruction.operands_text:
        return None
    step = choice.choice([-1, 1])
    return with_operands(instruction, str(max(int(instruction.operands_text) + step, 0)))


def _unclamped(instruction: Instruction, choice: random.Random) -> str | None:
    """A clamp without its upper bound, or its upper bound alone."""
    operands = instruction.operands_text.split(", ")
    types = [str(each.shape) for each in instruction.operands]
    if instruction.opcode != "clamp" or len(set(types)) != 1 or len(operands) != 3:
        return None
    pair = choice.choice([("maximum", operands[:2]), ("minimum", operands[1:])])
    old = f"clamp({instruction.operands_text})"
    return instruction.text.replace(old, f"{pair[0]}({', '.join(pair[1])})", 1)


def _start(instruction: Instruction, choice: random.Random) -> str | None:
    """A start of a slice that wraps instead of being clamped."""
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(instruction.opcode)
    operands = instruction.operands_text.split(", ")
    if first is None or len(operands) != len(instruction.operands) or len(operands) <= first:
        return None
    start, array = instruction.operands[first].shape, instruction.operands[0].shape
    if not isinstance(start, ArrayShape) or not isinstance(array, ArrayShape) or start.dims:
        return None
    if array.dims[0] > 100 or start.dtype[0] not in "su":
        return None
    name = head(instruction)[1]
    root = head(instruction)[0]
    wrapped = with_operands(
        instruction, ", ".join([*operands[:first], f"{name}.at", *operands[first + 1 :]])
    ).partition("=")[2]
    return (
        f"{name}.k = {start.dtype}[] constant({array.dims[0]})\n"
        f"  {name}.at = {start.dtype}[] remainder({operands[first]}, {name}.k)\n"
        f"  {root}{name} ={wrapped}"
    )


# ---- the rewrites


def _commuted(instruction: Instruction, choice: random.Random) -> str | None:
    operands = instruction.operands_text.split(", ")
    if instruction.opcode not in ("add", "multiply", "and", "or") or len(operands) != 2:
        return None
    return with_operands(instruction, ", ".join(operands[::-1]))


def _by_way_of(
    instruction: Instruction,
    opcode: str,
    dims: list[int],
    tail: str = "",
    *,
    dtype: str = "",
    back: str = "",
    before: str = "",
) -> str | None:
    """The instruction, then an operation on it, and the same operation back, or another one."""
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or instruction.opcode not in _PLAIN:
        return None
    if any(map(shape.is_dynamic, range(shape.rank))):
        return None
    (root, name), line = head(instruction), instruction.text.partition("=")[2].lstrip()
    there = f"{dtype or shape.dtype}[{','.join(map(str, dims))}]"
    if before:
        before = f"  {name}.extra = {shape.dtype}[] {before}\n"
    extra = f", {name}.extra" if before else ""
    back = back or f"{opcode}(WAY){tail}"
    back = back.replace("OWN", f"{name}.own").replace("WAY", f"{name}.way")
    # A bitcast of it reads its layout.
    return (
        f"{name}.own = {line}\n{before}  {name}.way = {there} {opcode}({name}.own{extra}){tail}\n"
        f"  {root}{name} = {shape} {back}"
    )


_PLAIN = frozenset("add subtract multiply maximum minimum convert broadcast select dot".split())
"""Opcodes of which no other instruction demands that it reads them itself."""


def _negated_twice(instruction: Instruction, choice: random.Random) -> str | None:
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.dtype not in ("f32", "bf16", "f16", "s32"):
        return None
    return _by_way_of(instruction, "negate", list(shape.dims))


def _transposed_twice(instruction: Instruction, choice: random.Random) -> str | None:
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.rank != 2:
        return None
    return _by_way_of(instruction, "transpose", [*shape.dims[::-1]], ", dimensions={1,0}")


def _reshaped_twice(instruction: Instruction, choice: random.Random) -> str | None:
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or not shape.rank:
        return None
    return _by_way_of(instruction, "reshape", [1, *shape.dims])


def _reversed_twice(instruction: Instruction, choice: random.Random) -> str | None:
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or not shape.rank:
        return None
    tail = f", dimensions={{{choice.randrange(shape.rank)}}}"
    return _by_way_of(instruction, "reverse", list(shape.dims), tail)


def _widened(instruction: Instruction, choice: random.Random) -> str | None:
    """Converted to a type that holds every number of its own, and back."""
    shape = instruction.shape_or_none
    wider = {"bf16": "f32", "f16": "f32", "f32": "f64", "s32": "s64", "u8": "u32", "pred": "s32"}
    if not isinstance(shape, ArrayShape) or shape.dtype not in wider:
        return None
    return _by_way_of(instruction, "convert", list(shape.dims), dtype=wider[shape.dtype])


def _padded(instruction: Instruction, choice: random.Random) -> str | None:
    """With another number on each side, and cut out again."""
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or not shape.rank or shape.dtype not in ("f32", "s32"):
        return None
    low, high = choice.randrange(3), choice.randrange(3)
    first, *rest = shape.dims
    sides = "x".join([f"{low}_{high}", *("0_0" for _ in rest)])
    parts = ", ".join([f"[{low}:{low + first}]", *(f"[0:{size}]" for size in rest)])
    return _by_way_of(
        instruction,
        "pad",
        [low + first + high, *rest],
        f", padding={sides}",
        back=f"slice(WAY), slice={{{parts}}}",
        before="constant(7)",
    )


def _chosen(instruction: Instruction, choice: random.Random) -> str | None:
    """The larger one of a value and itself."""
    shape = instruction.shape_or_none
    if not isinstance(shape, ArrayShape) or shape.dtype not in ("f32", "bf16", "s32", "u32"):
        return None
    return _by_way_of(instruction, "copy", list(shape.dims), back="maximum(OWN, WAY)")


def _reordered(instruction: Instruction, choice: random.Random) -> str | None:
    """`(a + b) + c` as `a + (b + c)`, which is rounded otherwise."""
    left = instruction.operands[0].instruction if instruction.operands else None
    if instruction.opcode != "add" or left is None or left.opcode != "add":
        return None
    _, _, last = instruction.operands_text.partition(", ")
    first, _, second = left.operands_text.partition(", ")
    tail = instruction.attributes_text
    if "[" in left.operands_text + last + tail:
        return None
    sums = f"add({second}, {last})", f"add({first}, OWN){tail}"
    return instead(instruction, instruction.type_text, *sums)


def _subtracted(instruction: Instruction, choice: random.Random) -> str | None:
    """`a - b` as `-b + a`."""
    if instruction.opcode != "subtract" or "[" in instruction.operands_text:
        return None
    left, _, right = instruction.operands_text.partition(", ")
    last = f"add(OWN, {left}){instruction.attributes_text}"
    return instead(instruction, instruction.type_text, f"negate({right})", last)


REWRITES: Edits = {
    "commuted": _commuted,
    "negated twice": _negated_twice,
    "transposed twice": _transposed_twice,
    "reshaped twice": _reshaped_twice,
    "subtracted by addition": _subtracted,
    "reversed twice": _reversed_twice,
    "widened and narrowed": _widened,
    "padded and cut": _padded,
    "the larger of itself": _chosen,
    "summed in another order": _reordered,
}
EDITS: Edits = {
    "another operation": other_operation,
    "a swapped operand": _swapped,
    "a wrong constant": _constant,
    "a dropped term": _dropped,
    "a wrong dimension": _dimension,
    "a slice off by one": cut_further,
    "a wrong comparison": _comparison,
    "a wrong initial value": _initial_value,
    "another part of a tuple": _part,
    "padding on the other side": _padding,
    "another contraction": _contraction,
    "a number by way of a narrower type": _narrowed,
    "a product that wraps": _wrapped,
    "a product that overflows": _overflown,
    "a predicate that is rarely true": _rarely,
    "a comparison at its border": _bordered,
    "a comparison of NaNs": _unordered,
    "a limit off by one": _by_one,
    "a lost bound of a clamp": _unclamped,
    "a start that wraps": _start,
}


def other_constant(instruction: Instruction) -> str | None:
    """Another number in place of one that reductions begin with, or that stands for nothing."""
    other = {"0": "1", "1": "0", "-inf": "0", "inf": "0", "true": "false", "false": "true"}
    number = other.get(instruction.operands_text)
    return None if number is None else with_operands(instruction, number)


def head(instruction: Instruction) -> tuple[str, str]:
    """`ROOT ` or nothing, and the name as it is spelled."""
    spelled = instruction.text.partition("=")[0].split()
    return "ROOT " * (len(spelled) > 1), spelled[-1]


def instead(instruction: Instruction, shape: str, operation: str, last: str) -> str:
    """Another operation, and one that makes the array of it; the last one reads `OWN`."""
    root, name = head(instruction)
    own = f"{name}.own"
    return (
        f"{own} = {shape} {operation}\n"
        f"  {root}{name} = {instruction.type_text} {last.replace('OWN', own)}"
    )


def with_operands(instruction: Instruction, operands: str) -> str:
    """The instruction with other text between its parentheses."""
    old = f"{instruction.opcode}({instruction.operands_text})"
    return instruction.text.replace(old, f"{instruction.opcode}({operands})", 1)
