"""Errors within one instruction, as XLA's parser finds them: its words, type, attributes, literal.

They depend on the text of the instruction alone, so that the same line is checked once. Mirrors
`ParseInstructionRhs`, `CreateInstruction` and `ParseAttributes` in
`xla/hlo/parser/hlo_parser.cc` of jaxlib 0.11.2.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.strict.literals import literal_errors
from hlo_lint.analysis.strict.shapes import shape_errors, tuple_of
from hlo_lint.analysis.strict.shardings import domain_errors, sharding_errors
from hlo_lint.analysis.strict.tokens import BLANK, NAME, Unmade, blank_errors, name_errors
from hlo_lint.hlo.attributes import (
    AttributeSyntaxError,
    MeshReplicaGroups,
    TypedLiteral,
    read_attribute,
    split_attributes_strictly,
)
from hlo_lint.hlo.attributes.devices import NOT_A_PERMUTATION
from hlo_lint.hlo.attributes.splitting import end_of_braces
from hlo_lint.hlo.grammar import int64
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES
from hlo_lint.hlo.opcodes import OPCODES, Opcode, demands_on, wrapped_opcode
from hlo_lint.hlo.parser.strings import c_unescape
from hlo_lint.hlo.parser.tokens import InstructionSpans
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    opcode_of,
    operands_of,
    references_of,
    type_of,
)
from hlo_lint.hlo.shape import (
    ArrayShape,
    BufferShape,
    Shape,
    ShapeSyntaxError,
    TupleShape,
    leaves,
    parse_shape,
    shape_or_none,
)
from hlo_lint.text.errors import PayloadError
from hlo_lint.text.phrases import an
from hlo_lint.text.source import ParseError

_WORDS: Final = {
    "direction": "EQ NE GE GT LE LT",
    "type": "FLOAT TOTALORDER SIGNED UNSIGNED",
    "order": "PARTIAL TOTAL",
    "mode": "cross_replica cross_partition cross_replica_and_partition flattened_id",
    "kind": "kLoop kInput kOutput kCustom",
    "fft_type": "FFT IFFT RFFT IRFFT",
    "transpose_a": "NO_TRANSPOSE TRANSPOSE ADJOINT",
    "padding_type": "PADDING_INVALID PADDING_VALID PADDING_SAME",
    "convolution_kind": "unset fprop dgrad wgrad",
}
"""Words that an attribute may be: these sets are closed in XLA."""
_LOWERED_WORDS: Final = {
    "distribution": "rng_uniform rng_normal",
    "schedule": "schedule_none schedule_latest schedule_earliest",
    "api_version": "api_version_original api_version_status_returning "
    "api_version_status_returning_unified api_version_typed_ffi",
    "operand_precision": "default high highest packed_nibble",
    "result_accuracy": "default highest",
}
"""The same, where XLA looks words up in lower case (`StringToPrecision` and its like)."""
_GENERATORS = "rng_default rng_three_fry rng_philox"
_DOT_ALGORITHMS = (
    "dot_any_f8_any_f8_any dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum "
    "dot_any_f8_any_f8_any_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 dot_bf16_bf16_bf16 "
    "dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 "
    "dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64 dot_unset"
)
_METADATA = frozenset(
    "deduplicated_name metadata_payload op_name op_type profile_type scheduling_name source_column "
    "source_end_column source_end_line source_file source_line stack_frame_id".split()
)
_PARSED: Final[Mapping[str, Callable[[str], Iterator[tuple[str, int]]]]] = {
    "domain": domain_errors,
    "sharding": sharding_errors,
}
"""Attributes that strict mode parses itself: XLA takes more spellings than mean something."""
_LISTS = frozenset(("branch_computations", "called_computations"))
_ONE_DIMENSION = frozenset(
    "concatenate sort scan all-gather all-gather-start reduce-scatter all-to-all "
    "ragged-all-to-all get-dimension-size set-dimension-size".split()
)

_find_words = re.compile(r"\w+").findall
_negative_in_list = re.compile(
    r"(?:size|stride|lhs_dilate|rhs_dilate|rhs_reversal)\s*=\s*(?=[\d\-]+x)[\dx]*-"
).search
"""The lexer reads one negative number, and none between `x`."""
_iota_without_order = re.compile(r"<=\[\d+(?:,\d+)+\](?!T)").search
_root = re.compile(rf"ROOT(?![\w.\-]){BLANK}").match
_written_name = re.compile(rf"%?{NAME}:?").match
_is_in_place = re.compile(rf"\{{{BLANK}%?{NAME}").match
_is_list_in_place = re.compile(rf"\{{{BLANK}(?:\{{{BLANK})?%?{NAME}").match
_head = re.compile(rf"{BLANK},{BLANK}({NAME})={BLANK}").fullmatch
_loose_head = re.compile(rf"{BLANK},{BLANK}({NAME})(\s*)=").match
_number = re.compile(rf"{BLANK}([0-9]{{1,9}}){BLANK}").fullmatch
_STRING = r'"(?:[^"\\]|\\.)*+"'
_find_strings = re.compile(_STRING, re.S).finditer
_blank_before_equals = re.compile(r"(?<=\w)\s+=").search
_number_first = re.compile(r"\{\s*-?\d").match
_is_integer = re.compile(r"-?[0-9]+").fullmatch
_ARRAY = rf"\{{{BLANK}(?:{_STRING}{BLANK}(?:\{{[-0-9,\s]*\}}{BLANK})?)?\}}"
_is_origin = re.compile(rf"\{{(?:{BLANK}(?:[(),]|{_ARRAY}))*+{BLANK}\}}", re.S).fullmatch
"""`ParseOriginalValue` counts commas and parentheses, and closes none."""
_is_string = re.compile(rf"{_STRING}|'[^'\n]*'", re.S).fullmatch
_fields = re.compile(
    rf"({NAME})=(?:{_STRING}|\{{[^{{}}]*\}}|[^\s{{}}\",]+)|{_STRING}", re.S
).finditer
_FLAT = rf"[^{{}}\"]|{_STRING}"
_BRACES = rf"\{{(?:{_FLAT}|\{{(?:{_FLAT}|\{{(?:{_FLAT})*+\}})*+\}})*+\}}"
is_frontend = re.compile(
    rf"\{{\s*(?:{NAME}=\s*(?:{_STRING}|'[^'\n]*'|{_BRACES})\s*"
    rf"(?:,\s*{NAME}=\s*(?:{_STRING}|'[^'\n]*'|{_BRACES})\s*)*+)?\}}",
    re.S,
).fullmatch


class _Checked(InstructionSpans):
    """An instruction whose attributes were read strictly."""

    checked: Mapping[str, tuple[int, int]]
    """The spans of the values of attributes; empty where they cannot be told apart."""

    def value(self, attribute: str) -> str | None:
        """The text of an attribute; None where there is none."""
        span = self.checked.get(attribute)
        return None if span is None else self.text[span[0] : span[1]]

    def error(self, message: str, attribute: str = "") -> Unmade:
        """An error at an attribute; without one, or if it is absent, from the opcode on."""
        span = self.checked.get(attribute)
        return Unmade(message, *(span or (self.opcode.start, self.close + 1)))


def instruction_errors(
    text: str, record: InstructionRecord, *, is_named: bool
) -> Iterator[ParseError]:
    """Errors of XLA's parser in an instruction, in characters of its text.

    `is_named` is true if it begins with a name and `=`.
    """
    checked = _Checked(text, record)
    checked.checked = {}
    yield from _head_errors(checked, is_named)
    yield from type_errors(type_of(record), checked.shape.start)
    opcode = opcode_of(record)
    demands = demands_on(opcode)
    if demands is None:
        yield ParseError(f"unknown opcode: {opcode}", *checked.opcode)
        return
    if not type_of(record) and demands.has_free_type:
        yield ParseError(f"cannot infer the shape of {an(opcode)}: print it", *checked.opcode)
    yield from _operand_errors(checked, demands)
    yield from _attribute_errors(checked, demands)
    yield from _replication_errors(checked)
    wrapped = wrapped_opcode(opcode)
    if wrapped and not opcode.endswith("-done"):
        yield from _asynchronous(checked)
    # What is wrapped is made with its own operands, so its count is checked in a start as well.
    check = _CHECKS.get(wrapped if wrapped and opcode.endswith("-start") else opcode)
    if check is not None:
        yield from check(checked)


def _head_errors(checked: _Checked, is_named: bool) -> Iterator[ParseError]:
    text = checked.text
    if is_named:
        root = _root(text)
        at = root.end() if root else 0
        yield from name_errors(text, at, "an instruction")
        name = _written_name(text, at)
        equals = text.find("=", name.end() if name else at)
        if name:
            yield from blank_errors(text, name.end(), equals)
        yield from blank_errors(text, equals + 1, checked.shape.start)
    yield from blank_errors(text, checked.shape.end, checked.opcode.start)
    yield from blank_errors(text, checked.opcode.end, checked.operands.start - 1)


def type_errors(spelled: str, at: int) -> Iterator[ParseError]:
    """Errors of XLA's parser in a type that stands at `at`; none if it is left out."""
    if not spelled:
        return
    try:
        shape = parse_shape(spelled)
    except ShapeSyntaxError as error:
        yield ParseError(error.message, at + error.offset, at + len(spelled))
        return
    for message in shape_errors(shape):
        yield ParseError(message, at, at + len(spelled))


