"""Contracts between the passes of a pipeline, as data; `docs/contracts.md` is generated from them.

A contract about the order of passes has it as data, in `orders`, which are checked against the pass
lists of the releases, and against the passes that a run is known to have run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from hlo_lint.dumps.pass_lists import PassList, PassName
from hlo_lint.dumps.phases import PRECONDITIONS


class OrderKind(Enum):
    """The kinds of order of two passes, `first` and `then`."""

    BEFORE = "before"
    """If both run, the last `first` is before the first `then`."""
    NEEDS = "needs"
    """Each run of `then` has a run of `first` before it."""
    RENEWS = "renews"
    """Each run of `then` has a run of `first` before it, and no `breaker` in between."""
    FOLLOWS = "follows"
    """Each run of `first` has a run of `then` after it."""
    NOT_BETWEEN = "not between"
    """No `breaker` runs between a `first` and the next `then` of the same pipeline."""


_ORDERS: Final = {
    OrderKind.BEFORE: ("{first} before {then}", "{guilty} runs before the last {first}"),
    OrderKind.NEEDS: (
        "{first} somewhere before every {then}",
        "{guilty} runs without {first} before it",
    ),
    OrderKind.RENEWS: (
        "{first} before every {then}, again after {breakers}",
        "{guilty} runs without {first} after the last {breakers}",
    ),
    OrderKind.FOLLOWS: ("{then} somewhere after every {first}", "no {then} runs after {guilty}"),
    OrderKind.NOT_BETWEEN: (
        "no {breakers} between {first} and {then}",
        "{guilty} runs between {first} and {then}",
    ),
}
"""An order in words, and the sentence for a pass that breaks it."""


class Order(NamedTuple):
    """An order of passes that a contract demands, by the names in dump files."""

    kind: OrderKind
    first: tuple[str, ...]
    """Any of these."""
    then: tuple[str, ...]
    """Any of these."""
    breakers: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    """The pipelines that it applies to; all if empty."""

    def _spelled(self, template: str, **others: str) -> str:
        first, then, breakers = map(" or ".join, (self.first, self.then, self.breakers))
        return template.format(first=first, then=then, breakers=breakers, **others)

    @property
    def text(self) -> str:
        """The order in words."""
        where = f" (in {' and '.join(self.pipelines)})" if self.pipelines else ""
        return self._spelled(_ORDERS[self.kind][0]) + where

    def breach(self, guilty: str) -> str:
        """The sentence about a pass that breaks the order."""
        return self._spelled(_ORDERS[self.kind][1], guilty=guilty)

    def among(self, places: Mapping[str, Sequence[int]]) -> list[int]:
        """The positions in a run of the passes of the order, ascending."""
        names = {*self.first, *self.then, *self.breakers}
        return sorted(place for name in names for place in places.get(name, ()))

    def broken_by(self, passes: Sequence[PassName]) -> PassName | None:
        """The first pass of a run that breaks the order, or None.

        >>> order = Order(OrderKind.NEEDS, ("flatten-call-graph",), ("layout-assignment",))
        >>> order.broken_by([("layout_assignment", "layout-assignment")])
        ('layout_assignment', 'layout-assignment')
        """
        if self.pipelines:
            passes = [entry for entry in passes if entry[0] in self.pipelines]
        match self.kind:
            case OrderKind.BEFORE:
                firsts = [n for n, (_, name) in enumerate(passes) if name in self.first]
                earlier = passes[: max(firsts, default=0)]
                return next((entry for entry in earlier if entry[1] in self.then), None)
            case OrderKind.FOLLOWS:
                ends = [n for n, (_, name) in enumerate(passes, 1) if name in self.then]
                later = passes[max(ends, default=0) :]
                return next((entry for entry in later if entry[1] in self.first), None)
            case OrderKind.NOT_BETWEEN:
                return self._between(passes)
            case _:
                return self._unprepared(passes)

    def _between(self, passes: Sequence[PassName]) -> PassName | None:
        begun: str | None = None
        earlier: PassName | None = None
        for entry in passes:
            pipeline, name = entry
            if name in self.first:
                begun, earlier = pipeline, None
            elif name in self.then:
                # Only within a pipeline: a nested pipeline has its own passes.
                if begun == pipeline and earlier is not None:
                    return earlier
                begun = None
            elif name in self.breakers and begun == pipeline and earlier is None:
                earlier = entry
        return None

    def _unprepared(self, passes: Sequence[PassName]) -> PassName | None:
        ready = False
        for entry in passes:
            name = entry[1]
            if name in self.first:
                ready = True
            elif name in self.then and not ready:
                return entry
            elif self.kind is OrderKind.RENEWS and name in self.breakers:
                ready = False
        return None


class Contract(NamedTuple):
    """A promise, with the passes that rely on it, keep it and break it, and the symptom."""

    number: int
    relies: str
    """The pass, or the stage, that relies on it."""
    promise: str
    """The property of its input."""
    kept_by: str
    broken_by: str
    source: str
    """The file of XLA that states it."""
    symptom: str
    unchecked: bool = False
    """True if no release build of XLA checks it."""
    backends: tuple[str, ...] = ("gpu",)
    """`gpu`, `cpu`"""
    rules: tuple[str, ...] = ()
    """The rules that check it on modules."""
    orders: tuple[Order, ...] = ()
    """The orders of passes that it demands."""


_FILE = Path(__file__).parent / "contracts.toml"


@cache
def contracts() -> tuple[Contract, ...]:
    """Every contract, numbered from 1."""
    return read_contracts(_FILE.read_text("utf-8"))


def read_contracts(text: str) -> tuple[Contract, ...]:
    """The contracts of a text like `contracts.toml`, whose names a test checks."""
    import tomllib

    rows = tomllib.loads(text)["contract"]
    return tuple(_contract(number, row) for number, row in enumerate(rows, 1))


def unlisted_passes() -> frozenset[str]:
    """Passes that run only with certain flags or devices, so that the pass lists lack them."""
    import tomllib

    return frozenset(tomllib.loads(_FILE.read_text("utf-8"))["unlisted"])


def _contract(number: int, row: dict[str, Any]) -> Contract:
    orders = row.pop("orders", ())
    if name := row.pop("precondition", ""):
        demand = PRECONDITIONS[name]
        row |= {"relies": demand.demanded_by, "promise": demand.fact, "symptom": demand.failure}
        row["kept_by"] = ", ".join(demand.established_by)
        passes = {"first": demand.established_by, "then": (demand.demanded_by,)}
        orders = [{**passes, **order} for order in orders]
    row["orders"] = [
        Order(OrderKind(order["kind"]), *(tuple(order.get(key, ())) for key in Order._fields[1:]))
        for order in orders
    ]
    lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
    return Contract(number, **{**row, **lists})


@lru_cache(maxsize=64)
def broken_orders(
    backend: str, passes: tuple[PassName, ...]
) -> tuple[tuple[Contract, Order, PassName], ...]:
    """The orders that a sequence of passes breaks, each with the pass that breaks it."""
    places: dict[str, list[int]] = {}
    for place, (_, name) in enumerate(passes):
        places.setdefault(name, []).append(place)
    broken = []
    for contract in contracts():
        if backend in contract.backends:
            for order in contract.orders:
                guilty = order.broken_by([passes[place] for place in order.among(places)])
                if guilty is not None:
                    broken.append((contract, order, guilty))
    return tuple(broken)


@cache
def orders_broken_anyway(release: PassList) -> frozenset[tuple[int, Order]]:
    """The orders that a release itself breaks, with the numbers of their contracts."""
    # A contract may be wrong, or kept in a way that the order does not show: an order that a
    # release breaks in every run is not reported.
    broken = broken_orders(release.backend, release.passes)
    return frozenset((contract.number, order) for contract, order, _ in broken)
