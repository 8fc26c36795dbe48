"""Errors in a whole module, as XLA's parser finds them: its header, its tables and its calls."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

from hlo_lint.analysis.shape_inference import ShapeInference
from hlo_lint.analysis.strict.async_chains import AsyncChains
from hlo_lint.analysis.strict.graph import computation_errors
from hlo_lint.analysis.strict.instruction import (
    attribute_heads,
    instruction_errors,
    is_frontend,
    type_errors,
)
from hlo_lint.analysis.strict.shapes import has_element, shape_errors
from hlo_lint.analysis.strict.tokens import BLANK, Unmade, blank_end, blank_errors, name_errors
from hlo_lint.analysis.strict.tokens import NAME as WORD
from hlo_lint.hlo.attributes import (
    Alias,
    AttributeSyntaxError,
    Donor,
    Recovery,
    read_attribute,
    split_attributes,
    split_attributes_strictly,
)
from hlo_lint.hlo.comments import without_comments
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Module
from hlo_lint.hlo.opcodes import OPCODES, demands_on
from hlo_lint.hlo.parser.general import SINGLE
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.parser.tokens import InstructionSpans
from hlo_lint.hlo.records import (
    InstructionRecord,
    attributes_of,
    name_of,
    opcode_of,
    references_of,
    type_of,
)
from hlo_lint.hlo.shape import Shape, ShapeSyntaxError, TupleShape, parse_shape, spelled_index
from hlo_lint.text.phrases import shortened
from hlo_lint.text.source import ParseError, Span

MAX_SPELLED = 200
"""Characters of a shape in a message."""

_HEADER = frozenset(
    "alias_passthrough_params allow_spmd_sharding_propagation_to_output "
    "allow_spmd_sharding_propagation_to_parameters buffer_donor debug_attributes "
    "entry_computation_layout frontend_attributes input_output_alias is_scheduled num_partitions "
    "origin_recovery_table replica_count".split()
)
"""Attributes of a header in jaxlib 0.11.2."""
_header_name = re.compile(rf"HloModule(?![\w.\-]){BLANK}(%?{WORD}:?)").match
_entry = re.compile(rf"ENTRY(?![\w.\-]){BLANK}").match
_called_names = re.compile(
    rf"\b({'|'.join(CALLING_ATTRIBUTES)})=(\{{[^{{}}=]*\}}|%?{WORD})"
).finditer
_word = re.compile(WORD).findall
_log_modes = re.compile(r"\blog_mode=(\w+)").finditer
_has_foreign_blank = re.compile(r"[^\S \t\r\n]").search
_foreign_blank = re.compile(
    r'"(?:[^"\\]|\\.)*+"|//[^\n\r]*+|/\*(?:[^*]|\*(?!/))*+\*/|([^\S \t\r\n])', re.S
).finditer
_trailing_comma = re.compile(r",\s*\)\s*\Z").search

_FIELDS: Final = {
    "FileNames": "",
    "FunctionNames": "",
    "FileLocations": "file_name_id function_name_id line end_line column end_column",
    "StackFrames": "file_location_id parent_frame_id",
}
"""The tables in their order, with the fields of a row; rows without fields are strings."""
_table_row = re.compile(
    rf'{BLANK}-?\d+{BLANK}(?:"(?P<text>(?:[^"\\]|\\.)*)"|\{{(?P<fields>[^{{}}]*)\}})'
).match
_field = re.compile(rf"{BLANK},?{BLANK}([a-z_]+)=(-?\d+){BLANK}").match


class CheckedTexts:
    """The errors of lines and computations that were checked: the same text has the same."""

    __slots__ = ("computations", "instructions")

    def __init__(self) -> None:
        self.instructions: dict[tuple[str, bool], tuple[ParseError, ...]] = {}
        self.computations: dict[Computation, tuple[ParseError, ...]] = {}


_OPCODES: Final = frozenset(
    name
    for opcode in OPCODES
    for name in (opcode, *(f"{opcode}-{step}" for step in ("start", "update", "done")))
    if demands_on(name) is not None
)


def module_errors(module: Module, checked: CheckedTexts) -> Iterator[ParseError]:
    """Errors of XLA's parser in a module, in characters of its text, in no order."""
    errors = tuple(_module_errors(module, checked))
    if errors and (dropped := tuple(_dropped_operands(module, errors))):
        text = module.text
        for start, end in dropped:
            text = text[:start] + " " * (end - start) + text[end:]
        for rest in parse_file(text).modules:
            yield from module_errors(rest, checked)
        return
    yield from errors


