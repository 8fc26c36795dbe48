"""Results that alias a parameter in a different memory space."""

from __future__ import annotations

from hlo_lint.analysis.buffers import input_output_aliases
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.shape import ArrayShape, part, spelled_index
from hlo_lint.rules.base import Bad, Finding, Findings, Good, Rule
from hlo_lint.rules.evidence import RefusedByXla

_PROGRAM = """
HloModule m, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}, \
entry_computation_layout={{(f32[8]{{0{parameter}}})->f32[8]{{0:S(5)}}}}  // error
ROOT c = f32[8]{{0:S(5)}} copy(f32[8]{{0{parameter}}} p)
"""


class AliasAcrossMemories(Rule):
    """A result that aliases a parameter in a different memory space.

    ## Why
    `input_output_alias` gives a parameter's buffer to a result. A buffer in host memory, `S(5)`,
    cannot hold a result in device memory: if the entry's layouts place the two in different memory
    spaces, buffer assignment fails a check and the process dies. It happens when a program donates
    an array and moves it to the host, or back.
    """

    mentions = ("input_output_alias=",)
    subsumes = frozenset({"bad-aliasing"})
    evidence = (RefusedByXla("have the same color", "gpu 0.10.0", "none"),)
    reports = "openxla/xla#29270"
    examples = (
        Bad.entry(_PROGRAM.format(parameter="")),
        Good.entry(_PROGRAM.format(parameter=":S(5)")),
    )

    def check(self, module: Module) -> Findings:
        """Aliases in the module header that connect different memory spaces."""
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
            shapes = [shape for shape in (parameter, result) if isinstance(shape, ArrayShape)]
            spaces = [shape.layout.memory_space for shape in shapes if shape.layout is not None]
            if len(set(spaces)) > 1:
                yield Finding(
                    header_span(module),
                    f"output {spelled_index(alias.output_index)} is in memory space {spaces[1]}, "
                    f"but aliases parameter {alias.operand}, which is in memory space {spaces[0]}",
                    notes=(f"the parameter is {parameter}, the result {result}",),
                )
