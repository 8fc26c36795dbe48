"""Passes that report a change and leave the text as it was."""

from __future__ import annotations

from hlo_lint.dumps.changes import disagreements
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.transitions import may
from hlo_lint.rules.base import Bad, Compilation, Findings, Good, Rule, first_line
from hlo_lint.rules.findings import Finding, Severity

_MODULE = """
HloModule jit_f

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %y = f32[8]{0} OPCODE(%x)
}
"""
_BEFORE = "module_0001.jit_f.0006.fusion.after_priority-fusion.before_algsimp.txt"
_AFTER = "module_0001.jit_f.0007.fusion.after_algsimp.before_dce.txt"
_OPTIONS = {"module_0001.jit_f.debug_options": 'xla_dump_hlo_pass_re: ".*"'}
_WITHOUT_METADATA = {
    name: f"{text}\nxla_dump_disable_metadata: true" for name, text in _OPTIONS.items()
}


class ChangeWithoutEffect(Rule):
    """A pass that reports a change and leaves the module's text as it was.

    ## Why
    A pass that always reports a change makes the verifier run for nothing, and a loop that waits
    for no change never end; one that reports a change and makes none may have given up on its way.
    Passes that do so by design (`layout-assignment`), or change what the text does not show, are
    left out, and so is XLA:TPU, whose passes do it at all times. One finding for each pass, with
    the number of times.
    `--xla_unsupported_crash_on_hlo_pass_noop_change` makes XLA itself look.
    """

    severity = Severity.INFO
    examples = (
        Bad(
            "HloModule jit_f  // error\n"
            + _MODULE.partition("HloModule jit_f\n")[2].replace("OPCODE", "negate"),
            file=_AFTER,
            beside={
                _BEFORE: _MODULE.replace("OPCODE", "negate"),
                **_OPTIONS,
            },
        ),
        Good(
            _MODULE.replace("OPCODE", "negate"),
            file=_AFTER,
            beside={_BEFORE: _MODULE.replace("OPCODE", "exponential"), **_OPTIONS},
        ),
        Good(
            _MODULE.replace("OPCODE", "negate"),
            file=_AFTER,
            beside={
                _BEFORE: _MODULE.replace("OPCODE", "negate"),
                **{
                    name: f"{text}\nxla_dump_disable_metadata: true"
                    for name, text in _OPTIONS.items()
                },
            },
        ),
    )

    def check(self, compilation: Compilation) -> Findings:
        """Yields one finding for each pass, at the first of its dumps."""
        by_pass: dict[str, list[PassDump]] = {}
        options = compilation.pipeline.options
        if compilation.pipeline.backend == "tpu" or (options and not options.shows_metadata):
            return
        for disagreement in disagreements(compilation.pipeline):
            name = disagreement.after.name
            if disagreement.reported and name is not None and not may(name.after, "reports"):
                by_pass.setdefault(name.after, []).append(disagreement.after)
        for pass_name, dumps in by_pass.items():
            times = f" ({len(dumps)} times)" if len(dumps) > 1 else ""
            yield Finding(
                first_line(dumps[0]),
                f"{pass_name} reported a change, but the module is the same as before it{times}",
                file=compilation.dumps.index(dumps[0]),
            )
