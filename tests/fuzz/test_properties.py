"""Properties of generated modules: what is true of every module that XLA accepts."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hlo_lint
from hlo_lint.rules.findings import INTERNAL_ERROR
from hlo_lint.text.source import encode
from hlo_lint_hunt import strategies
from tests.fuzz.targets import TARGETS, result, touched_lines

CASES = int(os.environ.get("HLO_LINT_CASES", "0"))
"""Cases of each property; 0 for the seeded sample."""


TOKENS = (
    *"(){}[]\"',=%/*\n\r\t \0",
    *(
        "/*",
        "*/",
        "//",
        "ROOT ",
        "ENTRY ",
        "HloModule ",
        "f32[",
        "-1",
        "9" * 20,
        "\udcff",
        "\u202e",
    ),
    *("calls=", "metadata={", "// hlo-lint: allow ", "custom-call", "{maximal device=0}", "#0"),
)


@st.composite
def damaged_modules(draw: st.DrawFn) -> str:
    """Texts of modules with a few stretches left out, doubled, moved or replaced."""
    text = draw(strategies.modules())
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.sampled_from((0, 0, 1, 2, 10, 60))))
        stretch = text[begin:end]
        other = draw(st.sampled_from(("", stretch * 2, *TOKENS)))
        text = text[:begin] + other + text[end:]
    return text


def _sample(count: int) -> settings:
    return settings(max_examples=CASES or count, derandomize=not CASES)


@given(strategies.modules())
@_sample(60)
def test_a_module_is_read_and_comes_out_as_it_went_in(text: str) -> None:
    module = hlo_lint.parse(text)
    assert not module.problems
    assert hlo_lint.emit(module) == text


@pytest.mark.slow
@given(strategies.modules())
@_sample(60)
def test_no_rule_of_the_verifier_reports_what_xla_accepts(text: str) -> None:
    report = hlo_lint.lint(text, ["verifier", "parser-refuses", "unreadable-text", "unknown-word"])
    assert not report.findings, f"{report}\n{text}"


@pytest.mark.slow
@given(strategies.modules())
@_sample(200)
def test_xla_reads_every_module(text: str) -> None:
    _hlo = pytest.importorskip("jaxlib._hlo")
    assert _hlo.hlo_module_from_text(text)


@pytest.mark.slow
@given(strategies.modules(), st.sampled_from(("copy", "transpose")))
@_sample(40)
def test_a_fix_keeps_every_value(text: str, form: str) -> None:
    fixed = hlo_lint.fix(text, before="layout_normalization", unsafe_fixes=True, form=form)
    assert not any(finding.rule == INTERNAL_ERROR for finding in fixed.findings)
    if not fixed.edits:
        return
    assert result(fixed.text) == result(text)
    untouched = set(text.splitlines()) - touched_lines(text, fixed)
    assert untouched <= set(fixed.text.splitlines())
    again = hlo_lint.fix(fixed.text, before="layout_normalization", unsafe_fixes=True, form=form)
    assert not again.edits


@pytest.mark.slow
@given(damaged_modules(), st.sampled_from(["parse", "lint", "fix"]))
@_sample(80)
def test_damage_breaks_no_promise(text: str, target: str) -> None:
    TARGETS[target](encode(text))
