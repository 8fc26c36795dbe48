"""What a text is that is no HLO: PTX, a log of tensor descriptors, a log of the autotuner."""

from __future__ import annotations

import re
from enum import Enum


class Kind(Enum):
    """What a file holds."""

    HLO = "HLO"
    PTX = "PTX"
    TMA_LOG = "a log that prints tensor descriptors"
    AUTOTUNE_LOG = "a log or results of the autotuner"


PROTO_TEXT = (".textproto", ".pbtxt", ".prototxt", ".txtpb")

_begins_record = re.compile(
    r"^(?:instruction_profiles|logs|entries|results)\s*:?\s*[{<]", re.M
).search
"""What stands in whatever the autotuner writes, at the beginning of a line."""

EMITTER_TEXT = ".triton-to-llvm.txt"
"""What XLA's Triton emitter did, pass by pass: it prints tensor descriptors."""

_DESCRIPTORS = ("TMA", "tma", "TmaDescriptor")
"""One of these stands in whatever prints a tensor descriptor."""


def kind_of(name: str, text: str) -> Kind:
    """What a file of that name and text holds; HLO where nothing says otherwise.

    >>> kind_of("module_0001.jit_f.ptx", ".version 8.7")
    <Kind.PTX: 'PTX'>
    >>> kind_of("run.log", "TMA Desc Addr:   0x7ffc5a3f1240")
    <Kind.TMA_LOG: 'a log that prints tensor descriptors'>
    """
    if name.endswith(".ptx"):
        return Kind.PTX
    if name.endswith(PROTO_TEXT):
        if _begins_record(text) is None:
            return Kind.HLO
        from hlo_lint.kernels.autotuning.log import looks_like_autotuning

        return Kind.AUTOTUNE_LOG if looks_like_autotuning(text) else Kind.HLO
    if name.endswith(EMITTER_TEXT):
        return Kind.TMA_LOG
    if not any(word in text for word in _DESCRIPTORS) or text.startswith("HloModule"):
        return Kind.HLO
    from hlo_lint.kernels.tma.cutlass_log import looks_like_tma_log
    from hlo_lint.kernels.tma.xla_text import looks_like_tma_text

    prints = looks_like_tma_log(text) or looks_like_tma_text(text)
    return Kind.TMA_LOG if prints else Kind.HLO