# ---- operands


def parameter_number(record: InstructionRecord) -> int | None:
    """The number of a parameter; None if it has none, and for other opcodes."""
    number = _number(operands_of(record)) if opcode_of(record) == "parameter" else None
    return int(number[1]) if number else None


def _operand_errors(checked: _Checked, demands: Opcode) -> Iterator[ParseError]:
    record, opcode = checked.record, opcode_of(checked.record)
    if opcode == "constant":
        shape = shape_or_none(type_of(record))
        if shape is not None:
            yield from _moved(literal_errors(shape, operands_of(record)), checked.operands.start)
        return
    if opcode == "parameter":
        if parameter_number(record) is None:
            yield ParseError("expected the number of the parameter, from 0", *checked.operands)
        return
    if wrapped_opcode(opcode) and opcode.endswith("-start"):
        return  # operands may be bound by a later update
    count = len(references_of(record))
    least, most = demands.operands
    if count < least or (most is not None and count > most):
        wanted = f"{least}" if most == least else f"at least {least}"
        yield checked.error(f"{opcode} takes {wanted} operand{'s' * (least != 1)}, not {count}")


def _moved(errors: Iterator[ParseError], by: int) -> Iterator[ParseError]:
    for message, start, end in errors:
        yield ParseError(message, start + by, end + by)


