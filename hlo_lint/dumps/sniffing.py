"""Whether a file holds HLO: `.hlo` is the ending of other things, too."""

from __future__ import annotations

from hlo_lint.dumps.directory import Dump, Skipped
from hlo_lint.dumps.file_types import Kind
from hlo_lint.dumps.pipeline import PassDump, Pipeline
from hlo_lint.text.errors import DumpError


def skip_others(dump: Dump) -> None:
    """Takes the files that hold nothing a rule could read out of a dump, and says so in it.

    Text that is HLO in part stays: what cannot be read of it is for a rule to say.
    """
    kept = []
    for pipeline in dump.pipelines:
        left = []
        for each in pipeline.dumps:
            if _holds_hlo(each):
                left.append(each)
            else:
                dump.skipped.append(Skipped(str(each.path), "it holds no HLO"))
        if left:
            kept.append(Pipeline(left, pipeline.artefacts, lone=pipeline.lone))
    dump.pipelines = kept


def _holds_hlo(dump: PassDump) -> bool:
    try:
        modules = dump.file.modules
    except (OSError, DumpError):
        return True  # that it cannot be read is for the check to say
    if dump.kind is not Kind.HLO:
        return True
    return any(
        module.header or any(computation.instructions for computation in module.computations)
        for module in modules
    )
