"""Reductions, windows, sorts, products, loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hlo_lint.apps.hunt.draft import (
    MAX_ELEMENTS,
    DrawnValue,
    ModuleDraft,
    call,
    ends,
    numbers,
    shape_text,
)
from hlo_lint.apps.hunt.elementwise import binary_opcodes
from hlo_lint.apps.hunt.movement import COMMUTATIVE
from hlo_lint.hlo.dtypes import is_complex, is_float, is_integer


def neutral_element(dtype: str, opcode: str) -> str:
    """The literal that a combiner leaves other values alone with."""
    if dtype == "pred":
        return {"and": "true", "minimum": "true"}.get(opcode, "false")
    if is_float(dtype):
        ones = {"maximum": "-inf", "minimum": "inf", "multiply": "1", "add": "0"}
        return ones[opcode]
    low, high = ends(dtype)
    all_bits = high if low == 0 else -1
    return str({"multiply": 1, "maximum": low, "minimum": high, "and": all_bits}.get(opcode, 0))


def _combiner(d: ModuleDraft, dtype: str) -> tuple[str, DrawnValue] | None:
    """A computation that is associative, and its identity."""
    if is_complex(dtype) or dtype.startswith("f8"):
        return None
    opcodes = binary_opcodes(dtype)
    opcode = d.random.choice([name for name in COMMUTATIVE if name in opcodes])
    return d.combiner(dtype, opcode), d.constant(dtype, (), [neutral_element(dtype, opcode)])


def reduce(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """A reduction over some dimensions, none and all included; perhaps another one after it."""
    made = _combiner(d, x.dtype)
    if made is None:
        return None
    body, zero = made
    for _ in range(d.random.randint(1, 2)):
        over = d.subset(range(x.rank))
        dims = [size for at, size in enumerate(x.dims) if at not in over]
        more = f", dimensions={{{numbers(over)}}}, to_apply=%{body}"
        x = d.add(x.dtype, dims, call("reduce", x, zero) + more)
    return x


def arg_reduce(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """The largest or smallest element of a dimension with its index, the first of equal ones."""
    if not x.rank or is_complex(x.dtype) or x.dtype == "pred" or is_float(x.dtype):
        return None
    at = d.random.randrange(x.rank)
    opcode, direction = d.random.choice((("maximum", "GT"), ("minimum", "LT")))
    body = d.computation(
        [(x.dtype, ()), ("s32", ()), (x.dtype, ()), ("s32", ())],
        f"""better = pred[] compare(p0, p2), direction={direction}
