"""`hlo-lint reduce`: findings in files and dumps, crashes of XLA for a GPU that is not there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import Result

from hlo_lint import lint, parse
from hlo_lint.apps.reduction import finding_problem, reduce_problem
from hlo_lint.apps.settings.settings import Settings
from hlo_lint.apps.testing import write_example
from hlo_lint.rules.base import Bad, Rule
from hlo_lint.rules.registry import all_rules
from hlo_lint.text.errors import DumpError, UsageError
from tests.commands import invoke
from tests.conftest import DUMPS, ROOT, completed, new_folder, present, started, written
from tests.texts import entry

RELEASES = os.environ.get("HLO_LINT_RELEASES", "")
OLD_JAX = Path(RELEASES, "hlo_lint", "jax-0.10.0", "bin", "python")
CRASH = DUMPS / "gpu-jax0.10.0" / "cublaslt_fission_crash"

FINE = entry("  ROOT p = f32[2]{0} parameter(0)")
TEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_repro.py")

needs_old_jax = pytest.mark.skipif(
    not RELEASES or not OLD_JAX.exists(), reason="no GPU compiler of jax 0.10.0: HLO_LINT_RELEASES"
)


def reduce(*arguments: str | Path) -> Result:
    return invoke("reduce", *arguments, "--isolated")


def size(text: str) -> int:
    """The number of instructions."""
    return sum(1 for _ in parse(text).instructions())


def large_module(layers: int) -> str:
    """A model of many layers, in the middle of which a reshape has the wrong size."""
    lines = []
    for layer in range(layers):
        before = f"%x.{layer}" if layer else "%x"
        elements = 4096 if layer != layers // 2 else 4095
        lines += [
            f"  %w.{layer} = f32[64,64]{{1,0}} constant({{...}})",
            f"  %d.{layer} = f32[64,64]{{1,0}} dot({before}, %w.{layer}), "
            'lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/dot"}',
            f"  %t.{layer} = f32[64,64]{{1,0}} tanh(%d.{layer})",
            f"  %f.{layer} = f32[{elements}]{{0}} reshape(%t.{layer})",
            f"  %n.{layer} = f32[{elements}]{{0}} negate(%f.{layer})",
            f"  %x.{layer + 1} = f32[64,64]{{1,0}} reshape(%n.{layer})",
        ]
    body = "\n".join(lines)
    return (
        "HloModule jit_f, entry_computation_layout={(f32[64,64]{1,0})->f32[64,64]{1,0}}\n\n"
        f"ENTRY %main {{\n  %x = f32[64,64]{{1,0}} parameter(0)\n{body}\n"
        f"  ROOT %r = f32[64,64]{{1,0}} copy(%x.{layers})\n}}\n"
    )


def test_one_bad_reshape_of_a_large_model_is_left(tmp_path: Path) -> None:
    path, out = tmp_path / "model.hlo", tmp_path / "small.hlo"
    path.write_text(large_module(400))
    result = reduce(path, "-o", out, "--finding", "wrong-result-shape:f.200")
    assert result.exit_code == 0, result.output
    assert size(out.read_text()) == 2
    assert [each.rule for each in lint(out).findings] == ["wrong-result-shape"]
    tests = present(re.search(r"2402 instructions to 2, .* (\d+) tests", result.output))
    assert int(tests[1]) < 60


def test_a_finding_of_a_dump_keeps_its_stage() -> None:
    result = reduce(CRASH, "-q")
    assert result.exit_code == 0, result.output
    assert "stage backend=gpu" in result.stdout
    assert "next_pass=layout_normalization" in result.stdout or "before=" in result.stdout
    assert size(result.stdout) <= 2
    (finding,) = lint(result.stdout, ["reshape-moves-data"]).findings
    assert finding.severity.value == "error"


FROM_OTHER_FILES = "depends on other files|holds no HLO|no finding|spelling of the text"


@pytest.mark.slow
@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.name())
def test_bad_examples_are_reduced_or_there_is_a_reason(rule: Rule, tmp_path: Path) -> None:
    """The reduced text has the same finding, and is not larger."""
    demand = rule.precondition
    settings = Settings().overridden(before=demand.demanded_by if demand else None)
    reasons: list[str] = []
    bad = [example for example in rule.examples if isinstance(example, Bad)]
    for number, example in enumerate(bad[:2]):
        folder = new_folder(tmp_path / str(number))
        try:
            problem = finding_problem(write_example(example, folder), rule.name(), settings)
            reduction = reduce_problem(problem)
        except (UsageError, DumpError) as error:
            reasons.append(str(error))
            continue
        assert problem.test(reduction.text).interesting
        assert reduction.after.size <= reduction.before.size
    assert all(re.search(FROM_OTHER_FILES, reason) for reason in reasons), reasons


def test_a_finding_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    path = written(tmp_path / "fine.hlo", FINE)
    result = reduce(path, "--finding", "bad-bitcast")
    assert result.exit_code == 2
    assert "no finding bad-bitcast; there is none" in result.output
    assert "no finding to reduce" in reduce(path).output


def test_two_problems_at_once_are_refused() -> None:
    result = reduce(CRASH, "--finding", "bad-bitcast", "--xla-crashes")
    assert result.exit_code == 2
    assert "give one of" in result.output


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no pseudo terminals")
def test_a_terminal_shows_how_far_the_reduction_is(tmp_path: Path) -> None:
    from tests.terminal import on_terminal, program

    path, out = tmp_path / "model.hlo", tmp_path / "small.hlo"
    path.write_text(large_module(3).replace("4095", "4096"))
    # The line is drawn ten times a second: a reduction that takes less shows its first state alone.
    slow = "sh -c 'sleep 0.05; grep -q tanh $0'"
    asked = (path, "--interesting", slow, "-j", "1", "-o", out)
    command = program("reduce", *map(str, asked), "--isolated")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    seen = on_terminal(command, 100, environment)
    shown = seen.data.decode()
    assert seen.status == 0, shown
    assert re.search(r"(drop|keep|turn|move|read)[\w ]+: \d+ instructions, \d+ tests", shown)
    assert "20 instructions to 2" in shown
    quiet = on_terminal([*command, "--quiet"], 100, environment)
    assert (quiet.status, quiet.data) == (0, b"")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_reduction_that_is_killed_goes_on_from_its_state(tmp_path: Path) -> None:
    path, state, log = (tmp_path / name for name in ("model.hlo", "state.hlo", "log"))
    path.write_text(large_module(3).replace("4095", "4096"))
    script = written(tmp_path / "test.sh", f"echo tested >> {log}; sleep 0.02; grep -q tanh $1\n")
    asked = ["reduce", str(path), "--interesting", f"sh {script}", "--state", str(state), "-j", "2"]
    command = [sys.executable, "-m", "hlo_lint", *asked, "--isolated", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with started(command, stdout=subprocess.PIPE, env=environment) as process:
        deadline = time.monotonic() + 100
        while not state.exists() or size(state.read_text()) > 15:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()
    log.write_text("")
    result = reduce(*asked[1:], "-q")
    assert result.exit_code == 0, result.output
    assert size(result.stdout) == size(state.read_text()) == 2
    resumed = log.read_text().count("tested")
    log.write_text("")
    state.unlink()
    assert reduce(*asked[1:], "-q").stdout == result.stdout
    assert resumed < log.read_text().count("tested")
    state.write_text("HloModule m\n\nENTRY e {\n  ROOT p = f32[] parameter(0)\n}\n")
    assert "state.hlo does not show the problem; remove it" in reduce(*asked[1:]).stderr


def test_a_command_says_what_is_interesting(tmp_path: Path) -> None:
    path = written(tmp_path / "model.hlo", large_module(3).replace("4095", "4096"))
    result = reduce(path, "--interesting", "grep -q tanh", "-q", "-j", "2")
    assert result.exit_code == 0, result.output
    assert size(result.stdout) == 2


@pytest.mark.slow
@needs_old_jax
def test_the_crash_that_the_readme_shows_is_two_instructions() -> None:
    result = reduce(CRASH, "--xla-crashes", "--python", OLD_JAX)
    assert result.exit_code == 0, result.output
    assert "layout_normalization.cc:431" in result.stderr
    assert size(result.stdout) == 2
    assert "reshape(" in result.stdout


DOT = entry("""
  %a = f16[2,1,32,4,128] parameter(0)
  %b = f16[4,2,1,128,128] parameter(1)
  %c = f16[2,1,32,128] parameter(2)
  %s = f16[] parameter(3)
  %a1 = f16[2,1,32,4,128] tanh(%a)
  %a2 = f16[2,1,32,4,128] negate(%a1)
  %sb = f16[4,2,1,128,128] broadcast(%s), dimensions={}
  %b1 = f16[4,2,1,128,128] multiply(%b, %sb)
  %d = f16[2,1,32,128] dot(%a2, %b1), lhs_batch_dims={0,1}, lhs_contracting_dims={3,4}, \
