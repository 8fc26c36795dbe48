"""Prove that two texts compute the same values, at the strongest level that applies.

- `structure`: every instruction applies the same operation to the same operands. For edits of
  attributes, payloads and comments, and for reordered lines.
- `index maps`: every element has the same source, for all values. For chains of data movement of
  any size, between unchanged instructions.
- `executed`: both modules give the same bits for seeded inputs on XLA:CPU, in a child process.
  This is a sample, for anything that runs.
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
from hlo_lint.text.phrases import counted, in_a_line
from hlo_lint.xla.cpu import NotRun, XlaCpu

PROOF_SEEDS: Final = 3
"""The number of inputs on which both modules run: only even seeds have negative numbers."""


class Level(StrEnum):
    """The strength of a proof."""

    STRUCTURE = "structure"
    INDEX_MAPS = "index maps"
    EXECUTED = "executed"


@dataclass(frozen=True, slots=True, repr=False)
class Proof:
    """The result of a proof about two texts."""

    level: Level | None
    """None if no level proves the texts equal."""
    differs: bool
    """True if the texts are known to compute different values."""
    reasons: tuple[str, ...]
    """The proven statement, or the reason why each level failed."""

    @property
    def holds(self) -> bool:
        """True if both compute the same values."""
        return self.level is not None

    def __repr__(self) -> str:
        return in_a_line(f"<Proof {self}>")

    def __str__(self) -> str:
        if self.level is None:
            return ("not equal: " if self.differs else "not proven: ") + "; ".join(self.reasons)
        return f"{self.level}: {'; '.join(self.reasons)}"


def strongest_proof(before: Module, after: Module, *, xla: XlaCpu | None = None) -> Proof:
    """The proof of the strongest level that applies to two modules.

    `xla` executes them if the other levels do not apply; None starts a child for this call.

    >>> from hlo_lint.hlo.parser.module import parse_file
    >>> text = "HloModule m\\nENTRY e {{ p = f32[] parameter(0) ROOT r = f32[] {} }}"
    >>> modules = [
    ...     parse_file(text.format(root)).modules[0]
    ...     for root in ("copy(p)", "negate(p)", "reshape(p)")
    ... ]
    >>> print(strongest_proof(modules[0], modules[2]))
    index maps: 1 element in 1 data movement: every source is the same
    >>> strongest_proof(modules[0], modules[1]).differs
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
            fact = "every instruction computes the same value"
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
        first, second = (Lowering(module, nodes).program() for module in (before, after))
        # The values of a cut call also depend on its payload, which a fix may edit.
        if cuts := sorted({cut.what for cut in (*first.cuts, *second.cuts)}):
            return Proof(None, False, (f"XLA:CPU does not run {', '.join(cuts)}",))
        runs = Runs(xla)
        verdict = runs.compare(first, second, first.inputs, range(PROOF_SEEDS))
        executed = f"executed with seed {verdict.seed}"
        if verdict.outcome is StepOutcome.WITHIN_BOUND:
            old, new = (runs.results(p, first.inputs, verdict.seed) for p in (first, second))
            reason = f"{executed}, {result_difference(old, new)}: only rounding changes"
            return Proof(None, False, (reason,))
    except (NotLowered, NotRun, DumpError) as error:
        return Proof(None, False, (f"XLA:CPU does not apply: {error}",))
    match verdict.outcome:
        case StepOutcome.CHANGED:
            return Proof(None, True, (f"{executed}, {verdict.difference}",))
        case StepOutcome.SAME_GRAPH:
            fact = "both have the same graph of values, which need not run"
            return Proof(Level.EXECUTED, False, (fact,))
        case StepOutcome.SAME_BITS:
            elements = sum(prod(root.shape.dims) for root in first.graph.roots)
            what = f"{counted(elements, 'element')} of the result"
            fact = f"{what} equal bit for bit on {PROOF_SEEDS} seeded inputs"
            return Proof(Level.EXECUTED, False, (fact,))
    return Proof(None, False, (f"not executed: {verdict.reason}",))


# Kernels ----------------------------------------------------------------------------------------

_WAIT: Final = re.compile(
    r"\s*(?:cp\.async\.wait_(?:group\s+\d+|all)|bar\.sync\s+\d+|barrier\.sync\s+\d+);\s*"
).fullmatch


def prove_ptx(before: str, after: str) -> Proof:
    """The proof that a kernel only has additional waits, which change no value.

    >>> print(prove_ptx("ret;", "cp.async.wait_all;\\nret;"))
    structure: 1 wait is added
    """
    rest = iter(after.split("\n"))
    added = []
    for line in before.split("\n"):
        for candidate in rest:
            if candidate == line:
                break
            added.append(candidate)
        else:
            return Proof(None, False, (f"the line {line.strip()!r} is gone",))
    added += rest
    strange = [line for line in added if not _WAIT(line)]
    if strange:
        return Proof(None, False, (f"{strange[0].strip()!r} is not a wait",))
    verb = "is" if len(added) == 1 else "are"
    return Proof(Level.STRUCTURE, False, (f"{counted(len(added), 'wait')} {verb} added",))
