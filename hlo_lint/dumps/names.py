"""File names of a dump directory, as `dump.cc` makes them.

[timestamp.]module_0001.jit_f.0023.hlo_normalization.after_algsimp.before_cse.txt
module_0001.jit_f.0319.copy-insertion.after_removing_unnecessary_copies.txt   (during a pass)
module_0001.jit_f.sm_9.0a_gpu_after_optimizations.txt                         (a named dump)
module_0001.metadata.textproto
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_name = re.compile(r"(?:(?P<timestamp>\d{6,})\.)?module_(?P<id>\d+)\.(?P<rest>.+)", re.A).fullmatch
_step = re.compile(
    r"(?P<module>.+?)\.(?P<step>\d{4,})\.(?P<pipeline>.+?)"
    r"\.after_(?P<after>.+?)(?:\.before_(?P<before>.+?))?(?P<rest>\.(?:txt|hlo|pb|pb\.gz|hlo\.pb"
    r"|hlo\.pb\.gz|html|dot|mlir|pbtxt|hlo\.pbtxt))",
    re.A,
).fullmatch
_metadata = re.compile(r"metadata\.textproto").fullmatch
_named = re.compile(
    r"(?P<module>.+?)\.(?P<rest>(?:before_optimizations|after_spmd_partitioner"
    r"|before_config_assignment|after_optimizations|cpu_after_optimizations"
    r"|(?:sm_[0-9]+(?:\.[0-9]+[a-z]?)?|[A-Za-z]\w*)_gpu_after_optimizations)(?:[-.].*)?"
    r"|priority_fusion_dump\.txt|thunk_\w+\.txt|debug_options|config\.pbtxt"
    r"|autotune_results\.pbtxt|gpu_target_config\.pbtxt)",
    re.A,
).fullmatch
_other = re.compile(r"(?P<module>[^.]+)(?:\.(?P<rest>.+))?", re.A).fullmatch


@dataclass(frozen=True, slots=True)
class DumpName:
    """A file name taken apart.

    >>> parse_name("module_0001.jit_f.0023.cse.after_dce.before_pipeline-end.txt").after
    'dce'
    >>> parse_name("module_0001.jit_f.sm_9.0a_gpu_after_optimizations.txt").is_final
    True
    """

    timestamp: str
    """Microseconds since 1970 where `xla_dump_include_timestamp` was set, else empty."""
    module_id: int
    module: str
    """The module's name; empty for `module_0001.metadata.textproto`."""
    step: int | None
    """The module's own count of dumps; None for named dumps and other artefacts."""
    pipeline: str
    after: str
    """The pass that has just run, `pipeline-start` at the beginning."""
    before: str
    """The next pass in the list, `pipeline-end` at the end; empty in the midst of a pass."""
    rest: str
    """What else stands there: a named dump, an artefact, the extension."""

    @property
    def key(self) -> tuple[str, int, str]:
        """What the files of one compilation of one module have in common."""
        return self.timestamp, self.module_id, self.module

    @property
    def is_final(self) -> bool:
        """Whether it is what the compiler ended with: an `…after_optimizations` text."""
        return _final(self.rest) is not None

    @property
    def label(self) -> str:
        """How a person would name it: the pass it follows, or the named dump."""
        return f"after {self.after}" if self.step is not None else self.rest.rpartition(".")[0]


_final = re.compile(
    r"(?:.*_)?after_optimizations\.(?:txt|hlo|hlo\.pb|hlo\.pb\.gz|hlo\.pbtxt)"
).fullmatch


def parse_name(name: str) -> DumpName | None:
    """The parts of a file name (no directory), or None where no dump is named so."""
    found = _name(name)
    if found is None:
        return None
    timestamp, module_id, rest = found["timestamp"] or "", int(found["id"]), found["rest"]
    step = _step(rest)
    if step is not None:
        return DumpName(
            timestamp,
            module_id,
            step["module"],
            int(step["step"]),
            step["pipeline"],
            step["after"],
            step["before"] or "",
            step["rest"],
        )
    if _metadata(rest):
        return DumpName(timestamp, module_id, "", None, "", "", "", rest)
    named = _named(rest) or _other(rest)
    if named is None:
        return None
    return DumpName(timestamp, module_id, named["module"], None, "", "", "", named["rest"] or "")
