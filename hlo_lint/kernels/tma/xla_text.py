"""TMA descriptors of XLA's own Triton fusions, as printed in dumps.

`*.triton-to-llvm.txt` prints `#triton_xla.tma_descriptor<...>` in the IR before and after each pass
(`xla/backends/gpu/codegen/triton/ir/triton_xla_attrs.td`). It has no strides: `CreateTmaDescriptor`
assumes a dense array in the given layout.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hlo_lint.dumps.file_types import ATTRIBUTE_START
from hlo_lint.kernels.tma.descriptor import (
    Consumer,
    Descriptor,
    Located,
    element_type_of_size,
    swizzle_span,
)
from hlo_lint.text.source import Span

if TYPE_CHECKING:
    from collections.abc import Iterator


_SWIZZLE_MODES = {"none": 0, "32b": 1, "64b": 2, "128b": 3}

_INT = r"-?[0-9]{1,20}+"  # 2^64 has 20 digits
_LIST = rf"(?:{_INT}(?:, ?{_INT})*+)?+"
_attribute = re.compile(
    rf"{ATTRIBUTE_START}global_shape = \[(?P<shape>{_LIST})\]"
    rf", tile_shape = \[(?P<tile>{_LIST})\], tile_strides = \[(?P<steps>{_LIST})\]"
    rf", layout = \[(?P<layout>{_LIST})\], element_byte_size = (?P<size>{_INT})"
    r'(?:, swizzle_mode = "(?P<swizzle>none|32b|64b|128b)")?+>'
)
_integer = re.compile(r"-?[0-9]++")


def read_descriptors(text: str) -> Iterator[Located]:
    """The readable descriptors in a text, each at its first occurrence.

    A dump prints each descriptor once per pass, some hundred times.
    """
    first: dict[str, re.Match[str]] = {}
    for match in _attribute.finditer(text):
        first.setdefault(match[0], match)
    yield from filter(None, map(_located, first.values()))


def _located(match: re.Match[str]) -> Located | None:
    shape, tile, steps, layout = (
        _numbers(match, name) for name in ("shape", "tile", "steps", "layout")
    )
    rank = len(shape)
    order = [value for value, _ in layout]
    if not rank == len(tile) == len(steps) == len(layout) or sorted(order) != list(range(rank)):
        return None
    size, swizzle = int(match["size"]), _SWIZZLE_MODES[match["swizzle"] or "none"]

    dims = tuple(shape[i][0] for i in order)
    strides: list[int] = []
    for dim in dims[:-1]:
        strides.append((strides[-1] if strides else size) * dim)
    box = [tile[i][0] * steps[i][0] for i in order]
    span = swizzle_span(swizzle)
    if span is not None and size > 0 and box and box[0] * size > span:
        box[0] = span // size  # CreateTmaDescriptor splits the tile into several boxes

    places = {
        "element_size": Span(*match.span("size")),
        "data_type": Span(*match.span("size")),
        "rank": Span(*match.span("shape")),
    }
    if match["swizzle"] is not None:
        places["swizzle"] = Span(*match.span("swizzle"))
    for dimension, i in enumerate(order):
        places[f"global_dims[{dimension}]"] = shape[i][1]
        places[f"box_dims[{dimension}]"] = tile[i][1]
        places[f"element_strides[{dimension}]"] = steps[i][1]
        if dimension:  # a stride follows from the size of the next inner dimension
            places[f"global_strides[{dimension}]"] = shape[order[dimension - 1]][1]
    descriptor = Descriptor(
        element_type_of_size(size),
        rank,
        dims,
        tuple(strides),
        tuple(box),
        tuple(steps[i][0] for i in order),
        swizzle=swizzle,
    )
    return Located(descriptor, Consumer.XLA, Span(*match.span()), places)


def _numbers(match: re.Match[str], name: str) -> list[tuple[int, Span]]:
    begin, end = match.span(name)
    return [
        (int(number[0]), Span(*number.span()))
        for number in _integer.finditer(match.string, begin, end)
    ]
