"""The real compilers for a GPU and for a TPU that are not here.

HLO_LINT_RELEASES is a cache folder in which `hlo-lint capture --jax` has made environments before,
as `make test` does. HLO_LINT_GPU_PYTHONS names other Pythons that have jax and its CUDA plugin, as
PATH names folders.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hlo_lint.xla.environments import interpreter_at
from tests.conftest import DUMPS, ROOT, completed
from tests.terminal import on_terminal

RELEASES = os.environ.get("HLO_LINT_RELEASES", "")
PYTHONS = [
    *os.environ.get("HLO_LINT_GPU_PYTHONS", "").split(os.pathsep),
    *(map(str, Path(RELEASES).glob("hlo_lint/jax-*/bin/python")) if RELEASES else ()),
]
FOUND = [interpreter_at(path) for path in PYTHONS if path and Path(path).exists()]
INTERPRETERS = {found.jax: found for found in FOUND if found.has_gpu_compiler}
TPU_COMPILERS = {found.jax: found for found in FOUND if found.has_tpu_compiler}
PROGRAMS = ROOT / "fixtures" / "programs"
SHAPES = ("--shape", "f16[2,1,32,4,128]", "--shape", "f16[4,2,1,128,128]")
NEWEST = max(INTERPRETERS, key=lambda release: [*map(int, release.split("."))], default="")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not INTERPRETERS, reason="no Python with jax's GPU compiler: HLO_LINT_RELEASES"
    ),
]
needs_tpu_compiler = pytest.mark.skipif(
    not TPU_COMPILERS, reason="no Python with jax's TPU compiler: HLO_LINT_RELEASES"
)


def capture(
    *arguments: str, jax: tuple[str, ...] = (NEWEST,), cwd: Path = PROGRAMS
) -> subprocess.CompletedProcess[str]:
    """`hlo-lint capture`, with the jax of some releases, in the environments made for them."""
    return completed(capturing(*arguments, jax=jax), cwd=cwd, env=ENVIRONMENT)


CACHE = {"XDG_CACHE_HOME": RELEASES} if RELEASES else {}
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), **CACHE}


def capturing(*arguments: str, jax: tuple[str, ...] = (NEWEST,)) -> list[str]:
    chosen = [
        f"--jax={release}" if CACHE else f"--python={INTERPRETERS[release].path}" for release in jax
    ]
    return [sys.executable, "-m", "hlo_lint", "capture", *chosen, *arguments]


def programs(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    """The command's output for each program, as JSON."""
    assert done.stdout, done.stderr
    return {each["name"]: each for each in json.loads(done.stdout)["programs"]}


@pytest.mark.skipif(
    not {"0.10.0", "0.11.2"} <= INTERPRETERS.keys(), reason="it takes both jax 0.10.0 and 0.11.2"
)
def test_the_dot_of_the_report_is_safe_on_one_release_and_dies_on_the_other(tmp_path: Path) -> None:
    done = capture(
        *("--target", "h200", "programs.py:batched_dot", *SHAPES),
        *("--keep", str(tmp_path / "kept"), "--output-format", "json", "--min-severity", "info"),
        jax=("0.10.0", "0.11.2"),
    )
    assert done.returncode == 1
    found = programs(done)["batched_dot"]
    assert found["verdict"] == (
        "batched_dot on h200: compiles, with warnings when cuBLASLt wins (jax 0.11.2); "
        "dies when cuBLASLt wins (jax 0.10.0)"
    )
    fates = {(trial["jax"], trial["backend"]): trial for trial in found["trials"]}
    rules = {
        which: {finding["rule"] for finding in trial["report"]["findings"]}
        for which, trial in fates.items()
    }
    assert rules == {
        ("0.10.0", "default"): {"gemm-breaks-on-backend-flip"},
        ("0.10.0", "cuBLASLt"): {"reshape-moves-data"},
        ("0.11.2", "default"): {"gemm-slows-on-backend-flip"},
        ("0.11.2", "cuBLASLt"): {"reshape-runs-as-kernel"},
    }
    died = fates["0.10.0", "cuBLASLt"]
    assert (died["outcome"], died["message"].partition(" ShapeUtil")[0]) == (
        "dies",
        "INTERNAL: RET_CHECK failure (external/xla/xla/service/layout_normalization.cc:431)",
    )
    # The dump is the one that lies in fixtures/, which a flag made.
    (died_on,) = Path(died["dump"]).glob("*after_autotuner*")
    (fixture,) = (DUMPS / "gpu-jax0.10.0" / "cublaslt_fission_crash").glob("*after_autotuner*")
    assert instructions(died_on) == instructions(fixture)


