"""GEMM calls on arrays that cuBLASLt cannot describe."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from hlo_lint.analysis.layout_mismatches import in_other_orders
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.hlo.arrays import operand_array
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.shape import ArrayShape, Layout, arrays
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule, Stage
from hlo_lint.text.edits import Fix

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.gemm import DotDimensions


TARGETS: Final = ('"__cublas$lt$matmul"', '"__cublas$gemm"')


_PROGRAM = """
p = f32[4,8,16]{layout} parameter(0)
q = f32[4,16,32]{{2,1,0}} parameter(1)
ROOT g = (f32[4,8,32]{{2,1,0}}, s8[0]{{0}}) custom-call(p, q),  // error
    custom_call_target="__cublas$lt$matmul", backend_config={{"gemm_backend_config":{{
    "alpha_real":1,"beta":0,"dot_dimension_numbers":{{
    "lhs_batch_dimensions":["0"],"lhs_contracting_dimensions":["2"],
    "rhs_batch_dimensions":["0"],"rhs_contracting_dimensions":["1"]}}}}}}
"""


class GemmLayoutUnsupported(Rule):
    """A GEMM call on an array whose layout cuBLASLt cannot express.

    ## Why
    cuBLASLt takes a batch of row-major or column-major matrices: the dimensions of the batch, of
    the rows and of the columns must each be contiguous, and the batch must not be most minor. XLA
    checks this when it rewrites a dot into the call, and next when it emits the thunk: `dims not
    physically_sequential`, `batch in most minor dimension` (`matmul_utils.cc:62-197`). Passes in
    between may change an operand or the result unchecked.

    ## Fix
    Copies the operand into the descending order, where cuBLASLt supports that.
    """

    messages = ("batch in most minor dimension",)
    opcodes = frozenset({"custom-call"})
    always_reported = True
    evidence = (RefusedByXla("batch in most minor dimension", passes="none"),)
    examples = (
        Bad.final(
            _PROGRAM.format(layout="{0,2,1}"),
            fixed="""
            p = f32[4,8,16]{0,2,1} parameter(0)
            q = f32[4,16,32]{2,1,0} parameter(1)
            g.copy = f32[4,8,16]{2,1,0} copy(p)
            ROOT g = (f32[4,8,32]{2,1,0}, s8[0]{0}) custom-call(g.copy, q),
                custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{
                "alpha_real":1,"beta":0,"dot_dimension_numbers":{
                "lhs_batch_dimensions":["0"],"lhs_contracting_dimensions":["2"],
                "rhs_batch_dimensions":["0"],"rhs_contracting_dimensions":["1"]}}}
            """,
        ),
        Good.final(_PROGRAM.format(layout="{1,2,0}")),
    )

    def check(self, computation: Computation, stage: Stage) -> Findings:
        """Operands and results that are not a batch of row-major or column-major matrices."""
        if stage.backend != "gpu":
            return
        for call in in_other_orders(computation, self.opcodes):
            for side in _wrong_sides(call):
                role = "result" if side.operand is None else f"operand {side.operand}"
                yield Finding(
                    call,
                    f"cuBLASLt cannot read {side.shape}, the {role} of this GEMM: {side.why}",
                    operand=side.operand,
                    fixable=side.operand is not None,
                )

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Copies the operands into the descending order."""
        rewrite = Rewrite(module)
        for side in _wrong_sides(instruction):
            descending = side.shape.with_layout(None).minor_to_major
            layout = (side.shape.layout or Layout(()))._replace(minor_to_major=descending)
            copied = side.shape.with_layout(layout)
            if side.operand is not None and not unsupported(copied, *side.groups):
                read = instruction.operands[side.operand]
                copy = rewrite.insert_before(instruction, "copy", copied, [read])
                rewrite.replace_operand(instruction, side.operand, copy)
        return rewrite.fix("copy the operand into the descending order")


class _WrongSide(NamedTuple):
    operand: int | None
    shape: ArrayShape
    groups: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    why: str


def _wrong_sides(call: Instruction) -> Iterator[_WrongSide]:
    if not any(target in call.attributes_text for target in TARGETS):
        return
    from hlo_lint.kernels.custom_calls import GemmConfig, readable_payload

    config = readable_payload(call)
    lhs, rhs = operand_array(call, 0), operand_array(call, 1)
    result = next(arrays(call.shape_or_none), None)  # before the workspace
    if not isinstance(config, GemmConfig) or lhs is None or rhs is None:
        return
    if result is None or not result.has_valid_layout:
        return
    if not config.dimensions.lhs_contracting:
        return  # an old release that prints no dimensions
    groups = dot_groups(config.dimensions, lhs, rhs)
    for number, (shape, group) in enumerate(zip((lhs, rhs, result), groups, strict=True)):
        why = unsupported(shape, *group)
        if why:
            yield _WrongSide(number if number < 2 else None, shape, group, why)


def unsupported(
    shape: ArrayShape, batch: Sequence[int], rows: Sequence[int], columns: Sequence[int]
) -> str:
    """The reason that cuBLASLt cannot read an array as a batch of matrices; empty if it can.

    The dimensions of each group must be adjacent and in order, and a batch must not be most minor
    (`GetBatchRowColumnShape` and `MatrixLayout::For`, `matmul_utils.cc:62-197`). Sizes do not
    matter, as in XLA.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> unsupported(parse_array("f32[4,8,16]{2,1,0}"), (0,), (1,), (2,))
    ''
    >>> unsupported(parse_array("f32[4,8,16]{0,2,1}"), (0,), (1,), (2,))
    'its batch dimension 0 is most minor'
    >>> unsupported(parse_array("f32[4,8,16]{2,0,1}"), (0, 1), (2,), ())
    'its dimensions 0, 1 are not adjacent and in order'
    """
    groups = {group[-1]: tuple(group) for group in (batch, rows, columns) if group}
    remaining = list(shape.minor_to_major)
    if sorted(chain(batch, rows, columns)) != list(range(shape.rank)):
        return ""  # not a valid product: another rule reports it
    if batch and remaining[0] == batch[-1]:
        return f"its batch dimension {batch[-1]} is most minor"
    while remaining:
        group = groups.get(remaining[0])
        if group is None:
            apart = next(dims for dims in groups.values() if remaining[0] in dims)
        elif tuple(remaining[: len(group)]) != group[::-1]:
            apart = group
        else:
            del remaining[: len(group)]
            continue
        return f"its dimensions {', '.join(map(str, apart))} are not adjacent and in order"
    return ""


def dot_groups(
    dimensions: DotDimensions, lhs: ArrayShape, rhs: ArrayShape
) -> tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...]:
    """The batch, row and column dimensions of lhs, rhs and product."""
    lhs_free = _free(lhs, dimensions.lhs_batch, dimensions.lhs_contracting)
    rhs_free = _free(rhs, dimensions.rhs_batch, dimensions.rhs_contracting)
    batches = len(dimensions.lhs_batch)
    numbers = tuple(range(batches + len(lhs_free) + len(rhs_free)))
    ends = batches, batches + len(lhs_free)
    return (
        (dimensions.lhs_batch, lhs_free, dimensions.lhs_contracting),
        (dimensions.rhs_batch, dimensions.rhs_contracting, rhs_free),
        (numbers[: ends[0]], numbers[ends[0] : ends[1]], numbers[ends[1] :]),
    )


def _free(shape: ArrayShape, batch: Sequence[int], contracting: Sequence[int]) -> tuple[int, ...]:
    return tuple(d for d in range(shape.rank) if d not in batch and d not in contracting)
