"""Passes of a pipeline that undo each other's changes."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from hlo_lint.dumps.pass_dump import NumberedDump
from hlo_lint.hlo.ir import Module
from hlo_lint.rules.base import Bad, Compilation, Findings, Good, Rule, first_line
from hlo_lint.rules.findings import Finding, Severity

_MIN_RUNS: Final = 3
"""The smallest number of equal results of a pass: two may be chance."""
_PROGRAM: Final = """
HloModule m{mark}

ENTRY e {{
  p = f32[8,4]{{1,0}} parameter(0)
  {move}
  ROOT n = f32[4,8]{{1,0}} {root}
}}
"""
_AFTER: Final = "module_0001.m.{:04}.simplification.after_{}.before_{}.txt"


def _example(kind: type[Bad] | type[Good], rounds: int, other: str = "mover") -> Bad | Good:
    """The dumps of a pipeline whose two passes move a transpose back and forth."""
    early = {"move": "t = f32[4,8]{1,0} transpose(p), dimensions={1,0}", "root": "negate(t)"}
    late = {"move": "t = f32[8,4]{1,0} negate(p)", "root": "transpose(t), dimensions={1,0}"}
    dumps = {_AFTER.format(1, "pipeline-start", "mover"): _PROGRAM.format(**early, mark="")}
    for number in range(2, 2 * rounds + 2, 2):
        dumps[_AFTER.format(number, other, "folder")] = _PROGRAM.format(**late, mark="")
        dumps[_AFTER.format(number + 1, "folder", "mover")] = _PROGRAM.format(**early, mark="")
    last, _ = dumps.popitem()
    mark = "  // error" if kind is Bad else ""
    return kind(_PROGRAM.format(**early, mark=mark), file=last, beside=dumps)


class PassesUndoEachOther(Rule):
    """A pass that makes the same change again because another pass undid it.

    ## Why
    Pipelines repeat their passes until no pass reports a change. If two passes undo each other,
    they repeat until XLA's limit of 25 rounds, or forever: that takes time, and the result depends
    on which pass ran last. The finding is information: the simplifications of XLA:GPU in jax
    0.12.0.1 (degenerate-dimension-rewriter, reshape-mover) do so in a third of all programs, and
    the values are right.

    The finding is at the last of at least three runs of a pass in a run of a pipeline, if the
    module has the same structure after each of the last three, although other passes changed it in
    between.
    """

    severity = Severity.INFO
    examples = (_example(Bad, 3), _example(Good, 2), _example(Good, 3, "pipeline-start"))

    def check(self, compilation: Compilation) -> Findings:
        """A finding for each run of a pipeline, at the last pass that repeats its result."""
        from hlo_lint.analysis.diff.structural_hash import Structures

        steps = compilation.pipeline.steps
        for run in _runs_of_pipelines(steps):
            by_pass: dict[str, list[NumberedDump]] = defaultdict(list)
            for dump in run:
                by_pass[dump.name.after].append(dump)
            for name, dumps in sorted(by_pass.items(), key=lambda item: -item[1][-1].step):
                if len(dumps) < _MIN_RUNS or name == "pipeline-start":
                    continue
                *_, first, second, third = dumps
                modules = [dump.module for dump in (first, second, third)]
                if len(set(map(_size, modules))) > 1:
                    continue
                structures = Structures()
                if len({structures.of(module).number for module in modules}) > 1:
                    continue
                # The start of the pipeline repeats the module that the previous round ended with.
                between = dict.fromkeys(
                    dump.name.after
                    for dump in run
                    if second.step < dump.step < third.step and dump.name.after != "pipeline-start"
                )
                if between:
                    yield Finding(
                        first_line(third),
                        f"{name} made the module equal to that after steps {first.step} and "
                        f"{second.step}",
                        notes=(f"{', '.join(between)} undid the change in between",),
                        file=compilation.dumps.index(third),
                    )
                    break


def _runs_of_pipelines(steps: tuple[NumberedDump, ...]) -> list[list[NumberedDump]]:
    """Consecutive dumps of the same pipeline; a fixed point repeats the pipeline."""
    runs: list[list[NumberedDump]] = []
    for dump in steps:
        if runs and runs[-1][-1].name.pipeline == dump.name.pipeline:
            runs[-1].append(dump)
        else:
            runs.append([dump])
    return runs


def _size(module: Module) -> tuple[int, int]:
    return len(module.computations), sum(len(body.rows) for body in module.computations)
