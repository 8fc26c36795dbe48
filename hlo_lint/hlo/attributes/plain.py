"""Numbers, words, names, and short lists of them: what most attributes are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from hlo_lint.hlo.attributes.errors import AttributeSyntaxError
from hlo_lint.hlo.attributes.strings import unescape
from hlo_lint.hlo.grammar import int64, load, offset_of, tokens, trees
from hlo_lint.hlo.shape import read_index
from hlo_lint.text.patterns import late

if TYPE_CHECKING:
    from lark import Token, Tree


class Slice(NamedTuple):
    """The range of one dimension that a `slice` takes: `[1:8:2]`."""

    start: int
    limit: int
    stride: int = 1


class Padding(NamedTuple):
    """The padding of one dimension: `1_0_2`; negative edges remove elements."""

    low: int
    high: int
    interior: int = 0


class Alias(NamedTuple):
    """A part of the result that lies in a part of an operand: `{0}: (1, {2}, may-alias)`."""

    output_index: tuple[int, ...]
    operand: int
    """The number of the operand, or of the parameter in a module's header."""
    operand_index: tuple[int, ...]
    kind: str = ""
    """`may-alias` or `must-alias` in a module's header, empty elsewhere."""


class Donor(NamedTuple):
    """A part of a parameter whose memory the program may use: `(0, {1})`."""

    parameter: int
    shape_index: tuple[int, ...]


class Tolerance(NamedTuple):
    """The tolerated error of a result: `{tolerance={atol=0,rtol=0.1,ulps=2}}`."""

    absolute: float
    relative: float
    ulps: int
    """Units in the last place."""


class Statistics(NamedTuple):
    """Figures to be shown beside an instruction: `{visualizing_index=1,flops=3.5}`."""

    shown: int
    """The place of the one to be shown; negative where none is."""
    values: tuple[tuple[str, float], ...]


PlainValue: TypeAlias = (
    "bool | int | float | str | tuple[int, ...] | tuple[bool, ...] | tuple[str, ...]"
    " | tuple[tuple[int, ...], ...] | tuple[Slice, ...] | tuple[Padding, ...]"
    " | tuple[Alias, ...] | tuple[Donor, ...] | Tolerance | Statistics"
)

_INTEGER = r"-?[0-9]{1,18}"
_is_integer = late(_INTEGER).fullmatch
_is_number = late(r"-?(?:inf|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)").fullmatch
_is_integers = late(rf"\{{(?:{_INTEGER}(?:,{_INTEGER})*+)?\}}").fullmatch
_is_integer_lists = late(
    rf"\{{(?:\{{{_INTEGER}(?:,{_INTEGER})*+\}}(?:,(?=\{{)|(?=\}})))*+\}}"
).fullmatch
_find_integer_lists = late(r"\{([-\d,]+)\}").findall
_is_name = late(r"%?([A-Za-z_][A-Za-z0-9_.\-]*)").fullmatch
_is_names = late(r"\{((?:%?[A-Za-z_][\w.\-]*(?:, ?%?[A-Za-z_][\w.\-]*)*)?)\}", re.A).fullmatch
_is_flags = late(r"\{((?:true|false)(?:,(?:true|false))*+)?\}").fullmatch
_is_string = late(r'"([^"\\]*)"').fullmatch
_RANGE = rf"\[{_INTEGER}(?::{_INTEGER}){{1,2}}\]"
_is_slices = late(rf"\{{(?:{_RANGE}(?:, {_RANGE})*+)?\}}").fullmatch
_find_slices = late(r"\[([^\]]*)\]").findall
_INDEX = rf"\{{((?:{_INTEGER}(?:,{_INTEGER})*+)?)\}}"
_ALIAS = rf"{_INDEX}: \(({_INTEGER}), {_INDEX}(?:, (may-alias|must-alias))?\)"
_is_aliasing = late(rf"\{{ ?(?:{_ALIAS}(?:, (?={{)| ?(?=}})))*+\}}").fullmatch
_find_aliases = late(_ALIAS).findall
_DONOR = rf"\(({_INTEGER}), {_INDEX}\)"
_is_donors = late(rf"\{{ ?(?:{_DONOR}(?:, (?=\()| ?(?=}})))*+\}}").fullmatch
_find_donors = late(_DONOR).findall
_PAD = rf"{_INTEGER}_{_INTEGER}(?:_[0-9]{{1,18}})?"
_is_paddings = late(rf"{_PAD}(?:x{_PAD})*+").fullmatch
_is_nested = late(r"\{[{}\-0-9,\s]*\}").fullmatch


