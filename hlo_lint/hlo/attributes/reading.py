"""Readers of attribute values, by the attribute's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

from hlo_lint.hlo.attributes import plain
from hlo_lint.hlo.attributes.configuration import Json, read_backend_config
from hlo_lint.hlo.attributes.devices import (
    ReplicaGroups,
    read_replica_groups,
    replica_groups_by_grammar,
)
from hlo_lint.hlo.attributes.metadata import (
    OpMetadata,
    frontend_attributes_by_grammar,
    metadata_by_grammar,
    read_frontend_attributes,
    read_metadata,
)
from hlo_lint.hlo.attributes.origin import (
    DebugEntry,
    Origin,
    Recovery,
    read_debug_attributes,
    read_origin,
    read_recovery_table,
)
from hlo_lint.hlo.attributes.plain import PlainValue
from hlo_lint.hlo.attributes.shapes import (
    ProgramShape,
    TypedLiteral,
    program_shape_by_grammar,
    read_one_shape,
    read_program_shape,
    read_shape_list,
    read_typed_literal,
    shape_list_by_grammar,
)
from hlo_lint.hlo.attributes.sharding import (
    Domain,
    Sharding,
    read_domain,
    read_sharding,
    sharding_by_grammar,
)
from hlo_lint.hlo.attributes.windows import (
    BlockScalingConfig,
    ConvolutionDimensionNumbers,
    SparsityConfig,
    Window,
    dim_labels_by_grammar,
    read_block_scaling_config,
    read_dim_labels,
    read_sparsity_config,
    read_window,
    window_by_grammar,
)
from hlo_lint.hlo.parser.mlir_dictionary import Dictionary
from hlo_lint.hlo.shape import Shape

AttributeValue: TypeAlias = (
    "PlainValue | Json | Dictionary | OpMetadata | Mapping[str, str] | Sharding | Domain"
    " | ReplicaGroups | Window | ConvolutionDimensionNumbers | SparsityConfig"
    " | BlockScalingConfig | ProgramShape | Shape | tuple[Shape, ...] | Origin | TypedLiteral"
    " | tuple[Recovery, ...] | tuple[DebugEntry, ...]"
)
"""The value of an attribute; its type follows from the name."""

_READERS: dict[str, Callable[[str], AttributeValue]] = {
    "backend_config": read_backend_config,
    "block_scaling_config": read_block_scaling_config,
    "debug_attributes": read_debug_attributes,
    "dim_labels": read_dim_labels,
    "domain": read_domain,
    "entry_computation_layout": read_program_shape,
    "frontend_attributes": read_frontend_attributes,
    "literal": read_typed_literal,
    "metadata": read_metadata,
    "operand_layout_constraints": read_shape_list,
    "origin": read_origin,
    "origin_recovery_table": read_recovery_table,
    "original_value": read_origin,
    "original_value_recovery_table": read_recovery_table,
    "outfeed_shape": read_one_shape,
    "replica_groups": read_replica_groups,
    "sharding": read_sharding,
    "sparsity_config": read_sparsity_config,
    "window": read_window,
}

KEPT_AS_TEXT = frozenset({"sparsity"})
"""Known attributes whose value stays as it is spelled: releases had it for a few months."""

ATTRIBUTE_NAMES = frozenset(_READERS) | KEPT_AS_TEXT | frozenset(plain.READERS)
"""The names that some release of XLA prints or reads."""

_BY_GRAMMAR: dict[str, Callable[[str], AttributeValue]] = {
    **_READERS,
    "dim_labels": dim_labels_by_grammar,
    "frontend_attributes": frontend_attributes_by_grammar,
    "metadata": metadata_by_grammar,
    "entry_computation_layout": program_shape_by_grammar,
    "operand_layout_constraints": shape_list_by_grammar,
    "replica_groups": replica_groups_by_grammar,
    "sharding": sharding_by_grammar,
    "window": window_by_grammar,
}


@lru_cache(maxsize=1 << 16)
def read_attribute(name: str, text: str) -> AttributeValue:
    """The value of the attribute `name`; computation names carry no `%`.

    A name that is not known is read as what it looks like, or stays text.

    >>> read_attribute("slice", "{[0:4], [1:8:2]}")
    (Slice(start=0, limit=4, stride=1), Slice(start=1, limit=8, stride=2))
    >>> read_attribute("branch_computations", "{%then, %else}")
    ('then', 'else')

    Raises:
        AttributeSyntaxError: where the name is known and the text is none of its values.
    """
    if name in KEPT_AS_TEXT:
        return text
    reader = _READERS.get(name)
    if reader is not None:
        return reader(text)
    return plain.READERS.get(name, plain.read_any)(name, text)


def read_by_grammar(name: str, text: str) -> AttributeValue:
    """The same value, read by a grammar: the slow and exact way.

    Raises:
        AttributeSyntaxError: where the grammar takes no such value.
    """
    reader = _BY_GRAMMAR.get(name)
    return plain.plain_by_grammar(name, text) if reader is None else reader(text)