# ---- attributes


def _attribute_errors(checked: _Checked, demands: Opcode) -> Iterator[ParseError]:
    yield from _split_attributes(checked)
    opcode = opcode_of(checked.record)
    for name, (start, end) in checked.checked.items():
        if name not in demands.allowed:
            allowed = ", ".join(sorted(demands.allowed))
            yield ParseError(f"unexpected attribute {name}: {opcode} has {allowed}", start, end)
            continue
        for message, offset in _value_errors(opcode, name, checked.text[start:end]):
            yield ParseError(f"{name}: {message}", start + offset, end)
    missing = [name for name in demands.required if name not in checked.checked]
    if missing:
        yield checked.error(f"{opcode} needs the attribute {' and '.join(missing)}")


def _split_attributes(checked: _Checked) -> Iterator[ParseError]:
    tail, base = attributes_of(checked.record), checked.tail
    if not tail:
        return
    try:
        spans = split_attributes_strictly(tail)
    except AttributeSyntaxError as error:
        yield ParseError(error.message, base + error.offset, len(checked.text))
        return
    yield from attribute_heads(tail, spans, base)
    checked.checked = {name: (base + at, base + end) for name, (at, end) in spans.items()}


def attribute_heads(
    tail: str, spans: Mapping[str, tuple[int, int]], base: int = 0
) -> Iterator[ParseError]:
    """Errors between the values of attributes: a comma, a name and `=` stand there."""
    last = 0
    for name, (start, end) in [*spans.items(), ("", (len(tail), len(tail)))]:
        gap = tail[last:start]
        head = _head(gap)
        if name and head is not None and head[1] == name:
            last = end
            continue
        loose = _loose_head(gap)
        if loose is None:
            yield from _moved(blank_errors(tail, last, start), base)
        elif loose[2] and not (loose[1] in spans and loose[1] != name):
            message = f"unexpected blank between {loose[1]} and `=`"
            yield ParseError(message, base + last + loose.start(2), base + start)
        else:
            yield ParseError(f"attribute {loose[1]} already exists", base + last, base + start)
        last = end


