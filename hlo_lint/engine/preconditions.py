"""Check rules with a precondition, which bind if a pass that demands it comes next.

In a run only the last dump of a module can be bound: had the pass met the defect earlier, there
would be no later dump. From there the defect is followed back to the first bound dump that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from hlo_lint.dumps.compilation import Compilation
from hlo_lint.dumps.layout_evidence import Evidence, evidence_in
from hlo_lint.dumps.pass_dump import PassDump
from hlo_lint.dumps.pass_lists import pass_lists
from hlo_lint.dumps.phases import Precondition
from hlo_lint.dumps.upcoming import Fate, PreconditionStatus, status_of
from hlo_lint.engine.history import FindingHistory, histories_of
from hlo_lint.engine.reporter import Reporter
from hlo_lint.engine.states import DefectEnd
from hlo_lint.engine.timeline import Timeline
from hlo_lint.rules.base import UnmetPrecondition
from hlo_lint.rules.checks import Check
from hlo_lint.rules.findings import Severity

UNASSIGNED = (
    "rules about layouts: the text looks like a module before layout-assignment "
    "(--stage post-layout if it is not)"
)


def check_precondition(
    check: Check, demand: Precondition, timeline: Timeline, reporter: Reporter
) -> None:
    """Report all breaches of a demand of a pass that comes next, or may come next."""
    compilation, dumps = timeline.compilation, timeline.dumps
    before = reporter.before or timeline.next_pass
    if before not in (None, demand.demanded_by):
        return
    bound = {
        position for position, dump in enumerate(dumps) if _is_bound(demand, timeline, dump, before)
    }
    end = max((position for position in bound if position < timeline.length), default=None)
    if end is None:
        _skip_unassigned(check, timeline, reporter)
        return
    defects = (defect for defect in timeline.find(check) if defect.ref.position in bound)
    histories = histories_of(defects, timeline)
    if before is None:  # no pass died of a defect that ended earlier
        for history in histories:
            if history.last != end and (resolved_by := history.resolving_pass()):
                reporter.add_resolved(check.rule, history, DefectEnd(resolved_by))
        histories = [history for history in histories if history.last == end]
    if not histories:
        return  # reading the lists of passes takes longer than most checks
    held = {dumps[position] for position in bound}
    last = next(dump for dump in reversed(compilation.dumps) if dump in held)
    stated = PreconditionStatus(Fate.BREAKS, f"{before} comes next, as stated")
    status = stated if before else status_of(compilation, last, demand)
    binds, certain = _binds(demand, status), status.outcome is Fate.BREAKS
    for history in histories:
        if before or binds:
            reporter.add_history(
                check.rule,
                history,
                binding=0 if before else _first_binding(demand, history),
                end=DefectEnd(history.resolving_pass()),
                severity=Severity.ERROR if certain else Severity.WARNING,
                notes=tuple(_verdict(demand, status, history)),
                next_pass=demand.demanded_by if certain else "",
            )
        elif resolved_by := history.resolving_pass():
            reporter.add_resolved(check.rule, history, DefectEnd(resolved_by))
    never = status.outcome is Fate.NEVER and not demand.only_if_certain
    if never and last.name is None:
        reason = f"{check.rule.name()} does not apply: {status.why}"
        reporter.skip(last, reason, check.rule, minor=True)


def unmet_preconditions(
    checks: Iterable[Check], chosen: Set[str], timeline: Timeline, before: str | None
) -> Iterator[UnmetPrecondition]:
    """The demands of later passes that the last dump breaks; `chosen` rules report their own."""
    compilation = timeline.compilation
    last = (compilation.steps or compilation.dumps)[-1]
    if last not in timeline.dumps:
        return  # the last dump has no module
    position = timeline.dumps.index(last)
    for check in checks:
        demand = check.rule.precondition
        if demand is None or not _is_bound(demand, timeline, last, before):
            continue
        status = status_of(compilation, last, demand)
        if not _binds(demand, status):
            continue
        certain, reported = status.outcome is Fate.BREAKS, check.rule.name() in chosen
        for finding, _ in timeline.find_at(check, position):
            yield UnmetPrecondition(check.rule.name(), demand, finding, certain, reported)


def _skip_unassigned(check: Check, timeline: Timeline, reporter: Reporter) -> None:
    """Report that a loose text was read as unassigned, if a rule has findings otherwise."""
    for position, dump in enumerate(timeline.dumps):
        is_decided = timeline.stages.stated(dump) is not None or dump.is_named_before_layouts
        if dump.name is None and not is_decided and any(timeline.find_at(check, position)):
            is_certain = evidence_in(dump.file) is Evidence.UNASSIGNED
            reporter.skip(dump, UNASSIGNED, check.rule, minor=is_certain)


def _is_bound(demand: Precondition, timeline: Timeline, dump: PassDump, before: str | None) -> bool:
    """True if the demand applies to a dump; for a loose text `--before` may say so."""
    if not demand.about_layouts or timeline.stages.layouts_bind(dump) is not False:
        return True
    stated = dump.name is None and before == demand.demanded_by
    return stated and not dump.is_named_before_layouts


def _binds(demand: Precondition, status: PreconditionStatus) -> bool:
    """True if a pass dies or may die of a broken demand."""
    unsure = status.outcome is Fate.UNSURE and not demand.only_if_certain
    return unsure or status.outcome is Fate.BREAKS


def _first_binding(demand: Precondition, history: FindingHistory) -> int:
    """The number of a history's first dump after which no pass establishes the demand."""
    timeline, first = history.timeline, len(history.seen) - 1
    while first:
        dump = timeline.dumps[history.seen[first - 1].ref.position]
        status = status_of(timeline.compilation, dump, demand)
        if not _binds(demand, status):
            break
        first -= 1
    return first


