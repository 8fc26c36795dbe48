"""Readers of attribute values, by the attribute's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias

from hlo_lint.hlo.attributes import plain
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError

if TYPE_CHECKING:
    from hlo_lint.hlo.attributes.configuration import Json
    from hlo_lint.hlo.attributes.devices import ReplicaGroups
    from hlo_lint.hlo.attributes.metadata import OpMetadata
    from hlo_lint.hlo.attributes.origin import Origin
    from hlo_lint.hlo.attributes.plain import PlainValue
    from hlo_lint.hlo.attributes.shapes import ProgramShape, TypedLiteral
    from hlo_lint.hlo.attributes.sharding import Domain, Sharding
    from hlo_lint.hlo.attributes.windows import ConvolutionDimensionNumbers, Window
    from hlo_lint.hlo.parser.mlir_dictionary import Dictionary
    from hlo_lint.hlo.shape import Shape

AttributeValue: TypeAlias = (
    "PlainValue | Json | Dictionary | OpMetadata | Mapping[str, str] | Sharding | Domain"
    " | ReplicaGroups | Window | ConvolutionDimensionNumbers"
    " | ProgramShape | Shape | tuple[Shape, ...] | Origin | TypedLiteral"
)
"""The value of an attribute; the name determines its type."""

_READERS = {
    "backend_config": "configuration.read_backend_config",
    "dim_labels": "windows.read_dim_labels",
    "domain": "sharding.read_domain",
    "entry_computation_layout": "shapes.read_program_shape",
    "frontend_attributes": "metadata.read_frontend_attributes",
    "literal": "shapes.read_typed_literal",
    "metadata": "metadata.read_metadata",
    "operand_layout_constraints": "shapes.read_shape_list",
    "origin": "origin.read_origin",
    "original_value": "origin.read_origin",
    "outfeed_shape": "shapes.read_one_shape",
    "replica_groups": "devices.read_replica_groups",
    "sharding": "sharding.read_sharding",
    "window": "windows.read_window",
}
"""The module and function that read an attribute: imported with the first value."""

KEPT_AS_TEXT = frozenset(
    "block_scaling_config debug_attributes origin_recovery_table original_value_recovery_table "
    "sparsity sparsity_config".split()
)
"""Known attributes whose value is kept as text: no rule reads them."""
ANY_TEXT = KEPT_AS_TEXT | {"backend_config"}
"""Attributes whose value may be any text."""

ATTRIBUTE_NAMES = frozenset(_READERS) | KEPT_AS_TEXT | frozenset(plain.READERS)
"""The names that some release of XLA prints or reads."""


@lru_cache(maxsize=1 << 16)
def read_attribute(name: str, text: str) -> AttributeValue:
    """The value of the attribute `name`; computation names have no `%`.

    The value of an unknown name is guessed from the text, or kept as text.

    >>> read_attribute("slice", "{[0:4], [1:8:2]}")
    (Slice(start=0, limit=4, stride=1), Slice(start=1, limit=8, stride=2))
    >>> read_attribute("branch_computations", "{%then, %else}")
    ('then', 'else')

    Raises:
        AttributeSyntaxError: if the name is known and the text is not a value of it.
    """
    if name in KEPT_AS_TEXT:
        return text
    reader = _READERS.get(name)
    return plain.read_plain(name, text) if reader is None else _reader(reader)(text)


def value_or_none(name: str, text: str) -> AttributeValue | None:
    """The value of the attribute `name`; None if the text is unreadable."""
    try:
        return read_attribute(name, text)
    except AttributeSyntaxError:
        return None


@cache
def _reader(place: str) -> Callable[[str], AttributeValue]:
    module, _, name = place.partition(".")
    home = import_module(f"hlo_lint.hlo.attributes.{module}")
    read: Callable[[str], AttributeValue] = getattr(home, name)
    return read
