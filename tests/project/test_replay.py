"""The modules of a commit's tests, as `benchmarks/replay.py` reads them from a diff."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from benchmarks.replay import FLAGS, Build, around, passes_of, platform_of
from benchmarks.replay_texts import Change, texts_of
from hlo_lint.xla.environments import Platform
from tests.conftest import written
from tests.texts import entry

_DIFF = """Fix the simplifier.

diff --git a/xla/service/algebraic_simplifier.cc b/xla/service/algebraic_simplifier.cc
--- a/xla/service/algebraic_simplifier.cc
+++ b/xla/service/algebraic_simplifier.cc
@@ -1,2 +1,2 @@ Status Handle()
-  return old;
+  return fixed;
diff --git a/xla/service/algebraic_simplifier_test.cc b/xla/service/algebraic_simplifier_test.cc
--- a/xla/service/algebraic_simplifier_test.cc
+++ b/xla/service/algebraic_simplifier_test.cc
@@ -10,6 +10,30 @@ TEST_F(SimplifierTest, Before) {
 TEST_F(SimplifierTest, Untouched) {
   const char* hlo = R"(
   ENTRY e { ROOT a = f32[2] parameter(0) }
   )";
 }
+TEST_F(SimplifierTest, Filled) {
+  constexpr absl::string_view kText = R"(
+  HloModule m
+  ENTRY e {
+    a = $0[2] parameter(0)
+    ROOT b = $0[2] add(a, a), sharding={devices=[2]<=[2]}
+  }
+  )";
+  for (auto type : types) Parse(absl::Substitute(kText, "f32"));
+  Parse(absl::Substitute(kText, "s32"));
+  debug_options.set_xla_gpu_enable_fast_min_max(true);
+  const char* expected = R"(
+  CHECK: ROOT b = f32[2] add(a, a)
+  )";
+}
+
+TEST_F(SimplifierTest, CutOff) {
+  const char* hlo = R"(
+  HloModule cut
"""
_CHANGE = Change.of(_DIFF)


def test_a_test_that_is_added_gives_its_modules_with_the_placeholders_filled() -> None:
    texts = texts_of(_CHANGE)
    assert [text.test for text in texts] == ["SimplifierTest.Filled"] * 2
    assert all(text.is_new for text in texts)
    assert ["ROOT b = f32[2]" in text.text for text in texts] == [True, False]
    assert ["ROOT b = s32[2]" in text.text for text in texts] == [False, True]
    # A module is for as many devices as its shardings name; debug options are flags.
    assert all("num_partitions=2" in text.text.splitlines()[0] for text in texts)
    assert texts[0].flags == {"xla_gpu_enable_fast_min_max": "true"}


def test_a_module_of_a_test_that_is_only_changed_is_not_new() -> None:
    change = Change.of(_DIFF.replace('+  constexpr absl::string_view kText = R"(', ' kText = R"('))
    assert not texts_of(change)[0].is_new


def test_a_commit_names_its_passes_by_its_files() -> None:
    assert passes_of(_CHANGE) == ["algsimp"]
    moved = Change.of(_DIFF.replace("algebraic_simplifier", "double_buffer_loop_unrolling"))
    (name,) = passes_of(moved)
    assert FLAGS[name]["xla_gpu_enable_while_loop_double_buffering"] == "true"


def test_a_pass_of_two_backends_runs_for_a_gpu() -> None:
    text = texts_of(_CHANGE)[0]
    assert platform_of(text, ["algsimp"]) is Platform.GPU
    assert platform_of(text, ["small-while-loop-hoisting"]) is Platform.CPU


def test_the_releases_of_a_commit_are_the_last_without_it_and_the_first_that_surely_has_it() -> (
    None
):
    assert around(date(2026, 5, 1)) == ("0.10.0", "0.10.2")
    assert around(date(2020, 1, 1))[0] == ""
    assert around(date(2026, 10, 20)) == ("0.12.0", "")


def test_a_text_that_a_hunk_cuts_off_is_used_where_its_computations_are_whole() -> None:
    cut = """diff --git a/xla/some_test.cc b/xla/some_test.cc
@@ -10,6 +10,30 @@ TEST_F(SomeTest, Cut) {
   a = f32[] parameter(0)
 }
 ENTRY e {
+  p = s8[8] parameter(0)
   z = s8[] constant(0)
   ROOT r = s8[] reduce(p, z), dimensions={0}, to_apply=add
 })";
"""
    (text,) = texts_of(Change.of(cut))
    assert text.test == "SomeTest.Cut"
    assert "ROOT result = s8[] add(lhs, rhs)" in text.text


def test_hlo_opt_of_a_build_gives_the_dump_of_passes_alone(tmp_path: Path) -> None:
    tool = written(tmp_path / "hlo-opt", '#!/bin/sh\nsed "s/add/$(echo $2 | sed s/.*=//)/" "$3"\n')
    tool.chmod(0o755)
    text = entry("  p = f32[] parameter(0)\n  ROOT a = f32[] add(p, p)")
    compiled = Build(hlo_opt=tool).optimized(text, ["multiply"], "GPU", tmp_path / "dump")
    assert [dump.name.after for dump in compiled.dumps if dump.name] == ["", "multiply"]
    assert "multiply(p, p)" in compiled.dumps[-1].module.text
