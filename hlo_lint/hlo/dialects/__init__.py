"""HLO spelled otherwise: each dialect is a conversion of the text that leaves the graph as it is.

They combine, one after the other, and each changes only what it is about. What a dialect cannot say
is left out with a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hlo_lint.hlo.dialects.asynchronous import generic, sugar
from hlo_lint.hlo.dialects.meshes import tiles
from hlo_lint.hlo.dialects.older import PARSERS
from hlo_lint.hlo.dialects.operand_shapes import typed_operands, untyped_operands
from hlo_lint.hlo.dialects.percent import with_percent, without_percent
from hlo_lint.hlo.dialects.releases import readable_by_0_10_0, readable_by_0_10_2
from hlo_lint.hlo.dialects.short_text import long, short
from hlo_lint.hlo.dialects.text_editor import TextEditor
from hlo_lint.hlo.dialects.tuples import compact, explicit
from hlo_lint.hlo.ir import HloFile, Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.text.errors import UsageError, nearest

Conversion = Callable[[Module, TextEditor], None]

_FOR_0_10_0: Final = (explicit, readable_by_0_10_2, readable_by_0_10_0)

DIALECTS: Final[dict[str, tuple[str, tuple[Conversion, ...]]]] = {
    "jax0.10": ("what jaxlib 0.10.2 reads", (explicit, readable_by_0_10_2)),
    "jax0.10.0": ("what jaxlib 0.10.0 reads", _FOR_0_10_0),
    **{
        name: (f"what jaxlib {parser.release} reads", (*_FOR_0_10_0, tiles, parser))
        for name, parser in PARSERS.items()
    },
    "jax0.11": ("what jaxlib 0.11 prints: compact", (compact,)),
    "explicit": ("a get-tuple-element for each element that is read", (explicit,)),
    "compact": ("%x#1 for an element", (compact,)),
    "short": ("as_hlo_text(): no %, signatures, metadata, control predecessors", (short,)),
    "long": ("% and signatures", (long,)),
    "tiles": ("shardings and replica groups without named meshes", (tiles,)),
    "percent": ("% before names", (with_percent,)),
    "no-percent": ("names without %", (without_percent,)),
    "typed-operands": ("add(f32[2]{0} %a, …), as old releases print", (typed_operands,)),
    "untyped-operands": ("add(%a, …)", (untyped_operands,)),
    "async-generic": ("async-start and the computation that it runs", (generic,)),
    "async-sugar": ("fusion-start and the like for async-start", (sugar,)),
}
"""Each dialect with its description and its conversions, one after the other."""


@dataclass(frozen=True, slots=True)
class Converted:
    """A text in another dialect."""

    text: str
    notes: Mapping[str, int]
    """Messages on what the text lost or what stays as it is, each with its count."""


def convert(file: HloFile, dialects: Iterable[str]) -> Converted:
    """The text of a file in one dialect after the other; with none, as it is.

    Raises:
        UsageError: for a dialect that nothing knows.
    """
    notes: Counter[str] = Counter()
    text: str | None = None
    for conversion in conversions(tuple(dialects)):
        if text is not None:
            file = parse_file(text)
        parts = []
        for module in file.modules:
            editor = TextEditor(module)
            conversion(module, editor)
            parts.append(editor.result())
            notes.update(editor.notes)
        text = "".join(parts)
    return Converted(file.text if text is None else text, notes)


def conversions(dialects: Sequence[str]) -> tuple[Conversion, ...]:
    """The conversions that these dialects take.

    Raises:
        UsageError: for a dialect that nothing knows.
    """
    for name in dialects:
        if name not in DIALECTS:
            raise UsageError(f"no dialect is named {name}: {nearest(name, DIALECTS)}")
    return tuple(conversion for name in dialects for conversion in DIALECTS[name][1])
