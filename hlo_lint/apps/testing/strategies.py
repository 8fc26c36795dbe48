"""Hypothesis strategies: HLO modules that XLA accepts.

    from hypothesis import given
    from hlo_lint.apps.testing import strategies

    @given(strategies.modules())
    def test_my_pass(text: str) -> None:
        ...

They need the package `hypothesis`, which comes with `hlo-lint[test]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from hypothesis import strategies as st

from hlo_lint.hlo.shape import ArrayShape, Layout

T = TypeVar("T")

MAX_ELEMENTS: Final = 256
"""Of an array: the values of a module are to be computed in a moment."""

FLOATS: Final = ("f32", "bf16", "f16")
INTEGERS: Final = ("s32", "u8")
_FLOAT: Final = (
    *("negate", "abs", "tanh", "exponential", "floor", "sign"),
    *("add", "multiply", "subtract", "maximum", "minimum"),
)
_INTEGER: Final = ("negate", "not", "add", "multiply", "subtract", "maximum", "and", "or", "xor")
_ELEMENTWISE: Final = {
    **dict.fromkeys(FLOATS, _FLOAT),
    **dict.fromkeys(INTEGERS, _INTEGER),
    "pred": ("not", "and", "or", "xor"),
}
_UNARY: Final = frozenset(("negate", "abs", "tanh", "exponential", "floor", "sign", "not"))


@dataclass
class _Computation:
    """A computation while it is drawn."""

    draw: st.DrawFn
    prefix: str
    layouts: bool
    shapes: dict[str, ArrayShape] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def one_of(self, choices: Sequence[T]) -> T:
        return self.draw(st.sampled_from(choices))

    def number(self, least: int, most: int) -> int:
        return self.draw(st.integers(least, most))

    def add(self, shape: ArrayShape, text: str) -> str:
        """Add an instruction; gives its name."""
        name = f"{self.prefix}{len(self.lines)}"
        self.lines.append(f"%{name} = {shape} {text}")
        self.shapes[name] = shape
        return name

    def add_laid_out(self, dtype: str, dims: Iterable[int], text: str) -> None:
        """Add an instruction whose layout is drawn."""
        self.add(_laid_out(self.draw, ArrayShape(dtype, tuple(dims)), self.layouts), text)

    def text(self, name: str) -> str:
        """The computation; the last instruction is the root."""
        *lines, root = self.lines
        parameters = ", ".join(
            f"{of}: {shape.with_layout(None)}"
            for line, (of, shape) in zip(self.lines, self.shapes.items(), strict=True)
            if " parameter(" in line
        )
        result = [*self.shapes.values()][-1].with_layout(None)
        body = "\n  ".join([*lines, f"ROOT {root}"])
        return f"%{name} ({parameters}) -> {result} {{\n  {body}\n}}\n"


@st.composite
def array_shapes(
    draw: st.DrawFn, dtypes: tuple[str, ...] = (*FLOATS, *INTEGERS, "pred"), *, layouts: bool = True
) -> ArrayShape:
    """Shapes of small arrays; `layouts` says whether others than the default occur."""
    dims = tuple(draw(st.lists(st.integers(1, 4), max_size=4)))
    return _laid_out(draw, ArrayShape(draw(st.sampled_from(dtypes)), dims), layouts)


def _laid_out(draw: st.DrawFn, shape: ArrayShape, layouts: bool) -> ArrayShape:
    if not shape.dims:
        return shape
    order = shape.minor_to_major
    return shape.with_layout(Layout(tuple(draw(st.permutations(order)) if layouts else order)))


def _numbers(numbers: Iterable[int]) -> str:
    return f"{{{','.join(map(str, numbers))}}}"


def _elementwise(body: _Computation, name: str, shape: ArrayShape) -> None:
    opcode = body.one_of(_ELEMENTWISE[shape.dtype])
    alike = [other for other, of_other in body.shapes.items() if of_other == shape]
    second = "" if opcode in _UNARY else f", %{body.one_of(alike)}"
    body.add(shape, f"{opcode}(%{name}{second})")


def _compare(body: _Computation, name: str, shape: ArrayShape) -> None:
    direction = body.one_of(("EQ", "NE", "LT", "GE"))
    result = shape._replace(dtype="pred")
    chosen = body.add(result, f"compare(%{name}, %{name}), direction={direction}")
    body.add(shape, f"select(%{chosen}, %{name}, %{name})")


def _copy(body: _Computation, name: str, shape: ArrayShape) -> None:
    body.add_laid_out(shape.dtype, shape.dims, f"copy(%{name})")


def _convert(body: _Computation, name: str, shape: ArrayShape) -> None:
    if shape.dtype in FLOATS:
        body.add(shape._replace(dtype=body.one_of(FLOATS)), f"convert(%{name})")


def _transpose(body: _Computation, name: str, shape: ArrayShape) -> None:
    order = body.draw(st.permutations(range(shape.rank)))
    dims = (shape.dims[at] for at in order)
    body.add_laid_out(shape.dtype, dims, f"transpose(%{name}), dimensions={_numbers(order)}")


def _reshape(body: _Computation, name: str, shape: ArrayShape) -> None:
    dims: list[int] = []
    left = shape.elements
    while left > 1:
        dims.append(body.one_of([n for n in range(2, left + 1) if left % n == 0]))
        left //= dims[-1]
    dims.insert(body.number(0, len(dims)), 1)
    body.add_laid_out(shape.dtype, dims, f"reshape(%{name})")


def _broadcast(body: _Computation, name: str, shape: ArrayShape) -> None:
    size, at = body.number(1, 3), body.number(0, shape.rank)
    if shape.elements * size <= MAX_ELEMENTS and shape.rank <= 4:
        dims = (*shape.dims[:at], size, *shape.dims[at:])
        kept = _numbers(number for number in range(len(dims)) if number != at)
        body.add_laid_out(shape.dtype, dims, f"broadcast(%{name}), dimensions={kept}")


def _slice(body: _Computation, name: str, shape: ArrayShape) -> None:
    begins = [body.number(0, size - 1) for size in shape.dims]
    ends = [body.number(at + 1, size) for at, size in zip(begins, shape.dims, strict=True)]
    ranges = list(zip(begins, ends, strict=True))
    dims = tuple(end - begin for begin, end in ranges)
    spelled = ", ".join(f"[{begin}:{end}]" for begin, end in ranges)
    body.add(shape._replace(dims=dims), f"slice(%{name}), slice={{{spelled}}}")


def _concatenate(body: _Computation, name: str, shape: ArrayShape) -> None:
    if shape.dims and 2 * shape.elements <= MAX_ELEMENTS:
        at = body.number(0, shape.rank - 1)
        dims = (*shape.dims[:at], 2 * shape.dims[at], *shape.dims[at + 1 :])
        body.add(shape._replace(dims=dims), f"concatenate(%{name}, %{name}), dimensions={{{at}}}")


def _dot(body: _Computation, name: str, shape: ArrayShape) -> None:
    if shape.dtype not in FLOATS or not 1 <= shape.rank <= 3:
        return
    at = body.number(0, shape.rank - 1)
    rest = (*shape.dims[:at], *shape.dims[at + 1 :])
    if (shape.elements // shape.dims[at]) ** 2 <= MAX_ELEMENTS:
        contracted = f"lhs_contracting_dims={{{at}}}, rhs_contracting_dims={{{at}}}"
        body.add_laid_out(shape.dtype, rest + rest, f"dot(%{name}, %{name}), {contracted}")


_Step: TypeAlias = Callable[[_Computation, str, ArrayShape], None]
_STEPS: Final[tuple[_Step, ...]] = (
    *(_elementwise, _elementwise, _compare, _copy, _convert, _transpose, _reshape, _broadcast),
    *(_slice, _concatenate, _dot),
)


@st.composite
def modules(draw: st.DrawFn, *, max_steps: int = 10, layouts: bool = True) -> str:
    """Texts of modules, as XLA prints them, that its parser reads and its verifier accepts.

    The entry has parameters, elementwise operations, reshapes, copies, dots and the like; calls,
    fusions and reductions have computations of their own. With `layouts` arrays have any layouts.
    """
    entry = _Computation(draw, "v", layouts)
    shapes = draw(st.lists(array_shapes(layouts=layouts), min_size=1, max_size=3))
    for number, shape in enumerate(shapes):
        entry.add(shape, f"parameter({number})")
    others: list[str] = []
    for number in range(entry.number(1, 3)):
        for step in draw(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=max_steps)):
            step(entry, *entry.one_of([*entry.shapes.items()]))
        called = entry.one_of(("", "call", "fusion", "reduce"))
        if called == "reduce":
            _reduce(entry, number, others)
        elif called:
            _call(entry, called, number, others)
    scheduled = entry.one_of(("", ", is_scheduled=true"))
    arguments = ", ".join(map(str, shapes))
    layout = f"entry_computation_layout={{({arguments})->{[*entry.shapes.values()][-1]}}}"
    body = "\n".join([*others, f"ENTRY {entry.text('main')}"])
    return f"HloModule drawn{scheduled}, {layout}\n\n{body}\n"


def _call(entry: _Computation, opcode: str, number: int, others: list[str]) -> None:
    name, shape = entry.one_of([*entry.shapes.items()])
    callee = _Computation(entry.draw, f"c{number}.", entry.layouts)
    callee.add(shape, "parameter(0)")
    for step in entry.draw(st.lists(st.sampled_from(_STEPS), min_size=1, max_size=4)):
        step(callee, *[*callee.shapes.items()][-1])  # XLA lets nothing in a fusion be dead
    others.append(callee.text(f"{opcode}.{number}"))
    how = "kind=kLoop, calls" if opcode == "fusion" else "to_apply"
    result = [*callee.shapes.values()][-1]
    entry.add(result, f"{opcode}(%{name}), {how}=%{opcode}.{number}")


def _reduce(entry: _Computation, number: int, others: list[str]) -> None:
    name, shape = entry.one_of([*entry.shapes.items()])
    if shape.dtype not in FLOATS or not shape.dims:
        return
    scalar = ArrayShape(shape.dtype, ())
    body = _Computation(entry.draw, f"s{number}.", entry.layouts)
    operands = [body.add(scalar, f"parameter({at})") for at in range(2)]
    body.add(scalar, f"add(%{operands[0]}, %{operands[1]})")
    others.append(body.text(f"sum.{number}"))
    zero = entry.add(scalar, "constant(0)")
    at = entry.number(0, shape.rank - 1)
    how = f"dimensions={{{at}}}, to_apply=%sum.{number}"
    dims = (*shape.dims[:at], *shape.dims[at + 1 :])
    entry.add_laid_out(shape.dtype, dims, f"reduce(%{name}, %{zero}), {how}")