def _dropped_operands(module: Module, errors: Sequence[ParseError]) -> Iterator[Span]:
    """The operands that XLA's parser drops, in characters of the module's text.

    What is not a name with a value is read as an instruction in its place (`ParseOperands`). Where
    this fails at a comma or parenthesis, the list goes on there: after an instruction that cannot
    be made, and after a name that is an opcode.
    """
    for number, computation in enumerate(module.computations):
        yield from _unmade(computation, module.offset(number), errors)
        defined: set[str] = set()
        for record, (begin, end) in zip(computation.rows, computation.spans, strict=True):
            if not _OPCODES.isdisjoint(references_of(record)):
                spans = InstructionSpans(computation.text[begin:end], record)
                for name, span in zip(references_of(record), spans.operand_spans, strict=False):
                    if span is None or name not in _OPCODES or name in defined:
                        continue
                    if spans.text[span.start] != "%":
                        at = module.offset(number) + begin
                        yield Span(at + span.shape_start, at + span.end)
            defined.add(name_of(record))


def _unmade(computation: Computation, offset: int, errors: Sequence[ParseError]) -> Iterator[Span]:
    """The innermost instructions among operands that XLA reads and cannot make."""
    spans = [computation.spans[number] for number in sorted(computation.nested)]
    dropped: list[Span] = []
    for begin, end in sorted(spans, key=lambda span: span.end - span.start):
        inside = [
            error for error in errors if begin <= error.start - offset and error.end - offset <= end
        ]
        is_unmade = bool(inside) and all(isinstance(error, Unmade) for error in inside)
        if is_unmade and not any(begin <= span.start and span.end <= end for span in dropped):
            dropped.append(Span(begin, end))
    for begin, end in dropped:
        yield Span(offset + begin, offset + end)


def _module_errors(module: Module, checked: CheckedTexts) -> Iterator[ParseError]:
    yield from module.parse_errors
    is_single = not module.header and any(
        part.name == SINGLE and not part.text.startswith("{") for part in module.computations
    )
    if not is_single:
        yield from _around(module)
        yield from _header(module)
    elif sum(not body.text.startswith("{") for body in module.computations) > 1:
        at = module.offset(1)
        yield ParseError("nothing may follow a single instruction", at, at + 1)
    yield from _foreign_blanks(module.text)
    inference = ShapeInference(module.computations)
    for number, computation in enumerate(module.computations):
        begin = module.offset(number)
        errors = checked.computations.get(computation)
        if errors is None:
            errors = tuple(_computation(computation, inference, checked))
            if all(map(type_of, computation.rows)):
                # Shapes that are left out may depend on what is called in this module.
                checked.computations[computation] = errors
        for error in errors:
            yield type(error)(error.message, begin + error.start, begin + error.end)
    yield from _calls(module)


def _foreign_blanks(text: str) -> Iterator[ParseError]:
    """White space of Unicode that is none to XLA's lexer: form feeds, vertical tabs, …"""
    for match in _foreign_blank(text) if _has_foreign_blank(text) else ():
        if match[1]:
            yield ParseError(
                f"U+{ord(match[1]):04X} is not white space in HLO", match.start(), match.end()
            )


