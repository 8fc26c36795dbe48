"""Printed shapes compared with inferred shapes."""

from __future__ import annotations

from hlo_lint.rules.base import Bad, Good
from hlo_lint.rules.verifier import VerifierRule


class WrongResultShape(VerifierRule):
    """An instruction whose shape differs from the shape that XLA infers.

    ## Why
    XLA infers the shape of every instruction and compares it with the stated shape (`ShapeVerifier`
    in `xla/service/hlo_verifier.cc`). With a wrong shape, a kernel writes past its result, or
    leaves a part of it unwritten. XLA's own parser accepts most of these texts, and release builds
    run no verifier between passes.

    Floating-point precision may differ where XLA permits it. Dynamic dimensions are not compared,
    and layouts only for opcodes that pass on a buffer.
    """

    messages = (
        "Expected instruction to have shape equal to",
        "Implicit broadcast is not allowed in HLO",
        "Binary op with incompatible shapes",
        "Reshape operation has mismatched element counts",
        "are not a permutation of the operand dimensions",
        "expects the same number of elements in result shape",
        "dim size operand per result dimension",
        "non-positive base area dilation factor",
        "Expected array argument for",
        "Invalid scatter_dims_to_operand_dims mapping",
    )
    table = """
        result-shape: ShapeVerifier::CheckShape
          the printed shape is the inferred one
            ROOT t = (f32[8], f32[4]) tuple(f32[8] p, p)  // error
        operand-count: CheckOperandCount
          the opcode's number of operands
            ROOT r = f32[8] select(f32[8] p, p)  // error
        operand-shapes: ShapeVerifier::HandleElementwiseBinary
          elementwise opcodes, clamp, select, concatenate, convert, copy, dot: operands match
            ROOT r = f32[8] add(f32[8] p, s32[8] q)  // error
        ragged-dot-shape: ShapeVerifier::HandleRaggedDot (ragged-dot)
          ragged-dot: operands and groups match
            p = f32[8,4] parameter(0)
            q = f32[2,5,6] parameter(1)
            n = s32[2] parameter(2)
            ROOT r = f32[8,6] ragged-dot(p, q, n), lhs_contracting_dims={1},  // error
                rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
        linear-algebra-shape: ShapeVerifier::HandleConvolution
          (convolution fft triangular-solve cholesky opt-barrier)
          convolution, fft, triangular-solve, cholesky, opt-barrier: inferred
            ROOT c = f32[4,3] cholesky(f32[4,3] p), lower=true  // error
        device-id-shape: ShapeVerifier::HandlePartitionId (partition-id replica-id)
          partition-id, replica-id: u32[]
            ROOT r = s32[] replica-id()  // error
        reordered-shape: ShapeVerifier::HandleReverse
          (collective-permute-done reduce-precision reverse topk)
          collective-permute-done, reduce-precision, reverse, topk: inferred
            ROOT r = f32[8] reverse(f32[8] p), dimensions={1}  // error
        iota-shape: ShapeVerifier::HandleIota (iota)
          iota: a valid dimension, numeric elements
            ROOT i = s32[8] iota(), iota_dimension=1  // error
        tuple-element-shape: ShapeVerifier::HandleGetTupleElement (get-tuple-element)
          get-tuple-element: the element's shape
            ROOT g = f32[8] get-tuple-element((f32[8], s32[]) p), index=1  // error
        broadcast-shape: ShapeVerifier::HandleBroadcast (broadcast)
          broadcast: each dimension maps to a dimension of equal size
            ROOT b = f32[4,9] broadcast(f32[8] p), dimensions={1}  // error
        dynamic-reshape-shape: ShapeVerifier::HandleDynamicReshape (dynamic-reshape)
          dynamic-reshape: sizes as s32[]
            ROOT r = f32[2,<=4] dynamic-reshape(f32[8] p, s32[] n)  // error
        reshape-elements: ShapeVerifier::HandleReshape (reshape)
          reshape: equal element counts and types
            ROOT r = f32[23] reshape(f32[8,3] p)  // error
        transpose-shape: ShapeVerifier::HandleTranspose (transpose)
          transpose: inferred
            ROOT t = f32[8,3] transpose(f32[8,3] p), dimensions={1,0}  // error
        slice-shape: ShapeVerifier::HandleSlice
          (slice dynamic-slice dynamic-update-slice tuple select-and-scatter pad)
          slices, pad, tuple, select-and-scatter: inferred
            ROOT s = f32[4] slice(f32[8] p), slice={[0:5]}  // error
        gather-shape: ShapeVerifier::HandleGather
          (batch-norm-training batch-norm-inference batch-norm-grad gather scatter
          get-dimension-size set-dimension-size)
          batch norms, gather, scatter, sizes of dimensions: inferred
            ROOT s = f32[<=8] set-dimension-size(f32[8] p, s32[] n), dimensions={1}  // error
        scatter-dimensions: InstructionVerifier::HandleScatter
          scatter: scatter_dims_to_operand_dims are dimensions of the operand
            add { ROOT s = f32[] add(f32[] a, f32[] b) }
            ROOT s = f32[8] scatter(f32[8] p, s32[2,1] i, f32[2] u), to_apply=add,  // error
                scatter_dims_to_operand_dims={1}, index_vector_dim=1, inserted_window_dims={0},
                update_window_dims={}
        broadcast-dimensions: InstructionVerifier::HandleBroadcast
          broadcast: an entry in dimensions for each dimension of the operand
            ROOT b = f32[8,3,2] broadcast(f32[8,3] p), dimensions={0}  // error
        implicit-broadcast: InstructionVerifier::HandleElementwiseBinary
          elementwise opcodes: no implicit broadcast
            ROOT r = f32[8] add(f32[8] p, f32[1] q)  // error
        tuple-element-operand: InstructionVerifier::HandleGetTupleElement
          get-tuple-element: the operand is a tuple
            ROOT g = f32[8] get-tuple-element(f32[8] p), index=0  // error
        transpose-dimensions: InstructionVerifier::HandleTranspose
          transpose: a permutation of all dimensions
            ROOT t = f32[8] transpose(f32[8,3] p), dimensions={0}  // error
    """
    examples = (
        Bad.entry("ROOT s = add(f32[8,3] p, f32[1,3] q)  // error"),
        Good.entry("""
            t = f32[3,8] transpose(f32[8,3] p), dimensions={1,0}
            r = f32[24] reshape(t)
            s = f32[5] slice(r), slice={[0:5]}
            b = f32[4,5] broadcast(s), dimensions={1}
            n = bf16[4,5] convert(b)
            a = f32[4,5] add(b, n)
            g = (f32[4,5], f32[24]) tuple(a, r)
            ROOT o = f32[24] get-tuple-element(g), index=1
        """),
    )
