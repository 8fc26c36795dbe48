"""One instruction by itself: its words, its type, its attributes, its literal.

What stands here depends on the text of the instruction alone, so the same line is looked at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.strict.literals import literal_troubles
from hlo_lint.analysis.strict.shapes import tuple_of, unsound
from hlo_lint.analysis.strict.tokens import BLANK, NAME, blank_trouble, name_trouble
from hlo_lint.hlo.attributes import (
    AttributeSyntaxError,
    NamedSharding,
    ReplicaGroupList,
    TiledSharding,
    TupleSharding,
    TypedLiteral,
    read_attribute,
    split_attributes_strictly,
)
from hlo_lint.hlo.comments import COMMENT, without_comments
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES
from hlo_lint.hlo.opcodes import OPCODES, Opcode, demands_on, wrapped_opcode
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
    Shape,
    ShapeSyntaxError,
    TupleShape,
    leaves,
    parse_shape,
    shape_or_none,
)
from hlo_lint.text.source import ParseError

_WORDS: Final = {
    "direction": "EQ NE GE GT LE LT",
    "type": "FLOAT TOTALORDER SIGNED UNSIGNED",
    "order": "PARTIAL TOTAL",
    "mode": "cross_replica cross_partition cross_replica_and_partition flattened_id",
    "kind": "kLoop kInput kOutput kCustom",
    "fft_type": "FFT IFFT RFFT IRFFT",
    "distribution": "rng_uniform rng_normal",
    "transpose_a": "NO_TRANSPOSE TRANSPOSE ADJOINT",
    "schedule": "SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST",
    "padding_type": "PADDING_INVALID PADDING_VALID PADDING_SAME",
    "api_version": "API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING "
    "API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI",
}
"""Words that an attribute may be: these sets are closed in XLA."""
_CHOICES: Final = {
    "operand_precision": ("default", "high", "highest", "packed_nibble"),
    "result_accuracy": ("default", "highest"),
}
"""The same of attributes that hold several words, or no word alone."""
_GENERATORS = frozenset(("rng_default", "rng_three_fry", "rng_philox"))
_DOT_ALGORITHMS = frozenset(
    "dot_any_f8_any_f8_any dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum "
    "dot_any_f8_any_f8_any_fast_accum dot_f16_f16_f16 dot_f16_f16_f32 dot_bf16_bf16_bf16 "
    "dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9 "
    "dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64 dot_unset".split()
)
_METADATA = frozenset(
    "deduplicated_name metadata_payload op_name op_type profile_type scheduling_name source_column "
    "source_end_column source_end_line source_file source_line stack_frame_id".split()
)
_LISTS = frozenset(("branch_computations", "called_computations"))
_ONE_DIMENSION = frozenset(
    "concatenate sort all-gather all-gather-start reduce-scatter all-to-all get-dimension-size "
    "set-dimension-size".split()
)

_find_words = re.compile(r"\w+").findall
_iota_without_order = re.compile(r"<=\[\d+(?:,\d+)+\](?!T)").search
_root = re.compile(rf"ROOT(?![\w.\-]){BLANK}").match
_written_name = re.compile(rf"%?{NAME}:?").match
_is_names = re.compile(rf"(?:%{NAME}(?:#[0-9]+)*+(?:, %{NAME}(?:#[0-9]+)*+)*+)?").fullmatch
_head = re.compile(rf"{BLANK},{BLANK}({NAME})={BLANK}").fullmatch
_loose_head = re.compile(rf"{BLANK},{BLANK}({NAME})(\s*)=").match
_number = re.compile(rf"{BLANK}([0-9]{{1,9}}){BLANK}").fullmatch
_STRING = r'"(?:[^"\\]|\\.)*+"'
_find_strings = re.compile(_STRING, re.S).finditer
_wrong_escape = re.compile(
    r"(?<!\\)(?:\\\\)*(\\(?:[^abfnrtv\\?'\"0-7xXuU]|[xX](?![0-9a-fA-F])|[4-7][0-7]{2}))"
).search
_is_string = re.compile(rf"{_STRING}|'[^'\n]*'", re.S).fullmatch
_fields = re.compile(
    rf"({NAME})=(?:{_STRING}|\{{[^{{}}]*\}}|[^\s{{}}\",]+)|{_STRING}", re.S
).finditer
_FLAT = rf"[^{{}}\"]|{_STRING}"
_BRACES = rf"\{{(?:{_FLAT}|\{{(?:{_FLAT}|\{{(?:{_FLAT})*+\}})*+\}})*+\}}"
_is_frontend = re.compile(
    rf"\{{\s*(?:{NAME}=\s*(?:{_STRING}|'[^'\n]*'|{_BRACES})\s*"
    rf"(?:,\s*{NAME}=\s*(?:{_STRING}|'[^'\n]*'|{_BRACES})\s*)*+)?\}}",
    re.S,
).fullmatch


class Anatomy:
    """Where the parts of an instruction stand in its text."""

    __slots__ = ("attributes", "close", "opcode", "operands", "row", "tail", "text", "type")

    def __init__(self, text: str, row: InstructionRecord) -> None:
        self.text = text
        self.row = row
        self.tail = len(text) - len(attributes_of(row))
        """Where the attributes begin."""
        self.close = text.rfind(")", 0, self.tail)
        """The parenthesis behind the operands."""
        self.operands = self.close - len(operands_of(row))
        """Where the operands begin, behind the parenthesis."""
        self.opcode = text.rfind(opcode_of(row), 0, self.operands)
        self.type = text.rfind(type_of(row), 0, self.opcode) if type_of(row) else self.opcode
        self.attributes: dict[str, tuple[int, int]] = {}
        """Where the values of attributes stand, by name."""

    def at(self, attribute: str) -> int:
        """Where the value of an attribute stands; the opcode, where there is none."""
        return self.attributes.get(attribute, (self.opcode, 0))[0]

    def value(self, attribute: str) -> str | None:
        """The text of an attribute; None where there is none."""
        span = self.attributes.get(attribute)
        return None if span is None else self.text[span[0] : span[1]]


def instruction_troubles(
    text: str, row: InstructionRecord, *, is_named: bool
) -> Iterator[ParseError]:
    """What is wrong with an instruction whatever stands around it, in characters of its text.

    `is_named` says that it begins with a name and `=`.
    """
    anatomy = Anatomy(text, row)
    yield from _head_troubles(anatomy, is_named)
    yield from type_troubles(type_of(row), anatomy.type)
    demands = demands_on(opcode_of(row))
    if demands is None:
        yield ParseError(
            f"{opcode_of(row)} is no opcode of XLA", anatomy.opcode, anatomy.operands - 1
        )
        return
    if not type_of(row) and demands.has_free_type:
        said = f"the type of {_a(opcode_of(row))} cannot be inferred: it must be printed"
        yield ParseError(said, anatomy.opcode, anatomy.operands - 1)
    yield from _operand_troubles(anatomy, demands)
    yield from _attribute_troubles(anatomy, demands)
    yield from _sharding_troubles(anatomy)
    yield from _replication_troubles(anatomy)
    check = _CHECKS.get(opcode_of(row))
    if wrapped_opcode(opcode_of(row)) and not opcode_of(row).endswith("-done"):
        check = _asynchronous
    if check is not None:
        yield from check(anatomy)


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _head_troubles(anatomy: Anatomy, is_named: bool) -> Iterator[ParseError]:
    text = anatomy.text
    if is_named:
        root = _root(text)
        at = root.end() if root else 0
        yield from name_trouble(text, at, "an instruction")
        name = _written_name(text, at)
        equals = text.find("=", name.end() if name else at)
        if name:
            yield from blank_trouble(text, name.end(), equals)
        yield from blank_trouble(text, equals + 1, anatomy.type)
    yield from blank_trouble(text, anatomy.type + len(type_of(anatomy.row)), anatomy.opcode)
    behind = anatomy.opcode + len(opcode_of(anatomy.row))
    yield from blank_trouble(text, behind, anatomy.operands - 1)


def type_troubles(spelled: str, at: int) -> Iterator[ParseError]:
    """What is wrong with a type that stands at `at`; nothing where it is left out."""
    if not spelled:
        return
    try:
        shape = parse_shape(spelled)
    except ShapeSyntaxError as error:
        yield ParseError(error.message, at + error.offset, at + len(spelled))
        return
    for said in unsound(shape):
        yield ParseError(said, at, at + len(spelled))


# ---- operands


def parameter_number(row: InstructionRecord) -> int | None:
    """The number of a parameter; None where there is none, and for other opcodes."""
    number = _number(operands_of(row)) if opcode_of(row) == "parameter" else None
    return int(number[1]) if number else None


def _operand_troubles(anatomy: Anatomy, demands: Opcode) -> Iterator[ParseError]:
    row = anatomy.row
    if opcode_of(row) == "constant":
        shape = shape_or_none(type_of(row))
        if shape is not None:
            yield from _moved(literal_troubles(shape, operands_of(row)), anatomy.operands)
        return
    if opcode_of(row) == "parameter":
        if parameter_number(row) is None:
            said = "expected the number of the parameter: they count from 0"
            yield ParseError(said, anatomy.operands, anatomy.close)
        return
    count = len(references_of(row))
    least, most = demands.operands
    if count < least or (most is not None and count > most):
        wanted = f"{least}" if most == least else f"at least {least}"
        said = f"{opcode_of(row)} takes {wanted} operand{'s' * (least != 1)}, not {count}"
        yield ParseError(said, anatomy.opcode, anatomy.close + 1)


def _moved(troubles: Iterator[ParseError], by: int) -> Iterator[ParseError]:
    for message, start, end in troubles:
        yield ParseError(message, start + by, end + by)


def declared_shapes(anatomy: Anatomy) -> Iterator[tuple[int, int, str]]:
    """Operands with a type before the name: which one, where it stands, and the type."""
    text = operands_of(anatomy.row)
    if _is_names(text):
        return
    number = begin = depth = 0
    for found in _structure(text + ","):
        sign = found[0]
        if sign in "([{":
            depth += 1
        elif sign in ")]}":
            depth -= 1
        elif sign == "," and not depth:
            spelled = without_comments(text[begin : found.start()]).strip()
            typed = _typed_operand(spelled)
            if typed is not None:
                yield number, anatomy.operands + begin, typed[1]
            number, begin = number + 1, found.end()


_structure = re.compile(rf"[(){{}}\[\],]|{COMMENT}").finditer
_typed_operand = re.compile(rf"(.*[\])}}])\s*%?{NAME}(?:#[0-9]+)*+:?", re.S).fullmatch

# ---- attributes


def _attribute_troubles(anatomy: Anatomy, demands: Opcode) -> Iterator[ParseError]:
    yield from _find_attributes(anatomy)
    opcode = opcode_of(anatomy.row)
    for name, (start, end) in anatomy.attributes.items():
        if name not in demands.allowed:
            known = ", ".join(sorted(demands.allowed))
            yield ParseError(f"{opcode} has no attribute {name}; it has {known}", start, end)
            continue
        for message, offset in _value_troubles(opcode, name, anatomy.text[start:end]):
            yield ParseError(f"{name}: {message}", start + offset, end)
    missing = [name for name in demands.required if name not in anatomy.attributes]
    if missing:
        said = f"{opcode} needs the attribute {' and '.join(missing)}"
        yield ParseError(said, anatomy.opcode, anatomy.close + 1)


def _find_attributes(anatomy: Anatomy) -> Iterator[ParseError]:
    tail, base, text = attributes_of(anatomy.row), anatomy.tail, anatomy.text
    if not tail:
        return
    try:
        spans = split_attributes_strictly(tail)
    except AttributeSyntaxError as error:
        yield ParseError(error.message, base + error.offset, len(text))
        return
    yield from attribute_heads(tail, spans, base)
    anatomy.attributes = {name: (base + at, base + end) for name, (at, end) in spans.items()}


def attribute_heads(
    tail: str, spans: Mapping[str, tuple[int, int]], base: int = 0
) -> Iterator[ParseError]:
    """What stands between the values of attributes: a comma, a name and `=`, and nothing else."""
    behind = 0
    for name, (start, end) in [*spans.items(), ("", (len(tail), len(tail)))]:
        gap = tail[behind:start]
        found = _head(gap)
        if name and found is not None and found[1] == name:
            behind = end
            continue
        loose = _loose_head(gap)
        if loose is None:
            yield from _moved(blank_trouble(tail, behind, start), base)
        elif loose[1] in spans and loose[1] != name:
            yield ParseError(
                f"the attribute {loose[1]} is there twice", base + behind, base + start
            )
        elif loose[2]:
            said = f"no blank may stand between {loose[1]} and `=`"
            yield ParseError(said, base + behind + loose.start(2), base + start)
        else:
            said = f"the attribute {loose[1]} is there twice"
            yield ParseError(said, base + behind, base + start)
        behind = end


@lru_cache(maxsize=1 << 15)
def _value_troubles(opcode: str, name: str, text: str) -> tuple[tuple[str, int], ...]:
    """What is wrong with a value: a message, and where in it."""
    if name in CALLING_ATTRIBUTES:
        if text.startswith("{") and "=" in text:
            return ()  # written in place: its instructions are looked at themselves
        if text.startswith("{") is not (name in _LISTS):
            wanted = "names in braces" if name in _LISTS else "the name of one computation"
            return ((f"expected {wanted}", 0),)
    try:
        value = read_attribute(name, text)
    except AttributeSyntaxError as error:
        return ((error.message, error.offset),)
    if "\\" in text and not (name == "backend_config" and text.startswith("{")):
        for string in _find_strings(text):
            if wrong := _wrong_escape(string[0]):
                said = f"{wrong[0]} is no escape of C"
                return ((said, string.start() + wrong.start()),)
    words = _words(opcode, name)
    if words is not None and text not in words:
        return ((f"{text} is none of {', '.join(sorted(words))}", 0),)
    chosen = _CHOICES.get(name)
    if chosen is not None:
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str) and word not in chosen:
                return ((f"{word} is none of {', '.join(chosen)}", 0),)
    match name:
        case "sharding" | "replica_groups" if found := _iota_without_order(text):
            return (("expected `T(`, the order of several dimensions", found.end()),)
        case "literal" if isinstance(value, TypedLiteral):
            at = text.find(value.text)
            troubles = literal_troubles(value.shape, value.text)
            return tuple((said, at + start) for said, start, _ in troubles)
        case "replica_groups" if isinstance(value, ReplicaGroupList):
            devices = [device for group in value.groups for device in group]
            return () if len(set(devices)) == len(devices) else (("a device is there twice", 0),)
        case "statistics" if not text.startswith("{visualizing_index="):
            return (("expected `visualizing_index=` first", 0),)
        case "window" if value and "size=" not in text:
            return (("expected `size=`, a number for each dimension", 0),)
        case "operand_precision" if opcode == "dot" and value and len(text.split(",")) != 2:
            return (("expected one word for each operand", 0),)
        case "sharding" if isinstance(value, NamedSharding):
            return tuple(_axes_troubles(value, text))
        case "backend_config" if not (text.startswith("{") or _is_string(text)):
            return (("expected a string or braces", 0),)
        case "frontend_attributes" if not _is_frontend(text):
            return (('expected `name="text"` between commas', 0),)
        case "metadata":
            return tuple(_metadata_troubles(text))
        case "source_target_pairs" if isinstance(value, tuple) and any(
            not isinstance(pair, tuple) or len(pair) != 2 for pair in value
        ):
            return (("expected pairs, like {{0,1},{1,0}}", 0),)
        case "dimensions" if opcode in _ONE_DIMENSION and value != () and isinstance(value, tuple):
            return () if len(value) == 1 else ((f"{opcode} has one dimension", 0),)
        case "dimensions" if opcode in _ONE_DIMENSION:
            return ((f"{opcode} has one dimension", 0),)
        case "control-predecessors" if not value:
            return (("expected names of instructions", 0),)
        case _:
            return ()


def _words(opcode: str, name: str) -> frozenset[str] | None:
    if name == "algorithm" and opcode == "rng-bit-generator":
        return _GENERATORS
    if name == "algorithm" and opcode in ("dot", "scaled-dot"):
        return _DOT_ALGORITHMS
    spelled = _WORDS.get(name)
    return None if spelled is None else frozenset(spelled.split())


def _axes_troubles(sharding: NamedSharding, text: str) -> Iterator[tuple[str, int]]:
    for word in ("replicated=", "unreduced=", "manual="):
        if text.count(word) > 1:
            yield f"{word} is there twice", text.rfind(word)
    order = sharding.mesh.order
    if (
        "device_ids" in text
        and isinstance(order, tuple)
        and sorted(order) != list(range(len(order)))
    ):
        yield "device_ids names each device once, from 0 on", text.find("device_ids")
    seen: set[tuple[str, object]] = set()
    of_dimensions = [axis for dimension in sharding.dimensions for axis in dimension.axes]
    for axis in [*of_dimensions, *sharding.replicated, *sharding.unreduced, *sharding.manual]:
        if (axis.name, axis.part) in seen:
            yield f"the axis {axis.name} is there twice", 0
        seen.add((axis.name, axis.part))


def _metadata_troubles(text: str) -> Iterator[tuple[str, int]]:
    seen: set[str] = set()
    for found in _fields(text):
        field = found[1]
        if field is None:
            continue
        if field not in _METADATA:
            yield f"there is no {field}; there is {', '.join(sorted(_METADATA))}", found.start()
        elif field in seen:
            yield f"{field} is there twice", found.start()
        seen.add(field)


# ---- what single opcodes demand


def _replication_troubles(anatomy: Anatomy) -> Iterator[ParseError]:
    """Whether `parameter_replication` has a word for each array of a parameter."""
    text, shape = anatomy.value("parameter_replication"), shape_or_none(type_of(anatomy.row))
    if text is None:
        return
    at, end = anatomy.attributes["parameter_replication"]
    if opcode_of(anatomy.row) != "parameter":
        yield ParseError("only parameters have parameter_replication: XLA dies of others", at, end)
    elif shape is not None:
        words, count = len(_find_words(text)), sum(1 for _ in leaves(shape))
        if words != count:
            said = f"parameter_replication: {words} words for {count} arrays"
            yield ParseError(said, at, end)


def _sharding_troubles(anatomy: Anatomy) -> Iterator[ParseError]:
    """Whether a sharding has tiles for each dimension, and parts for each part of a tuple."""
    text, shape = anatomy.value("sharding"), shape_or_none(type_of(anatomy.row))
    if text is None or shape is None:
        return
    at, end = anatomy.attributes["sharding"]
    try:
        value = read_attribute("sharding", text)
    except AttributeSyntaxError:
        return
    is_whole = isinstance(shape, TupleShape) and opcode_of(anatomy.row) in ("parameter", "tuple")
    if is_whole and isinstance(value, TupleSharding):
        count = sum(1 for _ in leaves(shape))
        if count and len(value.elements) != count:
            said = f"sharding: {len(value.elements)} parts for {count} arrays"
            yield ParseError(said, at, end)
    elif isinstance(value, TiledSharding) and value.tiles and isinstance(shape, ArrayShape):
        dimensions = len(value.tiles) - len(value.subgroups)
        if dimensions != shape.rank:
            yield ParseError(f"sharding: tiles along {dimensions} dimensions of {shape}", at, end)


def _is_async_tuple(shape: Shape | None) -> bool:
    return (
        isinstance(shape, TupleShape)
        and len(shape.elements) >= 2
        and isinstance(shape.elements[0], TupleShape)
    )


def _tuple(anatomy: Anatomy) -> Iterator[ParseError]:
    shape, count = shape_or_none(type_of(anatomy.row)), len(references_of(anatomy.row))
    if shape is None:
        return
    if not isinstance(shape, TupleShape):
        yield ParseError("a tuple has the type of a tuple", anatomy.type, anatomy.opcode)
    elif len(shape.elements) != count:
        said = f"a tuple of {len(shape.elements)} elements has {count} operands"
        yield ParseError(said, anatomy.operands - 1, anatomy.close + 1)


def _even(anatomy: Anatomy) -> Iterator[ParseError]:
    count = len(references_of(anatomy.row))
    if count % 2:
        said = f"{opcode_of(anatomy.row)} takes as many initial values as arrays: {count} is odd"
        yield ParseError(said, anatomy.operands - 1, anatomy.close + 1)


def _odd(anatomy: Anatomy) -> Iterator[ParseError]:
    count = len(references_of(anatomy.row))
    if not count % 2:
        said = f"scatter takes arrays, indices and as many updates: {count} operands are even"
        yield ParseError(said, anatomy.operands - 1, anatomy.close + 1)


def _asynchronous(anatomy: Anatomy) -> Iterator[ParseError]:
    shape = shape_or_none(type_of(anatomy.row))
    if shape is not None and not _is_async_tuple(shape):
        said = f"{opcode_of(anatomy.row)} has the type ((operands), result, state)"
        yield ParseError(said, anatomy.type, anatomy.opcode)


def _tuple_type(least: int, said: str) -> Callable[[Anatomy], Iterator[ParseError]]:
    def check(anatomy: Anatomy) -> Iterator[ParseError]:
        shape = shape_or_none(type_of(anatomy.row))
        if shape is None or (isinstance(shape, TupleShape) and len(shape.elements) >= least):
            return
        yield ParseError(
            f"{opcode_of(anatomy.row)} has the type {said}", anatomy.type, anatomy.opcode
        )

    return check


def _scalar_u32(anatomy: Anatomy) -> Iterator[ParseError]:
    shape = shape_or_none(type_of(anatomy.row))
    if shape is None or str(shape).partition("{")[0] == "u32[]":
        return
    yield ParseError(f"{opcode_of(anatomy.row)} has the type u32[]", anatomy.type, anatomy.opcode)


def _global_ids(anatomy: Anatomy) -> Iterator[ParseError]:
    if anatomy.value("use_global_device_ids") == "true" and "channel_id" not in anatomy.attributes:
        at = anatomy.at("use_global_device_ids")
        yield ParseError("use_global_device_ids needs a channel_id", at, at + len("true"))


def _index(anatomy: Anatomy) -> Iterator[ParseError]:
    text = anatomy.value("index")
    if text is not None and text.startswith("-"):
        yield ParseError("an index counts from 0", anatomy.at("index"), anatomy.at("index") + 1)


def _custom_call(anatomy: Anatomy) -> Iterator[ParseError]:
    constraints = anatomy.value("operand_layout_constraints")
    if constraints is None:
        return
    shapes = tuple_of(constraints.strip()[1:-1])
    at, count = anatomy.at("operand_layout_constraints"), len(references_of(anatomy.row))
    if shapes is None:
        yield ParseError("operand_layout_constraints: expected shapes in braces", at, at + 1)
    elif len(shapes) != count:
        said = f"operand_layout_constraints has {len(shapes)} shapes for {count} operands"
        yield ParseError(said, at, at + 1)
    elif any(isinstance(shape, ArrayShape) and shape.rank and not shape.layout for shape in shapes):
        yield ParseError("operand_layout_constraints: a shape has no layout", at, at + 1)


def _slice(anatomy: Anatomy) -> Iterator[ParseError]:
    text = anatomy.value("slice")
    try:
        ranges = read_attribute("slice", text or "{}")
    except AttributeSyntaxError:
        return
    shape = shape_or_none(type_of(anatomy.row))
    at = anatomy.at("slice")
    if not isinstance(ranges, tuple):
        return
    if isinstance(shape, ArrayShape) and len(shape.dims) != len(ranges):
        yield ParseError(f"slice has {len(ranges)} ranges for {shape}", at, at + 1)
    for start, limit, stride in ranges:  # type: ignore[misc]  # the reader of `slice` gives these
        if not (0 <= start <= limit and stride > 0):
            said = f"slice: [{start}:{limit}:{stride}] is no range that goes up"
            yield ParseError(said, at, at + 1)


_CHECKS: Final[Mapping[str, Callable[[Anatomy], Iterator[ParseError]]]] = {
    "tuple": _tuple,
    "reduce": _even,
    "reduce-window": _even,
    "scatter": _odd,
    "async-start": _asynchronous,
    "async-update": _asynchronous,
    "infeed": _tuple_type(1, "(data, token[])"),
    "send": _tuple_type(3, "(data, u32[], token[])"),
    "recv": _tuple_type(3, "(data, u32[], token[])"),
    "copy-start": _tuple_type(2, "(destination, source, u32[])"),
    "replica-id": _scalar_u32,
    "partition-id": _scalar_u32,
    "get-tuple-element": _index,
    "custom-call": _custom_call,
    "slice": _slice,
    "all-gather": _global_ids,
    "all-gather-start": _global_ids,
    "all-reduce": _global_ids,
    "all-reduce-start": _global_ids,
    "reduce-scatter": _global_ids,
    "collective-reduce": _global_ids,
}

assert OPCODES.keys() >= _CHECKS.keys()
