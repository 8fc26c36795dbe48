"""Literals of constants."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.comments import without_comments
from hlo_lint.hlo.dtypes import BITS
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.rules.base import Good
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.text.patterns import late


class BadConstant(VerifierRule):
    """A constant whose literal does not have a value for each element.

    ## Why
    XLA's parser rejects such a text, and its verifier fails on a constant without a literal. The
    rule skips constants of more than 1024 elements, and literals that the dump elided.
    """

    messages = ("Constant is required to have a valid literal",)

    table = """
        constant-literal: ShapeVerifier::HandleConstant
          constant: a literal of its shape
            ROOT c = f32[3] constant({1, 2})  // error
    """
    examples = (
        Good.entry("""
            a = f32[2,2] constant({ { 1, 2 }, { 3, nan } })
            b = c64[2] constant({(0, 1), (1, 0)})
            ROOT c = f32[3] constant({...})
        """),
    )

    @on("constant", local=True)
    def literal(self, scope: Scope, constant: Instruction) -> Iterator[Violation]:
        """A constant has a value for each element."""
        text = constant.operands_text
        if constant.type_text.endswith("[]") and text.isalnum():
            return
        shape = constant.shape_or_none
        # XLA prints a large literal as `{...}`.
        if not isinstance(shape, ArrayShape) or "..." in text:
            return
        if not text.strip():
            if prod(shape.dims):
                yield Violation("constant-literal", constant, f"a constant of {shape} has no value")
            return
        if shape.elements > _MAX_ELEMENTS or shape.dtype not in BITS:
            return
        values = len(_find_values(without_comments(text)))
        if values == 1 < shape.elements and "{" not in text:
            # XLA's parser assigns a value without braces to the first element of an array.
            if _is_zero(text):
                return
            message = f"a constant of {shape} has a single value: all other elements are 0"
            yield Violation("constant-literal", constant, message, is_warning=True)
        elif values != shape.elements:
            message = f"a constant of {shape} needs {shape.elements} values, got {values}"
            yield Violation("constant-literal", constant, message)


_MAX_ELEMENTS: Final = 1 << 10
"""The largest constant whose values are counted, in elements."""
_is_zero = late(r"\s*(?:[-+]?[0.]*0[0.]*|false)\s*").fullmatch
_find_values = late(r"\([^()]*\)|[^\s{},()]+(?:\([^()]*\))?").findall
