"""PTX kernels, as XLA dumps them (`module_NNNN.*.ptx`) or Triton writes them.

>>> hazards(read_ptx(".visible .entry k() { ret; }"))
()
"""

from __future__ import annotations

from hlo_lint.kernels.ptx.async_copies import Hazard, hazards, insert_wait
from hlo_lint.kernels.ptx.reader import Ptx, read_ptx

__all__ = ["Hazard", "Ptx", "hazards", "insert_wait", "read_ptx"]
