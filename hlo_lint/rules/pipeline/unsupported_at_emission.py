"""Instructions of a final module that XLA:GPU cannot emit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hlo_lint.analysis import match as m
from hlo_lint.analysis.calls import instructions_of
from hlo_lint.analysis.walks import reached
from hlo_lint.dumps.pass_lists import jax_release
from hlo_lint.hlo.arrays import operand_array, result_array
from hlo_lint.hlo.ir import Computation, Instruction, Module
from hlo_lint.hlo.opcodes import BINARY, CONTROL_FLOW, KEEPS_TYPE
from hlo_lint.hlo.shape import ArrayShape, TupleShape
from hlo_lint.rules.base import Bad, Compilation, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import RefusedByXla

NO_THUNK = frozenset(
    "abs acos acosh add and asin asinh atan2 atanh batch-norm-grad batch-norm-inference "
    "batch-norm-training bitcast-convert broadcast cbrt ceil clamp compare complex concatenate "
    "convert convolution cosh cosine count-leading-zeros divide dot dynamic-slice "
    "dynamic-update-slice erf exponential exponential-minus-one floor gather imag iota "
    "is-finite log log-plus-one logistic map maximum minimum multiply negate not or pad popcnt "
    "power real reduce reduce-precision reduce-window remainder reshape reverse rng "
    "rng-bit-generator round-nearest-afz round-nearest-even rsqrt scatter select shift-left "
    "shift-right-arithmetic shift-right-logical sign sine sinh slice sqrt stochastic-convert "
    "subtract tan tanh topk transpose xor".split()
)
"""Opcodes without a thunk: passes fuse or expand them."""

TRITON_GEMM = "__triton_gemm"
_TRITON: Final = "__triton"


def _is_of_kind(fusion: Instruction, kind: str) -> bool:
    if kind not in fusion.attributes_text:
        return False  # most fusions: their attributes need not be split
    config = fusion.attributes.get("backend_config", "").replace(" ", "")
    return f'"kind":"{kind}"' in config


def _is_triton_gemm(fusion: Instruction) -> bool:
    return _is_of_kind(fusion, TRITON_GEMM)


def _has_no_blocks(fusion: Instruction) -> bool:
    return (
        _is_of_kind(fusion, _TRITON) and "block_level_fusion_config" not in fusion.attributes_text
    )


TRITON_FUSION = m.fusion().where(f"of kind {TRITON_GEMM}", _is_triton_gemm)
BLOCKLESS_FUSION = m.fusion().where(f"of kind {_TRITON}, without blocks", _has_no_blocks)
STABLE_SORT = m.sort().attr(is_stable=True)


def _has_several_orders(sort: Instruction) -> bool:
    shape = sort.shape_or_none
    results = shape.elements if isinstance(shape, TupleShape) else (shape,)
    arrays = [*results, *(operand.shape for operand in sort.operands)]
    laid = [array for array in arrays if isinstance(array, ArrayShape) and array.has_valid_layout]
    return len({array.minor_to_major for array in laid}) > 1


def _has_narrow_offsets(ragged: Instruction) -> bool:
    offsets = operand_array(ragged, 2)
    return offsets is not None and offsets.dtype != "s64"


def _changes_order(copy: Instruction) -> bool:
    before, after = operand_array(copy, 0), result_array(copy)
    return (
        before is not None
        and after is not None
        and before.has_valid_layout
        and after.has_valid_layout
        and before.minor_to_major != after.minor_to_major
    )


ORDERING_COPY = m.op("copy").where("to another order", _changes_order)
ODD_CONSTANT = m.constant().where("with a dot in its name", lambda constant: "." in constant.name)
EXPANDED = m.op(
    *"cholesky domain dynamic-reshape get-dimension-size opt-barrier ragged-dot".split(),
    *"select-and-scatter set-dimension-size triangular-solve".split(),
)
NARROW_OFFSETS = m.op("ragged-all-to-all").where("of narrow offsets", _has_narrow_offsets)
SORT_OF_LAYOUTS = m.sort().where("of several orders", _has_several_orders)
_HAS_NO_THUNK = "{} outside a fusion: XLA:GPU has no thunk for it"
NO_THUNK_AT_ALL = m.op(*sorted(NO_THUNK))
NOT_EMITTED = {
    NO_THUNK_AT_ALL: _HAS_NO_THUNK,
    EXPANDED: _HAS_NO_THUNK,
    TRITON_FUSION: f"this {{}} is still of kind {TRITON_GEMM}, which XLA:GPU cannot emit",
    BLOCKLESS_FUSION: f"this {{}} of kind {_TRITON} has no block_level_fusion_config",
    ORDERING_COPY: "this {} changes the layout, but outside a fusion it can only copy bytes",
    ODD_CONSTANT: "this {} becomes a global variable of PTX, whose names must not have a dot",
    STABLE_SORT: "this {} is stable, but XLA:GPU emits only unstable sorts",
    SORT_OF_LAYOUTS: "this {} has arrays of different layouts, but XLA:GPU needs a single layout",
    NARROW_OFFSETS: "the offsets of this {} are not s64, the type that XLA:GPU reads",
}
"""The message for each pattern; `{}` is the opcode."""
FROM_JAX_0_9 = frozenset(NOT_EMITTED) - {NO_THUNK_AT_ALL}
"""The patterns that releases before jax 0.9 emit, or may emit."""

_REDUCED = frozenset({"f4e2m1fn", "f8e4m3", "f8e8m0fnu", "s16", "s4", "u16"})
_MOVED = frozenset({"f4e2m1fn", "f8e4m3", "s4"})
NOT_OF_NCCL = {
    "all-gather": _MOVED,
    "all-gather-start": _MOVED,
    "all-reduce": _REDUCED,
    "all-reduce-start": _REDUCED,
    "reduce-scatter": _REDUCED,
}
"""Element types that NCCL does not support, according to XLA:GPU of jaxlib 0.11.2."""
_REDUCES = frozenset({"add", "maximum", "minimum", "multiply"})
_OF_TRUTH = frozenset({"and", "or"})
"""Further NCCL reductions of pred."""

_FINAL = "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt"
_BEFORE = "HloModule jit_f\n\nENTRY %main {\n  ROOT %p = f32[8]{0} parameter(0)\n}\n"
_STEP = "module_0001.jit_f.0300.fusion.after_sort-iota-fusion.before_priority-fusion.txt"

_REDUCTION = """
HloModule jit_f, is_scheduled=true, num_partitions=2