@pytest.mark.skipif(
    not RELEASES or not {"0.10.0", "0.11.2"} <= INTERPRETERS.keys(),
    reason="it takes both releases in HLO_LINT_RELEASES",
)
def test_the_session_on_the_page_is_what_the_program_prints(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "capture.md").read_text("utf-8")
    program = page.partition("in a file `programs.py`:\n\n```python\n")[2].partition("```")[0]
    (tmp_path / "programs.py").write_text(program, "utf-8")
    ((command, shown),) = re.findall(r"```console\n\$ hlo-lint capture (.*?)\n(.*?)```", page, re.S)
    assert capture(*shlex.split(command), jax=(), cwd=tmp_path).stdout == shown


def instructions(path: Path) -> list[str]:
    """The operation and operands of each instruction, less the scratch of a GEMM."""
    text = re.sub(r"s8\[\d+\]", "s8[]", path.read_text())
    return re.findall(r"^ +(?:ROOT )?(%.* = .*?\)|%.* = .*?)(?:, \w+=.*)?$", text, re.M)


def test_the_text_says_all_of_it_and_leaves_nothing_behind(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        "import jax\n"
        "def step(x, y):\n"
        "    return jax.nn.relu(x @ y)\n"
        "def small(pair):\n"
        "    return pair[0] + pair[1]\n"
        "example_args = {'step': [jax.ShapeDtypeStruct((512, 512), 'bfloat16')] * 2}\n"
    )
    done = capture("--target", "h100", "model.py:step", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4:] == [
        "jax     GEMM backend  outcome   values  findings",
        f"{NEWEST}  default       compiles  same    no findings",
        f"{NEWEST}  cuBLASLt      compiles  same    no findings",
        f"step on h100: compiles, no findings (jax {NEWEST})",
    ]
    small = f"{tmp_path}/model.py:small", "--shape=(f32[8], s32[8])"
    seen = on_terminal(capturing("--target", "h100", *small), 80, ENVIRONMENT)
    assert seen.lines[-2].split() == [NEWEST, "cuBLASLt", "no", "such", "GEMM"]
    # A step that takes less than a refresh of the terminal is not seen.
    for step in ("compiling small", "checking small"):
        assert f"jax {NEWEST}: {step}".encode() in seen.data
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["model.py"]


