"""The proof that two texts compute the same, at the strongest level that applies.

- `structure`: every instruction computes what it computed, of the same operands. For edits of
  attributes, payloads and comments, and for another order of the lines.
- `index maps`: every element comes from where it came from, whatever the values. For chains of
  data movement of any size, between instructions that stay.
- `executed`: both modules give the same bits for seeded inputs on XLA:CPU, in a child process. A
  sample, for anything that runs.
"""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from math import prod
from typing import Final

from hlo_lint.engine.proof.terms import Differs, NotLayout, prove_equal
from hlo_lint.hlo.ir import Module
from hlo_lint.text.errors import DumpError
from hlo_lint.text.phrases import counted
from hlo_lint.xla.cpu import NotRun, XlaCpu

PROOF_SEEDS: Final = 3
"""Inputs on which both modules run: an even seed has negative numbers, an odd one has none."""


class Level(StrEnum):
    """The strength of a proof."""

    STRUCTURE = "structure"
    INDEX_MAPS = "index maps"
    EXECUTED = "executed"


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a proof about two texts."""

    level: Level | None
    """None if no level proves that they compute the same."""
    differs: bool
    """True if they are known to compute something else."""
    reasons: tuple[str, ...]
    """The proven statement; else the reason of each level that proves nothing."""

    @property
    def holds(self) -> bool:
        """True if both compute the same."""
        return self.level is not None

    def __str__(self) -> str:
        if self.level is None:
            return ("not equal: " if self.differs else "not proven: ") + "; ".join(self.reasons)
        return f"{self.level}: {'; '.join(self.reasons)}"


def prove(before: Module, after: Module, *, xla: XlaCpu | None = None) -> Proof:
    """The proof of the strongest level that applies to two modules.

    `xla` executes them if the other levels do not apply; None for a child of this call.

    >>> from hlo_lint.hlo.parser.module import parse_file
    >>> text = "HloModule m\\nENTRY e {{ p = f32[] parameter(0) ROOT r = f32[] {} }}"
    >>> modules = [
    ...     parse_file(text.format(root)).modules[0]
    ...     for root in ("copy(p)", "negate(p)", "reshape(p)")
    ... ]
    >>> print(prove(modules[0], modules[2]))
    index maps: 1 element in 1 data movement: every source is the same
    >>> prove(modules[0], modules[1]).differs
    True
    """
    if find_spec("numpy") is None:
        return Proof(None, False, ("pip install 'hlo-lint[literals]' to compare values",))
    try:
        equality = prove_equal(before, after)
    except Differs as error:
        return Proof(None, True, (f"{error}",))
    except NotLayout as error:
        reason = f"index maps do not apply: {error}"
    else:
        if not equality.moves:
            fact = "every instruction computes what it computed"
            if not equality.computations:
                fact = "no computation differs"
            return Proof(Level.STRUCTURE, False, (fact,))
        moves = counted(equality.moves, "data movement")
        elements = counted(equality.elements, "element")
        fact = f"{elements} in {moves}: every source is the same"
        return Proof(Level.INDEX_MAPS, False, (fact,))
    with nullcontext(xla) if xla else XlaCpu() as xla:
        proof = _executed(before, after, xla)
    if proof.holds or proof.differs:
        return proof
    return Proof(None, False, (reason, *proof.reasons))


def _executed(before: Module, after: Module, xla: XlaCpu) -> Proof:
    from hlo_lint.engine.values.compare import result_difference
    from hlo_lint.engine.values.lowering.graph import Nodes, NotLowered
    from hlo_lint.engine.values.lowering.lower import Lowering
    from hlo_lint.engine.values.programs import Runs, StepOutcome

    nodes = Nodes()
    try:
        one, other = (Lowering(module, nodes).program() for module in (before, after))
        # What a call computes that is cut depends on its payload, too, which a fix may edit.
        if cuts := sorted({cut.what for cut in (*one.cuts, *other.cuts)}):
            return Proof(None, False, (f"XLA:CPU does not run {', '.join(cuts)}",))
        runs = Runs(xla)
        verdict = runs.compare(one, other, one.inputs, range(PROOF_SEEDS))
        executed = f"executed with seed {verdict.seed}"
        if verdict.outcome is StepOutcome.WITHIN_BOUND:
            old, new = (runs.results(p, one.inputs, verdict.seed) for p in (one, other))
            reason = f"{executed}, {result_difference(old, new)}: no more than rounding changes"
            return Proof(None, False, (reason,))
    except (NotLowered, NotRun, DumpError) as error:
        return Proof(None, False, (f"XLA:CPU does not apply: {error}",))
    match verdict.outcome:
        case StepOutcome.CHANGED:
            return Proof(None, True, (f"{executed}, {verdict.difference}",))
        case StepOutcome.SAME_GRAPH:
            fact = "both are one graph of values, which need not run"
            return Proof(Level.EXECUTED, False, (fact,))
        case StepOutcome.SAME_BITS:
            elements = sum(prod(root.shape.dims) for root in one.graph.roots)
            what = f"{counted(elements, 'element')} of the result"
            fact = f"{what} equal bit for bit on {PROOF_SEEDS} seeded inputs"
            return Proof(Level.EXECUTED, False, (fact,))
    return Proof(None, False, (f"not executed: {verdict.reason}",))


# Kernels ----------------------------------------------------------------------------------------

_WAIT: Final = re.compile(
    r"\s*(?:cp\.async\.wait_(?:group\s+\d+|all)|bar\.sync\s+\d+|barrier\.sync\s+\d+);\s*"
).fullmatch


def prove_ptx(before: str, after: str) -> Proof:
    """The proof that a kernel only waits more than it did: a wait changes no value of its own.

    >>> print(prove_ptx("ret;", "cp.async.wait_all;\\nret;"))
    structure: 1 wait is added
    """
    rest = iter(after.split("\n"))
    added = []
    for line in before.split("\n"):
        for other in rest:
            if other == line:
                break
            added.append(other)
        else:
            return Proof(None, False, (f"the line {line.strip()!r} is gone",))
    added += rest
    strange = [line for line in added if not _WAIT(line)]
    if strange:
        return Proof(None, False, (f"nothing here executes {strange[0].strip()!r}",))
    verb = "is" if len(added) == 1 else "are"
    return Proof(Level.STRUCTURE, False, (f"{counted(len(added), 'wait')} {verb} added",))
