"""The types of files that rules read: HLO, PTX, logs of tensor descriptors or the autotuner."""

from __future__ import annotations

import re
from enum import Enum

from hlo_lint.text.patterns import late

ERROR_FILE = "error.txt"
"""The name under which `hlo-lint capture` keeps XLA's message beside the dump."""
LOG_ENDINGS = (".log", ".err", "stderr", "stderr.txt", ERROR_FILE)
"""Endings of the names of logs beside a dump."""


class FileType(Enum):
    """The content of a file."""

    HLO = "HLO"
    PTX = "PTX"
    TMA_LOG = "a log that prints tensor descriptors"
    AUTOTUNE_LOG = "a log or results of the autotuner"


PROFILE = ".xplane.pb"
"""A profile of `jax.profiler.trace`: it contains the programs that ran."""
PROTO_TEXT = (".textproto", ".pbtxt", ".prototxt", ".txtpb")

_RECORD = r"(?:instruction_profiles|logs|entries|results)\s*:?\s*[{<]"
"""The beginning of each record that the autotuner writes."""

_begins_record = late(rf"^{_RECORD}", re.M).search
_begins_as_autotuning = late(
    r"\s*(?:(?:#[^\n]*|(?:device|codegen_version|codegen_options_fingerprint|version):[^\n]*"
    r"|per_backend_versions \{\s*(?:(?:key|value):[^\n]*\s*)*\})\s*)*" + _RECORD
).match

EMITTER_TEXT = ".triton-to-llvm.txt"
"""The log of XLA's Triton emitter, pass by pass: it prints tensor descriptors."""

CUTLASS_START = "TMA Desc Addr:"
FMHA_START = "tmaFormat:"
ATTRIBUTE_START = "#triton_xla.tma_descriptor<"
MESSAGE_START = "TmaDescriptor{"
DESCRIPTOR_STARTS = (CUTLASS_START, FMHA_START, ATTRIBUTE_START, MESSAGE_START)
"""The starts of a printed tensor descriptor: CUTLASS, FMHA, XLA's two."""

_DESCRIPTORS = ("TMA", "tma", "TmaDescriptor")
"""Words of texts with tensor descriptors: every such text has at least one."""


def file_type_of(name: str, text: str) -> FileType:
    """The type of a file by its name and text; HLO by default.

    >>> file_type_of("module_0001.jit_f.ptx", ".version 8.7")
    <FileType.PTX: 'PTX'>
    >>> file_type_of("run.log", "TMA Desc Addr:   0x7ffc5a3f1240")
    <FileType.TMA_LOG: 'a log that prints tensor descriptors'>
    """
    if name.endswith(".ptx"):
        return FileType.PTX
    if name.endswith(PROTO_TEXT):
        if _begins_record(text) is None:
            return FileType.HLO
        return FileType.AUTOTUNE_LOG if looks_like_autotuning(text) else FileType.HLO
    if name.endswith(EMITTER_TEXT):
        return FileType.TMA_LOG
    if text.startswith("HloModule") or not any(word in text for word in _DESCRIPTORS):
        return FileType.HLO
    return FileType.TMA_LOG if any(start in text for start in DESCRIPTOR_STARTS) else FileType.HLO


def is_instead(name: str) -> bool:
    """True for a profile or a snapshot, which is read only if no text beside it has its HLO.

    >>> is_instead("host.xplane.pb"), is_instead("module_0001.jit_f.snapshot.7.pb")
    (True, True)
    """
    return name.endswith(PROFILE) or _is_snapshot(name) is not None


_is_snapshot = late(
    r"module_\d+\..+\.(?:snapshot\.-?\d+\.pb|hlo_snapshot\.pb|hlo_unoptimized_snapshot\.(?:pb|txt))",
    re.A,
).search


def looks_like_autotuning(text: str) -> bool:
    """True if a text proto begins like a log or results: users choose the names of these files."""
    return _begins_as_autotuning(text) is not None
