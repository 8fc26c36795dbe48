"""Rewrites of a module as edits of its text: insert, replace and remove instructions.

`Rewrite` is named as XLA, MLIR and xDSL name changes of a graph, but it changes none: `graph.py`
holds the changes beside the module, `demands.py` refuses those that XLA would refuse, `edits.py`
prints them.
"""

from hlo_lint.analysis.rewrite.graph import NewInstruction, OperandValue, fresh_name
from hlo_lint.analysis.rewrite.rewrite import Rewrite

__all__ = ["NewInstruction", "OperandValue", "Rewrite", "fresh_name"]
