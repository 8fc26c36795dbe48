"""One compile is dumped and checked, on the CPU, by the jax that is here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import hlo_lint
from hlo_lint import FindingsError, Settings, UsageError, capture_jit, check_jit, compile_for
from hlo_lint.apps.jax.capture.comparison import cublaslt_wins
from hlo_lint.apps.jax.capture.targets import target_names, target_of, without_field
from tests.conftest import DUMPS, ROOT, completed, present

pytestmark = pytest.mark.slow

jax = pytest.importorskip("jax")
MATRIX = jax.ShapeDtypeStruct((16, 8), "float32")


def rows(x: Any) -> Any:
    return jax.numpy.tanh(x @ x.T).sum(0)


def convolved(x: Any) -> Any:
    """XLA:CPU moves all of the result once more, which nothing needs."""
    kernel = jax.numpy.ones((3, 1, 3, 3))
    y = jax.lax.conv_general_dilated(x.reshape(1, 1, 16, 8), kernel, (1, 1), "SAME")
    return y.transpose(3, 2, 0, 1).sum(0)


SMALL = Settings(rules={"needless-transpose": {"min-bytes": 0}})
"""Settings that report small moves as well."""


def unsupported(x: Any) -> Any:
    return jax.ffi.ffi_call("no_such_kernel", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)


def test_every_pass_of_this_compile_is_there_and_nothing_else() -> None:
    before = dict(os.environ)
    with capture_jit(rows, MATRIX) as capture:
        jax.jit(convolved).lower(MATRIX).compile()
        assert capture.failure is None
        assert capture.compiled.as_text().startswith("HloModule jit_rows")
        assert [p.dumps[0].name and p.dumps[0].name.module for p in capture.dump] == ["jit_rows"]
        assert len(list(capture.compilation.transitions())) > 5
        assert capture.compilation.final is not None
        assert capture.compilation.records_every_change
    assert os.environ == before


@pytest.mark.parametrize("function", [jax.jit(rows), rows, lambda x: rows(x), print])
def test_what_can_be_jitted_can_be_captured(function: Any) -> None:
    arguments = () if function is print else (MATRIX,)
    with capture_jit(function, *arguments) as capture:
        assert capture.lint().clean


def test_static_arguments_trees_and_what_is_lowered_are_taken_as_jax_takes_them() -> None:
    def scaled(tree: Any, times: int) -> Any:
        return jax.tree.map(lambda x: x * times, tree)

    jitted = jax.jit(scaled, static_argnums=1)
    with capture_jit(jitted, {"a": MATRIX, "b": (MATRIX,)}, 3) as capture:
        assert capture.name == "scaled"
        entry = present(capture.compilation.dumps[0].module.entry)
        assert len(entry.with_opcode("parameter")) == 2
    with capture_jit(jitted.lower(MATRIX, 2)) as capture:
        assert capture.compilation.dumps[0].module.name == "jit_scaled"
    with pytest.raises(UsageError, match="takes no arguments"):
        capture_jit(jitted.lower(MATRIX, 2), MATRIX)


def test_the_dump_goes_unless_a_folder_is_named(tmp_path: Path) -> None:
    capture = capture_jit(rows, MATRIX)
    folder = capture.folder
    assert list(folder.iterdir())
    del capture
    assert not folder.exists()

    with capture_jit(convolved, MATRIX, folder=tmp_path / "kept" / "here") as capture:
        (found,) = capture.lint(settings=SMALL).findings
    assert Path(found.path).is_file()
    assert Path(found.path).parent == tmp_path / "kept" / "here"
    with pytest.raises(hlo_lint.CaptureError, match="is not empty"):
        capture_jit(rows, MATRIX, folder=tmp_path / "kept")


def test_paths_in_a_dump_that_goes_are_those_within() -> None:
    with capture_jit(convolved, MATRIX) as capture:
        report = capture.lint(settings=SMALL)
    assert report.findings
    assert {Path(found.path).parent for found in report.findings} == {Path()}
    assert str(capture.folder) not in str(report) + report.to_json()


def test_other_passes_and_options_can_be_asked_for() -> None:
    with capture_jit(rows, MATRIX, passes="layout-assignment") as capture:
        afters = {dump.name.after for dump in capture.compilation.steps if dump.name}
    assert "layout-assignment" in afters
    assert len(afters) < 4
    disabled = {"xla_disable_hlo_passes": "layout-assignment"}
    with capture_jit(rows, MATRIX, compiler_options=disabled) as capture:
        passes = {dump.name.after for dump in capture.compilation.steps if dump.name}
    assert "layout-assignment" not in passes


def test_a_compile_that_fails_is_no_exception_and_its_dump_is_checked() -> None:
    with capture_jit(unsupported, MATRIX) as capture:
        assert "no_such_kernel" in present(capture.failure)
        assert capture.compiled is None
        assert capture.lint().stats["files"] > 1
    with pytest.raises(FindingsError, match=r"^unsupported, .* does not compile\n.*no_such_kernel"):
        check_jit(unsupported, MATRIX)


def test_a_check_raises_with_the_finding_as_people_read_it() -> None:
    with pytest.raises(FindingsError) as raised:
        check_jit(convolved, MATRIX, settings=SMALL)
    said = str(raised.value)
    assert said.startswith(f"convolved, compiled by jax {jax.__version__}, has findings\n")
    assert re.search(r"^warning\[needless-transpose\]: ", said, re.M)
    assert "skipped" not in said
    assert isinstance(raised.value, AssertionError)
    assert len(raised.value.report.findings) == 1

    report = check_jit(convolved, MATRIX, allow=["needless-transpose"], settings=SMALL)
    assert len(report.findings) == 1
    assert not check_jit(convolved, MATRIX, allow=["speed"], select=["layout"]).findings
    assert not check_jit(convolved, MATRIX, ignore=["needless-transpose"]).findings
    allowance = hlo_lint.Allowance("needless-transpose", "it is known", module="jit_convolved")
    report = check_jit(convolved, MATRIX, allow=[allowance], settings=SMALL)
    assert not report.findings
    assert [each.reason for each in report.allowed] == ["it is known"]
    assert report.allowed[0].finding.path.startswith("module_")
    settings = Settings(ignore=("needless-transpose",))
    assert not check_jit(convolved, MATRIX, settings=settings).findings
    with pytest.raises(UsageError, match="did you mean needless-transpose"):
        check_jit(convolved, MATRIX, allow=["needless-transposes"])


@pytest.mark.parametrize(
    "option", [{"nonsense": 1}, {"xla_dump_hlo_as_text": "perhaps"}], ids=["name", "value"]
)
def test_an_option_that_xla_does_not_take_is_wrong_use(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(option))):
        capture_jit(rows, MATRIX, compiler_options=option)


CACHED = """
import os, sys
import jax
from hlo_lint import capture_jit

jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)

def f(x):
    return x * 2 + 1

def entries():
    return sum(name.endswith("-cache") for name in os.listdir(sys.argv[1]))

x = jax.ShapeDtypeStruct((4,), "float32")
jax.jit(f).lower(x).compile()
before = entries()
assert before
for _ in range(2):
    with capture_jit(f, x) as capture:
        assert len(capture.compilation.dumps) > 3, os.listdir(capture.folder)
assert entries() == before
jax.jit(lambda x: x - 1).lower(x).compile()
assert entries() == before + 1, "the cache is used again"
assert jax.config.jax_enable_compilation_cache
"""


def test_what_the_compilation_cache_has_is_compiled_all_the_same(tmp_path: Path) -> None:
    """A compile that comes out of the cache leaves no dump: users lost hours over that."""
    done = run_python("-c", CACHED, str(tmp_path))
    assert done.returncode == 0, done.stderr


def test_flags_of_the_environment_hide_no_dump(tmp_path: Path) -> None:
    """They may ask for other files, another module, another folder."""
    code = (
        "import jax, hlo_lint\n"
        "with hlo_lint.capture_jit(lambda x: x + 1, 1.0) as capture:\n"
        "    print(len(capture.compilation.dumps))"
    )
    flags = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_proto --xla_dump_hlo_module_re=other"
    done = run_python("-c", code, XLA_FLAGS=flags)
    assert int(done.stdout) > 3, done.stderr


def test_without_jax_it_is_said_what_to_install() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import hlo_lint; {{}}"
    call = "hlo_lint.capture_jit(print)"
    done = run_python("-S", "-c", code.format(call))
    assert done.stderr.splitlines()[-1].startswith(
        "hlo_lint.text.errors.UsageError: jax is not installed"
    )


def test_targets_have_the_arguments_of_a_topology() -> None:
    assert target_names() == ("h100", "h200")
    gpu = target_of("H200").topology()
    assert "device_memory_size: 150109880320" in gpu["target_config"]
    assert {"platform": "cuda", "topology": "1x1x1"}.items() <= gpu.items()
    (written,) = (DUMPS / "gpu-jax0.11.2" / "attention").glob("*gpu_target_config.pbtxt")
    assert target_of(str(written)).name == written.name
    assert target_of("v5e").topology() == {"platform": "tpu", "topology_name": "v5e:2x2"}
    assert target_of("v5p:4x4x4").description == "v5p:4x4x4"
    for name in ("v5e:", "v5e:2", "v3", "v5e:2x2x2x2"):
        with pytest.raises(UsageError, match=f"no target is named {name}; .*here are"):
            target_of(name)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a: 1\nnew: 2\nb: 3\n", "a: 1\n\nb: 3\n"),
        ('new { s: "} \\" {" n: 1 }\nb: 3', "\nb: 3"),
        ("a { new: [1, 2] c: 3 }", "a { c: 3 }"),
        ("old: 1 renew: 2", None),
        ("new { a: 1", None),
    ],
)
def test_a_field_that_a_release_does_not_know_is_left_out(text: str, left: str | None) -> None:
    assert without_field(text, "new", len(text.splitlines()), 60) == left


def test_of_several_fields_the_one_at_the_place_is_left_out() -> None:
    text = "a { new: 1 }\nb { new: 2 }\n"
    assert without_field(text, "new", 1, 8) == "a { }\nb { new: 2 }\n"
    assert without_field(text, "new", 2, 8) == "a { new: 1 }\nb { }\n"


def test_a_target_that_nothing_knows_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="no target is named b300; there are h100, h200, tpu7x, v4, v5e, "
    ):
        compile_for("b300", rows, MATRIX)
    with pytest.raises(UsageError, match=r"the CPU needs no description: dump .* XLA_FLAGS="):
        compile_for("cpu", rows, MATRIX)
    with pytest.raises(hlo_lint.DumpError, match="No such file"):
        compile_for(str(tmp_path / "no.pbtxt"), rows, MATRIX)


def test_the_winner_is_forged_for_dots_alone() -> None:
    key = "<key model='CUDA: 9.0, \"x\"', hlo='{{\n  tmp_0 = f16[2] {}\n}}', version=52>"
    log = f"I {key.format('dot(a, b)')}\nI {key.format('add(a, b)')}\n"
    assert cublaslt_wins(log + log) == (
        'version: 3\nresults {\n  device: "CUDA: 9.0, \\"x\\""\n'
        '  hlo: "{\\n  tmp_0 = f16[2] dot(a, b)\\n}"\n'
        "  result { gemm { algorithm: 0 } }\n  version: 52\n}\n"
    )
    assert cublaslt_wins("nothing was looked up") is None


def run_python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return completed(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **environment},
    )
