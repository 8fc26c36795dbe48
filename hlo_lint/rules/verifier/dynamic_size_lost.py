"""Bounded dimensions that become static."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from hlo_lint.analysis.verifier.checks import on
from hlo_lint.analysis.verifier.scope import Scope, Violation
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.kinds import OPERAND_TYPES, TYPE, RowKind
from hlo_lint.hlo.opcodes import KEEPS_TYPE
from hlo_lint.rules.base import Bad, Good
from hlo_lint.rules.evidence import WrittenByXla
from hlo_lint.rules.verifier import VerifierRule

_KEEPS_ELEMENTS: Final = sorted(
    {*KEEPS_TYPE, "concatenate", "convert", "copy", "reshape", "reverse", "transpose"}
)


def _loses_size(kind: RowKind) -> bool:
    """True if an operand has a bounded dimension, but the result has none."""
    return "<=" not in kind[TYPE] and any("<=" in (text or "") for text in kind[OPERAND_TYPES])


class DynamicSizeLost(VerifierRule):
    """A static result of an operand with a dynamic size.

    ## Why
    The size of a dimension `<=8` is known only at run time; elements beyond it are padding. An
    opcode that keeps all elements has a static result only if shape inference dropped the bound:
    from then on, padding counts as values. XLA's verifier does not compare dynamic dimensions.
    """

    evidence = (WrittenByXla("found/reduce_bounded.hlo"),)
    reports = "openxla/xla@ad6475a0a3"

    table = """
        dynamic-size:
          elementwise opcodes, concatenate, reshape, transpose: dimensions stay bounded
            ROOT r = f32[2,4,4] reshape(f32[8,<=4] p)  // error
    """
    examples = (
        Bad.entry("ROOT c = f32[12] concatenate(f32[<=8] p, f32[4] q), dimensions={0}  // error"),
        Good.entry("ROOT r = f32[2,4,<=4] reshape(f32[8,<=4] p)"),
    )

    @classmethod
    def needs(cls) -> tuple[Iterable[str], Iterable[str]]:
        """The mark of a bounded dimension: unlike the opcodes, it is rare."""
        return (), ("<=",)

    @on(*_KEEPS_ELEMENTS, concerns=_loses_size)
    def kept(self, scope: Scope, instruction: Instruction) -> Iterator[Violation]:
        """Opcodes that keep all elements keep bounded dimensions."""
        bounded = ["<=" in f"{operand.shape}" for operand in instruction.operands]
        if not any(bounded) or "<=" in instruction.type_text:
            return
        message = (
            f"{instruction.type_text} is static, but an operand has a dynamic size: padding "
            "becomes values"
        )
        yield Violation("dynamic-size", instruction, message, is_warning=True)
