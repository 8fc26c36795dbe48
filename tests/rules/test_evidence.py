"""The evidence of each rule, asked for again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import hlo_lint
from hlo_lint.apps.jax.capture.targets import readable_part, target_of
from hlo_lint.apps.testing import write_example
from hlo_lint.apps.validation import validate
from hlo_lint.rules.base import Bad, Good, MeasuredHarm, RefusedByXla, Rule, WrongValues
from hlo_lint.rules.evidence import NO_END, Counted, PublicReport, WrittenByXla
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
ASKED = (RefusedByXla, WrittenByXla, WrongValues, Counted, MeasuredHarm, PublicReport)
CLAIMED = {(name, number) for name, number, *_ in CLAIMS}
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
def test_each_rule_shows_evidence_that_a_test_asks_for(rule: Rule) -> None:
    assert rule.evidence
    for piece in rule.evidence:
        assert str(piece).endswith(".")
        assert isinstance(piece, ASKED)


@pytest.mark.parametrize(("rule", "piece"), evidence(MeasuredHarm, PublicReport))
def test_what_was_measured_or_reported_is_found(
    rule: type[Rule], piece: MeasuredHarm | PublicReport
) -> None:
    if piece.found_in:  # else an example has it, and tests/rules/test_examples.py asks
        assert hlo_lint.lint(FIXTURES / piece.found_in, [rule], resolved=True).findings


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "piece"), evidence(MeasuredHarm))
def test_xla_reads_what_only_a_chip_showed(rule: type[Rule], piece: MeasuredHarm) -> None:
    if not piece.found_in:
        answers = [each.read([bad_examples(rule)[piece.example].source])[0] for each in oracles()]
        assert not any(isinstance(answer, Refusal) for answer in answers)


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "piece"), evidence(WrongValues))
def test_xla_computes_other_values(rule: type[Rule], piece: WrongValues, tmp_path: Path) -> None:
    example = bad_examples(rule)[piece.example]
    if (rule.name(), rule.examples.index(example)) in CLAIMED:
        return  # tests/rules/test_values.py asks
    if piece.flags:
        compile_for_gpu(with_layouts(example.source), "0.11.2", piece.flags, tmp_path)
    else:
        write_example(example, tmp_path)
    assert [found.rule for found in validate(tmp_path).report.findings] == ["values-changed"]


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "piece"), evidence(Counted))
def test_xla_counts_the_costs(rule: type[Rule], piece: Counted) -> None:
    bad = bad_examples(rule)[piece.example]
    good = [example.source for example in rule.examples if isinstance(example, Good)]
    other = "".join(bad.others.values()) if piece.other is None else good[piece.other]
    assert [_count(piece.unit, text) for text in (bad.source, other)] == [piece.bad, piece.good]


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "piece"), evidence(WrittenByXla))
def test_xla_writes_it(rule: type[Rule], piece: WrittenByXla, tmp_path: Path) -> None:
    text = (FIXTURES / piece.program).read_text("utf-8")
    assert not hlo_lint.lint(text, [rule]).findings
    compile_for_gpu(text, piece.release, piece.flags, tmp_path)
    assert hlo_lint.lint(tmp_path, [rule], resolved=True).findings


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
    needs_jaxlib(release)
    command = [sys.executable, "-m", "tests.oracle.run_hlo"]
    seconds = 8 if piece.says == NO_END else 200
    # A sort that reads past its array seldom meets memory that it may read.
    for _ in range(3):
        try:
            ran = subprocess.run(
                command, input=text, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return NO_END
        if ran.returncode == -11:
            return "SIGSEGV"
        if ran.returncode:
            break
    return ran.stderr


def _count(unit: str, text: str) -> int:
    if unit == "findings hidden":
        bare, found = re.sub("// hlo-lint: .*", "", text), hlo_lint.lint(text).findings
        shown = [finding for finding in found if finding.rule != "unused-allowance"]
        return len(hlo_lint.lint(bare).findings) - len(shown)
    if unit in ("atomic instructions", "calls out of order"):
        with TemporaryDirectory() as folder:
            compile_for_gpu(text, "0.11.2", "--xla_dump_emitter_re=.*", Path(folder))
            is_code = unit == "atomic instructions"
            ending = "ptx" if is_code else "gpu_after_optimizations.txt"
            code = "".join(file.read_text("utf-8") for file in Path(folder).glob(f"*{ending}"))
        assert code
        names = re.findall(r"\b(?:atom|red)\." if is_code else r"%(\w+) = .* custom-call\(", code)
        return len(names) if is_code else sum(a > b for a, b in combinations(names, 2))
    needs_jaxlib("0.10.2")
    hlo, runtime = import_module("jaxlib._hlo"), import_module("jaxlib._jax")
    module = hlo.hlo_module_from_text(text)
    proto = module.as_serialized_hlo_module_proto()
    if unit == "megabytes when serialized":
        return len(proto) // 10**6
    (device, *_) = import_module("jax").devices("cpu")
    if unit == "bytes accessed":
        return int(runtime.hlo_module_cost_analysis(device.client, module).get(unit, 0))
    program, devices = runtime.mlir.hlo_to_stablehlo(proto), runtime.DeviceList((device,))
    compiled = device.client.compile_and_load(program, devices, runtime.CompileOptions())
    return int(compiled.get_compiled_memory_stats().peak_memory_in_bytes)


def needs_jaxlib(release: str) -> None:
    if pytest.importorskip("jaxlib").__version__ != release:
        pytest.skip(f"no jaxlib {release}")


def compile_for_gpu(text: str, release: str, flags: str, dump: Path) -> None:
    compiler, description = _gpu(release)
    flags += f" --xla_dump_to={dump} --xla_dump_hlo_pass_re=.*"
    compiler.compile(text, description, flags, devices_of(text))


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
