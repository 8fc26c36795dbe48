"""The buffers that an autotuned kernel saves before its trials, against those it overwrites."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.analysis.buffers import declared_aliases, results
from hlo_lint.analysis.rewrite import attribute_edit
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape
from hlo_lint.kernels.calls import (
    autotuned_calls,
    is_entry_parameter,
    is_fresh_fill,
    tunes_early,
)
from hlo_lint.rules.base import Bad, FinalModule, Findings, Form, Good, Rule
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.edits import Fix, Safety

if TYPE_CHECKING:  # loaded where a module has such a call
    from hlo_lint.kernels.custom_calls.triton import InputOutputAlias

_PROGRAM = r"""
HloModule adds_in_place

ENTRY e {
  x = f32[512]{0} parameter(0)
  y = f32[512]{0} parameter(1)
  ROOT c = f32[512]{0} custom-call(x, y), custom_call_target="triton_kernel_call", output_to_operand_aliasing={{}: (1, {})}, backend_config="%s"%s
}
"""  # noqa: E501
# Two minimal payloads, for two pointers: one saves (1, 0, 2048), the other (1, 2, 2048).
_WRONG = r"x\234\023R\346b\314\026\022\347\022\346b\0062\004\030%\030\025\030\265\230\270\030@X\210A\212\225\203Q\242A\000\000;\006\003\016"  # noqa: E501
_RIGHT = r"x\234\023R\345b\314\026\022\347\022\346b\0062\004\030%\030\025\030\265\230\270\030@X\210A\212\235\203Q\200I\242A\000\000@\206\003$"  # noqa: E501


class AutotunedAliasesDiffer(Rule):
    """An autotuned Triton call that does not save what its trials overwrite.

    ## Why
    The first execution of an autotuned call runs every candidate kernel on the program's own
    buffers. Where a result takes the memory of an operand, each trial overwrites that operand, so
    the call carries a list of buffers to save before the trials and to restore after them. Its
    indices count operands and results in one row. A pair that is missing, points at another
    operand, or has another size saves nothing: the first run computes with what the trials left
    as input, and every later run is right, which makes it hard to believe.

    ## Fix
    Rewrites the list in the payload to what `output_to_operand_aliasing` declares. Everything else
    in the payload stays. It costs a copy of the operand, once per process and kernel.
    """

    examples = (
        Bad(_PROGRAM % (_WRONG, "  // error"), fixed=_PROGRAM % (_RIGHT, "")),
        Good(_PROGRAM % (_RIGHT, "")),
    )

    def applies(self, module: Module) -> bool:
        """True if a call autotunes."""
        return next(autotuned_calls(module), None) is not None

    def check(self, final: FinalModule) -> Findings:
        """Each autotuned call whose list is not the declared one."""
        for call, payload, autotuned in autotuned_calls(final.module):
            saved, declared = autotuned.input_output_aliases, _declared(call)
            if sorted(saved) == sorted(declared):
                continue
            missing = [pair for pair in declared if pair not in saved]
            harmless = all(is_fresh_fill(call, pair.input_buffer, final.module) for pair in missing)
            early = [
                pair
                for pair in missing
                if tunes_early(payload) and not is_entry_parameter(call, pair.input_buffer)
            ]
            latent = bool(missing) and len(early) == len(missing) and not harmless
            yield Finding(
                call,
                f"the trials of this call save {_shown(saved)}, and it declares {_shown(declared)}"
                + (" (latent)" if latent else ""),
                notes=tuple(_notes(call, saved, missing, latent=latent, harmless=harmless)),
                severity=Severity.WARNING if harmless else None,
            )

    def fix(self, instruction: Instruction, module: Module, form: Form) -> Fix | None:
        """Writes the declared pairs into the payload."""
        from hlo_lint.kernels.custom_calls import encode
        from hlo_lint.kernels.custom_calls.triton import with_aliases

        for call, payload, _ in autotuned_calls(module):
            if call is instruction:
                changed = with_aliases(payload, _declared(call))
                text = encode(call, changed)
                edit = attribute_edit(call, module, "backend_config", text)
                if edit is not None:
                    return Fix("save what the call declares", (edit,), Safety.SAFE)
        return None


def _declared(call: Instruction) -> list[InputOutputAlias]:
    """The pairs that the declared aliases call for; buffers are counted operands first."""
    from hlo_lint.kernels.custom_calls.triton import InputOutputAlias

    aliases = declared_aliases(call)
    pairs = []
    for result in results(call):
        number = aliases.get(result.index)
        if number is None or number >= len(call.operands):
            continue
        shape = call.operands[number].shape
        size = shape.byte_size if isinstance(shape, ArrayShape) else None
        if size is not None:
            pairs.append(InputOutputAlias(number, len(call.operands) + result.number, size))
    return pairs


def _shown(pairs: tuple[InputOutputAlias, ...] | list[InputOutputAlias]) -> str:
    """`buffer 1 as buffer 2 (4096 bytes)`, or `nothing`."""
    said = (
        f"buffer {p.input_buffer} as buffer {p.output_buffer} ({p.size_bytes} bytes)" for p in pairs
    )
    return ", ".join(said) or "nothing"


def _notes(
    call: Instruction,
    saved: tuple[InputOutputAlias, ...],
    missing: list[InputOutputAlias],
    *,
    latent: bool,
    harmless: bool,
) -> list[str]:
    operands = len(call.operands)
    buffers = operands + len(results(call))
    notes = []
    for pair in saved:
        if not 0 <= pair.input_buffer < buffers or not 0 <= pair.output_buffer < buffers:
            notes.append(
                f"there are {buffers} buffers: an index is out of range, and jaxlib does not check"
            )
        elif pair.output_buffer < operands:
            notes.append(
                f"buffer {pair.output_buffer} is an operand: results are counted from {operands} on"
            )
    for pair in missing:
        wrong_size = [s for s in saved if s[:2] == pair[:2]]
        if wrong_size:
            notes.append(f"operand {pair.input_buffer} has {pair.size_bytes} bytes")
    if latent:
        notes.append(
            "the call tunes before the operand is computed, so it is right by timing alone; on "
            "an operand that the caller passes in it would be wrong"
        )
    if harmless and missing:
        notes.append(
            "the operand holds a constant, so this is right if every kernel overwrites all of it"
        )
    notes.append("jaxlib before 0.10.0 restored the wrong buffers even where the list was right")
    return notes
