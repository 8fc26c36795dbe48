"""Pass orders that passes rely on, compared with the passes that ran."""

from __future__ import annotations

from typing import Final

from hlo_lint.dumps.passes_run import Breach, breaches
from hlo_lint.rules.base import Bad, Compilation, DumpFolder, Findings, Good, Rule, first_line
from hlo_lint.rules.evidence import PublicReport
from hlo_lint.rules.findings import Finding, Severity

_START = "config-assigner.after_pipeline-start.before_conv-fp8-fallback"
_READS_TRIP_COUNTS: Final = "collective-permute-valid-iteration-annotator"
_PIPELINED: Final = "is_pipelined_while_loop"
_LOOP = """
b {
  i = s32[] get-tuple-element((s32[], s32[]) p), index=0
  x = s32[] get-tuple-element(p), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = s32[] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}
  ROOT t = (s32[], s32[]) tuple(n, y)
}
c {
  j = s32[] get-tuple-element((s32[], s32[]) q), index=0
  last = s32[] constant(6)
  ROOT less = pred[] compare(j, last), direction=LT
}
  zero = s32[] constant(0)
  s = (s32[], s32[]) tuple(zero, zero)
  ROOT w = (s32[], s32[]) while(s), condition=c, body=b,  // error
      frontend_attributes={is_pipelined_while_loop="true"}
"""


class RequiredPassOrder(Rule):
    """A pass that ran without a pass it relies on, or in the wrong order.

    ## Why
    Passes rely on the results of other passes (docs/contracts.md). XLA does not check this when a
    pass is disabled or a pipeline changes: compilation fails later, the program is slower, or it
    computes wrong values. The passes that ran are known from the module's metadata
    (`xla_dump_module_metadata`), from the dumps with `xla_dump_hlo_pass_re=.+`, or from the
    release's list without those in `xla_disable_hlo_passes`. Orders that the release itself
    violates are skipped. If a flag disabled a pass and the program still compiled, the finding is
    information. Folders with a failed compilation are skipped: `compilation-died` explains those.
    In the input of a pass that reads trip counts, a loop that counts to a constant but has no
    annotation shows that the annotator did not run.
    """

    messages = ("Gemm rewriting should run after layout assignment",)
    severity = Severity.WARNING
    evidence = (PublicReport("openxla/xla#14699", "deaths/copy_left"),)
    examples = (
        Bad.entry(
            "HloModule m  // error\nROOT p = f32[8] parameter(0)",
            file=f"module_0001.m.0013.{_START}.txt",
            beside={
                "module_0001.m.sm_9.0_gpu_after_optimizations.txt": """
                HloModule m

                ENTRY e { ROOT p = f32[8] parameter(0) }
                """,
                "module_0001.m.debug_options": """
                xla_disable_hlo_passes: "reshape-decomposer"
                xla_dump_hlo_pass_re: ".*"
                """,
            },
        ),
        Bad.step(_LOOP, by=_READS_TRIP_COUNTS),
        Good.step(
            _LOOP + '      , backend_config={"known_trip_count":{"n":"6"}}', by=_READS_TRIP_COUNTS
        ),
    )

    def check_annotations(self, compilation: Compilation) -> Findings:
        """Pipelined loops without the trip count that a pass reads."""
        for number, dump in enumerate(compilation.dumps):
            if dump.name is None or dump.name.after != _READS_TRIP_COUNTS:
                continue
            from hlo_lint.analysis.loops import loops  # few compilations have such a dump

            for loop in loops(dump.module):
                instruction, counter = loop.instruction, loop.counter
                if _PIPELINED not in instruction.attributes_text or counter is None:
                    continue
                if loop.declared_trip_count is None and counter.trip_count is not None:
                    message = f"{_READS_TRIP_COUNTS} ran before this loop had a known_trip_count"
                    note = (
                        f"the loop runs {counter.trip_count} times, but "
                        "while-loop-trip-count-annotator did not annotate it, so its permutes "
                        "are valid in all iterations"
                    )
                    yield Finding(instruction, message, (note,), file=number)

    def check(self, folder: DumpFolder) -> Findings:
        """A finding for each violated order, at the first module that violates it."""
        # compilation-died names the broken contract of a compilation that failed.
        if any(compilation.crashed for compilation in folder.compilations):
            return
        by_key: dict[str, tuple[int, Breach]] = {}
        modules: dict[str, int] = {}
        for number, compilation in enumerate(folder.compilations):
            for breach in breaches(compilation):
                key = breach.order.text
                by_key.setdefault(key, (number, breach))
                modules[key] = modules.get(key, 0) + 1
        for key, (number, breach) in by_key.items():
            contract = breach.contract
            has_ended = folder.compilations[number].final is not None
            notes = [
                f"{contract.relies} relies on: {contract.promise}; otherwise: {contract.symptom}",
                f"known from: {breach.how}",
            ]
            if breach.disabled:
                notes.append(f"{', '.join(breach.disabled)}: disabled by xla_disable_hlo_passes")
            if modules[key] > 1:
                notes.append(f"also in {modules[key] - 1} more modules of this folder")
            yield Finding(
                first_line(folder.dumps[number]),
                breach.order.breach(breach.guilty[1]),
                tuple(notes),
                severity=Severity.INFO if breach.disabled and has_ended else None,
                file=number,
            )