def _computation(
    computation: Computation, inference: ShapeInference, checked: CheckedTexts
) -> Iterator[ParseError]:
    """The errors of a computation, in characters of its text."""
    yield from computation.parse_errors
    is_inline = computation.text.startswith("{")
    is_bare = computation.name == SINGLE and not is_inline
    if not is_bare:
        if not is_inline:
            yield from _computation_head(computation)
        yield from _between(computation)
    for number, record in enumerate(computation.rows):
        begin, end = computation.spans[number]
        is_nested = number in computation.nested
        if is_bare and is_nested and opcode_of(record) == "parameter":
            yield from type_errors(type_of(record), begin)  # XLA makes it of an operand
            continue
        text = computation.text[begin:end]
        is_named = not is_nested and not (is_bare and name_of(record) == SINGLE)
        if is_bare and not is_named and not type_of(record) and not is_nested:
            yield ParseError("expected `name =`, or the shape of the result", begin, end)
        errors = checked.instructions.get((text, is_named))
        if errors is None:
            errors = tuple(instruction_errors(text, record, is_named=is_named))
            checked.instructions[text, is_named] = errors
        for error in errors:
            yield type(error)(error.message, begin + error.start, begin + error.end)
    yield from computation_errors(computation, inference)


def _computation_head(computation: Computation) -> Iterator[ParseError]:
    text = computation.text
    entry = _entry(text)
    yield from name_errors(text, entry.end() if entry else 0, "a computation")
    attributes = split_attributes(computation.tail) if computation.tail else {}
    yield from attribute_heads(computation.tail, attributes, len(text) - len(computation.tail))
    for name, (start, _) in attributes.items():
        message = ""
        if name != "execution_thread":
            message = f"unexpected attribute {name}: a computation has execution_thread"
        elif computation.tail[start] not in "\"'":
            message = "execution_thread: expected a string"
        if message:
            yield ParseError(message, len(text) - len(computation.tail), len(text))


def _between(computation: Computation) -> Iterator[ParseError]:
    """Errors between instructions: white space and comments stand there."""
    text, signature = computation.text, computation.signature
    at = text.find("{", text.find(signature) + len(signature)) + 1
    unread = sorted(start for _, start, _ in computation.parse_errors)
    for number, (begin, end) in enumerate(computation.spans):
        if number in computation.nested:
            continue
        if not _any_between(unread, at, begin):
            yield from blank_errors(text, at, begin)
        at = end


def _any_between(starts: Sequence[int], begin: int, end: int) -> bool:
    """True if one of the sorted `starts` is from `begin` to `end`."""
    first = bisect_left(starts, begin)
    return first < len(starts) and starts[first] <= end


# ---- the header


def _around(module: Module) -> Iterator[ParseError]:
    """Errors outside of header, tables and computations."""
    text = module.text
    if not module.header:
        # XLA takes `name (` at the beginning for the beginning of a single instruction.
        numbers = (
            at
            for at in range(len(module.computations))
            if not module.computations[at].text.startswith("{")
        )
        number = next(numbers, None)
        if number is None:
            return
        first = module.computations[number]
        if first.signature and not first.is_entry:
            yield ParseError("a module begins with `HloModule name`, or with ENTRY", 0, 1)
        yield from blank_errors(text, 0, module.offset(number))
        return
    start = _header_start(module)
    yield from blank_errors(text, 0, start)
    at = start + len(module.header)
    if module.tables:
        end, error = _tables(text, at)
        at = max(end, text.find(module.tables[-1], at) + len(module.tables[-1]))
        if error:
            yield ParseError(error, end, at)
        else:
            yield from blank_errors(text, end, at)
    unread = sorted(start for _, start, _ in module.parse_errors)
    for number, computation in enumerate(module.computations):
        if computation.text.startswith("{"):
            continue
        begin = module.offset(number)
        if not _any_between(unread, at, begin):
            yield from blank_errors(text, at, begin)
        at = begin + len(computation.text)
    if not _any_between(unread, at, len(text)):
        yield from blank_errors(text, at, len(text))
    if not module.computations and not module.parse_errors:
        yield ParseError("a module needs a computation", start, start + len(module.header))


def _header_start(module: Module) -> int:
    """The start of the header: a comment before it may hold the same words."""
    blank = blank_end(module.text, 0)
    return module.text.find(module.header, blank.end() if blank else 0)


