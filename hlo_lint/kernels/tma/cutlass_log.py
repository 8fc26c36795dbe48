"""TMA descriptors that kernel libraries print after the driver rejected them.

CUTLASS (`cute/atom/copy_traits_sm90_tma.hpp`) prints a field per line and then the error; its
`globalStrides` begins with the innermost stride, which is not passed to the driver. TensorRT-LLM's
attention kernels, which FlashInfer ships (`fmha/kernelParams.h`), print the error first, then six
lines. Both print five entries for any rank: CUTLASS pads with 1 and 0; the other reads past its
vectors, so its last numbers are arbitrary.

Such text occurs in logs, between other lines and after prefixes; all other text is skipped.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from hlo_lint.dumps.file_types import CUTLASS_START, FMHA_START
from hlo_lint.kernels.tma.descriptor import Consumer, Descriptor, Located, tensor_map_type
from hlo_lint.text.source import ParseError, Span

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


MAX_LENGTH = 60
"""The largest number of lines that is searched for the twelve fields of a descriptor."""

MAX_WIDTH = 1000
"""The largest length of a log line's prefix, in characters."""

_start = re.compile(rf"{CUTLASS_START}|{FMHA_START}")
_integer = re.compile(r"-?[0-9]+")
_MAX_DIGITS = 20  # of 2^64
_PRINTED = 5  # numbers, at most

_NUMBER = r"-?[0-9]++"
_ADDRESS = r"0[xX][0-9a-fA-F]++|[0-9]++|\(nil\)"
_NUMBERS = rf"[(\[{{]?+[ \t]*+{_NUMBER}(?:[ \t,]++{_NUMBER})*+[ \t,]*+[)\]}}]?+"
_END = r"[ \t]*+\r?$"

_cutlass_field = re.compile(
    rf"(?:(?P<address_name>TMA Desc Addr:|gmem_address)[ \t]++(?P<address>{_ADDRESS})"
    r"|(?P<number_name>format|dim|interleave|swizzle|l2Promotion|oobFill)"
    rf"[ \t]++(?P<number>{_NUMBER})"
    r"|(?P<numbers_name>globalDim|globalStrides|boxDim|elementStrides)"
    rf"[ \t]++(?P<numbers>{_NUMBERS})){_END}"
)
_fmha_head = re.compile(
    rf"tmaFormat:[ \t]*+(?P<format>{_NUMBER})[ \t]++dim:[ \t]*+(?P<dim>{_NUMBER})"
    rf"[ \t]++gmem:[ \t]*+(?P<gmem>{_ADDRESS})"
)
_fmha_field = re.compile(
    r"(?P<name>Shape|Stride|tileShapes|tileStrides|swizzleType):"
    rf"[ \t]*+(?P<numbers>{_NUMBERS}){_END}"
)


_FMHA_NAMES = {
    "gmem_address": "gmem",
    "globalDim": "Shape",
    "globalStrides": "Stride",
    "boxDim": "tileShapes",
    "elementStrides": "tileStrides",
    "swizzle": "swizzleType",
}
"""The fields of TensorRT-LLM's kernels by CUTLASS' names, where these differ."""


@dataclass(frozen=True, slots=True)
class Log:
    """The descriptors of a text, in text order."""

    descriptors: tuple[Located, ...]
    unreadable: tuple[ParseError, ...]
    """Descriptors that lack a field, or have a number that is out of range."""


def read_log(text: str) -> Log:
    """The descriptors printed in a text, in both formats, with the span of each field."""
    descriptors: list[Located] = []
    unreadable: list[ParseError] = []
    starts = [match.start() for match in _start.finditer(text)]
    for start, end in pairwise([*starts, len(text)]):
        read = _read_cutlass if text.startswith(CUTLASS_START, start) else _read_fmha
        try:
            descriptors.append(read(text, start, end))
        except _Damaged as damaged:
            unreadable.append(ParseError(damaged.message, *damaged.span))
    return Log(tuple(descriptors), tuple(unreadable))


# ---- the two formats


class _Damaged(Exception):
    def __init__(self, span: Span, message: str) -> None:
        self.span, self.message = span, message
        super().__init__(message)


