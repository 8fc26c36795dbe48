"""Malformed types, attributes or calls, which every release of XLA rejects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from hlo_lint.analysis.calls import calls_of
from hlo_lint.analysis.kinds import instructions_where, kinds_of, without_channel
from hlo_lint.analysis.shape_inference.types import compatible
from hlo_lint.hlo.attributes.cursor import AttributeSyntaxError
from hlo_lint.hlo.attributes.splitting import split_attributes_strictly
from hlo_lint.hlo.comments import BLANK
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.ir import CALLING_ATTRIBUTES, Computation, Module
from hlo_lint.hlo.kinds import RowKind
from hlo_lint.hlo.opcodes import demands_on
from hlo_lint.hlo.records import attributes_before_metadata
from hlo_lint.hlo.shape import ShapeSyntaxError, parse_shape, shape_or_none
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule
from hlo_lint.text.errors import nearest
from hlo_lint.text.patterns import late
from hlo_lint.text.source import Span, whole_number

_WORDS: Final = {
    "direction": "EQ NE GE GT LE LT",
    "distribution": "rng_uniform rng_normal",
    "fft_type": "FFT IFFT RFFT IRFFT",
    "kind": "kLoop kInput kOutput kCustom",
    "transpose_a": "NO_TRANSPOSE TRANSPOSE ADJOINT",
}
"""The values of attributes that are enumerations."""
_header_name = late(rf"HloModule{BLANK}[^\s,/]+", re.S).match
_scalar = late(r"((s|u|c|f|bf)\d+\w*)\[\](?:\{.*\})?").fullmatch
_is_integer = late(r"-?\d+").fullmatch
_is_real = late(r"-?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|inf|nan(?:\(0x[0-9a-fA-F]+\))?)").fullmatch
_find_heads = late(r"([\w.\-]+)\s*=").findall
_sub_callee = late(r"=%[A-Za-z_][\w.\-]*(?=,|\Z)").sub


class MalformedText(Rule):
    """A type, attribute or call that every release of XLA rejects.

    ## Why
    XLA's parser rejects the whole file if a type or an attribute's value is malformed, if an
    attribute or a computation is missing or duplicated, or if a signature's type differs from that
    of the root. Other rules skip text that they cannot read.

    ## Where
    The rule needs no jaxlib and finds all mistakes at once. `hlo-lint check --strict` runs XLA's
    own parser, which checks more: elements of constant arrays, names that are keywords, missing
    blanks.
    """

    subsumes = frozenset({"verifier", "unreadable-text"})
    handwritten_only = True
    evidence = (
        RefusedByXla("attribute dimensions is expected but not seen", by="parser 0.12.0.1"),
    )
    examples = (
        Bad.entry("ROOT t = f32[3,8]{1,0} transpose(f32[8,3]{1,0} p)  // error"),
        Bad.entry("""
            p = f32[8,]{0} parameter(0)  // error
            ROOT c = pred[8]{0} compare(p, p), direction=LESS  // error
        """),
        Bad("""
            HloModule m

            ENTRY e (p: f32[8]) -> f32[4] {  // error
              p = f32[8]{0} parameter(0)
              ROOT c = f32[8]{0} call(p), to_apply=nothing  // error
            }
        """),
        Good.entry("ROOT t = f32[3,8]{1,0} transpose(f32[8,3]{1,0} p), dimensions={1,0}"),
    )

    def check(self, module: Module) -> Findings:
        """The first mistake of the header, of each computation and of each instruction."""
        if module.header:
            if mistake := _header_problem(module.header):
                start, (message, word, *notes) = module.text.find(module.header), mistake
                place = module.header.rfind(word) if word else -1
                span = _line(module, start)
                if place > 0:
                    place += module.start + start
                    span = Span(place, place + len(word))
                yield Finding(span, message, tuple(notes))
            yield from _in_computations(module)
        for opcode in kinds_of(module):
            for instruction in instructions_where(module, opcode, _is_malformed):
                attributes = attributes_before_metadata(instruction.attributes_text)
                mistake = _problem(opcode, instruction.type_text, attributes)
                literal = _literal_problem(instruction.type_text, instruction.operands_text)
                message, word, *notes = mistake or (literal, "")
                yield Finding(instruction, message, tuple(notes), word=word)


_Problem = tuple[str, ...]
"""A message, the word of the text to underline, which may be empty, and notes."""


def _line(module: Module, offset: int) -> Span:
    """The span from an offset in a module's text to the end of its line."""
    end = module.text.find("\n", offset)
    return Span(module.start + offset, module.start + (end if end > 0 else len(module.text)))


def _is_malformed(kind: RowKind) -> bool:
    opcode, type_text, attributes, read = kind
    literal = read[0] if opcode == "constant" and read else None
    if "=%" in attributes:  # a module has hundreds of fusions that differ only in their callee
        attributes = _sub_callee("=%f", attributes)
    return bool(
        _problem(opcode, type_text, without_channel(attributes))
        or (literal and _literal_problem(type_text, literal))
    )


def _problem(opcode: str, type_text: str, attributes: str) -> _Problem:
    """The first mistake in an instruction; empty if it is well-formed."""
    try:
        if type_text:
            parse_shape(type_text)
    except ShapeSyntaxError as error:
        return f"{type_text}: {error.message}", type_text
    return _attribute_problem(opcode, bool(type_text), attributes)


