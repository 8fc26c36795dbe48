"""Results for the autotuner that were not measured, so that a backend wins without a GPU.

XLA looks a fusion up in the results it was given before it times anything. What it looks up, and
missed, it logs (`autotuner_cache.cc`); the same keys with another answer are what it is given next.
"""

from __future__ import annotations

import re

LOGGING = {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "autotuner_cache=5"}
"""Environment variables with which XLA logs each key that it misses."""

OLD_FORMAT = {"xla_gpu_use_new_autotune_cache_format": False}
"""Option of the releases that have two formats; the results here are of the old one."""

RESULTS_FROM = "xla_gpu_load_autotune_results_from"
"""Option that names a file with results."""

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
    """Results that make cuBLASLt win each dot whose key is in a log; None where none is."""
    keys = dict.fromkeys(match.groups() for match in _missed.finditer(log))
    entries = [
        _ENTRY.format(device=_quoted(device), hlo=_quoted(hlo), version=version)
        for device, hlo, version in keys
        if " dot(" in hlo
    ]
    return "version: 3\n" + "".join(entries) if entries else None


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
