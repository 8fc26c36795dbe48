"""Hypothesis strategies: HLO modules that XLA accepts, and texts that are nearly such modules.

    from hypothesis import given
    from hlo_lint.apps.testing import strategies

    @given(strategies.modules())
    def test_my_pass(text: str) -> None:
        ...

They need the package `hypothesis`, which comes with `hlo-lint[test]`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final, TypeAlias

from hypothesis import strategies as st

Draw: TypeAlias = st.DrawFn
_names = re.compile(r"%([\w.]+)").findall

MAX_ELEMENTS: Final = 256
"""Of an array: the values of a module are to be computed in a moment."""

FLOATS: Final = ("f32", "bf16", "f16")
INTEGERS: Final = ("s32", "u8")
_UNARY: Final = {
    "float": ("negate", "abs", "tanh", "exponential", "floor", "sign"),
    "integer": ("negate", "not"),
    "pred": ("not",),
}
_BINARY: Final = {
    "float": ("add", "multiply", "subtract", "maximum", "minimum"),
    "integer": ("add", "multiply", "subtract", "maximum", "and", "or", "xor"),
    "pred": ("and", "or", "xor"),
}


@dataclass(frozen=True)
class ArrayType:
    """An element type, dimensions and a layout: `f32[2,3]{0,1}`."""

    dtype: str
    dims: tuple[int, ...]
    minor_to_major: tuple[int, ...]

    def __str__(self) -> str:
        order = ",".join(map(str, self.minor_to_major))
        return f"{self.logical}{{{order}}}" if self.dims else self.logical

    @property
    def logical(self) -> str:
        """The type without its layout."""
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"

    @property
    def kind(self) -> str:
        """The operations that it takes part in: `float`, `integer` or `pred`."""
        if self.dtype in FLOATS:
            return "float"
        return "pred" if self.dtype == "pred" else "integer"


@dataclass
class _Program:
    """A computation while it is drawn."""

    prefix: str
    layouts: bool
    lines: list[str] = field(default_factory=list)
    values: list[tuple[str, ArrayType]] = field(default_factory=list)

    def add(self, shape: ArrayType, text: str) -> str:
        """Add an instruction; gives its name."""
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"%{name} = {shape} {text}")
        self.values.append((name, shape))
        return name

    def prune(self, root: str) -> None:
        """Leave out what the root does not need: XLA lets nothing in a fusion be dead."""
        needed = {root}
        for (name, _), line in reversed(list(zip(self.values, self.lines, strict=True))):
            if name in needed:
                needed.update(_names(line))
        pairs = list(zip(self.values, self.lines, strict=True))
        kept = [pair for pair in pairs if pair[0][0] in needed or " parameter(" in pair[1]]
        self.values, self.lines = [value for value, _ in kept], [line for _, line in kept]

    def text(self, name: str, root: str, *, is_entry: bool = False) -> str:
        """The computation, with the root marked."""
        parameters = [
            (line.split(" = ")[0], shape.logical)
            for line, (_, shape) in zip(self.lines, self.values, strict=True)
            if " parameter(" in line
        ]
        signature = ", ".join(f"{of[1:]}: {logical}" for of, logical in parameters)
        result = dict(self.values)[root].logical
        body = "\n".join(
            f"  {'ROOT ' if line.startswith(f'%{root} =') else ''}{line}" for line in self.lines
        )
        head = "ENTRY " if is_entry else ""
        return f"{head}%{name} ({signature}) -> {result} {{\n{body}\n}}\n"


@st.composite
def array_types(
    draw: Draw, dtypes: tuple[str, ...] = (*FLOATS, *INTEGERS, "pred"), *, layouts: bool = True
) -> ArrayType:
    """Types of small arrays; `layouts` says whether others than the default occur."""
    dims = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    return _with_layout(draw, ArrayType(draw(st.sampled_from(dtypes)), dims, ()), layouts)


def _with_layout(draw: Draw, shape: ArrayType, layouts: bool) -> ArrayType:
    order = tuple(range(len(shape.dims) - 1, -1, -1))
    if layouts and order:
        order = tuple(draw(st.permutations(order)))
    return replace(shape, minor_to_major=order)


def _unary(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    program.add(shape, f"{draw(st.sampled_from(_UNARY[shape.kind]))}(%{name})")


def _binary(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    other = draw(st.sampled_from([of for of, its in program.values if its == shape]))
    program.add(shape, f"{draw(st.sampled_from(_BINARY[shape.kind]))}(%{name}, %{other})")


def _compare(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    direction = draw(st.sampled_from(("EQ", "NE", "LT", "GE")))
    result = replace(shape, dtype="pred")
    chosen = program.add(result, f"compare(%{name}, %{name}), direction={direction}")
    program.add(shape, f"select(%{chosen}, %{name}, %{name})")


def _copy(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    program.add(_with_layout(draw, shape, program.layouts), f"copy(%{name})")


def _convert(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    if shape.kind == "float":
        program.add(replace(shape, dtype=draw(st.sampled_from(FLOATS))), f"convert(%{name})")


def _transpose(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    order = draw(st.permutations(range(len(shape.dims))))
    dims = tuple(shape.dims[at] for at in order)
    result = _with_layout(draw, replace(shape, dims=dims), program.layouts)
    program.add(result, f"transpose(%{name}), dimensions={{{','.join(map(str, order))}}}")


def _reshape(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    dims: list[int] = []
    left = prod(shape.dims)
    while left > 1:
        dims.append(draw(st.sampled_from([n for n in range(2, left + 1) if left % n == 0])))
        left //= dims[-1]
    dims.insert(draw(st.integers(0, len(dims))), 1)
    result = _with_layout(draw, replace(shape, dims=tuple(dims)), program.layouts)
    program.add(result, f"reshape(%{name})")


def _broadcast(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    size = draw(st.integers(1, 3))
    if prod(shape.dims) * size > MAX_ELEMENTS or len(shape.dims) > 4:
        return
    at = draw(st.integers(0, len(shape.dims)))
    dims = (*shape.dims[:at], size, *shape.dims[at:])
    kept = [number for number in range(len(dims)) if number != at]
    result = _with_layout(draw, replace(shape, dims=dims), program.layouts)
    program.add(result, f"broadcast(%{name}), dimensions={{{','.join(map(str, kept))}}}")


def _slice(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    ranges, dims = [], []
    for size in shape.dims:
        begin = draw(st.integers(0, size - 1))
        end = draw(st.integers(begin + 1, size))
        ranges.append(f"[{begin}:{end}]")
        dims.append(end - begin)
    program.add(replace(shape, dims=tuple(dims)), f"slice(%{name}), slice={{{', '.join(ranges)}}}")


def _concatenate(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    if not shape.dims or 2 * prod(shape.dims) > MAX_ELEMENTS:
        return
    at = draw(st.integers(0, len(shape.dims) - 1))
    dims = (*shape.dims[:at], 2 * shape.dims[at], *shape.dims[at + 1 :])
    program.add(replace(shape, dims=dims), f"concatenate(%{name}, %{name}), dimensions={{{at}}}")


def _dot(draw: Draw, program: _Program, name: str, shape: ArrayType) -> None:
    if shape.kind != "float" or not shape.dims:
        return
    at = draw(st.integers(0, len(shape.dims) - 1))
    rest = (*shape.dims[:at], *shape.dims[at + 1 :])
    if prod(rest) ** 2 > MAX_ELEMENTS or len(rest) > 2:
        return
    result = _with_layout(draw, replace(shape, dims=rest + rest), program.layouts)
    numbers = f"lhs_contracting_dims={{{at}}}, rhs_contracting_dims={{{at}}}"
    program.add(result, f"dot(%{name}, %{name}), {numbers}")


_STEPS: Final = (
    *(_unary, _binary, _compare, _copy, _convert, _transpose, _reshape, _broadcast),
    *(_slice, _concatenate, _dot),
)


def _grow(draw: Draw, program: _Program, steps: int) -> None:
    for step in draw(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=steps)):
        step(draw, program, *draw(st.sampled_from(program.values)))


@st.composite
def modules(draw: Draw, *, max_steps: int = 10, layouts: bool = True) -> str:
    """Texts of modules, as XLA prints them, that its parser reads and its verifier accepts.

    The entry has parameters, elementwise operations, reshapes, copies, dots and the like; calls,
    fusions and reductions have computations of their own. With `layouts` arrays have any layouts.
    """
    entry = _Program("v", layouts)
    types = draw(st.lists(array_types(layouts=layouts), min_size=1, max_size=3))
    for number, shape in enumerate(types):
        entry.add(shape, f"parameter({number})")
    others: list[str] = []
    for number in range(draw(st.integers(1, 3))):
        _grow(draw, entry, max_steps)
        kind = draw(st.sampled_from(("", "call", "fusion", "reduce")))
        if kind == "reduce":
            _reduce(draw, entry, number, others)
        elif kind:
            _call(draw, entry, kind, number, others)
    root = entry.values[-1][0]
    body = "\n".join((*others, entry.text("main", root, is_entry=True)))
    scheduled = draw(st.sampled_from(("", ", is_scheduled=true")))
    arguments = ", ".join(str(shape) for shape in types)
    layout = f"entry_computation_layout={{({arguments})->{dict(entry.values)[root]}}}"
    return f"HloModule drawn{scheduled}, {layout}\n\n{body}\n"


def _call(draw: Draw, entry: _Program, kind: str, number: int, others: list[str]) -> None:
    name, shape = draw(st.sampled_from(entry.values))
    callee = _Program(f"c{number}.", entry.layouts)
    callee.add(shape, "parameter(0)")
    _grow(draw, callee, 4)
    root, result = callee.values[-1]
    callee.prune(root)
    others.append(callee.text(f"{kind}.{number}", root))
    how = "kind=kLoop, calls" if kind == "fusion" else "to_apply"
    entry.add(result, f"{kind}(%{name}), {how}=%{kind}.{number}")


def _reduce(draw: Draw, entry: _Program, number: int, others: list[str]) -> None:
    name, shape = draw(st.sampled_from(entry.values))
    if shape.kind != "float" or not shape.dims:
        return
    scalar = f"{shape.dtype}[]"
    others.append(
        f"%sum.{number} (a.{number}: {scalar}, b.{number}: {scalar}) -> {scalar} {{\n"
        f"  %a.{number} = {scalar} parameter(0)\n  %b.{number} = {scalar} parameter(1)\n"
        f"  ROOT %s.{number} = {scalar} add(%a.{number}, %b.{number})\n}}\n"
    )
    zero = entry.add(ArrayType(shape.dtype, (), ()), "constant(0)")
    at = draw(st.integers(0, len(shape.dims) - 1))
    dims = (*shape.dims[:at], *shape.dims[at + 1 :])
    result = _with_layout(draw, replace(shape, dims=dims), entry.layouts)
    how = f"dimensions={{{at}}}, to_apply=%sum.{number}"
    entry.add(result, f"reduce(%{name}, %{zero}), {how}")


_TOKENS: Final = (
    *"(){}[]\"',=%/*\n\r\t \0",
    *(
        "/*",
        "*/",
        "//",
        "ROOT ",
        "ENTRY ",
        "HloModule ",
        "f32[",
        "-1",
        "9" * 20,
        "\udcff",
        "\u202e",
    ),
    *("calls=", "metadata={", "// hlo-lint: allow ", "custom-call", "{maximal device=0}", "#0"),
)


@st.composite
def damaged_modules(draw: Draw) -> str:
    """Texts of modules with a few stretches left out, doubled, moved or replaced."""
    text = draw(modules(max_steps=4))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.sampled_from((0, 0, 1, 2, 10, 60))))
        stretch = text[begin:end]
        other = draw(st.sampled_from(("", stretch * 2, *_TOKENS)))
        text = text[:begin] + other + text[end:]
    return text
