"""Fission foretold, held against what XLA left when fission was forced."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.parser.module import parse_file
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.kernels.autotuning import cublaslt_fission
from hlo_lint.kernels.autotuning.cublaslt_fission import BackendSwitch, SwitchOutcome, predict
from tests.conftest import FIXTURES

FLIPS = FIXTURES / "flips"
DUMPS = FIXTURES / "dumps"

Reshapes = set[tuple[str, str]]


def read(path: Path) -> Module:
    return parse_file(path.read_bytes(), path).modules[0]


def before(folder: str) -> list[Path]:
    found = sorted((FLIPS / folder).glob("*.before.hlo"))
    assert found, f"{folder} holds no text"
    return found


def left_by_xla(path: Path) -> Reshapes:
    """Operand and result of each reshape outside fusions after the autotuner."""
    after = read(path.with_name(path.name.replace(".before.", ".after.")))
    return {
        (str(reshape.operands[0].shape), str(reshape.shape))
        for computation in after.nonfusion_computations
        for reshape in computation.with_opcode("reshape")
    }


def spelled(flips: tuple[BackendSwitch, ...], *, alone: bool = False) -> Reshapes:
    return {
        (str(reshaped.operand), str(reshaped.result))
        for flip in flips
        for reshaped in flip.reshapes
        if reshaped.alone or not alone
    }


@pytest.mark.parametrize("path", before("breaks"), ids=lambda path: path.name)
def test_a_program_that_jax_0_10_0_dies_of_breaks(path: Path) -> None:
    flips = predict(read(path))
    assert [flip.outcome for flip in flips].count(SwitchOutcome.BREAKS) == 1
    assert spelled(flips) == left_by_xla(path)


@pytest.mark.parametrize("path", before("slows"), ids=lambda path: path.name)
def test_a_program_whose_reshapes_move_nothing_slows(path: Path) -> None:
    flips = predict(read(path))
    assert {flip.outcome for flip in flips} == {SwitchOutcome.SLOWS}
    assert spelled(flips) == left_by_xla(path)


@pytest.mark.parametrize("path", before("safe"), ids=lambda path: path.name)
def test_a_program_that_keeps_no_reshape_alone_is_not_named(path: Path) -> None:
    assert predict(read(path)) == ()


@pytest.mark.parametrize("path", before("left"), ids=lambda path: path.name)
def test_what_jax_0_10_2_leaves_is_foretold_shape_by_shape(path: Path) -> None:
    assert spelled(predict(read(path)), alone=True) == left_by_xla(path)


@pytest.mark.parametrize(
    "pattern",
    [
        "gpu-jax0.10.0/cublaslt_fission_crash/*after_gemm-fusion-swap-operands*.txt",
        "gpu-jax0.10.2/cublaslt_fission/*.before_autotuner.txt",
        "gpu-jax0.11.2/cublaslt_fission/*.before_config_assignment.txt",
    ],
)
def test_the_dot_of_the_bug_report_breaks_in_each_release(pattern: str) -> None:
    (path,) = DUMPS.glob(pattern)
    flips = predict(read(path))
    assert [(flip.outcome, str(flip.first.operand), str(flip.first.result)) for flip in flips] == [
        (SwitchOutcome.BREAKS, "f32[16,128,32]{2,1,0}", "f32[2,8,128,32]{2,3,1,0}")
    ]


def test_dots_with_one_batch_dimension_are_not_named() -> None:
    (path,) = DUMPS.glob("gpu-jax0.11.2/attention/*.before_config_assignment.txt")
    assert predict(read(path)) == ()


PLAIN = """
HloModule m

fused {
  p = f16[2,8,64,128]{3,2,1,0} parameter(0)
  q = f16[2,8,64,32]{3,2,1,0} parameter(1)
  ROOT d = f32[2,8,128,32]{3,2,1,0} dot(p, q), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, lhs_contracting_dims={2}, rhs_contracting_dims={2}
}

