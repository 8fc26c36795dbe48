"""`hlo-lint run`: values are printed, and what has none is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from tests.commands import invoke
from tests.conftest import written
from tests.texts import entry

MODULE = entry("""
  %x = f32[2,2]{0,1} parameter(0)
  %y = (s32[], bf16[2]{0}) parameter(1)
  %flat = f32[4]{0} bitcast(%x)
  %half = bf16[2]{0} get-tuple-element(%y), index=1
  %sum = bf16[2]{0} add(%half, %half)
  %call = f32[4]{0} custom-call(%flat), custom_call_target="mystery"
  ROOT %r = f32[2,2]{0,1} bitcast(%call)
""")


def run(path: Path, *arguments: object) -> Result:
    return invoke("run", path, *arguments)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    return written(tmp_path / "m.hlo", MODULE)


@pytest.mark.slow
def test_values_of_instructions_are_printed(module: Path) -> None:
    inputs = module.with_name("inputs.npz")
    given: dict[str, Any] = {"x": np.array([[1, 2], [3, 4]]), "y.1": np.array([1, 0.5])}
    np.savez(inputs, **given)
    out = module.with_name("out.npz")
    ran = run(module, "--inputs", inputs, "--print", "flat", "--print", "%sum", "-o", out)
    assert ran.exit_code == 0, ran.output
    assert ran.output == "%flat = f32[4]{0}\n[1., 3., 2., 4.]\n%sum = bf16[2]{0}\n[2., 1.]\n"
    assert np.load(out)["flat"].tolist() == [1, 3, 2, 4]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_values(module: Path) -> None:
    one, same, other = (run(module, "--seed", seed, "--print", "flat") for seed in (4, 4, 5))
    assert one.output == same.output != other.output


@pytest.mark.slow
def test_the_result_is_printed_where_nothing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text("HloModule m\nENTRY e { c = s32[] constant(3) ROOT t = (s32[]) tuple(c) }")
    assert run(path).output == "%t.0 = s32[]\n3\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "%call: a custom call of mystery"),
        (["--print", "falt"], "no instruction is named falt: did you mean flat?"),
        (["--inputs", "m.hlo"], "m.hlo: not a .npz file of arrays"),
        (["--inputs", "no.npz"], "no.npz: not a .npz file of arrays"),
        (["--inputs", "z.npz"], "no parameter is named z: there are x, y.0, y.1"),
        (["--inputs", "long.npz", "--print", "flat"], "long.npz: x has the shape (3,)"),
    ],
)
def test_what_cannot_be_done_is_said(
    module: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(module.parent)
    np.savez("z.npz", z=np.zeros(1))
    np.savez("long.npz", x=np.zeros(3))
    ran = run(module, *arguments)
    assert ran.exit_code == 2
    assert message in ran.output


def test_a_folder_and_another_text_are_refused(tmp_path: Path) -> None:
    assert "is a directory, not a file" in run(tmp_path).output
    (tmp_path / "notes.txt").write_text("nothing\n")
    assert run(tmp_path / "notes.txt").exit_code == 2
    assert run(tmp_path / "gone.hlo").exit_code == 2


@pytest.mark.slow
def test_a_wide_run_shows_what_rounding_does(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(
        "HloModule m\nENTRY e { a = bf16[] constant(256) b = bf16[] constant(1)"
        " ROOT s = bf16[] add(a, b) }"
    )
    assert run(path).output == "%s = bf16[]\n256.\n"
    assert run(path, "--wide").output == "%s = bf16[]\n257.\n"


@pytest.mark.slow
def test_the_first_nan_is_named_with_its_operands(tmp_path: Path) -> None:
    text = entry("""
  x = f32[3] parameter(0)
  y = f32[] constant(-2)
  all = f32[3] broadcast(y), dimensions={}
  ROOT p = f32[3] power(x, all), metadata={source_file="f.py" source_line=3}
""")
    path = written(tmp_path / "m.hlo", text)
    given: dict[str, Any] = {"x": np.array([1, 0, 2])}
    np.savez(tmp_path / "x.npz", **given)
    ran = run(path, "--first-nan", "--inputs", tmp_path / "x.npz")
    assert ran.exit_code == 1, ran.output
    assert ran.output == (
        "%p is the first instruction that makes a NaN or an infinity\n"
        f"  --> {path}:7:3\n"
        '7 | ROOT p = f32[3] power(x, all), metadata={source_file="f.py" source_line=3}\n'
        "   = from: f.py:3\n"
        "   = value: [1] is inf; 1 of 3 are not finite\n"
        "   = %x: [1] is 0.0\n"
        "   = %all: [1] is -2.0\n"
    )
    ran = run(path, "--first-nan", "--seed", 1)
    assert (ran.exit_code, ran.output.count("\n")) == (0, 1), ran.output
    assert "without --print" in run(path, "--first-nan", "--print", "x").output


def test_without_jaxlib_the_error_says_what_to_install(
    module: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The child looks for modules where this process does.
    module.with_name("jaxlib.py").write_text("")
    monkeypatch.syspath_prepend(module.parent)
    ran = run(module, "--print", "flat")
    assert ran.exit_code == 2
    assert "pip install 'hlo-lint[xla]' to run modules: No module named 'jaxlib" in ran.output


@pytest.mark.slow
def test_the_first_nan_of_a_dump_is_that_of_the_first_module_that_makes_one(tmp_path: Path) -> None:
    for number, opcode in enumerate(("exponential", "log")):
        name = tmp_path / f"module_000{number}.jit_f{number}.before_optimizations.txt"
        name.write_text(entry(f"  %c = f32[] constant(0)\n  ROOT %r = f32[] {opcode}(%c)"))
    ran = run(tmp_path, "--first-nan")
    assert ran.exit_code == 1
    assert "%r is the first instruction" in ran.output
    assert "module_0001.jit_f1" in ran.output
    name.unlink()
    ran = run(tmp_path, "--first-nan")
    assert (ran.exit_code, ran.output[:26]) == (0, "no instruction of 1 module")
    assert run(tmp_path, "--first-nan", "--inputs", name).exit_code == 2
