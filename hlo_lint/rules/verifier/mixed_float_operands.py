"""Floats of different precision in one instruction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from hlo_lint.rules.base import Bad, Good
from hlo_lint.rules.verifier import VerifierRule


class MixedFloatOperands(VerifierRule):
    """An instruction that reads floats of different precision where XLA does not let it.

    ## Why
    After the passes that settle precision each elementwise instruction reads floats of one type; a
    code generator takes the type of the first for all (`CheckShape` in
    `xla/service/hlo_verifier.cc`, unless `allow_mixed_precision`). Reported in numbered dumps,
    where it is known which verifier would run.
    """

    messages = ("Seen floating point types of different precisions in",)

    demands: ClassVar[Mapping[str, tuple[str, str]]] = {
        "operand-precision": (
            "ShapeVerifier::CheckShape",
            "floating-point operands have one precision, but for opcodes that may mix them",
        ),
    }
    rows: ClassVar[Mapping[str, Bad]] = {
        "operand-precision": Bad.entry(
            """
            p = f32[8]{0} parameter(0)
            q = bf16[8]{0} parameter(1)
            ROOT r = f32[8]{0} add(p, q)  // error
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
    }
    examples = (
        *rows.values(),
        Good.entry(
            """
            p = f32[8]{0} parameter(0)
            q = bf16[8]{0} parameter(1)
            c = f32[8]{0} convert(q)
            ROOT r = f32[8]{0} add(p, c)
            """,
            artefacts={".ir-no-opt.ll": ""},
        ),
    )