same = pred[] compare(p0, p2), direction=EQ
first = pred[] compare(p1, p3), direction=LT
tie = pred[] and(same, first)
left = pred[] or(better, tie)
value = {x.dtype}[] select(left, p0, p2)
index = s32[] select(left, p1, p3)
ROOT r = ({x.dtype}[], s32[]) tuple(value, index)""",
    )
    counted = d.add("s32", x.dims, f"iota(), iota_dimension={at}")
    zero = d.constant(x.dtype, (), [neutral_element(x.dtype, opcode)])
    last = d.constant("s32", (), [str(ends("s32")[1])])
    dims = [size for number, size in enumerate(x.dims) if number != at]
    both = f"({shape_text(x.dtype, dims)}, {shape_text('s32', dims)})"
    name = f"t{len(d.lines)}"
    more = f", dimensions={{{at}}}, to_apply=%{body}"
    d.lines.append(f"%{name} = {both} {call('reduce', x, counted, zero, last)}{more}")
    number = d.random.randrange(2)
    return d.add((x.dtype, "s32")[number], dims, f"get-tuple-element(%{name}), index={number}")


def reduce_window(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """A reduction of windows with strides, padding and dilation of either kind."""
    made = _combiner(d, x.dtype)
    if made is None or not x.rank or 0 in x.dims:
        return None
    body, zero = made
    spelled_, dims = _window(d, x)
    if DrawnValue("", x.dtype, tuple(dims)).size > MAX_ELEMENTS:
        return None
    more = f", window={{{spelled_}}}, to_apply=%{body}"
    return d.add(x.dtype, dims, call("reduce-window", x, zero) + more)


def _window(d: ModuleDraft, x: DrawnValue, plain: bool = False) -> tuple[str, list[int]]:
    """A window over each dimension, and the dimensions of the result."""
    size, stride, pads, left, right, dims = [], [], [], [], [], []
    for extent in x.dims:
        width = d.random.choice((1, 1, 2, 3, extent))
        step = d.random.choice((1, 1, 2, 3))
        inner, outer = (d.random.choice((1, 1, 1, 2, 3)) for _ in range(2))
        low, high = (d.random.choice((0, 0, 1, 2, width - 1)) for _ in range(2))
        if plain:
            inner = outer = 1
            low, high = min(low, width - 1), min(high, width - 1)
        whole = (extent - 1) * outer + 1 + low + high
        reach = (width - 1) * inner + 1
        size.append(width)
        stride.append(step)
        pads.append(f"{low}_{high}")
        left.append(outer)
        right.append(inner)
        dims.append(max((whole - reach) // step + 1, 0))
    text = f"size={'x'.join(map(str, size))} stride={'x'.join(map(str, stride))}"
    text += f" pad={'x'.join(pads)}"
    if not plain:
        text += f" lhs_dilate={'x'.join(map(str, left))} rhs_dilate={'x'.join(map(str, right))}"
    return text, dims


def select_and_scatter(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """The gradient of a pooling: the first largest element of each window takes an update."""
    if not x.rank or 0 in x.dims or not is_integer(x.dtype):
        return None
    window, dims = _window(d, x, plain=True)
    if 0 in dims:
        return None
    body = [(x.dtype, ()), (x.dtype, ())]
    chosen = d.computation(body, "ROOT r = pred[] compare(p0, p1), direction=GE")
    added = d.combiner(x.dtype, "add")
    updates = d.source(x.dtype, dims)
    zero = d.constant(x.dtype, (), ["0"])
    more = f", window={{{window}}}, select=%{chosen}, scatter=%{added}"
    return d.like(x, "select-and-scatter", updates, zero, more=more)


def sorting(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """A stable sort of one to three arrays by the first of them."""
    if not x.rank or is_complex(x.dtype) or is_float(x.dtype):
        return None
    others = [d.partner(x) for _ in range(d.random.randrange(3))]
    shapes = [x, *others]
    dtypes = [value.dtype for value in shapes for _ in range(2)]
    direction = d.random.choice(("LT", "GT"))
    body = d.computation(
        [(dtype, ()) for dtype in dtypes], f"ROOT r = pred[] compare(p0, p1), direction={direction}"
    )
    at = d.random.randrange(x.rank)
    more = f", dimensions={{{at}}}, is_stable=true, to_apply=%{body}"
    if not others:
        return d.add(x.dtype, x.dims, call("sort", x) + more)
    name = f"t{len(d.lines)}"
    both = ", ".join(shape_text(value.dtype, value.dims) for value in shapes)
    d.lines.append(f"%{name} = ({both}) {call('sort', *shapes)}{more}")
    number = d.random.randrange(len(shapes))
    return d.add(x.dtype, x.dims, f"get-tuple-element(%{name}), index={number}")


def dot(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """A product with batch and contracting dimensions in any order, also none, also empty."""
    if x.dtype == "pred" or x.dtype[1:] in ("2", "4") or x.rank > 4:
        return None
    roles = [d.random.choice("bck") for _ in x.dims]
    batch = d.shuffled(at for at, role in enumerate(roles) if role == "b")
    contracted = d.shuffled(at for at, role in enumerate(roles) if role == "c")
    free = list(d.dims(d.random.randrange(3), 24))
    items = [("b", at) for at in batch] + [("c", at) for at in contracted]
    items += [("f", at) for at in range(len(free))]
    order = [items[at] for at in d.shuffled(range(len(items)))]
    dims = [free[at] if role == "f" else x.dims[at] for role, at in order]
    kept = [x.dims[at] for at, role in enumerate(roles) if role == "k"]
    free = [size for (role, _), size in zip(order, dims, strict=True) if role == "f"]
    result = [*(x.dims[at] for at in batch), *kept, *free]
    sizes = (DrawnValue("", x.dtype, tuple(shape)).size for shape in (dims, result))
    if max(sizes) > MAX_ELEMENTS or len(result) > 6:
        return None
    other = d.source(x.dtype, dims)
    more = ""
    for name, places, role in (("batch", batch, "b"), ("contracting", contracted, "c")):
        if places:
            theirs = numbers(order.index((role, at)) for at in places)
            more += f", lhs_{name}_dims={{{numbers(places)}}}, rhs_{name}_dims={{{theirs}}}"
    return d.add(x.dtype, result, call("dot", x, other) + more)


def convolving(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """A convolution with dilation, negative padding, groups, and labels in any order."""
    dtype = x.dtype if x.dtype in ("s32", "s8", "f64") else "f32"
    spatial = d.random.randint(1, 2)
    feature_groups, batch_groups = d.random.choice(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3)))
    batch = batch_groups * d.random.randint(1, 2)
    inputs, outputs = d.random.randint(1, 2), d.random.randint(1, 2)
    window: dict[str, list[str]] = {key: [] for key in ("size", "stride", "pad", "lhs", "rhs")}
    sizes, kernel, result, reversal = [], [], [], []
    for _ in range(spatial):
        size, width = d.random.randint(1, 6), d.random.randint(1, 3)
        step = d.random.choice((1, 1, 2))
        left, right = (d.random.choice((1, 1, 2)) for _ in range(2))
        low, high = (d.random.choice((0, 0, 1, 2, -1)) for _ in range(2))
        whole = (size - 1) * left + 1 + low + high
        reach = (width - 1) * right + 1
        if whole < reach:
            return None
        values = (width, step, f"{low}_{high}", left, right)
        for key, number in zip(window, values, strict=True):
            window[key].append(str(number))
        sizes.append(size)
        kernel.append(width)
        result.append((whole - reach) // step + 1)
        reversal.append(d.random.choice("01"))
    outputs *= feature_groups * batch_groups
    facts = (
        {"b": batch, "f": inputs * feature_groups, **_numbered(sizes)},
        {"i": inputs, "o": outputs, **_numbered(kernel)},
        {"b": batch // batch_groups, "f": outputs, **_numbered(result)},
    )
    shuffled = [[[*fact][at] for at in d.shuffled(range(len(fact)))] for fact in facts]
    shapes = [
        tuple(fact[key] for key in order) for fact, order in zip(facts, shuffled, strict=True)
    ]
    labels = ["".join(order) for order in shuffled]
    operands = [d.source(dtype, shape) for shape in shapes[:2]]
    text = " ".join(
        f"{name}={'x'.join(window[key])}"
        for name, key in (
            *(("size", "size"), ("stride", "stride"), ("pad", "pad")),
            *(("lhs_dilate", "lhs"), ("rhs_dilate", "rhs")),
        )
    )
    if "1" in reversal:
        text += f" rhs_reversal={'x'.join(reversal)}"
    more = f", window={{{text}}}, dim_labels={labels[0]}_{labels[1]}->{labels[2]}"
    more += f", feature_group_count={feature_groups}" * (feature_groups > 1)
    more += f", batch_group_count={batch_groups}" * (batch_groups > 1)
    return d.add(dtype, shapes[2], call("convolution", *operands) + more)


def _numbered(sizes: list[int]) -> dict[str, int]:
    return {str(at): size for at, size in enumerate(sizes)}


MAX_ITERATIONS: Final = 6
_HOLDS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "LT": int.__lt__,
    "LE": int.__le__,
    "GT": int.__gt__,
    "GE": int.__ge__,
    "NE": int.__ne__,
}


def _counted(d: ModuleDraft) -> tuple[str, int, int, int, str, str]:
    """The type, begin, step, end, direction and operation of a counter that soon ends a loop."""
    while True:
        dtype = d.random.choice("s32 s32 s64 u32 u32 s8 u8 u64 s16".split())
        low, high = ends(dtype)
        begin = d.random.choice((0, 0, 1, 2, 3, low, high, high - 1, 100))
        end = d.random.choice((0, 1, 2, 3, 5, low, high, high - 2, 101))
        step = d.random.choice((1, 1, 2, 3, 5, high, max(low, -1)))
        direction = d.random.choice([*_HOLDS])
        advance = d.random.choice(("add", "add", "subtract"))
        counter, count = begin, 0
        while _HOLDS[direction](counter, end) and count <= MAX_ITERATIONS:
            counter += step if advance == "add" else -step
            counter = (counter - low) % (high - low + 1) + low
            count += 1
        if count <= MAX_ITERATIONS:
            return dtype, begin, step, end, direction, advance


def loop(d: ModuleDraft, x: DrawnValue) -> DrawnValue | None:
    """A loop of few iterations by a counter of any type, which may pass the end of its type."""
    if x.dtype == "pred" or x.size > 128 or is_complex(x.dtype):
        return None
    dtype, begin, step, end, direction, advance = _counted(d)
    shape, flag = shape_text(x.dtype, x.dims), x.rank and x.dims[0] > 1
    state = f"({dtype}[], {shape}, {shape})"
    opcode = d.random.choice([name for name in binary_opcodes(x.dtype) if "shift" not in name])
    extra = ""
    used = "y"
    if flag and d.chance(2):
        part = shape_text(x.dtype, (1, *x.dims[1:]))
        zeros = "".join(", zero" for _ in x.dims[1:])
        sizes = numbers((1, *x.dims[1:]))
        extra = (
            f"zero = {dtype}[] constant(0)\n"
            f"row = {part} dynamic-slice(y, i{zeros}), dynamic_slice_sizes={{{sizes}}}\n"
        )
        extra += f"z = {shape} dynamic-update-slice(x, row, i{zeros})\n"
        used = "z"
    body = d.computation(
        [],
        f"""p0 = {state} parameter(0)
