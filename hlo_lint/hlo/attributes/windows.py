"""Windows and dimension numbers of convolutions and reduce-windows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlo_lint.hlo.attributes.errors import AttributeSyntaxError
from hlo_lint.hlo.attributes.exact import MAX_DIGITS, Language, parse_text, refuse
from hlo_lint.hlo.grammar import tokens, trees
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from lark import Token, Tree


class WindowDimension(NamedTuple):
    """A window along one dimension, in elements."""

    size: int
    stride: int = 1
    padding_low: int = 0
    """May be negative, which takes away; likewise `padding_high`."""
    padding_high: int = 0
    base_dilation: int = 1
    """`lhs_dilate`: the elements of what the window moves over lie so far apart."""
    window_dilation: int = 1
    """`rhs_dilate`: the elements of the window lie so far apart."""
    is_reversed: bool = False


Window: TypeAlias = tuple[WindowDimension, ...]

_NUMBER = r"-?\d{1,18}"
_NUMBERS = rf"{_NUMBER}(?:x{_NUMBER})*+"
_PAIR = rf"{_NUMBER}_{_NUMBER}"
_is_window = late(
    rf"\{{size=({_NUMBERS})(?: stride=({_NUMBERS}))?(?: pad=({_PAIR}(?:x{_PAIR})*+))?"
    rf"(?: lhs_dilate=({_NUMBERS}))?(?: rhs_dilate=({_NUMBERS}))?(?: rhs_reversal=({_NUMBERS}))?\}}"
).fullmatch
_PARTS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")
_DEFAULTS = {"stride": "1", "pad": "0_0", "lhs_dilate": "1", "rhs_dilate": "1", "rhs_reversal": "0"}
_WINDOW = Language(
    "window",
    "expected a window, like {size=3x3 stride=2x2 pad=1_1x1_1}",
    {
        "expected size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal": ["{x", "{size=3 x"],
        "expected a number for each dimension, like 3x3": ["{size=x", "{stride=}", "{size=[3"],
        "expected low_high for each dimension, like 1_1x0_0": ["{pad=x", "{pad=1x1"],
    },
)


def read_window(text: str) -> Window:
    """The value of `window={…}`, one entry for each dimension.

    >>> read_window("{size=3x3 pad=1_1x0_2}")[1].padding_high
    2

    Raises:
        AttributeSyntaxError: where it is not a window, or its parts differ in length.
    """
    match = _is_window(text)
    if match is None:
        return window_by_grammar(text)
    parts = {name: part for name, part in zip(_PARTS, match.groups(), strict=True) if part}
    return _window(parts, text)


def window_by_grammar(text: str) -> Window:
    """The same value, read by `window.lark`.

    Raises:
        AttributeSyntaxError: where it is not a window, or its parts differ in length.
    """
    parts: dict[str, str] = {}
    for part in trees(parse_text(_WINDOW, text)):
        name, spelled = str(part.data), str(tokens(part)[0])
        if name in parts:
            refuse(f"{name} stands there twice", text, part)
        if max(map(len, re.split("[_x]", spelled))) > MAX_DIGITS:
            refuse("a number does not fit", text, part)
        parts[name] = spelled
    return _window(parts, text)


def _window(parts: dict[str, str], text: str) -> Window:
    if not parts:
        return ()
    # A part that is left out has its default in each dimension (hlo_parser.cc: ParseWindow).
    longest = max(part.count("x") for part in parts.values()) + 1
    columns: list[list[str]] = []
    for name in _PARTS:
        part = parts.get(name)
        column = part.split("x") if part else [_DEFAULTS.get(name, "1")] * longest
        if len(column) != longest:
            message = "every part of a window has as many numbers as it has dimensions"
            raise AttributeSyntaxError(message, text, text.find(f"{name}="))
        columns.append(column)
    return tuple(_dimension(*row) for row in zip(*columns, strict=True))


def _dimension(
    size: str, stride: str, pad: str, lhs_dilate: str, rhs_dilate: str, reversal: str
) -> WindowDimension:
    low, high = pad.split("_")
    return WindowDimension(
        int(size),
        int(stride),
        int(low),
        int(high),
        int(lhs_dilate),
        int(rhs_dilate),
        reversal != "0",
    )


class ConvolutionDimensionNumbers(NamedTuple):
    """The dimension numbers of a convolution: `b01f_01io->b01f`.

    Spatial dimensions are in the order of their labels 0, 1, …
    """

    input_batch: int
    input_feature: int
    input_spatial: tuple[int, ...]
    kernel_input_feature: int
    kernel_output_feature: int
    kernel_spatial: tuple[int, ...]
    output_batch: int
    output_feature: int
    output_spatial: tuple[int, ...]


_is_dim_labels = late(r"([0-9bf?]+)_([0-9io?]+)->([0-9bf?]+)").fullmatch
_DIM_LABELS = Language(
    "dim_labels",
    "expected labels of dimensions, like b01f_01io->b01f",
    {"expected labels b, f and numbers": ["i", "x", "bf_io->i", "bf_io->x"]},
)


def read_dim_labels(text: str) -> ConvolutionDimensionNumbers:
    """The value of `dim_labels=…`.

    >>> read_dim_labels("b0f_0io->bf0").output_spatial
    (2,)

    Raises:
        AttributeSyntaxError: where a label is missing, doubled or none.
    """
    match = _is_dim_labels(text)
    if match is None:
        return dim_labels_by_grammar(text)
    return _dimension_numbers(match[1], match[2], match[3], text)


def dim_labels_by_grammar(text: str) -> ConvolutionDimensionNumbers:
    """The same value, read by `dim_labels.lark`.

    Raises:
        AttributeSyntaxError: where a label is missing, doubled or none.
    """
    labels, kernel, output = (str(tokens(part)[0]) for part in trees(parse_text(_DIM_LABELS, text)))
    return _dimension_numbers(labels, kernel, output, text)


def _dimension_numbers(
    labels: str, kernel: str, output: str, text: str
) -> ConvolutionDimensionNumbers:
    # One digit a dimension (hlo_parser.cc: ParseConvolutionDimensionNumbers).
    spatial = "".join(sorted(label for label in labels if label.isdigit()))
    if spatial != "0123456789"[: len(spatial)]:
        raise AttributeSyntaxError("spatial dimensions are 0, 1, … each once", text, 0)
    for part, wanted in ((labels, "bf"), (kernel, "io"), (output, "bf")):
        labeled = "".join(sorted(label for label in part if label != "?"))
        if labeled != spatial + wanted:
            message = f"expected each of {', '.join(wanted + spatial)} once in {part}"
            raise AttributeSyntaxError(message, text, text.find(part))
    return ConvolutionDimensionNumbers(
        labels.index("b"),
        labels.index("f"),
        tuple(map(labels.index, spatial)),
        kernel.index("i"),
        kernel.index("o"),
        tuple(map(kernel.index, spatial)),
        output.index("b"),
        output.index("f"),
        tuple(map(output.index, spatial)),
    )


class OperandSparsity(NamedTuple):
    """Of each `block` elements along a dimension at most `non_zero` are not 0."""

    non_zero: int
    block: int
    dimension: int
    stride: int
    operand: int
    """Number of the operand that holds the positions of the elements."""


class SparsityConfig(NamedTuple):
    """The sparse operands of a convolution."""

    lhs: OperandSparsity | None = None
    rhs: OperandSparsity | None = None


class OperandScaling(NamedTuple):
    """Scales of blocks of an operand."""

    scale_operand: int
    """Number of the operand that holds the scales."""
    zero_operand: int | None = None
    """Number of the operand that holds the zero point."""
    strides: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()


class BlockScalingConfig(NamedTuple):
    """The operands of a convolution that are scaled block by block."""

    lhs: OperandScaling | None = None
    rhs: OperandScaling | None = None


_OPERAND_CONFIG = Language(
    "operand_config",
    "expected a configuration of operands, like {lhs={…} rhs={…}}",
    {
        "expected lhs or rhs": ["{x", "{{", "{lhs={} x"],
        "expected a field and its numbers, like stride=1 or steps=32x1": ["{lhs={x", "{lhs={idx=x"],
    },
)


def read_sparsity_config(text: str) -> SparsityConfig:
    """The value of `sparsity_config={…}`.

    Raises:
        AttributeSyntaxError: where it is not such a configuration.
    """
    sides: dict[str, OperandSparsity] = {}
    for side, fields, tree in _sides(text):
        sparsity = fields.pop("sparsity", (0, 0))
        values = {name: value[0] for name, value in fields.items() if len(value) == 1}
        if len(sparsity) != 2 or values.keys() - {"dimension", "stride", "idx"}:
            refuse("expected sparsity=2x4 dimension=1 stride=1 idx=2", text, tree)
        dimension, stride, operand = (values.get(n, 0) for n in ("dimension", "stride", "idx"))
        sides[side] = OperandSparsity(*sparsity, dimension, stride, operand)
    return SparsityConfig(**sides)


def read_block_scaling_config(text: str) -> BlockScalingConfig:
    """The value of `block_scaling_config={…}`.

    Raises:
        AttributeSyntaxError: where it is not such a configuration.
    """
    sides: dict[str, OperandScaling] = {}
    for side, fields, tree in _sides(text):
        if fields.keys() - {"scale_idx", "zero_idx", "strides", "steps"}:
            refuse("expected scale_idx=2 zero_idx=3 strides=1x2 steps=32x1", text, tree)
        sides[side] = OperandScaling(
            fields.get("scale_idx", (0,))[0],
            fields["zero_idx"][0] if "zero_idx" in fields else None,
            fields.get("strides", ()),
            fields.get("steps", ()),
        )
    return BlockScalingConfig(**sides)


def _sides(text: str) -> list[tuple[str, dict[str, tuple[int, ...]], Tree[Token]]]:
    sides = []
    for side in trees(parse_text(_OPERAND_CONFIG, text)):
        fields: dict[str, tuple[int, ...]] = {}
        for field in trees(side):
            name, spelled = map(str, tokens(field))
            if max(map(len, spelled.split("x"))) > MAX_DIGITS:
                refuse("a number does not fit", text, field)
            fields[name] = tuple(map(int, spelled.split("x")))
        sides.append((str(tokens(side)[0]), fields, side))
    return sides
