"""The first instruction of a step whose value differs: both programs run once more, step by step.

Nodes that exist on one side only become extra results. A node after the step is explained if some
value before the step equals its value. The search walks back from a wrong result through
unexplained nodes; the first of them is the culprit. For a loop, the body runs on the state of each
iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from math import prod
from typing import TYPE_CHECKING, Final

from hlo_lint.analysis.grouping import by_key
from hlo_lint.analysis.walks import reached
from hlo_lint.engine.values.bounds import WIDE_BOUND
from hlo_lint.engine.values.compare import Bound, LargestDifference, array_difference, keep_bound
from hlo_lint.engine.values.lowering.emit import NATIVE, WIDE, emit_graph
from hlo_lint.engine.values.lowering.graph import Graph, Node, nodes_in_order
from hlo_lint.engine.values.programs import Comparison, Inputs, Runs, in_types
from hlo_lint.hlo.ir import Instruction
from hlo_lint.hlo.parser.literals import AnyArray
from hlo_lint.xla.cpu import NotRun

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.program import Program

MAX_KEPT_BYTES: Final = 1 << 29
"""The bytes of values to keep; beyond them only the values of the smallest nodes are kept."""
MAX_ITERATIONS: Final = 16
"""Iterations of a loop that are searched for the first difference."""
MAX_UNROLLED: Final = 8
"""Iterations that an unrolled body may do at once."""
MAX_NESTING: Final = 4
MAX_REPAIRED: Final = 128
"""The most values of a step in which values are replaced: each takes a compile."""
MAX_REPAIRS: Final = 16
"""The values that are replaced one after another."""
MAX_CANDIDATES: Final = 64
"""The values that are tried in their places in all."""


@dataclass(frozen=True)
class Culprit:
    """The first instruction whose value differs."""

    instruction: Instruction
    """In the module after the step."""
    difference: LargestDifference | None
    """The difference from its counterpart before the step; None without a counterpart."""
    iteration: int | None = None
    """The iteration of the innermost loop around it, from 0."""


def culprit(
    before: Program, after: Program, runs: Runs, inputs: Inputs, comparison: Comparison
) -> Culprit | None:
    """The first instruction of `after` whose value differs; None where the replay did not run."""
    types, bound = WIDE, WIDE_BOUND
    if comparison.is_own:
        types, bound = NATIVE, comparison.bound
    try:
        arrays = in_types(runs.inputs(inputs, comparison.seed), before, types)
    except NotRun:
        return None
    replay = _Replay(before, after, runs, types, bound)
    return replay.first(before.graph, after.graph, arrays)


@dataclass
class _Replay:
    before: Program
    after: Program
    runs: Runs
    types: Mapping[str, str]
    """The types in which both run."""
    bound: Bound
    """The difference of equal values."""
    candidates: int = 0
    """The values tried so far in the place of another."""
    scopes: list[str] = field(default_factory=lambda: [""])
    """The bodies of the loops being searched, innermost last."""

    def origin(self, node: Node) -> Instruction | None:
        """The instruction after the step that computes a node, in the innermost loop."""
        return self.after.origins.get((self.scopes[-1], node.number))

    def first(
        self,
        ours: Graph,
        theirs: Graph,
        inputs: Sequence[AnyArray],
        later: Sequence[Sequence[AnyArray]] = (),
    ) -> Culprit | None:
        """The first instruction of `theirs` that differs, run on the same inputs as `ours`.

        `later` are inputs of further iterations of `ours` that an unrolled `theirs` does at once.
        """
        our_nodes, their_nodes = (nodes_in_order(graph.roots) for graph in (ours, theirs))
        shared = {*our_nodes} & {*their_nodes}
        try:
            (right, own), (results, values) = (
                self._values(graph, _kept(nodes, shared), inputs)
                for graph, nodes in ((ours, our_nodes), (theirs, their_nodes))
            )
            every = [node for node in our_nodes if len(node.shapes) == 1 and node.operands]
            again = [self._values(ours, every, state) for state in later]
        except NotRun:
            # No values are known: the first instruction that is absent before the step.
            origins = (self.origin(node) for node in their_nodes if node not in shared)
            instruction = next(filter(None, origins), None)
            return None if instruction is None else Culprit(instruction, None)
        if again:
            right, _ = again[-1]
        wrong = [
            node
            for node, our_root, their_root in zip(theirs.roots, right, results, strict=True)
            if not keep_bound([our_root], [their_root], self.bound)
        ]
        if not wrong:
            return None
        # An all-gather of a parameter's parts is the parameter before partitioning.
        samples = [*inputs, *own.values(), *chain(*(state.values() for _, state in again))]
        is_repaired = partial(self._is_repaired, theirs, own.values(), values, inputs, right)
        node = self._start(wrong, shared, samples, values, is_repaired)
        divergence = self._counterpart(node, own, values)
        loop = node.operands[0] if node.opcode == "get-tuple-element" else node
        instruction = self.origin(node) or self.origin(loop)
        if node in shared:
            # A correct value in a wrong place: the last instruction puts it there.
            instruction = self.after.last.get((self.scopes[-1], node.number), instruction)
            loop = node
        if instruction is None:
            return None
        search = {"while": self._in_loop, "conditional": self._in_branch}.get(loop.opcode)
        if search is not None and len(self.scopes) <= MAX_NESTING:
            inner = search(loop, instruction, (ours, theirs), inputs)
            if inner is not None:
                return inner
        return Culprit(instruction, divergence)

    def _values(
        self, graph: Graph, keep: Sequence[Node], inputs: Sequence[AnyArray]
    ) -> tuple[list[AnyArray], dict[Node, AnyArray]]:
        """The results of a graph, and the values of some nodes."""
        results = self.runs.xla.run(emit_graph(graph, self.types, keep=keep), inputs)
        count = len(graph.roots)
        return results[:count], dict(zip(keep, results[count:], strict=True))

    def _start(
        self,
        wrong: Sequence[Node],
        shared: set[Node],
        ours: Sequence[AnyArray],
        theirs: Mapping[Node, AnyArray],
        is_repaired: Callable[[Node], bool],
    ) -> Node:
        """The first unexplained node on the way to a wrong result.

        The way begins at the last node whose value before the step makes the result right.
        """
        by_size = by_key((array.shape, array) for array in ours)

        @cache
        def is_explained(node: Node) -> bool:
            value = theirs.get(node)
            if node in shared or value is None:
                return node in shared
            return any(
                candidate.dtype == value.dtype and keep_bound([candidate], [value], self.bound)
                for candidate in by_size.get(value.shape, ())
            )

        node = wrong[0]
        tries = 0 if len(theirs) <= MAX_REPAIRED else MAX_REPAIRS
        while tries < MAX_REPAIRS:
            # A softmax that is divided by 1 equals its exponentials: an equal value may be wrong.
            own = [operand for operand in node.operands if operand not in shared]
            operands = sorted(own, key=is_explained)
            # Where several operands are wrong, a value that all of them come from may be.
            operands += _joint(own, shared)
            tries += len(operands)
            inner = next(filter(is_repaired, operands[:MAX_REPAIRS]), None)
            if inner is None:
                break
            node = inner

        def suspicious(suspect: Node) -> list[Node]:
            # The parts of the devices are joined by no instruction: each may be wrong.
            is_right = is_explained if self.origin(suspect) else shared.__contains__
            return [operand for operand in suspect.operands if not is_right(operand)]

        suspects = {*reached([node], suspicious)}
        ordered = [s for s in nodes_in_order([node]) if s in suspects and self.origin(s)]
        # A constant has no value before it that could be wrong.
        computed = [
            suspect
            for suspect in ordered
            if any(source.opcode == "parameter" for source in nodes_in_order([suspect]))
        ]
        return next(iter(computed or ordered), node)

    def _is_repaired(
        self,
        graph: Graph,
        ours: Iterable[AnyArray],
        theirs: Mapping[Node, AnyArray],
        inputs: Sequence[AnyArray],
        right: Sequence[AnyArray],
        node: Node,
    ) -> bool:
        """True if a value before the step, in the place of the node's, makes the results right."""
        value = theirs.get(node)
        if value is None:
            return False
        fitting = [a for a in ours if a.shape == value.shape and a.dtype == value.dtype]
        text = emit_graph(graph, self.types, given=node) if fitting else ""
        for candidate in fitting[:MAX_REPAIRS]:
            if self.candidates >= MAX_CANDIDATES:
                break  # 16 devices have 16 values of each shape
            if not keep_bound([candidate], [value], self.bound):
                self.candidates += 1
                try:
                    results = self.runs.xla.run(text, [*inputs, candidate])
                except NotRun:
                    return False
                if keep_bound(results, right, self.bound):
                    return True
        return False

    def _counterpart(
        self, node: Node, ours: Mapping[Node, AnyArray], theirs: Mapping[Node, AnyArray]
    ) -> LargestDifference | None:
        """The difference from the value of the instruction of the same name before the step."""
        origin, value = self.origin(node), theirs.get(node)
        if origin is None or value is None:
            return None
        named = {number: same.name for (_, number), same in self.before.origins.items()}
        differences = (
            array_difference(array, value, self.bound)
            for candidate, array in ours.items()
            if named.get(candidate.number) == origin.name and candidate.shapes == node.shapes
        )
        return next(filter(None, differences), None)

    def _operands(self, graph: Graph, node: Node, inputs: Sequence[AnyArray]) -> list[AnyArray]:
        _, values = self._values(graph, node.operands, inputs)
        return [values[operand] for operand in node.operands]

    def _iterations(
        self, body: Graph, state: Sequence[AnyArray], after: Sequence[AnyArray]
    ) -> list[list[AnyArray]]:
        """The states until the counters equal those of `after`, else the next state.

        An unrolled loop's body does several iterations at once.
        """
        states = [self._values(body, (), state)[0]]
        for _ in range(MAX_UNROLLED):
            if _counters(states[-1]) == _counters(after):
                return states
            states.append(self._values(body, (), states[-1])[0])
        return states[:1]

    def _in_branch(
        self,
        node: Node,
        instruction: Instruction,
        sides: tuple[Graph, Graph],
        inputs: Sequence[AnyArray],
    ) -> Culprit | None:
        """The first instruction that differs in the branch that runs, if its operands are right."""
        counterpart, names = _same_kind(node, sides[0]), instruction.called_computations
        branches = [branch for _, branch in node.called]
        if counterpart is None or len(names) != len(branches):
            return None
        try:
            ours, theirs = (
                self._operands(graph, side, inputs)
                for graph, side in zip(sides, (counterpart, node), strict=True)
            )
            if not keep_bound(ours, theirs, self.bound):
                return None
            index, *operands = theirs
        except NotRun:
            return None
        number = min(int(index) % (1 << 32), len(branches) - 1)  # a negative one is the last
        begin = sum(len(branch.parameters) for branch in branches[:number])
        given = operands[begin : begin + len(branches[number].parameters)]
        self.scopes.append(names[number])
        try:
            _, right = counterpart.called[number]
            return self.first(_flat(right), _flat(branches[number]), given)
        finally:
            self.scopes.pop()

    def _in_loop(
        self,
        loop: Node,
        instruction: Instruction,
        sides: tuple[Graph, Graph],
        inputs: Sequence[AnyArray],
    ) -> Culprit | None:
        """The first instruction that differs in a loop's body, in the first differing iteration."""
        ours, _ = sides
        counterpart, names = _same_kind(loop, ours), instruction.called_computations
        if counterpart is None or not names:
            return None
        bodies, conditions = (
            [_flat(dict(node.called)[kind]) for node in (counterpart, loop)]
            for kind in ("body", "condition")
        )
        attributes = [key for key in instruction.attributes if key in ("body", "condition")]
        self.scopes.append(names[attributes.index("body")] if "body" in attributes else names[-1])
        try:
            state = self._operands(ours, counterpart, inputs)
            for iteration in range(MAX_ITERATIONS):
                goes_on, still = (self._values(side, (), state)[0][0] for side in conditions)
                after, _ = self._values(bodies[1], (), state)
                states = self._iterations(bodies[0], state, after)
                divergence = None
                if goes_on != still and len(states) == 1:  # an unrolled loop ends before
                    self.scopes[-1] = names[attributes.index("condition")]
                    divergence = self.first(conditions[0], conditions[1], state)
                elif not goes_on:
                    break
                elif not keep_bound(states[-1], after, self.bound):
                    divergence = self.first(bodies[0], bodies[1], state, states[:-1])
                else:
                    state = after
                    continue
                if divergence is None or divergence.iteration is not None:
                    return divergence
                return replace(divergence, iteration=iteration)
        except NotRun:
            return None
        finally:
            self.scopes.pop()
        return None


