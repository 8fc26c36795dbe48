"""A computation, or a whole module, as a graph of networkx."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hlo_lint.hlo.ir.computation import Computation
from hlo_lint.hlo.ir.module import Module
from hlo_lint.hlo.records import NAME, OPCODE, REFERENCES, ROOT, TYPE

if TYPE_CHECKING:
    import networkx


def computation_graph(computation: Computation) -> networkx.DiGraph[str]:
    """The graph of `Computation.to_networkx`."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph(name=computation.name)
    for row in computation.rows:
        graph.add_node(row[NAME], opcode=row[OPCODE], shape=row[TYPE], root=bool(row[ROOT]))
    for row in computation.rows:
        for place, reference in enumerate(row[REFERENCES]):
            name = reference.partition("#")[0]
            if name in computation.index:
                graph.add_edge(name, row[NAME], operand=place)
    return graph


def module_digraph(module: Module) -> networkx.DiGraph[str]:
    """The graph of `Module.to_networkx`."""
    import networkx

    graph: networkx.DiGraph[str] = networkx.DiGraph(name=module.name)
    for computation in module.computations:
        inner = computation_graph(computation)
        graph.update(networkx.relabel_nodes(inner, {n: f"{computation.name}/{n}" for n in inner}))
    for computation in module.computations:
        for instruction in computation.instructions:
            for name in instruction.called_computations:
                callee = module.computation(name)
                if callee is not None and callee.root is not None:
                    caller = f"{computation.name}/{instruction.name}"
                    graph.add_edge(f"{name}/{callee.root.name}", caller, calls=True)
    graph.graph["name"] = module.name  # `update` overwrote it with a computation's
    return graph
