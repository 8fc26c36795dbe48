"""Values that are read after their buffer was overwritten."""

from __future__ import annotations

from functools import partial
from typing import Final

from hlo_lint.analysis.calls import uncalled_computations
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import Index, spelled_index
from hlo_lint.rules.base import Bad, Compilation, FinalModule, Findings, Good, Rule
from hlo_lint.rules.evidence import WrongValues
from hlo_lint.rules.findings import Finding, Severity

_COPIED: Final = "after_removing_unnecessary_copies"
_PROGRAM = """
HloModule m, is_scheduled=true
x = f32[8] negate(f32[8] p)
{first}
{second}
ROOT t = (f32[8], f32[8]) tuple(d, y)
"""
_UPDATE = "d = f32[8] dynamic-update-slice(x, f32[4] u, s32[] i)  // error"
_READ = "y = f32[8] sine(x)"
_UNSCHEDULED = """
x = f32[8] negate(f32[8] p)
d = f32[8] custom-call(x), custom_call_target="in_place", \
output_to_operand_aliasing={{}: (0, {})}  // error
y = f32[8] add(x, d)
ROOT t = (f32[8], f32[8]) tuple(d, y)
"""
_LOOP = """
HloModule m, is_scheduled=true
body {{
  x = f32[8] get-tuple-element((f32[8], f32[8]) b), index=0
  y = f32[8] get-tuple-element(b), index=1
  n = f32[8] negate(x)
  ROOT t = (f32[8], f32[8]) tuple({given}){mark}
}}
condition {{ ROOT goes-on = pred[] custom-call((f32[8], f32[8]) c), custom_call_target="goes_on" }}
k = f32[8] copy(f32[8] p)
first = (f32[8], f32[8]) tuple({init}, f32[8] q)
ROOT w = (f32[8], f32[8]) while(first), condition=condition, body=body{at_loop}
"""
_GIVEN = """
HloModule m, is_scheduled=true, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}
p = f32[8] parameter(0)
q = f32[8] parameter(1)
c = f32[8] copy(q)
ROOT t = f32[8] bitcast({result})  // error
"""
_FUSED = """
HloModule m, is_scheduled=true
f {{
  n = f32[8] negate(f32[8] a)
  w = f32[8] dynamic-update-slice({updated}, f32[4] v, s32[] j)
  ROOT r = (f32[8], f32[8]) tuple(n, w)
}}
x = f32[8] negate(f32[8] p)
d = (f32[8], f32[8]) fusion(x, f32[4] u, s32[] i), kind=kLoop, calls=f  // error
y = f32[8] sine(x)
ROOT t = ((f32[8], f32[8]), f32[8]) tuple(d, y)
"""
_IN_FLIGHT = """
HloModule m, is_scheduled=true
x = f32[8] negate(f32[8] p)
s = (f32[8]{{0:S(5)}}, f32[8], u32[]) copy-start(x)
{first}
{second}
ROOT t = (f32[8], f32[8]{{0:S(5)}}) tuple(d, c)
"""
_BRANCHES = """
HloModule m, is_scheduled=true
twice {{ ROOT t = (f32[8], f32[8]) tuple(f32[8] a, a) }}
again {{
  n = f32[8] negate(f32[8] b)
  c = f32[8] {opcode}(n)  // error
  ROOT u = (f32[8], f32[8]) tuple(n, c)
}}
k = f32[8] copy(f32[8] p)
ROOT r = (f32[8], f32[8]) conditional(pred[] is-one, k, k), true_computation=twice, \
false_computation=again
"""
_COPY_DONE = "c = f32[8]{0:S(5)} copy-done(s)"