def read_integer(name: str, text: str) -> PlainValue:
    """`index=3`."""
    return int(text) if _is_integer(text) else plain_by_grammar(name, text)


def read_number(name: str, text: str) -> PlainValue:
    """`epsilon=0.001`."""
    return float(text) if _is_number(text) else plain_by_grammar(name, text)


def read_boolean(name: str, text: str) -> PlainValue:
    """`is_stable=true`."""
    return text == "true" if text in ("true", "false") else plain_by_grammar(name, text)


def read_integers(name: str, text: str) -> PlainValue:
    """`dimensions={1,0}`."""
    if not _is_integers(text):
        return plain_by_grammar(name, text)
    return tuple(map(int, text[1:-1].split(","))) if len(text) > 2 else ()


def read_integer_lists(name: str, text: str) -> PlainValue:
    """`source_target_pairs={{0,1},{1,0}}`."""
    if not _is_integer_lists(text):
        return plain_by_grammar(name, text)
    return tuple(tuple(map(int, pair.split(","))) for pair in _find_integer_lists(text))


def read_slice_sizes(name: str, text: str) -> PlainValue:
    """`slice_sizes={1,8}` of a gather, `slice_sizes={{1,8}}` of a collective-permute."""
    plain = read_integers if _is_integers(text) else read_integer_lists
    return plain(name, text)


def read_flags(name: str, text: str) -> PlainValue:
    """`allow_spmd_sharding_propagation_to_output={true,false}`, and one without braces."""
    match = _is_flags(text)
    if match is None:
        return plain_by_grammar(name, text)
    return tuple(flag == "true" for flag in match[1].split(",")) if match[1] else ()


def read_slices(name: str, text: str) -> PlainValue:
    """`slice={[0:4], [1:8:2]}`."""
    if not _is_slices(text):
        return plain_by_grammar(name, text)
    return tuple(Slice(*map(int, bounds.split(":"))) for bounds in _find_slices(text))


def read_paddings(name: str, text: str) -> PlainValue:
    """`padding=0_1x-2_3_4`."""
    if not _is_paddings(text):
        return plain_by_grammar(name, text)
    return tuple(Padding(*map(int, amounts.split("_"))) for amounts in text.split("x"))


def read_computation(name: str, text: str) -> PlainValue:
    """`calls=%fused`, `branch_computations={%then, %else}`; in place it stays text."""
    if match := _is_name(text):
        return match[1]
    if match := _is_names(text):
        return _names(match[1])
    if text.startswith("{") and text.endswith("}") and "=" in text:
        return text  # written in place: `to_apply={ a = f32[] parameter(0) … }`
    return plain_by_grammar(name, text)


def read_names(name: str, text: str) -> PlainValue:
    """`control-predecessors={%a, %b}`, `operand_precision={high,default}`."""
    match = _is_names(text)
    return _names(_as_printed(name, match[1])) if match else plain_by_grammar(name, text)


def _as_printed(name: str, text: str) -> str:
    """The words of an attribute in the case in which XLA prints them."""
    return _PRINTED_CASE[name](text) if name in _PRINTED_CASE else text


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.replace("%", "").replace(" ", "").split(",")) if text else ()


def read_word(name: str, text: str) -> PlainValue:
    """`direction=LT`."""
    match = _is_name(text)
    return _as_printed(name, text) if match and text[0] != "%" else plain_by_grammar(name, text)


def read_string(name: str, text: str) -> PlainValue:
    """`custom_call_target="Sharding"`."""
    match = _is_string(text)
    return match[1] if match else plain_by_grammar(name, text)


def read_aliasing(name: str, text: str) -> PlainValue:
    """`output_to_operand_aliasing={{0}: (1, {})}`."""
    if not _is_aliasing(text):
        return plain_by_grammar(name, text)
    return tuple(
        Alias(read_index(output), int(operand), read_index(index), kind)
        for output, operand, index, kind in _find_aliases(text)
    )


