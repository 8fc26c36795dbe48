"""`hlo-lint reduce`: findings in files and dumps, crashes of XLA for a GPU that is not there."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hlo_lint import lint, parse
from hlo_lint.apps.cli.main import cli
from tests.conftest import DUMPS, ROOT

RELEASES = os.environ.get("HLO_LINT_RELEASES", "")
OLD_JAX = Path(RELEASES, "hlo_lint", "jax-0.10.0", "bin", "python")
CRASH = DUMPS / "gpu-jax0.10.0" / "cublaslt_fission_crash"

needs_old_jax = pytest.mark.skipif(
    not RELEASES or not OLD_JAX.exists(), reason="no GPU compiler of jax 0.10.0: HLO_LINT_RELEASES"
)


def reduce(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["reduce", *map(str, arguments), "--isolated"])


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
    tests = re.search(r"2402 instructions to 2, .* (\d+) tests", result.output)
    assert tests is not None
    assert int(tests[1]) < 60


def test_a_finding_of_a_dump_keeps_its_stage() -> None:
    result = reduce(CRASH, "-q")
    assert result.exit_code == 0, result.output
    assert "stage backend=gpu" in result.stdout
    assert "next_pass=layout_normalization" in result.stdout or "before=" in result.stdout
    assert size(result.stdout) <= 2
    (finding,) = lint(result.stdout, ["reshape-moves-data"]).findings
    assert finding.severity.value == "error"


def test_a_finding_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "fine.hlo"
    path.write_text("HloModule m\nENTRY e {\n  ROOT p = f32[2] parameter(0)\n}\n")
    result = reduce(path, "--finding", "bad-bitcast")
    assert result.exit_code == 2
    assert "no finding bad-bitcast; there is none" in result.output
    assert "no finding to reduce" in reduce(path).output


def test_two_problems_at_once_are_refused() -> None:
    result = reduce(CRASH, "--finding", "bad-bitcast", "--xla-crashes")
    assert result.exit_code == 2
    assert "give one of" in result.output


def test_a_command_says_what_is_interesting(tmp_path: Path) -> None:
    path = tmp_path / "model.hlo"
    path.write_text(large_module(3).replace("4095", "4096"))
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


DOT = """HloModule jit_f

ENTRY %main {
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
}
"""


@pytest.mark.slow
@needs_old_jax
def test_a_crash_of_the_whole_compiler_is_reduced(tmp_path: Path) -> None:
    path = tmp_path / "program.hlo"
    path.write_text(DOT)
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
    path = tmp_path / "program.hlo"
    path.write_text(DOT)
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
