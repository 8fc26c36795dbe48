"""Walks over graphs end by design: the helpers of `analysis/walks.py` visit no node twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import ROOT

FOLDERS = ("analysis", "engine", "kernels", "rules")
GRAPH = set(
    "Computation Context Instruction Module Node NumberedPart Operand ResultPart Term".split()
)
STEPS = set(
    "called called_computations callee callees callers control_predecessors operand operand_names "
    "operands predecessors producer producers references reads source_of users".split()
)
ALLOWED = {
    # Helpers.
    "analysis/walks.py operands_first": "is such a helper",
    "analysis/walks.py without_readers": "is such a helper",
    # Recursion over something else than the graph, or as deep as a limit.
    "analysis/bypasses.py are_unequal": "four operands deep",
    "analysis/diff/align.py _downwards": "a pair is made once",
    "analysis/side_effects.py _chains": "as many chains as a limit, and as long",
    "engine/isolation/cut.py value": "each step is one copy up, none twice",
    "engine/reduce/draft.py swept": "each round takes computations out",
    "engine/values/lowering/collectives.py _operation": "nodes are made after what they read",
    "engine/values/lowering/collectives.py converted": "nodes are made after what they read",
    "engine/values/lowering/cuts.py _mean": "the halves of a complex number",
    "engine/values/lowering/graph.py transpose": "none of these reads another",
    "analysis/shape_inference/module.py check_shape": "calls a function of its name",
    "engine/values/lowering/lower.py _in_order": "calls a function of its name",
    "engine/values/replay.py _start": "each step is one operand up",
    "kernels/autotuning/cublaslt_fission.py _only_renamed": "each step is one user down",
    "rules/memory/start_without_done.py _lone": "each step is one operand up",
    "engine/values/lowering/graph.py assembled": "as deep as a shape",
    "engine/values/lowering/bounded.py collected": "as deep as a shape",
    "engine/values/lowering/operations.py _literal": "as deep as a shape",
}
"""Walks by hand, each with why it ends."""


def _words(node: ast.AST) -> set[str]:
    return {
        name
        for part in ast.walk(node)
        for name in (getattr(part, "attr", None), getattr(part, "id", None))
        if isinstance(name, str)
    }


def _walks(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text("utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        name = f"{path.relative_to(ROOT / 'hlo_lint')} {function.name}"
        parts = [*ast.walk(function)]
        loops = [node for node in parts if isinstance(node, ast.While)]
        if loops and STEPS & set().union(*map(_words, loops)):
            yield name
        arguments = [node.annotation for node in function.args.args if node.annotation]
        calls = [node.func for node in parts if isinstance(node, ast.Call)]
        called = {call.id for call in calls if isinstance(call, ast.Name)}
        called |= {
            call.attr
            for call in calls
            if isinstance(call, ast.Attribute) and ast.unparse(call.value) == "self"
        }
        if function.name in called and GRAPH & set().union(*map(_words, arguments)):
            yield name


def test_no_walk_over_a_graph_is_made_by_hand_and_none_is_a_recursion() -> None:
    package = ROOT / "hlo_lint"
    paths = [path for folder in FOLDERS for path in sorted((package / folder).rglob("*.py"))]
    walks = {walk for path in paths if "ptx" not in path.parts for walk in _walks(path)}
    assert sorted(walks - ALLOWED.keys()) == []
    assert sorted(ALLOWED.keys() - walks) == []
