"""Lower control flow: each computation becomes a graph from a tuple to a tuple."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from hlo_lint.analysis.endless_loops import endless
from hlo_lint.analysis.loops import Loop, read_loop
from hlo_lint.engine.values.lowering.bounded import collected, with_sizes
from hlo_lint.engine.values.lowering.graph import (
    Graph,
    Node,
    NotLowered,
    Shapes,
    element_of,
    leaf_nodes,
)
from hlo_lint.hlo.ir import Computation, Instruction
from hlo_lint.hlo.shape import Shape, spelled_index

if TYPE_CHECKING:
    from hlo_lint.engine.values.lowering.lower import Lowering, Values
    from hlo_lint.engine.values.lowering.watch import Lasts


def while_results(
    lowering: Lowering, instruction: Instruction, states: Values, shape: Shape
) -> Values:
    """The state of a loop after its last iteration, on each device."""
    computation = lowering.called(instruction, "body")
    test = lowering.called(instruction, "condition")
    if reason := endless(Loop(instruction, computation, test)):
        lowering.endless.append((instruction, f"the loop %{instruction.name} {reason}"))
    carried = _carried(lowering, computation.name)
    leaves = [node for value in states for node in with_sizes(lowering.nodes, value, shape)]
    leaves += lowering.watch.initial_values(carried) if lowering.watch is not None else []
    shapes = tuple(leaf.shape for leaf in leaves)
    begin = len(lowering.nodes.made)
    state, last = _state(lowering, shape, shapes, carried)
    inner = replace(
        lowering, iterations=(*lowering.iterations, _iteration(lowering, instruction, state))
    )
    body = _body(inner, computation, state, shapes, carried, last)
    goes_on = replace(lowering, scope=test.name, watch=None).computation(test, [state])
    # All devices run the same number of iterations: XLA demands it if the body communicates.
    condition = lowering.nodes.graph(shapes, [next(leaf_nodes(goes_on[0]))], takes_tuple=True)
    del lowering.nodes.made[begin:]  # they are inside the loop
    if tuple(root.shape for root in body.roots) != shapes:
        raise NotLowered(f"the body of %{instruction.name} gives a state of another type")
    loop = lowering.nodes.make(
        "while", shapes, leaves, called=(("condition", condition), ("body", body))
    )
    results = _results(lowering, shape, loop, carried)
    if _carried(lowering, test.name):
        lowering.computation(test, [results])  # it runs once more after the last iteration
    return results


def _carried(lowering: Lowering, *computations: str) -> list[Instruction]:
    """The watched instructions in computations, whose values are carried beside the results."""
    inside = lowering.watch.inside if lowering.watch is not None else lambda _: []
    return list(dict.fromkeys(watched for name in computations for watched in inside(name)))


def _state(
    lowering: Lowering, shape: Shape, shapes: Shapes, carried: Sequence[Instruction] = ()
) -> tuple[Values, Lasts]:
    """The parameter of a body on each device; the graph's parameters are ordered by device.

    They end with the values of watched instructions in the previous iteration.
    """
    nodes = iter([lowering.nodes.parameter(number, leaf) for number, leaf in enumerate(shapes)])
    state = [collected(lowering.nodes, shape, nodes) for _ in range(lowering.devices)]
    return state, lowering.watch.last_values(carried, nodes) if lowering.watch is not None else []


def _body(
    lowering: Lowering,
    body: Computation,
    state: Values,
    shapes: Shapes,
    carried: Sequence[Instruction],
    last: Lasts = (),
) -> Graph:
    """The graph of a loop's body or a branch, from a tuple to a tuple."""
    watch = None if lowering.watch is None else lowering.watch.scoped(last)
    results = replace(lowering, scope=body.name, watch=watch).computation(body, [state])
    assert body.root is not None
    shape = lowering.shape(body.root)
    roots = [node for value in results for node in with_sizes(lowering.nodes, value, shape)]
    roots += [] if watch is None else watch.results(carried)
    return lowering.nodes.graph(shapes, roots, takes_tuple=True, gives_tuple=True)


def _results(
    lowering: Lowering, shape: Shape, node: Node, carried: Sequence[Instruction]
) -> Values:
    """The result of a loop or a conditional on each device; watched values in it are recorded."""
    every = iter(lowering.nodes.elements(node))
    values = [collected(lowering.nodes, shape, every) for _ in range(lowering.devices)]
    if lowering.watch is not None:
        for instruction, last in lowering.watch.last_values(carried, every):
            lowering.watch.see(instruction, *last)
    return values


def _iteration(
    lowering: Lowering, instruction: Instruction, state: Values
) -> Callable[[], Node] | None:
    loop = read_loop(instruction)
    if loop is None or loop.induction_variable is None or not loop.step:
        return None
    variable = element_of(state[0], (loop.induction_variable,))
    if not isinstance(variable, Node):
        return None

    def iteration() -> Node:
        wide = lowering.nodes.convert(variable, "s64")
        passed = lowering.nodes.binary("subtract", wide, loop.init)
        return lowering.nodes.binary("divide", passed, loop.step)

    return iteration


def conditional_results(
    lowering: Lowering, instruction: Instruction, operands: list[Values], shape: Shape
) -> Values:
    """The results of the branch that runs, on each device."""
    bodies = [lowering.body(name) for name in instruction.called_computations]
    predicate = next(leaf_nodes(operands[0][0]))
    parameters = [lowering.shape(body.parameters[0]) for body in bodies]
    leaves = [
        [node for value in values for node in with_sizes(lowering.nodes, value, parameter)]
        for parameter, values in zip(parameters, operands[1:], strict=True)
    ]
    branches: list[Graph] = []
    carried = _carried(lowering, *instruction.called_computations)
    for body, parameter, arguments in zip(bodies, parameters, leaves, strict=True):
        shapes = tuple(leaf.shape for leaf in arguments)
        begin = len(lowering.nodes.made)
        state, _ = _state(lowering, parameter, shapes)
        branches.append(_body(lowering, body, state, shapes, carried))
        del lowering.nodes.made[begin:]  # they are inside the branch
    shapes = tuple(root.shape for root in branches[0].roots)
    if predicate.shape.dtype == "pred":
        # The first computation is that of true; branch 0 of an index is the first one.
        index = lowering.nodes.make("not", predicate.shape, (predicate,))
        predicate = lowering.nodes.convert(index, "s32")
    # The operand counts of the branches, so that different splits of equal operands differ.
    counts = (("", spelled_index(len(branch) for branch in leaves)),)
    read = predicate, *chain.from_iterable(leaves)
    called = tuple(("branch", branch) for branch in branches)
    node = lowering.nodes.make("conditional", shapes, read, counts, called)
    return _results(lowering, shape, node, carried)
