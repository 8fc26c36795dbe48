"""Constants that are too large to be part of a program."""

from __future__ import annotations

from hlo_lint.analysis.calls import holders
from hlo_lint.hlo.records import type_of
from hlo_lint.rules.base import Bad, FinalModule, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted
from hlo_lint.rules.memory.huge_temporary import bytes_on_device
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import sized


class HugeConstant(Rule):
    """Constants of hundreds of megabytes in the module.

    ## Why
    An array that a traced function closes over, instead of taking it as an argument, becomes a
    constant of the module. Passes copy it, the compilation cache hashes it, constant folding reads
    it, and it takes device memory in addition to the array itself. A module of 2 GiB cannot be
    serialized at all. Pass the array as an argument, or compute it where it is read.
    """

    severity = Severity.WARNING
    min_bytes = Option(1 << 28, "Smallest total size of constants, in bytes.", least=1)
    opcodes = frozenset({"constant"})
    evidence = (Counted("megabytes when serialized", 268, 0),)
    examples = (
        Bad.entry("""
            c = f32[8192,8192] constant({...})  // error
            ROOT a = f32[8192,8192] add(f32[8192,8192] p, c)
        """),
        Good.entry("""
            c = f32[8192] constant({...})
            b = f32[8192,8192] broadcast(c), dimensions={1}
            ROOT a = f32[8192,8192] add(f32[8192,8192] p, b)
        """),
    )

    def check(self, final: FinalModule) -> Findings:
        """A finding at the largest constant, if all of them reach the limit."""
        places = [
            (computation, number)
            for computation in holders(final.module).get("constant", ())
            for number in computation.positions("constant")
        ]
        sizes = [_size(type_of(computation.rows[number])) for computation, number in places]
        total = sum(sizes)
        if total >= self.min_bytes:
            largest = max(sizes)
            computation, number = places[sizes.index(largest)]
            others = f", and all constants {sized(total)}" if total > largest else ""
            message = f"this constant takes {sized(largest)}{others}"
            yield Finding(computation.at(number), message)


def _size(text: str) -> int:
    """The size of a constant in bytes; 0 for a scalar, which is part of the code."""
    return 0 if "[]" in text else bytes_on_device(text)