def _verdict(
    demand: Precondition, status: PreconditionStatus, history: FindingHistory
) -> Iterator[str]:
    """Notes on the failure in XLA, and on the missing pass."""
    guards, options = " or ".join(demand.established_by), history.timeline.compilation.options
    disabled = [name for name in demand.established_by if options and options.disabled(name)]
    if status.outcome is Fate.BREAKS:
        yield f"XLA stops at {demand.demanded_by} with {demand.failure}"
        if disabled:
            yield f"{', '.join(disabled)} would repair it and is disabled (xla_disable_hlo_passes)"
        else:
            introduced = history.introduction(unless_established=True)
            place = f" after {introduced.pass_name}" if introduced else ""
            yield f"missing: {guards}{place}; {status.why}"
            if history.timeline.compilation.backend is not None:
                yield remedy(demand, history.timeline.compilation)
    else:
        yield (
            f"fatal if {demand.demanded_by} comes before the next {guards}: XLA would stop with "
            f"{demand.failure}"
        )
        yield f"{status.why}; pass --before {demand.demanded_by} if that pass comes next"


def remedy(demand: Precondition, compilation: Compilation) -> str:
    """A flag or a release of jax that avoids the failure in the next compile."""
    from hlo_lint.dumps.contracts import broken_orders, contracts

    guards, options = " or ".join(demand.established_by), compilation.options
    if options and any(options.disabled(name) for name in demand.established_by):
        return f"XLA_FLAGS disables {guards}, which repairs it (xla_disable_hlo_passes)"
    advice = "`hlo-lint capture --jax RELEASE` says if another release compiles it"
    orders = [contract for contract in contracts() if contract.promise == demand.fact]
    releases = [release for release in pass_lists() if release.backend == compilation.backend]
    keeps = [
        not any(broken in orders for broken, _, _ in broken_orders(passes.backend, passes.passes))
        for passes in releases
    ]
    if not keeps or all(keeps) or not keeps[-1]:
        return advice
    first = len(keeps) - keeps[::-1].index(False)
    since = releases[first].name.partition("-jax")[2]
    return f"since jax {since} XLA runs {guards} before each {demand.demanded_by}"
