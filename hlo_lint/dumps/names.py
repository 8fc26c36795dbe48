"""File names of a dump directory, as XLA's `dump.cc` makes them.

    [TIMESTAMP.]module_ID.MODULE.STEP.PIPELINE.after_PASS.before_PASS.txt

module_0001.jit_f.0023.hlo_normalization.after_algsimp.before_cse.txt         (between two passes)
module_0001.jit_f.0319.copy-insertion.after_removing_unnecessary_copies.txt   (during a pass)
module_0000.jit_f.cl_9.0052.tpu-tiling-rewriter.before_tiling_rewriter.txt    (the same, on TPU)
module_0001.jit_f.sm_9.0a_gpu_after_optimizations.txt                         (a named dump)
module_0001.metadata.textproto                                                (without a module)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from hlo_lint.text.patterns import late
from hlo_lint.text.stored import plain_name

_name = late(r"(?:(?P<timestamp>\d{6,})\.)?module_(?P<id>\d+)\.(?P<rest>.+)", re.A).fullmatch
_step = late(
    r"(?P<module>.+?)\.(?P<step>\d{4,})\.(?P<pipeline>.+?)"
    r"\.(?:after_|(?=before_))(?P<after>.+?)(?:\.before_(?P<before>.+?))?(?P<rest>\.(?:txt|hlo|pb|pb\.gz|hlo\.pb"
    r"|hlo\.pb\.gz|html|dot|mlir|pbtxt|hlo\.pbtxt))",
    re.A,
).fullmatch
_named = late(
    r"(?P<module>.+?)\.(?P<rest>(?:before_optimizations|after_spmd_partitioner"
    r"|before_config_assignment|after_optimizations|cpu_after_optimizations"
    r"|(?:sm_[0-9]+(?:\.[0-9]+[a-z]?)?|[A-Za-z]\w*)_gpu_after_optimizations)(?:[-.].*)?"
    r"|priority_fusion_dump\.txt|thunk_\w+\.txt|debug_options|config\.pbtxt"
    r"|autotune_results\.pbtxt|gpu_target_config\.pbtxt)",
    re.A,
).fullmatch
_other = late(r"(?P<module>[^.]+(?:\.cl_\d+)?)(?:\.(?P<rest>.+))?", re.A).fullmatch
_is_tpu = late(r".+\.cl_\d+", re.A).fullmatch
_final = late(r"(?:.*_)?after_optimizations\.(?:txt|hlo|hlo\.pb|hlo\.pb\.gz|hlo\.pbtxt)").fullmatch
_backend = late(r"(?:.*_)?(gpu|cpu)_after_optimizations[-.].*").fullmatch


class DumpName(NamedTuple):
    """The parts of a file name.

    >>> parse_name("module_0001.jit_f.0023.cse.after_dce.before_pipeline-end.txt").after
    'dce'
    >>> parse_name("module_0001.jit_f.sm_9.0a_gpu_after_optimizations.txt").is_final
    True
    """

    timestamp: str
    """Microseconds since 1970 if `xla_dump_include_timestamp` was set, else empty."""
    module_id: int
    module: str
    """The module's name; empty for `module_0001.metadata.textproto`."""
    step: int | None
    """The module's own count of dumps; None for named dumps and other artefacts."""
    pipeline: str
    after: str
    """The pass that has just run; `pipeline-start` at the start. For a dump that a pass writes
    before a part of it, `before_` and that part."""
    before: str
    """The next pass of the pipeline, `pipeline-end` at the end; empty if written during a pass."""
    rest: str
    """The remainder: a named dump, an artefact, the extension."""

    @property
    def key(self) -> tuple[str, int, str]:
        """The parts that all files of a compilation of a module share."""
        return self.timestamp, self.module_id, self.module

    @property
    def backend(self) -> str | None:
        """`tpu` for a module name like `jit_f.cl_933746096`; `gpu` or `cpu` from the named dump;
        else None."""
        if _is_tpu(self.module):
            return "tpu"
        named = None if self.step is not None else _backend(self.rest)
        return named and named[1]

    @property
    def is_final(self) -> bool:
        """True if it is the final module: an `…after_optimizations` text."""
        return _final(self.rest) is not None

    def continued(self, module_id: int, offset: int) -> DumpName:
        """The name as if the module had kept its number and its count of steps."""
        step = None if self.step is None else self.step + offset
        return self._replace(module_id=module_id, step=step)

    @property
    def label(self) -> str:
        """The pass before the dump, or the named dump: `after dce`."""
        if self.step is None:
            return self.rest.rpartition(".")[0]
        within = self.after.startswith("before_")
        return self.after.replace("_", " ", 1) if within else f"after {self.after}"


def parse_name(name: str) -> DumpName | None:
    """The parts of a file name (without directory); None if it is not the name of a dump."""
    match = _name(plain_name(name)) if "module_" in name else None
    if match is None:
        return None
    timestamp, module_id, variant = match["timestamp"] or "", int(match["id"]), match["rest"]
    step = _step(variant)
    if step is not None:
        module, number, *parts = step.groups("")
        return DumpName(timestamp, module_id, module, int(number), *parts)
    if variant == "metadata.textproto":
        return DumpName(timestamp, module_id, "", None, "", "", "", variant)
    # A module may have a dot in its name, so the known endings are tried before the first dot.
    named = _named(variant) or _other(variant)
    if named is None:
        return None
    return DumpName(timestamp, module_id, named["module"], None, "", "", "", named["rest"] or "")


def numbered_twice(names: Iterable[DumpName]) -> tuple[DumpName, DumpName] | None:
    """Two dumps of a module with the same number but after different passes, or None.

    They mean that two compilations wrote to the folder. A pass may occur twice, as text and proto.
    """
    steps: dict[int, DumpName] = {}
    for name in names:
        if name.step is not None:
            earlier = steps.setdefault(name.step, name)
            if (earlier.pipeline, earlier.after) != (name.pipeline, name.after):
                return earlier, name
    return None
