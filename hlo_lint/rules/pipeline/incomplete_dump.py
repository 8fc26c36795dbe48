"""Dumps that rules need but that the flags of a run left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.names import numbered_twice
from hlo_lint.rules.base import Bad, DumpFolder, Finding, Findings, Good, Rule, Severity, first_line
from hlo_lint.rules.evidence import MeasuredHarm
from hlo_lint.text.source import whole_number

_MODULE = "HloModule m  // error\nROOT p = f32[8] parameter(0)"


class IncompleteDump(Rule):
    """A dump folder that lacks or mixes up files that rules need.

    ## Why
    Some flags remove text that rules need, so a clean report means little: short text has neither
    configurations of custom calls nor metadata, `xla_dump_max_hlo_modules` silently stops dumping
    in the middle of a program, `xla_dump_hlo_pipeline_re` hides whole pipelines. If two runs wrote
    into the same folder, files of both share numbers, and a step that looks like a pass may belong
    to a different program. Harmless gaps are not reported: with `xla_dump_hlo_pass_re=.*` passes
    without a change leave no dump, large constants are printed as `{...}`, tuple elements have no
    line of their own.
    """

    severity = Severity.INFO
    evidence = (
        MeasuredHarm(
            "XLA:GPU of jax 0.11.2 with xla_dump_hlo_as_long_text=false leaves out the "
            "configurations of custom calls.",
            "dumps/gpu-jax0.11.2/short_text",
        ),
    )
    examples = (
        Bad.final(
            _MODULE, beside={"module_0001.m.debug_options": "xla_dump_hlo_as_long_text: false"}
        ),
        Good.final(_MODULE, beside={"module_0001.m.debug_options": 'xla_dump_hlo_pass_re: ".*"'}),
    )

    def check(self, folder: DumpFolder) -> Findings:
        """A finding for the folder, with a note for each gap."""
        gaps = list(_gaps(folder.compilations))
        if not gaps:
            return
        flags = " ".join(flag for _, flag in gaps if flag)
        notes = [gap for gap, _ in gaps]
        if flags:
            notes.append(f"to dump all of it: XLA_FLAGS={flags}")
        message = "these dumps lack text that rules need"
        yield Finding(first_line(folder.dumps[0]), message, tuple(notes))


def _gaps(compilations: Sequence[Compilation]) -> Iterator[tuple[str, str]]:
    """A description of each gap, and the flag that closes it."""
    values: dict[str, str] = {}
    for compilation in compilations:
        if compilation.options is not None:
            values |= {name: given[-1] for name, given in compilation.options.values.items()}
    if values.get("xla_dump_hlo_as_long_text") == "false":
        gap = "short text: no metadata, no backend_config, no frontend_attributes"
        yield gap, "--xla_dump_hlo_as_long_text=true"
    if hidden := values.get("xla_dump_hlo_pipeline_re"):
        gap = f"only pipelines that match {hidden} left dumps"
        yield gap, "--xla_dump_hlo_pipeline_re=.*"
    most = whole_number(values.get("xla_dump_max_hlo_modules", "")) or 0
    modules = {dump.name.module_id for p in compilations for dump in p.dumps[:1] if dump.name}
    if 0 < most <= len(modules):
        gap = f"{len(modules)} modules, the limit of xla_dump_max_hlo_modules={most}"
        yield gap, "--xla_dump_max_hlo_modules=-1"
    if mixed := _mixed(compilations):
        gap = f"more than one run wrote into this folder: {mixed}"
        yield gap, "--xla_dump_to=FOLDER_OF_ITS_OWN"


def _mixed(compilations: Sequence[Compilation]) -> str:
    """A pair of modules or dumps that share a number; empty if there is none."""
    names: dict[tuple[str, int, str | None], str] = {}
    for compilation in compilations:
        name = compilation.dumps[0].name
        if name is None or not compilation.steps:
            continue
        # The CPU's compiler and a plugin's compiler in the same process number separately.
        key = name.timestamp, name.module_id, compilation.backend
        first = names.setdefault(key, name.module)
        if first != name.module:
            return f"module {name.module_id:04d} is both {first} and {name.module}"
        if two := numbered_twice(dump.name for dump in compilation.steps):
            labels = " and ".join(f"after {step.after} of {step.pipeline}" for step in two)
            return f"step {two[0].step:04d} of {compilation.title} is both {labels}"
    return ""