@lru_cache(maxsize=1 << 15)
def _value_errors(opcode: str, name: str, text: str) -> tuple[tuple[str, int], ...]:
    """The first error in a value: a message, and the offset in it."""
    if name in CALLING_ATTRIBUTES:
        if text.startswith("{") and "=" in text:
            # Written in place: its instructions are checked themselves.
            is_in_place = (_is_list_in_place if name in _LISTS else _is_in_place)(text)
            return () if is_in_place else (("expected the name of an instruction", 1),)
        if text.startswith("{") is not (name in _LISTS):
            wanted = "names in braces" if name in _LISTS else "the name of one computation"
            return ((f"expected {wanted}", 0),)
    if "\\" in text and not (name == "backend_config" and text.startswith("{")):
        for string in _find_strings(text):
            try:
                c_unescape(string[0][1:-1])
            except PayloadError as error:
                return ((error.message, string.start() + 1),)
    if name in _PARSED:
        return tuple(_PARSED[name](text))
    try:
        value = read_attribute(name, text)
    except AttributeSyntaxError as error:
        is_read = error.message == NOT_A_PERMUTATION or (name == "origin" and _is_origin(text))
        return () if is_read else ((error.message, error.offset),)
    if wrong_word := _wrong_word(opcode, name, text, value):
        return ((wrong_word, 0),)
    match name:
        case "replica_groups" if order := _iota_without_order(text):
            return (("expected `T(`, the order of several dimensions", order.end()),)
        case "literal" if isinstance(value, TypedLiteral):
            at = text.find(value.text)
            errors = literal_errors(value.shape, value.text)
            return tuple((message, at + start) for message, start, _ in errors)
        case "slice_sizes" if opcode == "gather" and "{" in text[1:]:
            return (("expected integers", 1),)
        case "epsilon" if _is_integer(text) and len(text.lstrip("-0")) > 18:
            with suppress(OverflowError):
                int64(text)
                return ()
            return (("the number does not fit", 0),)
        case "outfeed_shape" if isinstance(value, ArrayShape | TupleShape | BufferShape):
            return tuple((message, 0) for message in shape_errors(value))
        case "replica_groups" if isinstance(value, MeshReplicaGroups):
            axes = [(axis.name, axis.part) for axis in value.axes]
            return () if len(set(axes)) == len(axes) else (("an axis is there twice", 0),)
        case "window" | "result_accuracy" | "statistics" if blank := _blank_before_equals(text):
            return (("unexpected blank before `=`", blank.start()),)
        case "dim_labels" if any(map(str.isspace, text)):
            return (("expected dimensions without blanks, like b0f_01io->b0f", 0),)
        case "cross_program_prefetch_index" if isinstance(value, int) and not (
            -1 << 31 <= value < 1 << 31
        ):
            return (("a number does not fit into 32 bits", 0),)
        case "window" if value and "size=" not in text:
            return (("expected `size=`, a number for each dimension", 0),)
        case "window" if negative := _negative_in_list(text):
            return (("a number that is not padding is not negative", negative.start()),)
        case "result_accuracy" if not text.startswith("{"):
            return (("expected braces", 0),)
        case "backend_config" if text.startswith("{"):
            return () if end_of_braces(text, 0, len(text)) > 0 else (("expected a JSON dict", 0),)
        case "backend_config" if not _is_string(text):
            return (("expected a string or braces", 0),)
        case "slice_sizes" if opcode.startswith("collective-permute") and _number_first(text):
            return (("expected lists of sizes, like {{1,8},{1,8}}", 0),)
        case "frontend_attributes" if not is_frontend(text):
            return (('expected `name="text"` between commas', 0),)
        case "metadata":
            return tuple(_metadata_errors(text))
        case "source_target_pairs" if isinstance(value, tuple) and any(
            not isinstance(pair, tuple) or len(pair) != 2 for pair in value
        ):
            return (("expected pairs, like {{0,1},{1,0}}", 0),)
        case "dimensions" if (wrapped_opcode(opcode) or opcode) in _ONE_DIMENSION:
            is_one = isinstance(value, tuple) and len(value) == 1
            return () if is_one else ((f"{opcode} has one dimension", 0),)
        case "control-predecessors" if not value:
            return (("expected names of instructions", 0),)
        case _:
            return ()