%r (a: {dtype}[], b: {dtype}[]) -> {dtype}[] {{
  %a = {dtype}[] parameter(0)
  %b = {dtype}[] parameter(1)
  ROOT %c = {dtype}[] {opcode}(%a, %b)
}}

ENTRY %main (p: {dtype}[8]) -> {dtype}[8] {{
  %p = {dtype}[8]{{0}} parameter(0)
  ROOT %s = {dtype}[8]{{0}} all-reduce(%p), channel_id=1, replica_groups={{{{0,1}}}}, \
use_global_device_ids=true, to_apply=%r{mark}
}}
"""

_TILED = """
HloModule jit_f, is_scheduled=true

%body (q: f32[8]) -> f32[8] {{
  %q = f32[8]{{0}} parameter(0)
  ROOT %m = f32[8]{{0}} negate(%q)
}}

ENTRY %main (p: f32[8]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  ROOT %n = f32[8]{{0}} fusion(%p), kind=kCustom, calls=%body, backend_config=\
{{"fusion_backend_config":{{"kind":"__triton"{config}}}}}{mark}
}}
"""
_SORT = """
HloModule jit_f, is_scheduled=true

%less (a: f32[], b: f32[], c: s32[], d: s32[]) -> pred[] {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  %c = s32[] parameter(2)
  %d = s32[] parameter(3)
  ROOT %l = pred[] compare(%a, %b), direction=LT
}}

ENTRY %main (p: f32[2,8], i: s32[2,8]) -> (f32[2,8], s32[2,8]) {{
  %p = f32[2,8]{{1,0}} parameter(0)
  %i = s32[2,8]{{{order}}} parameter(1)
  ROOT %s = (f32[2,8]{{1,0}}, s32[2,8]{{{order}}}) sort(%p, %i), dimensions={{1}}, \
to_apply=%less{mark}
}}
"""
_RAGGED = """
HloModule jit_f, is_scheduled=true, num_partitions=2

