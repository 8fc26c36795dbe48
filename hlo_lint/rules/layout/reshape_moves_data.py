"""The precondition of LayoutNormalization on reshapes: they move no byte."""

from __future__ import annotations

from functools import lru_cache

from hlo_lint.analysis.buffers import source_of
from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.kinds import instructions_in
from hlo_lint.analysis.rewrite import OperandValue, Rewrite
from hlo_lint.analysis.stage import ANY_STAGE
from hlo_lint.dumps.phases import LAYOUT_NORMALIZATION, RESHAPES_ARE_BITCASTS
from hlo_lint.hlo.ir import Computation, Instruction, Module, Operand
from hlo_lint.hlo.kinds import RowKind
from hlo_lint.hlo.layouts import (
    align_layouts,
    carry_layout_facts,
    compose,
    inverse,
    normalize,
    packs_alike,
    reshape_is_bitcast,
)
from hlo_lint.hlo.shape import ArrayShape, Layout, Shape, shape_or_none
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Stage
from hlo_lint.rules.evidence import PublicReport, RefusedByXla
from hlo_lint.rules.options import Option
from hlo_lint.text.edits import Fix

GEMM_TARGET = "__cublas$"
TRITON_GEMM = "__triton_gemm"


class ReshapeMovesData(Rule):
    """A reshape whose layouts force bytes to move.

    ## Why
    LayoutNormalization assumes that a `reshape` outside a fusion moves no byte: its operand and its
    result, both read in row-major order, visit memory in the same order. ReshapeDecomposer ensures
    that, but a later pass that pins a layout breaks it (a GEMM rewritten into a cuBLASLt call, a
    fusion split because the autotuner chose another backend). XLA then fails with `RET_CHECK …
    ShapeUtil::ReshapeIsBitcast(s, operand->shape())`, which names neither the instruction nor the
    pass, and fails only in runs where that backend won.

    ## Fix
    Spells the move out. Before LayoutNormalization it does as ReshapeDecomposer would: a `copy` of
    the operand or of the result, whichever makes the reshape free, and a `bitcast`. In a normalized
    module it writes a `transpose` between descending layouts with `bitcast`s around it. It moves
    both sides only if moving one is not enough.
    """

    subsumes = frozenset({"bad-bitcast"})
    precondition = RESHAPES_ARE_BITCASTS
    move_as = Option(
        "auto",
        "How the fix spells a move: `auto` is `copy` if layout_normalization is known to come "
        "next, else `transpose`.",
        choices=("auto", "copy", "transpose"),
    )
    opcodes = frozenset({"reshape"})
    evidence = (
        RefusedByXla(
            "ShapeUtil::ReshapeIsBitcast(s, operand->shape())", passes="layout_normalization"
        ),
        PublicReport("ROCm/xla#817", "dumps/gpu-jax0.10.0/cublaslt_fission_crash"),
    )
    examples = (
        Bad.entry(
            "ROOT r = f32[4,2,3]{0,1,2} reshape(f32[8,3]{1,0} p)  // error",
            fixed="""
            r.bitcast = f32[4,2,3]{2,1,0} bitcast(f32[8,3]{1,0} p)
            r.transpose = f32[3,2,4]{2,1,0} transpose(r.bitcast), dimensions={2,1,0}
            ROOT r = f32[4,2,3]{0,1,2} bitcast(r.transpose)
            """,
            options={"move-as": "transpose"},
        ),
        Bad.entry(
            """
            HloModule gemm_pins_a_layout, entry_computation_layout={(f16[16,64,128]{2,1,0}, f16[16,32,64]{2,1,0})->f32[2,8,128,32]{2,3,1,0}}
            %a = f16[16,64,128]{2,1,0} parameter(0)
            %b = f16[16,32,64]{2,1,0} parameter(1)
            %gemm = (f32[16,128,32]{2,1,0}, s8[0]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", metadata={op_name="dot"}
            %value = f32[16,128,32]{2,1,0} get-tuple-element(%gemm), index=0, metadata={op_name="dot"}
            ROOT %split = f32[2,8,128,32]{2,3,1,0} reshape(%value), metadata={op_name="reshape"}  // error
            """,  # noqa: E501
            fixed="""
            HloModule gemm_pins_a_layout, entry_computation_layout={(f16[16,64,128]{2,1,0}, f16[16,32,64]{2,1,0})->f32[2,8,128,32]{2,3,1,0}}
            %a = f16[16,64,128]{2,1,0} parameter(0)
            %b = f16[16,32,64]{2,1,0} parameter(1)
            %gemm = (f32[16,128,32]{2,1,0}, s8[0]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", metadata={op_name="dot"}
            %value = f32[16,128,32]{2,1,0} get-tuple-element(%gemm), index=0, metadata={op_name="dot"}
            %split.copy = f32[16,128,32]{1,2,0} copy(%value), metadata={op_name="dot"}
            ROOT %split = f32[2,8,128,32]{2,3,1,0} bitcast(%split.copy), metadata={op_name="dot"}
            """,  # noqa: E501
            options={"move-as": "copy"},
        ),
        Good.entry("ROOT r = f32[2,8,128,32]{2,3,1,0} reshape(f32[16,128,32]{1,2,0} p)"),
        Good.entry("""
            body { ROOT s = f32[4,2,3]{0,1,2} reshape(f32[8,3]{1,0} q) }
            ROOT r = f32[4,2,3]{0,1,2} fusion(f32[8,3]{1,0} p), kind=kLoop, calls=body
        """),
    )

    def check(self, computation: Computation) -> Findings:
        """Reshapes for which `ShapeUtil::ReshapeIsBitcast` is false."""
        for reshape in instructions_in(computation, "reshape", _may_move):
            shapes = _shapes(reshape)
            if shapes is None or shapes[0].elements != shapes[1].elements:
                continue  # not a valid reshape: another rule reports it
            operand, result = shapes
            if reshape_is_bitcast(operand, result, ignore_element_type=True):
                continue
            yield Finding(
                reshape,
                f"this reshape moves bytes: {operand} and {result} read memory in different orders",
                notes=_feeder(reshape.operands[0]),
                operand=0,
                key=f"{operand} to {result}",
            )

    def introduction_notes(
        self, instruction: Instruction, before: Module, after: Module
    ) -> tuple[str, ...]:
        """A note naming the Triton GEMM fusions that the pass split into the feeding GEMM call."""
        producer = source_of(instruction.operands[0])
        if producer is None or GEMM_TARGET not in producer.attributes_text:
            return ()
        left = {fusion.name for fusion in _triton_gemms(after)}
        gone = [fusion.name for fusion in _triton_gemms(before) if fusion.name not in left]
        if not gone:
            return ()
        names = ", ".join(f"%{name}" for name in gone)
        return (f"the pass split {names} ({TRITON_GEMM}): another backend won (fission)",)

    def fix(self, instruction: Instruction, module: Module, stage: Stage = ANY_STAGE) -> Fix | None:
        """Spell the move out as copy and bitcast, or as transpose and bitcast."""
        shapes = _shapes(instruction)
        if shapes is None or not _can_be_moved(*shapes) or "" in instruction.attributes:
            return None
        form = self.move_as
        if form == "auto":
            form = "copy" if stage.next_pass == LAYOUT_NORMALIZATION else "transpose"
        steps = spell_out(*shapes)
        if form == "transpose":
            steps = as_transposes(shapes[0], steps)
        rewrite = Rewrite(module)
        value: OperandValue = instruction.operands[0]
        for opcode, shape, dimensions in steps:
            order = dimensions or None
            value = rewrite.insert_before(instruction, opcode, shape, [value], dimensions=order)
        rewrite.replace(instruction, value)
        return rewrite.fix(f"spell the move out as {form} and bitcast")


