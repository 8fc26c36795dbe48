"""`hlo_lint.apps.testing` refuses a rule that does not do what its examples say."""

from __future__ import annotations

from typing import ClassVar

import pytest

from hlo_lint import Bad, Computation, Finding, Findings, Fix, Good, Instruction, Module, Rule
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.apps.testing import check_example, check_examples, check_page
from tests.texts import entry

NEGATES = entry("""
  p = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(p)  // error
""")
COPIES = NEGATES.replace("negate(p)  // error", "copy(p)")


class SomeNegation(Rule):
    """A negation.

    ## Why
    For the tests.

    ## Fix
    A copy.
    """

    examples: ClassVar[tuple[Bad | Good, ...]] = (Bad(NEGATES, fixed=COPIES), Good(COPIES))

    def check(self, computation: Computation) -> Findings:
        for found in computation.with_opcode("negate"):
            yield Finding(found, "a negation")

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        rewrite = Rewrite(module)
        copy = rewrite.insert_before(instruction, "copy", instruction.shape, instruction.operands)
        rewrite.replace(instruction, copy)
        return rewrite.fix("copy")


def test_a_rule_that_does_what_it_says_passes() -> None:
    check_examples(SomeNegation)


@pytest.mark.parametrize(
    ("example", "said"),
    [
        (Good(NEGATES.replace("  // error", "")), r"marks the lines none; found:\n  5: a negation"),
        (Bad(COPIES.replace("copy(p)", "copy(p)  // error")), "marks the lines 5; found: none"),
        (Bad(COPIES), "bad example 1 .HloModule m. marks no line"),
        (Bad(NEGATES, fixed=NEGATES), r"(?s)another text.*-  ROOT n = .*negate.*\+  ROOT n = "),
    ],
)
def test_an_example_that_is_not_so_is_named(example: Bad | Good, said: str) -> None:
    class Changed(SomeNegation):
        __doc__ = SomeNegation.__doc__
        examples = (example,)

    with pytest.raises(AssertionError, match=said):
        check_example(Changed, example)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("A negation.", "A negation", "ends with no stop"),
        ("A negation.", "A negation. Of a number.", "is not one sentence"),
        ("## Why", "", "has no `## Why`"),
        ("## Fix", "", "has no `## Fix`"),
    ],
)
def test_a_page_that_is_not_whole_says_what_is_missing(old: str, new: str, said: str) -> None:
    class Changed(SomeNegation):
        __doc__ = (SomeNegation.__doc__ or "").replace(old, new)

    with pytest.raises(AssertionError, match=said):
        check_page(Changed)


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (SomeNegation.examples[:1], "there is no Good example"),
        (SomeNegation.examples[1:], "there is no Bad example"),
        ((Bad(NEGATES), Good(COPIES)), "no example shows a fix"),
    ],
)
def test_a_page_shows_what_it_speaks_of(kept: tuple[Bad | Good, ...], said: str) -> None:
    class Changed(SomeNegation):
        __doc__ = SomeNegation.__doc__
        examples = kept

    with pytest.raises(AssertionError, match=said):
        check_page(Changed)


def test_typed_operands_are_the_parameters_of_an_entry() -> None:
    example = Good.entry("n = f32[8] negate(f32[8] p)\nROOT t = (f32[8], f32[]) tuple(n, f32[] q)")
    assert example.source.splitlines()[3:-1] == [
        "  p = f32[8] parameter(0)", "  q = f32[] parameter(1)", "  n = f32[8] negate(p)",
        "  ROOT t = (f32[8], f32[]) tuple(n, q)",
    ]  # fmt: skip


def test_the_header_and_a_continued_line_may_stand_in_an_entry() -> None:
    text = "// m\nHloModule m, num_partitions=2\nn = f32[8] negate(f32[8] p),\n    metadata={}"
    assert Good.entry(text).source.splitlines() == [
        *("// m", "HloModule m, num_partitions=2", "", "ENTRY e {"),
        *("  p = f32[8] parameter(0)", "  n = f32[8] negate(p),", "      metadata={}", "}"),
    ]


def test_a_computation_of_one_instruction_may_be_a_line() -> None:
    text = "add { ROOT s = f32[] add(f32[] a, f32[] b) }\n\nENTRY e { ROOT p = f32[] parameter(0) }"
    assert Good.entry(text).source.splitlines()[2:6] == [
        *("add {", "  a = f32[] parameter(0)", "  b = f32[] parameter(1)"),
        "  ROOT s = f32[] add(a, b)",
    ]
