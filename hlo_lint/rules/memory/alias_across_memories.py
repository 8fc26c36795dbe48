"""Results that are to lie in a parameter of another memory."""

from __future__ import annotations

from hlo_lint.analysis.buffers import input_output_aliases
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.shape import ArrayShape, Shape, part, spelled_index
from hlo_lint.rules.base import Bad, Findings, Good, Rule
from hlo_lint.rules.findings import Finding

_PROGRAM = """
HloModule m, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}, \
entry_computation_layout={{(f32[8]{{0{parameter}}})->f32[8]{{0:S(5)}}}}{mark}

ENTRY e {{
  p = f32[8]{{0{parameter}}} parameter(0)
  ROOT c = f32[8]{{0:S(5)}} copy(p)
}}
"""


class AliasAcrossMemories(Rule):
    """A result that aliases a parameter in another memory space.

    ## Why
    `input_output_alias` gives the memory of a parameter to a result. Host memory, `S(5)`, cannot
    become device memory: where the layouts of the entry put the two into different memories, buffer
    assignment stops with a failed check, and the process dies. It happens where a program donates
    an array and moves it to the host, or back.

    Reports: openxla/xla#29270.
    """

    mentions = ("input_output_alias=",)
    examples = (
        Bad(_PROGRAM.format(parameter="", mark="  // error")),
        Good(_PROGRAM.format(parameter=":S(5)", mark="")),
    )

    def check(self, module: Module) -> Findings:
        """Each such alias of the header."""
        if "input_output_alias=" not in module.header or ":S(" not in module.header:
            return
        layout = module.attribute_or_none("entry_computation_layout")
        if not isinstance(layout, ProgramShape):
            return
        for alias in input_output_aliases(module):
            if not 0 <= alias.operand < len(layout.parameters):
                continue
            result = part(layout.result, alias.output_index)
            parameter = part(layout.parameters[alias.operand], alias.operand_index)
            spaces = memory_space(parameter), memory_space(result)
            if None not in spaces and spaces[0] != spaces[1]:
                yield Finding(
                    header_span(module),
                    f"output {spelled_index(alias.output_index)} is in memory space {spaces[1]}, "
                    f"but aliases parameter {alias.operand}, which is in memory space {spaces[0]}",
                    notes=(f"the parameter is {parameter}, the result {result}",),
                )


def memory_space(shape: Shape | None) -> int | None:
    """The memory of an array; None if it is not an array, or has no layout."""
    if not isinstance(shape, ArrayShape) or shape.layout is None:
        return None
    return shape.layout.memory_space
