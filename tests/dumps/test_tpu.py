"""Dumps of XLA:TPU: their names, their numbers, and rules that are not for them."""

from __future__ import annotations

import shutil
from pathlib import Path

import hlo_lint
from hlo_lint.dumps.crash import find_crash_site
from hlo_lint.dumps.directory import open_dump
from hlo_lint.dumps.names import parse_name
from hlo_lint.engine.stages import Stages
from tests.conftest import DUMPS, present

RENUMBERED = DUMPS / "tpu-jax0.10.2" / "renumbered"


def test_the_number_of_a_change_list_belongs_to_the_name_of_the_module() -> None:
    for name in ("after_codegen.txt", "0001.a.after_b.before_c.txt", "tpu_comp_env.txt"):
        parts = present(parse_name(f"module_0003.jit_f.cl_12.{name}"))
        assert (parts.module, parts.backend) == ("jit_f.cl_12", "tpu")


def test_a_renumbered_module_is_one_pipeline_in_the_order_of_the_run() -> None:
    (compilation,) = open_dump(RENUMBERED).compilations
    assert {path.name[:11] for path in RENUMBERED.glob("*.txt")} == {"module_0000", "module_0004"}
    assert compilation.title.startswith("module_0000.jit_add_noise")
    names = [dump.name for dump in compilation.steps if dump.name]
    assert [name.step for name in names] == list(range(len(names)))
    (rewritten,) = [n.step for n in names if n.step and n.after == "xprecision-rewriter"]
    assert names[rewritten - 1].pipeline == "X64_elimination"
    assert compilation.final is not None
    assert not compilation.crashed
    assert compilation.artefact("-buffer-assignment.txt") is not None


def test_the_pass_list_fits_and_the_stage_is_that_of_tpu() -> None:
    (compilation,) = open_dump(RENUMBERED).compilations
    assert [release.name for release in compilation.releases] == ["tpu-jax0.10.2"]
    assert compilation.is_of_known_release
    final = present(compilation.final)
    stage = Stages(compilation).of(final, final.module)
    assert (stage.backend, stage.mixed_precision, stage.layouts) == ("tpu", True, True)
    assert hlo_lint.lint(RENUMBERED, resolved=True).findings == ()


RESHAPE = """HloModule jit_f, entry_computation_layout={(f32[8,3]{1,0:T(8,128)})->f32[24]{0:T(256)}}

ENTRY %e (p: f32[8,3]) -> f32[24] {
  %p = f32[8,3]{1,0:T(8,128)} parameter(0)
  %t = f32[3,8]{0,1:T(8,128)} transpose(%p), dimensions={1,0}
  ROOT %r = f32[24]{0:T(256)} reshape(%t)
}
"""


def test_a_compilation_that_died_is_not_blamed_on_what_only_gpus_demand(tmp_path: Path) -> None:
    name = "module_0000.jit_f.cl_1"
    (tmp_path / f"{name}.before_optimizations.txt").write_text(RESHAPE)
    last = f"{name}.0026.xla-partitioner.after_pipeline-start.before_dce.txt"
    (tmp_path / last).write_text(RESHAPE)
    (found,) = hlo_lint.lint(tmp_path).findings
    assert (found.rule, found.severity.value) == ("compilation-died", "warning")
    assert found.notes[0].startswith("next came dce of xla-partitioner")
    # A loose text with tiles owes no pass of a GPU anything.
    assert hlo_lint.lint(RESHAPE).findings == ()


def test_of_an_unknown_release_the_next_pass_is_the_one_that_died(tmp_path: Path) -> None:
    copy = tmp_path / "dump"
    shutil.copytree(DUMPS / "gpu-jax0.10.0" / "no_reshape_decomposer_crash", copy)
    for path in copy.iterdir():
        if ".autotuner" in path.name or path.name.endswith(".debug_options"):
            path.unlink()
    name = "module_0001.jit_transpose_and_flatten"
    (copy / f"{name}.debug_options").write_text('xla_dump_hlo_pass_re: ".+"\n')
    last = f"{name}.0999.optimization.after_rng-expander.before_splitk-rewriter.txt"
    first, *_ = sorted(copy.glob("*.0000.*"))
    shutil.copy(first, copy / last)
    for number in range(3):  # passes in an order that no known release has
        wrong = f"{name}.{900 + number}.optimization.after_dot_decomposer.before_"
        wrong += ("rng-expander", "batchnorm_expander", "call-inliner")[number]
        shutil.copy(first, copy / f"{wrong}.txt".replace(".90", ".090"))
    (compilation,) = [each for each in open_dump(copy) if not each.is_helper]
    site = find_crash_site(compilation)
    assert site.suspects == (("optimization", "splitk-rewriter"),)
    assert site.is_complete
    (copy / last).rename(copy / last.replace("splitk-rewriter", "pipeline-end"))
    (compilation,) = [each for each in open_dump(copy) if not each.is_helper]
    site = find_crash_site(compilation)
    assert site.suspects == (("optimization", "hlo-verifier"),)
    assert not site.is_complete