class _Fields:
    """The value of each field name: the first counts, since a later may be of another block."""

    def __init__(self, text: str, start: int) -> None:
        self.text, self.start, self.end = text, start, start
        self._values: dict[str, Span] = {}

    def add(self, name: str, span: Span) -> None:
        self._values.setdefault(name, span)
        self.end = max(self.end, span.end)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def span(self, name: str) -> Span:
        if name not in self._values:
            raise _Damaged(self.block, f"a TMA descriptor without {name}")
        return self._values[name]

    @property
    def block(self) -> Span:
        line = self.text.find("\n", self.end)
        end = len(self.text) if line < 0 else line
        return Span(self.start, self.end if self.end > self.start else end)

    def number(self, name: str, default: int | None = None) -> tuple[int, Span]:
        if name not in self._values and default is not None:
            return default, self.block
        span = self.span(name)
        value = self.text[span.start : span.end]
        if value == "(nil)":
            return 0, span
        return self._int(name, span, base=16 if value[:2].lower() == "0x" else 10), span

    def numbers(self, name: str) -> list[tuple[int, Span]]:
        outer = self.span(name)
        spans = [Span(*m.span()) for m in _integer.finditer(self.text, outer.start, outer.end)]
        return [(self._int(name, span), span) for span in spans]

    def _int(self, name: str, span: Span, base: int = 10) -> int:
        if span.end - span.start > _MAX_DIGITS + 1:
            raise _Damaged(span, f"a number out of range in {name}")
        return int(self.text[span.start : span.end], base)


def _read_cutlass(text: str, start: int, end: int) -> Located:
    fields = _Fields(text, start)
    for match in _matches(_cutlass_field, text, start, end):
        group = match.lastgroup or ""
        name = match[f"{group}_name"].rstrip(":")
        fields.add(name, Span(*match.span(group)))
        if name == "oobFill":
            break
    return _located(fields, {}, first_stride=1, l2_promotion=0)


def _read_fmha(text: str, start: int, end: int) -> Located:
    fields = _Fields(text, start)
    if head := next(_matches(_fmha_head, text, start, end), None):
        for name in ("format", "dim", "gmem"):
            fields.add(name, Span(*head.span(name)))
    for match in _matches(_fmha_field, text, start, end):
        fields.add(match["name"], Span(*match.span("numbers")))
        if match["name"] == "swizzleType":
            break
    # The promotion is not printed: kernelParams.h passes L2_128B.
    return _located(fields, _FMHA_NAMES, first_stride=0, l2_promotion=2)


def _located(
    fields: _Fields, names: Mapping[str, str], *, first_stride: int, l2_promotion: int
) -> Located:
    """The descriptor in the fields of CUTLASS, or in those that `names` gives for them."""
    places: dict[str, Span] = {}

    def number(field: str, name: str, default: int | None = None) -> int:
        value, places[field] = fields.number(names.get(name, name), default)
        return value

    def entries(field: str, name: str, skipped: int = 0, missing: int = 0) -> tuple[int, ...]:
        """The numbers of all dimensions except the first `missing`, after `skipped` numbers."""
        name = names.get(name, name)
        printed = fields.numbers(name)
        wanted = skipped + max(rank - missing, 0)
        if rank <= _PRINTED and len(printed) < wanted:
            message = f"expected {wanted} numbers in {name}, got {len(printed)}"
            raise _Damaged(fields.span(name), message)
        used = printed[skipped:wanted]
        places[field] = fields.span(name)
        for dimension, (_, place) in enumerate(used, missing):
            places[f"{field}[{dimension}]"] = place
        return tuple(value for value, _ in used)

    def address(field: str, name: str) -> int | None:
        return number(field, name) if names.get(name, name) in fields else None

    type_of_data, rank = number("data_type", "format"), number("rank", "dim")
    descriptor = Descriptor(
        tensor_map_type(type_of_data),
        rank,
        entries("global_dims", "globalDim"),
        entries("global_strides", "globalStrides", skipped=first_stride, missing=1),
        entries("box_dims", "boxDim"),
        entries("element_strides", "elementStrides"),
        interleave=number("interleave", "interleave", 0),
        swizzle=number("swizzle", "swizzle", 0),
        l2_promotion=number("l2_promotion", "l2Promotion", l2_promotion),
        oob_fill=number("oob_fill", "oobFill", 0),
        address=address("address", "gmem_address"),
        descriptor_address=address("descriptor_address", "TMA Desc Addr"),
    )
    return Located(descriptor, Consumer.CUDA, fields.block, places)


def _matches(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Matches of the lines of a block that begin with a field.

    All lines have no prefix or a prefix as long as that before the block's first word.
    """
    newline = text.rfind("\n", max(0, start - MAX_WIDTH), start)
    column = start - (newline + 1) if newline >= 0 or start <= MAX_WIDTH else 0
    offset = start - column
    for _ in range(MAX_LENGTH):
        if offset >= end:
            return
        newline = text.find("\n", max(offset, start), end)
        stop = end if newline < 0 else newline
        for prefix in {0, column}:
            match = pattern.match(text, offset + prefix, stop)
            if match is not None:
                yield match
                break
        offset = stop + 1
