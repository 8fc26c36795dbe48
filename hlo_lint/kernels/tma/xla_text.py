"""TMA descriptors of XLA's own Triton fusions, as XLA prints them.

`*.triton-to-llvm.txt` prints `#triton_xla.tma_descriptor<...>` in the IR before and after each pass
(`xla/backends/gpu/codegen/triton/ir/triton_xla_attrs.td`). It has no strides: `CreateTmaDescriptor`
assumes a dense array in the given layout. The other form is `TmaDescriptor::ToString`
(`xla/stream_executor/gpu/tma_metadata.cc`).
"""

from __future__ import annotations

import re
from itertools import accumulate
from operator import mul
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
_message = re.compile(
    rf"TmaDescriptor\{{element_size: (?P<size>{_INT}), global_dims: \{{(?P<global_dims>{_LIST})\}}"
    rf", global_strides: \{{(?P<global_strides>{_LIST})\}}, box_dims: \{{(?P<box_dims>{_LIST})\}}"
    rf", element_strides: \{{(?P<element_strides>{_LIST})\}}, interleave: (?P<interleave>{_INT})"
    rf", swizzle: (?P<swizzle>{_INT}), l2_promotion: (?P<l2_promotion>{_INT})"
    rf", float_oob_fill: (?P<oob_fill>{_INT})\}}"
)
_integer = re.compile(r"-?[0-9]++")


def read_descriptors(text: str) -> Iterator[Located]:
    """The readable descriptors in a text, each at its first occurrence.

    A dump prints each descriptor once per pass, some hundred times.
    """
    seen: set[str] = set()
    for pattern, locate in ((_attribute, _locate_attribute), (_message, _locate_message)):
        for match in pattern.finditer(text):
            if match[0] in seen:
                continue
            seen.add(match[0])
            located = locate(match)
            if located is not None:
                yield located


def _locate_attribute(match: re.Match[str]) -> Located | None:
    shape, tile, steps, layout = (
        _numbers(match, name) for name in ("shape", "tile", "steps", "layout")
    )
    rank = len(shape)
    order = [value for value, _ in layout]
    if not rank == len(tile) == len(steps) == len(layout) or sorted(order) != list(range(rank)):
        return None
    size, swizzle = int(match["size"]), _SWIZZLE_MODES[match["swizzle"] or "none"]

    dims = tuple(shape[i][0] for i in order)
    _, *strides = accumulate(dims[:-1], mul, initial=size)
    box = [tile[i][0] * steps[i][0] for i in order]
    span = swizzle_span(swizzle)
    if span is not None and size > 0 and box and box[0] * size > span:
        box[0] = span // size  # CreateTmaDescriptor splits the tile into several boxes

    places = {"rank": Span(*match.span("shape"))}
    places["element_size"] = places["data_type"] = Span(*match.span("size"))
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


def _locate_message(match: re.Match[str]) -> Located | None:
    modes = ("interleave", "swizzle", "l2_promotion", "oob_fill")
    places = {name: Span(*match.span(name)) for name in modes}
    places["element_size"] = places["data_type"] = Span(*match.span("size"))
    places["rank"] = Span(*match.span("global_dims"))

    def entries(name: str, missing: int = 0) -> tuple[int, ...]:
        places[name] = Span(*match.span(name))
        numbers = _numbers(match, name)
        for dimension, (_, place) in enumerate(numbers, missing):
            places[f"{name}[{dimension}]"] = place
        return tuple(value for value, _ in numbers)

    dims = entries("global_dims")
    descriptor = Descriptor(
        element_type_of_size(int(match["size"])),
        len(dims),
        dims,
        entries("global_strides", missing=1),
        entries("box_dims"),
        entries("element_strides"),
        **{mode: int(match[mode]) for mode in modes},
    )
    return Located(descriptor, Consumer.XLA, Span(*match.span()), places)


def _numbers(match: re.Match[str], name: str) -> list[tuple[int, Span]]:
    begin, end = match.span(name)
    return [
        (int(number[0]), Span(*number.span()))
        for number in _integer.finditer(match.string, begin, end)
    ]
