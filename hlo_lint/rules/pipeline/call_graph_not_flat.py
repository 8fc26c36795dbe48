"""One caller for each computation, where a pass relies on it."""

from __future__ import annotations

from hlo_lint.dumps.pipeline import PassDump, Pipeline
from hlo_lint.findings import Finding, Severity
from hlo_lint.ir import Instruction, Module
from hlo_lint.rule import Bad, Compilation, Findings, Good, Rule

FLATTENER = "flatten-call-graph"
RELYING = ("layout-assignment", "copy-insertion")
"""Passes that demand it."""
SEQUENTIAL = ("call", "conditional", "while")
"""Opcodes that run a computation as part of the program; others apply it to elements."""

_BEFORE = (
    "module_0001.jit_f.0013.layout_assignment.after_flatten-call-graph.before_layout-assignment"
)
_TEXT = """
HloModule jit_f

%double (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %y = f32[8]{0} add(%x, %x)
}

ENTRY %main (p: f32[8]) -> f32[8] {
  %p = f32[8]{0} parameter(0)
  %a = f32[8]{0} call(%p), to_apply=%double
  ROOT %b = f32[8]{0} LAST
}
"""


class CallGraphNotFlat(Rule):
    """A computation with several callers, right before a pass that decides once for all of them.

    ## Why
    layout-assignment gives a computation one layout, copy-insertion one set of buffers.
    flatten-call-graph gives each caller its own copy; where it was switched off, or a pass behind
    it shared computations again, layout-assignment judges aliasing wrongly, and copy-insertion
    stops with `Call graph must be flattened before copy insertion`. Computations that are applied
    to elements (by a reduce, a map, a sort) may be shared, and so may those of asynchronous starts.
    Only dumps whose name says that one of the two comes next are looked at.
    """

    severity = Severity.ERROR
    examples = (
        Bad(
            _TEXT.replace("LAST", "call(%a), to_apply=%double  // error").strip("\n"),
            file=f"{_BEFORE}.txt",
            beside={"module_0001.jit_f.debug_options": 'xla_dump_hlo_pass_re: ".*"'},
        ),
        Good(
            _TEXT.replace("LAST", "negate(%a)"),
            file=f"{_BEFORE}.txt",
            beside={"module_0001.jit_f.debug_options": 'xla_dump_hlo_pass_re: ".*"'},
        ),
    )

    def check(self, compilation: Compilation) -> Findings:
        """Yields each call of a computation that another instruction calls, too."""
        for number, dump in enumerate(compilation.dumps):
            relying = _relying(compilation.pipeline, dump)
            if relying:
                for module in dump.file.modules:
                    yield from _shared(module, relying, number)


def _relying(pipeline: Pipeline, dump: PassDump) -> str:
    """The pass that comes next and relies on it."""
    name = dump.name
    if name is None or name.step is None or pipeline.is_helper:
        return ""
    options = pipeline.options
    if name.before == FLATTENER and options is not None and options.disabled(FLATTENER):
        return RELYING[0]
    return name.before if name.before in RELYING else ""


def _shared(module: Module, relying: str, file: int) -> Findings:
    callers: dict[str, list[Instruction]] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode != "async-start":
                for name in instruction.called:
                    callers.setdefault(name, []).append(instruction)
    for name, found in callers.items():
        sequential = [each for each in found if each.opcode in SEQUENTIAL]
        if sequential and len(found) > 1:
            others = ", ".join(f"%{each.name}" for each in found if each is not sequential[-1])
            yield Finding(
                sequential[-1],
                f"%{name} has {len(found)} callers, and {relying} comes next",
                (f"called by {others} as well", f"{FLATTENER} gives each caller its own copy"),
                file=file,
            )
