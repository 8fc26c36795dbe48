"""Cycles of operands and of calls: what is read of them, and what each command says."""

from __future__ import annotations

import pytest

from hlo_lint import HloSyntaxError, fix, lint, parse
from hlo_lint.analysis.cycles import cycles_of, refuse_cycles
from hlo_lint.xla.parser import XlaParser
from tests.conftest import present

ENTRY = "HloModule m\n\nENTRY e {{\n  p = f32[8]{{0}} parameter(0)\n  {}\n}}\n"
CALLS = """\
HloModule m

f {{ q = f32[8]{{0}} parameter(0) ROOT d = f32[8]{{0}} call(q), to_apply={} }}
g {{ q = f32[8]{{0}} parameter(0) ROOT d = f32[8]{{0}} call(q), to_apply={} }}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  ROOT c = f32[8]{{0}} call(p), to_apply=g
}}
"""
HEALTHY = ENTRY.format("ROOT t = (f32[8]{0}) tuple(p)")
CYCLES = {
    ENTRY.format("ROOT t = (f32[8]{0}, f32[8]{0}) tuple(p, t)"): ["t"],
    ENTRY.format("a = f32[8]{0} add(p, b)\n  ROOT b = f32[8]{0} negate(a)"): ["a"],
    ENTRY.format("a = (f32[8]{0}) tuple(a#0)\n  ROOT b = (f32[8]{0}) copy(a)"): ["a"],
    CALLS.format("f", "f"): ["d"],
    CALLS.format("g", "f"): ["d", "d"],
    CALLS.format("e", "f"): ["d", "d", "c"],
}
SOUND = (
    HEALTHY,
    ENTRY.format("a = f32[8]{0} add(p, b)\n  b = f32[8]{0} negate(p)\n  ROOT c = copy(a)"),
    ENTRY.format("a = f32[8]{0} add(p, nothing)\n  ROOT a = f32[8]{0} add(a, p)"),
    CALLS.format("h", "f"),
)


@pytest.mark.parametrize("text", CYCLES)
def test_a_cycle_is_found_and_nothing_else_is_looked_at(text: str) -> None:
    module = parse(text)
    cycles = present(cycles_of(module))
    assert [found.name for found in (*cycles.operands, *cycles.calls)] == CYCLES[text]
    assert module.file.text == text
    report = lint(text)
    assert {finding.rule for finding in report.findings} <= {"dependency-cycle", "malformed-text"}
    assert [entry.reason for entry in report.skipped] == [
        "it has a cycle: only rules about the form of the text checked it"
    ]
    assert fix(text).text == text


@pytest.mark.parametrize("text", SOUND)
def test_names_below_a_reader_are_no_cycle(text: str) -> None:
    module = parse(text)
    assert cycles_of(module) is None
    assert not lint(text, select=["dependency-cycle"]).findings


def test_a_reference_that_closes_a_cycle_names_nothing() -> None:
    text = ENTRY.format("a = add(p, b)\n  b = negate(a)\n  c = copy(b)\n  ROOT d = add(c, p)")
    entry = parse(text).entry_computation
    names = [instruction.operand_names for instruction in entry]
    assert names == [(), ("p", ""), ("a",), ("b",), ("c", "p")]


def test_a_long_chain_and_a_large_cycle_take_linear_time() -> None:
    count = 20_000
    chain = "\n  ".join(f"x{at} = f32[8] copy(x{at + 1})" for at in range(count))
    assert cycles_of(parse(ENTRY.format(f"{chain}\n  x{count} = f32[8] copy(p)"))) is None
    cycles = present(cycles_of(parse(ENTRY.format(f"{chain}\n  x{count} = f32[8] copy(x0)"))))
    assert len(cycles.operands) == count


@pytest.mark.parametrize("text", CYCLES)
def test_xla_refuses_it(text: str) -> None:
    with XlaParser() as parser:
        assert "does not exist" in present(parser.refusal(text)).message


def test_a_module_with_a_cycle_is_refused_by_who_cannot_look_at_it() -> None:
    refuse_cycles(parse(HEALTHY))
    with pytest.raises(HloSyntaxError, match="%t is on a cycle"):
        refuse_cycles(parse(next(iter(CYCLES))))
