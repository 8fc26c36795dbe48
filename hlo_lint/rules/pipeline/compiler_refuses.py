"""Modules that XLA's own compiler does not emit."""

from __future__ import annotations

from hlo_lint.rules.base import Bad, Good, Rule, Severity
from hlo_lint.rules.evidence import RefusedByXla

_FUSION = """
HloModule m, is_scheduled=true

f {{ ROOT n = {dtype}[8]{{0}} negate({dtype}[8]{{0}} a) }}

ROOT r = {dtype}[8]{{0}} fusion({dtype}[8]{{0}} p), kind=kCustom, calls=f, backend_config=\
{{"fusion_backend_config":{{"kind":"__triton","block_level_fusion_config":\
{{"output_tiles":[{{"sizes":["8"]}}],"num_warps":"1","num_ctas":"1","num_stages":"1"}}}}}}  // error
"""


class CompilerRefuses(Rule):
    """A module, or an instruction of it, that XLA's compiler refuses to emit.

    Only `hlo-lint check --ask-xla` reports it: it asks the compiler of the release that wrote the
    dump, without the chip.

    ## Why
    XLA's emitters and libraries take a part of what its verifier accepts: element types, ranks,
    numbers of operands, layouts, configurations. They say so only when the module is emitted, often
    without the instruction. The last module of a dump is compiled as it stands, with all passes
    off. If XLA refuses it, or dies, its kernels are compiled alone: the finding is at those that
    XLA refuses, with its words. A module before the last is compiled from its step on. As a rule
    it has a severity, allowances and baselines.
    """

    messages = (
        "thunk_emitter.cc: Unsupported instruction opcode",
        "thunk_emitter.cc: LayoutUtil::LayoutsInShapesEqual( instr->operand(0)->shape()",
        "Unsupported async done wrapped instruction:",
        "Unsupported elementwise operation",
        "Complex types are unsupported in Triton codegen:",
        "CustomCall TopK requires k <=",
        "Unsupported GpuTopK data type:",
        "Stable sort not supported. Did stable_sort_expander run?",
        "Block level fusion config is required for Triton fusions",
        "RaggedAllToAllDecomposer only supports S64 offsets.",
        "element type … not supported by NCCL",
        "ptxas exited with non-zero error code",
    )
    severity = Severity.ERROR
    command = "check --ask-xla"
    enabled_by_default = False
    evidence = (RefusedByXla("Complex types are unsupported in Triton codegen", passes="none"),)
    examples = (Bad.final(_FUSION.format(dtype="c64")), Good.final(_FUSION.format(dtype="f32")))
