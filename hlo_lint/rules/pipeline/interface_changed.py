"""Changes of the program's interface: types, layouts, memories, donations."""

from __future__ import annotations

from collections.abc import Iterator

from hlo_lint.analysis.buffers import donated_parts, input_output_aliases
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.shape_inference.types import without_layout
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.dumps.transitions import may
from hlo_lint.hlo.attributes.shapes import ProgramShape
from hlo_lint.hlo.ir import Instruction, Module
from hlo_lint.hlo.shape import spelled_part
from hlo_lint.rules.base import Bad, Compilation, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import Counted
from hlo_lint.text.phrases import listed
from hlo_lint.text.source import Span

_STEP = "module_0001.m.0002.simplification.after_algsimp.before_pipeline-end.txt"
_FINAL = "module_0001.m.cpu_after_optimizations.txt"
_DONATED = """
HloModule m, input_output_alias={ {}: (0, {}, may-alias) }

ENTRY e { ROOT n = f32[8]{0} negate(f32[8]{0} p) }
"""


class InterfaceChanged(Rule):
    """A pass that changes the program's parameters or results.

    ## Why
    `entry_computation_layout` is the contract with the caller, which passes arguments and reads
    results in these types, layouts, memories and order. Partitioners divide the arrays, and
    layout-assignment chooses the layouts left open; no other pass may change them. If a pass does,
    header and entry still agree, so the verifier passes, but the caller reads a transposed result,
    or bytes of a different type. In a text without the attribute, the types of the entry's
    parameters and root count.

    A layout includes the memory space: host memory is S(5). If a pass drops it, an offloaded result
    takes device memory, or a kernel reads an address of the wrong memory.

    `input_output_alias` and `buffer_donor` state which parameters the caller donates, so that
    results reuse their memory. Without them the program needs memory for both and may run out, or a
    caller that relies on the in-place update reads old values. A result must also keep the
    parameter that it aliases, and whether the alias is required. A donor may become an alias.
    Passes that change the parameters or results must renumber the aliases, and are not checked.
    """

    severity = Severity.WARNING
    evidence = (Counted("bytes at the peak", 64, 32, example=2, other=None),)
    reports = "openxla/xla#35762, jax-ml/jax#40280, openxla/xla@8cb19d9776"
    examples = (
        Bad.step(
            """
            -HloModule m, entry_computation_layout={(f32[8,4])->f32[8,4]{0,1}}
            +HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{1,0}}  // error
            - ROOT c = f32[8,4]{0,1} copy(f32[8,4]{1,0} p)
            + ROOT c = f32[8,4]{1,0} copy(f32[8,4]{1,0} p)
            """,
            by="layout-assignment",
        ),
        Good.step(
            """
            -HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]}
            +HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{0,1}}
            - ROOT c = f32[8,4]{1,0} copy(f32[8,4]{1,0} p)
            + ROOT c = f32[8,4]{0,1} copy(f32[8,4]{1,0} p)
            """,
            by="layout-assignment",
        ),
        Bad.step("""
              n = f32[8]{0} negate(f32[8]{0} p)
            - ROOT c = f32[8]{0} copy(n)
            + ROOT t = (f32[8]{0}) tuple(n)  // error
        """),
        Bad.step("""
            -HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
            +HloModule m  // error
              ROOT n = f32[8]{0} negate(f32[8]{0} p)
        """),
        Bad.entry(
            "HloModule m  // error\nROOT n = f32[8]{0} negate(f32[8]{0} p)",
            file=_FINAL,
            beside={_STEP: _DONATED},
        ),
        Bad.step("""
            -HloModule m, input_output_alias={ {0}: (0, {}, may-alias) }
            +HloModule m, input_output_alias={ {1}: (0, {}, may-alias) }  // error
              ROOT t = (f32[8]{0}, f32[8]{0}) tuple(f32[8]{0} p, f32[8]{0} q)
        """),
        Bad.step(
            """
            -HloModule m, entry_computation_layout={(f32[8]{0})->f32[8]{0:S(5)}}
            +HloModule m, entry_computation_layout={(f32[8]{0})->f32[8]{0}}  // error
              ROOT n = f32[8]{0} negate(f32[8]{0} p)
            """,
            by="layout-assignment",
        ),
        Good.step("""
            -HloModule m, input_output_alias={ {}: (0, {}, may-alias) }
            +HloModule m, buffer_donor={ (0, {}) }
              ROOT n = f32[8]{0} negate(f32[8]{0} p)
        """),
        Good.step("""
            HloModule m, entry_computation_layout={(f32[8,4]{1,0})->f32[8,4]{0,1:S(5)}}
            - ROOT c = f32[8,4]{0,1} transpose(f32[8,4]{1,0} p)
            + ROOT c = f32[8,4]{0,1} copy(f32[8,4]{1,0} p)
        """),
    )

    def check(self, pair: PassPair) -> Findings:
        """The first lost or changed donation, and the first parameter or result that changed."""
        before, after = pair.before, pair.after
        if before.header != after.header:
            for lost, note in _donations(before, after):
                yield Finding(header_span(after), f"{pair.pass_name} {lost}", notes=(note,))
        is_declared = "entry_computation_layout" in before.header
        if is_declared and before.header == after.header:
            return
        # spmd-partitioning gives each device a part of the parameters and of the results.
        if may(pair.pass_name, "interface"):
            return
        old, new = map(_declared, (before, after))
        place: Span | Instruction = header_span(after)
        source = "entry_computation_layout"
        if old is None and new is None and (entry := after.entry) and entry.root:
            old, new = map(_of_entry, (before, after))
            place, source = entry.root, "the entry computation"
        if old is None or new is None or old == new:
            return
        if difference := _difference(old, new):
            yield Finding(
                place,
                f"{pair.pass_name} changed the interface of the program: {difference}",
                notes=(f"according to {source} before and after the pass",),
            )

    def check_final(self, compilation: Compilation) -> Findings:
        """A finding if the final module lost a donation of the last step."""
        steps, final = compilation.steps, compilation.final
        # Of several modules in a file, it is unknown which the steps belong to.
        if steps and final is not None and len(final.file.modules) == 1:
            number = compilation.dumps.index(final)
            for lost, note in _donations(steps[-1].module, final.module):
                message = f"a pass after step {steps[-1].step} {lost}"
                yield Finding(header_span(final.module), message, (note,), file=number)


