"""The passes after a dump, from its name, the flags of the run, or the pass lists."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pass_lists import PassList, PassName, pass_lists
from hlo_lint.dumps.phases import AFTER_NORMALIZATION, Precondition


class Fate(Enum):
    """The fate of a module that breaks a precondition."""

    BREAKS = "the pass that demands it comes next"
    REPAIRED = "a pass that establishes it comes first"
    NEVER = "no later pass demands it"
    UNSURE = "the next passes are unknown"


class PreconditionStatus(NamedTuple):
    """An outcome, and the sentence with its evidence."""

    outcome: Fate
    why: str


def status_of(
    compilation: Compilation, dump: PassDump, precondition: Precondition
) -> PreconditionStatus:
    """The fate of the module in a dump if it breaks a precondition.

    Evidence is checked in the order of its weight: the run itself, its flags, the names of dumps,
    and last the pass lists of the nearest releases, which all have to agree.
    """
    demanded, name, options = precondition.demanded_by, dump.name, compilation.options
    if compilation.final is not None:
        return PreconditionStatus(Fate.NEVER, "the module was compiled to the end")
    if name is None:
        return _status_of_loose_file(dump)
    lists = pass_lists(compilation.backend)
    if compilation.backend and all(passes.last_place(demanded) is None for passes in lists):
        return PreconditionStatus(Fate.NEVER, f"{compilation.compiler} does not run {demanded}")
    is_over = name.rest.partition(".txt")[0].endswith(AFTER_NORMALIZATION)
    if is_over and precondition.about_layouts:
        return PreconditionStatus(Fate.NEVER, f"no {demanded} is left to run")
    if compilation.is_helper:
        return PreconditionStatus(Fate.NEVER, "the autotuner's helper modules are not normalized")
    if options is not None and options.disabled(demanded):
        return PreconditionStatus(Fate.NEVER, f"{demanded} is disabled")
    # XLA names the next pass in the file, which is better evidence than any list.
    if name.before == demanded:
        return PreconditionStatus(Fate.BREAKS, f"{demanded} is named as the next pass")
    outcomes = {
        _outcome(compilation, passes, precondition): release
        for release, passes in _futures(compilation, dump)
    }
    if len(outcomes) == 1:
        ((outcome, release),) = outcomes.items()
        return _explained(compilation, outcome, release, name.before, precondition)
    if compilation.crashed:
        return PreconditionStatus(Fate.BREAKS, "compilation ended with this dump")
    return PreconditionStatus(Fate.UNSURE, "the dump's name does not determine the next passes")


def upcoming_passes(
    compilation: Compilation, dump: PassDump
) -> tuple[PassList | None, list[PassName]]:
    """The passes to run after the last dump of a module, including disabled passes, and their
    release; None if unknown."""
    runs, name = compilation.pass_runs, dump.name
    for release in compilation.releases[:1]:
        if runs and (ran := release.places(runs[-1].pipeline, runs[-1].name, "")):
            return release, release.remaining(ran[-1], runs[-1].pipeline, "")
        if name is not None and (places := compilation.places(release, dump)):
            return release, release.remaining(places[0], name.pipeline, name.before)
    return None, []


def _explained(
    compilation: Compilation,
    outcome: Fate,
    release: str,
    following: str,
    precondition: Precondition,
) -> PreconditionStatus:
    """The outcome of the pass lists in words; flags can make it uncertain."""
    demanded, guards = precondition.demanded_by, precondition.established_by
    options = compilation.options
    match outcome:
        case Fate.BREAKS:
            names = " or ".join(guards)
            if options and any(map(options.disabled, guards)):
                why = f"{names} is disabled, and {demanded} is still to run"
            else:
                why = f"{release} does not run {names} before the next {demanded}"
        case Fate.REPAIRED if compilation.crashed and options is None and following in guards:
            # It died where a guard comes next: after the guard there would be a dump.
            outcome = Fate.UNSURE
            unknown = f"no debug_options file says whether {following} was disabled"
            why = f"compilation ended with this dump, and {unknown}"
        case Fate.REPAIRED:
            why = f"{release} repairs it first"
        case _:
            why = f"{release} does not run {demanded} again"
    return PreconditionStatus(outcome, why)


def _status_of_loose_file(dump: PassDump) -> PreconditionStatus:
    if dump.stem_ends_with(AFTER_NORMALIZATION):
        return PreconditionStatus(Fate.NEVER, "its name says that optimization is over")
    if dump.module.is_scheduled:
        return PreconditionStatus(Fate.NEVER, "the module is scheduled, so layouts are settled")
    if dump.module.has_tiles:
        return PreconditionStatus(Fate.NEVER, "its layouts have tiles, so it is of XLA:TPU")
    return PreconditionStatus(Fate.UNSURE, "the next passes are unknown")


def _outcome(compilation: Compilation, passes: list[PassName], precondition: Precondition) -> Fate:
    """The outcome: the first pass decides that demands or establishes the precondition."""
    for _, name in passes:
        if compilation.options is not None and compilation.options.disabled(name):
            continue
        if name == precondition.demanded_by:
            return Fate.BREAKS
        if name in precondition.established_by:
            return Fate.REPAIRED
    return Fate.NEVER


def _futures(compilation: Compilation, dump: PassDump) -> Iterator[tuple[str, list[PassName]]]:
    """The passes that may run after a dump: for each near release and each possible place."""
    name, runs = dump.name, compilation.pass_runs or ()
    assert name is not None
    for number, run in enumerate(runs):
        if dump.path.name in run.dumps:
            ran = [(later.pipeline, later.name) for later in runs[number + 1 :]]
            last = runs[-1]
            for release in compilation.releases:
                # The metadata ends with the last pass that began; the lists know those after it.
                for place in release.places(last.pipeline, last.name, "")[-1:]:
                    ran += release.remaining(place, last.pipeline, "")
            yield "the module's metadata: this run", ran
            return
    title = compilation.release_title
    if not compilation.is_of_known_release:
        title = f"each known release of {compilation.compiler}"
    for release in compilation.possible_releases:
        for place in compilation.places(release, dump):
            yield title, release.remaining(place, name.pipeline, name.before)