@pytest.mark.skipif("0.10.0" not in INTERPRETERS, reason="it takes jax 0.10.0")
def test_a_program_that_computes_something_else_when_it_is_optimized_is_told_by_its_values(
    tmp_path: Path,
) -> None:
    (tmp_path / "model.py").write_text("def dense(x, w, b):\n    return (x @ w + b) * 0.5\n")
    command = [
        *("--target", "h100", "--select", "layout"),
        *("--option", "xla_gpu_enable_triton_gemm=false", "model.py:dense"),
        *("--shape=f32[64,64]", "--shape=f32[64,64]", "--shape=f32[64]"),
    ]
    done = capture(*command, jax=("0.10.0",), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "the module computes different values after cublas-gemm-rewriter" in done.stdout
    assert "0.10.0  default       compiles      changed  1 error" in done.stdout
    done = capture("--no-values", *command, jax=("0.10.0",), cwd=tmp_path)
    assert done.returncode == 0, done.stdout


PALLAS = """
import jax
from jax import numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu, triton

S = jax.ShapeDtypeStruct

def call(kernel, x):
    params = triton.CompilerParams(num_warps=4)
    return pl.pallas_call(kernel, out_shape=S(x.shape, x.dtype), compiler_params=params)(x)

def doubles(x):
    def kernel(x, o):
        o[...] = x[...] * 2
    return call(kernel, x)

def sorts(x):
    def kernel(x, o):
        o[...] = jnp.sort(x[...])  # Triton has none
    return call(kernel, x)

def mosaic(kernel, x, columns):
    scratch = {"smem": mosaic_gpu.SMEM((64, columns), x.dtype), "bar": mosaic_gpu.Barrier()}
    return mosaic_gpu.kernel(kernel, out_type=S(x.shape, x.dtype), scratch_types=scratch)(x)

def copies(x_gmem, o_gmem, smem, bar):
    mosaic_gpu.copy_gmem_to_smem(x_gmem, smem, bar)
    mosaic_gpu.barrier_wait(bar)
    mosaic_gpu.copy_smem_to_gmem(smem, o_gmem)
    mosaic_gpu.wait_smem_to_gmem(0)

def through_shared_memory(x):
    return mosaic(copies, x, 128)

def too_large(x):
    return mosaic(copies, x, 16384)

def no_such_instruction(x):
    def kernel(x_gmem, o_gmem, smem, bar):
        @mosaic_gpu.inline_mgpu(arg_types=())
        def wrong(ctx):
            from jaxlib.mlir import ir
            from jaxlib.mlir.dialects import llvm
            llvm.inline_asm(ir.Type.parse("!llvm.void"), [], "odd.one;", "", has_side_effects=True)
        wrong()
    return mosaic(kernel, x, 128)

example_args = {
    "doubles": [S((128,), "float32")],
    "sorts": [S((128,), "float32")],
    "through_shared_memory": [S((64, 128), "float16")],
    "too_large": [S((64, 16384), "float16")],
    "no_such_instruction": [S((64, 128), "float16")],
}
"""

needs_mosaic = pytest.mark.skipif(
    [*map(int, NEWEST.split(".") if NEWEST else ())] < [0, 11],
    reason="an older jax needs absl-py for Mosaic GPU",
)


@needs_mosaic
@pytest.mark.parametrize("function", ["doubles", "through_shared_memory"])
def test_pallas_kernels_compile_for_the_target(tmp_path: Path, function: str) -> None:
    (tmp_path / "kernels.py").write_text(PALLAS)
    done = capture("--target=h200", f"kernels.py:{function}", cwd=tmp_path)
    assert f"{NEWEST}  default       compiles      same" in done.stdout, done.stderr


@needs_mosaic
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("sorts", "Error: kernels.py:20: NotImplementedError: Unimplemented primitive"),
        ("too_large", "Error: kernels.py: ValueError: Mosaic GPU kernel exceeds available shared"),
        (
            "no_such_instruction",
            r"dies: INTERNAL: Pass pipeline failed: kernels.py:4\d: 'gpu.binary'",
        ),
    ],
)
def test_a_broken_kernel_ends_in_its_own_message(tmp_path: Path, function: str, said: str) -> None:
    (tmp_path / "kernels.py").write_text(PALLAS)
    done = capture("--target=h200", f"kernels.py:{function}", cwd=tmp_path)
    assert re.search(said, done.stdout + done.stderr)


@pytest.mark.skipif(len(INTERPRETERS) < 2, reason="it takes two releases")
def test_a_script_that_fails_with_one_release_is_compiled_with_the_others(tmp_path: Path) -> None:
    oldest, *_ = sorted(INTERPRETERS, key=lambda release: [*map(int, release.split("."))])
    (tmp_path / "model.py").write_text(
        f"import jax\nif jax.__version__ == {oldest!r}:\n    import no_such_module\n"
        "def f(x): return x + 1\n"
    )
    command = ("--target=h200", "model.py:f", "--shape=f32[8]")
    done = capture(*command, jax=(oldest, NEWEST), cwd=tmp_path)
    assert done.returncode == 1
    said = "model.py:3: ModuleNotFoundError: No module named 'no_such_module'"
    assert done.stdout.splitlines()[-2:] == [
        f"jax {oldest}: not tried: {said}; --with no_such_module installs it",
        f"f on h200: compiles, no findings (jax {NEWEST}); not tried (jax {oldest})",
    ]
    done = capture(*command, jax=(oldest,), cwd=tmp_path)
    assert done.stderr == f"Error: {said}; --with no_such_module installs it\n"


def test_values_have_a_time_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import time\n"
        "from jax import numpy as jnp\n"
        "def deep(x, w):\n"
        "    time.sleep(6)\n"
        "    for _ in range(60):\n"
        "        x = jnp.tanh(x @ w) + x.T\n"
        "    return x\n"
    )
    shapes = ("--shape=f32[2048,2048]", "--shape=f32[2048,2048]")
    done = capture(
        *("--target=h200", "--backend=default", "--seconds=1", "model.py:deep", *shapes),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        f"{NEWEST}  default       compiles  no time  no findings",
        f"deep on h200: compiles, no findings (jax {NEWEST})",
        f"values not compared: deep (jax {NEWEST}): 1 s were over (--seconds)",
    ]
    assert f"jax {NEWEST}: compiling deep …" in done.stderr.splitlines()


