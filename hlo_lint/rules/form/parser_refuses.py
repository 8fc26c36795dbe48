"""Text that XLA's parser refuses, as strict mode finds it."""

from __future__ import annotations

from hlo_lint.dumps.pass_dump import is_fusion_body
from hlo_lint.hlo.ir import HloFile
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding


class ParserRefuses(Rule):
    """A text that XLA's parser refuses.

    ## Why
    Tools of XLA, tests and `jax.export` begin with the parser: a module that it refuses cannot be
    compiled, run or converted there. The measure is the parser of jaxlib 0.11.2, which refuses the
    printed text of some other releases; so the rule runs only if it is selected, by its name or by
    `hlo-lint check --strict`. The bodies of fusions that XLA:GPU writes beside its dumps, files of
    one computation that end with `.hlo`, are not for the parser.

    Text that cannot be read at all is reported by unreadable-text.
    """

    always_reported = True
    enabled_by_default = False
    examples = (
        Bad.entry("""
            p = f32[8,3]{1,0} parameter(0)
            ROOT t = f32[3,8]{1,0} transpose(p)  // error
        """),
        Bad.entry("""
            p = f32[8]{0} parameter(0)
            ROOT n = f32[8]{0} negate(p), dimensions={0}  // error
        """),
        Good.entry("""
            p = f32[8,3]{1,0} parameter(0)
            ROOT t = f32[3,8]{1,0} transpose(p), dimensions={1,0}
        """),
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

    def check(self, file: HloFile) -> Findings:
        """One finding for each error of strict mode."""
        from hlo_lint.analysis.strict import (
            strict_problems,  # runs on request: costs others nothing
        )

        if any(is_fusion_body(file.path, module) for module in file.modules):
            return
        unread = {
            (issue.message, issue.span) for module in file.modules for issue in module.problems
        }
        for problem in strict_problems(file):
            if (problem.message, problem.span) not in unread:
                yield Finding(problem.span, problem.message)