_Step = tuple[str, ArrayShape, tuple[int, ...]]
"""An opcode, its result shape, and the dimensions of a transpose."""


def spell_out(operand: ArrayShape, result: ArrayShape) -> list[_Step]:
    """`copy` and `bitcast` steps from operand to result, as ReshapeDecomposer chooses them.

    Both sides hold the same bytes: if either could be moved, the operand is. Unlike in XLA
    (`reshape_decomposer.cc:32-77`), intermediate shapes keep element size, memory space and dynamic
    bounds, and a tiled side is always the copied side, out of its tiles or into them: a bitcast
    between two tilings moves bytes.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> def steps(operand: str, result: str) -> str:
    ...     spelled = spell_out(parse_array(operand), parse_array(result))
    ...     return " ".join(f"{opcode} {shape}" for opcode, shape, _ in spelled)
    >>> steps("f32[4,2,3]{0,1,2}", "f32[8,3]{1,0}")
    'copy f32[4,2,3]{2,1,0} bitcast f32[8,3]{1,0}'
    >>> steps("f32[8,3]{1,0}", "f32[4,2,3]{0,1,2}")
    'bitcast f32[4,2,3]{2,1,0} copy f32[4,2,3]{0,1,2}'
    >>> steps("f32[4,2,3,8]{0,2,1,3}", "f32[8,3,2,4]{0,2,1,3}")
    'copy f32[4,2,3,8]{3,2,1,0} bitcast f32[8,3,2,4]{3,2,1,0} copy f32[8,3,2,4]{0,2,1,3}'
    >>> steps("f32[16,128]{0,1:T(8,128)}", "f32[2048]{0}")
    'copy f32[16,128]{1,0} bitcast f32[2048]{0}'
    """
    if not result.is_tiled:
        aligned = align_layouts(result, operand.dims)
        if aligned is not None:
            return [("copy", _like(operand, aligned.minor_to_major), ()), ("bitcast", result, ())]
    if not operand.is_tiled:
        aligned = align_layouts(operand, result.dims)
        if aligned is not None:
            return [("bitcast", _like(result, aligned.minor_to_major), ()), ("copy", result, ())]
    # Neither side can be aligned: move both, to and from the descending order.
    straight, reshaped = (
        _like(shape, shape.with_layout(None).minor_to_major) for shape in (operand, result)
    )
    steps: list[_Step] = [("copy", straight, ()), ("bitcast", reshaped, ()), ("copy", result, ())]
    return [
        step
        for step, before in zip(steps, (operand, straight, reshaped), strict=True)
        if step[0] == "bitcast" or step[1] != before
    ]


