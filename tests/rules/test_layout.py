"""Rules about layouts: their fixes keep values, and what they compute agrees with brute force."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

import hlo_lint
from hlo_lint.analysis.data_movement import moves
from hlo_lint.engine.proof.terms import prove_equal
from hlo_lint.hlo.shape import ArrayShape, Layout
from hlo_lint.rules.layout.gemm_layout_unsupported import unsupported
from tests.conftest import DUMPS
from tests.oracle.layout_chains import Laid
from tests.texts import entry

FINAL = "module_0001.m.sm_9.0_gpu_after_optimizations.txt"
EARLY = (
    "module_0001.m.0001.layout_normalization.after_reshape-decomposer.before_layout_normalization"
    ".txt"
)
RULES = (
    "layout-changed transpose-off-normal-form collective-not-outermost gemm-layout-unsupported "
    "scatter-off-normal-form reduce-inputs-differ reduce-off-normal-form host-memory-leak speed"
).split()


def dumped(text: str, folder: Path, name: str = FINAL) -> Path:
    """A text as XLA:GPU leaves it."""
    (folder / f"{FINAL.removesuffix('.txt')}.ir-no-opt.ll").write_text("")
    if name != FINAL:
        (folder / FINAL).write_text(entry("  ROOT p = f32[] parameter(0)"))
    (folder / name).write_text(text)
    return folder


def fixed(text: str, folder: Path, rule: str, name: str = FINAL) -> str:
    """The text that the rule's fix makes; there is one file to fix."""
    result = hlo_lint.fix(dumped(text, folder, name), [rule])
    assert result.remaining.clean
    return result.text


def transposing(operand: str, result: str, dimensions: str) -> str:
    root = f"  ROOT t = {result} transpose(p), dimensions={{{dimensions}}}"
    return entry(f"  p = {operand} parameter(0)\n{root}")


@pytest.mark.parametrize(
    ("operand", "result", "dimensions"),
    [
        ("f32[2,3,4]{0,2,1}", "f32[4,2,3]{0,1,2}", "2,0,1"),
        ("f32[2,3,4]{2,1,0}", "f32[4,2,3]{0,2,1}", "2,0,1"),
        ("f32[8,8]{0,1}", "f32[8,8]{0,1}", "0,1"),
        ("f32[8,8]{0,1}", "f32[8,8]{0,1}", "1,0"),
        ("s4[8,6]{0,1:E(4)}", "s4[6,8]{1,0:E(4)}", "1,0"),
        ("f32[<=8,6]{0,1}", "f32[6,<=8]{1,0}", "1,0"),
        ("f32[5,1,6]{0,1,2}", "f32[1,6,5]{2,0,1}", "1,2,0"),
        ("bf16[3,4,5,2]{1,3,0,2}", "bf16[2,5,3,4]{3,0,1,2}", "3,2,0,1"),
    ],
)
def test_a_transpose_on_descending_layouts_moves_the_same_elements(
    operand: str, result: str, dimensions: str, tmp_path: Path
) -> None:
    text = transposing(operand, result, dimensions)
    after = fixed(text, tmp_path, "transpose-off-normal-form")
    assert "t = " in after
    static = (hlo_lint.parse(each.replace("<=", "")) for each in (text, after))
    assert prove_equal(*static).moves


@pytest.mark.parametrize(
    ("operand", "reader"),
    [
        ("p = f32[8,6]{0,1}", "ROOT r = f32[8,6]{1,0} negate(p)"),
        ("p = s4[8,6]{0,1:E(4)}", "ROOT r = s4[8,6]{1,0:E(4)} negate(p)"),
        ("%p = f32[8,6]{0,1}", "ROOT %r = f32[8,6]{1,0} negate(f32[8,6]{0,1} %p)"),
    ],
)
def test_a_copied_operand_holds_the_same_values(operand: str, reader: str, tmp_path: Path) -> None:
    text = entry(f"  {operand} parameter(0)\n  {reader}")
    after = fixed(text, tmp_path, "layout-changed", EARLY)
    assert after.count(" copy(") == 1
    assert prove_equal(hlo_lint.parse(text), hlo_lint.parse(after)).moves == 1


def test_of_several_operands_only_the_wrong_ones_are_copied(tmp_path: Path) -> None:
    text = entry("""
  %a = f32[8,8]{0,1} parameter(0), metadata={op_name="a"}
  %t = (f32[8,8]{0,1}, f32[]) custom-call(%a), custom_call_target="t"
  %b = f32[8,8]{1,0} parameter(1)
  ROOT %c = f32[24,8]{1,0} concatenate(f32[8,8]{0,1} %a, /*index=1*/f32[8,8]{1,0} %b, \
%t#0), dimensions={0}
""")
    after = fixed(text, tmp_path, "layout-changed", EARLY)
    assert after.split("\n")[6:9] == [
        '  %c.copy = f32[8,8]{1,0} copy(f32[8,8]{0,1} %a), metadata={op_name="a"}',
        "  %c.copy.2 = f32[8,8]{1,0} copy(f32[8,8]{0,1} %t#0)",
        "  ROOT %c = f32[24,8]{1,0} concatenate(f32[8,8]{1,0} %c.copy, /*index=1*/f32[8,8]{1,0} "
        "%b, %c.copy.2), dimensions={0}",
    ]


