"""Forged results for the autotuner: a GEMM backend wins without a GPU that measures it.

XLA looks each fusion up in the given results before it times anything, and logs the keys that it
misses (`autotuner_cache.cc`). The results for the next compile have these keys.
"""

from __future__ import annotations

import re

LOGGING = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "autotuner_cache=5"}
"""Environment variables that make XLA log each key that it misses."""

OLD_FORMAT = {"xla_gpu_use_new_autotune_cache_format": False}
"""The option that selects the old format of results, in releases with two."""

RESULTS_FROM = "xla_gpu_load_autotune_results_from"
"""The option with the file of results."""

CUBLASLT_CALL = "__cublas$lt$matmul"

_missed = re.compile(r"<key model='(.*?)', hlo='(.*?)', version=(\d+)>", re.S)
# A GEMM result for a fusion means that cuBLASLt takes its dot out of it (legacy_cache.cc).
_ENTRY = """results {{
  device: "{device}"
  hlo: "{hlo}"
  result {{ gemm {{ algorithm: 0 }} }}
  version: {version}
}}
"""


def cublaslt_wins(log: str) -> str | None:
    """Results that make cuBLASLt win each dot that a log names; None for a log without dots."""
    keys = dict.fromkeys(match.groups() for match in _missed.finditer(log))
    entries = [
        _ENTRY.format(device=_quoted(device), hlo=_quoted(hlo), version=version)
        for device, hlo, version in keys
        if " dot(" in hlo
    ]
    return "version: 3\n" + "".join(entries) if entries else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
