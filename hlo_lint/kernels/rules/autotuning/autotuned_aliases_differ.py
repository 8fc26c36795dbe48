"""Autotuned calls that do not save the buffers that their trials overwrite."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.analysis.buffers import declared_aliases, results
from hlo_lint.analysis.rewrite import Rewrite
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.kernels.aliases import alias_is_lost, aliased_results
from hlo_lint.kernels.calls import (
    autotuned_calls,
    fusion_of,
    is_entry_parameter,
    is_fresh_fill,
    triton_payload,
    tunes_early,
)
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import PublicReport
from hlo_lint.text.edits import Fix

if TYPE_CHECKING:  # loaded where a module has such a call
    from collections.abc import Sequence

    from hlo_lint.kernels.custom_calls.triton import InputOutputAlias

_PROGRAM = r"""
HloModule adds_in_place

ROOT c = f32[512] custom-call(f32[512] x, f32[512] y), custom_call_target="triton_kernel_call", output_to_operand_aliasing={{{{}}: (1, {{}})}}, backend_config="{payload}"  // error
"""  # noqa: E501
# Two minimal payloads, for two pointers: one saves (1, 0, 2048), the other (1, 2, 2048).
_WRONG = r"x\234\023R\346b\314\026\022\347\022\346b\0062\004\030%\030\025\030\265\230\270\030@X\210A\212\225\203Q\242A\000\000;\006\003\016"  # noqa: E501
_RIGHT = r"x\234\023R\345b\314\026\022\347\022\346b\0062\004\030%\030\025\030\265\230\270\030@X\210A\212\235\203Q\200I\242A\000\000@\206\003$"  # noqa: E501


class AutotunedAliasesDiffer(Rule):
    """An autotuned Triton call that does not save the operands that its trials overwrite.

    ## Why
    The first execution of an autotuned call runs every candidate kernel on the program's own
    buffers. If a result shares the memory of an operand, each trial overwrites that operand, so the
    call has a list of buffer pairs to save before the trials and restore afterwards. Indices count
    operands first, then results. The launcher saves the first buffer of each pair whose two buffers
    have the same address. If no pair connects the operand and its result, or its size is too small,
    the operand is lost: the first run computes from the trials' output, and every later run is
    right, which makes the bug hard to find.

    ## Fix
    Rewrites the list in the payload to match `output_to_operand_aliasing`; the rest of the payload
    stays. It costs a copy of the operand, once per process and kernel.
    """

    opcodes = frozenset({"custom-call"})
    evidence = (PublicReport("NVIDIA/TransformerEngine#2814", "payloads/add_wrong_legacy"),)
    examples = (
        Bad.entry(_PROGRAM.format(payload=_WRONG), fixed=_PROGRAM.format(payload=_RIGHT)),
        Good.entry(_PROGRAM.format(payload=_RIGHT)),
    )

    def check(self, final: FinalModule) -> Findings:
        """Autotuned calls that do not save an operand, or that name a missing buffer."""
        module = final.module
        for call, payload, autotuned in autotuned_calls(module):
            saved, declared = autotuned.input_output_aliases, _declared(call, module)
            # The launcher saves the first buffer of a pair whose two addresses are equal at run
            # time, as in a declared pair (`triton_kernels.cc`, `AutotunedKernelCall`).
            missing = [
                pair
                for pair in declared
                if not any(
                    {*pair[:2]}.issuperset(other[:2]) and other.size_bytes >= pair.size_bytes
                    for other in saved
                )
            ]
            notes = _out_of_range(call, saved)
            if not missing and not notes:
                continue
            harmless = not notes and all(
                is_fresh_fill(call, pair.input_buffer, module) for pair in missing
            )
            # Trials that run this early can only overwrite a result in a donated parameter.
            latent = (
                bool(missing)
                and not harmless
                and tunes_early(payload)
                and "input_output_alias" not in module.header
                and not any(is_entry_parameter(call, pair.input_buffer, module) for pair in missing)
            )
            yield Finding(
                call,
                f"the trials of this call save {_shown(saved)}, but it declares {_shown(declared)}"
                + (" (latent)" if latent else ""),
                notes=(*notes, *_notes(call, saved, missing, latent=latent, harmless=harmless)),
                severity=Severity.WARNING if harmless else None,
            )

    def fix(self, instruction: Instruction, module: Module) -> Fix | None:
        """Write the declared pairs into the payload."""
        from hlo_lint.kernels.custom_calls import encode_payload
        from hlo_lint.kernels.custom_calls.triton import with_aliases

        payload = triton_payload(instruction)
        if payload is None:
            return None
        saving = with_aliases(payload, _declared(instruction, module))
        rewrite = Rewrite(module)
        rewrite.set_attribute(instruction, "backend_config", encode_payload(instruction, saving))
        return rewrite.fix("save the buffers that the call declares")


def _declared(call: Instruction, module: Module) -> list[InputOutputAlias]:
    """The buffer pairs of the declared aliases; buffers count operands first, then results."""
    from hlo_lint.kernels.custom_calls.triton import InputOutputAlias

    fusion = fusion_of(call, module) if declared_aliases(call) else None
    pairs = []
    for result, number in aliased_results(call):
        if fusion is not None and alias_is_lost(fusion, call, result, number):
            continue  # the two buffers differ, so no trial overwrites the operand
        shape = call.operands[number].shape
        size = shape.byte_size if isinstance(shape, ArrayShape) else None
        if size is not None:
            pairs.append(InputOutputAlias(number, len(call.operands) + result.number, size))
    return pairs


def _out_of_range(call: Instruction, saved: Sequence[InputOutputAlias]) -> list[str]:
    buffers = range(len(call.operands) + len(results(call)))
    if all(pair.input_buffer in buffers and pair.output_buffer in buffers for pair in saved):
        return []
    return [f"there are {len(buffers)} buffers: an index is out of range; jaxlib does not check"]


def _shown(pairs: Sequence[InputOutputAlias]) -> str:
    """`buffer 1 as buffer 2 (4096 bytes)`, or `nothing`."""
    listed = (
        f"buffer {p.input_buffer} as buffer {p.output_buffer} ({p.size_bytes} bytes)" for p in pairs
    )
    return ", ".join(listed) or "nothing"


def _notes(
    call: Instruction,
    saved: Sequence[InputOutputAlias],
    missing: list[InputOutputAlias],
    *,
    latent: bool,
    harmless: bool,
) -> list[str]:
    operands = len(call.operands)
    notes = [
        f"buffer {pair.output_buffer} is an operand: results are counted from {operands} on"
        for pair in saved
        if pair.output_buffer < operands and missing
    ]
    notes += [
        f"operand {pair.input_buffer} has {pair.size_bytes} bytes"
        for pair in missing
        if any({*saved_pair[:2]} <= {*pair[:2]} for saved_pair in saved)
    ]
    if latent:
        notes.append(
            "the call tunes before the operand is computed, so it is right only by timing; for an "
            "operand passed in by the caller it would be wrong"
        )
    if harmless and missing:
        notes.append(
            "the operand is a constant, so this is right if every kernel overwrites all of it"
        )
    notes.append("jaxlib before 0.10.0 restored the wrong buffers even where the list was right")
    return notes