def test_what_is_not_packed_yet_lies_as_its_reader_does(tmp_path: Path) -> None:
    text = entry("  p = s4[4]{0} parameter(0)\n  ROOT m = s4[4]{0:E(4)} negate(p)")
    assert not hlo_lint.lint(dumped(text, tmp_path, EARLY), ["layout-changed"]).findings
    final = "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt"
    found = hlo_lint.lint(dumped(text, tmp_path, final), ["layout-changed"]).findings
    assert [(each.instruction, each.fix) for each in found] == [("m", None)]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_cublaslt_takes_what_has_no_batch_fastest(order: tuple[int, ...]) -> None:
    shape = ArrayShape("f32", (4, 8, 16), Layout(order))
    assert bool(unsupported(shape, (0,), (1,), (2,))) == (order[0] == 0)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_rows_of_two_dimensions_lie_side_by_side(order: tuple[int, ...]) -> None:
    """Batch 0, rows 1 and 2, columns 3: as one dimension each they are 0, 1, 2."""
    shape = ArrayShape("f32", (4, 8, 2, 16), Layout(order))
    spelled = "".join(map(str, reversed(order)))
    assert bool(unsupported(shape, (0,), (1, 2), (3,))) == ("12" not in spelled or order[0] == 0)


SIZES = [(4, 3, 2), (2, 2, 2), (4, 1, 4), (6, 4, 1)]


@pytest.mark.parametrize("sizes", SIZES)
def test_two_moves_undo_each_other_as_their_bytes_say(sizes: tuple[int, ...]) -> None:
    """Every pair of transposes of three dimensions, read through a flat bitcast, by brute force."""
    orders = list(itertools.permutations(range(3)))
    for first, second in itertools.product(orders, orders):
        middle = tuple(sizes[d] for d in first)
        after = tuple(middle[d] for d in second)
        text = entry(f"""
  p = f32[{_list(sizes)}]{{2,1,0}} parameter(0)
  t = f32[{_list(middle)}]{{2,1,0}} transpose(p), dimensions={{{_list(first)}}}
  u = f32[{_list(after)}]{{2,1,0}} transpose(t), dimensions={{{_list(second)}}}
""")
        one, two = moves(hlo_lint.parse(text))
        cube = np.arange(np.prod(sizes)).reshape(sizes)
        there = cube.transpose(first)
        same = bool((there.transpose(second).reshape(-1) == cube.reshape(-1)).all())
        stays = bool((there.reshape(-1) == cube.reshape(-1)).all())
        assert (not one.steps) == stays
        if one.steps and two.steps:
            assert two.undoes(one) == same


def _list(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_copy_moves_what_its_addresses_say(order: tuple[int, ...]) -> None:
    copy = f"  ROOT c = f32[4,1,6]{{{_list(order)}}} copy(p)"
    text = entry(f"  p = f32[4,1,6]{{2,1,0}} parameter(0)\n{copy}")
    (move,) = moves(hlo_lint.parse(text))
    shapes = (move.before, move.after)
    before, after = (Laid(each.dims, each.minor_to_major[::-1]).addresses() for each in shapes)
    assert (not move.steps) == bool((before == after).all())


@pytest.mark.parametrize("folder", sorted(DUMPS.glob("*/*")), ids=lambda path: path.name)
def test_real_dumps_are_clean(folder: Path) -> None:
    assert hlo_lint.lint(folder, RULES).findings == ()


ELEMENTWISE = re.compile(
    r"^(  (?:ROOT )?%\S+ = \w+\[\d+(?:,\d+)+\]\{)([\d,]+)(\} (?:add|multiply|convert|divide)\()",
    re.M,
)


@pytest.mark.parametrize("name", ["attention", "cublaslt_fission"])
def test_each_operation_of_a_dump_is_found_once_it_is_turned(name: str, tmp_path: Path) -> None:
    (source,) = (DUMPS / "gpu-jax0.11.2" / name).glob("*gpu_after_optimizations.txt")
    text = source.read_text()
    places = list(ELEMENTWISE.finditer(text))
    assert places
    for place in places:
        order = place[2][::-1]
        wrong = text[: place.start()] + place[1] + order + place[3] + text[place.end() :]
        (tmp_path / source.name).write_text(wrong)
        findings = hlo_lint.lint(tmp_path, ["layout-changed"]).findings
        line = text.count("\n", 0, place.start()) + 1
        assert line in {finding.line for finding in findings}


@pytest.mark.parametrize(
    ("type_text", "dimensions", "shown"),
    [
        ("f32[8,8]{1,0}", "1,0", "f32[8,8] by dimensions={1,0}"),
        ("f32[4,6,6]{2,1,0}", "0,2,1", "f32[4,6,6] by dimensions={0,2,1}"),
        ("f32[4,4,4]{2,1,0}", "1,2,0", "f32[4,16] by dimensions={1,0}"),
    ],
)
def test_a_move_shows_its_permutation(type_text: str, dimensions: str, shown: str) -> None:
    (move,) = moves(hlo_lint.parse(transposing(type_text, type_text, dimensions)))
    assert str(move) == shown
