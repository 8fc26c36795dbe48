"""Rewrite a module by edits of its text: insertion, replacement, removal of instructions.

`Rewrite` has the names that XLA, MLIR and xDSL give to changes of a graph, but changes no graph:
`graph.py` keeps the changes beside the module, `demands.py` refuses changes that XLA would refuse,
`edits.py` turns the rest into edits.
"""

from hlo_lint.analysis.rewrite.graph import NewInstruction, OperandValue, fresh_name
from hlo_lint.analysis.rewrite.rewrite import Rewrite

__all__ = ["NewInstruction", "OperandValue", "Rewrite", "fresh_name"]