def _wrong_word(opcode: str, name: str, text: str, value: object) -> str:
    """An error if a word is not in the closed set of its attribute."""
    lowered = _LOWERED_WORDS.get(name)
    if name == "algorithm":
        lowered = _GENERATORS if opcode == "rng-bit-generator" else _DOT_ALGORITHMS
    allowed = lowered or _WORDS.get(name)
    if allowed is None:
        return ""
    words = value if isinstance(value, tuple) else (value if lowered else text,)
    for word in words:
        if isinstance(word, str) and (word.lower() if lowered else word) not in allowed.split():
            return f"unknown {name}: {word}; XLA has {', '.join(sorted(allowed.split()))}"
    return ""


def _metadata_errors(text: str) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for match in _fields(text):
        field = match[1]
        if field is None:
            continue
        if field not in _METADATA:
            allowed = ", ".join(sorted(_METADATA))
            yield f"unexpected attribute {field}: metadata has {allowed}", match.start()
        elif field in seen:
            yield f"attribute {field} already exists", match.start()
        seen.add(field)


# ---- what single opcodes demand


def _replication_errors(checked: _Checked) -> Iterator[ParseError]:
    """`parameter_replication` has a word for each array of a parameter."""
    text, shape = checked.value("parameter_replication"), shape_or_none(type_of(checked.record))
    if text is None:
        return
    if opcode_of(checked.record) != "parameter":
        message = "only parameters have parameter_replication: XLA's process ends"
        yield checked.error(message, "parameter_replication")
    elif shape is not None:
        words, count = len(_find_words(text)), sum(1 for _ in leaves(shape))
        if words != count:
            message = f"parameter_replication: {words} words for {count} arrays"
            yield checked.error(message, "parameter_replication")


def _type(checked: _Checked) -> Shape | None:
    return shape_or_none(type_of(checked.record))


def _tuple(checked: _Checked) -> Iterator[ParseError]:
    shape, count = _type(checked), len(references_of(checked.record))
    if shape is None:
        return
    if not isinstance(shape, TupleShape):
        yield checked.error("the shape of a tuple is a tuple")
    elif len(shape.elements) != count:
        yield checked.error(f"a tuple of {len(shape.elements)} elements has {count} operands")


