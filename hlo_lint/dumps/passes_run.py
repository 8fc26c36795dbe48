"""Contracts about the order of passes, checked on the passes that a run is known to have run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.contracts import Contract, Order, OrderKind, broken_orders, orders_broken_anyway
from hlo_lint.dumps.pass_lists import PassName
from hlo_lint.dumps.run_records import EVERY_PASS


class PassesRun(NamedTuple):
    """The passes of a run, in order."""

    passes: tuple[PassName, ...]
    how: str
    """The evidence for them."""
    left_dumps: bool = False
    """True if they are the passes that left a dump: a failed pass is missing."""


class Breach(NamedTuple):
    """An order of passes that a run breaks, although its release keeps it."""

    contract: Contract
    order: Order
    guilty: PassName
    """The pass that runs in the wrong place."""
    how: str
    """The evidence for it."""
    disabled: tuple[str, ...]
    """The passes of the order that were disabled."""


def passes_run(compilation: Compilation) -> tuple[PassesRun, ...]:
    """The passes that ran.

    By the module's metadata, by the dumps if every pass left a dump, or by the release's list
    without disabled passes.

    Several if several releases of the backend fit; empty without evidence.
    """
    if compilation.pass_runs:
        ran = tuple((run.pipeline, run.name) for run in compilation.pass_runs)
        return (PassesRun(ran, "the module's metadata lists the passes"),)
    options = compilation.options
    if options is None or compilation.lone:
        return ()
    whole = "xla_dump_hlo_pipeline_re" not in options.values
    if options.pass_pattern == EVERY_PASS and whole:
        names = [dump.name for dump in compilation.steps]
        if [name.step for name in names] != list(range(len(names))):
            return ()  # some were deleted
        ran = tuple((name.pipeline, name.after) for name in names if name.before)
        return (PassesRun(ran, "each pass left a dump", left_dumps=True),)
    if len({release.backend for release in compilation.releases}) != 1:
        return ()
    return tuple(
        PassesRun(
            tuple(entry for entry in release.passes if not options.disabled(entry[1])),
            f"as {release.title} runs them",
        )
        for release in compilation.releases
    )


def breaches(compilation: Compilation, died_in: Sequence[PassName] = ()) -> list[Breach]:
    """The contracts about order that a run breaks, without those that its release always breaks.

    For a run that died, only those about the passes in which it may have died.
    """
    runs, releases = passes_run(compilation), compilation.releases
    if not runs or not compilation.is_of_known_release or compilation.is_helper:
        return []
    backend, options = releases[0].backend, compilation.options
    anyway = frozenset().union(*map(orders_broken_anyway, releases))
    broken = [
        broken_orders(backend, (*run.passes, *died_in) if run.left_dumps else run.passes)
        for run in runs
    ]
    in_all = set.intersection(*({(run.number, order) for run, order, _ in b} for b in broken))
    run_breaches = []
    for contract, order, guilty in broken[0]:
        unfinished = order.kind is OrderKind.FOLLOWS and compilation.final is None
        if unfinished or (contract.number, order) not in in_all - anyway:
            continue
        if died_in and guilty not in died_in:
            continue
        names = (*order.first, *order.then)
        disabled = tuple(name for name in names if options and options.disabled(name))
        run_breaches.append(Breach(contract, order, guilty, runs[0].how, disabled))
    return run_breaches
