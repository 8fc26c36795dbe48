"""Attributes of numbers, words, names, or short lists of these: most attributes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError, Cursor
from hlo_lint.text.patterns import late


class Slice(NamedTuple):
    """The range of a `slice` along a dimension: `[1:8:2]`."""

    start: int
    limit: int
    stride: int = 1


class Padding(NamedTuple):
    """The padding of a dimension: `1_0_2`; negative edges remove elements."""

    low: int
    high: int
    interior: int = 0


class Alias(NamedTuple):
    """A part of the result that aliases a part of an operand: `{0}: (1, {2}, may-alias)`."""

    output_index: tuple[int, ...]
    operand: int
    """The number of the operand, or of the parameter in a module's header."""
    operand_index: tuple[int, ...]
    kind: str = ""
    """`may-alias` or `must-alias` in a module's header, empty elsewhere."""


class Donor(NamedTuple):
    """A part of a parameter that is donated to the program: `(0, {1})`."""

    parameter: int
    shape_index: tuple[int, ...]


class Tolerance(NamedTuple):
    """The tolerated error of a result: `{tolerance={atol=0,rtol=0.1,ulps=2}}`."""

    absolute: float
    relative: float
    ulps: int
    """Units in the last place."""


PlainValue: TypeAlias = (
    "bool | int | float | str | tuple[int, ...] | tuple[bool, ...] | tuple[str, ...]"
    " | tuple[tuple[int, ...], ...] | tuple[Slice, ...] | tuple[Padding, ...]"
    " | tuple[Alias, ...] | tuple[Donor, ...] | Tolerance | tuple[tuple[str, float], ...]"
)

_is_padding = late(r"-?[0-9]+_-?[0-9]+(?:_[0-9]+)?(?:x-?[0-9]+_-?[0-9]+(?:_[0-9]+)?)*").fullmatch


def read_plain(name: str, text: str) -> PlainValue:
    """The value of an attribute; for an unknown name, guessed from the text, else the text.

    Raises:
        AttributeSyntaxError: if the name is known and the text is not a value of it.
    """
    reader, expected = READERS.get(name, (_any, ""))
    cursor = Cursor(text, expected)
    try:
        value = reader(cursor)
        cursor.finish()
    except AttributeSyntaxError:
        if reader is _any:
            return text
        raise
    return value


def _integers(cursor: Cursor) -> tuple[int, ...]:
    """`dimensions={1,0}`."""
    return cursor.listed(cursor.integer)


def _integer_lists(cursor: Cursor) -> tuple[tuple[int, ...], ...]:
    return cursor.listed(lambda _: _integers(cursor))


def _slice_sizes(cursor: Cursor) -> tuple[int, ...] | tuple[tuple[int, ...], ...]:
    """`slice_sizes={1,8}` of a gather, `slice_sizes={{1,8}}` of a collective-permute."""
    return _integer_lists(cursor) if cursor.follows("{", "{") else _integers(cursor)


def _flags(cursor: Cursor) -> tuple[bool, ...]:
    """`allow_spmd_sharding_propagation_to_output={true,false}`, or a flag without braces."""
    return cursor.listed(cursor.boolean) if cursor.next == "{" else (cursor.boolean(),)


def _slice(cursor: Cursor) -> Slice:
    cursor.demand("[")
    bounds = [cursor.integer()]
    while len(bounds) < 3 and cursor.take(":"):
        bounds.append(cursor.integer())
    if len(bounds) < 2:
        cursor.refuse()
    cursor.demand("]")
    return Slice(*bounds)


def _computation(cursor: Cursor) -> str | tuple[str, ...]:
    """`calls=%fused`, `branch_computations={%then, %else}`; an inline computation stays text."""
    if cursor.next != "{":
        return cursor.name()
    if "=" in cursor.tokens and cursor.text.endswith("}"):
        cursor.at = len(cursor.tokens) - 1
        return cursor.text  # inline: `to_apply={ a = f32[] parameter(0) … }`
    return _names(cursor)


def _names(cursor: Cursor) -> tuple[str, ...]:
    return cursor.listed(cursor.name)


def _alias(cursor: Cursor) -> Alias:
    output = _integers(cursor)
    cursor.demand(":", "(")
    operand = cursor.integer()
    cursor.demand(",")
    index = _integers(cursor)
    kind = cursor.read(("may-alias", "must-alias").__contains__) if cursor.take(",") else ""
    cursor.demand(")")
    return Alias(output, operand, index, kind)


def _donor(cursor: Cursor) -> Donor:
    cursor.demand("(")
    parameter = cursor.integer()
    cursor.demand(",")
    index = _integers(cursor)
    cursor.demand(")")
    return Donor(parameter, index)


def _figures(cursor: Cursor) -> tuple[tuple[str, float], ...]:
    """`statistics={visualizing_index=1,flops=3.5}`."""

    def figure(_: str) -> tuple[str, float]:
        name = cursor.word()
        cursor.demand("=")
        is_whole = name in ("ulps", "visualizing_index")
        return name, cursor.integer() if is_whole else cursor.number()

    return cursor.listed(figure)