def _even(checked: _Checked) -> Iterator[ParseError]:
    count = len(references_of(checked.record))
    if count % 2:
        opcode = opcode_of(checked.record)
        yield checked.error(f"{opcode} takes an even number of operands, not {count}")


def _odd(checked: _Checked) -> Iterator[ParseError]:
    count = len(references_of(checked.record))
    if not count % 2:
        yield checked.error(f"scatter takes an odd number of operands, not {count}")


def _asynchronous(checked: _Checked) -> Iterator[ParseError]:
    shape = _type(checked)
    is_async = (
        isinstance(shape, TupleShape)
        and len(shape.elements) >= 2
        and isinstance(shape.elements[0], TupleShape)
    )
    if shape is not None and not is_async:
        opcode = opcode_of(checked.record)
        yield checked.error(f"the shape of {an(opcode)} is ((operands…), result, …)")


def _filled_tuple(checked: _Checked) -> Iterator[ParseError]:
    shape = _type(checked)
    if shape is not None and not (isinstance(shape, TupleShape) and shape.elements):
        yield checked.error(f"{opcode_of(checked.record)} must have a non-empty tuple shape")


def _scalar_u32(checked: _Checked) -> Iterator[ParseError]:
    shape = _type(checked)
    if shape is not None and str(shape).partition("{")[0] != "u32[]":
        yield checked.error(f"the shape of {opcode_of(checked.record)} is u32[]")


def _global_ids(checked: _Checked) -> Iterator[ParseError]:
    is_global = checked.value("use_global_device_ids") == "true"
    if is_global and "channel_id" not in checked.checked:
        message = "use_global_device_ids=true needs a channel_id"
        yield checked.error(message, "use_global_device_ids")


def _permute(checked: _Checked) -> Iterator[ParseError]:
    if "slice_sizes" in checked.checked and len(references_of(checked.record)) != 4:
        opcode = opcode_of(checked.record)
        yield checked.error(f"{opcode} with slice_sizes takes exactly 4 operands", "slice_sizes")


def _compare(checked: _Checked) -> Iterator[ParseError]:
    if checked.checked.keys() >= {"type", "order"}:
        yield checked.error("compare has either type or order, not both", "order")


def _scan(checked: _Checked) -> Iterator[ParseError]:
    carries, count = checked.value("num_carries") or "", len(references_of(checked.record))
    if carries.isdigit() and int(carries[:9]) <= count:
        return
    if "num_carries" in checked.checked:
        yield checked.error(f"{carries} carries of {count} operands", "num_carries")


def _custom_call(checked: _Checked) -> Iterator[ParseError]:
    name = "operand_layout_constraints"
    constraints = checked.value(name)
    if constraints is None:
        return
    shapes = tuple_of(constraints.strip()[1:-1])
    count = len(references_of(checked.record))
    for shape in shapes or ():
        for message in shape_errors(shape):
            yield checked.error(f"{name}: {message}", name)
    if shapes is None:
        yield checked.error(f"{name}: expected shapes in braces", name)
    elif len(shapes) != count:
        yield checked.error(f"{name} has {len(shapes)} shapes for {count} operands", name)


_CHECKS: Final[Mapping[str, Callable[[_Checked], Iterator[ParseError]]]] = {
    "tuple": _tuple,
    "reduce": _even,
    "reduce-window": _even,
    "scatter": _odd,
    "scan": _scan,
    "async-start": _asynchronous,
    "async-update": _asynchronous,
    "infeed": _filled_tuple,
    "recv": _filled_tuple,
    "replica-id": _scalar_u32,
    "partition-id": _scalar_u32,
    "collective-permute": _permute,
    "collective-permute-start": _permute,
    "compare": _compare,
    "custom-call": _custom_call,
    "all-reduce": _global_ids,
    "all-reduce-start": _global_ids,
    "reduce-scatter": _global_ids,
}

assert OPCODES.keys() >= _CHECKS.keys()
