"""The names and keys of `contracts.toml`: an unknown one is an error that names the nearest."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from pathlib import Path

from hlo_lint.dumps import contracts
from hlo_lint.dumps.contracts import Order, OrderKind, read_contracts
from hlo_lint.dumps.pass_lists import pass_lists
from hlo_lint.dumps.phases import PRECONDITIONS
from hlo_lint.text.errors import ConfigError, nearest

FILE = Path(contracts.__file__).with_suffix(".toml")
STATED: tuple[str, ...] = ("relies", "promise", "kept_by", "symptom")
"""The keys of a contract without a precondition, which gives these."""
NEEDED = ("broken_by", "source")
OTHERS = ("unchecked", "backends", "rules", "orders")


def check_contract_names(rules: Collection[str], text: str | None = None) -> None:
    """Refuse unknown keys, and unknown names of rules, passes and pipelines, in a text or the file.

    Raises:
        ConfigError: names the nearest.
    """
    text = FILE.read_text("utf-8") if text is None else text
    table = tomllib.loads(text)
    for number, row in enumerate(table["contract"], 1):
        where = f"contract {number}"
        own = STATED
        if demand := row.get("precondition"):
            own = ("precondition",)
            _refuse_others([demand], PRECONDITIONS, f"{where}: precondition")
        _refuse_others(row, (*own, *NEEDED, *OTHERS), f"{where}: key")
        for name in (*own, *NEEDED):
            if name not in row:
                raise ConfigError(f"contracts.toml, {where}: {name} is missing")
        _refuse_others(row.get("backends", ()), ("gpu", "cpu"), f"{where}: backend")
        _refuse_others(row.get("rules", ()), rules, f"{where}: rule")
        for order in row.get("orders", ()):
            _refuse_others(order, Order._fields, f"{where}: key of an order")
            kinds = [kind.value for kind in OrderKind]
            _refuse_others([order["kind"]], kinds, f"{where}: kind of an order")
    lists = pass_lists()
    passes = {name for release in lists for _, name in release.passes} | {*table["unlisted"]}
    pipelines = {pipeline for release in lists for pipeline, _ in release.passes}
    for contract in read_contracts(text):
        where = f"contract {contract.number}"
        for order in contract.orders:
            _refuse_others((*order.first, *order.then, *order.breakers), passes, f"{where}: pass")
            _refuse_others(order.pipelines, pipelines, f"{where}: pipeline")


def _refuse_others(names: Iterable[str], known: Collection[str], what: str) -> None:
    for name in names:
        if name not in known:
            raise ConfigError(f"contracts.toml, {what} {name}: {nearest(name, known)}")
