"""The passes that a run is known to have run, and the orders among them that it breaks."""

from __future__ import annotations

from dataclasses import dataclass

from hlo_lint.dumps.contracts import Contract, Kind, Order, broken_orders
from hlo_lint.dumps.pass_lists import Pass
from hlo_lint.dumps.pipeline import Pipeline

EVERY_PASS = ".+"
"""The value of `xla_dump_hlo_pass_re` with which each pass leaves a dump, changed or not."""


@dataclass(frozen=True)
class PassesRun:
    """The passes of a run, in order."""

    passes: tuple[Pass, ...]
    how: str
    """How they are known."""


@dataclass(frozen=True)
class Breach:
    """An order of passes that a run does not keep, though its release does."""

    contract: Contract
    order: Order
    guilty: Pass
    """The pass that runs where it must not."""
    how: str
    """How it is known that it does."""
    disabled: tuple[str, ...]
    """Those of the order's passes that were switched off."""


def passes_run(pipeline: Pipeline) -> PassesRun | None:
    """The passes that ran, by the module's metadata, by the dumps where every pass left one, or by
    the release's list and the passes that were switched off; None where nothing tells."""
    if pipeline.pass_runs:
        runs = tuple((run.pipeline, run.name) for run in pipeline.pass_runs)
        return PassesRun(runs, "the module's metadata lists the passes")
    options = pipeline.options
    if options is None or pipeline.lone:
        return None
    whole = "xla_dump_hlo_pipeline_re" not in options.values
    if options.pass_pattern == EVERY_PASS and whole:
        names = [dump.name for dump in pipeline.steps if dump.name]
        if [name.step for name in names] != list(range(len(names))):
            return None  # some were deleted
        names = [name for name in names if name.before]
        return PassesRun(
            tuple((name.pipeline, name.after) for name in names), "each pass left a dump"
        )
    if len(pipeline.releases) != 1:
        return None
    (release,) = pipeline.releases
    ran = tuple(entry for entry in release.passes if not options.disabled(entry[1]))
    return PassesRun(ran, f"as {pipeline.likened_to(release)} runs them")


def breaches(pipeline: Pipeline) -> list[Breach]:
    """The contracts about order that a run breaks. What its release breaks anyway is left out."""
    run = passes_run(pipeline)
    releases = pipeline.releases
    if run is None or not releases or pipeline.is_helper:
        return []
    anyway = {
        (contract.number, order)
        for release in releases
        for contract, order, _ in broken_orders(release.backend, release.passes)
    }
    options = pipeline.options
    found = []
    for contract, order, guilty in broken_orders(releases[0].backend, run.passes):
        unfinished = order.kind is Kind.FOLLOWS and pipeline.final is None
        if unfinished or (contract.number, order) in anyway:
            continue
        names = (*order.first, *order.then)
        disabled = tuple(name for name in names if options and options.disabled(name))
        found.append(Breach(contract, order, guilty, run.how, disabled))
    return found
