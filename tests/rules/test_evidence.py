"""The evidence of each rule, asked for again: XLA refuses, values differ, fixtures reproduce."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import hlo_lint
from hlo_lint.apps.jax.capture.targets import readable_part, target_of
from hlo_lint.apps.testing import write_example
from hlo_lint.apps.validation import validate
from hlo_lint.rules.base import Bad, Rule
from hlo_lint.rules.evidence import MeasuredHarm, PublicReport, RefusedByXla, WrongValues
from hlo_lint.rules.registry import all_rules
from hlo_lint.rules.verifier import VerifierRule
from hlo_lint.xla.compiler import XlaCompiler
from hlo_lint.xla.cpu import devices_of
from tests.conftest import FIXTURES
from tests.oracle.xla import Refusal, oracles
from tests.rules.test_values import CLAIMS

_SMALL = "HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n"
RELEASES = Path(os.environ.get("HLO_LINT_RELEASES", "no folder")) / "hlo_lint"
UNREFUSED = {
    # of which XLA has no such check
    *("alias-size", "broadcast-dimension-repeated", "collective-start-between-send-and-recv"),
    *("dynamic-size", "entry-memory", "reducer-parameters"),
    # which a module in the form of a proto does not show: XLA's own tests have them
    *("all-reduce-channel", "async-operand-count", "comparison-type", "entry-layout"),
}
"""Checks whose examples no compiler refuses."""
_END = "--xla_backend_extra_options=--end-here"
"""A flag that LLVM does not know: compilation ends before code is emitted."""


def evidence(*kinds: type) -> list[object]:
    """Each rule with each of its pieces of evidence of some kinds."""
    return [
        pytest.param(type(rule), piece, id=f"{rule.name()}-{type(piece).__name__}")
        for rule in all_rules()
        for piece in rule.evidence
        if isinstance(piece, kinds)
    ]


def bad_examples(rule: type[Rule]) -> list[Bad]:
    return [example for example in rule.examples if isinstance(example, Bad)]


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name())
def test_each_rule_shows_its_evidence(rule: Rule) -> None:
    assert rule.evidence
    assert all(str(piece).endswith(".") for piece in rule.evidence)


@pytest.mark.parametrize(("rule", "piece"), evidence(MeasuredHarm, PublicReport))
def test_what_was_measured_or_reported_is_reproduced(
    rule: type[Rule], piece: MeasuredHarm | PublicReport
) -> None:
    if piece.found_in:
        assert hlo_lint.lint(FIXTURES / piece.found_in, [rule], resolved=True).findings


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "piece"), evidence(WrongValues))
def test_the_judge_sees_other_values(rule: type[Rule], piece: WrongValues, tmp_path: Path) -> None:
    example = bad_examples(rule)[piece.example]
    if example.file:
        found = validate(write_example(example, tmp_path)).report.findings
        assert [finding.rule for finding in found] == ["values-changed"]
    else:
        claims = {(name, number) for name, number, _, _ in CLAIMS}
        assert (rule.name(), rule.examples.index(example)) in claims


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "piece"), evidence(RefusedByXla))
def test_xla_still_refuses_it(rule: type[Rule], piece: RefusedByXla) -> None:
    compiler, release = piece.by.split()
    if issubclass(rule, VerifierRule) and not piece.says:
        refusals = {check: _refusal(row.source, piece, release) for check, row in rule.rows.items()}
        assert any(refusals.values())
        assert {check for check in refusals if not refusals[check]} == refusals.keys() & UNREFUSED
        return
    text = bad_examples(rule)[piece.example].source
    ask = {"parser": _parsed, "cpu": _run, "gpu": _refusal}[compiler]
    assert piece.says in ask(text, piece, release)


def _parsed(text: str, piece: RefusedByXla, release: str) -> str:
    for oracle in oracles():
        if oracle.version == release:
            (answer,) = oracle.read([text])
            return answer.message if isinstance(answer, Refusal) else ""
    pytest.skip(f"no jaxlib {release}: HLO_LINT_ORACLES")


def _run(text: str, piece: RefusedByXla, release: str) -> str:
    pytest.importorskip("jax")
    command = [sys.executable, "-m", "tests.oracle.run_hlo"]
    ran = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return "SIGSEGV" if ran.returncode == -11 else ran.stderr


def _refusal(text: str, piece: RefusedByXla, release: str) -> str:
    """The message of XLA:GPU about a text; empty if it compiles."""
    compiler, description = _gpu(release)
    flags = {"all": "", "none": "--xla_disable_all_hlo_passes"}.get(
        piece.passes, f"--xla_enable_hlo_passes_only={piece.passes}"
    )
    if piece.passes == "hlo-verifier":
        flags += f" {_END}"
    text = text if piece.passes == "all" else with_layouts(text)
    ending = compiler.compile(text, description, flags, devices_of(text))
    is_end = ending.status == "died" and "Did you mean" in ending.message
    return "" if ending.status == "ok" or is_end else ending.message or "died"


@cache
def _gpu(release: str) -> tuple[XlaCompiler, str]:
    python = RELEASES / f"jax-{release}" / "bin" / "python"
    if not python.exists():
        pytest.skip(f"no jax {release} for GPUs: HLO_LINT_RELEASES")
    compiler, text = XlaCompiler(python, timeout=60), target_of("h200").description
    while part := readable_part(text, compiler.compile(_SMALL, text).log):
        text = part
    return compiler, text


def with_layouts(text: str) -> str:
    """The text with the entry's layouts in its header: otherwise XLA takes descending layouts."""
    module = hlo_lint.parse(text)
    header = text[text.index("HloModule") :].split("\n")[0]
    if "entry_computation_layout" in header or module.entry is None or module.entry.root is None:
        return text
    found = [each for each in module.entry.instructions if each.opcode == "parameter"]
    taken = ", ".join(
        str(each.shape) for each in sorted(found, key=lambda each: each.parameter_number or 0)
    )
    layout = f", entry_computation_layout={{({taken})->{module.entry.root.shape}}}"
    return text.replace(header, header + layout, 1)
