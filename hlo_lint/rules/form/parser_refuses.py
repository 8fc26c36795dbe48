"""Text that XLA's own parser rejects."""

from __future__ import annotations

from hlo_lint.dumps.pass_dump import is_fusion_body
from hlo_lint.rules.base import Bad, Finding, Findings, Good, ParserVerdict, RefusedByXla, Rule
from hlo_lint.rules.options import Option


class ParserRefuses(Rule):
    """A text that XLA's parser rejects.

    ## Why
    XLA's tools, tests and `jax.export` start with the parser: they cannot compile, run or convert a
    module that it rejects. The rule runs the parser of the installed jaxlib, in a child process,
    since some texts abort it; the option `jax` selects a different release. Releases reject some
    text printed by other releases, so the rule runs only if selected, by its name or by
    `hlo-lint check --strict`. It skips the fusion bodies that XLA:GPU writes beside its dumps
    (`.hlo` files with a single computation), which are not input for the parser.

    XLA stops at the first error of a module. The other rules of this family need no jaxlib and
    report all errors.
    """

    subsumes = frozenset({"form", "verifier"})
    messages = (
        "was parsing",
        "instruction does not exist",
        "Syntax error when trying to parse the text as a HloModule",
        "expects opcode but sees",
        "unexpected attribute",
        "expects attribute name",
        "expects only one ENTRY",
        "is not compatible with the shape of the operand instruction",
        "is out of range for literal's primitive type",
        "is not compatible with that of its root instruction",
        "GTE operand must be tuple",
    )
    always_reported = True
    enabled_by_default = False
    jax = Option("", "Release of jax whose parser is used; by default that of this Python.")
    evidence = (
        RefusedByXla("attribute dimensions is expected but not seen", by="parser 0.12.0.1"),
    )
    examples = (
        Bad.entry("ROOT t = f32[3,8]{1,0} transpose(f32[8,3]{1,0} p)  // error"),
        Bad.entry("ROOT n = f32[8]{0} negate(f32[8]{0} p), dimensions={0}  // error"),
        Good.entry("ROOT t = f32[3,8]{1,0} transpose(f32[8,3]{1,0} p), dimensions={1,0}"),
        Good(
            """
            %fused_computation (p: f32[8]) -> f32[] {
              %p = f32[8]{0} parameter(0)
              %zero = f32[] constant(0)
              ROOT %sum = f32[] reduce(%p, %zero), dimensions={0}, to_apply=%region_0
            }
            """,
            file="module_0001.jit_f.loop_fusion.hlo",
        ),
    )

    def check(self, verdict: ParserVerdict) -> Findings:
        """A finding for each rejected module."""
        if any(is_fusion_body(verdict.file.path, module) for module in verdict.file.modules):
            return
        for refusal in verdict.refusals:
            yield Finding(refusal.span, f"jaxlib {verdict.release} refuses: {refusal.message}")