def as_transposes(operand: ArrayShape, steps: list[_Step]) -> list[_Step]:
    """Replace each copy step by a transpose between descending layouts.

    A copy becomes what LayoutNormalization's `HandleCopy` makes of it
    (`layout_normalization.cc:621`): a bitcast to physical order, a transpose, and a bitcast to the
    result shape. Consecutive bitcasts are merged.

    >>> from hlo_lint.hlo.shape import parse_array
    >>> before = parse_array("f32[16,128,32]{2,1,0}")
    >>> for opcode, shape, dimensions in as_transposes(
    ...     before, spell_out(before, parse_array("f32[2,8,128,32]{2,3,1,0}"))):
    ...     print(opcode, shape, dimensions)
    transpose f32[16,32,128]{2,1,0} (0, 2, 1)
    bitcast f32[2,8,128,32]{2,3,1,0} ()
    """
    spelled: list[_Step] = []
    before = operand
    for opcode, shape, _ in steps:
        if opcode == "copy":
            dimensions = compose(inverse(before.minor_to_major[::-1]), shape.minor_to_major[::-1])
            spelled.append(("bitcast", normalize(before), ()))
            spelled.append(("transpose", normalize(shape), dimensions))
        spelled.append(("bitcast", shape, ()))
        before = shape
    merged: list[_Step] = []
    shape_so_far = operand
    for number, step in enumerate(spelled):
        bitcast_next = number + 1 < len(spelled) and spelled[number + 1][0] == "bitcast"
        if step[0] == "bitcast" and (bitcast_next or step[1] == shape_so_far):
            continue
        merged.append(step)
        shape_so_far = step[1]
    return merged


def _like(shape: ArrayShape, order: tuple[int, ...]) -> ArrayShape:
    """The shape with another dimension order and without tiles."""
    bare = ArrayShape(shape.dtype, shape.dims, Layout(order), shape.dynamic)
    untiled = shape.with_layout((shape.layout or Layout(order))._replace(tiles=(), rest=()))
    return carry_layout_facts(untiled, bare)


def _can_be_moved(operand: ArrayShape, result: ArrayShape) -> bool:
    """True if both shapes hold the same element type in the same memory."""
    is_same = operand.dtype == result.dtype and operand.elements == result.elements
    return is_same and packs_alike(_flat(operand), _flat(result))


def _flat(shape: ArrayShape) -> ArrayShape:
    """The shape flattened to rank 1, without tiles or dimension order."""
    layout = (shape.layout or Layout(()))._replace(minor_to_major=(0,), tiles=(), rest=())
    return ArrayShape(shape.dtype, (shape.elements,), layout)


def _may_move(kind: RowKind) -> bool:
    """True unless the operand and the result read memory in the same order."""
    (_, result, _, operands) = kind
    return len(operands) != 1 or operands[0] is None or not _is_bitcast(operands[0], result)


@lru_cache(maxsize=1 << 12)
def _is_bitcast(operand: str, result: str) -> bool:
    arrays = _placed(shape_or_none(operand), shape_or_none(result))
    return arrays is not None and reshape_is_bitcast(*arrays, ignore_element_type=True)


def _shapes(reshape: Instruction) -> tuple[ArrayShape, ArrayShape] | None:
    """The shapes of operand and result if both are arrays with valid layouts."""
    is_whole = len(reshape.operand_names) == 1
    return _placed(reshape.operand_shape(0), reshape.shape_or_none) if is_whole else None


def _placed(operand: Shape | None, result: Shape | None) -> tuple[ArrayShape, ArrayShape] | None:
    match operand, result:
        case ArrayShape(), ArrayShape() if operand.has_places and result.has_places:
            return operand, result
    return None


def _feeder(operand: Operand) -> tuple[str, ...]:
    producer = source_of(operand)
    if producer is None or GEMM_TARGET not in producer.attributes_text:
        return ()
    target = producer.custom_call_target
    return (f"%{producer.name}, which feeds it, is a GEMM call ({target}) with a pinned layout",)


def _triton_gemms(module: Module) -> list[Instruction]:
    fusions = instructions_of(module, "fusion")
    return [fusion for fusion in fusions if TRITON_GEMM in fusion.attributes_text]
