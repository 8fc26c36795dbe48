"""Donations of parameters that a pass lost."""

from __future__ import annotations

from hlo_lint.analysis.buffers import donated_parts, input_output_aliases
from hlo_lint.analysis.pass_pairs import PassPair
from hlo_lint.analysis.verifier.scope import header_span
from hlo_lint.hlo.ir import Module
from hlo_lint.hlo.shape import spelled_part
from hlo_lint.rules.base import Bad, Compilation, Finding, Findings, Good, Rule, Severity
from hlo_lint.rules.evidence import PublicReport
from hlo_lint.text.patterns import late

_layout = late(r"\{[^}]*\}")
_ENTRY = """
ENTRY e {
  p = f32[8]{0} parameter(0)
  ROOT n = f32[8]{0} negate(p)
}
"""
_DONATED = f"""
HloModule m, input_output_alias={{ {{}}: (0, {{}}, may-alias) }}
{_ENTRY}"""
_SWAPPED = """
HloModule m, {mark}
    input_output_alias={{ {{0}}: ({first}, {{}}, may-alias), {{1}}: ({second}, {{}}, may-alias) }}

ENTRY e {{
  p = f32[8]{{0}} parameter(0)
  q = f32[8]{{0}} parameter(1)
  ROOT t = (f32[8]{{0}}, f32[8]{{0}}) tuple(p, q)
}}
"""
_BEFORE = "module_0001.m.0001.simplification.after_pipeline-start.before_algsimp.txt"
_AFTER = "module_0001.m.0002.simplification.after_algsimp.before_pipeline-end.txt"
_FINAL = "module_0001.m.cpu_after_optimizations.txt"


class DonationLost(Rule):
    """A pass that loses an entry of `input_output_alias` or `buffer_donor`.

    ## Why
    The header states which parameters the caller donates, so that results reuse their memory. A
    pass that rebuilds the module must carry this over. Otherwise the program needs memory for both
    and may run out, or a caller that relies on the in-place update reads old values. A result must
    also keep the parameter that it aliases, and whether the alias is required. A donor may become
    an alias. Passes that change the entry's parameters or results must renumber the aliases, and
    are not checked.
    """

    severity = Severity.WARNING
    evidence = (PublicReport("jax-ml/jax#40280"),)
    examples = (
        Bad(f"HloModule m  // error\n{_ENTRY}", file=_AFTER, beside={_BEFORE: _DONATED}),
        Bad(f"HloModule m  // error\n{_ENTRY}", file=_FINAL, beside={_AFTER: _DONATED}),
        Bad(
            _SWAPPED.format(first=1, second=0, mark="  // error"),
            file=_AFTER,
            beside={_BEFORE: _SWAPPED.format(first=0, second=1, mark="")},
        ),
        Good(_DONATED, file=_AFTER, beside={_BEFORE: _DONATED}),
    )

    def check(self, change: PassPair) -> Findings:
        """A finding at the module header of a pass that lost or changed donations."""
        yield from _lost(change.before, change.after, change.pass_name)

    def check_final(self, compilation: Compilation) -> Findings:
        """A finding if the final module lost a donation of the last step."""
        steps, final = compilation.steps, compilation.final
        if steps and final is not None and len(final.file.modules) == 1:
            number = compilation.dumps.index(final)
            name = f"a pass after step {steps[-1].step}"
            yield from _lost(steps[-1].module, final.module, name, number)


def _lost(before: Module, after: Module, pass_name: str, file: int = 0) -> Findings:
    if "input_output_alias=" not in before.header and "buffer_donor=" not in before.header:
        return
    if _before_layout(before) == _before_layout(after):
        return  # both attributes are in this part of the header; most passes change neither
    if _interface(before) != _interface(after):
        return
    given, kept = donated_parts(before), donated_parts(after)
    if given is None or kept is None:
        return
    lost = sorted(given - kept)
    if lost:
        number, index = lost[0]
        where = spelled_part(f"parameter {number}", index)
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        yield Finding(
            header_span(after),
            f"{pass_name} lost the donation of {where}{more}",
            notes=("the module before it has it in input_output_alias or buffer_donor",),
            file=file,
        )
        return
    ours, theirs = (
        {alias.output_index: alias for alias in input_output_aliases(module)}
        for module in (before, after)
    )
    moved = [index for index, alias in ours.items() if theirs.get(index, alias) != alias]
    if moved:
        more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
        yield Finding(
            header_span(after),
            f"{pass_name} changed the alias of {spelled_part('result', moved[0])}{more}",
            notes=("the module before it has a different parameter or kind in input_output_alias",),
            file=file,
        )


def _before_layout(module: Module) -> str:
    header = module.header.partition(", entry_computation_layout=")[0]
    return header[len("HloModule ") + len(module.name) :].replace(", is_scheduled=true", "")


def _interface(module: Module) -> tuple[object, ...]:
    """The parameters and the result of the entry, without layouts."""
    entry = module.entry
    if entry is None or entry.root is None:
        return ()
    types = (*entry.parameters, entry.root)
    return tuple(_layout.sub("", type.type_text) for type in types)