class ReadAfterOverwrite(Rule):
    """A value that is read after its buffer was overwritten.

    ## Why
    Some values must share a buffer: a loop's state in all iterations, arguments and results of
    calls and conditionals, a dynamic-update-slice or a scatter and its operand (alone or at the end
    of a fusion), results with `output_to_operand_aliasing`. An asynchronous operation reads its
    operands until its done. Copy insertion adds copies where such values would be live at the same
    time, then removes the unnecessary copies. If it removes too many, or a later pass moves an
    instruction past such a write, the old value is gone when it is read, and the numbers are wrong.
    XLA does not check this.

    A constant, or a parameter that the caller did not donate, is read again by the next run and
    must not be overwritten. Without a copy, two elements of a loop's state cannot swap, and a
    parameter cannot be a result that aliases a different parameter.

    The rule checks scheduled modules and dumps after copy insertion. In an unscheduled module, it
    reports only readers that depend on the writer: the order of others is open.
    """

    opcodes = frozenset(
        "all-reduce-start call conditional dynamic-update-slice ragged-all-to-all scatter "
        "set-dimension-size while".split()
    )
    mentions = ("output_to_operand_aliasing=", "input_output_alias=")
    evidence = (WrongValues(without="copy-insertion,fusion"),)
    reports = "openxla/xla@dadbe2c566"
    examples = (
        Bad.entry(_PROGRAM.format(first=_UPDATE, second=_READ)),
        Good.entry(_PROGRAM.format(first=_READ, second=_UPDATE)),
        Bad.entry(_UNSCHEDULED, file=f"module_0001.m.0001.copy-insertion.{_COPIED}.txt"),
        Bad.entry(_LOOP.format(given="y, x", init="k", mark="  // error", at_loop="")),
        Bad.entry(_LOOP.format(given="n, y", init="p", mark="", at_loop="  // error")),
        Good.entry(_LOOP.format(given="n, y", init="k", mark="", at_loop="")),
        Good.entry(_LOOP.format(given="y, y", init="q", mark="", at_loop="")),
        Bad.entry(_GIVEN.format(result="q")),
        Good.entry(_GIVEN.format(result="c")),
        Bad.entry(_FUSED.format(updated="a")),
        Good.entry(_FUSED.format(updated="n")),
        Bad.entry(_IN_FLIGHT.format(first=_UPDATE, second=_COPY_DONE)),
        Good.entry(_IN_FLIGHT.format(first=_COPY_DONE, second=_UPDATE)),
        Good.entry("""
            HloModule m, is_scheduled=true
            uncalled {
              n = f32[8]{0} negate(f32[8]{0} a)
              d = f32[8]{0} dynamic-update-slice(n, f32[1]{0} u, s32[] i)
              ROOT t = (f32[8]{0}, f32[8]{0}) tuple(d, n)
            }
            ROOT r = f32[8]{0} negate(f32[8]{0} p)
        """),
        Bad.entry(_BRANCHES.format(opcode="sine")),
        Good.entry(_BRANCHES.format(opcode="copy")),
    )

    def check(self, final: FinalModule) -> Findings:
        """Reads of overwritten values in a scheduled module, unless copy insertion may follow."""
        if final.module.is_scheduled and final.next_pass is None:
            # A file without its dump directory may come from before copy insertion.
            yield from _all(final.module, None if final.is_final else Severity.WARNING)

    def check_unscheduled(self, compilation: Compilation) -> Findings:
        """Reads of overwritten values in an unscheduled last dump after copy insertion."""
        dumps = compilation.dumps
        last = len(dumps) - 1
        passes = {dump.name.after for dump in dumps if dump.name is not None}
        is_copied = any(name == "copy-insertion" or _COPIED.endswith(f"_{name}") for name in passes)
        if is_copied and not dumps[last].module.is_scheduled:
            yield from _all(dumps[last].module, None, last)


def _all(module: Module, severity: Severity | None, file: int = 0) -> Findings:
    from hlo_lint.analysis import overwrites as shared  # few texts are scheduled

    finding = partial(Finding, severity=severity, file=file)
    swapped = list(shared.swapped_elements(module))
    for root, element, target in swapped:
        yield finding(
            root,
            f"this returns element {element} of the loop's state as element {target} without a "
            "copy: each element keeps its buffer in all iterations",
        )
    for root, index, value in shared.swapped_results(module):
        yield finding(
            root,
            f"result {spelled_index(index)} is %{value.name}, but aliases a different parameter: a "
            "copy is missing",
        )
    if swapped:
        return  # their buffers are merged: all further overwrites follow from that
    writers: set[Instruction] = set()
    for overwrite in shared.overwrites(module):
        if overwrite.writer.computation in uncalled_computations(module):
            continue  # dead code: XLA's canonical form prints fusion bodies without a caller
        writers.add(overwrite.writer)
        reader = overwrite.reader
        is_result = reader.opcode == "tuple" and reader.is_root
        after = "the computation returns" if is_result else f"%{reader.name} reads later"
        place = _spelled(*overwrite.value)
        note = f"both share a buffer, and no copy preserves {place}"
        yield finding(overwrite.writer, f"this overwrites {place}, which {after}", (note,))
    for writer, (kept, index) in shared.kept_writes(module):
        # Handwritten modules often initialize a loop's counter with a constant.
        is_counter = severity is Severity.WARNING and kept.type_text.endswith("[]")
        if writer not in writers and not (is_counter and kept.opcode == "constant"):
            reason = "is a constant" if kept.opcode == "constant" else "is not donated"
            message = f"this overwrites {_spelled(kept, index)}, which {reason}"
            yield finding(writer, message, ("both share a buffer, without a copy between them",))


def _spelled(instruction: Instruction, index: Index) -> str:
    return f"%{instruction.name}" + (spelled_index(index) if index else "")
