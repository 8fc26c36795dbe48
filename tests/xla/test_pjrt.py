"""PJRT's table of functions, called in each release at hand: each entry, by its place."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hlo_lint.apps.jax.capture.targets import readable_part, target_of
from hlo_lint.text.errors import UsageError
from hlo_lint.xla import pjrt
from hlo_lint.xla.child import Child, ChildError
from hlo_lint.xla.compiler import XlaCompiler, compiled, load_compiler
from hlo_lint.xla.limits import ChildLimits
from tests.conftest import completed, written
from tests.texts import entry

RELEASES = os.environ.get("HLO_LINT_RELEASES", "")
PYTHONS = sorted(Path(RELEASES).glob("hlo_lint/jax-*/bin/python")) if RELEASES else []
GPU = [path for path in PYTHONS if "tpu" not in str(path)]
TPU = [path for path in PYTHONS if "tpu" in str(path)]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHONS, reason="no releases: HLO_LINT_RELEASES"),
]

GOOD = entry("""
  a = f32[128,128]{1,0} parameter(0)
  ROOT b = f32[128,128]{1,0} tanh(a)
""")
BAD = GOOD.replace("ROOT b = f32[128,128]", "ROOT b = f32[128,64]")


def release(path: Path) -> str:
    return path.parts[-3]


def description(compiler: XlaCompiler) -> str:
    text = target_of("h200").description
    while part := readable_part(text, compiler.compile(GOOD, text).log):
        text = part
    return text


@pytest.mark.parametrize("python", GPU, ids=release)
def test_a_gpu_that_is_not_there_is_compiled_for(python: Path, tmp_path: Path) -> None:
    with XlaCompiler(python, timeout=120) as compiler:
        gpu = description(compiler)
        dumping = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
        compiled = compiler.compile(GOOD, gpu, dumping, keeps_code=True)
        assert compiled.status == "ok"
        assert compiled.code
        assert "sm_9.0" in " ".join(path.name for path in tmp_path.iterdir())
        bad = compiler.compile(BAD, gpu)
        assert (bad.status, "Expected instruction to have shape" in bad.message) == ("error", True)
        refused = compiler.compile(GOOD.replace("tanh", "tan h"), gpu)
        assert refused.status == "refused"
        unread = compiler.compile(GOOD, "nonsense {")
        assert unread.message == (
            "Failed to parse GpuTargetConfigProto from the 'target_config' parameter."
        )
        with pytest.raises(UsageError, match="does not know the flags --xla_nonsense"):
            compiler.compile(GOOD, gpu, "--xla_nonsense=1")


@pytest.mark.parametrize("python", GPU, ids=release)
def test_a_module_keeps_the_layouts_of_its_parameters(python: Path, tmp_path: Path) -> None:
    with XlaCompiler(python, timeout=120) as compiler:
        dumping = f"--xla_dump_to={tmp_path} --xla_dump_hlo_as_text"
        text = GOOD.replace("{1,0}", "{0,1}")
        assert compiler.compile(text, description(compiler), dumping).status == "ok"
        (path,) = tmp_path.glob("*before_optimizations.txt")
        assert "layout={(f32[128,128]{0,1})->f32[128,128]{0,1}}" in path.read_text()


@pytest.mark.parametrize("python", GPU[:1], ids=release)
def test_the_program_of_a_partition_is_not_partitioned_again(python: Path) -> None:
    text = "HloModule m, num_partitions=2\nENTRY e {\n  ROOT p = u32[] partition-id()\n}\n"
    with XlaCompiler(python, timeout=120) as compiler:
        assert compiler.compile(text, description(compiler), devices=(1, 2)).status == "ok"


@pytest.mark.parametrize("python", TPU, ids=release)
def test_a_tpu_that_is_not_there_is_compiled_for(python: Path) -> None:
    with Child(
        python, limits=ChildLimits(240), forks="each time", environment=pjrt.ABSENT
    ) as child:

        def ending(text: str, topology: str) -> list[str]:
            target = {"platform": "tpu", "topology_name": topology}
            given = {"target": target, "flags": "", "devices": [1, 1]}
            answer, _ = child.call(compiled, text.encode(), **given)  # type: ignore[arg-type]
            return list(answer)

        assert ending(GOOD, "v5e:2x2") == ["ok", ""]
        status, message = ending(BAD, "v5e:2x2")
        assert (status, "Expected instruction to have shape" in message) == ("error", True)
        assert ending(GOOD, "v1:9x9")[0] == "error"


@pytest.mark.parametrize("python", TPU[:1], ids=release)
def test_a_python_without_the_plugin_is_said_so(python: Path) -> None:
    with (
        Child(python, limits=ChildLimits(60), setup=load_compiler) as child,
        pytest.raises(ChildError, match="no PJRT plugin for cuda"),
    ):
        child.start()
    with (
        XlaCompiler(python) as compiler,
        pytest.raises(UsageError, match=r"install hlo-lint\[gpu-compiler\]"),
    ):
        compiler.compile(GOOD, "")


@pytest.mark.parametrize("python", GPU, ids=release)
def test_the_file_is_a_script(python: Path, tmp_path: Path) -> None:
    module, target = tmp_path / "m.hlo", tmp_path / "gpu.pbtxt"
    with XlaCompiler(python, timeout=120) as compiler:
        target.write_text(description(compiler))
    script = written(tmp_path / "compile_hlo.py", Path(pjrt.__file__).read_text())
    for text, status, said in ((GOOD, 0, "ok"), (BAD, 1, "error: during context")):
        module.write_text(text)
        done = completed([python, script, module, target], cwd=tmp_path)
        assert (done.returncode, done.stdout.startswith(said)) == (status, True), done.stderr