ENTRY e {
  a = f16[2,8,64,128]{3,2,1,0} parameter(0)
  b = f16[2,8,64,32]{3,2,1,0} parameter(1)
  ROOT f = f32[2,8,128,32]{3,2,1,0} fusion(a, b), kind=kCustom, calls=fused, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
}
"""  # noqa: E501

ROOT = "ROOT d = f32[2,8,128,32]{3,2,1,0}"


def outcomes(text: str) -> list[SwitchOutcome]:
    return [flip.outcome for flip in predict(parse_file(text).modules[0])]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("__triton_gemm", "__triton_nested_gemm_fusion"), ("__triton_gemm", "__triton"),
        ("calls=fused", "calls=elsewhere"), ("f16[2,8", "f16[512,128"), ("p = f16", "p = bf16"),
        ("f16", "u8"),
    ],
)  # fmt: skip
def test_what_no_gemm_call_takes_cannot_flip(old: str, new: str) -> None:
    assert outcomes(PLAIN) == [SwitchOutcome.SLOWS]
    changed = PLAIN.replace(old, new)
    assert changed != PLAIN
    assert outcomes(changed) == []


def test_a_dot_with_the_fastest_batch_dimension_is_not_taken() -> None:
    shape = "p = f16[2,8,64,128]"
    assert outcomes(PLAIN.replace(f"{shape}{{3,2,1,0}}", f"{shape}{{0,1,3,2}}")) == []


def test_a_layout_that_is_not_descending_breaks() -> None:
    odd = PLAIN.replace(ROOT, ROOT.replace("3,2,1,0", "2,3,1,0"))
    assert outcomes(odd) == [SwitchOutcome.BREAKS]


def test_an_operand_that_is_not_descending_breaks_under_a_descending_dot() -> None:
    strange = PLAIN.replace("q = f16[2,8,64,32]{3,2,1,0}", "q = f16[2,8,64,32]{2,1,3,0}")
    (flip,) = predict(parse_file(strange).modules[0])
    assert flip.outcome is SwitchOutcome.BREAKS
    assert str(flip.first.result) == "f16[16,64,32]{1,2,0}"


def test_work_after_the_dot_takes_the_result_reshape_in() -> None:
    busy = PLAIN.replace(ROOT, ROOT.removeprefix("ROOT ")).replace(
        "\n}\n\nENTRY", "\n  ROOT n = f32[2,8,128,32]{3,2,1,0} negate(d)\n}\n\nENTRY"
    )
    (flip,) = predict(parse_file(busy).modules[0])
    assert [
        reshaped.alone for reshaped in flip.reshapes if reshaped.what == cublaslt_fission.RESULT
    ] == [False]
    assert flip.outcome is SwitchOutcome.SLOWS  # of the operands


def test_a_reshape_inside_the_fusion_comes_out_with_the_dot() -> None:
    held = """
        HloModule m

        fused {
          p = f16[64,128]{0,1} parameter(0)
          r = f16[8192]{0} reshape(p)
          s = f16[64,128]{1,0} bitcast(r)
          q = f16[64,32]{1,0} parameter(1)
          ROOT d = f32[128,32]{1,0} dot(s, q), lhs_contracting_dims={0}, rhs_contracting_dims={0}
        }

        ENTRY e {
          a = f16[64,128]{0,1} parameter(0)
          b = f16[64,32]{1,0} parameter(1)
          ROOT f = f32[128,32]{1,0} fusion(a, b), kind=kCustom, calls=fused, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
        }
        """  # noqa: E501
    assert outcomes(held) == [SwitchOutcome.BREAKS]
    assert outcomes(held.replace("{0,1}", "{1,0}")) == [SwitchOutcome.SLOWS]


def test_the_explanation_names_the_dot_and_both_shapes() -> None:
    (flip,) = predict(read(FLIPS / "breaks" / "result_moves.before.hlo"))
    assert isinstance(flip.first.operand, ArrayShape)
    for said in (f"%{flip.dot}", str(flip.first.operand), str(flip.first.result), "moves bytes"):
        assert said in flip.explanation
    assert flip.fusion.opcode == "fusion"


@given(st.data())
def test_no_text_makes_it_raise(data: st.DataObject) -> None:
    text = PLAIN
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 12))
        put = data.draw(
            st.sampled_from(["", "0", "{}", "[]", ",", "99", "f8e4m3fn", "(f32[2])", "p"])
        )
        text = text[:start] + put + text[start + length :]
    for module in parse_file(text).modules:
        assert isinstance(predict(module), tuple)