def _tables(text: str, at: int) -> tuple[int, str]:
    """The end of the tables, or the place of an error in them, and the error."""
    for title, fields in _FIELDS.items():
        blank = blank_end(text, at)
        at = blank.end() if blank else at
        if not text.startswith(title, at):
            return at, f"expected the table {title}"
        at += len(title)
        while row := _table_row(text, at):
            if (row["text"] is None) is not bool(fields):
                return row.start(), f"expected a row of {title}"
            error = _row_error(row["fields"] or "", fields.split())
            if error:
                return row.start(), error
            at = row.end()
    return at, ""


def _row_error(text: str, fields: Sequence[str]) -> str:
    at, names = 0, set()
    while field := _field(text, at):
        at = field.end()
        if field[1] not in fields or field[1] in names:
            return f"unexpected attribute {field[1]}: a row has {', '.join(fields)}, each once"
        names.add(field[1])
    missing = [name for name in fields if name not in names]
    if at < len(text):
        return f"expected `name=number`: {text[at:].strip()}"
    return f"a row needs {' and '.join(missing)}" if missing else ""


def _header(module: Module) -> Iterator[ParseError]:
    header = module.header
    if not header:
        return
    begin = _header_start(module)
    for message, start, end in _header_errors(module):
        yield ParseError(message, begin + start, begin + end)


def _header_errors(module: Module) -> Iterator[ParseError]:
    header = module.header
    name = _header_name(header)
    if name is None:
        yield ParseError("a module needs a name", len("HloModule"), len(header))
        return
    yield from name_errors(header, name.start(1), "a module")
    tail, base = header[name.end() :], name.end()
    try:
        spans = split_attributes_strictly(tail)
    except AttributeSyntaxError as error:
        yield ParseError(error.message, base + error.offset, len(header))
        return
    yield from attribute_heads(tail, spans, base)
    for key, (start, end) in spans.items():
        for message, offset in _header_value(module, key, tail[start:end]):
            yield ParseError(f"{key}: {message}", base + start + offset, base + end)


def _header_value(module: Module, name: str, text: str) -> Iterator[tuple[str, int]]:
    if name not in _HEADER:
        yield f"unexpected attribute; a header has {', '.join(sorted(_HEADER))}", 0
        return
    if name == "entry_computation_layout":
        yield from _entry_layout(text)
        return
    try:
        value = read_attribute(name, text)
    except AttributeSyntaxError as error:
        yield error.message, error.offset
        return
    match name:
        case "replica_count" | "num_partitions" if not isinstance(value, int):
            yield "expected an integer", 0
        case "is_scheduled" | "alias_passthrough_params" if not isinstance(value, bool):
            yield "expected true or false", 0
        case "input_output_alias" | "buffer_donor" if isinstance(value, tuple):
            yield from _aliases(_result_shape(module), value)
        case "origin_recovery_table":
            yield from _recovery_errors(value)
        case "frontend_attributes" if not is_frontend(text):
            yield 'expected `name="text"` between commas', 0
        case "debug_attributes":
            for mode in _log_modes(text):
                if mode[1] not in ("default", "fusion_debugger"):
                    yield f"unknown log_mode: {mode[1]}", mode.start(1)
        case _:
            pass


def _recovery_errors(value: object) -> Iterator[tuple[str, int]]:
    """Errors in the modules that recover values: `ParseOriginalValueRecoveryTable` reads them."""
    for recovery in value if isinstance(value, tuple) else ():
        if isinstance(recovery, Recovery) and recovery.module:
            for module in parse_file(recovery.module).modules:
                for error in module_errors(module, CheckedTexts()):
                    yield f"the module of a row: {error.message}", 0


def _result_shape(module: Module) -> Shape | None:
    root = module.entry.root if module.entry else None
    return ShapeInference(module.computations).shape(root) if root else None