def _donations(before: Module, after: Module) -> Iterator[tuple[str, str]]:
    """At most one message, with a note: of lost donations, or else of changed aliases."""
    old, new = (
        [module.attributes.get(name) for name in ("input_output_alias", "buffer_donor")]
        for module in (before, after)
    )
    if old == new or not any(old):
        return
    given, kept = donated_parts(before), donated_parts(after)
    # A pass that removes a parameter renumbers the others, and with them the aliases.
    if given is None or kept is None or _of_entry(before) != _of_entry(after):
        return
    lost = [spelled_part(f"parameter {number}", index) for number, index in sorted(given - kept)]
    if lost:
        note = "the module before it has it in input_output_alias or buffer_donor"
        yield f"lost the donation of {listed(lost, 1)}", note
        return
    aliases = input_output_aliases(after)
    results = {alias.output_index for alias in aliases}
    parameters = {(alias.operand, alias.operand_index) for alias in aliases}
    # An alias whose result and parameter have no alias any more became a donor.
    moved = [
        spelled_part("result", alias.output_index)
        for alias in input_output_aliases(before)
        if alias not in aliases
        and (alias.output_index in results or (alias.operand, alias.operand_index) in parameters)
    ]
    if moved:
        note = "the module before it has a different parameter or kind in input_output_alias"
        yield f"changed the alias of {listed(moved, 1)}", note


def _declared(module: Module) -> ProgramShape | None:
    """The types and layouts in the header; None if it has none."""
    shape = module.attribute_or_none("entry_computation_layout")
    return shape if isinstance(shape, ProgramShape) else None


def _of_entry(module: Module) -> ProgramShape | None:
    """The types of the entry's parameters and result, without layouts."""
    entry = module.entry
    if entry is None or entry.root is None:
        return None
    instructions = (*entry.parameters, entry.root)
    shapes = [instruction.shape_or_none for instruction in instructions]
    bare = [without_layout(shape) for shape in shapes if shape is not None]
    return ProgramShape(tuple(bare[:-1]), bare[-1]) if len(bare) == len(shapes) else None


def _difference(old: ProgramShape, new: ProgramShape) -> str:
    """The first parameter or result that differs; empty if only open layouts were chosen."""
    if len(old.parameters) != len(new.parameters):
        return f"it had {len(old.parameters)} parameters, now {len(new.parameters)}"
    olds, news = old.arrays(), new.arrays()
    if olds.keys() != news.keys():
        name = next(name for name in (*olds, *news) if name not in olds or name not in news)
        return f"{name.partition(',')[0]} is a different tuple"
    for name, was in olds.items():
        now = news[name]
        # layout-assignment chooses a layout that the program left open: it has none before.
        layouts = [shape.layout for shape in (was, now) if shape.layout is not None]
        orders = {layout.minor_to_major for layout in layouts}
        drops_memory = bool(was.memory_space) and not now.memory_space
        if (was.dtype, was.dims) != (now.dtype, now.dims) or len(orders) > 1 or drops_memory:
            return f"{name} was {was}, now {now}"
    return ""