SCRIPT = """
import sys
from functools import partial
import jax
from jax import jit, numpy as jnp

print("not part of the report")
BIAS = jnp.arange(8.0)

class Model:
    @partial(jit, static_argnums=(0, 2))
    def step(self, x, times, *, scale=1.0):
        return jnp.tanh(x @ x.T) * times * scale

@jit
def inner(x):
    return x + BIAS

@jax.jit
def outer(x):
    return inner(x) * 2

@jax.jit
def constant():
    return jnp.ones(3)

if __name__ == "__main__":
    rows = int(sys.argv[1])
    for _ in range(2):
        Model().step(jnp.ones((rows, 8)), 3)
    Model().step(jnp.ones((rows, 8), jnp.bfloat16), 3, scale=2.0)
    outer(BIAS)
    constant()
    jit(jnp.sort).lower(jax.random.key(0).shape and BIAS or BIAS).compile()
"""


def test_a_script_is_run_and_what_it_jits_is_compiled(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    kept = tmp_path / "kept"
    done = capture(
        *("--target=h200", "--keep", str(kept), "--output-format=json", "--backend=default"),
        *("train.py", "16"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    found = programs(done)
    assert list(found) == ["step", "step-2", "step-3", "outer", "constant", "sort"]
    assert {trial["outcome"] for each in found.values() for trial in each["trials"]} == {"compiles"}
    (first,) = (kept / f"jax{NEWEST}" / "step").glob("*before_optimizations.txt")
    assert "f32[16,8]" in first.read_text()
    assert (kept / f"jax{NEWEST}" / "outer").is_dir()
    assert not (kept / f"jax{NEWEST}" / "inner").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("bad.py:nothing",), r"bad.py has no function nothing; there is f, raises"),
        (("bad.py:f",), r"the arguments of f in bad.py are unknown: give --shape"),
        (("bad.py:f", "--shape=f32[3,4]"), r"bad.py:3: TypeError: dot_general"),
        (("bad.py:raises", "--shape=f32[3]"), r"bad.py:5: ValueError: \\x1b\[31mred"),
        (("bad.py",), r"bad.py ran without calling a jitted function"),
        (("broken.py:f",), r".*broken.py:1:\d: SyntaxError"),
        (("none.py:f",), r"none.py: no such file"),
        (("bad.py:f", "--shape=f32[3"), r"--shape f32\[3: .* at column"),
        (("bad.py:f", "--shape=token[]"), r"--shape token\[\]: token\[\] is not an argument"),
        (("bad.py", "--shape=f32[3]"), r"--shape says what a function takes: name one"),
        (("bad.py:f", "--shape=f32[2,2]", "--option=odd=1"), r"jax .*: No such compile option"),
        (("bad.py:f", "--option=odd"), r"--option odd has no value"),
        (("bad.py:f", "--shape=f32[2,2]", "--target=bad.py"), r"jax .* cannot compile .*import"),
        (("bad.py:f", "--python=/nowhere"), r"/nowhere cannot be run: No such file"),
        (("bad.py:f", "--python=/bin/ls"), r"/bin/ls is not a Python in which jax is installed"),
        (("bad.py:f", "--jax=latest"), r"latest is not a release of jax"),
        (("bad.py:f", "--jax=0.4.35"), r"jax 0.4.35 is too old to compile for a GPU"),
        (("bad.py:f", "--keep=."), r"\. is not empty"),
    ],
)
def test_wrong_use_is_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    (tmp_path / "bad.py").write_text(
        "import jax\ndef f(x):\n    return x @ x\n"
        "def raises(x):\n    raise ValueError('\\x1b[31mred')\n"
    )
    (tmp_path / "broken.py").write_text("def f(:\n")
    done = capture("--target=h200", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert re.match(f"Error: {said}", done.stderr), done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_target_can_come_from_a_dump(tmp_path: Path) -> None:
    """Written by jax 0.11.2; an older release is given what it knows of it."""
    folder = DUMPS / "gpu-jax0.11.2" / "attention"
    (target,) = folder.glob("*gpu_target_config.pbtxt")
    done = capture(
        *(f"--target={target}", "programs.py:batched_dot", *SHAPES),
        *("--backend=default", "--output-format=json"),
        jax=tuple(INTERPRETERS),
    )
    trials = programs(done)["batched_dot"]["trials"]
    assert [trial["outcome"] for trial in trials] == ["compiles"] * len(INTERPRETERS)


ABORTS = """
import os, sys
sys.stderr.write("F1121 10:00:00.000000     7 pass.cc:12] Check failed: a == b\\n")
sys.stderr.flush()
os.abort()
"""


def test_a_process_that_xla_ends_is_a_death_with_its_last_words(tmp_path: Path) -> None:
    """The script ends it while jax traces, as XLA would a moment later."""
    body = ABORTS.strip().replace("\n", "\n    ")
    (tmp_path / "dies.py").write_text(f"def f(x):\n    {body}\n")
    done = capture(
        *("--target=h200", "dies.py:f", "--shape=f32[2]", "--output-format=json"), cwd=tmp_path
    )
    assert done.returncode == 1, done.stderr
    found = programs(done)["f"]
    assert found["verdict"] == f"f on h200: dies (jax {NEWEST})"
    (trial,) = found["trials"]
    assert trial["message"] == "XLA was ended by SIGABRT: pass.cc:12] Check failed: a == b"


IN_PROCESS = """
import sys
import jax
import hlo_lint
from jax import numpy as jnp

def dot(x, y):
    return jax.lax.dot_general(x, y, (((3, 4), (0, 3)), ((0, 1), (1, 2))))

shapes = [jax.ShapeDtypeStruct(s, "float16") for s in ((2, 1, 32, 4, 128), (4, 2, 1, 128, 128))]
capture = hlo_lint.compile_for("h200", dot, *shapes)
assert capture.failure is None
print(sorted({found.rule for found in capture.lint().findings}))
for function, arguments in (
    (lambda: jnp.ones(3), ()),
    (jax.jit(jnp.ones, static_argnums=0), (4,)),
    (jax.jit(lambda x, n: x * n, static_argnums=1), (jnp.ones(4), 3)),
    (lambda tree: tree["a"] + 1, ({"a": jnp.ones(4)},)),
):
    with hlo_lint.compile_for("h100", function, *arguments) as capture:
        assert capture.failure is None
        assert "sm_9.0a" in capture.compilation.final.path.name, capture.compilation.final
print(jax.devices()[0].platform, jnp.ones(3).sum())
"""


@pytest.mark.parametrize("release", sorted(INTERPRETERS))
def test_a_function_is_compiled_in_the_process_it_is_in(release: str) -> None:
    """On the newest release jax may use any platform, on the others only the CPU."""
    platforms = {} if release == NEWEST else {"JAX_PLATFORMS": "cpu"}
    done = completed(
        [INTERPRETERS[release].path, "-c", IN_PROCESS], env={**ENVIRONMENT, **platforms}
    )
    assert done.returncode == 0, done.stderr
    flips = "breaks" if release == "0.10.0" else "slows"
    assert done.stdout.splitlines() == [f"['gemm-{flips}-on-backend-flip']", "cpu 3.0"]


IN_A_CHILD = """
import os, re, signal, sys, tempfile
from pathlib import Path
import jax
import hlo_lint
from hlo_lint.apps.jax.capture import worker
from hlo_lint.apps.jax.capture.children import Compiler
from hlo_lint.apps.jax.capture.targets import target_of

def step(x, y):
    return jax.numpy.tanh(x @ y).T.reshape(-1), x + 1

shapes = [jax.ShapeDtypeStruct(s, "float32") for s in ((64, 32), (32, 16))]
target = target_of("h200").topology()

def texts(folder):
    return {
        re.sub(r"^module_\\d+", "", path.name): path.read_text().replace(str(folder), "")
        for path in folder.iterdir()
        if path.name.endswith("_optimizations.txt")
    }

# In a child and here: the same texts.
here, there = Path(tempfile.mkdtemp()), Path(tempfile.mkdtemp())
with Compiler(target) as compiler:
    lowered = worker.lower_for(step, shapes, {}, compiler.target)
    assert compiler.compile(lowered, there, {}, ".*") is None
assert worker.compile_lowered(lowered, here, {})[1] is None
assert len(texts(here)) >= 2
assert texts(here) == texts(there)

# What ends the child is a failure.
with Compiler(target) as compiler:
    os.kill(compiler._process.pid, signal.SIGSEGV)
    print(compiler.compile(lowered, there, {}, ".*"))
for variable, value in (
    ("XLA_FLAGS", "--xla_nonsense=1"),
    ("HLO_LINT_XLA_SECONDS", "0.2"),
    ("HLO_LINT_XLA_MEMORY", "60"),
):
    os.environ[variable] = value
    try:
        print(hlo_lint.compile_for("h200", step, *shapes).failure)
    except hlo_lint.HloLintError as error:
        print(error)
    del os.environ[variable]
"""


def test_xla_compiles_for_a_target_in_a_child_whose_end_is_not_the_callers() -> None:
    command = str(INTERPRETERS[NEWEST].path), "-c", IN_A_CHILD
    done = completed(command, env={**ENVIRONMENT, "JAX_PLATFORMS": "cpu"})
    assert done.returncode == 0, done.stderr
    killed, flags, late, memory = done.stdout.splitlines()
    assert killed == "XLA was ended by SIGSEGV"
    assert flags.startswith("XLA ended with status 1: parse_flags_from_env.cc")
    assert late == (
        "the description of the target: XLA was still at it after 0.2 seconds "
        "(HLO_LINT_XLA_SECONDS sets another limit)"
    )
    assert memory != "None"


def test_an_environment_without_the_compiler_is_said_so() -> None:
    if interpreter_at(sys.executable).has_gpu_compiler:
        pytest.skip("it is installed here")
    done = capture("--target=h200", "programs.py:batched_dot", jax=())
    assert done.returncode == 2
    assert "without its GPU compiler; install hlo-lint[gpu-compiler]" in done.stderr


@needs_tpu_compiler
@pytest.mark.parametrize("target", ["v5e", "v6e:2x4"])
def test_a_program_is_compiled_for_a_tpu_that_is_not_here(target: str, tmp_path: Path) -> None:
    release, interpreter = next(iter(TPU_COMPILERS.items()))
    kept = tmp_path / "kept"
    options = f"--python={interpreter.path}", f"--target={target}", f"--keep={kept}"
    done = capture(*options, "programs.py:tanh_sum", "--shape=f32[64,128]", jax=())
    assert done.stdout.splitlines() == [
        "jax     outcome   values  findings",
        f"{release}  compiles  same    no findings",
        f"tanh_sum on {target}: compiles, no findings (jax {release})",
    ], done.stderr
    dumped = [path.name for path in (kept / f"jax{release}" / "tanh_sum").glob("*.after_*.txt")]
    assert len(dumped) > 20
    assert all(".jit_tanh_sum.cl_" in name for name in dumped)


TPU_KERNELS = """
import jax
from jax import numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def call(kernel, x):
    return pl.pallas_call(kernel, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

def scaled(x):
    lanes = pltpu.get_tpu_info().num_lanes  # of the target; the CPU has none
    def kernel(x, o):
        o[...] = x[...] * lanes
    return call(kernel, x)

def reshaped(x):
    def kernel(x, o):
        o[...] = x[...].reshape(512, 2, 64).transpose(2, 1, 0).reshape(256, 256)
    return call(kernel, x)
"""


@needs_tpu_compiler
@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("scaled", "scaled on v5e: compiles, no findings"),
        ("reshaped", "dies: kernels.py:18: INTERNAL: Mosaic failed to compile TPU kernel: infer-"),
    ],
)
def test_tpu_kernels_compile_or_mosaic_says_why(tmp_path: Path, function: str, said: str) -> None:
    (tmp_path / "kernels.py").write_text(TPU_KERNELS)
    python = f"--python={next(iter(TPU_COMPILERS.values())).path}"
    command = ("--target=v5e", python, f"kernels.py:{function}", "--shape=f32[256,256]")
    done = capture(*command, jax=(), cwd=tmp_path)
    assert said in done.stdout, done.stderr


@needs_tpu_compiler
def test_a_topology_that_does_not_exist_is_refused_in_its_compilers_words(tmp_path: Path) -> None:
    options = f"--python={next(iter(TPU_COMPILERS.values())).path}", "--target=v5e:1x1"
    done = capture(*options, "programs.py:tanh_sum", "--shape=f32[64,128]", jax=())
    assert done.returncode == 2
    assert 'Topology layout "v5e:1x1" is not divisible by' in done.stderr
