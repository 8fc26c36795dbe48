"""Advice after a fix of a dump: what helps the next compile, which reads no dump."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hlo_lint.dumps.contracts import Contract, broken_orders, contracts
from hlo_lint.dumps.directory import Dump
from hlo_lint.dumps.names import parse_name
from hlo_lint.dumps.pass_lists import PassList, pass_lists
from hlo_lint.dumps.phases import Precondition
from hlo_lint.rules.registry import find_rule
from hlo_lint.text.source import shown

if TYPE_CHECKING:
    from hlo_lint.engine.findings import Diagnostic

MAX_CAUSES = 5
"""Maximum number of fixed findings that advice is given on."""


def advice(causes: Sequence[Diagnostic], dump: Dump) -> Iterator[str]:
    """Lines on findings that were fixed in dumps of passes; none if no pass wrote the files."""
    causes = [cause for cause in causes if _is_of_pass(cause.path)]
    if not causes:
        return
    yield "note: an edited dump changes no compile: the next one goes as this one went"
    for rule, place in list(dict.fromkeys((cause.rule, cause.origin) for cause in causes))[
        :MAX_CAUSES
    ]:
        demand = find_rule(rule).precondition
        line = f"note: {rule}"
        line += f" comes from {shown(str(place))}" if place else ""
        yield line + "; " + (_live() if demand is None else _mended(demand, dump))


def _is_of_pass(path: str) -> bool:
    name = parse_name(Path(path).name)
    return name is not None and name.step is not None


def _live() -> str:
    return (
        '`hlo_lint.live.install("fix")` makes such edits inside a compile, on a GPU before layout '
        "assignment"
    )


def _mended(demand: Precondition, dump: Dump) -> str:
    """The flag or the releases of jax with which the demand of a pass holds."""
    guards = " or ".join(demand.established_by)
    for pipeline in dump:
        options = pipeline.options
        if options and any(options.disabled(name) for name in demand.established_by):
            return f"XLA_FLAGS disables {guards}, which repairs it (xla_disable_hlo_passes)"
    other = "`hlo-lint capture --jax RELEASE` says if another release compiles it"
    backends = {pipeline.backend for pipeline in dump}
    orders = [contract for contract in contracts() if contract.promise == demand.fact]
    releases = [release for release in pass_lists() if release.backend in backends]
    keeps = [_keeps(release, orders) for release in releases]
    if not keeps or all(keeps) or not keeps[-1]:
        return other
    first = len(keeps) - keeps[::-1].index(False)
    since = releases[first].name.partition("-jax")[2]
    return f"since jax {since} XLA runs {guards} before each {demand.demanded_by}"


def _keeps(release: PassList, promised: Sequence[Contract]) -> bool:
    """True if a release keeps the orders of contracts that are promised to a pass."""
    broken = broken_orders(release.backend, release.passes)
    return not any(contract in promised for contract, _, _ in broken)