def _entry_layout(text: str) -> Iterator[tuple[str, int]]:
    """Errors in the shapes; XLA compares them with nothing, and skips a last comma."""
    inside = text.strip()[1:-1]
    arrow = inside.rfind("->")
    if arrow < 0:
        yield "expected {(parameters)->result}", 0
        return
    comma = _trailing_comma(inside[:arrow])
    spelled = inside[: comma.start()] + ")" if comma else inside[:arrow]
    try:
        parameters, result = parse_shape(spelled.strip()), parse_shape(inside[arrow + 2 :])
    except ShapeSyntaxError as error:
        yield error.message, 1
        return
    if not isinstance(parameters, TupleShape):
        yield "expected the parameters' shapes in parentheses", 1
        return
    for shape in (*dict.fromkeys(parameters.elements), result):
        for message in shape_errors(shape):
            yield message, 1


def _aliases(result: Shape | None, aliases: Sequence[object]) -> Iterator[tuple[str, int]]:
    """Errors in aliases and donors: `HloInputOutputAliasConfig` looks at the result only."""
    # Once: a header may hold 100,000 aliases of a tuple as long.
    spelled = shortened(str(result), MAX_SPELLED)
    for alias in aliases:
        if isinstance(alias, Alias) and not has_element(result, alias.output_index):
            yield f"the result is {spelled}: there is no {spelled_index(alias.output_index)}", 0
        elif isinstance(alias, Alias | Donor):
            number = alias.operand if isinstance(alias, Alias) else alias.parameter
            if number < 0:
                yield f"there is no parameter {number}", 0


# ---- calls


def _calls(module: Module) -> Iterator[ParseError]:
    defined: dict[str, Computation] = {}
    has_entry = False
    for number, computation in enumerate(module.computations):
        begin = module.offset(number)
        if computation.is_entry:
            if has_entry:
                yield ParseError("expected only one ENTRY", begin, begin + len("ENTRY"))
            has_entry = True
        chains = AsyncChains(defined)
        for at, record in enumerate(computation.rows):
            if message := chains.error(record, computation.inline.get(at, ())):
                start, end = computation.spans[at]
                yield ParseError(message, begin + start, begin + end)
            if "=" in attributes_of(record):
                start, end = computation.spans[at]
                for message in _call(record, defined, module, computation, at):
                    yield ParseError(message, begin + start, begin + end)
        if computation.name in defined and not computation.text.startswith("{"):
            yield ParseError(f"computation already exists: %{computation.name}", begin, begin + 1)
        defined.setdefault(computation.name, computation)


def _call(
    record: InstructionRecord,
    defined: dict[str, Computation],
    module: Module,
    computation: Computation,
    number: int,
) -> Iterator[str]:
    inline = computation.inline.get(number, ())
    attributes = _calling_attributes(attributes_of(record))
    if not inline and _written_in_place(attributes):
        yield "the computation that is written into an attribute cannot be read"
    for call in _called_names(attributes):
        for name in _word(call[2]):
            if name in defined or any(name == callee.computation.name for callee in inline):
                if call[1] == "to_apply" and opcode_of(record) == "scan":
                    yield from _scan_parameters(record, defined.get(name))
                continue
            is_later = module.computation(name) is not None
            problem = "is called before it is defined" if is_later else "does not exist"
            yield f"{call[1]}: computation %{name} {problem}"


def _scan_parameters(record: InstructionRecord, body: Computation | None) -> Iterator[str]:
    """`CreateInstruction` counts the parameters of this one callee."""
    count, parameters = len(references_of(record)), len(body.parameters) if body else 0
    if body is not None and count != parameters:
        yield f"{count} operands, but to_apply has {parameters} parameters"


_written_in_place = re.compile(
    rf"\b(?:{'|'.join(CALLING_ATTRIBUTES)})=\s*\{{[^{{}}\"=]*(?:\{{[^{{}}\"=]*)?="
).search


def _calling_attributes(text: str) -> str:
    """The attributes that name computations, and no JSON that has the same words."""
    has_text = '"' in text or "/" in text or "backend_config=" in text
    if has_text and any(f"{name}=" in text for name in CALLING_ATTRIBUTES):
        spans = split_attributes(text)
        calling = [name for name in spans if name in CALLING_ATTRIBUTES]
        values = (without_comments(text[slice(*spans[name])]) for name in calling)
        return ", ".join(map("=".join, zip(calling, values, strict=True)))
    return text