def read_donors(name: str, text: str) -> PlainValue:
    """`buffer_donor={ (0, {}), (1, {2}) }`."""
    if not _is_donors(text):
        return plain_by_grammar(name, text)
    return tuple(Donor(int(number), read_index(index)) for number, index in _find_donors(text))


def read_any(name: str, text: str) -> PlainValue:
    """The value of a name that is not known: whatever it looks like, else text."""
    if _is_integer(text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    if match := _is_name(text):
        return match[1]
    if _is_integers(text):
        return read_integers(name, text)
    if match := _is_names(text):
        return _names(match[1])
    if match := _is_string(text):
        return match[1]
    if _is_nested(text) or text.startswith('"'):
        try:
            return plain_by_grammar(name, text)
        except AttributeSyntaxError:
            return text
    return text


_Reader: TypeAlias = Callable[[str, str], PlainValue]

READERS: Final[dict[str, _Reader]] = {}
"""The reader of each attribute of a known name."""
_EXPECTED: Final[dict[str, str]] = {}
"""The message for a malformed value, by the attribute's name."""


def _declare(reader: _Reader, names: str, expected: str) -> None:
    READERS.update(dict.fromkeys(names.split(), reader))
    _EXPECTED.update(dict.fromkeys(names.split(), f"expected {expected}"))


# ---- the grammar


def plain_by_grammar(name: str, text: str) -> PlainValue:
    """The value that `attribute.lark` reads: the slow and exact way.

    Raises:
        AttributeSyntaxError: where the grammar takes no such value.
    """
    from lark import UnexpectedInput

    try:
        return _value(trees(load("attribute").parse(f"{name}={_as_printed(name, text)}"))[0])
    except UnexpectedInput as error:
        whole = f"{name}={text}"
        offset = max(0, offset_of(error, whole) - len(name) - 1)
        expected = _EXPECTED.get(name, "expected a value")
        raise AttributeSyntaxError(expected, text, offset) from None
    except OverflowError:
        raise AttributeSyntaxError("a number does not fit", text, 0) from None


def _value(tree: Tree[Token]) -> PlainValue:
    leaves = tokens(tree)[1:]  # the first is the attribute's name
    match str(tree.data):
        case "integers":
            return _numbers(leaves)
        case "number":
            return float(leaves[0])
        case "lists":
            return tuple(_numbers(tokens(part)) for part in trees(tree))
        case "flags":
            return tuple(str(leaf) == "true" for leaf in leaves)
        case "slices":
            return tuple(Slice(*_numbers(tokens(part))) for part in trees(tree))
        case "paddings":
            return tuple(Padding(*map(_signed, part.split("_"))) for part in leaves[0].split("x"))
        case "aliasing":
            return tuple(_alias(part) for part in trees(tree))
        case "donors":
            return tuple(
                Donor(_number(tokens(donor)[0]), _numbers(tokens(trees(donor)[0])))
                for donor in trees(tree)
            )
        case "accuracy":
            return _accuracy(tree, leaves)
        case "statistics":
            return _statistics(trees(tree))
        case _:
            return _scalar(leaves[0]) if leaves else _value_list(trees(tree)[0])


def _scalar(token: Token) -> bool | int | str:
    match token.type:
        case "INT":
            return _number(token)
        case "BOOL":
            return str(token) == "true"
        case "STRING":
            return unescape(token[1:-1])
        case "NAME":
            return token.removeprefix("%")
        case _:
            return str(token)


def _value_list(tree: Tree[Token]) -> PlainValue:
    match str(tree.data):
        case "integer_list":
            return _numbers(tokens(tree))
        case "integer_lists":
            return tuple(_numbers(tokens(part)) for part in trees(tree))
        case _:
            return tuple(token.removeprefix("%") for token in tokens(tree))


def _alias(tree: Tree[Token]) -> Alias:
    output, part = (_numbers(tokens(part)) for part in trees(tree))
    operand, *kind = tokens(tree)
    return Alias(output, _number(operand), part, *map(str, kind))


def _accuracy(tree: Tree[Token], leaves: list[Token]) -> PlainValue:
    figures = trees(tree)
    if not figures:
        return leaves[-1].lower()  # `StringToResultAccuracy`, too, reads either case
    values = {str(tokens(figure)[0])[:-1]: str(tokens(figure)[1]) for figure in figures}
    ulps = values.get("ulps", "0")
    return Tolerance(float(values.get("atol", "0")), float(values.get("rtol", "0")), _number(ulps))


def _statistics(figures: list[Tree[Token]]) -> Statistics:
    shown = -1
    values = []
    for figure in figures:
        name, value = map(str, tokens(figure))
        if name == "visualizing_index=":
            shown = _number(value)
        else:
            values.append((name[:-1], float(value)))
    return Statistics(shown, tuple(values))


def _numbers(texts: Sequence[str]) -> tuple[int, ...]:
    return tuple(map(_number, texts))


def _signed(text: str) -> int:
    """A number of a padding, which is one token of XLA's lexer."""
    number = _number(text)
    if number < 0 and text[0] != "-":
        raise OverflowError
    return number


def _number(text: str) -> int:
    if not text.removeprefix("-").isdecimal():
        raise OverflowError
    return int64(text)


# ---- the attributes

_declare(
    read_integer,
    "index channel_id index_vector_dim iota_dimension feature_group_count batch_group_count "
    "exponent_bits mantissa_bits concat_dimension split_dimension k delta feature_index "
    "inferred_dimension cross_program_prefetch_index num_carries replica_count num_partitions",
    "an integer",
)
_declare(read_number, "epsilon", "a number")
_declare(
    read_boolean,
    "indices_are_sorted unique_indices use_global_device_ids is_stable is_async "
    "custom_call_has_side_effect is_host_transfer left_side lower unit_diagonal largest "
    "constrain_layout is_scheduled is_associative is_reverse is_composite has_dynamic_root "
    "is_cross_program_prefetch alias_passthrough_params",
    "true or false",
)
_declare(
    read_integers,
    "dimensions dynamic_slice_sizes fft_length lhs_batch_dims rhs_batch_dims "
    "lhs_contracting_dims rhs_contracting_dims lhs_ragged_dims rhs_group_dims "
    "offset_dims collapsed_slice_dims start_index_map "
    "operand_batching_dims start_indices_batching_dims input_batching_dims "
    "scatter_indices_batching_dims update_window_dims inserted_window_dims "
    "scatter_dims_to_operand_dims",
    "a list of integers, like {1,0}",
)
_declare(read_integer_lists, "source_target_pairs", "lists of integers, like {{0,1},{1,0}}")
_declare(read_slice_sizes, "slice_sizes", "a list of integers, like {1,0}")
_declare(
    read_flags,
    "allow_spmd_sharding_propagation_to_parameters allow_spmd_sharding_propagation_to_output "
    "parameter_replication",
    "true and false in braces",
)
_declare(read_slices, "slice", "ranges, like {[0:4], [1:8:2]}")
_declare(
    read_paddings,
    "padding",
    "low_high or low_high_interior for each dimension, like 0_1x0_0_2",
)
_declare(
    read_computation,
    "calls to_apply body condition select scatter comparator branch_computations "
    "called_computations true_computation false_computation async_computation",
    "the name of a computation, or names in braces",
)
_declare(
    read_names,
    "control-predecessors control-successors operand_precision",
    "names in braces, like {%a, %b}",
)
_declare(
    read_word,
    "direction type order kind fft_type transpose_a distribution algorithm schedule api_version "
    "padding_type convolution_kind mode",
    "a word",
)
_declare(
    read_string,
    "custom_call_target execution_thread async_execution_thread infeed_config outfeed_config",
    "a string in double quotes",
)
_declare(
    read_aliasing,
    "output_to_operand_aliasing input_output_alias",
    "aliases, like {{0}: (1, {})}",
)
_declare(read_donors, "buffer_donor", "parts of parameters, like { (0, {}), (1, {2}) }")
_declare(
    plain_by_grammar,
    "result_accuracy",
    "{mode=highest} or {tolerance={atol=0,rtol=0.1,ulps=2}}",
)

_PRINTED_CASE: Final[dict[str, Callable[[str], str]]] = {
    **dict.fromkeys(("operand_precision", "distribution", "algorithm"), str.lower),
    **dict.fromkeys(("schedule", "api_version"), str.upper),
}
"""The case of words that XLA reads in either (`StringToPrecision` and its like look them up in
lower case)."""

_declare(plain_by_grammar, "statistics", "{visualizing_index=1,name=2.5}")
