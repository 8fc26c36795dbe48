"""Autotuner choices within timing noise, which another run may not repeat."""

from __future__ import annotations

from hlo_lint.rules.base import AutotuningRuns, Bad, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.rules.options import Option
from hlo_lint.text.phrases import first_of

_LOG = """
device: "0123456789abcdef"
instruction_profiles {
  hlo_fingerprint: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
  config_profiles { config { backend: TRITON backend_config { triton { block_m: 64 } } } run_time { nanos: 4256 } }
  config_profiles { config { backend: NATIVE_EMITTER backend_config { native_emitter { } } } run_time { nanos: %(nanos)d } }
  hlo_text: "gemm_fusion_dot = bf16[64,64]{1,0} fusion(p.0), kind=kCustom, calls=gemm"
}
"""  # noqa: E501


class FragileAutotunerWinner(Rule):
    """A kernel whose backend the autotuner may choose differently in the next run.

    ## Why
    XLA times each candidate once, after a warm-up run, and picks the fastest, or the candidate with
    the least scratch memory among those close to it. If two backends are within timing noise, the
    winner changes from process to process, and with it the last bits of the numbers, the speed, and
    whether the program compiles at all, if only one backend does (see
    `gemm-breaks-on-backend-flip`). From a single log the rule reports which choices are that close;
    from several logs of the same program, which changed. `benchmarks/FRAGILE.md` has its accuracy.
    """

    severity = Severity.WARNING
    lasting_lead = Option(
        1.156,  # equals fragile_winner.SURE (a test checks that): its import would slow every run
        "Smallest ratio of a rival's time to the winner's for a stable choice; 1.156 is fitted to "
        "many runs of a GPU (benchmarks/FRAGILE.md).",
        least=1,
    )
    evidence = (
        MeasuredHarm(
            "On an H200 with jax 0.11.2, 5 of 15 winners of a program changed between 16 "
            "processes.",
            "autotune/new.textproto",
        ),
    )
    examples = (Bad(_LOG % {"nanos": 4320}, marks=(2,)), Good(_LOG % {"nanos": 9000}))

    def check(self, runs: AutotuningRuns) -> Findings:
        """Winners that differ between logs, and choices of the last log that are too close."""
        from hlo_lint.kernels.autotuning.fragile_winner import changed_winners, fragile

        flipped = changed_winners(runs.logs)
        for changed in flipped:
            last = changed.wins[-1]
            wins = [
                f"{runs.names[win.log]}: {win.candidate.backend}, {win.candidate.nanoseconds} ns"
                for win in changed.wins
            ]
            notes = first_of(wins, "more logs")
            yield Finding(last.tuned.span, changed.reason, notes=notes, file=last.log)
        reported = {changed.tuned.fingerprint or changed.tuned.name for changed in flipped}
        number = len(runs.logs) - 1
        for close in fragile(runs.logs[number], self.lasting_lead):
            if (close.tuned.fingerprint or close.tuned.name) not in reported:
                yield Finding(close.tuned.span, close.reason, notes=close.advice, file=number)
