"""The pass in which a compilation stopped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hlo_lint.analysis.grouping import by_key
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.passes_run import breaches
from hlo_lint.dumps.phases import DEMANDING
from hlo_lint.rules.base import (
    Bad,
    Compilation,
    Findings,
    Good,
    Rule,
    UnmetPrecondition,
    UnmetPreconditions,
    first_line,
)
from hlo_lint.rules.evidence import PublicReport
from hlo_lint.rules.findings import Finding, Severity
from hlo_lint.text.phrases import listed

if TYPE_CHECKING:
    from hlo_lint.dumps.crash import CrashSite

SHOWN = 3
"""Maximum number of passes that a message names."""

_GIVEN = """
HloModule m

ENTRY e { ROOT r = f32[24]{0} reshape(f32[3,8]{1,0} p) }
"""
_LAYOUTS = "layout_normalization.after_pipeline-start.before_move_copy_to_users"
_SPREAD = "layout_assignment.after_layout-assignment.before_sub-byte-size-setter"


class CompilationDied(Rule):
    """A compilation that did not finish, and the pass in which it stopped.

    ## Why
    A pass that fails leaves no dump: the last file is its input, and the file's name states which
    pass is next in the list. That pass failed only if it would dump even without a change, and was
    not disabled: with `xla_dump_hlo_pass_re=.*` the culprit may be any pass up to the start of the
    next pipeline. If a rule knows the precondition of such a pass, it checks the last dump. If the
    precondition is violated, the finding is an error with that rule's message (left to the rule
    itself if it is selected). Otherwise it is a warning: the process may also have been killed.

    A log beside the dump (`*.log`, `*.err`, `stderr`, `error.txt`, or DUMP.log) names the source
    file of the check that failed, and with it the pass: `reduce_decomposer.cc:95`. A dump that
    `hlo-lint fix` edited is no longer the compiler's, and is not reported.

    A single file does not show how its compilation ended: there the finding is an error if the
    module violates a precondition of a pass that certainly comes next.
    """

    severity = Severity.WARNING
    evidence = (PublicReport("ROCm/xla#817", "dumps/gpu-jax0.10.0/cublaslt_fission_crash"),)
    examples = (
        Bad.entry(
            "ROOT r = f32[24]{0} reshape(f32[3,8]{0,1} p)  // error",
            file=f"module_0001.m.0013.{_LAYOUTS}.txt",
            beside={
                "module_0001.m.before_optimizations.txt": _GIVEN,
                "module_0001.m.debug_options": """
                xla_disable_hlo_passes: "reshape-decomposer"
                xla_dump_hlo_pass_re: ".*"
                """,
            },
        ),
        Good.entry(
            "ROOT r = f32[24]{0} reshape(f32[3,8]{0,1} p)",
            file=f"module_0001.m.0012.{_SPREAD}.txt",
            beside={"module_0001.m.sm_9.0_gpu_after_optimizations.txt": _GIVEN},
        ),
    )

    def check(self, compilation: Compilation, unmet: UnmetPreconditions) -> Findings:
        """The violated precondition that stopped the compilation, else where it stopped."""
        if not compilation.crashed:
            if compilation.final is None:
                certain = [broken for broken in unmet if broken.certain]
                yield from _explained(certain, None, compilation.dumps)
            return
        from hlo_lint.dumps.crash import find_crash_site  # it is slow to import, and few runs died

        site = find_crash_site(compilation)
        suspects = {name for _, name in site.suspects}
        causes = [
            broken
            for broken in unmet
            if not site.is_complete or broken.demand.demanded_by in suspects
        ]
        if certain := [cause for cause in causes if cause.certain]:
            yield from _explained(certain, site, compilation.dumps)
        elif not any(cause.reported for cause in causes):
            yield _unexplained(site, causes, compilation)


def _explained(
    causes: Sequence[UnmetPrecondition], site: CrashSite | None, dumps: Sequence[PassDump]
) -> Iterator[Finding]:
    """A finding for each pass that must fail, unless the report already has it."""
    for name, crashes in by_key((cause.demand.demanded_by, cause) for cause in causes).items():
        if any(cause.reported for cause in crashes):
            continue
        first = crashes[0]
        more = f" (one of {len(crashes)})" if len(crashes) > 1 else ""
        verb = "dies" if site is None else "died"
        notes = [
            f"{name} demands that {first.demand.fact}; XLA stops with {first.demand.failure}",
            f"{first.rule}, {len(crashes)} in this dump",
        ]
        if site is not None and len(site.suspects) > 1:
            suspects = listed((name for _, name in site.suspects), SHOWN)
            notes.append(f"the dumps do not show which of {suspects} it was")
        yield first.finding._replace(
            message=f"compilation {verb} in {name}: {first.finding.message}{more}",
            notes=(*first.finding.notes, *notes),
            severity=Severity.ERROR,
            fixable=False,
            file=len(dumps) - 1,
        )


def _unexplained(
    site: CrashSite, causes: Sequence[UnmetPrecondition], compilation: Compilation
) -> Finding:
    dumps = compilation.dumps
    message = _message(site)
    suspects = {name for _, name in site.suspects}
    lacking = {cause.demand.demanded_by for cause in causes}
    held = [name for name in DEMANDING if name in suspects and name not in lacking]
    broken = [
        breach for breach in breaches(compilation, site.suspects) if breach.guilty[1] not in held
    ]
    guilty = list(dict.fromkeys(breach.guilty[1] for breach in broken))
    if len(guilty) == 1:
        message += f", and {guilty[0]} ran without a pass that it relies on"
    notes = [_where(site)]
    if site.failure is not None and not site.is_named:
        notes.append(f"{site.failure.log} says: {site.failure}")
    notes += [
        f"perhaps it was {cause.demand.demanded_by}: {cause.rule} says {cause.finding.message}"
        for cause in causes[:SHOWN]
    ]
    if len(causes) > SHOWN:
        notes.append(f"{len(causes) - SHOWN} more preconditions do not hold")
    notes += [
        f"every known precondition of {name} holds: the process was killed, or this dump was "
        "edited, or the pass has another precondition"
        for name in held
    ]
    notes += [
        f"a contract is broken: {breach.order.breach(breach.guilty[1])}, which relies on: "
        f"{breach.contract.promise}; otherwise: {breach.contract.symptom}"
        for breach in broken
    ]
    if not site.pass_name:
        notes.append("XLA_FLAGS=--xla_dump_hlo_pass_re=.+ makes the last dump name the pass")
    file = dumps.index(site.dump) if site.dump in dumps else 0
    return Finding(first_line(site.dump), message, tuple(notes), file=file)


def _message(site: CrashSite) -> str:
    if site.failure is not None and site.is_named:
        return f"the compilation died in {site.pass_name} ({site.failure})"
    if site.pass_name:
        return f"the compilation died in {site.pass_name}, or was killed there"
    return "the compilation did not finish: this is its last dump; it crashed, or was killed"


def _where(site: CrashSite) -> str:
    if not site.suspects:
        return f"the pass is unknown: {site.why}"
    pipelines = dict.fromkeys(pipeline for pipeline, _ in site.suspects[:SHOWN])
    suspects = listed((name for _, name in site.suspects), SHOWN)
    suspects += f" of {' and '.join(pipelines)}"
    if not site.is_complete:
        return f"next came {suspects} ({site.why}), or a pass after it"
    if len(site.suspects) == 1:
        return f"it was in {suspects} ({site.why})"
    count = len(site.suspects)
    return (
        f"it was in one of {count} passes, {suspects}, or in a pass that a flag adds ({site.why})"
    )
