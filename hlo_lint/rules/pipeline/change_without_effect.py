"""Passes that report a change but leave the text unchanged."""

from __future__ import annotations

from hlo_lint.analysis.grouping import by_key
from hlo_lint.dumps.changes import disagreements
from hlo_lint.dumps.transitions import may
from hlo_lint.rules.base import Bad, Compilation, Findings, Good, Rule, first_line
from hlo_lint.rules.evidence import PublicReport
from hlo_lint.rules.findings import Finding, Severity

_KEPT = """
HloModule m  // error
  ROOT n = f32[8] negate(f32[8] p)
"""
_OPTIONS = {"module_0001.m.debug_options": 'xla_dump_hlo_pass_re: ".*"'}
_WITHOUT_METADATA = {
    "module_0001.m.debug_options": 'xla_dump_hlo_pass_re: ".*"\nxla_dump_disable_metadata: true'
}


class ChangeWithoutEffect(Rule):
    """A pass that reports a change but leaves the module's text unchanged.

    ## Why
    A pass that always reports a change runs the verifier needlessly, and a fixed-point loop around
    it never ends. A pass that reports a change but makes none may have given up halfway. The rule
    skips passes that do so by design (`layout-assignment`) or change things that the text does not
    show, and XLA:TPU, where it is common. There is a single finding for each pass, with a count.
    `--xla_unsupported_crash_on_hlo_pass_noop_change` makes XLA check this itself.
    """

    severity = Severity.INFO
    evidence = (PublicReport("openxla/xla#17257", "releases/gpu-jax0.9.0.tar.xz"),)
    examples = (
        Bad.step(_KEPT, beside=_OPTIONS),
        Good.step(
            """
            - ROOT n = f32[8] negate(f32[8] p)
            + ROOT n = f32[8] exponential(f32[8] p)
            """,
            beside=_OPTIONS,
        ),
        Good.step(_KEPT, beside=_WITHOUT_METADATA),
    )

    def check(self, compilation: Compilation) -> Findings:
        """A finding for each such pass, at its first dump."""
        options = compilation.options
        # tpu_fusion and instruction-hoister of XLA:TPU do so in each compilation.
        if compilation.backend == "tpu" or (options and not options.shows_metadata):
            return
        reported = [after for _, after, reported in disagreements(compilation) if reported]
        by_pass = by_key((dump.name.after, dump) for dump in reported if dump.name is not None)
        for pass_name, dumps in by_pass.items():
            if may(pass_name, "reports"):
                continue
            times = f" ({len(dumps)} times)" if len(dumps) > 1 else ""
            yield Finding(
                first_line(dumps[0]),
                f"{pass_name} reported a change, but the module did not change{times}",
                file=compilation.dumps.index(dumps[0]),
            )