ENTRY %main (p: f32[8], q: f32[8], i: {dtype}[2]) -> f32[8] {{
  %p = f32[8]{{0}} parameter(0)
  %q = f32[8]{{0}} parameter(1)
  %i = {dtype}[2]{{0}} parameter(2)
  ROOT %r = f32[8]{{0}} ragged-all-to-all(%p, %q, %i, %i, %i, %i), channel_id=1, \
replica_groups={{{{0,1}}}}{mark}
}}
"""

_AFTER_EMISSION = (".thunk_sequence.txt", ".ptx")
"""Endings of files that XLA writes after it has emitted thunks and kernels."""


class UnsupportedAtEmission(Rule):
    """An instruction of a final module that XLA:GPU cannot emit.

    ## Why
    After the last pass, every instruction outside fusions needs a thunk. Most opcodes have none:
    fusion-wrapper puts each into its own fusion. An instruction that a pass adds later fails with
    `Unsupported instruction opcode`. From jax 0.9 on (earlier releases may emit them), the emitter
    also fails on:

    - a fusion of kind `__triton_gemm` that convert_triton_gemm_config did not convert, or of kind
      `__triton` without `block_level_fusion_config`;
    - a stable sort, a triangular-solve, and other opcodes that passes expand;
    - a copy to a different order of dimensions (`thunk_emitter.cc`, `LayoutsInShapesEqual`):
      layout_normalization makes it a transpose, and other copies only copy bytes;
    - a constant with a dot in its name: constants become global variables of the PTX, and
      sanitize-constant-names removes the dots;
    - a sort whose arrays have different layouts, and offsets of a ragged-all-to-all other than s64.

    NCCL has no sums of 16-bit integers, which all-reduce-promotion widens, and reduces only by add,
    multiply, minimum and maximum. XLA writes the text before it emits code, so it exists even if
    compilation fails there. A thunk sequence or PTX beside the text shows that emission succeeded.
    """

    messages = (
        "thunk_emitter.cc: Unsupported instruction opcode",
        "thunk_emitter.cc: LayoutUtil::LayoutsInShapesEqual( instr->operand(0)->shape()",
        "Stable sort not supported. Did stable_sort_expander run?",
        "Block level fusion config is required for Triton fusions",
        "RaggedAllToAllDecomposer only supports S64 offsets.",
        "element type … not supported by NCCL",
        "ptxas exited with non-zero error code",
    )
    severity = Severity.ERROR
    evidence = (
        RefusedByXla("Block level fusion config is required for Triton fusions", example=1),
    )
    examples = (
        Bad(
            """
            HloModule jit_f, is_scheduled=true

            ENTRY %main (p: f32[8]) -> f32[8] {
              %p = f32[8]{0} parameter(0)
              ROOT %n = f32[8]{0} negate(%p)  // error
            }
            """,
            file=_FINAL,
        ),
        Bad(
            """
            HloModule jit_f, is_scheduled=true

            %body (q: f32[8]) -> f32[8] {
              %q = f32[8]{0} parameter(0)
              ROOT %m = f32[8]{0} negate(%q)
            }

            ENTRY %main (p: f32[8]) -> f32[8] {
              %p = f32[8]{0} parameter(0)
              ROOT %n = f32[8]{0} fusion(%p), kind=kCustom, calls=%body, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}  // error
            }
            """,  # noqa: E501
            file=_FINAL,
            beside={_STEP: _BEFORE},
        ),
        Bad(_TILED.format(config="", mark="  // error"), file=_FINAL, beside={_STEP: _BEFORE}),
        Good(
            _TILED.format(
                config=',"block_level_fusion_config":{"output_tiles":[{"sizes":["8"]}]}', mark=""
            ),
            file=_FINAL,
            beside={_STEP: _BEFORE},
        ),
        Bad(
            """
            HloModule jit_f, is_scheduled=true

            ENTRY %main () -> f32[2] {
              ROOT %constant.1 = f32[2]{0} constant({1, 2})  // error
            }
            """,
            file=_FINAL,
            beside={_STEP: _BEFORE},
        ),
        Bad(
            """
            HloModule jit_f, is_scheduled=true

            ENTRY %main (p: f32[2,3]) -> f32[2,3] {
              %p = f32[2,3]{1,0} parameter(0)
              %k = f32[2,3]{1,0} copy(%p)
              ROOT %c = f32[2,3]{0,1} copy(%k)  // error
            }
            """,
            file=_FINAL,
            beside={_STEP: _BEFORE},
        ),
        Bad(_SORT.format(order="0,1", mark="  // error"), file=_FINAL, beside={_STEP: _BEFORE}),
        Good(_SORT.format(order="1,0", mark=""), file=_FINAL, beside={_STEP: _BEFORE}),
        Bad(_RAGGED.format(dtype="s32", mark="  // error"), file=_FINAL, beside={_STEP: _BEFORE}),
        Good(_RAGGED.format(dtype="s64", mark=""), file=_FINAL, beside={_STEP: _BEFORE}),
        Bad(
            """
            HloModule jit_f, is_scheduled=true

            ENTRY %main (p: f32[8]) -> f32[8] {
              %p = f32[8]{0} parameter(0)
              ROOT %b = f32[8]{0} opt-barrier(%p)  // error
            }
            """,
            file=_FINAL,
            beside={_STEP: _BEFORE},
        ),
        Bad(_REDUCTION.format(dtype="s16", opcode="add", mark="  // error"), file=_FINAL),
        Bad(_REDUCTION.format(dtype="s32", opcode="xor", mark="  // error"), file=_FINAL),
        Good(_REDUCTION.format(dtype="s32", opcode="add", mark=""), file=_FINAL),
        Good(
            """
            HloModule jit_f, is_scheduled=true

            ENTRY %main (p: f32[8]) -> f32[8] {
              %p = f32[8]{0} parameter(0)
              ROOT %n = f32[8]{0} negate(%p)
            }
            """,
            file=_FINAL,
            beside={"module_0001.jit_f.ptx": ""},
        ),
        Good(
            """
            HloModule jit_f, is_scheduled=true

            %body (q: f32[8]) -> f32[8] {
              %q = f32[8]{0} parameter(0)
              ROOT %m = f32[8]{0} negate(%q)
            }

            ENTRY %main (p: f32[8]) -> f32[8] {
              %p = f32[8]{0} parameter(0)
              ROOT %n = f32[8]{0} fusion(%p), kind=kLoop, calls=%body
            }
            """,
            file=_FINAL,
        ),
    )

    def check(self, compilation: Compilation) -> Findings:
        """Instructions of a final module without an emitter."""
        pipeline = compilation.pipeline
        final = pipeline.final
        if final is None or final.name is None or "gpu_after_optimizations" not in final.name.rest:
            return
        if any(map(pipeline.artefact_path, _AFTER_EMISSION)):
            return  # it was emitted
        is_late = pipeline.is_of_known_release and all(
            jax_release(release.name) >= (0, 9) for release in pipeline.releases
        )
        file = compilation.dumps.index(final)
        for module in final.file.modules:
            for computation in _running(module):
                for pattern, message in NOT_EMITTED.items():
                    if pattern in FROM_JAX_0_9 and not is_late:
                        continue
                    for hit in m.find(pattern, computation):
                        reason = message.format(hit.instruction.opcode)
                        yield Finding(hit.instruction, reason, file=file)
            for collective, reason in _not_of_nccl(module):
                yield Finding(collective, reason, file=file)


def _not_of_nccl(module: Module) -> Iterator[tuple[Instruction, str]]:
    """Collectives that NCCL does not support, with the reason."""
    for opcode, refused in NOT_OF_NCCL.items():
        for collective in instructions_of(module, opcode):
            array = operand_array(collective, 0)
            if array is None:
                continue
            reducer = module.callee(collective)
            root = None if reducer is None else reducer.root
            reduces = _REDUCES | _OF_TRUTH if array.dtype == "pred" else _REDUCES
            if array.dtype in refused:
                yield collective, f"NCCL has no {opcode} of {array.dtype}"
            elif root is not None and root.opcode in KEEPS_TYPE & BINARY - reduces:
                yield collective, f"NCCL has no reduction by {root.opcode} of {array.dtype}"


def _running(module: Module) -> Iterator[Computation]:
    """The entry and the computations that it runs through control flow."""

    def run(computation: Computation) -> Iterator[Computation]:
        for opcode in computation.opcodes & CONTROL_FLOW:
            for instruction in computation.with_opcode(opcode):
                yield from filter(None, map(module.computation, instruction.called_computations))

    return reached(filter(None, [module.entry]), run)
