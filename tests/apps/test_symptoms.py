"""A newcomer goes from a symptom to the line of Python, in two commands at most.

They begin with the message that they have in hand, and run the command that `explain` prints.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.conftest import CRASH, DUMPS

PROGRAMS = {
    "nan.py": """\
import jax, jax.numpy as jnp

def loss(x, w):
    logits = x @ w
    shifted = logits - logits.max(axis=-1, keepdims=True)
    mask = jnp.log(jnp.where(shifted < 0, 0.0, 1.0))
    return (mask * 0.0).sum()

print("loss:", jax.jit(loss)(jnp.ones((4, 8)), jnp.arange(24.0).reshape(8, 3)))
""",
    "wrong.py": """\
import jax, jax.numpy as jnp
from jax.extend.xla import register_hlo_module_transformation

register_hlo_module_transformation(
    lambda module: module.replace(b"multiply", b"subtract"), name="loses", platforms=["cpu"]
)

@jax.jit
def scaled(x, y):
    return jnp.sin(x) * y

print("scaled:", scaled(jnp.ones(2), jnp.ones(2)))
""",
    "hang.py": """\
import sys
import jax, jax.numpy as jnp

jax.config.update("jax_num_cpu_devices", 2)
mesh = jax.make_mesh((2,), ("x",))
x = jax.device_put(jnp.ones((8, 4)), jax.sharding.NamedSharding(mesh, jax.P("x", None)))

@jax.jit
def step(x):
    if sys.argv[1] == "0":
        return x.sum(0)
    return x.max()

step(x).block_until_ready()
""",
    "again.py": """\
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    return jnp.tanh(x) * 2

step(jnp.ones(3))
step(jnp.ones(4))
""",
}


def hlo_lint(*words: object, piped: str | None = None) -> str:
    ran = invoke(*words, piped=piped)
    assert ran.exit_code in (0, 1), ran.exception
    return ran.stdout


def told(message: str) -> list[str]:
    """The command that `explain` prints for a message."""
    said = hlo_lint("explain", "-", piped=message)
    command = re.search(r"hlo-lint ([^`\n]+)", said)
    assert command is not None, said
    return command[1].split()


def followed(command: list[str], dump: Path) -> str:
    """The output of a command of `explain` for a dump."""
    return hlo_lint(*(str(dump) if word in ("DUMP", "DUMPS") else word for word in command))


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def dumped(folder: Path, program: str, to: str, *words: str, **variables: str) -> str:
    """The output of a program whose dumps go to a folder."""
    flags = f"--xla_dump_to={to} --xla_dump_hlo_pass_re=.*"
    command = [sys.executable, program, *words]
    environment = {**os.environ, "XLA_FLAGS": flags, **variables}
    return subprocess.check_output(
        command, cwd=folder, env=environment, stderr=subprocess.STDOUT, text=True
    )


def test_a_crash() -> None:
    message = (
        "jax.errors.JaxRuntimeError: INTERNAL: RET_CHECK failure "
        "(external/xla/xla/service/layout_normalization.cc:431) "
        "ShapeUtil::ReshapeIsBitcast(s, operand->shape())"
    )
    said = followed(told(message), CRASH)
    assert "error[reshape-moves-data]" in said
    assert "= from: programs.py:40 in batched_dot\n" in said
    assert "= note: since jax 0.10.2 XLA runs reshape-decomposer before each" in said


def test_the_crash_is_gone_after_an_upgrade() -> None:
    after = DUMPS / "gpu-jax0.10.2" / "cublaslt_fission"
    assert "error[" not in hlo_lint("check", after)


@pytest.mark.slow
def test_nan(programs: Path) -> None:
    message = dumped(programs, "nan.py", "dump")
    assert message == "loss: nan\n"
    said = followed(told(message), programs / "dump")
    assert said.startswith("%log")
    assert f"= from: {programs / 'nan.py'}:6 in loss\n" in said


@pytest.mark.slow
def test_a_hang(programs: Path) -> None:
    for rank in "01":
        dumped(programs, "hang.py", f"dumps/rank{rank}", rank)
    message = (
        "E0000 00:00:1 rendezvous.cc:42] This thread has been waiting for `all-reduce` for 20 "
        "seconds and may be stuck."
    )
    said = followed(told(message), programs / "dumps")
    assert "error: jit_step: the ranks run different collectives\n" in said
    assert "the processes compile different programs: they differ before the first pass" in said
    for line in (11, 12):
        assert f"    from: {programs / 'hang.py'}:{line} in step\n" in said


@pytest.mark.slow
def test_it_recompiles(programs: Path) -> None:
    message = dumped(programs, "again.py", "dump", JAX_EXPLAIN_CACHE_MISSES="1")
    assert "now f32[4] and before f32[3]" in message
    assert told(message)[:1] == ["diff"]
    inputs = sorted((programs / "dump").glob("*.jit_step.before_optimizations.txt"))
    said = hlo_lint("diff", *inputs)
    assert "f32[3]" in said
    assert "f32[4]" in said
    assert "again.py:5 in step" in said


@pytest.mark.slow
def test_wrong_numbers(programs: Path) -> None:
    """Of a compile in which one pass, of the program's own, makes a difference of a product."""
    assert "scaled: [-0.158" in dumped(programs, "wrong.py", "dump")
    said = hlo_lint("validate", programs / "dump")
    assert "error[values-changed]: the module computes different values after apply-xla" in said
    assert f"= from: {programs / 'wrong.py'}:10 in scaled\n" in said
