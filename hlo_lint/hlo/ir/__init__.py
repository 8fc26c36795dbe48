"""A module of HLO: views, created on demand, of immutable records that dumps share.

The pass dumps of a module repeat nearly all of their lines, so storage is shared: a record
(`records.py`) holds the fields of an instruction, a `Computation` is a tuple of records with its
text, and both are the same object in every dump that repeats them. `Module` and `Instruction` are
views. All are immutable: a fix is an edit of the text.
"""

from hlo_lint.hlo.ir.analysis_cache import cached_analysis
from hlo_lint.hlo.ir.computation import Computation, Inline
from hlo_lint.hlo.ir.instruction import CALLING_ATTRIBUTES, Instruction, Operand, called_names
from hlo_lint.hlo.ir.module import HloFile, Module

__all__ = [
    "CALLING_ATTRIBUTES",
    "Computation",
    "HloFile",
    "Inline",
    "Instruction",
    "Module",
    "Operand",
    "cached_analysis",
    "called_names",
]
