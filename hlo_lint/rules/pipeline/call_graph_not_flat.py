"""The precondition of copy-insertion on the call graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain, repeat

from hlo_lint.analysis.calls import calls_of, holders
from hlo_lint.dumps.phases import CALL_GRAPH_IS_FLAT
from hlo_lint.hlo.ir import Instruction, Module, cached_analysis
from hlo_lint.hlo.records import opcode_of
from hlo_lint.rules.base import Bad, Finding, Findings, Good, RefusedByXla, Rule

SEQUENTIAL = ("call", "conditional", "while")
"""Opcodes that run a computation once as part of the program; others apply it to elements."""


class CallGraphNotFlat(Rule):
    """A computation with several callers when copy-insertion runs.

    ## Why
    copy-insertion assigns each computation a single set of buffers, as if it had a single caller.
    flatten-call-graph gives each caller its own copy. If it was disabled, or a later pass shares
    computations again, compilation fails with `Call graph must be flattened before copy insertion`,
    which does not name the computation. Computations applied to elements (by a reduce, a map, a
    sort) may be shared, and so may computations of asynchronous starts. The rule reports only when
    copy-insertion is known to come next: before it, programs may share computations.
    """

    precondition = CALL_GRAPH_IS_FLAT
    opcodes = frozenset(SEQUENTIAL)
    evidence = (
        RefusedByXla("Call graph must be flattened before copy insertion", passes="copy-insertion"),
    )
    examples = (
        Bad.entry("""
            double { ROOT y = f32[8]{0} add(f32[8]{0} x, x) }
            a = f32[8]{0} call(f32[8]{0} p), to_apply=double
            ROOT b = f32[8]{0} call(a), to_apply=double  // error
        """),
        Good.entry("""
            sum { ROOT z = f32[] add(f32[] x, f32[] y) }
            zero = f32[] constant(0)
            a = f32[8]{0} reduce(f32[8,8]{1,0} p, zero), dimensions={0}, to_apply=sum
            ROOT b = f32[] reduce(a, zero), dimensions={0}, to_apply=sum
        """),
    )

    def check(self, module: Module) -> Findings:
        """The last sequential caller of each computation with several callers."""
        for name, calls in _shared(module).items():
            sequential = [call for call in calls if call.opcode in SEQUENTIAL]
            if sequential:
                last = sequential[-1]
                others = ", ".join(f"%{call.name}" for call in calls if call is not last)
                yield Finding(
                    last, f"%{name} has {len(calls)} callers: {others}, and this {last.opcode}"
                )


@cached_analysis
def _shared(module: Module) -> Mapping[str, Sequence[Instruction]]:
    """The callers of each computation that has several, at least one of them sequential."""
    holding = list(chain.from_iterable(map(holders(module).get, SEQUENTIAL, repeat(()))))
    if not holding:
        return {}
    sequential = {
        name
        for computation in holding
        for number, names in calls_of(computation).items()
        if opcode_of(computation.rows[number]) in SEQUENTIAL
        for name in names
    }
    calls = [(computation, calls_of(computation)) for computation in module.computations]
    named = chain.from_iterable(chain.from_iterable(called.values()) for _, called in calls)
    counts = Counter(filter(sequential.__contains__, named))
    callers: dict[str, list[Instruction]] = {
        name: [] for name, count in counts.items() if count > 1
    }
    for computation, called in calls if callers else ():
        for number, names in called.items():
            for name in callers.keys() & names:
                callers[name] += [computation.at(number)] * names.count(name)
    return callers
