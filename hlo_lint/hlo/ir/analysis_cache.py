"""Results of analyses, cached on the analyzed module or computation."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from hlo_lint.hlo.ir.computation import Computation
    from hlo_lint.hlo.ir.module import Module

_NodeT = TypeVar("_NodeT", "Module", "Computation")
_ResultT = TypeVar("_ResultT")
_ABSENT: Final = object()


def cached_analysis(analyze: Callable[[_NodeT], _ResultT]) -> Callable[[_NodeT], _ResultT]:
    """Decorate a function of a module or computation to run once for all files that share it."""

    @wraps(analyze)
    def cached(node: _NodeT) -> _ResultT:
        result: Any = node.analysis_cache.get(analyze, _ABSENT)
        if result is _ABSENT:
            result = node.analysis_cache[analyze] = analyze(node)
        return result  # type: ignore[no-any-return]  # `cast` is a call, and this is a hot path

    return cached