def _accuracy(cursor: Cursor) -> str | Tolerance:
    """`result_accuracy={mode=highest}`."""
    cursor.demand("{")
    if cursor.take("mode", "="):
        value: str | Tolerance = cursor.word().lower()
    else:
        cursor.demand("tolerance", "=")
        figures = dict(_figures(cursor))
        atol, rtol, ulps = (figures.get(name, 0.0) for name in ("atol", "rtol", "ulps"))
        value = Tolerance(atol, rtol, int(ulps))
    cursor.demand("}")
    return value


def _any(cursor: Cursor) -> PlainValue:
    if cursor.next != "{":
        for read in (cursor.integer, cursor.boolean, cursor.name):
            with suppress(AttributeSyntaxError):
                return read()
        return cursor.string()
    if cursor.follows("{", "{"):
        return _integer_lists(cursor)
    with suppress(AttributeSyntaxError):
        return _integers(cursor)
    cursor.at = 0
    return _names(cursor)


READERS: Final[dict[str, tuple[Callable[[Cursor], PlainValue], str]]] = {}
"""The reader of each known attribute, and the message of what it expects."""


def _declare(reader: Callable[[Cursor], PlainValue], names: str, expected: str) -> None:
    READERS.update(dict.fromkeys(names.split(), (reader, f"expected {expected}")))


_declare(
    Cursor.integer,
    "index channel_id index_vector_dim iota_dimension feature_group_count batch_group_count "
    "exponent_bits mantissa_bits concat_dimension split_dimension k delta feature_index "
    "inferred_dimension cross_program_prefetch_index num_carries replica_count num_partitions",
    "an integer",
)
_declare(Cursor.number, "epsilon", "a number")
_declare(
    Cursor.boolean,
    "indices_are_sorted unique_indices use_global_device_ids is_stable is_async "
    "custom_call_has_side_effect is_host_transfer left_side lower unit_diagonal largest "
    "constrain_layout is_scheduled is_associative is_reverse is_composite has_dynamic_root "
    "is_cross_program_prefetch alias_passthrough_params",
    "true or false",
)
_declare(
    _integers,
    "dimensions dynamic_slice_sizes fft_length lhs_batch_dims rhs_batch_dims "
    "lhs_contracting_dims rhs_contracting_dims lhs_ragged_dims rhs_group_dims "
    "offset_dims collapsed_slice_dims start_index_map "
    "operand_batching_dims start_indices_batching_dims input_batching_dims "
    "scatter_indices_batching_dims update_window_dims inserted_window_dims "
    "scatter_dims_to_operand_dims",
    "a list of integers, like {1,0}",
)
_declare(_integer_lists, "source_target_pairs", "lists of integers, like {{0,1},{1,0}}")
_declare(_slice_sizes, "slice_sizes", "a list of integers, like {1,0}")
_declare(
    _flags,
    "allow_spmd_sharding_propagation_to_parameters allow_spmd_sharding_propagation_to_output "
    "parameter_replication",
    "true and false in braces",
)
_declare(
    lambda cursor: cursor.listed(lambda _: _slice(cursor)), "slice", "ranges, like {[0:4], [1:8:2]}"
)
_declare(
    lambda cursor: tuple(Padding(*amounts) for amounts in cursor.grid(_is_padding)),
    "padding",
    "low_high or low_high_interior for each dimension, like 0_1x0_0_2",
)
_declare(
    _computation,
    "calls to_apply body condition select scatter comparator branch_computations "
    "called_computations true_computation false_computation async_computation",
    "the name of a computation, or names in braces",
)
_declare(_names, "control-predecessors control-successors", "names in braces, like {%a, %b}")
# XLA accepts some words in either case (`StringToPrecision` and similar): here only the printed
# case is read.
_declare(
    lambda cursor: tuple(map(str.lower, _names(cursor))),
    "operand_precision",
    "names in braces, like {%a, %b}",
)
_declare(
    Cursor.word,
    "direction type order kind fft_type transpose_a padding_type convolution_kind mode",
    "a word",
)
_declare(lambda cursor: cursor.word().lower(), "distribution algorithm", "a word")
_declare(lambda cursor: cursor.word().upper(), "schedule api_version", "a word")
_declare(
    Cursor.string,
    "custom_call_target execution_thread async_execution_thread infeed_config outfeed_config",
    "a string in double quotes",
)
_declare(
    lambda cursor: cursor.listed(lambda _: _alias(cursor)),
    "output_to_operand_aliasing input_output_alias",
    "aliases, like {{0}: (1, {})}",
)
_declare(
    lambda cursor: cursor.listed(lambda _: _donor(cursor)),
    "buffer_donor",
    "parts of parameters, like { (0, {}), (1, {2}) }",
)
_declare(_accuracy, "result_accuracy", "{mode=highest} or {tolerance={atol=0,rtol=0.1,ulps=2}}")
_declare(_figures, "statistics", "{visualizing_index=1,name=2.5}")