def _joint(operands: Sequence[Node], shared: set[Node]) -> list[Node]:
    """The last value that each of several operands depends on."""
    if len(operands) < 2:
        return []
    first, *others = (nodes_in_order([operand]) for operand in operands)
    return [node for node in first if node not in shared and all(node in o for o in others)][-1:]


def _same_kind(node: Node, ours: Graph) -> Node | None:
    """The loop or the conditional before the step of the same type, with the same operands if any.

    Loops with the same state type are told apart by their initial values, where possible.
    """
    kind = node.opcode, node.shapes
    same = [own for own in nodes_in_order(ours.roots) if (own.opcode, own.shapes) == kind]
    return next((own for own in same if own.operands == node.operands), next(iter(same), None))


def _counters(state: Sequence[AnyArray]) -> list[int]:
    """The scalar integers in a loop's state, which include the iteration number."""
    return [int(array) for array in state if not array.ndim and array.dtype.kind in "iu"]


def _flat(graph: Graph) -> Graph:
    """The body of a loop as a program with separate parameters."""
    return Graph(graph.number, graph.parameters, graph.roots, False, True)


def _kept(nodes: Sequence[Node], shared: set[Node]) -> list[Node]:
    """The nodes whose values are compared: arrays that are not shared, smallest first."""
    own = [
        node
        for node in nodes
        if node not in shared
        and len(node.shapes) == 1
        and node.opcode not in ("parameter", "constant", "while", "conditional")
    ]
    kept, size = [], 0
    for node in sorted(own, key=lambda node: prod(node.shape.dims)):
        size += 8 * prod(node.shape.dims)
        if size > MAX_KEPT_BYTES:
            break
        kept.append(node)
    return kept
