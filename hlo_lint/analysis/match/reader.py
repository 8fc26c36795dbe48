"""Patterns from command-line text: `reshape(custom_call())`. The text is not evaluated."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias, cast

from hlo_lint.analysis.match.pattern import (
    ArrayPattern,
    Attribute,
    Pattern,
    any_,
    array,
    function_of,
    is_function,
    op,
    opcode,
)
from hlo_lint.hlo.grammar import grammar_parser, offset_of, terminals, trees
from hlo_lint.hlo.opcodes import OPCODES
from hlo_lint.hlo.shape import ShapeSyntaxError
from hlo_lint.text.errors import UsageError, nearest
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from lark import Token, Tree

MAX_DEPTH: Final = 100
"""Patterns nest no deeper than this."""
MODIFIERS: Final = ("named", "any_order", "one_user", "attr", "shape")
_WORDS: Final = {"true": True, "True": True, "false": False, "False": False, "None": None}
_escape = re.compile(r"\\(.)", re.S)

_Value: TypeAlias = "Pattern | ArrayPattern | Attribute | None"


def read_pattern(text: str) -> Pattern:
    """The pattern that `text` spells, with or without `m.` in front of functions.

    >>> read_pattern('add(multiply("product"), any("bias")).any_order()')
    m.add(m.multiply("product"), m.any("bias")).any_order()

    Raises:
        UsageError: for a text that is not a pattern, with the position and the expectation.
    """
    from lark import UnexpectedInput

    if max(text.count("("), text.count("[")) > MAX_DEPTH:
        raise UsageError(f"a pattern has at most {MAX_DEPTH} pairs of brackets")
    try:
        tree = grammar_parser("pattern").parse(text)
    except UnexpectedInput as error:
        _refuse("expected a pattern like reshape(custom_call())", text, offset_of(error, text))
    pattern = _chain(trees(tree)[0], text)
    if isinstance(pattern, ArrayPattern):
        _refuse("array(…) describes a shape; a pattern begins with an opcode", text, 0)
    return pattern


def _refuse(message: str, text: str, offset: int) -> NoReturn:
    line = shown(text.replace("\n", " "))
    place = len(shown(text[:offset].replace("\n", " ")))
    raise UsageError(f"pattern, character {offset + 1}: {message}\n{line}\n{' ' * place}^")


def _chain(tree: Tree[Token], text: str) -> Pattern | ArrayPattern:
    function, *modifiers = trees(tree)
    pattern = _function(function, text)
    for modifier in modifiers:
        (name,) = terminals(modifier)
        if isinstance(pattern, ArrayPattern):
            _refuse("array(…) has no modifiers", text, _start(modifier))
        pattern = _modified(pattern, str(name), modifier, text)
    return pattern


def _function(tree: Tree[Token], text: str) -> Pattern | ArrayPattern:
    name = str(terminals(tree)[0])
    positional, keywords = _arguments(tree, text)
    start = _start(tree)
    try:
        if name == "array":
            return array(*positional, **keywords)  # type: ignore[arg-type]
        if keywords:
            _refuse(f"{name}(…) has no parameter {next(iter(keywords))}=", text, start)
        arguments = cast("list[str | Pattern]", positional)
        if name == "any":
            return any_(*arguments)
        if name == "op":
            return op(*arguments)
        spelled = name.removesuffix("_").replace("_", "-")
        if not is_function(function_of(spelled)):
            otherwise = f'op("{spelled}") matches it anyway'
            hint = nearest(spelled, [*OPCODES, "any", "op"], otherwise, cutoff=0.6)
            _refuse(f"no opcode is named {spelled}: {hint}", text, start)
        return opcode(function_of(spelled))(*arguments)
    except TypeError as error:
        _refuse(_message(error), text, start)


def _modified(pattern: Pattern, name: str, tree: Tree[Token], text: str) -> Pattern:
    positional, keywords = _arguments(tree, text)
    start = _start(tree)
    if name == "where":
        _refuse("where(…) takes a function of Python: it is for hlo_lint.match", text, start)
    if name not in MODIFIERS:
        _refuse(f"no modifier is named {name}; there are {', '.join(MODIFIERS)}", text, start)
    try:
        if name == "attr" and not keywords:
            raise TypeError("attr wants attributes, like attr(index=0)")
        modified: Pattern = getattr(pattern, name)(*positional, **keywords)
    except TypeError as error:
        _refuse(_message(error), text, start)
    except ShapeSyntaxError as error:
        _refuse(f"invalid shape: {error.message}", text, start)
    return modified


def _message(error: TypeError) -> str:
    """Python's message without the names of classes in it."""
    return re.sub(r"^[\w.<>]+\.", "", str(error))


def _arguments(tree: Tree[Token], text: str) -> tuple[list[_Value], dict[str, _Value]]:
    positional: list[_Value] = []
    keywords: dict[str, _Value] = {}
    for child in trees(tree):
        if str(child.data) != "keyword":
            positional.append(_value(child, text))
            continue
        name = str(terminals(child)[0])
        if name in keywords:
            _refuse(f"{name}= is there twice", text, _start(child))
        keywords[name] = _value(trees(child)[0], text)
    return positional, keywords


def _value(tree: Tree[Token], text: str) -> _Value:
    rule = str(tree.data)
    if rule == "chain":
        return _chain(tree, text)
    if rule == "tuple":
        return cast("Attribute", tuple(_value(child, text) for child in trees(tree)))
    (token,) = terminals(tree)
    match rule:
        case "string":
            return _escape.sub(lambda escape: {"n": "\n"}.get(escape[1], escape[1]), token[1:-1])
        case "integer" if len(token) < 19:
            return int(token)
        case "float":
            return float(token)
        case "word" if token in _WORDS:
            return _WORDS[str(token)]
        case "word":
            _refuse(f'expected ( after {token}, or "{token}" in quotes', text, _start(tree))
        case _:
            _refuse("this number is too big", text, _start(tree))


def _start(tree: Tree[Token]) -> int:
    start: int = tree.meta.start_pos
    return start
