"""What several attributes say together."""

from __future__ import annotations

import pytest

import hlo_lint
from hlo_lint.hlo import dimension_numbers as dn
from hlo_lint.hlo.attributes import (
    AttributeSyntaxError,
    ConvolutionDimensionNumbers,
    ReplicaGroupList,
    Tolerance,
    WindowDimension,
)
from hlo_lint.hlo.ir import Instruction


def instruction(text: str, operands: str = "f32[4,8]") -> Instruction:
    module = hlo_lint.parse(
        f"HloModule m\n\nENTRY e {{\n  a = {operands} parameter(0)\n  ROOT n = {text}\n}}\n"
    )
    assert module.problems == ()
    assert module.entry is not None
    assert module.entry.root is not None
    return module.entry.root


def test_a_dot_has_dimension_numbers() -> None:
    dot = instruction(
        "f32[4] dot(a, a), lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, "
        "rhs_contracting_dims={1}, operand_precision={high,default}, algorithm=dot_tf32_tf32_f32"
    )
    assert dn.dot_dimension_numbers(dot) == dn.DotDimensionNumbers((1,), (1,), (0,), (0,))
    assert dn.precision(dot) == dn.Precision(("high", "default"), "dot_tf32_tf32_f32")


def test_a_ragged_dot_has_groups() -> None:
    dot = instruction(
        "f32[4] ragged-dot(a, a, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
        "lhs_ragged_dims={0}, rhs_group_dims={2}"
    )
    expected = dn.RaggedDotDimensionNumbers(dn.DotDimensionNumbers((1,), (0,)), (0,), (2,))
    assert dn.ragged_dot_dimension_numbers(dot) == expected


def test_a_convolution_has_a_window_and_groups() -> None:
    found = dn.convolution(
        instruction(
            "f32[4] convolution(a, a), window={size=3}, dim_labels=b0f_0io->b0f, "
            "feature_group_count=2"
        )
    )
    labels = ConvolutionDimensionNumbers(0, 2, (1,), 1, 2, (0,), 0, 2, (1,))
    assert found == dn.Convolution((WindowDimension(3),), labels, 2, 1)


def test_gather_and_scatter_have_dimension_numbers() -> None:
    gather = instruction(
        "f32[4] gather(a, a), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,8}, indices_are_sorted=true"
    )
    expected = dn.GatherDimensionNumbers((1,), (0,), (0,), 1, (1, 8), indices_are_sorted=True)
    assert dn.gather_dimension_numbers(gather) == expected
    scatter = instruction(
        "f32[4] scatter(a, a, a), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, unique_indices=true, to_apply=add"
    )
    found = dn.scatter_dimension_numbers(scatter)
    assert found == dn.ScatterDimensionNumbers((1,), (0,), (0,), 1, unique_indices=True)


@pytest.mark.parametrize(
    ("dtype", "attributes", "expected"),
    [
        ("f32", "direction=LT", dn.Comparison("LT", "FLOAT", False)),
        ("f32", "direction=LT, type=TOTALORDER", dn.Comparison("LT", "TOTALORDER", True)),
        ("bf16", "direction=GE, order=TOTAL", dn.Comparison("GE", "TOTALORDER", True)),
        ("s8", "direction=NE", dn.Comparison("NE", "SIGNED", True)),
        ("pred", "direction=EQ", dn.Comparison("EQ", "UNSIGNED", True)),
    ],
)
def test_a_comparison_follows_from_its_operands(
    dtype: str, attributes: str, expected: dn.Comparison
) -> None:
    compare = instruction(f"pred[4,8] compare(a, a), {attributes}", f"{dtype}[4,8]")
    assert dn.comparison(compare) == expected


def test_a_result_may_have_a_tolerance() -> None:
    sine = instruction("f32[4] sine(a), result_accuracy={tolerance={atol=0,rtol=0.5,ulps=1}}")
    assert dn.precision(sine).result == Tolerance(0.0, 0.5, 1)
    assert dn.precision(instruction("f32[4] sine(a)")) == dn.Precision(("default",))


def test_a_triangular_solve_has_options() -> None:
    solve = instruction("f32[4] triangular-solve(a, a), lower=true, transpose_a=ADJOINT")
    assert dn.triangular_solve(solve) == dn.TriangularSolve(False, True, False, "ADJOINT")


def test_a_collective_has_groups_or_pairs() -> None:
    reduce = instruction("f32[4] all-reduce(a), replica_groups={{0,1}}, channel_id=3, to_apply=f")
    assert dn.collective(reduce) == dn.Collective(ReplicaGroupList(((0, 1),)), channel_id=3)
    permute = instruction("f32[4] collective-permute(a), source_target_pairs={{0,1},{1,0}}")
    assert dn.collective(permute).source_target_pairs == ((0, 1), (1, 0))


@pytest.mark.parametrize(
    "function",
    [
        *(dn.dot_dimension_numbers, dn.ragged_dot_dimension_numbers, dn.convolution),
        *(dn.gather_dimension_numbers, dn.scatter_dimension_numbers, dn.comparison),
        *(dn.triangular_solve, dn.collective),
    ],
)
def test_another_opcode_is_an_error(function: object) -> None:
    assert callable(function)
    with pytest.raises(ValueError, match=r"^%n "):
        function(instruction("f32[4] negate(a)"))


def test_an_attribute_that_cannot_be_read_is_its_own_error() -> None:
    with pytest.raises(AttributeSyntaxError, match="expected a list of integers"):
        dn.dot_dimension_numbers(instruction("f32[4] dot(a, a), lhs_contracting_dims={x}"))