i = {dtype}[] get-tuple-element(p0), index=0
x = {shape} get-tuple-element(p0), index=1
y = {shape} get-tuple-element(p0), index=2
step = {dtype}[] constant({step})
j = {dtype}[] {advance}(i, step)
{extra}next = {shape} {opcode}(x, {used})
ROOT r = {state} tuple(j, next, y)""",
    )
    condition = d.computation(
        [],
        f"""p0 = {state} parameter(0)
i = {dtype}[] get-tuple-element(p0), index=0
end = {dtype}[] constant({end})
ROOT r = pred[] compare(i, end), direction={direction}""",
    )
    first = d.constant(dtype, (), [str(begin)])
    other = d.splat(x) if d.chance(3) else d.partner(x)
    start = d.splat(x) if d.chance(4) else x
    name = f"t{len(d.lines)}"
    d.lines.append(f"%{name}.s = {state} {call('tuple', first, start, other)}")
    d.lines.append(f"%{name} = {state} while(%{name}.s), condition=%{condition}, body=%{body}")
    number = 0 if d.chance(5) else 1
    shapes = ((dtype, ()), (x.dtype, x.dims))
    return d.add(*shapes[number], f"get-tuple-element(%{name}), index={number}")


def conditional(d: ModuleDraft, x: DrawnValue) -> DrawnValue:
    """Branches by a predicate or a number, which may be constant or out of range."""
    shape = (x.dtype, x.dims)
    is_indexed = d.chance(2)
    count = d.random.randint(1, 3) if is_indexed else 2
    branches = []
    for _ in range(count):
        opcode = d.random.choice(binary_opcodes(x.dtype))
        root = f"ROOT r = {shape_text(*shape)} {opcode}(p0, p0)"
        if d.chance(3):
            root = f"ROOT r = {shape_text(*shape)} copy(p0)"
        branches.append(d.computation([shape], root))
    if is_indexed:
        chosen = d.parameter("s32", ()) if d.chance(2) else d.constant("s32")
        names = f"branch_computations={{{numbers(f'%{name}' for name in branches)}}}"
    else:
        chosen = d.parameter("pred", ()) if d.chance(2) else d.constant("pred")
        names = f"true_computation=%{branches[0]}, false_computation=%{branches[1]}"
    operands = [d.partner(x) if d.chance(3) else x for _ in branches]
    return d.add(*shape, f"{call('conditional', chosen, *operands)}, {names}")
