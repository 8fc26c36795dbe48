"""The order that passes rely on, held against the passes that ran."""

from __future__ import annotations

from hlo_lint.dumps.passes_run import Breach, breaches
from hlo_lint.rules.base import Bad, DumpFolder, Findings, Good, Rule, first_line
from hlo_lint.rules.findings import Finding, Severity

_MODULE = """
HloModule jit_f

ENTRY %main (x: f32[8,3]) -> f32[8,3] {
  ROOT %x = f32[8,3]{1,0} parameter(0)
}
"""
_START = "config-assigner.after_pipeline-start.before_conv-fp8-fallback"


class RequiredPassOrder(Rule):
    """A pass that ran without the pass it relies on, or on the wrong side of it.

    ## Why
    Passes rely on what others left (docs/contracts.md), and nothing in XLA looks at it when a pass
    is switched off or a pipeline is put together differently: the compilation dies later, runs
    slower, or computes something else. The passes that ran are known from the module's metadata
    (`xla_dump_module_metadata`), from the dumps with `xla_dump_hlo_pass_re=.+`, or from the
    release's list less what `xla_disable_hlo_passes` names. An order that the release itself does
    not keep is left out, and so are folders with a compilation that died: `compilation-died` says
    what it was.
    """

    severity = Severity.WARNING
    examples = (
        Bad(
            "HloModule jit_f  // error\n" + _MODULE.partition("HloModule jit_f\n")[2],
            file=f"module_0001.jit_f.0013.{_START}.txt",
            beside={
                "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt": _MODULE,
                "module_0001.jit_f.debug_options": """
                xla_disable_hlo_passes: "reshape-decomposer"
                xla_dump_hlo_pass_re: ".*"
                """,
            },
        ),
        Good(
            _MODULE,
            file=f"module_0001.jit_f.0013.{_START}.txt",
            beside={
                "module_0001.jit_f.sm_9.0_gpu_after_optimizations.txt": _MODULE,
                "module_0001.jit_f.debug_options": """
                xla_disable_hlo_passes: "cse"
                xla_dump_hlo_pass_re: ".*"
                """,
            },
        ),
    )

    def check(self, folder: DumpFolder) -> Findings:
        """Yields one finding for each order that is broken, at the first module that breaks it."""
        if any(pipeline.crashed for pipeline in folder.pipelines):
            return
        by_key: dict[str, tuple[int, Breach]] = {}
        modules: dict[str, int] = {}
        for number, pipeline in enumerate(folder.pipelines):
            for breach in breaches(pipeline):
                key = breach.order.text
                by_key.setdefault(key, (number, breach))
                modules[key] = modules.get(key, 0) + 1
        for key, (number, breach) in by_key.items():
            contract = breach.contract
            notes = [
                f"{contract.relies} relies on: {contract.promise}; otherwise: {contract.symptom}",
                f"known from: {breach.how}",
            ]
            if breach.disabled:
                notes.append(f"{', '.join(breach.disabled)}: disabled by xla_disable_hlo_passes")
            if modules[key] > 1:
                notes.append(f"the same in {modules[key]} modules of this folder")
            yield Finding(
                first_line(folder.dumps[number]),
                breach.order.breach(breach.guilty[1]),
                tuple(notes),
                file=number,
            )
