"""PTX kernels, as dumped by XLA (`module_NNNN.*.ptx`) and written by Triton.

>>> hazards(read_ptx(".visible .entry k() { ret; }"))
()
"""

from __future__ import annotations

from hlo_lint.kernels.ptx.async_copies import Hazard, Survey, insert_wait, survey
from hlo_lint.kernels.ptx.reader import Ptx, read_ptx

__all__ = ["Hazard", "Ptx", "Survey", "hazards", "insert_wait", "read_ptx", "survey"]


def hazards(ptx: Ptx) -> tuple[Hazard, ...]:
    """Stores to shared memory that race with asynchronous copies, grouped by missing wait."""
    return survey(ptx).hazards
