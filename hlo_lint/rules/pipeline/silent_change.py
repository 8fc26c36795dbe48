"""A change of the module that no pass reported."""

from __future__ import annotations

from hlo_lint.dumps.changes import adds_only_unread, disagreements, resizes_only_workspaces
from hlo_lint.rules.base import Bad, Compilation, Findings, Good, Rule, first_line
from hlo_lint.rules.evidence import WrongValues
from hlo_lint.rules.findings import Finding, Severity

_END = "module_0001.jit_f.0006.collective-optimizations.after_all-gather-optimizer.before_dce.txt"
_BESIDE = {
    _END: "HloModule jit_f\n\nENTRY e { ROOT n = f32[8] negate(f32[8] p) }",
    "module_0001.jit_f.debug_options": 'xla_dump_hlo_pass_re: ".*"',
}
_START = (
    "module_0001.jit_f.0007.conv_canonicalization.after_pipeline-start.before_conv-rewriter.txt"
)


class SilentChange(Rule):
    """A module that changed between two dumps although no pass reported a change.

    ## Why
    XLA's verifier runs only after passes that report a change, and fixed-point loops stop when no
    pass reports one. A pass that changes the module without reporting it escapes both, and the next
    pass is blamed. It shows if the text at the start of a pipeline differs from the previous dump,
    or, with the module's metadata, if the text changed after a pass that reported no change. The
    rule skips scheduling, which is not a pass, pipelines that run within a pass, cuDNN workspaces
    that are set outside pipelines, and XLA:TPU, which changes modules between pipelines. If the
    pass only added unused instructions, as layout_normalization of jax 0.11.2 does, the finding is
    information. `--xla_unsupported_crash_on_hlo_pass_silent_hlo_change` makes XLA check this
    itself.
    """

    severity = Severity.WARNING
    evidence = (WrongValues(),)
    reports = "openxla/xla@33b9935f9b"
    examples = (
        Bad(
            """
            HloModule jit_f  // error

            ENTRY e { ROOT n = f32[8] exponential(f32[8] p) }
            """,
            file=_START,
            beside=_BESIDE,
        ),
        Good(
            """
            HloModule jit_f

            ENTRY e { ROOT n = f32[8] negate(f32[8] p) }
            """,
            file=_START,
            beside=_BESIDE,
        ),
    )

    def check(self, compilation: Compilation) -> Findings:
        """Dumps that differ from the previous dump without a reported change."""
        for before, after, reported in disagreements(compilation):
            # RunCudnnCompilerPasses enlarges a cuDNN call's workspace outside any dumped pipeline.
            if reported or resizes_only_workspaces(before.module, after.module):
                continue
            assert before.name is not None
            notes = [
                f"the previous dump: {before.path.name}",
                "a pass after that dump changed the module but reported no change",
            ]
            harmless = adds_only_unread(before.module, after.module)
            if harmless:
                notes.append("it only added instructions without users")
            yield Finding(
                first_line(after),
                f"the module changed after {before.name.after}, but no pass reported a change",
                tuple(notes),
                severity=Severity.INFO if harmless else None,
                file=compilation.dumps.index(after),
            )
