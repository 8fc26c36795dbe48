"""Custom calls in fusions whose result no longer aliases an operand."""

from __future__ import annotations

from hlo_lint.analysis.buffers import operand_position, origins
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.kernels.aliases import alias_is_lost, aliased_results, fusion_index, need_of_alias
from hlo_lint.kernels.calls import fused_calls
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.text.edits import Fix

_PROGRAM = """
HloModule adds_in_place

body {{
  x = f32[64] parameter(0)
  y = f32[32] parameter(1)
  half = f32[16] slice(y), slice={{[0:16]}}
  ROOT c = f32[64] custom-call(x, half), custom_call_target="adds_in_place", \
output_to_operand_aliasing={{{{}}: (0, {{}})}}
}}

ROOT f = f32[64] fusion(f32[64] x, f32[32] y), kind=kCustom, calls=body{aliases}  // error
"""


class AliasLostInFusion(Rule):
    """A fusion around a custom call that drops the alias of the call's result.

    ## Why
    A call with `output_to_operand_aliasing` may update its operand in place: it reads its result's
    memory, or writes only a part of it, and relies on the operand's contents. XLA allocates by the
    fusion's aliases, so a pass that wraps the call without passing on the alias gives the result a
    separate, uninitialized buffer. `dynamic-slice-fusion-rewriter-v2` of jax 0.11.2 does that to
    typed FFI calls on slices (jax-triton, Mosaic, scans over stacked arrays), and an H200 then
    computes wrong numbers.

    The finding is an error if the PTX in the call's payload reads the result first or cannot write
    all of it, and a warning if the kernel cannot be read. A kernel that overwrites the whole result
    is not reported.

    ## Fix
    Declares the alias on the fusion, if the operand is a whole parameter of it. A fusion cannot
    declare an alias of a slice: disable the pass instead.
    """

    opcodes = frozenset({"custom-call"})
    evidence = (
        MeasuredHarm(
            "An H200 with jax 0.11.2 computes wrong numbers for three such programs, and right "
            "numbers without dynamic-slice-fusion-rewriter-v2 for the program that was tried.",
            "payloads/sliced_ffi",
        ),
    )
    examples = (
        Bad.entry(
            _PROGRAM.format(aliases=""),
            fixed=_PROGRAM.format(aliases=", output_to_operand_aliasing={{}: (0, {})}"),
        ),
        Good.entry(_PROGRAM.format(aliases=", output_to_operand_aliasing={{}: (0, {})}")),
        Bad.entry("""
            HloModule adds_to_a_slice

            body {
              x = f32[32] parameter(0)
              y = f32[64] parameter(1)
              half = f32[32] slice(y), slice={[0:32]}
              ROOT c = f32[32] custom-call(x, half), custom_call_target="adds_in_place",
                  output_to_operand_aliasing={{}: (1, {})}
            }

            ROOT f = f32[32] fusion(f32[32] x, f32[64] y), kind=kCustom, calls=body  // error
        """),
    )

    def check(self, module: Module) -> Findings:
        """Aliases of fused calls that their fusions do not declare."""
        for fusion, call in fused_calls(module):
            for result, number in aliased_results(call):
                if not alias_is_lost(fusion, call, result, number):
                    continue
                need = need_of_alias(call, result)
                if need == "":  # the kernel overwrites the whole result without reading it
                    continue
                yield Finding(
                    fusion,
                    f"this fusion drops an alias of %{call.name}: its result {result} should "
                    f"alias operand {number}, %{call.operands[number].name}",
                    notes=(
                        need or "the kernel may rely on the operand's contents",
                        "--xla_disable_hlo_passes=dynamic-slice-fusion-rewriter-v2 keeps the call "
                        "out of the fusion",
                    ),
                    # None: the kernel cannot be read, so the harm is not certain.
                    severity=Severity.WARNING if need is None else None,
                )

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Declare aliases of whole parameters on the fusion."""
        # The new attribute would replace the aliases that the fusion has.
        if "output_to_operand_aliasing=" in instruction.attributes_text:
            return None
        pairs = []
        for call in (call for fusion, call in fused_calls(module) if fusion is instruction):
            for result, number in aliased_results(call):
                index, operand = fusion_index(call, result), operand_position(call, number, ())
                if index is None or operand is None:
                    continue
                *_, (source, part) = origins(*operand, ("get-tuple-element", "bitcast"))
                # The proof of a fix knows no aliases of parts of a parameter.
                if source.opcode == "parameter" and not part:
                    place = ",".join(map(str, index))
                    pairs.append(f"{{{place}}}: ({source.operands_text.strip()}, {{}})")
        if not pairs:
            return None
        rewrite = Rewrite(module)
        value = f"{{{', '.join(pairs)}}}"
        rewrite.set_attribute(instruction, "output_to_operand_aliasing", value)
        return rewrite.fix("declare the alias on the fusion")