rhs_batch_dims={1,2}, rhs_contracting_dims={0,3}
  %e = f16[2,1,32,128] add(%d, %c)
  %f = f16[2,1,32,128] cosine(%e)
  ROOT %g = (f16[2,1,32,128], f16[2,1,32,128]) tuple(%f, %c)
""")


@pytest.mark.slow
@needs_old_jax
def test_a_crash_of_the_whole_compiler_is_reduced(tmp_path: Path) -> None:
    path = written(tmp_path / "program.hlo", DOT)
    flags = "--xla_gpu_experimental_autotune_backends=CUBLASLT_FISSION"
    asked = ("--xla-crashes", "--python", str(OLD_JAX), "--message", "ReshapeIsBitcast")
    result = reduce(path, *asked, "--flags", flags)
    assert result.exit_code == 0, result.output
    assert size(result.stdout) == 3
    assert "dot(" in result.stdout
    nothing = reduce(path, *asked)
    assert nothing.exit_code == 2
    assert "jax 0.10.0 does not crash" in nothing.output


@pytest.mark.slow
@needs_old_jax
def test_flags_that_no_module_survives_are_named(tmp_path: Path) -> None:
    path = written(tmp_path / "program.hlo", DOT)
    result = reduce(path, "--xla-crashes", "--python", OLD_JAX, "--flags", "--xla_no_such_flag=1")
    assert result.exit_code == 2
    assert "does not know the flags --xla_no_such_flag" in result.output


@pytest.mark.slow
@needs_old_jax
@pytest.mark.parametrize("name", ["not_wrapped", "reduce_of_columns", "shared_computation"])
def test_deaths_of_single_passes_are_reduced(name: str) -> None:
    result = reduce(ROOT / "fixtures" / "deaths" / name, "--xla-crashes", "--python", OLD_JAX, "-q")
    assert result.exit_code == 0, result.output
    assert size(result.stdout) <= 10


SCALED = entry("""
  %a = f32[32,48]{1,0} parameter(0)
  %b = f32[48,64]{1,0} parameter(1)
  %c = f32[64]{0} parameter(2)
  %e = f32[32,48]{1,0} negate(%a)
  %d = f32[32,64]{1,0} dot(%e, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %bias = f32[32,64]{1,0} broadcast(%c), dimensions={1}
  %sum = f32[32,64]{1,0} add(%d, %bias)
  %scale = f32[] constant(0.25)
  %scales = f32[32,64]{1,0} broadcast(%scale), dimensions={}
  %scaled = f32[32,64]{1,0} multiply(%sum, %scales)
  ROOT %r = f32[32,64]{1,0} tanh(%scaled)
""")


@pytest.mark.slow
@needs_old_jax
def test_a_pass_that_changes_the_values_is_reduced(tmp_path: Path) -> None:
    """cublas-gemm-rewriter of jax 0.10.0 scales a product before its bias is added, not after."""
    path = written(tmp_path / "program.hlo", SCALED)
    asked = ("--xla-changes-values", "--python", OLD_JAX, "--passes")
    result = reduce(path, *asked, "cublas-gemm-rewriter")
    assert result.exit_code == 0, result.output
    assert "cublas-gemm-rewriter changes the values: result 0" in result.stderr
    module = parse(result.stdout)
    opcodes = Counter(each.opcode for each in module.instructions())
    del opcodes["parameter"]
    assert opcodes.keys() == {"dot", "add", "constant", "broadcast", "multiply"}
    assert size(result.stdout) == 9
    healthy = reduce(path, *asked, "layout_normalization")
    assert healthy.exit_code == 2
    assert "layout_normalization of jax 0.10.0 does not change the values" in healthy.output
    assert "needs a dump directory" in reduce(path, *asked[:-1]).output


# ---- repro


def repro(*arguments: str | Path) -> Result:
    return invoke("repro", *arguments, "--isolated")


def run_in(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    return completed(command, cwd=folder, env=environment)


@pytest.fixture(scope="module")
def finding_repro(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repro") / "out"
    result = repro(CRASH, "-o", folder)
    assert result.exit_code == 0, result.output
    return folder


def filecheck(folder: Path, module: str = "reduced.hlo") -> int:
    """The status of the command in the module's RUN line, run on a module."""
    pytest.importorskip("filecheck")
    line = (folder / "reduced.hlo").read_text().partition("\n")[0]
    check, _, match = line.removeprefix("// RUN: ").partition(" | ")
    assert match == "filecheck %s"
    python = shlex.quote(sys.executable)
    check = check.replace("hlo-lint ", f"{python} -m hlo_lint ", 1).replace("%s", module)
    check = check.replace(" python ", f" {OLD_JAX} ").replace("%t", f"of_{module}")
    return run_in(folder, "sh", "-c", f"{check} | {python} -m filecheck reduced.hlo").returncode


@pytest.mark.slow
def test_the_pytest_of_a_repro_fails_until_the_module_is_fixed(finding_repro: Path) -> None:
    broken = run_in(finding_repro, *TEST)
    assert broken.returncode == 1
    assert "this reshape moves bytes" in broken.stdout
    fixed = run_in(finding_repro, *TEST, HLO_MODULE="fixed.hlo")
    assert fixed.returncode == 0, fixed.stdout


@pytest.mark.slow
def test_the_filecheck_lines_of_a_repro_hold_for_the_broken_module(finding_repro: Path) -> None:
    assert filecheck(finding_repro) == 0
    assert filecheck(finding_repro, "fixed.hlo") == 1


def test_the_report_says_which_pass_and_which_line_of_python(finding_repro: Path) -> None:
    text = (finding_repro / "REPORT.md").read_text()
    assert "introduced by the pass `autotuner` of post-layout_assignment" in text
    assert "from `programs.py:40` in `batched_dot`" in text
    assert "--xla_gpu_experimental_autotune_backends=CUBLASLT_FISSION" in text
    assert "jax 0.10.0" in text
    assert "+  %reshape.copy" in text


def test_the_test_for_xla_runs_the_pass_on_the_module(finding_repro: Path) -> None:
    text = (finding_repro / "repro_test.cc").read_text()
    module = text.partition('R"(')[2].partition(')";')[0]
    assert not parse(module, strict=True).problems
    assert "LayoutNormalization pass;" in text
    assert '#include "xla/service/layout_normalization.h"' in text


def test_a_module_with_the_end_of_a_raw_string_gets_another_delimiter(tmp_path: Path) -> None:
    lines = """
  p = f32[2] parameter(0)
  ROOT r = (f32[2]) custom-call(p, p), custom_call_target="f(x)",
      output_to_operand_aliasing={{0}: (7, {})}"""
    path = written(tmp_path / "m.hlo", entry(lines))
    result = repro(path, "-o", tmp_path / "out", "--jax", "0.11.2")
    assert result.exit_code == 0, result.output
    assert ')hlo";' in (tmp_path / "out" / "repro_test.cc").read_text()


def test_several_findings_get_a_directory_each(tmp_path: Path) -> None:
    lines = """
  p = f32[2] parameter(0)
  a = f32[3] negate(p)
  b = f32[4] cosine(p)
  ROOT r = (f32[3], f32[4]) tuple(a, b)"""
    path = written(tmp_path / "m.hlo", entry(lines))
    rule = "wrong-result-shape"
    result = repro(path, f"{rule}:a", f"{rule}:b", "-o", tmp_path / "out", "--jax", "0.11.2")
    assert result.exit_code == 0, result.output
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == [rule, f"{rule}.2"]
    text = (tmp_path / "out" / f"{rule}.2" / "repro_test.cc").read_text()
    assert "cosine" in text
    assert "ParseAndReturnUnverifiedModule" in text


@pytest.mark.slow
@needs_old_jax
def test_the_files_of_a_crash_show_it(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    result = repro(CRASH, "--xla-crashes", "--python", OLD_JAX, "-o", folder)
    assert result.exit_code == 0, result.output
    script = run_in(folder, "sh", "run.sh", PYTHON=str(OLD_JAX))
    assert script.returncode == 1
    assert "layout_normalization.cc:431" in script.stdout
    report = (folder / "REPORT.md").read_text()
    assert "The pass `layout_normalization` ends the compilation. The message comes from" in report
    assert run_in(folder, *TEST, PYTHON=str(OLD_JAX)).returncode == 1
    fine = written(tmp_path / "fine.hlo", FINE)
    fixed = run_in(folder, *TEST, PYTHON=str(OLD_JAX), HLO_MODULE=str(fine))
    assert fixed.returncode == 0, fixed.stdout


@pytest.mark.slow
@needs_old_jax
def test_the_files_of_changed_values_show_it(tmp_path: Path) -> None:
    path, folder = tmp_path / "program.hlo", tmp_path / "out"
    path.write_text(SCALED)
    asked = ("--passes", "cublas-gemm-rewriter", "--python", OLD_JAX, "-o", folder)
    program = written(tmp_path / "program.py", "jax.jit(f)(2)\n")
    result = repro(path, "values-changed", *asked, "--program", program)
    assert result.exit_code == 0, result.output
    assert "11 instructions to 9" in result.output
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    script = run_in(folder, "sh", "run.sh", PYTHON=str(OLD_JAX), PATH=tools)
    assert "error[values-changed]" in script.stdout, script.stdout + script.stderr
    broken = run_in(folder, *TEST, PYTHON=str(OLD_JAX))
    assert broken.returncode == 1
    assert "error[values-changed]" in broken.stdout
    assert filecheck(folder) == 0
    fine = written(tmp_path / "fine.hlo", DOT)
    fixed = run_in(folder, *TEST, PYTHON=str(OLD_JAX), HLO_MODULE=str(fine))
    assert fixed.returncode == 0, fixed.stdout
    assert "RunAndCompareTwoModules" in (folder / "repro_test.cc").read_text()
    report = (folder / "REPORT.md").read_text()
    assert report.startswith("# [XLA:GPU] cublas-gemm-rewriter gives wrong results for ")
    assert "```python\njax.jit(f)(2)\n```" in report
    assert "custom-call(" in report.partition("```diff")[2].partition("```")[0]
