"""The geometry of convolutions or reduce-windows: windows, dimension numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError, Cursor, reads
from hlo_lint.text.patterns import late


class WindowDimension(NamedTuple):
    """A window along a dimension, in elements."""

    size: int
    stride: int = 1
    padding_low: int = 0
    """May be negative, which crops; likewise `padding_high`."""
    padding_high: int = 0
    base_dilation: int = 1
    """`lhs_dilate`: the distance between elements of the base area."""
    window_dilation: int = 1
    """`rhs_dilate`: the distance between elements of the window."""
    is_reversed: bool = False


Window: TypeAlias = tuple[WindowDimension, ...]

_is_grid = late(r"-?[0-9]+(?:x-?[0-9]+)*").fullmatch
_is_pad = late(r"-?[0-9]+_-?[0-9]+(?:x-?[0-9]+_-?[0-9]+)*").fullmatch
_DEFAULTS = {
    "size": (1,),
    "stride": (1,),
    "pad": (0, 0),
    "lhs_dilate": (1,),
    "rhs_dilate": (1,),
    "rhs_reversal": (0,),
}
"""The default of each part, per dimension (hlo_parser.cc: ParseWindow)."""


@reads("expected a window, like {size=3x3 stride=2x2 pad=1_1x1_1}")
def read_window(cursor: Cursor) -> Window:
    """The value of `window={…}`, with an entry for each dimension; missing parts are defaults.

    >>> read_window("{size=3x3 pad=1_1x0_2}")[1].padding_high
    2
    """
    cursor.demand("{")
    parts: dict[str, tuple[tuple[int, ...], ...]] = {}
    begins: dict[str, int] = {}
    while not cursor.take("}"):
        begin = cursor.at
        message = "expected size, stride, pad, lhs_dilate, rhs_dilate or rhs_reversal"
        name = cursor.read(_DEFAULTS.__contains__, message)
        if name in parts:
            cursor.refuse(f"{name} is given twice", begin)
        cursor.demand("=")
        if name == "pad":
            parts[name] = cursor.grid(_is_pad, "expected low_high for each dimension, like 1_1x0_0")
        else:
            parts[name] = cursor.grid(_is_grid, "expected a number for each dimension, like 3x3")
        begins[name] = begin
    rank = max(map(len, parts.values()), default=0)
    for name, part in parts.items():
        if len(part) != rank:
            message = "every part of a window has as many numbers as it has dimensions"
            cursor.refuse(message, begins[name])
    columns = [parts.get(name, (default,) * rank) for name, default in _DEFAULTS.items()]
    return tuple(
        WindowDimension(size, stride, low, high, base, window, bool(reversal))
        for (size,), (stride,), (low, high), (base,), (window,), (reversal,) in zip(
            *columns, strict=True
        )
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


def read_dim_labels(text: str) -> ConvolutionDimensionNumbers:
    """The value of `dim_labels=…`; an AttributeSyntaxError if a label is missing or repeated.

    >>> read_dim_labels("b0f_0io->bf0").output_spatial
    (2,)
    """
    match = _is_dim_labels(text)
    if match is None:
        message = "expected labels of dimensions, like b01f_01io->b01f"
        raise AttributeSyntaxError(message, text, 0)
    image, kernel, output = match.groups()
    # One digit a dimension (hlo_parser.cc: ParseConvolutionDimensionNumbers).
    spatial = "".join(sorted(label for label in image if label.isdigit()))
    if spatial != "0123456789"[: len(spatial)]:
        raise AttributeSyntaxError("spatial dimensions are 0, 1, … each once", text, 0)
    numbers: list[Any] = []
    # A dimension with the label `?` has no role.
    for part, wanted in ((image, "bf"), (kernel, "io"), (output, "bf")):
        if "".join(sorted(label for label in part if label != "?")) != spatial + wanted:
            message = f"expected each of {', '.join(wanted + spatial)} once in {part}"
            raise AttributeSyntaxError(message, text, text.find(part))
        numbers += (*map(part.index, wanted), tuple(map(part.index, spatial)))
    return ConvolutionDimensionNumbers(*numbers)


def spelled_window(dimensions: Sequence[WindowDimension]) -> str:
    """The text of `window=…` with all parts, also defaults; empty without dimensions."""
    if not dimensions:
        return ""
    size, stride, low, high, base, dilation, reversal = zip(*dimensions, strict=True)
    parts = {
        "size": size,
        "stride": stride,
        "pad": [f"{a}_{b}" for a, b in zip(low, high, strict=True)],
        "lhs_dilate": base,
        "rhs_dilate": dilation,
        "rhs_reversal": map(int, reversal),
    }
    texts = [f"{name}={'x'.join(map(str, part))}" for name, part in parts.items()]
    return "{" + " ".join(texts) + "}"


def spelled_dim_labels(labels: ConvolutionDimensionNumbers) -> str:
    """The text of `dim_labels=…`.

    >>> spelled_dim_labels(read_dim_labels("b0f_0io->bf0"))
    'b0f_0io->bf0'
    """

    def side(letters: str, first: int, second: int, spatial: Sequence[int]) -> str:
        digits = {place: str(number) for number, place in enumerate(spatial)}
        named = {first: letters[0], second: letters[1], **digits}
        return "".join(named[place] for place in sorted(named))

    image, kernel = side("bf", *labels[:3]), side("io", *labels[3:6])
    return f"{image}_{kernel}->{side('bf', *labels[6:])}"
