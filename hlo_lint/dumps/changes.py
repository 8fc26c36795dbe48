"""Changes of a module that its passes do not report, or report in vain."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import NumberedDump, PassDump
from hlo_lint.dumps.run_records import CHANGED_PASSES
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.records import name_of, references_of, root_mark_of


class Disagreement(NamedTuple):
    """Two consecutive dumps whose difference contradicts the pass's report."""

    before: PassDump
    after: PassDump
    reported: bool
    """True if the pass in between reported a change, but the dumps are equal."""


def disagreements(compilation: Compilation) -> Iterator[Disagreement]:
    """Unreported changes, and reported changes that did not happen.

    The module's metadata has the reports; with `xla_dump_hlo_pass_re=.*` a pass without a reported
    change leaves no dump. No pass runs at the start of a pipeline: a change there happened between
    pipelines. Scheduling, and pipelines inside a pass, are left out.
    """
    steps, options = compilation.steps, compilation.options
    if options is None or not options.records_every_change or not compilation.releases:
        return
    only_changes = options.pass_pattern == CHANGED_PASSES
    runs = () if only_changes else compilation.pass_runs or ()
    reports = {name: run.changed for run in runs for name in run.dumps}
    # XLA:TPU changes modules between its pipelines: it copies parameters into scalar memory there.
    releases = () if compilation.backend == "tpu" else compilation.releases
    starts = {entry for release in releases for entry in release.passes}
    for before, after in pairwise(steps):
        # Other pairs may have a pass without a dump in between.
        if not _are_neighbours(before, after):
            continue
        if after.name.after == "pipeline-start":
            is_complete = (after.name.pipeline, "pipeline-start") in starts
            reported = False if is_complete and not after.module.is_scheduled else None
        else:
            reported = True if only_changes else reports.get(after.path.name)
        if reported is None:
            continue
        if before.memo is None or before.memo is not after.memo:
            is_same = before.file.text == after.file.text
        else:  # equal texts share their pieces
            is_same = before.text_identity == after.text_identity
        if is_same == reported:
            yield Disagreement(before, after, reported)


def _are_neighbours(before: NumberedDump, after: NumberedDump) -> bool:
    """True if a single pass is between two dumps: neither was written during a pass, and the second
    is not the dump of a pass that ends with an inner pipeline."""
    ours, theirs = before.name, after.name
    # The pass ran an inner pipeline: spmd-partitioning ends with spmd-cleanup, and
    # layout_normalization is itself a pipeline.
    is_record = theirs.after != "pipeline-start" and ours.pipeline != theirs.pipeline
    return bool(ours.before and theirs.before) and not is_record and after.step == before.step + 1


def adds_only_unread(before: Module, after: Module) -> bool:
    """True if a pass only added instructions without uses."""
    earlier = {computation.name: frozenset(computation.rows) for computation in before.computations}
    same_names = earlier.keys() == {computation.name for computation in after.computations}
    if not same_names or before.header != after.header:
        return False
    has_new = False
    for computation in after.computations:
        old = earlier[computation.name]
        new = [row for row in computation.rows if row not in old]
        if len(computation.rows) != len(old) + len(new) or any(root_mark_of(row) for row in new):
            return False
        names = {name_of(row) for row in new}
        read = {name.partition("#")[0] for row in old for name in references_of(row)}
        if not names.isdisjoint(read):
            return False
        has_new = has_new or bool(new)
    return has_new


def resizes_only_workspaces(before: Module, after: Module) -> bool:
    """True if two modules differ only in result shapes and configurations of cuDNN calls.

    GpuCompiler::RunCudnnCompilerPasses runs CuDnnCustomCallCompiler outside any dumped pipeline: it
    gets the size of the workspace from cuDNN and reports the change. It also writes defaults into
    the configuration: `"force_deterministic":false`.
    """
    ours, theirs = before.computations, after.computations
    if before.header != after.header or [c.name for c in ours] != [c.name for c in theirs]:
        return False
    changed = False
    for old, new in zip(ours, theirs, strict=True):
        if old is new:
            continue
        if len(old.rows) != len(new.rows):
            return False
        for was, call in zip(old.instructions, new.instructions, strict=True):
            if was.row == call.row:
                continue
            same = was.name == call.name and was.operand_names == call.operand_names
            if not same or '"__cudnn$' not in call.attributes_text:
                return False
            if _besides_config(was) != _besides_config(call):
                return False
            changed = True
    return changed


def _besides_config(instruction: Instruction) -> dict[str, str]:
    attributes = instruction.attributes
    return {name: attributes[name] for name in attributes if name != "backend_config"}
