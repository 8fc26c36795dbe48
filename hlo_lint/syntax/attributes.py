"""What follows an instruction's operands: attributes, taken apart and read when somebody asks.

`split_attributes` says where each value stands; `read_attribute` says what it means. The usual
spellings are read by regular expressions; the others, and what is malformed, go through
`grammars/attribute.lark`, which specifies them all. Metadata never does: of all that is printed it
repeats the least.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from hlo_lint.syntax.grammar import load, offset_of, tokens, trees

if TYPE_CHECKING:
    from lark import Token, Tree

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""What JSON can say. Values are shared by all who ask: read them only."""


class AttributeSyntaxError(ValueError):
    """A text that is no value of its attribute; `offset` is where, in characters from its start."""

    def __init__(self, message: str, text: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.offset = offset


class Slice(NamedTuple):
    """What a `slice` takes of one dimension: `[1:8:2]`."""

    start: int
    limit: int
    stride: int = 1


class Padding(NamedTuple):
    """What a `pad` adds to one dimension: `1_0_2`; edges may be negative, which takes away."""

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


@dataclass(frozen=True, slots=True)
class OpMetadata:
    """Where an instruction comes from; what is not printed is empty or 0.

    >>> read_metadata('{op_name="jit(f)/add" stack_frame_id=3}').op_name
    'jit(f)/add'
    """

    op_type: str = ""
    op_name: str = ""
    """The path through transformations and name scopes: `jit(step)/jvp(Model)/add`."""
    source_file: str = ""
    source_line: int = 0
    source_end_line: int = 0
    source_column: int = 0
    source_end_column: int = 0
    stack_frame_id: int = 0
    """A row of the module's StackFrames table; 0 where there is none."""
    scheduling_name: str = ""
    deduplicated_name: str = ""
    preserve_layout: bool = False


AttributeValue: TypeAlias = (
    "Json | tuple[int, ...] | tuple[tuple[int, ...], ...] | tuple[str, ...] | tuple[Slice, ...]"
    " | tuple[Padding, ...] | tuple[Alias, ...] | OpMetadata"
)
"""What an attribute may be: which one follows from its name."""

# ---- splitting

# Compiled when first needed: nested patterns take milliseconds. Three levels of braces hold nearly
# all values; deeper JSON, meshes and comments are for the scanner below.
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_PLAIN = rf'[^{{}}"\'/]++|/(?![*/])|{_STRING}'


@cache
def _match_attribute() -> Callable[[str, int], re.Match[str] | None]:
    braces = rf"\{{(?:{_PLAIN})*+\}}"
    for _ in range(2):
        braces = rf"\{{(?:{_PLAIN}|{braces})*+\}}"
    value = rf"{braces}|{_STRING}|[^\s,(){{}}\[\]\"'/]++"
    return re.compile(rf", ?([A-Za-z_][A-Za-z0-9_.\-]*+)=({value})(?=,|\Z)", re.S).match


_BLANK = r"(?:\s++|/\*.*?\*/|//[^\n]*+)*+"
_match_head = re.compile(rf"{_BLANK},{_BLANK}([A-Za-z_][A-Za-z0-9_.\-]*+)\s*+={_BLANK}", re.S).match
_match_blank = re.compile(_BLANK, re.S).match
_find_structure = re.compile(
    rf"{_STRING}|'(?:[^'\\]++|\\.)*+'|/\*(?:.*?\*/)?|//[^\n]*+|[\"'(){{}}\[\],]", re.S
).finditer
_CLOSES = {"(": ")", "[": "]", "{": "}"}


class _Malformed(Exception):
    """A place where attributes cannot be told apart."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


def split_attributes(tail: str) -> dict[str, tuple[int, int]]:
    """Where the value of each attribute stands in what follows the operands, in order.

    What cannot be told apart stands under the name "" and reaches to the end. Of a name that is
    there twice the first counts.

    >>> tail = ', dimensions={1,0}, metadata={op_name="a, b={"}'
    >>> {name: tail[start:end] for name, (start, end) in split_attributes(tail).items()}
    {'dimensions': '{1,0}', 'metadata': '{op_name="a, b={"}'}
    """
    spans, trouble = _split(tail)
    if trouble is not None:
        spans[""] = (trouble.offset, len(tail))
    return spans


def split_attributes_strictly(tail: str) -> dict[str, tuple[int, int]]:
    """The same, for who must know that all of it was understood.

    Raises:
        AttributeSyntaxError: where attributes cannot be told apart.
    """
    spans, trouble = _split(tail)
    if trouble is not None:
        raise AttributeSyntaxError(trouble.message, tail, trouble.offset)
    return spans


def _split(tail: str) -> tuple[dict[str, tuple[int, int]], _Malformed | None]:
    spans: dict[str, tuple[int, int]] = {}
    match = _match_attribute()
    at, end = 0, len(tail)
    while at < end:
        found = match(tail, at)
        if found is None:
            return _scan(tail, at, spans)
        spans.setdefault(found[1], found.span(2))
        at = found.end()
    return spans, None


def split_by_scanning(tail: str) -> dict[str, tuple[int, int]]:
    """The same as `split_attributes_strictly`, without its fast path.

    Raises:
        AttributeSyntaxError: where attributes cannot be told apart.
    """
    spans, trouble = _scan(tail, 0, {})
    if trouble is not None:
        raise AttributeSyntaxError(trouble.message, tail, trouble.offset)
    return spans


def _scan(
    tail: str, at: int, spans: dict[str, tuple[int, int]]
) -> tuple[dict[str, tuple[int, int]], _Malformed | None]:
    try:
        while at < len(tail):
            at = _scan_attribute(tail, at, spans)
    except _Malformed as trouble:
        return spans, trouble
    return spans, None


def _scan_attribute(tail: str, at: int, spans: dict[str, tuple[int, int]]) -> int:
    head = _match_head(tail, at)
    if head is None:
        blank = _match_blank(tail, at)
        if blank is not None and blank.end() == len(tail):
            return len(tail)
        raise _Malformed("expected `, name=value`", at)
    start = head.end()
    end = _value_end(tail, start)
    spans.setdefault(head[1], (start, max(start, end)))
    blank = _match_blank(tail, max(start, end))
    return blank.end() if blank is not None else end


def _value_end(tail: str, start: int) -> int:
    """The end of the value that begins at `start`, blanks and comments behind it left out."""
    closing: list[str] = []
    comments: list[tuple[int, int]] = []  # outside of all brackets
    end = len(tail)
    for found in _find_structure(tail, start):
        sign = found[0]
        if sign in _CLOSES:
            closing.append(_CLOSES[sign])
        elif sign in ")]}":
            if not closing:
                end = found.start()
                break
            if closing.pop() != sign:
                raise _Malformed(f"`{sign}` closes what another bracket opens", found.start())
        elif sign == ",":
            if not closing:
                end = found.start()
                break
        elif sign in ('"', "'", "/*"):
            raise _Malformed("a string or comment never ends", found.start())
        elif sign[0] == "/" and not closing:
            comments.append(found.span())
    if closing:
        raise _Malformed(f"expected `{closing[-1]}`", end)
    end = _before_blanks(tail, start, end)
    while comments and comments[-1][1] == end:
        end = _before_blanks(tail, start, comments.pop()[0])
    return end


def _before_blanks(tail: str, start: int, end: int) -> int:
    while end > start and tail[end - 1].isspace():
        end -= 1
    return end


# ---- reading

_INTEGER = r"-?[0-9]{1,18}"
_is_integer = re.compile(_INTEGER).fullmatch
_is_integers = re.compile(rf"\{{(?:{_INTEGER}(?:,{_INTEGER})*+)?\}}").fullmatch
_is_name = re.compile(r"%?([A-Za-z_][A-Za-z0-9_.\-]*)").fullmatch
_is_names = re.compile(r"\{((?:%?[A-Za-z_][\w.\-]*(?:, ?%?[A-Za-z_][\w.\-]*)*)?)\}", re.A).fullmatch
_is_string = re.compile(r'"([^"\\]*)"').fullmatch
_is_slices = re.compile(
    rf"\{{(?:\[{_INTEGER}(?::{_INTEGER}){{1,2}}\](?:, \[{_INTEGER}(?::{_INTEGER}){{1,2}}\])*)?\}}"
).fullmatch
_find_slices = re.compile(r"\[([^\]]*)\]").findall
_INDEX = rf"\{{((?:{_INTEGER}(?:,{_INTEGER})*+)?)\}}"
_ALIAS = rf"{_INDEX}: \(({_INTEGER}), {_INDEX}(?:, (may-alias|must-alias))?\)"
_is_aliasing = re.compile(rf"\{{ ?(?:{_ALIAS}(?:, (?={{)| ?(?=}})))*+\}}").fullmatch
_find_aliases = re.compile(_ALIAS).findall
_PAD = rf"{_INTEGER}_{_INTEGER}(?:_[0-9]{{1,18}})?"
_is_paddings = re.compile(rf"{_PAD}(?:x{_PAD})*+").fullmatch
_is_nested_integers = re.compile(r"\{[{}\-0-9,\s]*\}").fullmatch
_match_field = re.compile(
    rf"\s*([A-Za-z_][A-Za-z0-9_]*)=({_STRING}|[^\s{{}}\",]+|\{{(?:[^{{}}\"]++|{_STRING})*+\}})\s*",
    re.S,
).match
_match_pair = re.compile(
    rf"\s*([A-Za-z_][A-Za-z0-9_.\-]*)=({_STRING}|[^\s{{}}\",]+|\{{(?:[^{{}}\"]++|{_STRING})*+\}})"
    r"\s*(?:,|\Z)",
    re.S,
).match
_find_escapes = re.compile(r"(?:\\[\x00-\x7f]|(?<=\\[0-7])[0-7]{1,2}|(?<=\\[xX])[0-9a-fA-F]{1,2})+")
_find_escape = re.compile(rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|(.))", re.S)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f"}
_ESCAPES |= {b"v": b"\v"}


@lru_cache(maxsize=1 << 16)
def read_attribute(name: str, text: str) -> AttributeValue:
    """What the value of the attribute `name` means; computation names carry no `%`.

    A name that is not known is read as what it looks like, or stays text.

    >>> read_attribute("slice", "{[0:4], [1:8:2]}")
    (Slice(start=0, limit=4, stride=1), Slice(start=1, limit=8, stride=2))
    >>> read_attribute("branch_computations", "{%then, %else}")
    ('then', 'else')

    Raises:
        AttributeSyntaxError: where the name is known and the text is none of its values.
    """
    reader = _READERS.get(name)
    return _read_any(name, text) if reader is None else reader(name, text)


def _read_integer(name: str, text: str) -> AttributeValue:
    return int(text) if _is_integer(text) else read_by_grammar(name, text)


def _read_boolean(name: str, text: str) -> AttributeValue:
    return text == "true" if text in ("true", "false") else read_by_grammar(name, text)


def _read_integers(name: str, text: str) -> AttributeValue:
    if not _is_integers(text):
        return read_by_grammar(name, text)
    return tuple(map(int, text[1:-1].split(","))) if len(text) > 2 else ()


def _read_slices(name: str, text: str) -> AttributeValue:
    if not _is_slices(text):
        return read_by_grammar(name, text)
    return tuple(Slice(*map(int, found.split(":"))) for found in _find_slices(text))


def _read_paddings(name: str, text: str) -> AttributeValue:
    if not _is_paddings(text):
        return read_by_grammar(name, text)
    return tuple(Padding(*map(int, found.split("_"))) for found in text.split("x"))


def _read_computation(name: str, text: str) -> AttributeValue:
    if found := _is_name(text):
        return found[1]
    if found := _is_names(text):
        return _names(found[1])
    if text.startswith("{") and text.endswith("}") and "=" in text:
        return text  # written in place: `to_apply={ a = f32[] parameter(0) … }`
    return read_by_grammar(name, text)


def _read_instructions(name: str, text: str) -> AttributeValue:
    found = _is_names(text)
    return _names(found[1]) if found else read_by_grammar(name, text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.replace("%", "").replace(" ", "").split(",")) if text else ()


def _read_string(name: str, text: str) -> AttributeValue:
    found = _is_string(text)
    return found[1] if found else read_by_grammar(name, text)


def _read_aliasing(name: str, text: str) -> AttributeValue:
    if not _is_aliasing(text):
        return read_by_grammar(name, text)
    return tuple(
        Alias(_index(output), int(operand), _index(index), kind)
        for output, operand, index, kind in _find_aliases(text)
    )


def _index(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(","))) if text else ()


def _read_text(name: str, text: str) -> AttributeValue:
    return text


def _read_any(name: str, text: str) -> AttributeValue:
    if _is_integer(text):
        return int(text)
    if text in ("true", "false"):
        return text == "true"
    if found := _is_name(text):
        return found[1]
    if _is_integers(text):
        return _read_integers(name, text)
    if found := _is_names(text):
        return _names(found[1])
    if found := _is_string(text):
        return found[1]
    if _is_nested_integers(text) or text.startswith('"'):
        try:
            return read_by_grammar(name, text)
        except AttributeSyntaxError:
            return text
    return text


def _read_backend_config(name: str, text: str) -> AttributeValue:
    """JSON where it is JSON; XLA also prints MLIR's dictionaries and quoted text here."""
    if text.startswith('"') and text.endswith('"') and len(text) > 1:
        text = unescape(text[1:-1])
    if not text.startswith("{"):
        return text
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def read_metadata(text: str) -> OpMetadata:
    """What `metadata={…}` says; fields of later releases are passed over.

    Raises:
        AttributeSyntaxError: where it is no list of fields in braces.
    """
    fields = {
        name: value
        for name, value in _fields(text, _match_field, "expected `field=value` in metadata")
        if name in _METADATA_FIELDS
    }
    values: dict[str, str | int | bool] = {}
    for name, value in fields.items():
        kind = _METADATA_FIELDS[name]
        if kind is str and value.startswith('"'):
            values[name] = unescape(value[1:-1])
        elif kind is int and _is_integer(value):
            values[name] = int(value)
        elif kind is bool and value in ("true", "false"):
            values[name] = value == "true"
        else:
            wanted = {str: "a string", int: "an integer", bool: "true or false"}[kind]
            raise AttributeSyntaxError(f"{name} is {wanted}", text, text.find(f"{name}="))
    return OpMetadata(**values)  # type: ignore[arg-type]  # checked field by field above


_METADATA_FIELDS: dict[str, type] = {
    field: type(getattr(OpMetadata(), field)) for field in OpMetadata.__slots__
}


def read_frontend_attributes(text: str) -> Mapping[str, str]:
    """What `frontend_attributes={name="text",…}` says; a value in braces stays as it is.

    Raises:
        AttributeSyntaxError: where it is no list of pairs in braces.
    """
    return {
        name: unescape(value[1:-1]) if value.startswith('"') else value
        for name, value in _fields(text, _match_pair, 'expected `name="text"`')
    }


def _fields(
    text: str, match: Callable[[str, int, int], re.Match[str] | None], message: str
) -> list[tuple[str, str]]:
    inside = text.rstrip()
    if not inside.startswith("{") or not inside.endswith("}") or len(inside) < 2:
        raise AttributeSyntaxError("expected braces", text, 0)
    at, end = 1, len(inside) - 1
    found: list[tuple[str, str]] = []
    while at < end:
        field = match(inside, at, end)
        if field is None:
            if not inside[at:end].strip():
                break
            raise AttributeSyntaxError(message, text, at)
        found.append((field[1], field[2]))
        at = field.end()
    return found


def unescape(text: str) -> str:
    """The text that XLA escaped byte by byte (`absl::CEscape`), without its quotes.

    >>> unescape(r"caf\\303\\251")
    'café'
    """
    if "\\" not in text:
        return text
    return _find_escapes.sub(_unescaped_run, text)


def _unescaped_run(found: re.Match[str]) -> str:
    """One run of escapes at a time: a character beyond ASCII is several bytes in a row."""
    run = found[0].encode("ascii")
    return _find_escape.sub(_unescaped, run).decode("utf-8", "surrogateescape")


def _unescaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, other = found.groups()
    if octal is not None:
        return bytes([int(octal, 8) & 0xFF])
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    return _ESCAPES.get(other, other)


_Reader: TypeAlias = Callable[[str, str], AttributeValue]

_READERS: dict[str, _Reader] = {
    "backend_config": _read_backend_config,
    "metadata": lambda name, text: read_metadata(text),
    "frontend_attributes": lambda name, text: read_frontend_attributes(text),
    "padding": _read_paddings,
    "slice": _read_slices,
}


def _declare(reader: _Reader, names: str) -> None:
    _READERS.update(dict.fromkeys(names.split(), reader))


_declare(
    _read_integer,
    "index channel_id index_vector_dim iota_dimension feature_group_count batch_group_count "
    "exponent_bits mantissa_bits concat_dimension split_dimension",
)
_declare(
    _read_boolean,
    "indices_are_sorted unique_indices use_global_device_ids is_stable is_async "
    "custom_call_has_side_effect is_host_transfer left_side lower unit_diagonal largest "
    "constrain_layout is_scheduled is_associative",
)
_declare(
    _read_integers,
    "dimensions dynamic_slice_sizes slice_sizes fft_length lhs_batch_dims rhs_batch_dims "
    "lhs_contracting_dims rhs_contracting_dims offset_dims collapsed_slice_dims start_index_map "
    "operand_batching_dims start_indices_batching_dims input_batching_dims "
    "scatter_indices_batching_dims update_window_dims inserted_window_dims "
    "scatter_dims_to_operand_dims",
)
_declare(
    _read_computation,
    "calls to_apply body condition select scatter comparator branch_computations "
    "called_computations true_computation false_computation async_computation",
)
_declare(_read_instructions, "control-predecessors control-successors")
_declare(
    _read_string,
    "custom_call_target execution_thread async_execution_thread infeed_config outfeed_config",
)
_declare(_read_aliasing, "output_to_operand_aliasing input_output_alias")
KEPT_AS_TEXT = frozenset(
    {"sharding", "window", "dim_labels", "operand_layout_constraints", "statistics"}
    | {"original_value", "entry_computation_layout"}
)
"""Known attributes whose value stays as it is spelled."""

_READERS.update(dict.fromkeys(KEPT_AS_TEXT, _read_text))

# ---- the grammar

EXPECTED: dict[_Reader, str] = {
    _read_integer: "expected an integer",
    _read_boolean: "expected true or false",
    _read_integers: "expected a list of integers, like {1,0}",
    _read_slices: "expected ranges, like {[0:4], [1:8:2]}",
    _read_paddings: "expected low_high or low_high_interior for each dimension, like 0_1x0_0_2",
    _read_computation: "expected the name of a computation, or names in braces",
    _read_instructions: "expected names of instructions in braces",
    _read_string: "expected a string in double quotes",
    _read_aliasing: "expected aliases, like {{0}: (1, {})}",
}
"""What is said where a value of a known name is malformed."""


def read_by_grammar(name: str, text: str) -> AttributeValue:
    """The same value, read by `attribute.lark`: the slow and exact way.

    Raises:
        AttributeSyntaxError: where the grammar takes no such value.
    """
    from lark import UnexpectedInput

    try:
        return _value(trees(load("attribute").parse(f"{name}={text}"))[0])
    except UnexpectedInput as error:
        expected = EXPECTED.get(_READERS.get(name, _read_any), "expected a value")
        whole = f"{name}={text}"
        offset = max(0, offset_of(error, whole) - len(name) - 1)
        raise AttributeSyntaxError(expected, text, offset) from None
    except OverflowError:
        raise AttributeSyntaxError("a number does not fit", text, 0) from None


def _value(tree: Tree[Token]) -> AttributeValue:

    leaves = tokens(tree)[1:]  # the first is the attribute's name
    match str(tree.data):
        case "integers":
            return _integers(leaves)
        case "slices":
            return tuple(Slice(*_integers(tokens(found))) for found in trees(tree))
        case "paddings":
            return tuple(Padding(*_integers(part.split("_"))) for part in leaves[0].split("x"))
        case "aliasing":
            return tuple(_alias(found) for found in trees(tree))
        case "metadata":
            fields = (tokens(field) for field in trees(tree))
            known = {name[:-1]: _scalar(value) for name, value in fields}
            return OpMetadata(**{k: v for k, v in known.items() if k in _METADATA_FIELDS})  # type: ignore[arg-type]
        case "frontend_attributes":
            pairs = (tokens(pair) for pair in trees(tree))
            return {str(name[:-1]): str(_scalar(value)) for name, value in pairs}
        case _:
            return _scalar(leaves[0]) if leaves else _value_list(trees(tree)[0])


def _scalar(token: Token) -> bool | int | str:
    match token.type:
        case "INT":
            return _integer(token)
        case "BOOL":
            return str(token) == "true"
        case "STRING":
            return unescape(token[1:-1])
        case "NAME":
            return token.removeprefix("%")
        case _:
            return str(token)


def _value_list(tree: Tree[Token]) -> AttributeValue:

    match str(tree.data):
        case "integer_list":
            return _integers(tokens(tree))
        case "integer_lists":
            return tuple(_integers(tokens(found)) for found in trees(tree))
        case _:
            return tuple(token.removeprefix("%") for token in tokens(tree))


def _alias(tree: Tree[Token]) -> Alias:

    output, index = (_integers(tokens(found)) for found in trees(tree))
    operand, *kind = tokens(tree)
    return Alias(output, _integer(operand), index, *map(str, kind))


def _integers(texts: Sequence[str]) -> tuple[int, ...]:
    return tuple(map(_integer, texts))


def _integer(text: str) -> int:
    if len(text.lstrip("-0")) > 18:  # XLA's integers have 64 bits: 18 digits always fit
        raise OverflowError
    return int(text)
