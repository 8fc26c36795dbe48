"""Copies of donated parameters."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.buffers import input_output_aliases, origins
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import ArrayShape, Index
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized


class CopiedDonation(Rule):
    """A donated parameter that is copied although nothing else reads it.

    ## Why
    `input_output_alias` gives a parameter's buffer to a result, so that the update happens in
    place. If the program copies the parameter and updates the copy, although nothing else reads the
    parameter, the donation saves nothing: both arrays are live at the same time, and each call pays
    for the copy. A model that fits only with in-place updates runs out of memory.
    """

    severity = Severity.WARNING
    min_bytes = Option(1 << 16, "Smallest reported parameter, in bytes.", least=0)
    opcodes = frozenset({"copy"})
    evidence = (Counted("bytes accessed", 1310728, 786440),)
    reports = "tensorflow/tensorflow#59022"
    examples = (
        Bad.entry("""
            HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
            k = f32[65536]{0} copy(f32[65536]{0} p)  // error
            f = f32[65536]{0} add(k, f32[65536]{0} q)
            ROOT t = (f32[65536]{0}) tuple(f)
        """),
        Good.entry("""
            HloModule m, is_scheduled=true, input_output_alias={ {0}: (0, {}, may-alias) }
            f = f32[65536]{0} add(f32[65536]{0} p, f32[65536]{0} q)
            ROOT t = (f32[65536]{0}) tuple(f)
        """),
    )

    def check(self, final: FinalModule) -> Findings:
        """Copies of donated parameters, in a final or scheduled module."""
        module = final.module
        if not final.is_final and not module.is_scheduled:
            return
        for parameter, part, copy, result in _copied_donations(module):
            shape = part.shape_or_none
            size = shape.byte_size if isinstance(shape, ArrayShape) else None
            if size is not None and size >= self.min_bytes:
                yield Finding(
                    copy,
                    f"this copies the donated parameter %{parameter.name}, {sized(size)}, although "
                    "nothing else reads it",
                    notes=(f"%{result.name} aliases the parameter",),
                )


def _copied_donations(
    module: Module,
) -> Iterator[tuple[Instruction, Instruction, Instruction, Instruction]]:
    """Donated parameters with the donated part, its copy, and the aliased result."""
    entry = module.entry
    if entry is None or entry.root is None or "copy" not in entry.opcodes:
        return
    parameters = entry.parameters
    for alias in input_output_aliases(module):
        if alias.operand >= len(parameters):
            continue
        part = _only_part(parameters[alias.operand], alias.operand_index)
        if part is None or part is entry.root:
            continue
        copy = part.users[0] if len(part.users) == 1 else None
        *_, (result, rest) = origins(entry.root, alias.output_index, ())
        if (
            copy is not None
            and not rest
            and copy.opcode == "copy"
            and copy.type_text == part.type_text  # a different layout needs its own buffer
            and (copy is result or copy.users == (result,))
        ):
            yield parameters[alias.operand], part, copy, result


def _only_part(parameter: Instruction, index: Index) -> Instruction | None:
    """The only instruction that extracts a part of a parameter; None if there are several."""
    part = parameter
    for number in index:
        taken = [user for user in part.users if user.attributes.get("index") == str(number)]
        if len(taken) != 1 or any(user.opcode != "get-tuple-element" for user in part.users):
            return None
        part = taken[0]
    return part