@lru_cache(maxsize=1 << 15)
def _attribute_problem(opcode: str, has_type: bool, attributes: str) -> _Problem:
    """The first mistake in the attributes of an instruction, or a message on a missing type."""
    demands = demands_on(opcode)
    if demands is None:
        return ()
    if demands.has_free_type and not has_type:
        return f"{opcode} needs a type: its operands do not determine it", opcode
    try:
        spans = split_attributes_strictly(attributes)
    except AttributeSyntaxError as error:
        return error.message, ""
    missing = [name for name in demands.required if name not in spans]
    wrong = [name for name in spans if name not in demands.allowed and _is_known(name)]
    if missing:
        return f"{opcode} needs the attribute {' and '.join(missing)}", opcode
    if wrong:
        return f"{opcode} has no attribute {wrong[0]}", wrong[0]
    return _value_problem(attributes, spans)


def _literal_problem(type_text: str, text: str) -> str:
    """The mistake in the number of a scalar constant; empty for other constants."""
    scalar = _scalar(type_text)
    # A complex number is a pair, and a comment may stand around a number.
    if scalar is None or scalar[1] not in BITS or scalar[2] == "c" or "/" in text:
        return ""
    prefix, bits, number = scalar[2], BITS[scalar[1]], whole_number(text.strip())
    if prefix in ("f", "bf"):
        return "" if _is_real(text.strip()) else f"expected a number, got {text}"
    if number is None:
        return "" if _is_integer(text.strip()) else f"expected an integer, got {text}"
    low, high = (-1 << bits - 1, (1 << bits - 1) - 1) if prefix == "s" else (0, (1 << bits) - 1)
    fits = low <= number <= high or bits == 64
    return "" if fits else f"{number} is out of range for {prefix}{bits}: {low} to {high}"


def _is_known(name: str) -> bool:
    """True for the name of an attribute."""
    from hlo_lint.hlo.attributes.reading import ATTRIBUTE_NAMES

    return name in ATTRIBUTE_NAMES


def _value_problem(attributes: str, spans: Mapping[str, tuple[int, int]]) -> _Problem:
    if not attributes:
        return ()
    from hlo_lint.hlo.attributes.reading import ANY_TEXT, read_attribute

    last = 0
    for name, (start, end) in [*spans.items(), ("", (len(attributes), len(attributes)))]:
        heads = _find_heads(attributes[last:start])
        # XLA's comment `/*index=5*/` looks like an attribute.
        if len(heads) > bool(name) and "/" not in attributes[last:start]:
            return f"duplicate attribute {heads[0]}", heads[0]
        last, value = end, attributes[start:end]
        try:
            is_callee = "=" in value and name in CALLING_ATTRIBUTES  # written inline
            if name and name not in ANY_TEXT and not is_callee:
                read_attribute(name, value)
        except AttributeSyntaxError as error:
            # Imported here: it is slow, and most values can be read.
            from hlo_lint.hlo.attributes.devices import NOT_A_PERMUTATION

            if error.message != NOT_A_PERMUTATION:  # XLA accepts it
                return f"{name}: {error.message}", name
        words = _WORDS.get(name, value).split()
        if name in _WORDS and value not in words:
            return f"unknown {name}: {value}", value, nearest(value, frozenset(words))
    return ()


def _header_problem(header: str) -> _Problem:
    """The first mistake of a header; empty if it is well-formed."""
    name = _header_name(header)
    if name is None:
        return "a module needs a name", ""
    attributes = header[name.end() :]
    try:
        spans = split_attributes_strictly(attributes)
    except AttributeSyntaxError as error:
        return error.message, ""
    unknown = [name for name in spans if not _is_known(name)]
    if unknown:
        return f"unknown attribute: {unknown[0]}", unknown[0]
    return _value_problem(attributes, spans)


def _in_computations(module: Module) -> Findings:
    """Mistakes in computations, and calls of computations that are missing or defined later."""
    if not module.computations and not module.parse_errors:
        start = module.text.find(module.header)
        yield Finding(_line(module, start), "a module needs a computation")
    inline = {body.name for body in module.computations if _is_inline(body)}
    above: set[str] = set()
    has_entry = False
    for number, computation in enumerate(module.computations):
        if not _is_inline(computation):
            problem = _signature_problem(computation)
            if not computation.rows and not computation.parse_errors:
                problem = f"%{computation.name} has no instructions"
            elif computation.name in above:
                problem = f"computation already exists: %{computation.name}"
            elif computation.is_entry and has_entry:
                problem = "expected only one ENTRY"
            if problem:
                yield Finding(_line(module, module.offset(number)), problem)
        for position, names in calls_of(computation).items():
            for name in names:
                if name not in above and name not in inline:
                    is_later = module.computation(name) is not None
                    state = "is called before it is defined" if is_later else "does not exist"
                    yield Finding(
                        computation.at(position), f"computation %{name} {state}", word=name
                    )
        if not _is_inline(computation):
            above.add(computation.name)
        has_entry = has_entry or computation.is_entry


def _is_inline(computation: Computation) -> bool:
    """True if a computation is written inside an attribute."""
    return computation.is_irregular and computation.text.startswith("{")


def _signature_problem(computation: Computation) -> str:
    _, arrow, result = computation.signature.rpartition("->")
    root = computation.root
    if not arrow or root is None:
        return ""
    declared, actual = shape_or_none(result.strip()), root.shape_or_none
    if declared is None:
        return f"{result.strip()} is not a shape"
    if actual is None or compatible(declared, actual):
        return ""
    return f"the signature's result is {declared}, but the root %{root.name} is {actual}"
